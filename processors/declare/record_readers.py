"""Readers of records: the values of messages become records, validated by msgspec, or by pydantic for its models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from ..models import ModelReader, is_model
from .fine_times import FineTimes
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
        self._times = times = FineTimes(record)
        self.from_json: Callable[[bytes], Any] = decoder.decode
        self.from_lines: Callable[[bytes | memoryview], list[Any]] = decoder.decode_lines
        if times.names:  # a call for each message costs
            self.from_json = lambda value: decoder.decode(times.cut_json(value))
            self.from_lines = lambda lines: decoder.decode_lines(times.cut_json(lines))

    def from_fields(self, fields: Mapping[str, Any]) -> Any:
        """Return the record with some fields."""
        return msgspec.convert(self._times.cut_fields(fields), self._record, strict=self._strict)
