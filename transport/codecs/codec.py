"""Records to bytes and back, a whole batch at a time.

What does not decode is told apart, by its place in the batch, from what does; the rest of the batch is not held up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np

from ...processors.declare.categories import AnyCategory
from ...processors.declare.record_check import RecordCheck, has_whole_numbers
from ...processors.shard.batches import Decoded, Undecodable

_WIDE_DIGITS = 19
"""How many digits a whole number has at least that is beyond 64 bits."""
_WORD = 4
_WIDE_WORDS = (_WIDE_DIGITS - _WORD + 1) // _WORD
_HIGH_HALVES, _OF_DIGITS = 0xF0F0F0F0, 0x30303030


class Codec(Protocol):
    """Encodes and decodes one category's records."""

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the bytes of each record.

        Raises:
            InvalidRecord: a record holds what its type does not allow, a number that is not finite, or one beyond 64 bits.
        """
        ...

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode a batch."""
        ...


class JsonCodec:
    """One JSON object a message, as any other reader of the category expects."""

    def __init__(self, category: AnyCategory) -> None:
        self._category = category
        self._decoder = msgspec.json.Decoder(category.record)
        self._encoder = msgspec.json.Encoder()
        self._check = RecordCheck(category.record)
        self._read_check = RecordCheck(category.record, besides=category.event_time)
        self._has_whole_numbers = has_whole_numbers(category.record, category.event_time)

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the JSON of each record."""
        self._check.expect(records)
        # One call for the batch: a newline within a string is escaped in JSON, so those between records are the only.
        return self._encoder.encode_lines(records).split(b"\n")[:-1]

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decode a batch at once; where that fails, message by message."""
        try:
            lines = b"\n".join(values)  # type: ignore[arg-type]  # an empty message is a TypeError here
            if _lines_are_whole(lines, len(values)):
                events = self._decoder.decode_lines(lines)
                if len(events) == len(values) and not self._may_be_too_wide(lines):
                    return Decoded(events, range(len(values)), [])
        except (TypeError, msgspec.DecodeError):
            pass  # found again, with its place, below
        return without_unfit(decode_singly(values, self._decode_one), self._read_check)

    def _may_be_too_wide(self, lines: bytes) -> bool:
        """Tell whether some whole number, beside event times, may have more than 64 bits: whether there is any so long."""
        return self._has_whole_numbers and _may_have_long_number(lines)

    def _decode_one(self, value: bytes) -> Any:
        try:
            return self._decoder.decode(value)
        except msgspec.ValidationError as error:
            if self._lacks_event_time(value):
                raise Untimed(f"no event time: {self._category.event_time!r} is missing or null") from error
            raise

    def _lacks_event_time(self, value: bytes) -> bool:
        fields = msgspec.json.decode(value)
        return isinstance(fields, dict) and fields.get(self._category.event_time) is None


def _may_have_long_number(text: bytes) -> bool:
    """Tell whether text may have a number of 19 digits or more; a shorter one, of 16 or more, may pass for one.

    Wherever it stands, so long a number fills four whole words in a row: words are looked at, not bytes.
    """
    words = np.frombuffer(text, np.uint32, count=len(text) // _WORD)
    digits = (words & _HIGH_HALVES) == _OF_DIGITS  # also of the six characters behind 9
    runs = digits[: max(len(digits) - _WIDE_WORDS + 1, 0)].copy()
    for at in range(1, _WIDE_WORDS):
        runs &= digits[at : at + len(runs)]
    return bool(runs.any())


def _lines_are_whole(lines: bytes, messages: int) -> bool:
    """Tell whether each line is one message that opens and closes an object.

    If so, no two broken messages can be read as one: after the `}` that ends one line, the `{` that begins the next is
    legal only between two complete records. As many records as messages then means one record for each.
    """
    if lines[:1] != b"{" or lines[-1:] != b"}":
        return False
    characters = np.frombuffer(lines, np.uint8)
    breaks = np.flatnonzero(characters == ord("\n"))
    return (
        len(breaks) == messages - 1
        and bool((characters[breaks - 1] == ord("}")).all())
        and bool((characters[breaks + 1] == ord("{")).all())
    )


def without_unfit(decoded: Decoded, check: RecordCheck) -> Decoded:
    """Tell events apart that hold a number which no field may have."""
    unfit = check.unfit(decoded.events)
    if not unfit:
        return decoded
    at = decoded.at
    bad = [Undecodable(at[index], reason, untimed=False) for index, reason in unfit.items()]
    kept = [index for index in range(len(at)) if index not in unfit]
    return Decoded([decoded.events[index] for index in kept], [at[index] for index in kept], [*decoded.bad, *bad])


class Untimed(msgspec.ValidationError):
    """A message that decodes but for its event time."""


def decode_singly(values: Sequence[bytes | None], decode: Any) -> Decoded:
    """Decode message by message, telling the bad ones apart."""
    events: list[Any] = []
    at: list[int] = []
    bad: list[Undecodable] = []
    for index, value in enumerate(values):
        if value is None:
            bad.append(Undecodable(index, "the message is empty", untimed=False))
            continue
        try:
            events.append(decode(value))
            at.append(index)
        except (msgspec.DecodeError, UndecodableValue) as error:
            bad.append(Undecodable(index, str(error), untimed=isinstance(error, Untimed)))
    return Decoded(events, at, bad)


class UndecodableValue(ValueError):
    """A message whose bytes are not what its codec writes."""
