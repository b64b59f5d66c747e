"""Errors of SQL, with their place in the file."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DeclarationError


class SqlRefused(DeclarationError):
    """A statement is not valid, or Penstock does not support it. The message shows the line with a caret below the place."""


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

    def refusal(self, offset: int, problem: str, advice: str = "") -> SqlRefused:
        """Return the error of a place in the text.

        Args:
            offset: the index of the character at which the problem begins.
            problem: a sentence about the problem.
            advice: a sentence about the correct form.
        """
        offset = min(max(offset, 0), len(self.text))
        line_start = self.text.rfind("\n", 0, offset) + 1
        line_end = self.text.find("\n", offset)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        number, column = self.text.count("\n", self.begin, offset) + 1, offset - line_start
        margin = " " * len(str(number))
        indent = "".join("\t" if character == "\t" else " " for character in line[:column])
        return SqlRefused(
            f"{self.name}, line {number}, column {column + 1}: {problem} Nothing was started."
            f"{' ' + advice if advice else ''}\n\n{number} | {line}\n{margin} | {indent}^"
        )
