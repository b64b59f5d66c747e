"""Records as lines of text, for a program that reads and writes them.

A record of raw bytes or text is its line; any other record is a JSON object in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol
from zlib import crc32

import msgspec

from ..declare import AnyCategory, EventTime, Record, reader_of, type_name
from ..errors import PenstockError
from ..models import encode_model
from .program import MARK


class InvalidLine(PenstockError):
    """A record is no line, or a line is no record."""


class Line(Record, frozen=True):
    """A message as a line of bytes. Declare its category with `codec=penstock.codecs.Lines()`, `key="key"` and `event_time="at"`.

    Args:
        text: the value of the message.
        key: the key of the message; empty without a key.
        at: the timestamp of the message. It is not written.
    """

    text: bytes
    key: str
    at: EventTime


class LineFormat(Protocol):
    """Converts the records of one category to lines and back."""

    def lines_of(self, records: Sequence[Any]) -> list[bytes]:
        """Return the line of each record; it may contain line ends."""
        ...

    def records_of(self, lines: Sequence[bytes], at_ms: int) -> list[Any]:
        """Return the record of each line.

        Args:
            lines: the lines.
            at_ms: the event time of records whose lines contain none (milliseconds since 1970, UTC).

        Raises:
            InvalidLine: a line is no record.
        """
        ...


def format_of(category: AnyCategory, key: Callable[[bytes], str] | None = None) -> LineFormat:
    """Return the format of a category's lines.

    Args:
        category: the category.
        key: returns the key of an output line in a category of `Line`. Default: a checksum.
    """
    return _RawLines(key or _checksum) if category.record is Line else _JsonLines(category)


def expect_line(line: bytes) -> None:
    """Raise InvalidLine if a program would read a line as several lines, or as a checkpoint line."""
    if b"\n" in line:
        raise InvalidLine(
            "its value contains a line end, and a program would read it as several lines; in a category of JSON records, Penstock would write it as one line"
        )
    if line.startswith(MARK):
        raise InvalidLine("its value begins with the byte 0x1E, as a checkpoint line does")


def are_lines(lines: Sequence[bytes]) -> bool:
    """Return whether `expect_line` accepts each line; faster for many lines."""
    joined = b"\n".join(lines)
    return joined.count(b"\n") == len(lines) - 1 and b"\n" + MARK not in joined and not joined.startswith(MARK)


@dataclass(frozen=True)
class _RawLines:
    key: Callable[[bytes], str]

    def lines_of(self, records: Sequence[Line]) -> list[bytes]:
        return list(map(attrgetter("text"), records))

    def records_of(self, lines: Sequence[bytes], at_ms: int) -> list[Line]:
        key, records = self.key, []
        for line in lines:
            try:
                records.append(Line(line, key(line), at_ms))
            except Exception as error:
                raise InvalidLine(
                    f"wrote {line[:200].decode(errors='backslashreplace')!r}, which has no key: {type(error).__name__}: {error}"
                ) from error
        return records


class _JsonLines:
    def __init__(self, category: AnyCategory) -> None:
        self._category = category
        self._reader = reader_of(category.record)
        self._encode = msgspec.json.Encoder(enc_hook=encode_model).encode

    def lines_of(self, records: Sequence[Any]) -> list[bytes]:
        return list(map(self._encode, records))

    def records_of(self, lines: Sequence[bytes], at_ms: int) -> list[Any]:  # noqa: ARG002 - the lines contain their times
        records = []
        for line in lines:
            try:
                records.append(self._reader.from_json(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InvalidLine(
                    f"wrote {line[:200].decode(errors='backslashreplace')!r}, which is no {type_name(self._category.record)} in JSON for "
                    f"{self._category.name}: {error}"
                ) from error
        return records


def _checksum(line: bytes) -> str:
    return f"{crc32(line):08x}"
