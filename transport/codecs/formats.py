"""Formats without a schema: JSON, text, bytes, no value, CSV and MessagePack."""

from __future__ import annotations

import csv
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec import inspect as shapes

from ...processors import DeclarationError, counted, with_capital_article
from ...processors.declare import (
    RECORD_SHAPES,
    AnyRecord,
    Codec,
    InvalidRecord,
    Message,
    Payload,
    fields_of,
    plain,
    without_null,
)
from .decoded import SkippedMessage, UndecodableValue, value_of
from .json_codec import JsonCodec
from .single import FieldsCodec

BOM = "\ufeff"
"""A byte order mark, with which some programs begin each text."""
_LINE_BREAK = "\r\n"


@dataclass(frozen=True)
class Json:
    """JSON: one object for each record. The same as `codec="json"`, except for the options.

    Args:
        strict: whether to reject numbers and booleans in strings, such as `"42"`, where a field has another type.
        other_types: for a union of record types, what to do with a message whose tag is in none of them: `"reject"` it as undecodable, or `"skip"` it.
    """

    accepts_unions: ClassVar[bool] = True
    strict: bool = True
    other_types: Literal["reject", "skip"] = "reject"

    def __post_init__(self) -> None:
        if self.other_types not in {"reject", "skip"}:
            raise DeclarationError(
                f"Json(other_types={self.other_types!r}) has an unknown value. Declare 'reject' or 'skip'."
            )

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        return JsonCodec(payload, strict=self.strict, skips_other_types=self.other_types == "skip")


@dataclass(frozen=True)
class Text:
    """UTF-8 text: the whole value is the record's only `str` field. Its other fields are metadata fields."""

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        return _WholeValue(payload, _only_field(payload, shapes.StrType, "str"), is_text=True)


@dataclass(frozen=True)
class Bytes:
    """Raw bytes: the whole value is the record's only `bytes` field. Its other fields are metadata fields."""

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        return _WholeValue(payload, _only_field(payload, shapes.BytesType, "bytes"), is_text=False)


@dataclass(frozen=True)
class NoValue:
    """Messages whose content is in their headers and keys: all fields of the record are metadata fields.

    A message without a value is a record, and deletes nothing. A value is ignored. Records are written with an empty value, because a null value
    would delete earlier messages of a compacted topic.
    """

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        fields = fields_of(payload.record)
        if fields:
            raise DeclarationError(
                f"{payload.record.__name__} does not fit the codec of {payload.category}, which reads no values: {', '.join(fields)} would be in the "
                "value. Declare all fields as metadata fields (penstock.metadata), or use another codec."
            )
        return _NoValueCodec(payload)


@dataclass(frozen=True)
class Csv:
    """CSV: one line for each record. Values with separators, quotes or line breaks are quoted.

    A record whose only value field is a list of records is a table: its messages have one line for each element. A processor yields the
    elements as records of their own.

    Args:
        columns: the names on the bus of the fields in order; by default the fields as declared. Other fields need a default.
        separator: the character between two values.
        null: the text for None. An equal text in an optional `str` field is refused on writing, because it would be read as None.
        header: whether there are header lines, which contain the names of the columns. A message that is only the header line is skipped, and none is
            written. A table begins with the header line, also when it is written.
    """

    columns: tuple[str, ...] = ()
    separator: str = ","
    null: str = ""
    header: bool = False

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        element = _element_of(payload)
        return _CsvCodec(payload, self) if element is None else _CsvTableCodec(payload, self, element)


@dataclass(frozen=True)
class MessagePack:
    """MessagePack: one map for each record."""

    accepts_unions: ClassVar[bool] = True

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        return _MessagePackCodec(payload)


def _only_field(payload: Payload, kind: type, name: str) -> str:
    fields = fields_of(payload.record)
    if len(fields) == 1:
        [(field, shape)] = fields.items()
        content, optional = without_null(shape.type)
        if isinstance(plain(content), kind) and not optional:
            return field
    raise DeclarationError(
        f"{payload.record.__name__} does not fit the codec of {payload.category}, which needs exactly one {name} field for the whole value, "
        f"without None. Its value fields are {', '.join(fields) or 'none'}. Declare other fields as metadata fields (penstock.metadata), or use "
        "another codec."
    )


class _WholeValue(FieldsCodec):
    def __init__(self, payload: Payload, field: str, *, is_text: bool) -> None:
        super().__init__(payload)
        self._field = field
        self._is_text = is_text

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        content = fields[self._field]
        return content.encode() if self._is_text else content  # type: ignore[no-any-return]  # the only field's type

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        value = value_of(message)
        try:
            return {self._field: value.decode() if self._is_text else value}
        except UnicodeDecodeError as error:
            raise UndecodableValue(f"not UTF-8: {error}") from error


class _NoValueCodec(FieldsCodec):
    def to_bytes(self, fields: dict[str, Any]) -> bytes:  # noqa: ARG002 - there are none
        return b""

    def to_fields(self, message: Message) -> Mapping[str, Any]:  # noqa: ARG002 - its value is ignored
        return {}


class _MessagePackCodec(FieldsCodec):
    def __init__(self, payload: Payload) -> None:
        super().__init__(payload)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder().decode

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        return self._encode(fields)

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        fields = self._decode(value_of(message))
        if not isinstance(fields, dict):
            raise UndecodableValue(f"a MessagePack {type(fields).__name__}, not a map")
        return fields


