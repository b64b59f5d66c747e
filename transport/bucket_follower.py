r"""The reading of buckets from given offsets to their ends, and of the messages that arrive afterwards.

starts --scanner--> batches, which the caller applies to its table
              \---> positions, and the buckets that have not reached their ends

Offsets have gaps: aborted transactions and transaction markers. So a bucket has reached an end when the scanner returns a later message, or
reports the end of the bucket.

A read up to an end expects progress. Without it, it asks the bus for the reason:

    no message for 10 s --> the category was deleted, or ends before the range: an error, since the events will never arrive
                        --> no answer, or an open transaction: a line in the log, repeated every 30 s; an error at the limit
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence

from ..processors import counted
from .bus import Bus
from .category_spec import Topic
from .errors import BusUnreachable, MissingCategory, TopicRecreated
from .messages import Bucket, Polled, Position, RawBatch
from .open_transactions import BLOCKED_AFTER_S, old_transactions

_LOG = logging.getLogger("penstock.kafka")
POLL_WAIT_S = 1.0
SILENCE_LIMIT_S = 120.0
"""How long a reader waits for the next message, or for the end of a bucket, before it fails."""
REPORT_EVERY_S = 30.0
"""How often a waiting reader logs what it waits for."""

Ends = Mapping[Bucket, int | None]
"""The offset at which each bucket ends; None for the end that the bus reports while it is read."""


class BucketFollower:
    """Reads buckets outside of any group, and knows how far. One thread; close it.

    Args:
        bus: contains the buckets, and answers why nothing arrives.
        starts: the first offset to read of each bucket; None for the first one that the bus keeps.
        ends: the ends of buckets. The others end where the bus reports it.
    """

    def __init__(self, bus: Bus, starts: Mapping[Bucket, int | None], ends: Mapping[Bucket, int] | None = None) -> None:
        self._bus = bus
        self._scanner = bus.scanner([Position(*start) for start in starts.items()])
        self._unread: Ends = {bucket: (ends or {}).get(bucket) for bucket in starts}
        self.positions = {bucket: start or 0 for bucket, start in starts.items()}
        """The next unread offset of each bucket."""

    @property
    def is_complete(self) -> bool:
        """Whether every bucket was read to its end once."""
        return not self._unread

    def expect_ends(self, ends: Mapping[Bucket, int]) -> None:
        """Set the ends of buckets that have not reached theirs: the bus reports an end only after it has waited for more messages."""
        expected = {bucket: ends.get(bucket, end) for bucket, end in self._unread.items()}
        self._unread = {bucket: end for bucket, end in expected.items() if end is None or self.positions[bucket] < end}

    def poll(self, timeout_s: float) -> Sequence[RawBatch]:
        """Return the next messages; wait up to `timeout_s` if there are none.

        Raises:
            BusError: as the bus raises.
        """
        polled = self._scanner.poll(timeout_s)
        self._advance(polled)
        return polled.batches

    def _advance(self, polled: Polled) -> None:
        reported = {end.bucket: end.offset for end in polled.ended}
        read = {batch.bucket: batch.next_offset for batch in polled.batches}
        for bucket, offset in (*reported.items(), *read.items()):
            self.positions[bucket] = max(offset, self.positions[bucket])
        self._unread = {
            bucket: end
            for bucket, end in self._unread.items()
            if reported.get(bucket, -1) < (end or 0) and (end is None or read.get(bucket, -1) < end)
        }

    def read_to_end(self, silence_limit_s: float = SILENCE_LIMIT_S) -> Iterator[RawBatch]:
        """Yield messages until each bucket has reached its end. They may contain later messages, too.

        Args:
            silence_limit_s: the time of polling without a message or an end after which the read fails. To ask the bus for the reason takes longer.

        Raises:
            TopicRecreated: a category does not have the end any more.
            BusUnreachable: the bus sent nothing for `silence_limit_s`.
            BusError: as the bus raises.
        """
        silence = _Silence(self._bus, silence_limit_s)
        while self._unread:
            before = len(self._unread)
            batches = self.poll(POLL_WAIT_S)
            if batches or len(self._unread) < before:
                silence.end()
            else:
                silence.extend(self._unread)
            yield from batches

    def close(self) -> None:
        """Stop reading. May be repeated."""
        self._scanner.close()


def changed_topics(bus: Bus, topics: Mapping[str, Topic | None]) -> list[str]:
    """Return the categories that were created again or resized since they had these topics. Readers report missing ones."""
    present = bus.catalog.topics(topics)
    return [name for name, topic in present.items() if topic != topics[name]]


class _Silence:
    """The time in which a read makes no progress.

    It is counted in polls, each of which waits: so it is the same on any clock.
    """

    def __init__(self, bus: Bus, limit_s: float) -> None:
        self._bus = bus
        self._limit_s = limit_s
        self.end()

    def end(self) -> None:
        """Record progress."""
        self._polled_s, self._due_s = 0.0, min(BLOCKED_AFTER_S, self._limit_s)
        self._since_s = time.monotonic()

    def extend(self, unread: Ends) -> None:
        """Record a poll without progress; log the reason if it is time to, or raise at the limit."""
        self._polled_s += POLL_WAIT_S
        if self._polled_s < self._due_s:
            return
        self._due_s = min(self._polled_s + REPORT_EVERY_S, self._limit_s)
        reason, silent_s = self._reason(unread), max(self._polled_s, time.monotonic() - self._since_s)
        missing = f"{_named(unread)} not read completely: the bus has sent nothing for {silent_s:.0f} s. {reason}"
        if self._polled_s >= self._limit_s:
            raise BusUnreachable(f"{missing} No event was skipped. Run again when Kafka sends its events.")
        _LOG.warning("Waiting: %s", missing)

    def _reason(self, unread: Ends) -> str:
        """Return why nothing arrives.

        Raises:
            MissingCategory: nothing will, because a category was deleted.
            TopicRecreated: nothing will, because a category ends earlier now.
        """
        names = {bucket.category for bucket in unread}
        now_ms = round(time.time() * 1000)
        try:
            self._expect_ends(unread, names)
            transactions = old_transactions(self._bus, names, now_ms)
        except BusUnreachable as error:
            return str(error)
        blocking = [each for each in transactions if each.offset < (unread.get(each.bucket) or 0)]
        if blocking:
            return blocking[0].report(now_ms)
        return "The brokers answer other requests. Check their logs, and this machine's network to each of them."

    def _expect_ends(self, unread: Ends, names: set[str]) -> None:
        missing = sorted(names - self._bus.catalog.topics(names).keys())
        if missing:
            raise MissingCategory(
                f"Category {missing[0]} was deleted while it was read, so its other events are lost. Create it again with `penstock category create`, or "
                "remove what reads it."
            )
        ends = {name: self._bus.catalog.ends(name) for name in names}
        for bucket, end in unread.items():
            present = ends[bucket.category].get(bucket.number, 0)
            if present < (end or 0):
                raise TopicRecreated(
                    f"{bucket} has offsets up to {present:,} only, and was read up to {end:,} at first: the category was deleted and created again "
                    "meanwhile, or a broker has lost events. What is missing does not arrive any more. Run again to read what it contains now."
                )


def _named(unread: Ends) -> str:
    first, others = min(unread), len(unread) - 1
    return f"{first} is" if not others else f"{first} and {counted(others, 'other bucket')} are"
