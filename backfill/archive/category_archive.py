"""The archive of one category.

    claim an epoch, commit the position under it, restore the open segment  for each assigned bucket
    poll -> decode -> columns -> the open segment of the bucket             for each batch
    write the segment's files, record progress, commit the position         when the segment is full, and on save
    close days that all buckets have passed, mark them complete             on save

Files are written first. A crash before the commit leaves later events in the files of the open segment. The next owner restores these files
up to the position and reads the rest again, so every event is archived once. A bucket's note records its event time at the committed
position and at the next one, so the owner resumes exactly, whichever position was committed.

An archiver may be paused, lose its membership, and end any of these steps later. Its files and notes have its own epoch, which is lower
than its successor's. If both have written, the successor's files count. Whatever it alone has written is beyond the committed position.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from ...processors.declare.categories import AnyCategory
from ...transport.bus import Bus, Reader
from ...transport.codecs.by_category import Codecs
from ...transport.errors import BusError, BusRefuses, BusUnreachable, CommitUnconfirmed, Fenced, MembershipLost
from ...transport.messages import Bucket, Position, RawBatch
from ..errors import ArchiveGap, ArchiveRefused, WarehouseFileMissing
from ..warehouse.archive_settings import ResolvedSettings, expect_same_topic, resolve_settings, widen_files
from ..warehouse.layout import By, StoredFile
from ..warehouse.listing import Listing
from ..warehouse.notes import BucketNote, bucket_note, claim_note, epochs_among, write_note
from ..warehouse.owners import Owners, claim, note_of, settled_notes
from ..warehouse.warehouse import WRITERS, Warehouse
from .archived_rows import ArchivedRows, Messages
from .completeness import BucketDays, CompleteDays, LatenessAllowance, day_passed
from .idle_buckets import IdleBuckets
from .segments import LateAdditions, Segment, Unwritten, write_changed

_LOG = logging.getLogger("penstock.archiver")
FENCED_PAUSE_S = 5.0
"""The pause before a fenced archiver claims its buckets again. By then, the group has told it which buckets it still owns."""


@dataclass
class ArchiveMetrics:
    """The archiver's counters since its start.

    Args:
        events: archived events.
        files: written files, each rewrite included.
        undecodable: messages without a row, because they cannot be decoded or contain an integer beyond 64 bits.
        expired: offsets that had expired on the bus.
    """

    events: int = 0
    files: int = 0
    undecodable: int = 0
    expired: int = 0


@dataclass(frozen=True)
class ArchiveOptions:
    """Settings of a category's archive.

    Args:
        segment_events: the number of offsets in a segment.
        by: the time that assigns events to days.
        patience: how long a day stays open for late events.
        accept_gaps: continue when the bus has dropped events that were not archived.
        now_ms: the time of day.
        monotonic_s: seconds since a refusal, and for bucket idleness.
    """

    segment_events: int
    by: By
    patience: LatenessAllowance
    accept_gaps: bool
    now_ms: Callable[[], int]
    monotonic_s: Callable[[], float]


class _Claimed(NamedTuple):
    """A claimed bucket: the epoch of its new owner, its note, and the position to resume from."""

    bucket: Bucket
    epoch: int
    note: BucketNote | None
    position: int


@dataclass
class _Open:
    """An owned bucket: its epoch, open segment and event time, and the offsets up to which it is read, written and committed."""

    epoch: int
    segment: Segment
    late: LateAdditions
    days: BucketDays
    read: int
    written: int
    committed: int
    compacted: Sequence[StoredFile]
    earlier: dict[tuple[str, int], list[StoredFile]]
    superseded: list[StoredFile] = field(default_factory=list)

    @property
    def unwritten(self) -> Unwritten:
        """The segment with its late additions."""
        return Unwritten(self.segment, self.late, self.days.closings)

    @property
    def is_uncommitted(self) -> bool:
        """Whether events were written or a day was closed since the last commit."""
        return self.written > self.committed or self.days.has_uncommitted_closings

    def supersede(self, file: StoredFile) -> None:
        """Record that a file replaces those of earlier owners."""
        self.superseded += self.earlier.pop((file.day, file.segment), ())

    def reach(self, offset: int) -> None:
        """Record that all events before an offset are in the warehouse."""
        self.written = offset
        self.days.reach(offset)


class CategoryArchive:
    """Archives the assigned buckets of one category. An `Ownership`.

    Args:
        bus: the bus.
        category: the declaration.
        warehouse: the destination.
        options: the settings.
        tally: the counters to update.
    """

    def __init__(
        self, bus: Bus, category: AnyCategory, warehouse: Warehouse, options: ArchiveOptions, tally: ArchiveMetrics
    ) -> None:
        self._bus = bus
        self._category = category
        self._warehouse = warehouse
        self._options = options
        self._length = options.segment_events
        self._tally = tally
        self._rows = ArchivedRows(category, Codecs(bus).of(category))
        self._clock = "_arrived" if options.by is By.ARRIVAL else "_event_time"
        self._settings: ResolvedSettings | None = None
        self._complete = CompleteDays(warehouse, category.name)
        self._idle_buckets = IdleBuckets(bus, category.name, options.patience.idle_after, options.monotonic_s)
        self._idle = frozenset[int]()
        self._buckets: dict[int, _Open] = {}
        self._owned: set[Bucket] = set()
        self._assigned: list[Bucket] = []
        self._assigned_from_s = 0.0
        self._waits = False
        self._reader: Reader | None = None

    def turn(self, wait_s: float) -> bool:
        """Poll once, process the events, and write full segments. Return whether events arrived."""
        received = False
        with self._surviving_outages():
            received = self._read(self._joined(), wait_s)
            self._commit()
        with self._surviving_outages():
            if self._assigned and self._options.monotonic_s() >= self._assigned_from_s:
                self._open_assigned()
        with self._surviving_outages():
            self._idle_buckets.ask(self._read_to)
        return received

    def listen(self) -> bool:
        """Refresh the idle buckets for the next `save`. The bus is asked now, since writing files can take long.

        Returns:
            whether the bus answered.
        """
        self._idle, answered = frozenset(), False
        with self._surviving_outages():
            self._idle_buckets.ask(self._read_to, at_once=True)
            self._idle, answered = self._idle_buckets.idle(), True
        return answered

    @property
    def _read_to(self) -> dict[int, int]:
        return {number: bucket.read for number, bucket in self._buckets.items()}

    def save(self) -> bool:
        """Write all events, commit the positions, and mark complete days. Return whether everything is committed.

        Raises:
            ArchiveRefused: the topic was replaced by another; its events were not written.
        """
        saved = False
        with self._surviving_outages():
            self._expect_same_topic()
            self._save(self._buckets, self._close_days)
            self._mark_complete()
            self._claim_above_others()
            saved = True
        return saved and not self._assigned and not any(bucket.is_uncommitted for bucket in self._buckets.values())

    def _expect_same_topic(self) -> None:
        name = self._category.name
        topic = self._bus.catalog.topics([name]).get(name)
        if self._settings is not None and topic is not None:
            expect_same_topic(name, self._settings.settings.topic_id, topic.id)

    def _joined(self) -> Reader:
        if self._reader is None:
            self._reader = self._bus.reader(group_of(self._category.name), [self._category.name], self)
        return self._reader

    def _read(self, reader: Reader, wait_s: float) -> bool:
        polled = reader.poll(wait_s)
        for batch in polled.batches:
            self._receive(batch)
        for bucket, end in polled.ended:
            self._advance(bucket.number, end)
        return bool(polled.batches)

    @contextmanager
    def _surviving_outages(self) -> Iterator[None]:
        """Survive temporary errors: uncommitted work is kept and committed later, or dropped and read again."""
        try:
            yield
        except BusRefuses:
            raise
        except (CommitUnconfirmed, BusUnreachable) as error:
            if not self._waits:
                _LOG.warning("%s The archiver of %s keeps retrying.", error, self._category.name)
            self._waits = True
        except (Fenced, WarehouseFileMissing) as error:  # a later owner deletes the files that it has rewritten
            _LOG.warning("%s", error)
            self._start_over()
        except MembershipLost as error:
            _LOG.warning("%s", error)
            with suppress(BusError):  # the membership has ended; another reader joins in the next round
                self.abandon()
        else:
            if self._waits:
                _LOG.warning("The archiver of %s has recovered.", self._category.name)
            self._waits = False

    def _start_over(self) -> None:
        """Drop uncommitted work, reopen the buckets that are still owned, and remove superseded files."""
        self._buckets.clear()
        self._assigned = sorted(self._owned)
        self._assigned_from_s = self._options.monotonic_s() + FENCED_PAUSE_S
        self._complete.look()

    def has_reached(self, targets: Mapping[Bucket, int]) -> bool:
        """Return whether every owned bucket is read up to its target. False while no bucket is owned."""
        return (
            bool(self._buckets)
            and not self._assigned
            and all(
                bucket.read >= targets.get(Bucket(self._category.name, number), 0)
                for number, bucket in self._buckets.items()
            )
        )

    def close(self) -> None:
        """Save, and leave the group."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def abandon(self) -> None:
        """Leave the group without saving. Unsaved events are read again."""
        self.lost(list(self._owned))
        self.close()

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Record assigned buckets. The next round opens them."""
        self._owned.update(buckets)
        self._assigned.extend(buckets)

    def _open_assigned(self) -> None:
        """Open the assigned buckets at their positions, and restore their open segments."""
        reader, name, buckets = self._joined(), self._category.name, list(self._assigned)
        state = self._bus.catalog.describe(name)
        committed = {position.bucket: position for position in self._bus.catalog.positions(group_of(name), name)}
        listing = self._complete.look()
        settings = self._resolve_settings(listing, len(state.ends), state.topic_id)
        owners = Owners.of(self._warehouse, name)
        with ThreadPoolExecutor(WRITERS) as pool:
            claimed = list(
                pool.map(
                    lambda it: self._claim(it, owners, listing, committed.get(it), state.starts[it.number]), buckets
                )
            )
        self._expect_owned(reader, claimed)
        if settings.widens:
            epochs = {one.bucket.number: one.epoch for one in claimed}
            widen_files(self._warehouse, name, listing.files, settings.settings, epochs)
            listing = self._complete.look()
        if not settings.is_recorded:
            settings.note(self._warehouse, name)
        self._settings = replace(settings, is_recorded=True, widens=False)
        with ThreadPoolExecutor(WRITERS) as pool:
            taken = list(pool.map(lambda one: self._opened(one, owners, listing, state.starts), claimed))
        reader.start([Position(one.bucket, bucket.read) for one, bucket in zip(claimed, taken, strict=True)])
        self._buckets |= {one.bucket.number: bucket for one, bucket in zip(claimed, taken, strict=True)}
        self._idle_buckets.interrupt(one.bucket.number for one in claimed)
        self._assigned = [bucket for bucket in self._assigned if bucket not in buckets]

    def _resolve_settings(self, listing: Listing, buckets: int, topic_id: str) -> ResolvedSettings:
        name = self._category.name
        settings = self._settings or resolve_settings(
            self._warehouse,
            name,
            listing.files,
            by=self._options.by,
            segment_events=self._length,
            schema=self._rows.schema,
            topic_id=topic_id,
        )
        expect_same_topic(name, settings.settings.topic_id, topic_id)
        if settings.widens and len(self._owned) < buckets:
            raise ArchiveRefused(
                f"{name}: columns of files in {self._warehouse.location} must become wider, but other archivers own "
                f"{buckets - len(self._owned)} of its {buckets} buckets. Nothing was changed. Stop all archivers of {name} and start one. "
                "Start the others when it has logged that the files are rewritten."
            )
        return settings

    def _claim(
        self, bucket: Bucket, owners: Owners, listing: Listing, committed: Position | None, start: int
    ) -> _Claimed:
        """Claim a bucket, then find its position."""
        number = bucket.number
        files = chain(listing.files, listing.superseded)
        above = max((file.epoch for file in files if file.bucket == number), default=0)
        epoch = claim(self._warehouse, owners, number, above)
        noted = owners.noted(number)
        note = note_of(self._warehouse, self._category.name, number, noted) if noted else None
        return _Claimed(bucket, epoch, note, _position(committed, note, noted, start))

    def _expect_owned(self, reader: Reader, claimed: Sequence[_Claimed]) -> None:
        """Commit under the new epochs. The group accepts this only from the owner of the buckets."""
        try:
            reader.commit([Position(one.bucket, one.position, one.epoch) for one in claimed])
        except Fenced:
            for one in claimed:
                self._warehouse.delete(claim_note(self._category.name, one.bucket.number, one.epoch))
            raise

    def _opened(self, one: _Claimed, owners: Owners, listing: Listing, starts: Mapping[int, int]) -> _Open:
        """Restore a bucket's open segment, and write its note under the new epoch."""
        name, number = self._category.name, one.bucket.number
        offset = self._past_gap(one.bucket, one.position, starts[number])
        own = [file for file in listing.files if file.bucket == number]
        late = {day: epochs_among(names, "late").get(number) for day, names in listing.notes.items()}
        days = BucketDays(self._options.patience, one.note, offset)
        segment_start, compacted = offset - offset % self._length, [file for file in own if file.is_compacted]
        taken = _Open(
            one.epoch,
            self._segment(number, segment_start, one.epoch, compacted),
            LateAdditions(self._warehouse, name, number, one.epoch, {day: it[-1] for day, it in late.items() if it}),
            days,
            offset,
            offset,
            offset,
            compacted,
            _by_segment(file for file in own if file.segment >= segment_start and file.epoch < one.epoch),
        )
        taken.segment.restore(own, self._warehouse, before=offset)
        note = days.note
        write_note(self._warehouse, bucket_note(name, number, one.epoch), note)
        days.noted(note)
        for old in owners.before(number, one.epoch):
            self._warehouse.delete(old)
        return taken

    def _past_gap(self, bucket: Bucket, position: int, start: int) -> int:
        if position >= start:
            return position
        if not self._options.accept_gaps:
            raise ArchiveGap(
                f"{bucket} is archived up to offset {position}, but Kafka keeps it only from offset {start} on: {start - position:,} offsets "
                "have expired and are in no warehouse. Nothing was changed. To continue with the remaining events, start the archiver with "
                "`accept_gaps=True`."
            )
        _LOG.warning("%s: offsets %d to %d have expired in Kafka and were not archived", bucket, position, start - 1)
        self._tally.expired += start - position
        return start

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Save buckets and release them. Without a committed position, the next owner reads their events again."""
        numbers = {bucket.number for bucket in buckets}
        try:
            self._save({number: bucket for number, bucket in self._buckets.items() if number in numbers})
        except (CommitUnconfirmed, BusUnreachable, Fenced, MembershipLost) as error:
            _LOG.warning("%s The next owner of the buckets reads uncommitted events again.", error)
        self.lost(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Release buckets without saving."""
        self._owned.difference_update(buckets)
        self._assigned = [bucket for bucket in self._assigned if bucket not in buckets]
        for bucket in buckets:
            self._buckets.pop(bucket.number, None)

    def _segment(self, bucket: int, offset: int, epoch: int, compacted: Iterable[StoredFile]) -> Segment:
        start = offset - offset % self._length
        return Segment(
            self._category.name, bucket, start, epoch, self._rows.schema, clock=self._clock, compacted=compacted
        )

    def _receive(self, batch: RawBatch) -> None:
        open_bucket = self._buckets.get(batch.bucket.number)
        if open_bucket is None:
            return  # polled before the bucket was reassigned; its new owner reads it
        for part in self._by_segment(batch, open_bucket.read):
            self._advance(batch.bucket.number, part.messages[0].offset())
            rows = self._rows_of(part)
            if rows.num_rows:
                open_bucket.segment.add(rows)
                open_bucket.days.take(_times(rows, self._clock), _times(rows, "_arrived"))
                self._idle_buckets.interrupt([batch.bucket.number])
            self._advance(batch.bucket.number, part.next_offset)

    def _by_segment(self, batch: RawBatch, since: int) -> Iterator[RawBatch]:
        """Split the messages from an offset on at the ends of segments."""
        offsets = [message.offset() for message in batch.messages]
        start = bisect_left(offsets, since)
        while start < len(offsets):
            end = bisect_left(offsets, (offsets[start] // self._length + 1) * self._length)
            yield RawBatch(batch.bucket, batch.messages[start:end])
            start = end

    def _advance(self, number: int, offset: int) -> None:
        """Record how far a bucket is read. Past the end of its segment, write the segment and open the next one."""
        bucket = self._buckets.get(number)
        if bucket is None or offset <= bucket.read:
            return
        bucket.read = offset
        if offset >= bucket.segment.start + self._length:
            self._write([bucket])
            bucket.segment = self._segment(number, offset, bucket.epoch, bucket.compacted)
            bucket.reach(bucket.segment.start)

    def _save(self, buckets: Mapping[int, _Open], close: Callable[[], None] = lambda: None) -> None:
        self._write(buckets.values())
        for bucket in buckets.values():
            bucket.reach(bucket.read)
        close()
        self._note(buckets)
        self._commit()

    def _write(self, buckets: Iterable[_Open]) -> None:
        """Write changed days."""
        files = write_changed([bucket.unwritten for bucket in buckets], self._warehouse)
        for file in files:
            self._buckets[file.bucket].supersede(file)
        self._tally.files += len(files)
        self._complete.have(file.day for file in files)

    def _close_days(self) -> None:
        """Close the days that all buckets of the category have passed, including those of other archivers."""
        ends = self._bus.catalog.ends(self._category.name)
        notes = self._notes(len(ends))
        reached = {number: note.marks[-1].offset for number, note in notes.items()}
        moved = self._idle_buckets.follow({number: it for number, it in reached.items() if number not in self._buckets})
        idle = {number for number, it in reached.items() if number in self._idle - moved and ends[number] <= it}
        passed = day_passed(notes, len(ends), idle)
        for bucket in self._buckets.values() if passed else ():
            bucket.days.close(passed or "")

    def _mark_complete(self) -> None:
        """Mark complete days. Only commits count: a former owner cannot close a day."""
        buckets = len(self._bus.catalog.ends(self._category.name))
        if self._buckets:
            self._complete.mark(self._notes(buckets), buckets, self._options.now_ms())

    def _claim_above_others(self) -> None:
        """Reopen the buckets that another archiver has claimed since.

        Either it is their next owner, and the group will refuse this one soon. Or it claimed too late and died, and days would wait for it.
        """
        owners = Owners.of(self._warehouse, self._category.name)
        claimed = [number for number, it in self._buckets.items() if owners.newest(number) > it.epoch]
        for number in claimed:
            del self._buckets[number]
            self._assigned.append(Bucket(self._category.name, number))
        if claimed:
            self._assigned_from_s = self._options.monotonic_s() + FENCED_PAUSE_S

    def _notes(self, buckets: int) -> dict[int, BucketNote]:
        """Return the notes of all buckets, with pending notes of owned ones; without buckets whose owner is changing."""
        noted = settled_notes(self._warehouse, self._category.name)
        own = {number: bucket.days.note for number, bucket in self._buckets.items()}
        return {number: note for number, note in (noted | own).items() if number < buckets}

    def _note(self, buckets: Mapping[int, _Open]) -> None:
        for number, bucket in buckets.items():
            note = bucket.days.unnoted
            if note is not None:
                write_note(self._warehouse, bucket_note(self._category.name, number, bucket.epoch), note)
                bucket.days.noted(note)

    def _commit(self) -> None:
        """Record and commit what is in the warehouse. A repetition is cheap."""
        moved = {number: bucket for number, bucket in self._buckets.items() if bucket.is_uncommitted}
        if moved and self._reader is not None:
            self._note(moved)
            self._reader.commit(
                [Position(Bucket(self._category.name, n), it.written, it.epoch) for n, it in moved.items()]
            )
            for bucket in moved.values():
                bucket.committed = bucket.written
                bucket.days.committed()
            for bucket in moved.values():
                while bucket.superseded:
                    self._warehouse.delete(bucket.superseded[-1])
                    bucket.superseded.pop()

    def _rows_of(self, batch: RawBatch) -> pa.RecordBatch:
        """Return the rows of a batch; count and log messages without a row."""
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
            "%s: %d messages from offset %d to %d are not archived. The first is at offset %d: %s",
            batch.bucket,
            len(reasons),
            batch.messages[0].offset(),
            batch.next_offset - 1,
            batch.messages[first].offset(),
            reasons[first],
        )


def _by_segment(files: Iterable[StoredFile]) -> dict[tuple[str, int], list[StoredFile]]:
    """Return files by day and segment."""
    found: dict[tuple[str, int], list[StoredFile]] = {}
    for file in files:
        found.setdefault((file.day, file.segment), []).append(file)
    return found


def _position(committed: Position | None, note: BucketNote | None, noted: int, start: int) -> int:
    """Return the offset to resume a bucket from.

    Args:
        committed: the group's position; None if it has expired or never existed.
        note: the note of the bucket's last owner.
        noted: that owner's epoch.
        start: the first offset on the bus.
    """
    if committed is None:
        # The last owner's note describes its files, and those that it restored.
        return start if note is None else note.marks[-1].offset
    if note is not None and 0 < committed.checkpoint_id < noted:
        # A former owner committed this while the group had no members, so the group could not refuse it.
        return note.marks[-1].offset
    return committed.offset or 0


def group_of(category: str) -> str:
    """Return the consumer group that archives a category."""
    return f"archiver.{category}"


def _times(rows: pa.RecordBatch, column: str) -> list[int]:
    times: list[int] = rows.column(column).to_pylist()  # type: ignore[assignment]  # these columns have no nulls
    return times
