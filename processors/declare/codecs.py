"""Codecs as a category declares them, and the batches that they decode.

A codec decodes whole messages, so that it can use their keys, headers and timestamps besides their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

Headers = Sequence[tuple[str, bytes | None]]
"""The headers of a message in order. A name may occur several times."""


class Message(Protocol):
    """A stored message. The methods have confluent-kafka's names, so that its messages need no wrapper."""

    def key(self) -> bytes | None:
        """Return the key."""
        ...

    def value(self) -> bytes | None:
        """Return the payload."""
        ...

    def headers(self) -> Headers | None:
        """Return the headers; None without headers."""
        ...

    def partition(self) -> int:
        """Return the number of the bucket."""
        ...

    def offset(self) -> int:
        """Return the offset."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp (0: none, 1: the writer's, 2: the bus's) and the time (milliseconds since 1970, UTC)."""
        ...


class Undecodable(NamedTuple):
    """A message that did not decode.

    Args:
        at: its index in the batch.
        reason: why, in words.
        untimed: whether only the event time is missing.
    """

    at: int
    reason: str
    untimed: bool


class Decoded(NamedTuple):
    """A decoded batch.

    Args:
        events: the records, in order.
        at: the index in the batch of each record.
        bad: the messages that did not decode.
    """

    events: list[Any]
    at: Sequence[int]
    bad: list[Undecodable]


class Codec(Protocol):
    """Encodes and decodes one category's records, a batch at a time.

    A message that fails to decode is reported by its index; the rest of the batch is processed.
    """

    def encode(self, records: Sequence[Any]) -> list[bytes]:
        """Return the value of a message for each record.

        Raises:
            InvalidRecord: a value violates the record's type, or a number is infinite, NaN or beyond 64 bits.
        """
        ...

    def decode(self, messages: Sequence[Message]) -> Decoded:
        """Decode a batch; undecodable messages are part of the result."""
        ...
