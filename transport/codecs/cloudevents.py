"""CloudEvents 1.0 in Kafka's binding: attributes in headers (binary) or in the value (structured), with JSON data."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import msgspec
from msgspec import inspect as shapes

from ...processors import DeclarationError, with_capital_article
from ...processors.declare import Codec, InvalidRecord, Message, MessageHeaders, Payload, fields_of, plain, without_null
from ...processors.models import encode_model
from .decoded import UndecodableValue, value_of, without_bom
from .single import FieldsCodec

_PREFIX = "ce_"
_STRUCTURED_TYPE = "application/cloudevents+json"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class ContentMode(Enum):
    """Where a CloudEvent has its attributes."""

    BINARY = "binary"
    """In headers; the value is the data."""
    STRUCTURED = "structured"
    """In the value, which is a JSON object with attributes and data."""


@dataclass(frozen=True)
class CloudEvents:
    """CloudEvents with JSON data. Both modes are read, in any mixture.

    The fields of a record are those of the data, except for fields that `attributes` maps to attributes.

    Args:
        attributes: the attribute of each field that is one, by the field's name on the bus: `{"order_id": "id", "at": "time"}`. An int field for
            `time` is in milliseconds since 1970, UTC. To write, `id` must be among them, because a repeated event must have the same id.
        source: the `source` of written events, unless a field is mapped to it.
        type: the `type` of written events, unless a field is mapped to it.
        mode: the mode of written events.

    Raises:
        DeclarationError: a field is missing (when the codec is opened).
    """

    attributes: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None
    type: str | None = None
    mode: ContentMode = ContentMode.BINARY

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        return _CloudEventsCodec(payload, self)


class _CloudEventsCodec(FieldsCodec):
    def __init__(self, payload: Payload, spec: CloudEvents) -> None:
        super().__init__(payload)
        self._spec = spec
        self._decode = msgspec.json.Decoder().decode
        fields = fields_of(payload.record)
        for name in spec.attributes:
            if name not in fields:
                raise DeclarationError(
                    f"{payload.category}: CloudEvents attributes name the field {name!r}, but {payload.record.__name__} has only {', '.join(fields)}."
                )
        kinds = {name: plain(without_null(each.type)[0]) for name, each in fields.items()}
        self._times = {
            name
            for name, attribute in spec.attributes.items()
            if attribute == "time" and isinstance(kinds[name], shapes.IntType)
        }

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        headers = {name.lower(): content for name, content in message.headers() or () if content is not None}
        if f"{_PREFIX}specversion" in headers:
            attributes: Mapping[str, Any] = {
                name.removeprefix(_PREFIX): content.decode()
                for name, content in headers.items()
                if name.startswith(_PREFIX)
            }
            value = message.value()
            data = self._decode(without_bom(value)) if value else {}
        else:
            attributes = self._structured(message)
            data = self._data_of(attributes)
        if not isinstance(data, dict):
            raise UndecodableValue(f"its data is a JSON {type(data).__name__}, not an object")
        return {**data, **self._attribute_fields(attributes)}

    def _structured(self, message: Message) -> Mapping[str, Any]:
        content = self._decode(without_bom(value_of(message)))
        if not isinstance(content, dict) or "specversion" not in content:
            raise UndecodableValue(
                "not a CloudEvent: neither a header ce_specversion nor a JSON object with `specversion`"
            )
        return content

    def _data_of(self, attributes: Mapping[str, Any]) -> Any:
        if "data_base64" in attributes:
            return self._decode(base64.b64decode(attributes["data_base64"]))
        data = attributes.get("data")
        return {} if data is None else data

    def _attribute_fields(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: attributes.get(attribute) for name, attribute in self._spec.attributes.items()}
        return {
            name: _milliseconds(content) if name in self._times else content
            for name, content in found.items()
            if content is not None
        }

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the value of a message for each record."""
        self._check.expect(records)
        with self._check.naming_text(records):
            return [self.to_bytes(fields) for fields in self._builtins(records)]

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        attributes, data = self._split(fields)
        if self._spec.mode is ContentMode.BINARY:
            return msgspec.json.encode(data)
        return msgspec.json.encode({**attributes, "datacontenttype": "application/json", "data": data})

    def headers(self, records: Sequence[Any]) -> list[MessageHeaders | None]:
        """Return the headers of a message for each record."""
        if self._spec.mode is ContentMode.STRUCTURED:
            return [[("content-type", f"{_STRUCTURED_TYPE}; charset=UTF-8".encode())]] * len(records)
        return [
            [
                ("content-type", b"application/json"),
                *((f"{_PREFIX}{name}", str(content).encode()) for name, content in self._split(fields)[0].items()),
            ]
            for fields in self._builtins(records)
        ]

    @staticmethod
    def _builtins(records: Sequence[Any]) -> list[dict[str, Any]]:
        builtins: list[dict[str, Any]] = msgspec.to_builtins(records, enc_hook=encode_model)
        return builtins

    def _split(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the attributes and the data of an event."""
        attributes: dict[str, Any] = {"specversion": "1.0", "source": self._spec.source, "type": self._spec.type}
        for name, attribute in self._spec.attributes.items():
            content = fields[name]
            attributes[attribute] = _rfc3339(content) if name in self._times and content is not None else content
        missing = [name for name in ("id", "source", "type") if not attributes.get(name)]
        if missing:
            raise InvalidRecord(
                f"{with_capital_article(self.payload.record.__name__)} is no CloudEvent: it has no {', '.join(missing)}. Nothing was written. Map a field to `id` with "
                f"`attributes`, and declare `source` and `type` in the codec of {self.payload.category}."
            )
        data = {name: content for name, content in fields.items() if name not in self._spec.attributes}
        return {name: content for name, content in attributes.items() if content is not None}, data


def _milliseconds(time: str) -> int:
    return (msgspec.convert(time, datetime) - _EPOCH) // _MILLISECOND


def _rfc3339(time_ms: int) -> str:
    try:
        return (_EPOCH + time_ms * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError as error:
        raise InvalidRecord(
            f"The time {time_ms} is outside the years 1 to 9999, so no CloudEvent can contain it."
        ) from error
