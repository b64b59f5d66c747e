"""The newest dead letters of a processor, as people read them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from ...processors.declare.dead_letters import DeadLetter
from ...processors.errors import PenstockError
from ...transport.bus import Bus
from ...transport.codecs.dead_letters import decode_dead_letter
from ...transport.codecs.schemaless import decode_any
from ...transport.errors import BusError, MissingCategory, OffsetOutOfRange
from ...transport.messages import Bucket, Position
from ...transport.tables.schemas import Schemas

READ_LIMIT_S = 15.0
"""How long the bus may take to give them."""


class NoSuchDeadLetter(PenstockError):
    """It is not among the dead letters: look again."""


@dataclass(frozen=True)
class ShownDeadLetter:
    """A dead letter as people read it.

    Args:
        number: its own offset among the dead letters.
        category: where the message was read.
        bucket: its bucket there.
        offset: its offset there.
        reason: why it was not processed.
        key: the message's key as text; None where it had none.
        value: what it holds: decoded where that can be, else its bytes as text.
        at_ms: when it was set aside (milliseconds since 1970, UTC).
    """

    number: int
    category: str
    bucket: int
    offset: int
    reason: str
    key: str | None
    value: Any
    at_ms: int


def newest_dead_letters(bus: Bus, category: str, limit: int) -> list[ShownDeadLetter]:
    """Return the last dead letters, the newest first; none where the category is not there yet."""
    try:
        found = bus.catalog.describe(category)
    except MissingCategory:
        return []
    begin = max(found.starts[0], found.ends[0] - limit)
    schemas = Schemas(bus)
    return [_shown(number, letter, schemas) for number, letter in _letters(bus, category, begin)][::-1]


def dead_letter_at(bus: Bus, category: str, number: int) -> DeadLetter:
    """Return the dead letter at an offset.

    Raises:
        NoSuchDeadLetter: there is none.
    """
    try:
        first = next(_letters(bus, category, number), None)
    except OffsetOutOfRange:
        first = None
    if first is not None and first[0] == number:
        return first[1]
    raise NoSuchDeadLetter(
        f"There is no dead letter at offset {number} of {category}: it may have left the bus. Look at the list again."
    )


def _letters(bus: Bus, category: str, begin: int) -> Iterator[tuple[int, DeadLetter]]:
    """Give dead letters from an offset up to the end as of now."""
    deadline_s = time.monotonic() + READ_LIMIT_S
    with closing(bus.scanner([Position(Bucket(category, 0), begin)])) as scanner:
        ended = False
        while not ended:
            if time.monotonic() > deadline_s:
                raise BusError(
                    f"The bus did not give the dead letters of {category} within {READ_LIMIT_S:.0f} s: ask again."
                )
            polled = scanner.poll(0.2)
            for message in (message for batch in polled.batches for message in batch.messages):
                value = message.value()
                if value is not None:
                    yield message.offset(), decode_dead_letter(value)
            ended = bool(polled.ended)


def _shown(number: int, letter: DeadLetter, schemas: Schemas) -> ShownDeadLetter:
    return ShownDeadLetter(
        number,
        letter.category,
        letter.bucket,
        letter.offset,
        letter.reason,
        None if letter.key is None else letter.key.decode(errors="backslashreplace"),
        _content(letter.value, schemas),
        letter.at,
    )


def _content(value: bytes | None, schemas: Schemas) -> Any:
    try:
        return decode_any(value, schemas)
    except Exception:  # noqa: BLE001 - that it does not decode may be why it is here
        return None if value is None else value.decode(errors="backslashreplace")
