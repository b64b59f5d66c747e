"""Changes of database tables, as Debezium's connectors write them.

A message is an envelope: the row before and after the change, the operation, and its source. A null value follows a deletion, so that
compaction removes the row.
"""

from __future__ import annotations

import uuid
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from itertools import repeat
from typing import Any

import msgspec
from msgspec import inspect as shapes

from ...processors import DeclarationError
from ...processors.declare import (
    RECORD_SHAPES,
    Codec,
    Message,
    Payload,
    RowUpdate,
    bucket_of,
    fields_of,
    key_of_content,
)
from ...processors.models import encode_model
from ..messages import MessageCopy
from .confluent import AvroValues, ConfluentAvro
from .decoded import ClearedTable, DeletedRow, IncompleteRow, SkippedMessage, UndecodableValue, without_bom
from .formats import Json
from .registry import AVRO, RegistryClient
from .single import FieldsCodec

_ENVELOPE_PREFIX = "__"
_SOURCE_PREFIX = "__source_"


@dataclass(frozen=True)
class Debezium:
    """Changes of a database table, as Debezium's connectors write them; with or without the schema in each message.

    By default, a record is a row: the row after the change. A processor that reads the category as a table deletes the row after a deletion.
    Other processors reject deletions (`on_undecodable`). Fields whose names on the bus begin with two underscores come from the envelope, as
    with Debezium's unwrapping: `__op`, `__ts_ms`, and `__source_lsn` for any field of `source`.

    A row is written as an update (`op` is `"u"`), unless the record has `__op`, with the time of the change in `ts_ms`: `__ts_ms`, or the event
    time if the row determines it. Otherwise it has no `ts_ms`.

    With `envelope=True`, a record is the change itself, with the fields `before`, `after`, `op`, `ts_ms` and `source`, or some of them.
    Null values after deletions are skipped.

    PostgreSQL and Oracle send large values only when they change. A row then gets the value of `before`, if the change has it, or of the earlier row
    in a table. Other processors, and records of the change itself, reject it (`on_undecodable`). A truncation deletes all rows of a CategoryTable, and stops a TableJoin.

    Args:
        envelope: whether a record is a change instead of a row.
        unavailable_value: the connector's `unavailable.value.placeholder`, in place of an unchanged large value; "" to read it as any other text.
        values: the encoding of keys and values: `Json()`, or `ConfluentAvro(registry)`, which can only be read.
    """

    envelope: bool = False
    values: Json | ConfluentAvro = Json()  # noqa: RUF009 - frozen
    unavailable_value: str = "__debezium_unavailable_value"

    def __post_init__(self) -> None:
        if not isinstance(self.values, (Json, ConfluentAvro)):
            raise DeclarationError(
                f"Debezium: values={self.values!r} has the wrong type. Declare penstock.codecs.Json() or penstock.codecs.ConfluentAvro(registry)."
            )

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        return _ChangeCodec(payload, self) if self.envelope else _RowCodec(payload, self)


@dataclass(frozen=True)
class DebeziumKeys:
    """The partitioner of topics that Debezium writes with JSON keys without schemas, such as `{"id":7}`, for tables with one key column.

    Declare it for the category of the table, and for categories that are joined with it.

    Args:
        column: the name of the key column.
        is_text: whether the column contains text instead of numbers.
    """

    column: str
    is_text: bool = False

    def __call__(self, key: bytes, buckets: int) -> int:
        """Return the bucket of a key."""
        content = msgspec.json.encode(key.decode()) if self.is_text else key
        return bucket_of(b"{" + msgspec.json.encode(self.column) + b":" + content + b"}", buckets)


