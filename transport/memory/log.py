"""A bucket as the broker stores it: messages at offsets, some of which belong to transactions, and gaps between them.

A mark ends all that its writer has open in the bucket, also messages of a former transaction whose own mark was never written.

Gaps are offsets that no reader is given: the marks with which transactions end, messages of aborted ones, and what compaction removed.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import Enum, auto

from ..messages import Outgoing


class MessageState(Enum):
    """What has become of a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass
class Decision:
    """The fate of what a writer has open in a bucket, shared by all those messages."""

    fate: MessageState = MessageState.OPEN


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message in a bucket.

    Args:
        at: its offset.
        payload: key, value and bucket.
        arrived_ms: its timestamp (milliseconds since 1970, UTC).
        decision: what becomes of it, if it is of a transaction; None where it is of none.
        is_sent: whether the timestamp is that of its writer, and not of its arrival.
    """

    at: int
    payload: Outgoing
    arrived_ms: int
    decision: Decision | None = None
    is_sent: bool = False

    def key(self) -> bytes | None:
        """Return the key."""
        return self.payload.key

    def value(self) -> bytes | None:
        """Return the payload."""
        return self.payload.value

    def offset(self) -> int:
        """Return its offset."""
        return self.at

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of time (1: the writer's, 2: the bus's), and the time."""
        return 1 if self.is_sent else 2, self.arrived_ms


class BucketLog:
    """One bucket: its messages in order of offset, and the offsets between which they are kept."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._messages: list[StoredMessage] = []
        self._open: dict[str, tuple[Decision, int]] = {}

    def append(self, message: Outgoing, arrived_ms: int, writer: str | None = None, *, is_sent: bool = False) -> None:
        """Store a message, of the transaction of a writer or of none."""
        decision = None if writer is None else self._open.setdefault(writer, (Decision(), self.end))[0]
        self._messages.append(StoredMessage(self.end, message, arrived_ms, decision, is_sent))
        self.end += 1

    def mark(self, writer: str, fate: MessageState) -> None:
        """Write down how the transaction of a writer ended; that takes an offset."""
        found = self._open.pop(writer, None)
        if found is not None:
            found[0].fate = fate
            self.end += 1

    @property
    def stable_end(self) -> int:
        """Where readers of committed data find the end: at the first message of a transaction that is open."""
        return min((first for _, first in self._open.values()), default=self.end)

    def committed(self, start: int, limit: int) -> list[StoredMessage]:
        """Return up to `limit` messages from an offset on that readers of committed data are given."""
        messages, stable_end = self._messages, self.stable_end
        found: list[StoredMessage] = []
        for at in range(self._index(start), len(messages)):
            message = messages[at]
            if message.at >= stable_end or len(found) >= limit:
                break
            if message.decision is None or message.decision.fate is MessageState.COMMITTED:
                found.append(message)
        return found

    def first_since(self, time_ms: int) -> int:
        """Return the offset of the first message with that timestamp or a later one; the end where there is none."""
        return next((message.at for message in self._messages if message.arrived_ms >= time_ms), self.end)

    def trim(self, start: int) -> None:
        """Drop what lies before an offset, as retention does."""
        self.start = min(max(self.start, start), self.end)
        del self._messages[: self._index(self.start)]

    def compact(self, clean_ms: int, tombstones_since_ms: int) -> None:
        """Keep the last message of each key of what arrived up to a time; of deletions those that arrived since another time.

        What an open transaction has written, and all behind it, stays. Offsets stay what they were; so does the start.
        """
        border = self.stable_end
        last: dict[bytes | None, int] = {}
        for message in self._messages:
            if message.at < border and not _is_aborted(message):
                last[message.key()] = message.at
        self._messages = [
            replace(message, decision=None) if message.at < border else message
            for message in self._messages
            if message.at >= border
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
    return message.decision is not None and message.decision.fate is MessageState.ABORTED