class _CsvLines:
    """Converts the flat fields of records to lines of CSV and back.

    Args:
        category: the name of the category, for errors.
        record: the type of the records.
        options: the declared codec.

    Raises:
        DeclarationError: a column is unknown, or is no single value.
    """

    def __init__(self, category: str, record: type[AnyRecord], options: Csv) -> None:
        self._category = category
        self._record = record
        self._options = options
        fields = fields_of(record)
        self.columns = list(options.columns or fields)
        self._expect_flat(fields)
        self._optional = {name for name, field in fields.items() if without_null(field.type)[1]}

    def _expect_flat(self, fields: Mapping[str, shapes.Field]) -> None:
        record = self._record.__name__
        for name in self.columns:
            if name not in fields:
                raise DeclarationError(
                    f"{self._category}: the CSV column {name!r} is not a field of {record}, which has the fields {', '.join(fields)}."
                )
            shape = plain(without_null(fields[name].type)[0])
            if isinstance(shape, (shapes.CollectionType, shapes.DictType, *RECORD_SHAPES)):
                raise DeclarationError(
                    f"{record}.{name}: CSV has no lists, dicts or nested records. Use another codec for {self._category}."
                )

    def is_header(self, row: Sequence[str]) -> bool:
        """Return whether a line is a header line of the topic."""
        return self._options.header and list(row) == self.columns

    def texts(self, fields: Mapping[str, Any]) -> list[str]:
        """Return the values of a line."""
        return [self._text(name, fields[name]) for name in self.columns]

    def _text(self, name: str, content: Any) -> str:
        if content is None:
            return self._options.null
        if isinstance(content, bytes):
            content = b64encode(content).decode()
        text = str(content).lower() if isinstance(content, bool) else str(content)
        if text == self._options.null and name in self._optional:
            raise InvalidRecord(
                f"`{name}` is {text!r}, which CSV readers of {self._category} would read as None. Declare another `null` for its codec."
            )
        return text

    def encode(self, rows: Iterable[Sequence[str]]) -> bytes:
        """Return lines, without a line break at their end."""
        lines = StringIO()
        csv.writer(lines, delimiter=self._options.separator, lineterminator=_LINE_BREAK).writerows(rows)
        return lines.getvalue().removesuffix(_LINE_BREAK).encode()

    def decode(self, message: Message) -> list[list[str]]:
        """Return the values of each line of a message.

        Raises:
            UndecodableValue: the message is no CSV.
        """
        try:
            lines = StringIO(value_of(message).decode().removeprefix(BOM), newline="")
            return list(csv.reader(lines, delimiter=self._options.separator, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise UndecodableValue(f"not CSV: {error}") from error

    def fields(self, row: Sequence[str]) -> dict[str, str | None]:
        """Return the fields of a line with as many values as columns."""
        return {
            name: None if text == self._options.null and name in self._optional else text
            for name, text in zip(self.columns, row, strict=True)
        }


class _CsvCodec(FieldsCodec):
    is_strict = False

    def __init__(self, payload: Payload, options: Csv) -> None:
        super().__init__(payload)
        self._lines = _CsvLines(payload.category, payload.record, options)

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        row = self._lines.texts(fields)
        if self._lines.is_header(row):
            raise InvalidRecord(
                f"{with_capital_article(self.payload.record.__name__)} has the names of the columns as values, so readers of {self.payload.category} would skip it as "
                "a header line. Correct the values."
            )
        return self._lines.encode([row])

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        rows, width = self._lines.decode(message), len(self._lines.columns)
        if len(rows) != 1 or len(rows[0]) != width:
            found = counted(len(rows), "line") if len(rows) != 1 else counted(len(rows[0]), "value")
            raise UndecodableValue(f"{found}, not one line with {counted(width, 'value')}")
        if self._lines.is_header(rows[0]):
            raise SkippedMessage
        return self._lines.fields(rows[0])


class _Element(NamedTuple):
    """The only field of a table.

    Args:
        name: its name on the bus.
        record: the type of its elements.
    """

    name: str
    record: type[AnyRecord]


def _element_of(payload: Payload) -> _Element | None:
    """Return the list of records that is the only field of a record; None for other records."""
    fields = fields_of(payload.record)
    if len(fields) != 1:
        return None
    [(name, field)] = fields.items()
    shape = plain(field.type)
    item = plain(shape.item_type) if isinstance(shape, shapes.ListType) else None
    return _Element(name, item.cls) if isinstance(item, RECORD_SHAPES) else None


class _CsvTableCodec(FieldsCodec):
    is_strict = False

    def __init__(self, payload: Payload, options: Csv, element: _Element) -> None:
        super().__init__(payload)
        self._name = element.name
        self._has_header = options.header
        self._lines = _CsvLines(payload.category, element.record, options)

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        header = [self._lines.columns] if self._has_header else []
        return self._lines.encode([*header, *map(self._lines.texts, fields[self._name])])

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        rows = [row for row in self._lines.decode(message) if row]
        if self._has_header:
            if not rows or not self._lines.is_header(rows[0]):
                raise UndecodableValue(f"its first line is not the header line with {', '.join(self._lines.columns)}")
            rows = rows[1:]
        width = len(self._lines.columns)
        for number, row in enumerate(rows, 1):
            if len(row) != width:
                raise UndecodableValue(f"{counted(len(row), 'value')} in row {number}, not {width}")
        return {self._name: list(map(self._lines.fields, rows))}
