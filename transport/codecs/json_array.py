"""JSON arrays as messages: each element is an event, or the whole array is one.

message --split--> a message for each element --decode--> a record for each
record --encode--> an array of one element
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ...processors.declare import Codec, Message, Payload, fields_of, members_of, plain
from .decoded import UndecodableValue, value_of, without_bom
from .json_codec import JsonCodec
from .json_elements import ElementsCodec, ElementsFormat
from .single import FieldsCodec


@dataclass(frozen=True)
class JsonArray(ElementsFormat):
    """JSON: an array for each message, whose elements are events, each a record of its own.

    The events of a message have its key, headers, timestamp, bucket and offset. An object without an array around it is one event, and an
    empty array is none. A record is written as an array of one element.

    A record whose only value field is a list contains the whole array; its other fields are metadata fields.

    Args:
        strict: whether to reject numbers and booleans in strings, as in `Json`.
        other_types: for a union of record types, what to do with an element whose tag is in none of them: `"reject"` it as undecodable, or `"skip"` it.

    Raises:
        DeclarationError: `other_types` has another value.
    """

    def open(self, payload: Payload) -> Codec:
        """Return the codec."""
        field = _list_field(payload)
        if field is not None:
            return _WholeArrayCodec(payload, field, strict=self.strict)
        return _ArrayElements(self.codec_of_elements(payload))


def _list_field(payload: Payload) -> str | None:
    """Return the name of the only field of a record if it is a list; None for other records."""
    fields = fields_of(payload.record)
    if len(members_of(payload.record)) > 1 or len(fields) != 1:
        return None
    [(name, field)] = fields.items()
    return name if isinstance(plain(field.type), msgspec.inspect.ListType) else None


class _ArrayElements(ElementsCodec):
    """The elements of an array, or an object alone."""

    def __init__(self, elements: JsonCodec) -> None:
        super().__init__(elements)
        self._elements = msgspec.json.Decoder(list[msgspec.Raw]).decode

    def message_of(self, element: bytes) -> bytes:
        return b"[%b]" % element

    def elements_of(self, value: bytes) -> list[bytes]:
        value = value.lstrip()
        return list(map(bytes, self._elements(value))) if value.startswith(b"[") else [value]


class _WholeArrayCodec(FieldsCodec):
    native = ()

    def __init__(self, payload: Payload, field: str, *, strict: bool) -> None:
        self.is_strict = strict
        super().__init__(payload)
        self._field = field
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode

    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        return self._encode(fields[self._field])

    def to_fields(self, message: Message) -> Mapping[str, Any]:
        content = self._decode(without_bom(value_of(message)))
        if not isinstance(content, list):
            raise UndecodableValue(f"a JSON {type(content).__name__}, not an array")
        return {self._field: content}