class _Reader:
    """Reads keys and values as plain values, without their schemas."""

    def __init__(self, payload: Payload, spec: Debezium) -> None:
        self._decode = msgspec.json.Decoder().decode
        client = RegistryClient(spec.values.registry, AVRO) if isinstance(spec.values, ConfluentAvro) else None
        self._avro = (
            AvroValues(payload.record, client, () if spec.envelope else ("before", "after")) if client else None
        )

    def envelope(self, message: Message) -> Mapping[str, Any] | None:
        """Return the envelope of a message; None for a null value."""
        if message.value() is None:
            return None
        envelope = self._content(message)
        if envelope is None:
            return None
        if not isinstance(envelope, dict) or "op" not in envelope:
            raise UndecodableValue(
                f"{_kind_without_op(envelope)}: it has no `op`. If the connector unwraps rows (ExtractNewRecordState), declare the JSON or Avro codec"
            )
        return envelope

    def key(self, message: Message) -> Any:
        """Return the key of a message: a dict with the key's columns, or the only value; None if there is none or it does not decode."""
        key = message.key()
        if key is None:
            return None
        try:
            return self._content(MessageCopy(key))
        except (UndecodableValue, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _content(self, message: Message) -> Any:
        if self._avro:
            return self._avro.read(message)
        content = self._decode(without_bom(message.value() or b""))
        if isinstance(content, dict) and content.keys() == {"schema", "payload"}:
            return content["payload"]
        return content


def _kind_without_op(content: Any) -> str:
    """Return what a message without an operation is, in words."""
    names = content.keys() if isinstance(content, dict) else set()
    if names == {"ts_ms"}:
        return "a heartbeat of Debezium, not a change"
    if {"status", "id"} <= names:
        return "the begin or end of a transaction in the database (Debezium's `provide.transaction.metadata`), not a change"
    return "not a change of Debezium"


class _Unavailable:
    """The forms of the placeholder that Debezium writes in place of a large value that has not changed.

    Args:
        text: the connector's `unavailable.value.placeholder`; empty for none.
    """

    def __init__(self, text: str) -> None:
        content = text.encode()
        as_uuid = str(uuid.UUID(bytes=md5(content, usedforsecurity=False).digest(), version=3))
        self._forms: list[Any] = [
            text,
            content,  # bytes, as in Avro
            b64encode(content).decode(),
            content.hex(),
            [text],
            [*content],  # lists of numbers
            [as_uuid],
            {text: text},  # hstore
            msgspec.json.encode({text: text}).decode(),
        ]
        self._is_declared = bool(text)

    def names_in(self, row: Mapping[str, Any]) -> list[str]:
        """Return the columns of a row that contain the placeholder."""
        return [name for name, value in row.items() if value in self._forms] if self._is_declared else []

    def filled(self, row: dict[str, Any], before: Any) -> dict[str, Any]:
        """Return a row with the values of `before` in place of placeholders, as far as it has them."""
        names = self.names_in(row)
        if not names or not isinstance(before, dict):
            return row
        unknown = self.names_in(before)
        return row | {name: before[name] for name in names if name in before and name not in unknown}


class _RowCodec(FieldsCodec):
    def __init__(self, payload: Payload, spec: Debezium) -> None:
        super().__init__(payload)
        self._spec = spec
        self._reader = _Reader(payload, spec)
        self._unavailable = _Unavailable(spec.unavailable_value)
        self._attributes = {name: field.name for name, field in fields_of(payload.record).items()}
        self._envelope_fields = [name for name in fields_of(payload.record) if name.startswith(_ENVELOPE_PREFIX)]

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        envelope = self._reader.envelope(message)
        if envelope is None:
            raise DeletedRow("the message has no value, which deletes the row of its key", self._key_of(message, {}))
        row = envelope.get("after")
        if row is None and envelope["op"] == "d":
            key = self._key_of(message, envelope.get("before") or {})
            raise DeletedRow(
                "the row was deleted (op d), and this processor does not read the category as a table. To process deletions, declare "
                "Debezium(envelope=True)",
                key,
            )
        if envelope["op"] == "t":
            raise ClearedTable("the table was truncated (op 't'), which deletes all of its rows")
        if isinstance(row, str):
            raise UndecodableValue(
                "`after` is a text, as MongoDB's connector writes it. Declare Debezium(envelope=True) and the field `after: str`, or let the "
                "connector unwrap documents (ExtractNewDocumentState)"
            )
        if not isinstance(row, dict):
            raise UndecodableValue(f"a change with op {envelope['op']!r} has no row in `after`")
        row = self._unavailable.filled(row, envelope.get("before"))
        found = ((name, _from_envelope(envelope, name)) for name in self._envelope_fields)
        return {**row, **{name: content for name, content in found if content is not None}}

    def _record_of(self, fields: Mapping[str, Any]) -> Any:
        record = super()._record_of(fields)
        unchanged = [self._attributes[name] for name in self._unavailable.names_in(fields) if name in self._attributes]
        if unchanged:
            raise IncompleteRow(RowUpdate(record, tuple(unchanged)))
        return record

    def _key_of(self, message: Message, before: Mapping[str, Any]) -> str | None:
        """Return the key of a deleted row: its key fields in the message's key or in the row, or the only column of the message's key."""
        columns, name = self._reader.key(message), self.payload.key
        if self.payload.key_parts:
            own = self._named_as_declared(columns) if isinstance(columns, dict) else {}
            return self._composite_key_of({**before, **own})
        if not isinstance(columns, dict):
            content = before.get(name, columns) if name else columns
        elif name is not None and (name in columns or name in before):
            content = columns.get(name, before.get(name))
        else:
            content = next(iter(columns.values())) if len(columns) == 1 else None
        return str(content) if isinstance(content, (str, int)) and not isinstance(content, bool) else None

    def _named_as_declared(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the columns of a message key under the names of the record, which are in the same order."""
        names = [part.name for part in self.payload.key_parts]
        if len(columns) != len(names) or any(name in columns for name in names):
            return columns
        return dict(zip(names, columns.values(), strict=True))

    def _composite_key_of(self, columns: Mapping[str, Any]) -> str | None:
        parts = self.payload.key_parts
        try:
            return key_of_content({part.name: columns.get(part.name) for part in parts}, parts)
        except ValueError:
            return None

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the change of each row, with the event time as the time of the change."""
        self._check.expect(records)
        rows = msgspec.to_builtins(records, builtin_types=self.native, enc_hook=encode_model)
        times = self.payload.times_of(records) if self.payload.times_of else repeat(None)
        return [self._change(row, time) for row, time in zip(rows, times, strict=False)]

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        return self._change(fields, None)

    def _change(self, fields: dict[str, Any], time_ms: int | None) -> bytes:
        _expect_json(self._spec, self.payload)
        row = {name: content for name, content in fields.items() if not name.startswith(_ENVELOPE_PREFIX)}
        source = {
            name.removeprefix(_SOURCE_PREFIX): fields[name]
            for name in self._envelope_fields
            if name.startswith(_SOURCE_PREFIX)
        }
        envelope = {"before": None, "after": row, "source": source, "op": fields.get("__op") or "u"}
        own_ms = fields.get("__ts_ms")
        changed_ms = time_ms if own_ms is None else own_ms
        return msgspec.json.encode(envelope if changed_ms is None else {**envelope, "ts_ms": changed_ms})


class _ChangeCodec(FieldsCodec):
    def __init__(self, payload: Payload, spec: Debezium) -> None:
        super().__init__(payload)
        self._spec = spec
        self._reader = _Reader(payload, spec)
        self._unavailable = _Unavailable(spec.unavailable_value)
        fields = fields_of(payload.record)
        self._columns = {name: _columns_of(fields[name].type) for name in ("before", "after") if name in fields}

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        envelope = self._reader.envelope(message)
        if envelope is None:
            raise SkippedMessage
        if isinstance(after := envelope.get("after"), dict):
            envelope = {**envelope, "after": self._unavailable.filled(after, envelope.get("before"))}
        for name, columns in self._columns.items():
            row = envelope.get(name)
            unknown = self._unavailable.names_in(row) if isinstance(row, dict) else []
            unknown = [each for each in unknown if columns is None or each in columns]
            if unknown:
                raise UndecodableValue(
                    f"`{name}` lacks the unchanged value of {', '.join(f'`{each}`' for each in unknown)}: the database sends large values (TOAST) only "
                    "when they change. Run `ALTER TABLE … REPLICA IDENTITY FULL`, leave the column out of the record, or declare "
                    'Debezium(envelope=True, unavailable_value="") to read the placeholder as a text'
                )
        return envelope

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        _expect_json(self._spec, self.payload)
        return msgspec.json.encode(fields)


def _columns_of(shape: Any) -> frozenset[str] | None:
    """Return the columns that a field for a row declares; None for all of them."""
    kinds = shape.types if isinstance(shape, shapes.UnionType) else (shape,)
    rows = [kind for kind in kinds if isinstance(kind, RECORD_SHAPES)]
    return frozenset(field.encode_name for kind in rows for field in kind.fields) if rows else None


def _from_envelope(envelope: Mapping[str, Any], name: str) -> Any:
    if name.startswith(_SOURCE_PREFIX):
        return (envelope.get("source") or {}).get(name.removeprefix(_SOURCE_PREFIX))
    return envelope.get(name.removeprefix(_ENVELOPE_PREFIX))


def _expect_json(spec: Debezium, payload: Payload) -> None:
    if not isinstance(spec.values, Json):
        raise DeclarationError(
            f"{payload.category}: Debezium changes in Avro can only be read. Nothing was written. Declare `values=Json()` for a category that this app "
            "writes."
        )
