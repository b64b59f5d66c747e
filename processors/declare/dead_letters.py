"""Dead letters: rejected messages with their bytes, origin and reason."""

from __future__ import annotations

from datetime import timedelta

from .categories import Category, size_settings
from .plan import plan_of
from .processor import Processor
from .records import EventTime, Record


class LetterHeader(Record, frozen=True):
    """A header of a rejected message.

    Args:
        name: its name.
        value: its value; None for a null value.
    """

    name: str
    value: bytes | None


class DeadLetter(Record, frozen=True):
    """A message that its processor rejected.

    Args:
        category: the category of the message.
        bucket: the bucket of the message.
        offset: the offset of the message.
        reason: why it was rejected.
        key: the key of the message; None without a key.
        value: the bytes of the message; None without a value.
        at: when it was rejected (milliseconds since 1970, UTC).
        truncated_bytes: the number of bytes of key and value that were removed to respect the maximum message size. The whole message stays at
            its offset for the retention of its category.
        headers: the headers of the message, in order.
        timestamp_type: the type of the timestamp of the message: 0 for none, 1 the producer's, 2 the broker's.
        timestamp_ms: the timestamp of the message (milliseconds since 1970, UTC).
        traceback: the traceback from the first frame of user code on, if the processor raised an exception; else empty.
    """

    category: str
    bucket: int
    offset: int
    reason: str
    key: bytes | None
    value: bytes | None
    at: EventTime
    truncated_bytes: int = 0
    headers: tuple[LetterHeader, ...] = ()
    timestamp_type: int = 0
    timestamp_ms: int = 0
    traceback: str = ""


def dead_letters_of(processor: type[Processor]) -> Category[DeadLetter]:
    """Return the category of a processor's dead letters. Its retention is 30 days, and it accepts messages of its largest input."""
    return Category(
        f"{processor.name}.dead_letters",
        DeadLetter,
        key=_origin,
        event_time="at",
        buckets=1,
        retention=timedelta(days=30),
        settings=size_settings(plan_of(processor).sources),
    )


def _origin(letter: DeadLetter) -> str:
    return f"{letter.category}/{letter.bucket}"
