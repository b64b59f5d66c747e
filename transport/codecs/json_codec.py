"""JSON messages: one object for each record."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ...processors.declare import (
    Decoded,
    Message,
    Payload,
    RecordCheck,
    RecordType,
    StructReader,
    flat_fields,
    has_whole_numbers,
    members_of,
    reader_of,
    tag_of,
)
from ...processors.models import encode_model
from ..message_columns import MessageColumns
from .decoded import (
    MALFORMED,
    MissingEventTime,
    SkippedMessage,
    UndecodableValue,
    decode_singly,
    lacks_event_time,
    reject_out_of_range,
    value_of,
    without_bom,
)
from .json_columns import ColumnsOfJson, JoinedValues, columns_of_json

if TYPE_CHECKING:
    import pyarrow as pa

_WIDE_DIGITS = 19
"""The least number of digits of a whole number beyond 64 bits."""
_WORD = 4
_WIDE_WORDS = (_WIDE_DIGITS - _WORD + 1) // _WORD
_HIGH_HALVES = 0xF0F0F0F0
_OF_DIGITS = 0x30303030


class JsonCodec:
    """Encodes each record as one JSON object, which any other reader of the category can decode.

    Args:
        payload: the values to encode and decode.
        strict: whether to reject numbers and booleans in strings.
        skips_other_types: whether to skip messages whose tag is in no type of a union.
    """

    def __init__(self, payload: Payload, *, strict: bool = True, skips_other_types: bool = False) -> None:
        self._tags = _tags_of(payload.record) if skips_other_types else None
        self._event_time = payload.event_time
        self._reader = reader_of(payload.record, strict=strict)
        self._from_lines = self._reader.from_lines if isinstance(self._reader, StructReader) else None
        self._encoder = msgspec.json.Encoder(enc_hook=encode_model)
        self._check = RecordCheck(payload.record)
        self._read_check = RecordCheck(payload.record, unchecked_field=payload.event_time)
        self._has_whole_numbers = has_whole_numbers(payload.record, payload.event_time)
        self._flat_fields = flat_fields(payload.record) if strict else None

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the JSON of each record."""
        self._check.expect(records)
        with self._check.naming_text(records):
            # One call for the batch: a newline within a string is escaped in JSON, so the only newlines are between records.
            return self._encoder.encode_lines(records).split(b"\n")[:-1]

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch at once; if that fails, or with pydantic, message by message."""
        lines = _lines_of(messages) if self._from_lines else None
        if self._from_lines and lines is not None and lines.are_objects:
            with suppress(*MALFORMED):  # the loop below finds the message
                events = self._from_lines(lines.text)
                if len(events) == len(messages) and not self._may_be_too_wide(lines.text):
                    return Decoded(events, range(len(messages)), [])
        return reject_out_of_range(decode_singly(messages, self._decode_one), self._read_check)

    @cached_property
    def _columns(self) -> ColumnsOfJson | None:
        return columns_of_json(self._flat_fields)

    def decode_columns(self, messages: Sequence[Message], names: Sequence[str]) -> pa.RecordBatch | None:
        """Return some fields of a batch as columns; None unless `decode` certainly returns a record with these values for each message."""
        lines = None if self._columns is None else _lines_of(messages)
        return None if self._columns is None or lines is None else self._columns.decode(lines, names)

    def encode_columns(self, columns: pa.RecordBatch) -> list[bytes] | None:
        """Return the JSON of each record; None where columns are not available."""
        return None if self._columns is None else self._columns.encode(columns).split(b"\n")[:-1]

    def _may_be_too_wide(self, lines: bytes | memoryview) -> bool:
        """Return whether a whole number, other than an event time, may have more than 64 bits."""
        return self._has_whole_numbers and _may_have_long_number(lines)

    def _decode_one(self, message: Message) -> Any:
        value = without_bom(value_of(message))
        if not value:
            raise UndecodableValue("the value has no bytes, so it is no JSON")
        try:
            return self._reader.from_json(value)
        except msgspec.ValidationError as error:
            fields = msgspec.json.decode(value)
            if self._tags is not None and self._tags.are_other(fields):
                raise SkippedMessage from error
            if lacks_event_time(fields, self._event_time):
                raise MissingEventTime(f"no event time: {self._event_time!r} is missing or null") from error
            raise
        except msgspec.DecodeError as error:
            if _are_lines(value):
                raise UndecodableValue(
                    "several JSON objects in lines; declare `codec=penstock.codecs.JsonLines()` if each line is an event"
                ) from error
            raise


def _are_lines(value: bytes) -> bool:
    """Return whether a value that is not JSON begins with a line that is a JSON object."""
    first, line_break, _ = value.partition(b"\n")
    with suppress(*MALFORMED):
        return bool(line_break) and isinstance(msgspec.json.decode(first), dict)
    return False


class _Tags(NamedTuple):
    """The tags of a union of record types.

    Args:
        field: the field with the tag, by its name on the bus.
        known: the tags.
    """

    field: str
    known: frozenset[str | int]

    def are_other(self, fields: Any) -> bool:
        """Return whether decoded fields contain another tag."""
        tag = fields.get(self.field) if isinstance(fields, dict) else None
        return isinstance(tag, (str, int)) and tag not in self.known


def _tags_of(record: RecordType) -> _Tags | None:
    tags = [tag for member in members_of(record) if (tag := tag_of(member))]
    return _Tags(tags[0][0], frozenset(tag for _, tag in tags)) if tags else None


def _lines_of(messages: Sequence[Message]) -> JoinedValues | None:
    """Return the values of messages as lines; None if there are no messages, or one has no value."""
    if isinstance(messages, MessageColumns):
        values = messages.values
        if not (len(messages) and values.present.all()):
            return None
        begin = values.starts[0]
        return JoinedValues(values.buffer[begin : values.ends[-1]], values.starts - begin, values.ends - begin)
    present = [value for message in messages if (value := message.value()) is not None]
    if not present or len(present) < len(messages):
        return None
    sizes = np.fromiter(map(len, present), np.int64, len(present))
    ends = np.cumsum(sizes + 1) - 1
    return JoinedValues(b"\n".join(present), ends - sizes, ends)


def _may_have_long_number(text: bytes | memoryview) -> bool:
    """Return whether text may contain a number of 19 digits or more. Numbers of 16 to 18 digits may be false positives.

    At any alignment, so long a number fills four whole words in a row. Comparing words is faster than comparing bytes.
    """
    words = np.frombuffer(text, np.uint32, count=len(text) // _WORD)
    digits = (words & _HIGH_HALVES) == _OF_DIGITS  # also matches the six characters after 9
    runs = digits[: max(len(digits) - _WIDE_WORDS + 1, 0)].copy()
    for at in range(1, _WIDE_WORDS):
        runs &= digits[at : at + len(runs)]
    return bool(runs.any())
