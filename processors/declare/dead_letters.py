"""Dead letters: events that could not be processed, kept with their bytes, their origin and the reason."""

from __future__ import annotations

from datetime import timedelta

from .categories import Category
from .processor import Processor
from .records import EventTime, Record


class DeadLetter(Record, frozen=True):
    """One message that its processor could not take.

    Args:
        category: where it was read.
        bucket: its bucket there.
        offset: its offset there.
        reason: why it was not processed.
        key: the message's key, None where it had none.
        value: the message's bytes, None where it had none.
        at: when it was set aside.
        cut_bytes: how many bytes of key and value were left out because the bus takes no larger message; the whole message lies at its
            offset, as long as its category keeps it.
    """

    category: str
    bucket: int
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    at: EventTime
    cut_bytes: int = 0


def dead_letters_of(processor: type[Processor]) -> Category[DeadLetter]:
    """Return the category that takes a processor's dead letters, kept for 30 days."""
    return Category(
        f"{processor.name}.dead_letters",
        DeadLetter,
        key=_origin,
        event_time="at",
        buckets=1,
        retention=timedelta(days=30),
    )


def _origin(letter: DeadLetter) -> str:
    return f"{letter.category}/{letter.bucket}"
