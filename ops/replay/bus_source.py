"""The past as far as the bus keeps it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import accumulate

from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...processors.shard.batches import AcceptedBatch, accept_batch, with_deletions
from ...processors.shard.source_events import SourceEvents
from ...processors.time.timestamp_validation import shown
from ...transport.bus import Bus
from ...transport.category_spec import CategoryState
from ...transport.codecs.by_category import Codecs
from ...transport.messages import Bucket, RawBatch
from ...transport.offset_range import OffsetRange, read_offset_range
from .errors import ReplayRefused
from .event_source import Span


class BusEventSource:
    """Reads buckets by their offsets, in no group: nobody's positions move.

    Args:
        processor: whose policies say which messages are refused.
        bus: where its inputs are.
        from_earliest: whether what is gone of a span may be left out.
        now: tells what the time is.
    """

    def __init__(
        self,
        processor: Processor,
        bus: Bus,
        *,
        from_earliest: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._processor = processor
        self._bus = bus
        self._from_earliest = from_earliest
        self._now = now()
        self._codecs = Codecs(bus)
        # What was asked once is not asked for each bucket, and the answer is the same throughout a replay.
        self._state: Callable[[str], CategoryState] = lru_cache(maxsize=None)(bus.catalog.describe)
        self._ends: Callable[[str], Mapping[int, int]] = lru_cache(maxsize=None)(bus.catalog.stable_ends)
        self._at: Callable[[str, datetime], dict[int, int]] = lru_cache(maxsize=None)(bus.catalog.at_time)

    def first(self, bucket: Bucket) -> int:
        """Return the first offset of a bucket that is kept."""
        return self._state(bucket.category).starts[bucket.number]

    def stretch(self, bucket: Bucket, span: Span) -> OffsetRange:
        """Return what of a bucket lies in a span."""
        start, end = self._offset(bucket, span.since), self._end(bucket)
        if not self._from_earliest:
            self._expect_kept(bucket, span, start)
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

    def _expect_kept(self, bucket: Bucket, span: Span, start: int) -> None:
        kept = self._state(bucket.category)
        if not is_gone(span.since, start, kept.starts[bucket.number], kept.spec.retention, self._now):
            return
        raise ReplayRefused(
            f"{bucket} is kept on the bus only from offset {kept.starts[bucket.number]:,} on{self._since_when(bucket)}, and what was asked "
            f"for begins before: events are gone from the bus. Nothing was read. Choose: begin later; replay from the warehouse, where "
            "the category is archived (`--source warehouse`); or leave out what is gone (`--from-earliest`)."
        )

    def _since_when(self, bucket: Bucket) -> str:
        """Say when the first event arrived that is kept."""
        start = self.first(bucket)
        for batch in read_offset_range(self._bus, OffsetRange(bucket, start, min(start + 1, self._end(bucket)))):
            return f", which arrived at {shown(batch.arrivals_ms()[0])} UTC"
        return ""

    def read(self, category: AnyCategory, stretch: OffsetRange) -> Iterator[SourceEvents]:
        """Give the events of a stretch, in order, and the messages that a worker would refuse."""
        if stretch.start >= stretch.end:
            return
        arrived_ms = 0
        for batch in read_offset_range(self._bus, stretch):
            arrived = list(accumulate(batch.arrivals_ms(), max, initial=arrived_ms))[1:]
            arrived_ms = arrived[-1]
            yield from self._seen(category, batch, arrived)

    def _seen(self, category: AnyCategory, batch: RawBatch, arrived_ms: list[int]) -> Iterator[SourceEvents]:
        decoded = self._codecs.of(category).decode(batch.values())
        decoded = with_deletions(decoded, batch.messages, category, self._processor)
        given = accept_batch(decoded, category, batch.arrivals_ms(), self._processor)
        offsets = [message.offset() for message in batch.messages]
        return parted(category, batch.bucket.number, given, offsets, arrived_ms)


def parted(
    category: AnyCategory, number: int, given: AcceptedBatch, offsets: list[int], arrived_ms: list[int]
) -> Iterator[SourceEvents]:
    """Give what is taken of a batch in order: events, and each refused message by itself.

    Args:
        category: what it is of.
        number: the bucket's.
        given: what is taken.
        offsets: of each message of the batch.
        arrived_ms: by when each had arrived.
    """

    def events(begin: int, end: int) -> Iterator[SourceEvents]:
        if begin < end:
            at = given.at[begin:end]
            marks = [offsets[index] for index in at], [arrived_ms[index] for index in at]
            yield SourceEvents(category, number, given.events[begin:end], *marks)

    begin = 0
    for refusal in given.rejected:
        end = bisect_left(given.at, refusal.at, begin)
        yield from events(begin, end)
        yield SourceEvents(category, number, (), [offsets[refusal.at]], [arrived_ms[refusal.at]], refusal)
        begin = end
    yield from events(begin, len(given.events))


def is_gone(since: datetime | int, start: int, first: int, retention: timedelta | None, now: datetime) -> bool:
    """Tell whether events of a bucket may be gone that lie behind a point.

    A bucket that nothing was dropped from has everything. Of another one it is not known when the events arrived that were dropped, only
    that those within the retention are kept.

    Args:
        since: the point.
        start: the offset that it stands for, as the bus says.
        first: the first offset that is kept.
        retention: how long events are kept; None for ever, so that what is gone was removed by somebody, whenever it came.
        now: what the time is.
    """
    if first == 0 or start > first:
        return False
    if isinstance(since, int):
        return since < first
    return retention is None or since < now - retention
