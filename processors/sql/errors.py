"""Errors of SQL, with their place in the file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import DeclarationError, NotLoadable


class SqlRefused(NotLoadable, DeclarationError):
    """A statement is not valid, or Penstock does not support it. The message shows the line with a caret below the place.

    Args:
        fault: what is wrong, and where.
        advice: how to correct it.
        excerpt: the line and the caret.
    """

    def __init__(self, fault: str, advice: str = "", excerpt: str = "") -> None:
        super().__init__(fault, advice)
        self.excerpt = excerpt

    def __str__(self) -> str:
        return f"{super().__str__()}{self.excerpt}"


class SqlDataError(ValueError):
    """An expression has no value for an event, such as a division by zero. The event is rejected."""


@dataclass(frozen=True)
class SqlText:
    """The text of an SQL file.

    Args:
        name: the name of the file, for messages.
        text: its content.
        begin: the index from which messages count lines: text before it is from elsewhere.
    """

    name: str
    text: str
    begin: int = 0

    @classmethod
    def read(cls, path: Path) -> SqlText:
        """Return the text of a file.

        Raises:
            SqlRefused: the file is unreadable, or it is not SQL in UTF-8.
        """
        if path.suffix == ".py":
            raise SqlRefused(f"{path} is a Python file.", "Name an SQL file, such as shop.sql.")
        try:
            content = path.read_bytes()
        except OSError as error:
            raise SqlRefused(
                f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions."
            ) from error
        try:
            return cls(str(path), content.decode("utf-8-sig"))  # some editors begin a file with a mark
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise SqlRefused(f"{path}, line {line}: This is not text in UTF-8.", "Save the file in UTF-8.") from error

    def refusal(self, offset: int, problem: str, advice: str = "") -> SqlRefused:
        """Return the error of a place in the text.

        Args:
            offset: the index of the character at which the problem begins.
            problem: a sentence about the problem.
            advice: a sentence about the correct form.
        """
        offset = min(max(offset, self.begin), len(self.text))
        line_start = self.text.rfind("\n", 0, offset) + 1
        line_end = self.text.find("\n", offset)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        number, column = self.text.count("\n", self.begin, offset) + 1, offset - line_start
        margin = " " * len(str(number))
        indent = "".join("\t" if character == "\t" else " " for character in line[:column])
        return SqlRefused(
            f"{self.name}, line {number}, column {column + 1}: {problem}",
            advice,
            f"\n\n{number} | {line}\n{margin} | {indent}^",
        )
