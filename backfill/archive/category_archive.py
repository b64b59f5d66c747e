"""One category on its way from the bus into the warehouse.

    poll -> decode -> columns -> the open segment of the bucket      for each batch
    write the segment's files, note the bucket, commit the position  when it is full, and whenever asked to save
    close days that all buckets have passed, mark those complete     when asked to save

The files are written first. A crash before the position is committed leaves events beyond it in the open segment's files;
whoever goes on takes up those files as far as the position, and reads the rest again. So every event is archived once. The bucket's
note holds how far its time has come both as of the committed position and as of the next one: whichever is found, it goes on exactly there.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...processors.categories import AnyCategory
from ...transport.bus import Bucket, Bus, Position, RawBatch
from ...transport.codec_of import Codecs
from ...transport.errors import Fenced
from ..errors import ArchiveGap
from ..warehouse.layout import By, StoredFile
from ..warehouse.notes import BucketNote, bucket_note, read_note, write_note
from ..warehouse.seam import Warehouse
from ..warehouse.terms import settle
from .archived_rows import ArchivedRows, Messages
from .complete_days import CompleteDays
from .completeness import BucketDays, Patience, day_passed
from .segments import Segment, Unwritten, write_changed

_LOG = logging.getLogger("penstock.archiver")


@dataclass
class Tally:
    """What an archiver has done since it started.

    Args:
        events: events taken up.
        files: files written; one that grew counts each time.
        undecodable: messages that have no columns, since they do not decode or hold a number beyond 64 bits.
        gone: offsets that the bus no longer kept.
    """

    events: int = 0
    files: int = 0
    undecodable: int = 0
    gone: int = 0


@dataclass(frozen=True)
class Manner:
    """How a category is archived.

    Args:
        segment_events: how many offsets share a file name.
        by: by which time events have their days.
        patience: how long is waited for events until a day is complete.
        accept_gaps: go on where the bus has dropped events that were not archived.
        now_ms: tells the time of day.
    """

    segment_events: int
    by: By
    patience: Patience
    accept_gaps: bool
    now_ms: Callable[[], int]


@dataclass
class _Open:
    """A bucket: its open segment and its time, the next offset to read, and how far it is in the warehouse and committed."""

    segment: Segment
    days: BucketDays
    read: int
    written: int
    committed: int

    def write(self, warehouse: Warehouse) -> list[str]:
        """Write what has changed; return the day of each file."""
        return write_changed([self.unwritten], warehouse)

    @property
    def unwritten(self) -> Unwritten:
        """The segment with what is late for it."""
        return Unwritten(self.segment, self.days.closings)

    def reach(self, offset: int) -> None:
        """Note that all before an offset is in the warehouse."""
        self.written = offset
        self.days.reach(offset)


class CategoryArchive:
    """Archives the buckets of one category that its consumer group gives it. An `Ownership`.

    Args:
        bus: where the category is.
        category: its declaration.
        warehouse: where its events go.
        manner: how.
        tally: what was done is added to it.
    """

    def __init__(self, bus: Bus, category: AnyCategory, warehouse: Warehouse, manner: Manner, tally: Tally) -> None:
        self._bus = bus
        self._category = category
        self._warehouse = warehouse
        self._manner = manner
        self._length = manner.segment_events
        self._tally = tally
        self._rows = ArchivedRows(category, Codecs(bus).of(category))
        self._clock = "_arrived" if manner.by is By.ARRIVAL else "_event_time"
        self._settled = False
        self._complete = CompleteDays(warehouse, category.name)
        self._compacted: dict[int, list[StoredFile]] = {}
        self._buckets: dict[int, _Open] = {}
        self._gained: list[Bucket] = []
        self._reader = bus.reader(group_of(category.name), [category.name], self)

    def turn(self, wait_s: float) -> bool:
        """Poll once and take up what came, writing segments that are full; return whether anything came."""
        try:
            if self._gained:
                self._take_up()
            polled = self._reader.poll(wait_s)
            for batch in polled.batches:
                self._take(batch)
            for bucket, end in polled.ended:
                self._advance(bucket.number, end)
            self._commit()
        except Fenced as error:
            _LOG.warning("%s", error)
            self._buckets.clear()
            return False
        return bool(polled.batches)

    def save(self) -> None:
        """Write everything that was read, commit the positions, and mark the days that are complete."""
        try:
            self._save(self._buckets, self._close_days)
            self._mark_complete()
        except Fenced as error:
            _LOG.warning("%s", error)
            self._buckets.clear()

    def has_reached(self, targets: Mapping[Bucket, int]) -> bool:
        """Tell whether every bucket that it owns is read up to its target; False while it owns none."""
        return (
            bool(self._buckets)
            and not self._gained
            and all(
                bucket.read >= targets.get(Bucket(self._category.name, number), 0)
                for number, bucket in self._buckets.items()
            )
        )

    def close(self) -> None:
        """Save, and leave the group."""
        self._reader.close()

    def abandon(self) -> None:
        """Leave the group without saving: what was not saved is read again."""
        self._buckets.clear()
        self._reader.close()

    def gained(self, buckets: Sequence[Bucket]) -> None:
        """Note buckets, which the next turn takes up."""
        self._gained.extend(buckets)

    def _take_up(self) -> None:
        """Begin buckets where they were left, with what is there of their open segments."""
        name = self._category.name
        if not self._settled:
            settle(self._warehouse, name, self._manner.by, self._length, self._rows.schema)
            self._settled = True
        buckets, self._gained = self._gained, []
        starts = self._bus.catalog.describe(name).starts
        committed = self._bus.catalog.committed(group_of(name), name)
        files = self._complete.look().files
        for bucket in buckets:
            offset = self._past_gap(bucket, committed.get(bucket.number), starts[bucket.number])
            own = [file for file in files if file.bucket == bucket.number]
            self._compacted[bucket.number] = [file for file in own if file.is_compacted]
            segment = self._segment(bucket.number, offset)
            segment.restore(own, self._warehouse, before=offset)
            note = read_note(self._warehouse, bucket_note(name, bucket.number), BucketNote)
            days = BucketDays(self._manner.patience, note, offset, self._manner.now_ms())
            self._buckets[bucket.number] = _Open(segment, days, offset, offset, offset)
            self._reader.start([Position(bucket, offset)])

    def _past_gap(self, bucket: Bucket, position: int | None, start: int) -> int:
        if position is None or position >= start:
            return start if position is None else position
        if not self._manner.accept_gaps:
            raise ArchiveGap(
                f"{bucket} is archived up to offset {position}, but the bus keeps it only from offset {start} on: "
                f"{start - position:,} offsets are gone, and what lay there is in no warehouse. Nothing was changed. To go on "
                "with what is still there, start the archiver with gaps accepted."
            )
        _LOG.warning("%s: offsets %d to %d are gone from the bus and were not archived", bucket, position, start - 1)
        self._tally.gone += start - position
        return start

    def given_up(self, buckets: Sequence[Bucket]) -> None:
        """Save buckets, then let go of them."""
        numbers = {bucket.number for bucket in buckets}
        self._save({number: bucket for number, bucket in self._buckets.items() if number in numbers})
        self.lost(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Let go of buckets without saving."""
        self._gained = [bucket for bucket in self._gained if bucket not in buckets]
        for bucket in buckets:
            self._buckets.pop(bucket.number, None)

    def _segment(self, bucket: int, offset: int) -> Segment:
        start = offset - offset % self._length
        compacted = self._compacted.get(bucket, ())
        return Segment(self._category.name, bucket, start, self._rows.schema, clock=self._clock, compacted=compacted)

    def _take(self, batch: RawBatch) -> None:
        open_bucket = self._buckets.get(batch.bucket.number)
        if open_bucket is None:
            return  # handed out before the bucket moved away; its new owner reads it
        for part in self._by_segment(batch, open_bucket.read):
            self._advance(batch.bucket.number, part.messages[0].offset())
            rows = self._taken(part)
            if rows.num_rows:
                open_bucket.segment.add(rows)
                open_bucket.days.take(_times(rows, self._clock), _times(rows, "_arrived"), self._manner.now_ms())
            self._advance(batch.bucket.number, part.next_offset)

    def _by_segment(self, batch: RawBatch, since: int) -> Iterator[RawBatch]:
        """Cut what comes from an offset on where segments end."""
        offsets = [message.offset() for message in batch.messages]
        start = bisect_left(offsets, since)
        while start < len(offsets):
            end = bisect_left(offsets, (offsets[start] // self._length + 1) * self._length)
            yield RawBatch(batch.bucket, batch.messages[start:end])
            start = end

    def _advance(self, number: int, offset: int) -> None:
        """Note how far a bucket is read; where that is past its open segment, write it and begin the next."""
        bucket = self._buckets.get(number)
        if bucket is None or offset <= bucket.read:
            return
        bucket.read = offset
        if offset >= bucket.segment.start + self._length:
            self._written(bucket.write(self._warehouse))
            bucket.segment = self._segment(number, offset)
            bucket.reach(bucket.segment.start)

    def _save(self, buckets: Mapping[int, _Open], close: Callable[[], None] = lambda: None) -> None:
        self._written(write_changed([bucket.unwritten for bucket in buckets.values()], self._warehouse))
        for bucket in buckets.values():
            bucket.reach(bucket.read)
        close()
        self._note(buckets)
        self._commit()

    def _written(self, days: Sequence[str]) -> None:
        self._tally.files += len(days)
        self._complete.have(days)

    def _close_days(self) -> None:
        """Close the days that all buckets of the category have passed, also those of other archivers."""
        now_ms, ends = self._manner.now_ms(), self._bus.catalog.ends(self._category.name)
        for number, bucket in self._buckets.items():
            if bucket.read >= ends[number]:
                bucket.days.rest(now_ms)
        passed = day_passed(self._notes(len(ends)), len(ends))
        for bucket in self._buckets.values() if passed else ():
            bucket.days.close(passed or "")

    def _mark_complete(self) -> None:
        """Mark the days that are complete."""
        buckets = len(self._bus.catalog.ends(self._category.name))
        if self._buckets:
            self._complete.mark(self._notes(buckets), buckets, self._manner.now_ms())

    def _notes(self, buckets: int) -> dict[int, BucketNote]:
        """Return what is noted of each bucket, and of its own what is about to be."""
        notes: dict[int, BucketNote] = {}
        for number in range(buckets):
            own = self._buckets.get(number)
            place = bucket_note(self._category.name, number)
            note = own.days.note if own else read_note(self._warehouse, place, BucketNote)
            if note is not None:
                notes[number] = note
        return notes

    def _note(self, buckets: Mapping[int, _Open]) -> None:
        for number, bucket in buckets.items():
            note = bucket.days.unnoted
            if note is not None:
                write_note(self._warehouse, bucket_note(self._category.name, number), note)
                bucket.days.noted(note)

    def _commit(self) -> None:
        """Note and commit what is in the warehouse; a second time is cheap."""
        moved = {number: bucket for number, bucket in self._buckets.items() if bucket.written > bucket.committed}
        if moved:
            self._note(moved)
            self._reader.commit(
                [Position(Bucket(self._category.name, n), bucket.written) for n, bucket in moved.items()]
            )
            for bucket in moved.values():
                bucket.committed = bucket.written
                bucket.days.committed()

    def _taken(self, batch: RawBatch) -> pa.RecordBatch:
        """Return the rows of a batch; count and report what has none."""
        offsets = [message.offset() for message in batch.messages]
        rows = self._rows.of(Messages(batch.bucket.number, batch.values(), offsets, batch.arrivals_ms()))
        self._report(batch, rows.left_out)
        self._tally.events += rows.batch.num_rows
        return rows.batch

    def _report(self, batch: RawBatch, reasons: Mapping[int, str]) -> None:
        if not reasons:
            return
        self._tally.undecodable += len(reasons)
        first = min(reasons)
        _LOG.warning(
            "%s: %d of the messages from offset %d to %d are not archived, the first at offset %d: %s",
            batch.bucket,
            len(reasons),
            batch.messages[0].offset(),
            batch.next_offset - 1,
            batch.messages[first].offset(),
            reasons[first],
        )


def group_of(category: str) -> str:
    """Return the consumer group that archives a category."""
    return f"archiver.{category}"


def _times(rows: pa.RecordBatch, column: str) -> list[int]:
    times: list[int] = rows.column(column).to_pylist()  # type: ignore[assignment]  # these columns have no nulls
    return times
