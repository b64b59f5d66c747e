"""Readers of records: the values of messages become records, validated by msgspec, or by pydantic for its models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from ..models.conversion import is_model
from ..models.reader import ModelReader
from .records import RecordType


class RecordReader(Protocol):
    """Reads records of one type."""

    def from_json(self, value: bytes) -> Any:
        """Return the record of a JSON object.

        Raises:
            msgspec.DecodeError: it is not JSON; or msgspec.ValidationError: it does not fit the type.
        """

    def from_fields(self, fields: Mapping[str, Any]) -> Any:
        """Return the record with some fields, which have plain values and their names on the bus.

        Raises:
            msgspec.ValidationError: they do not fit the type.
        """


def reader_of(record: RecordType, *, strict: bool = True) -> RecordReader:
    """Return a reader of records.

    Args:
        record: the type of the records.
        strict: whether numbers and booleans must have their own types. A model decides this itself.
    """
    return ModelReader(record) if is_model(record) else StructReader(record, strict=strict)


class StructReader:
    """Reads Records and dataclasses.

    Args:
        record: the type of the records.
        strict: whether numbers and booleans must have their own types.
    """

    def __init__(self, record: RecordType, *, strict: bool) -> None:
        self._record: Any = record
        self._strict = strict
        decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._record, strict=strict)
        self.from_json = decoder.decode
        self.from_lines = decoder.decode_lines

    def from_fields(self, fields: Mapping[str, Any]) -> Any:
        """Return the record with some fields."""
        return msgspec.convert(fields, self._record, strict=self._strict)
