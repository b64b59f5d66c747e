"""Delays of the events that wait for a retry.

polled batches --queued by bucket, until their wait is over--> due batches, beside the batches of the other inputs
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from ....transport import Bucket, End, Polled, RawBatch, Reader
from ...shell import MachineClock
from .queue_limits import QueueSize, limit_queues

MAX_QUEUED = 1_000
"""The number of waiting events in memory at which their bucket is paused. It resumes at half of it. Their size is limited by `queue_limits`."""


class _Waiting(NamedTuple):
    """A batch, and for each event the time at which it and all earlier events are due."""

    batch: RawBatch
    due_ms: list[int]


class _Queue:
    """The waiting batches of one bucket."""

    def __init__(self) -> None:
        self._batches: deque[_Waiting] = deque()
        self._last_ms = 0
        self.size = QueueSize()
        self.end: int | None = None

    @property
    def next_ms(self) -> int | None:
        """When the next event is due; None without one."""
        return self._batches[0].due_ms[0] if self._batches else None

    def add(self, batch: RawBatch, wait_ms: int, now_ms: int) -> None:
        """Queue a batch. An arrival in the future, from a wrong clock, counts as now."""
        due = (min(arrived_ms, now_ms) + wait_ms for arrived_ms in batch.arrivals_ms().tolist())
        due_ms = list(accumulate(due, max, initial=self._last_ms))[1:]
        self._last_ms = due_ms[-1]
        self._batches.append(_Waiting(batch, due_ms))
        self.size.add(batch)
        self.end = None

    def due(self, now_ms: int) -> Iterator[RawBatch]:
        """Remove and yield the events that are due."""
        while self._batches and self._batches[0].due_ms[0] <= now_ms:
            batch, due_ms = self._batches.popleft()
            count = bisect_right(due_ms, now_ms)
            if count < len(due_ms):
                self._batches.appendleft(_Waiting(batch.part(count, len(due_ms)), due_ms[count:]))
            part = batch.part(0, count)
            self.size.remove(part)
            yield part


class RetryDelays:
    """Delays the batches of a worker's retry categories. One thread.

    Args:
        waits_ms: by category, how long its events wait.
        clock: determines which events are due.
    """

    def __init__(self, waits_ms: Mapping[str, int], clock: MachineClock) -> None:
        self._waits_ms = waits_ms
        self._clock = clock
        self._queues: defaultdict[Bucket, _Queue] = defaultdict(_Queue)

    def due(self, polled: Polled) -> Polled:
        """Queue the waiting batches of a poll; return the other batches, and the batches that are due."""
        now_ms = self._clock.now_ms()
        others = [batch for batch in polled.batches if batch.bucket.category not in self._waits_ms]
        ended = [end for end in polled.ended if end.bucket.category not in self._waits_ms]
        for batch in polled.batches:
            if batch.bucket.category in self._waits_ms:
                self._queues[batch.bucket].add(batch, self._waits_ms[batch.bucket.category], now_ms)
        for bucket, offset in polled.ended:
            if bucket.category in self._waits_ms:
                self._queues[bucket].end = offset
        due = [batch for queue in self._queues.values() for batch in queue.due(now_ms)]
        # A queue is at the end of its bucket only after its last event was due.
        read = [
            End(bucket, queue.end)
            for bucket, queue in self._queues.items()
            if queue.end is not None and not queue.size.events
        ]
        return Polled([*others, *due], [*ended, *read])

    def is_waiting(self, bucket: Bucket) -> bool:
        """Return whether the next event of a bucket is read, and not due yet."""
        next_ms = self._queues[bucket].next_ms if bucket in self._queues else None
        return next_ms is not None and next_ms > self._clock.now_ms()

    def limit_queues(self, reader: Reader) -> None:
        """Pause the buckets with long or large queues, and resume those whose queues have become short."""
        limit_queues({bucket: queue.size for bucket, queue in self._queues.items()}, MAX_QUEUED, reader)

    def drop(self, buckets: Collection[Bucket]) -> None:
        """Drop the queues of buckets, which are read again here or by another worker."""
        for bucket in buckets:
            self._queues.pop(bucket, None)
