"""Codec of records with metadata fields: another codec encodes and decodes the values, and this one adds the other parts of messages.

messages --inner codec--> values --plus key, headers, timestamp, position--> records
records --without metadata fields--> values --inner codec--> bytes, and beside them the headers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import repeat
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import inspect as shapes

from ...processors import is_encodable, with_capital_article
from ...processors.declare import (
    EPOCH,
    AnyRecord,
    Codec,
    Decoded,
    Header,
    InvalidKey,
    InvalidRecord,
    KeyPart,
    Message,
    MessageHeaders,
    MessagePart,
    RowUpdate,
    Source,
    Undecodable,
    content_of_key,
    fields_of,
    headers_of,
    metadata_of,
    plain,
    prepare,
    source_name,
    split_messages,
    value_type,
    without_null,
)
from .decoded import MissingEventTime, UndecodableValue

_CREATED, _APPENDED = 1, 2
"""Types of timestamps: the producer's and the broker's."""

Part = Callable[[Message], Any]


class MessageFieldsCodec:
    """Encodes and decodes records with metadata fields.

    Args:
        record: the record type of the category.
        event_time: the name on the bus of the field with the event time; None if no one field contains it.
        values: encodes and decodes the values.
        decode_key: returns the key of a message key.
        key_parts: the fields of a key of several; empty for other keys.
    """

    def __init__(
        self,
        record: type[AnyRecord],
        event_time: str | None,
        values: Codec,
        decode_key: Callable[[bytes], str],
        key_parts: tuple[KeyPart, ...] = (),
    ) -> None:
        self._record = record
        self._values = values
        self._value_type = value_type(record)
        metadata = metadata_of(record)
        fields = list(fields_of(record).values())
        self._names = [field.name for field in fields]
        self._value_names = [field.name for field in fields if field.name not in metadata]
        self._parts = {
            field.name: _part(
                field,
                metadata[field.name],
                _part_decoder(decode_key, key_parts, field.encode_name),
                is_event_time=field.encode_name == event_time,
            )
            for field in fields
            if field.name in metadata
        }
        self._headers = [(field.name, metadata[field.name]) for field in fields if _is_header(metadata.get(field.name))]

    def split(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages with at most one record each."""
        return split_messages(self._values, messages)

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch."""
        decoded = self._values.decode(messages)
        events, at, bad = [], [], [self._with_update(one, messages[one.at]) for one in decoded.bad]
        for value, index in zip(decoded.events, decoded.at, strict=True):
            try:
                events.append(self._completed(value, messages[index]))
                at.append(index)
            except (UndecodableValue, msgspec.ValidationError, ValueError, TypeError) as error:
                bad.append(Undecodable(index, str(error), untimed=isinstance(error, MissingEventTime)))
        return Decoded(events, at, bad)

    def _with_update(self, bad: Undecodable, message: Message) -> Undecodable:
        if bad.update is None:
            return bad
        try:
            record = self._completed(bad.update.record, message)
        except (msgspec.ValidationError, ValueError, TypeError):
            return bad._replace(update=None)
        return bad._replace(update=RowUpdate(record, bad.update.unchanged))

    def _completed(self, value: Any, message: Message) -> Any:
        fields = {name: getattr(value, name) for name in self._value_names}
        for name, part in self._parts.items():
            fields[name] = part(message)
        return self._record(**fields)

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the value of a message for each record."""
        return self._values.encode(self._value_records(records))

    def prepare(self) -> None:
        """Prepare the inner codec for writing."""
        prepare(self._values)

    def _value_records(self, records: Sequence[Any]) -> list[Any]:
        names, value_type = self._value_names, self._value_type
        return [value_type(**{name: getattr(record, name) for name in names}) for record in records]

    def headers(self, records: Sequence[Any]) -> list[MessageHeaders | None]:
        """Return the headers of a message for each record: those of its `Headers` field, then those of its `Header` fields.

        Raises:
            InvalidRecord: a header is neither str nor bytes.
        """
        inner = headers_of(self._values, self._value_records(records)) or repeat(None)
        return [
            [*(headers or ()), *self._headers_of(record)] or None
            for headers, record in zip(inner, records, strict=False)
        ]

    def _headers_of(self, record: Any) -> list[tuple[str, bytes | None]]:
        found: dict[str, bytes | None] = {}
        for name, source in self._headers:
            content = attrgetter(name)(record)
            if isinstance(source, Header):
                if content is not None:
                    found[source.name] = self._bytes_of(name, content)
            else:
                named = (content or {}).items()
                found = {key: None if each is None else self._bytes_of(name, each) for key, each in named} | found
        return list(found.items())

    def _bytes_of(self, name: str, content: Any) -> bytes:
        if isinstance(content, str) and is_encodable(content):
            return content.encode()
        if isinstance(content, bytes):
            return content
        raise InvalidRecord(
            f"{with_capital_article(self._record.__name__)} does not fit its own type: `{name}` is {content!a}, not a header."
        )


