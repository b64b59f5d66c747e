"""Codecs that encode and decode each record by itself, as its fields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...processors import PenstockError
from ...processors.declare import Decoded, Message, Payload, RecordCheck, reader_of
from ...processors.models import encode_model
from .decoded import (
    MissingEventTime,
    SkippedMessage,
    UndecodableValue,
    decode_singly,
    lacks_event_time,
    reject_out_of_range,
)


class FieldsCodec(ABC):
    """Base class of codecs that encode and decode each record by itself, as its fields.

    A subclass converts fields to bytes and back. Fields are plain values by their names on the bus: None, bool, int, float, str, bytes,
    lists and dicts. Decoded fields are converted to the record type and checked; unknown fields are ignored.

    Args:
        payload: the values to encode and decode.
    """

    is_strict = True
    """Whether numbers and booleans must have their own types. A format that contains only text accepts text for them."""

    native: tuple[type, ...] = (bytes,)
    """The types of values that `to_bytes` receives as they are; others are numbers or strings by then."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self._record_reader = reader_of(payload.record, strict=self.is_strict)
        self._check = RecordCheck(payload.record)
        self._read_check = RecordCheck(payload.record, unchecked_field=payload.event_time)

    @abstractmethod
    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        """Return the value of a message."""

    @abstractmethod
    def to_fields(self, message: Message) -> Mapping[str, Any]:
        """Return the fields of a message. Its value may be None.

        Raises:
            UndecodableValue: the message violates the format. Other exceptions count as such, too, except PenstockError.
        """

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the value of a message for each record."""
        self._check.expect(records)
        with self._check.naming_text(records):
            return [
                self.to_bytes(fields)
                for fields in msgspec.to_builtins(records, builtin_types=self.native, enc_hook=encode_model)
            ]

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch."""
        return reject_out_of_range(decode_singly(messages, self._decode_one), self._read_check)

    def _fields(self, message: Message) -> Mapping[str, Any]:
        try:
            return self.to_fields(message)
        except (PenstockError, UndecodableValue, SkippedMessage):
            raise
        except Exception as error:
            raise UndecodableValue(f"{type(error).__name__}: {error}") from error

    def _decode_one(self, message: Message) -> Any:
        return self._record_of(self._fields(message))

    def _record_of(self, fields: Mapping[str, Any]) -> Any:
        try:
            return self._record_reader.from_fields(fields)
        except msgspec.ValidationError as error:
            if lacks_event_time(fields, self.payload.event_time):
                raise MissingEventTime(f"no event time: {self.payload.event_time!r} is missing or null") from error
            raise
