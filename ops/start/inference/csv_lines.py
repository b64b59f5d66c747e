"""Lines of CSV in messages, and their header lines.

texts --separator--> rows --header line--> names of the columns
                          --values-------> types of the columns
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from math import isfinite
from typing import Any

import msgspec

from ....processors.declare import Message
from ....transport.codecs import BOM
from .majority import most
from .shape import INT_MAX, INT_MIN, kind_of

SEPARATORS = (",", ";", "\t", "|")
_LONGEST_NAME = 100
"""The longest name of a column, in characters."""

Row = Sequence[str]
Texts = Sequence[tuple[Message, str | None]]
"""Messages with their texts; None for a message that is none."""


@dataclass(frozen=True)
class CsvContents:
    """The contents of a topic in CSV.

    Args:
        codec: the codec, as code.
        pairs: the messages with records, and their fields.
        header_lines: the number of messages that are a header line.
    """

    codec: str
    pairs: Sequence[tuple[Message, Mapping[str, Any]]]
    header_lines: int = 0


def lines_of(texts: Texts) -> CsvContents | None:
    """Return the contents of messages with one line each, if most are lines with the same number of values, at least two."""
    found = [(rows, separator) for separator in SEPARATORS if (rows := _rows(texts, separator))]
    if not found:
        return None
    # The separator with the most values: a decimal comma also divides lines, into fewer or as many.
    return _lines(*max(found, key=lambda one: (len(one[0][0][1]), one[1] != ",")))


def _rows(texts: Texts, separator: str) -> Sequence[tuple[Message, Row]]:
    """Return the values of lines that have the most frequent number of values; empty if this is one, or of too few lines."""
    lines = [(message, _only_row(text, separator)) for message, text in texts]
    [(width, _)] = Counter(len(row) for _, row in lines if row is not None).most_common(1) or [(1, 0)]
    return most(lines, lambda _, row: row if row is not None and len(row) == width else None) if width > 1 else []


def _only_row(text: str | None, separator: str) -> Row | None:
    rows = _rows_of_text(text, separator)
    return rows[0] if len(rows) == 1 and rows[0] else None


def _rows_of_text(text: str | None, separator: str) -> Sequence[Row]:
    """Return the values of each line; empty if the text is no CSV. A text in brackets is another format, such as JSON with NaN or Python's repr."""
    if text is None or text.removeprefix(BOM).lstrip()[:1] in {"{", "["}:
        return []
    try:
        return list(csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error:
        return []


def _lines(rows: Sequence[tuple[Message, Row]], separator: str) -> CsvContents:
    header = _header_line(rows)
    records = [(message, row) for message, row in rows if _names(row) != header]
    names = header or [f"column{number}" for number in range(1, len(rows[0][1]) + 1)]
    contents = _contents(names, [row for _, row in records])
    pairs = [(message, content) for (message, _), content in zip(records, contents, strict=True)]
    return CsvContents(_codec(separator, has_header=header is not None), pairs, len(rows) - len(records))


def _header_line(rows: Sequence[tuple[Message, Row]]) -> Row | None:
    """Return the line that is a header line: the first of a partition, or one that recurs, above lines with other values."""
    first = Counter(_names(row) for message, row in rows if message.offset() == 0)
    for names, count in Counter(_names(row) for _, row in rows).items():
        if (first[names] or count > 1) and _are_names(names):
            others = [row for _, row in rows if _names(row) != names]
            if _is_above(names, others, recurs=first[names] > 1):
                return names
    return None


def _names(row: Row) -> tuple[str, ...]:
    """Return the names of columns in a header line, as the codec compares them."""
    return (row[0].removeprefix(BOM), *row[1:])


def tables_of(texts: Texts) -> CsvContents | None:
    """Return the contents of messages with several lines each, if most begin with the same header line."""
    for separator in SEPARATORS:
        tables = [(message, [row for row in _rows_of_text(text, separator) if row]) for message, text in texts]
        [(header, count)] = Counter(_names(rows[0]) for _, rows in tables if len(rows) > 1).most_common(1) or [((), 0)]
        found = most(tables, lambda _, rows, header=header: _rows_below(header, rows))  # type: ignore[misc]  # bound at once
        others = [row for _, rows in found for row in rows]
        if _are_names(header) and _is_above(header, others, recurs=count > 1):
            return _tables(found, header, separator)
    return None


def _rows_below(header: Row, rows: Sequence[Row]) -> Sequence[Row] | None:
    """Return the rows below a header line; None if there is another first line, or a row of another length."""
    if not rows or _names(rows[0]) != header or any(len(row) != len(header) for row in rows):
        return None
    return rows[1:]


def _tables(tables: Sequence[tuple[Message, Sequence[Row]]], header: Row, separator: str) -> CsvContents:
    contents = _contents(header, [row for _, rows in tables for row in rows])
    pairs = [(message, {"rows": [next(contents) for _ in rows]}) for message, rows in tables]
    return CsvContents(_codec(separator, has_header=True), pairs)


def _are_names(row: Row) -> bool:
    """Return whether the values of a line can be the names of its columns."""
    return len(row) > 1 and len(set(row)) == len(row) and all(map(_is_name, row))


def _is_above(names: Row, others: Sequence[Row], *, recurs: bool) -> bool:
    """Return whether names are those of the columns of lines.

    Args:
        names: the names.
        others: the lines.
        recurs: whether the names are in several places where header lines are.
    """
    if not others:
        return False
    columns = list(zip(*others, strict=True))
    if any(name in values for name, values in zip(names, columns, strict=True)):
        return False
    return recurs or any(_has_no_texts(values) for values in columns)


def _is_name(text: str) -> bool:
    first = text.strip()[:1]
    is_word = (first.isalpha() or first == "_") and text.isprintable() and len(text) <= _LONGEST_NAME
    return is_word and not _are_numbers([text]) and kind_of(text) == "str"


def _has_no_texts(texts: Sequence[str]) -> bool:
    """Return whether a column contains values, and all of them are numbers, times or UUIDs."""
    values = [text for text in texts if text]
    return bool(values) and (_are_numbers(values) or all(kind_of(text) != "str" for text in values))


def _are_numbers(texts: Sequence[str]) -> bool:
    return _converted(texts, float) is not None


def _codec(separator: str, *, has_header: bool) -> str:
    options = [] if separator == "," else [f"separator={separator!r}".replace("'", '"')]
    return f"ps.codecs.Csv({', '.join([*options, *(['header=True'] if has_header else [])])})"


def _contents(names: Row, rows: Sequence[Row]) -> Iterator[Mapping[str, Any]]:
    columns = [_column(values) for values in zip(*rows, strict=True)]
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _column(texts: Sequence[str]) -> Sequence[Any]:
    """Return the values of a column: ints, floats or texts, as the codec reads them; None for an empty text."""
    for kind in (int, float):
        values = _converted(texts, kind)
        if values is not None:
            return values if all(map(_is_carried, values)) else [text or None for text in texts]
    return [text or None for text in texts]


def _converted(texts: Sequence[str], kind: type[float]) -> Sequence[float | None] | None:
    """Return texts as numbers, as the codec reads them; None if one is no number."""
    try:
        return [msgspec.convert(text, kind, strict=False) if text else None for text in texts]
    except msgspec.ValidationError:
        return None


def _is_carried(value: float | None) -> bool:
    """Return whether a record can contain a number: an int of 64 bits, or a finite float."""
    return value is None or (INT_MIN <= value <= INT_MAX if isinstance(value, int) else isfinite(value))
