"""Past events from the bus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate

from ....processors.declare import AnyCategory, Codec, Processor, plan_of
from ....processors.shard import AcceptedBatch, SourceEvents, accept_batch, with_deletions
from ....processors.time import format_time
from ....transport import Bucket, Bus, CategoryState, OffsetRange, RawBatch, read_offset_range, returned, split_batch
from ....transport.codecs import Codecs
from .errors import ReplayRefused
from .event_source import PastRange


class BusEventSource:
    """Reads buckets by offset, without a consumer group.

    Args:
        processor: the processor, with its policies for rejected messages.
        bus: the bus of its inputs.
        from_earliest: whether to skip expired events of a span.
        now: returns the current time.
    """

    def __init__(
        self,
        processor: Processor,
        bus: Bus,
        *,
        from_earliest: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._processor = processor
        self._bus = bus
        self._from_earliest = from_earliest
        self._now = now()
        self._codecs = Codecs(bus)
        self._chain = chain = plan_of(processor).retry_chain
        self._waits_ms = {} if chain is None else chain.waits_ms()
        # Cached: the answers are the same for all buckets throughout a replay.
        self._state: Callable[[str], CategoryState] = lru_cache(maxsize=None)(bus.catalog.describe)
        self._ends: Callable[[str], Mapping[int, int]] = lru_cache(maxsize=None)(bus.catalog.stable_ends)
        self._at: Callable[[str, datetime], dict[int, int]] = lru_cache(maxsize=None)(bus.catalog.at_time)

    def first(self, bucket: Bucket) -> int:
        """Return the first retained offset of a bucket."""
        return self._state(bucket.category).starts[bucket.number]

    def stretch(self, bucket: Bucket, span: PastRange) -> OffsetRange:
        """Return the offsets of a span in a bucket."""
        start, end = self._offset(bucket, span.since), self._end(bucket)
        if not self._from_earliest:
            self._require_retained(bucket, span, start)
        if span.until is not None:
            end = min(self._offset(bucket, span.until), end)
        start = max(start, self.first(bucket))
        return OffsetRange(bucket, start, max(start, end))

    def _end(self, bucket: Bucket) -> int:
        return self._ends(bucket.category)[bucket.number]

    def _offset(self, bucket: Bucket, point: datetime | int) -> int:
        if isinstance(point, datetime):
            return self._at(bucket.category, point)[bucket.number]
        return min(point, self._end(bucket))

    def _require_retained(self, bucket: Bucket, span: PastRange, start: int) -> None:
        kept = self._state(bucket.category)
        if not is_expired(span.since, start, kept.starts[bucket.number], kept.spec.retention, self._now):
            return
        raise ReplayRefused(
            f"{bucket} is retained only from offset {kept.starts[bucket.number]:,}{self._since_when(bucket)}, and the span starts before that: "
            f"its first events have expired. Nothing was read. Choose a later start, `--source warehouse` for an archived category, or "
            "`--from-earliest` to skip expired events."
        )

    def _since_when(self, bucket: Bucket) -> str:
        """Return the arrival time of the first retained event, as text."""
        start = self.first(bucket)
        for batch in read_offset_range(self._bus, OffsetRange(bucket, start, min(start + 1, self._end(bucket)))):
            return f", which arrived at {format_time(int(batch.arrivals_ms()[0]))} UTC"
        return ""

    def read(self, category: AnyCategory, stretch: OffsetRange) -> Iterator[SourceEvents]:
        """Yield the events of an offset range in order, and the messages that a worker would reject."""
        if stretch.start >= stretch.end:
            return
        arrived_ms = 0
        for batch in self._batches(category, stretch):
            # A worker takes an event that waits for a retry as if it arrived at the end of its wait.
            arrivals_ms = batch.arrivals_ms() + self._waits_ms.get(category.name, 0)
            arrived = list(accumulate(arrivals_ms.tolist(), max, initial=arrived_ms))[1:]
            arrived_ms = arrived[-1]
            yield from self._seen(category, batch, arrived)

    def _batches(self, category: AnyCategory, stretch: OffsetRange) -> Iterator[RawBatch]:
        """Yield the messages of an offset range, one for each event."""
        codec = self._codec_of(category)
        return (split_batch(codec, batch) for batch in read_offset_range(self._bus, stretch))

    def _codec_of(self, category: AnyCategory) -> Codec:
        """Return the codec of a category; for a retry category, the codec of its source."""
        if category.name in self._waits_ms:
            [category] = plan_of(self._processor).sources
        return self._codecs.of(category)

    def _seen(self, category: AnyCategory, batch: RawBatch, arrived_ms: list[int]) -> Iterator[SourceEvents]:
        messages = batch.messages
        if category.name in self._waits_ms:
            messages = [returned(message, batch.bucket, self._chain).message for message in messages]
        decoded = self._codec_of(category).decode(messages)
        decoded = with_deletions(decoded, messages, category, self._processor)
        accepted = accept_batch(decoded, category, batch.arrivals_ms(), self._processor)
        offsets = [message.offset() for message in batch.messages]
        return split_rejected(category, batch.bucket.number, accepted, offsets, arrived_ms)


def split_rejected(
    category: AnyCategory, number: int, accepted: AcceptedBatch, offsets: list[int], arrived_ms: list[int]
) -> Iterator[SourceEvents]:
    """Yield the events of a batch in order, and each rejected message by itself.

    Args:
        category: its category.
        number: its bucket number.
        accepted: the accepted events and rejected messages.
        offsets: the offset of each message.
        arrived_ms: the arrival time of each message.
    """

    def events(begin: int, end: int) -> Iterator[SourceEvents]:
        if begin < end:
            at = accepted.at[begin:end]
            marks = [offsets[index] for index in at], [arrived_ms[index] for index in at]
            yield SourceEvents(category, number, accepted.events[begin:end], *marks)

    begin = 0
    for event in accepted.rejected:
        end = bisect_left(accepted.at, event.at, begin)
        yield from events(begin, end)
        yield SourceEvents(category, number, (), [offsets[event.at]], [arrived_ms[event.at]], event)
        begin = end
    yield from events(begin, len(accepted.events))


def is_expired(since: datetime | int, start: int, first: int, retention: timedelta | None, now: datetime) -> bool:
    """Return whether events of a bucket after a point may have expired.

    Arrival times of expired events are unknown. Events within the retention are retained.

    Args:
        since: the point.
        start: the offset of the point.
        first: the first retained offset.
        retention: the retention; None for unlimited, so that missing events were deleted by a user at any time.
        now: the current time.
    """
    if first == 0 or start > first:
        return False
    if isinstance(since, int):
        return since < first
    return retention is None or since < now - retention