def _part_decoder(
    decode_key: Callable[[bytes], str], key_parts: tuple[KeyPart, ...], name: str
) -> Callable[[bytes], str]:
    """Return the function that decodes a message key to a field of a key of several; or to the whole key for another field."""
    if not any(part.name == name for part in key_parts):
        return decode_key
    return lambda message_key: str(content_of_key(decode_key(message_key), key_parts)[name])


def _is_header(source: Source | None) -> bool:
    return isinstance(source, Header) or source is MessagePart.HEADERS


def _part(field: shapes.Field, source: Source, decode_key: Callable[[bytes], str], *, is_event_time: bool) -> Part:
    """Return the function that reads a field's part of a message, or the field's default if the part is missing."""
    read = _reader_of(field, source, decode_key)
    default = _default_of(field)
    error_type = MissingEventTime if is_event_time else UndecodableValue

    def part(message: Message) -> Any:
        content = read(message)
        if content is not None:
            return content
        if default is None:
            raise error_type(f"the message has no {source_name(source)}, which `{field.encode_name}` requires")
        return default()

    return part


def _default_of(field: shapes.Field) -> Callable[[], Any] | None:
    if field.default_factory is not msgspec.NODEFAULT:
        factory: Callable[[], Any] = field.default_factory
        return factory
    if field.default is not msgspec.NODEFAULT:
        return lambda: field.default
    return (lambda: None) if without_null(field.type)[1] else None


def _reader_of(field: shapes.Field, source: Source, decode_key: Callable[[bytes], str]) -> Part:
    shape = plain(without_null(field.type)[0])
    if isinstance(source, Header):
        return _header_reader(source, is_text=isinstance(shape, shapes.StrType))
    match source:
        case MessagePart.KEY:
            return _key_reader(shape, decode_key)
        case MessagePart.HEADERS:
            keeps_null = isinstance(shape, shapes.DictType) and without_null(shape.value_type)[1]
            return lambda message: {
                name: content for name, content in message.headers() or () if keeps_null or content is not None
            }
        case MessagePart.PARTITION:
            return lambda message: message.partition()
        case MessagePart.OFFSET:
            return lambda message: message.offset()
    return _as_datetime(_TIMES[source]) if isinstance(shape, shapes.DateTimeType) else _TIMES[source]


def _as_datetime(read_ms: Callable[[Message], int | None]) -> Part:
    def read(message: Message) -> datetime | None:
        time_ms = read_ms(message)
        try:
            return None if time_ms is None else EPOCH + timedelta(milliseconds=time_ms)
        except OverflowError as error:
            raise UndecodableValue(f"its timestamp {time_ms} is outside the years 1 to 9999") from error

    return read


def _header_reader(source: Header, *, is_text: bool) -> Part:
    def read(message: Message) -> str | bytes | None:
        for name, content in reversed(message.headers() or ()):
            if name == source.name:
                return _text(content, f"the header {name!r}") if is_text and content is not None else content
        return None

    return read


def _key_reader(shape: shapes.Type, decode_key: Callable[[bytes], str]) -> Part:
    if isinstance(shape, shapes.BytesType):
        return lambda message: message.key()
    convert: Callable[[str], str | int] = int if isinstance(shape, shapes.IntType) else str

    def read(message: Message) -> str | int | None:
        key = message.key()
        if key is None:
            return None
        try:
            return convert(decode_key(key))
        except (InvalidKey, ValueError) as error:
            raise UndecodableValue(f"the key {key!r} is invalid: {error}") from error

    return read


def _text(content: bytes, place: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UndecodableValue(f"{place} is not UTF-8: {error}") from error


def _timestamp(message: Message) -> int | None:
    kind, time_ms = message.timestamp()
    return time_ms if kind else None


def _create_time(message: Message) -> int | None:
    kind, time_ms = message.timestamp()
    if kind == _APPENDED:
        raise UndecodableValue(
            "its timestamp is the broker's, not the producer's (CreateTime); declare Timestamp or AppendTime"
        )
    return time_ms if kind else None


def _append_time(message: Message) -> int | None:
    kind, time_ms = message.timestamp()
    if kind == _CREATED:
        raise UndecodableValue(
            "its timestamp is the producer's, not the broker's (AppendTime); declare Timestamp or CreateTime"
        )
    return time_ms if kind else None


_TIMES: dict[MessagePart, Callable[[Message], int | None]] = {
    MessagePart.TIMESTAMP: _timestamp,
    MessagePart.CREATE_TIME: _create_time,
    MessagePart.APPEND_TIME: _append_time,
}
