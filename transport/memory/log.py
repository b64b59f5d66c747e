"""The log of one bucket: messages at offsets, with gaps, and their transactions.

A marker ends all open messages of its writer in the bucket, including messages of a former transaction whose own marker is missing.

Gaps are offsets without a message for readers: transaction markers, aborted messages, and messages removed by compaction.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import Enum, auto

from ...processors.declare import MessageHeaders
from ..messages import Outgoing


class MessageState(Enum):
    """The outcome of a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass
class TransactionOutcome:
    """The outcome of a writer's open messages in a bucket, which they share."""

    state: MessageState = MessageState.OPEN


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in a bucket.

    Args:
        at: the offset.
        payload: key, value and headers.
        arrived_ms: its timestamp (milliseconds since 1970, UTC).
        outcome: the outcome of its transaction; None without a transaction.
        is_sent: whether the timestamp is the writer's instead of the arrival time.
        number: the number of the bucket.
    """

    at: int
    payload: Outgoing
    arrived_ms: int
    outcome: TransactionOutcome | None = None
    is_sent: bool = False
    number: int = 0

    def key(self) -> bytes | None:
        """Return the key."""
        return self.payload.key

    def value(self) -> bytes | None:
        """Return the payload."""
        return self.payload.value

    def headers(self) -> MessageHeaders | None:
        """Return the headers; None without headers."""
        return self.payload.headers

    def partition(self) -> int:
        """Return the number of the bucket."""
        return self.number

    def offset(self) -> int:
        """Return the offset."""
        return self.at

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp (1: the writer's, 2: the bus's) and the time."""
        return 1 if self.is_sent else 2, self.arrived_ms


class BucketLog:
    """The messages of one bucket in order, and its first and next offset.

    Args:
        number: the number of the bucket.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.start = 0
        self.end = 0
        self._messages: list[StoredMessage] = []
        self._open: dict[str, tuple[TransactionOutcome, int]] = {}

    def append(self, message: Outgoing, arrived_ms: int, writer: str | None = None, *, is_sent: bool = False) -> None:
        """Store a message, in the open transaction of a writer or without one."""
        outcome = None if writer is None else self._open.setdefault(writer, (TransactionOutcome(), self.end))[0]
        self._messages.append(StoredMessage(self.end, message, arrived_ms, outcome, is_sent, self._number))
        self.end += 1

    def mark(self, writer: str, state: MessageState) -> None:
        """Write the marker of a writer's transaction, which takes an offset."""
        found = self._open.pop(writer, None)
        if found is not None:
            found[0].state = state
            self.end += 1

    @property
    def stable_end(self) -> int:
        """The end for readers of committed data: the first message of an open transaction."""
        return min((first for _, first in self._open.values()), default=self.end)

    def committed(self, start: int, limit: int) -> list[StoredMessage]:
        """Return up to `limit` committed messages from an offset on."""
        messages, stable_end = self._messages, self.stable_end
        found: list[StoredMessage] = []
        for at in range(self._index(start), len(messages)):
            message = messages[at]
            if message.at >= stable_end or len(found) >= limit:
                break
            if message.outcome is None or message.outcome.state is MessageState.COMMITTED:
                found.append(message)
        return found

    def arrived_ms(self, start: int) -> int | None:
        """Return when the first message from an offset on arrived, whatever became of its transaction; None without one."""
        at = self._index(start)
        return self._messages[at].arrived_ms if at < len(self._messages) else None

    def first_since(self, time_ms: int) -> int:
        """Return the offset of the first message with this timestamp or a later one; the end if there is none."""
        return next((message.at for message in self._messages if message.arrived_ms >= time_ms), self.end)

    def trim(self, start: int) -> None:
        """Delete messages before an offset, as retention does."""
        self.start = min(max(self.start, start), self.end)
        del self._messages[: self._index(self.start)]

    def compact(self, clean_ms: int, tombstones_since_ms: int) -> None:
        """Keep the last message of each key, as compaction does.

        Open transactions and all later messages stay. Offsets and the start do not change.

        Args:
            clean_ms: messages that arrived later stay.
            tombstones_since_ms: deletions that arrived earlier are removed.
        """
        stable_end = self.stable_end
        last: dict[bytes | None, int] = {}
        for message in self._messages:
            if message.at < stable_end and not _is_aborted(message):
                last[message.key()] = message.at
        self._messages = [
            replace(message, outcome=None) if message.at < stable_end else message
            for message in self._messages
            if message.at >= stable_end
            or (message.arrived_ms > clean_ms and not _is_aborted(message))
            or (
                last.get(message.key()) == message.at
                and (message.value() is not None or message.arrived_ms >= tombstones_since_ms)
            )
        ]

    def _index(self, offset: int) -> int:
        return bisect_left(self._messages, offset, key=_offset)


def _offset(message: StoredMessage) -> int:
    return message.at


def _is_aborted(message: StoredMessage) -> bool:
    return message.outcome is not None and message.outcome.state is MessageState.ABORTED
