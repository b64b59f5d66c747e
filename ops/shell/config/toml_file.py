"""A TOML file, with the line of each key.

Python's parser reports lines only for syntax errors, so the line of a key is searched again for an error message.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ConfigRefused

Keys = tuple[str, ...]


@dataclass(frozen=True)
class TomlFile:
    """A parsed file; empty without a path.

    Args:
        path: its path; None without a file.
        values: its parsed content.
        text: its text. Text and values may contain secrets and are never printed.
    """

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    text: str = field(default="", repr=False)

    @staticmethod
    def read(path: Path) -> TomlFile:
        """Read a file.

        Raises:
            ConfigRefused: it is unreadable, or not TOML.
        """
        try:
            text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise ConfigRefused(
                f"Cannot read the configuration {path}: {reason}. Nothing was done. Name another file with --config or PENSTOCK_CONFIG."
            ) from error
        try:
            return TomlFile(path, tomllib.loads(text), text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigRefused(f"{path} is not TOML: {error}. Nothing was done. Correct the file.") from error

    def place(self, keys: Keys) -> str:
        """Return the place of a value, as "penstock.toml, line 3". A key with dots also stands for nested tables, as in librdkafka's names."""
        line = self._line(keys)
        return f"{self.path}, line {line}" if line else str(self.path)

    def _line(self, keys: Keys) -> int | None:
        """Return the line of a key or a table header; for an implicit table, the line of its first key."""
        name = f"{'.'.join(keys)}."
        return next((line for line, found in _keys_by_line(self.text) if f"{'.'.join(found)}.".startswith(name)), None)


def _keys_by_line(text: str) -> Iterator[tuple[int, Keys]]:
    """Yield keys and table headers with their lines, from 1."""
    table: Keys = ()
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("["):
            table = _path(line) or table
            yield number, table
        elif "=" in line and (found := _path(line.partition("=")[0] + "= 0")):
            yield number, (*table, *found)


def _path(line: str) -> Keys:
    """Return the keys on a line; empty for a line within a multi-line string."""
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
