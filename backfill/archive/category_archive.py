"""The archive of one category.

    open assigned buckets: see `bucket_opener`
    poll -> decode -> columns -> the open segment of the bucket             for each batch
    write the segment's files, record progress, commit the position         when the segment is full, and on save
    close days that all buckets have passed, mark them complete             on save

Files are written first. A crash before the commit leaves later events in the files of the open segment. The next owner restores these files
up to the position and reads the rest again, so every event is archived once.

An archiver may be paused, lose its membership, and end any of these steps later. Its files and notes have its own epoch, which is lower
than its successor's. If both have written, the successor's files count. Files that only the paused one has written are beyond the
committed position.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa

from ...processors import WaitLog, counted
from ...processors.declare import AnyCategory
from ...processors.time import Times
from ...transport import (
    Bucket,
    Bus,
    BusError,
    BusRefuses,
    BusUnreachable,
    CommitUnconfirmed,
    Fenced,
    MembershipLost,
    Position,
    RawBatch,
    Reader,
)
from ...transport.codecs import Codecs
from ..errors import WarehouseFileMissing
from ..warehouse import BucketNote, Owners, Warehouse, bucket_note, final_notes, write_note
from .archive_options import ArchiveMetrics, ArchiveOptions
from .archived_rows import ArchivedRows, ExcludedEvent
from .bucket_opener import BucketOpener, OpenBucket
from .completeness import CompleteDays, day_passed
from .consumer_group import group_of
from .idle_buckets import IdleBuckets
from .segments import write_changed

_LOG = logging.getLogger("penstock.archiver")
FENCED_PAUSE_S = 5.0
"""The pause before a fenced archiver claims its buckets again. By then, the group has reported which buckets it still owns."""


class CategoryArchive:
    """Archives the assigned buckets of one category. An `OwnershipListener`.

    Args:
        bus: the bus.
        category: the declaration.
        warehouse: the destination.
        options: the options.
        metrics: the counters to update.
    """

    def __init__(
        self, bus: Bus, category: AnyCategory, warehouse: Warehouse, options: ArchiveOptions, metrics: ArchiveMetrics
    ) -> None:
        self._bus = bus
        self._category = category
        self._warehouse = warehouse
        self._options = options
        self._length = options.segment_events
        self._metrics = metrics
        self._rows = ArchivedRows(category, Codecs(bus).of(category))
        self._opener = BucketOpener(bus, category.name, warehouse, options, metrics=metrics, schema=self._rows.schema)
        self._complete = CompleteDays(warehouse, category.name)
        self._idle_buckets = IdleBuckets(bus, category.name, options.patience.idle_after, options.monotonic_s)
        self._idle = frozenset[int]()
        self._buckets: dict[int, OpenBucket] = {}
        self._owned: set[Bucket] = set()
        self._assigned: list[Bucket] = []
        self._assigned_from_s = 0.0
        self._wait = WaitLog(options.monotonic_s)
        self._reader: Reader | None = None

    def run_once(self, wait_s: float) -> bool:
        """Poll once, process the events, and write full segments. Return whether events arrived."""
        received = False
        with self._surviving_outages():
            received = self._read(self._joined(), wait_s)
            if received:
                self._note_answer()
            self._commit()
        with self._surviving_outages():
            if self._assigned and self._options.monotonic_s() >= self._assigned_from_s:
                self._open_assigned()
        with self._surviving_outages():
            if self._idle_buckets.refresh_if_due(self._read_offsets):
                self._note_answer()
        return received

    def refresh_idle(self) -> bool:
        """Refresh the idle buckets for the next `save`. The bus is asked now, since writing files can take long.

        Returns:
            whether the bus answered.
        """
        self._idle, answered = frozenset(), False
        with self._surviving_outages():
            self._idle_buckets.refresh(self._read_offsets)
            self._idle, answered = self._idle_buckets.idle(), True
            self._note_answer()
        return answered

    @property
    def _read_offsets(self) -> dict[int, int]:
        return {number: bucket.read for number, bucket in self._buckets.items()}

    def save(self) -> bool:
        """Write all events, commit the positions, and mark complete days. Return whether everything is committed.

        Raises:
            ArchiveRefused: the topic was replaced by another; its events were not written.
        """
        saved = False
        with self._surviving_outages():
            self._opener.expect_same_topic()
            self._save(self._buckets, self._close_days)
            self._mark_complete()
            self._claim_above_others()
            self._note_answer()
            saved = True
        return saved and not self._assigned and not any(bucket.is_uncommitted for bucket in self._buckets.values())

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
            if self._wait.is_due():
                waited = f" {self._wait}" if str(self._wait) else ""
                _LOG.warning(
                    "%s The archiver of %s waits for Kafka%s, and keeps retrying.", error, self._category.name, waited
                )
        except (Fenced, WarehouseFileMissing) as error:  # a later owner deletes the files that it has rewritten
            _LOG.warning("%s", error)
            self._start_over()
        except MembershipLost as error:
            _LOG.warning("%s", error)
            with suppress(BusError):  # the membership has ended; another reader joins in the next round
                self.abandon()

    def _note_answer(self) -> None:
        """Record that Kafka has answered. A poll without messages is no answer: the client returns it during an outage, too."""
        waited_s = self._wait.end()
        if waited_s is not None:
            _LOG.warning(
                "The archiver of %s has recovered: Kafka answers, after %.0f s.", self._category.name, waited_s
            )

    def _start_over(self) -> None:
        """Drop uncommitted work, reopen the buckets that are still owned, and remove superseded files."""
        self._buckets.clear()
        self._assigned = sorted(self._owned)
        self._assigned_from_s = self._options.monotonic_s() + FENCED_PAUSE_S
        self._complete.list_days()

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
        """Record assigned buckets. The next turn opens them."""
        self._owned.update(buckets)
        self._assigned.extend(buckets)

    def _open_assigned(self) -> None:
        """Open the assigned buckets at their positions."""
        buckets = list(self._assigned)
        opened = self._opener.open(self._joined(), buckets, len(self._owned), self._complete)
        self._note_answer()
        self._buckets |= opened
        self._idle_buckets.interrupt(opened)
        self._assigned = [bucket for bucket in self._assigned if bucket not in buckets]

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

    def _receive(self, batch: RawBatch) -> None:
        open_bucket = self._buckets.get(batch.bucket.number)
        if open_bucket is None:
            return  # polled before the bucket was reassigned; its new owner reads it
        for part in self._by_segment(batch, open_bucket.read):
            self._advance(batch.bucket.number, part.messages[0].offset())
            rows = self._rows_of(part)
            if rows.num_rows:
                open_bucket.segment.add(rows)
                open_bucket.days.observe(_times(rows, self._opener.clock), _times(rows, "_arrived"))
                self._idle_buckets.interrupt([batch.bucket.number])
            self._advance(batch.bucket.number, part.next_offset)

    def _by_segment(self, batch: RawBatch, since: int) -> Iterator[RawBatch]:
        """Split the messages from an offset on at the ends of segments."""
        offsets = batch.offsets()
        start = bisect_left(offsets, since)
        while start < len(offsets):
            end = bisect_left(offsets, (offsets[start] // self._length + 1) * self._length)
            yield batch.part(start, end)
            start = end

    def _advance(self, number: int, offset: int) -> None:
        """Record how far a bucket is read. Past the end of its segment, write the segment and open the next one."""
        bucket = self._buckets.get(number)
        if bucket is None or offset <= bucket.read:
            return
        bucket.read = offset
        if offset >= bucket.segment.start + self._length:
            self._write([bucket])
            bucket.segment = bucket.segment.starting_at(offset - offset % self._length)
            bucket.reach(bucket.segment.start)

    def _save(self, buckets: Mapping[int, OpenBucket], close: Callable[[], None] = lambda: None) -> None:
        self._write(buckets.values())
        for bucket in buckets.values():
            bucket.reach(bucket.read)
        close()
        self._write_notes(buckets)
        self._commit()

    def _write(self, buckets: Iterable[OpenBucket]) -> None:
        """Write changed days."""
        files = write_changed([bucket.unwritten for bucket in buckets], self._warehouse)
        for file in files:
            self._buckets[file.bucket].supersede(file)
        self._metrics.files += len(files)
        self._complete.add(file.day for file in files)

    def _close_days(self) -> None:
        """Close the days that all buckets of the category have passed, including those of other archivers."""
        notes = self._notes()
        # Asked for after the notes were read: a bucket is idle only as of all that the others have reached.
        ends = self._bus.catalog.ends(self._category.name)
        notes = {number: note for number, note in notes.items() if number < len(ends)}
        reached = {number: note.marks[-1].offset for number, note in notes.items()}
        others = {number: offset for number, offset in reached.items() if number not in self._buckets}
        advanced = self._idle_buckets.follow(others)
        still_idle = self._idle - advanced
        idle = {number for number, offset in reached.items() if number in still_idle and ends[number] <= offset}
        day = day_passed(notes, len(ends), idle)
        if day is not None:
            for bucket in self._buckets.values():
                bucket.days.close(day)

    def _mark_complete(self) -> None:
        """Mark complete days. Only committed closings count: a former owner cannot close a day."""
        buckets = len(self._bus.catalog.ends(self._category.name))
        if self._buckets:
            self._complete.mark(self._notes(), buckets, self._options.now_ms())

    def _claim_above_others(self) -> None:
        """Reopen the buckets that another archiver has claimed since.

        Either it is their next owner, and the group will soon refuse this one. Or it claimed them too late and died, and days would never
        become complete.
        """
        owners = Owners.of(self._warehouse, self._category.name)
        claimed = [number for number, bucket in self._buckets.items() if owners.newest(number) > bucket.epoch]
        for number in claimed:
            del self._buckets[number]
            self._assigned.append(Bucket(self._category.name, number))
        if claimed:
            self._assigned_from_s = self._options.monotonic_s() + FENCED_PAUSE_S

    def _notes(self) -> dict[int, BucketNote]:
        """Return the notes of all buckets, with pending notes of owned ones; without buckets whose owner is changing."""
        own = {number: bucket.days.note for number, bucket in self._buckets.items()}
        return dict(final_notes(self._warehouse, self._category.name)) | own

    def _write_notes(self, buckets: Mapping[int, OpenBucket]) -> None:
        for number, bucket in buckets.items():
            note = bucket.days.unstored_note
            if note is not None:
                write_note(self._warehouse, bucket_note(self._category.name, number, bucket.epoch), note)
                bucket.days.record_stored(note)

    def _commit(self) -> None:
        """Write the notes of uncommitted buckets, and commit their positions. A repetition is cheap."""
        uncommitted = {number: bucket for number, bucket in self._buckets.items() if bucket.is_uncommitted}
        if uncommitted and self._reader is not None:
            self._write_notes(uncommitted)
            name = self._category.name
            self._reader.commit(
                [Position(Bucket(name, number), bucket.written, bucket.epoch) for number, bucket in uncommitted.items()]
            )
            self._note_answer()
            for bucket in uncommitted.values():
                bucket.committed = bucket.written
                bucket.days.record_commit()
            for bucket in uncommitted.values():
                while bucket.superseded:
                    self._warehouse.delete(bucket.superseded[-1])
                    bucket.superseded.pop()

    def _rows_of(self, batch: RawBatch) -> pa.RecordBatch:
        """Return the rows of a batch; count and log messages without a row."""
        rows = self._rows.of(batch)
        self._log_excluded(batch, rows.excluded)
        self._metrics.events += rows.batch.num_rows
        return rows.batch

    def _log_excluded(self, batch: RawBatch, excluded: Sequence[ExcludedEvent]) -> None:
        if not excluded:
            return
        self._metrics.undecodable += len(excluded)
        _LOG.warning(
            "%s: did not archive %s from offset %d to %d. The first is at offset %d: %s",
            batch.bucket,
            counted(len(excluded), "message"),
            batch.messages[0].offset(),
            batch.next_offset - 1,
            *excluded[0],
        )


def _times(rows: pa.RecordBatch, column: str) -> Times:
    times: Times = rows.column(column).to_numpy()
    return times
