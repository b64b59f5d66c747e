"""A TOML file, with the line that each of its keys stands on.

Python's parser tells no lines but those of mistakes in syntax, so a key is looked for again where somebody has to be told of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ConfigRefused

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Keys = tuple[str, ...]


@dataclass(frozen=True)
class TomlFile:
    """What a file says, or nothing.

    Args:
        path: where it is; None for no file.
        values: what it says.
        text: its text. May hold secrets, as the values may: never shown.
    """

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    text: str = field(default="", repr=False)

    @staticmethod
    def read(path: Path) -> TomlFile:
        """Read a file.

        Raises:
            ConfigRefused: it cannot be read, or is not TOML.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise ConfigRefused(
                f"The configuration {path} cannot be read: {reason}. Nothing was done. Name another with --config or PENSTOCK_CONFIG."
            ) from error
        try:
            return TomlFile(path, tomllib.loads(text), text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigRefused(f"{path} is not TOML: {error}. Nothing was done; mend it there.") from error

    def place(self, keys: Keys) -> str:
        """Return where a value stands, as "penstock.toml, line 3"."""
        line = self._line(keys)
        return f"{self.path}, line {line}" if line else str(self.path)

    def _line(self, keys: Keys) -> int | None:
        """Return the line of a key or of the header of a table; for one that only its parts stand for, that of the first."""
        return next((number for number, found in _keys_by_line(self.text) if found[: len(keys)] == keys), None)


def _keys_by_line(text: str) -> Iterator[tuple[int, Keys]]:
    """Give the keys and headers of tables with their lines, from 1."""
    table: Keys = ()
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("["):
            table = _path(line) or table
            yield number, table
        elif "=" in line and (found := _path(line.partition("=")[0] + "= 0")):
            yield number, (*table, *found)


def _path(line: str) -> Keys:
    """Return the keys that a line names; none where it is not a line of its own, but within a text."""
    try:
        inner: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    found: list[str] = []
    while isinstance(inner, (dict, list)) and inner:
        if isinstance(inner, list):
            inner = inner[0]
            continue
        [(name, inner)] = inner.items()
        found.append(name)
    return tuple(found)
