"""Messages on the bus, and their buckets and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple, Self

import numpy as np

from ..processors.declare import AnyCategory, Codec, Message, MessageHeaders, Partitioner, split_messages
from ..processors.time import NEVER_MS, UNKNOWN_ARRIVAL_MS, Times


class Bucket(NamedTuple):
    """One bucket of a category."""

    category: str
    number: int

    def __str__(self) -> str:
        return f"{self.category}/{self.number}"


class Position(NamedTuple):
    """A place in one bucket.

    Args:
        bucket: the bucket.
        offset: the next unread offset. None makes a scanner start at the first message that the bus keeps.
        checkpoint_id: for a group's position, the id of the checkpoint that committed it; 0 for none.
        low_ms: for a group's position, the low watermark of a checkpoint without state, which contains it otherwise.
        event_time: for a group's position, the event time of the input at such a checkpoint; see `SavedTimes`.
    """

    bucket: Bucket
    offset: int | None
    checkpoint_id: int = 0
    low_ms: int = NEVER_MS
    event_time: str = ""


class End(NamedTuple):
    """The end of a bucket, which a reader has reached.

    Args:
        bucket: the bucket.
        offset: the next offset to read.
    """

    bucket: Bucket
    offset: int


class RawBatch(NamedTuple):
    """Encoded messages of one bucket, in order; at least one."""

    bucket: Bucket
    messages: Sequence[Message]

    @property
    def next_offset(self) -> int:
        """The next unread offset after this batch."""
        return self.messages[-1].offset() + 1

    def part(self, begin: int, end: int) -> Self:
        """Return the messages from one index up to, not including, another."""
        return self if end - begin == len(self.messages) else self._replace(messages=self.messages[begin:end])

    def offsets(self) -> list[int]:
        """Return the offset of each message."""
        return [message.offset() for message in self.messages]

    def headers(self) -> Sequence[MessageHeaders | None]:
        """Return the headers of each message; None for a message without headers."""
        return [message.headers() for message in self.messages]

    def size_bytes(self) -> int:
        """Return the size of all payloads."""
        return sum(len(value) for message in self.messages if (value := message.value()))

    def arrivals_ms(self) -> Times:
        """Return the arrival time of each message (milliseconds since 1970, UTC); `UNKNOWN_ARRIVAL_MS` for a message without a timestamp.

        In a category with writers' timestamps, these replace the arrival time.
        """
        stamps = (message.timestamp() for message in self.messages)
        arrivals = (time_ms if kind else UNKNOWN_ARRIVAL_MS for kind, time_ms in stamps)
        return np.fromiter(arrivals, np.int64, len(self.messages))


def split_batch(codec: Codec, batch: RawBatch) -> RawBatch:
    """Return a batch with a message for each record: messages with several records follow each other with equal offsets.

    It is the same object if no message has several.
    """
    messages = split_messages(codec, batch.messages)
    return batch if messages is batch.messages else RawBatch(batch.bucket, messages)


class Polled(NamedTuple):
    """The result of one poll.

    Args:
        batches: messages, at most one batch for each bucket.
        ended: the buckets that are read to their end as of now.
    """

    batches: Sequence[RawBatch]
    ended: Sequence[End]


MESSAGE_LIMIT = 1_000_000
"""The default size limit of a message, in bytes: the default of Kafka's clients, which its brokers accept."""

CERTAINLY_FITS_BYTES = 16 * 1024
"""The size of messages that every category accepts. Smaller messages are sent without a request for the category's limit."""


class MessageCopy:
    """A message outside of a bus: read by Spark, taken from a dead letter, or encoded and never sent.

    Args:
        value: the payload.
        key: the key.
        bucket: the number of its bucket.
        offset: its offset.
        timestamp: the type and time of its timestamp.
        headers: its headers.
    """

    __slots__ = ("_bucket", "_headers", "_key", "_offset", "_timestamp", "_value")

    def __init__(  # noqa: PLR0917 - `map` constructs copies from columns
        self,
        value: bytes | None,
        key: bytes | None = None,
        bucket: int = 0,
        offset: int = 0,
        timestamp: tuple[int, int] = (0, 0),
        headers: MessageHeaders | None = None,
    ) -> None:
        self._value = value
        self._key = key
        self._bucket = bucket
        self._offset = offset
        self._timestamp = timestamp
        self._headers = headers

    def key(self) -> bytes | None:
        """Return the key."""
        return self._key

    def value(self) -> bytes | None:
        """Return the payload."""
        return self._value

    def headers(self) -> MessageHeaders | None:
        """Return the headers; None without headers."""
        return self._headers

    def partition(self) -> int:
        """Return the number of the bucket."""
        return self._bucket

    def offset(self) -> int:
        """Return the offset."""
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp and the time (milliseconds since 1970, UTC)."""
        return self._timestamp


BY_KEY = -1
"""In place of a bucket number: the bucket of the key by `Partitioner.MURMUR2`, which the client computes."""


class Outgoing(NamedTuple):
    """A message to send.

    Args:
        key: messages of one key go to one bucket; None for any bucket.
        value: the payload; None deletes the key in a compacted category.
        bucket: the number of a bucket, regardless of the key; or `BY_KEY`.
        headers: the headers; None without headers.
    """

    key: bytes | None
    value: bytes | None
    bucket: int = BY_KEY
    headers: MessageHeaders | None = None


_new_outgoing = partial(tuple.__new__, Outgoing)


def outgoing(
    category: AnyCategory,
    message_keys: Sequence[bytes],
    values: Iterable[bytes | None],
    headers: Iterable[MessageHeaders | None] | None = None,
) -> Iterator[Outgoing]:
    """Return messages of a category for the buckets of their keys, by its partitioner; by MURMUR2 if that is unknown.

    This takes two thirds of the time of `map(Outgoing, message_keys, values)`.
    """
    by_client = category.partitioner in (None, Partitioner.MURMUR2)
    buckets = repeat(BY_KEY) if by_client else category.buckets_of_message_keys(message_keys)
    all_headers = repeat(None) if headers is None else headers
    # Not strict, since repetitions are endless.
    return map(_new_outgoing, zip(message_keys, values, buckets, all_headers, strict=False))


def size_of(message: Outgoing) -> int:
    """Return the size of a message's key, value and headers, in bytes."""
    size = len(message.key or b"") + len(message.value or b"")
    if message.headers is None:
        return size
    return size + sum(len(name.encode()) + len(value or b"") for name, value in message.headers)
