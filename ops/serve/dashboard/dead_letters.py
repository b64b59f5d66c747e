"""The newest dead letters of a processor, decoded for the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ....processors import PenstockError
from ....processors.declare import DeadLetter
from ....transport import Bus, MissingCategory, OffsetOutOfRange, ranges_to_end, read_offset_ranges
from ....transport.codecs import UndecodableValue, decode_any, decode_dead_letter, value_of
from ....transport.tables import Schemas

SILENCE_LIMIT_S = 15.0
"""How long a page waits for the next dead letter."""


class NoSuchDeadLetter(PenstockError):
    """There is no dead letter at this offset: reload the list."""


@dataclass(frozen=True)
class DecodedDeadLetter:
    """A dead letter with its decoded message.

    Args:
        dead_letter_offset: its offset in the category of dead letters.
        category: the category of the rejected message.
        bucket: the bucket of that message.
        offset: the offset of that message.
        reason: the reason for the rejection.
        key: the key of the message as text; None without a key.
        value: the decoded value of the message; its bytes as text if it does not decode.
        at_ms: the time of the rejection (milliseconds since 1970, UTC).
    """

    dead_letter_offset: int
    category: str
    bucket: int
    offset: int
    reason: str
    key: str | None
    value: Any
    at_ms: int


def newest_dead_letters(bus: Bus, category: str, limit: int) -> list[DecodedDeadLetter]:
    """Return the last dead letters, the newest first; none if the category does not exist."""
    try:
        state = bus.catalog.describe(category)
    except MissingCategory:
        return []
    start = max(state.starts[0], state.ends[0] - limit)
    schemas = Schemas(bus)
    return [_decoded(offset, letter, schemas) for offset, letter in _read(bus, category, start)][::-1]


def dead_letter_at(bus: Bus, category: str, offset: int) -> DeadLetter:
    """Return the dead letter at an offset.

    Raises:
        NoSuchDeadLetter: there is none.
    """
    try:
        first = next(_read(bus, category, offset), None)
    except OffsetOutOfRange:
        first = None
    if first is not None and first[0] == offset:
        return first[1]
    raise NoSuchDeadLetter(
        f"There is no dead letter at offset {offset} of {category}; it may have expired. Reload the list."
    )


def _read(bus: Bus, category: str, start: int) -> Iterator[tuple[int, DeadLetter]]:
    """Yield dead letters with their offsets, from an offset to the current end. Messages of other programs are skipped."""
    ranges = ranges_to_end(bus, category, {0: start})
    for batch in read_offset_ranges(bus, ranges, silence_limit_s=SILENCE_LIMIT_S):
        for message in batch.messages:
            with suppress(UndecodableValue):  # another program wrote it
                yield message.offset(), decode_dead_letter(value_of(message))


def _decoded(offset: int, letter: DeadLetter, schemas: Schemas) -> DecodedDeadLetter:
    return DecodedDeadLetter(
        dead_letter_offset=offset,
        category=letter.category,
        bucket=letter.bucket,
        offset=letter.offset,
        reason=letter.reason,
        key=None if letter.key is None else letter.key.decode(errors="backslashreplace"),
        value=_decode_value(letter.value, schemas),
        at_ms=letter.at,
    )


def _decode_value(value: bytes | None, schemas: Schemas) -> Any:
    try:
        return decode_any(value, schemas)
    except Exception:  # noqa: BLE001 - that it does not decode may be the reason for the rejection
        return None if value is None else value.decode(errors="backslashreplace")
