"""Opening of an archiver's assigned buckets.

    claim an epoch for each bucket -> commit its position under it, which only the owner may do
    -> widen files with narrower columns, record the settings -> restore each open segment, write its note

A bucket's note records its event time at the committed position and at the next one, so the owner resumes exactly, whichever position was
committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from ...processors import counted
from ...transport import Bucket, Bus, Fenced, Position, Reader
from ..errors import ArchiveGap, ArchiveRefused
from ..warehouse import (
    WRITERS,
    ArchivedFile,
    BucketNote,
    DayOf,
    Listing,
    Owners,
    ResolvedSettings,
    Warehouse,
    bucket_note,
    claim,
    claim_note,
    epochs_among,
    expect_same_topic,
    note_of,
    resolve_settings,
    widen_files,
    write_note,
)
from .archive_options import ArchiveMetrics, ArchiveOptions
from .completeness import BucketDays, CompleteDays
from .consumer_group import group_of
from .segments import LateAdditions, Segment, UnwrittenSegment

_LOG = logging.getLogger("penstock.archiver")


@dataclass
class OpenBucket:
    """An owned bucket: its epoch, open segment and event time, and the offsets up to which it is read, written and committed."""

    epoch: int
    segment: Segment
    late: LateAdditions
    days: BucketDays
    read: int
    written: int
    committed: int
    earlier: dict[tuple[str, int], list[ArchivedFile]]
    superseded: list[ArchivedFile] = field(default_factory=list)

    @property
    def unwritten(self) -> UnwrittenSegment:
        """The segment with its late additions."""
        return UnwrittenSegment(self.segment, self.late, self.days.closings)

    @property
    def is_uncommitted(self) -> bool:
        """Whether events were written or a day was closed since the last commit."""
        return self.written > self.committed or self.days.has_uncommitted_closings

    def supersede(self, file: ArchivedFile) -> None:
        """Record that a file replaces the files of earlier owners."""
        self.superseded += self.earlier.pop((file.day, file.segment), ())

    def reach(self, offset: int) -> None:
        """Record that all events before an offset are in the warehouse."""
        self.written = offset
        self.days.reach(offset)


class _Claim(NamedTuple):
    """A claimed bucket: the epoch of its new owner, the last owner's note, and the position to resume from."""

    bucket: Bucket
    epoch: int
    note: BucketNote | None
    position: int


class BucketOpener:
    """Opens the assigned buckets of one category.

    Args:
        bus: the bus.
        category: the category's name.
        warehouse: the destination.
        options: the options.
        metrics: the counters to update.
        schema: the columns of its files.
    """

    def __init__(
        self,
        bus: Bus,
        category: str,
        warehouse: Warehouse,
        options: ArchiveOptions,
        *,
        metrics: ArchiveMetrics,
        schema: pa.Schema,
    ) -> None:
        self._bus = bus
        self._category = category
        self._warehouse = warehouse
        self._options = options
        self._metrics = metrics
        self._schema = schema
        self._settings: ResolvedSettings | None = None
        self.clock = "_arrived" if options.by is DayOf.ARRIVAL else "_event_time"
        """The column that assigns events to days."""

    def open(
        self, reader: Reader, buckets: Sequence[Bucket], owned: int, complete: CompleteDays
    ) -> dict[int, OpenBucket]:
        """Open buckets at their positions.

        Args:
            reader: the member that owns them.
            buckets: the buckets to open.
            owned: the number of all owned buckets.
            complete: lists the files of the category.

        Raises:
            ArchiveRefused: the settings, columns or topic differ from the archived ones.
            ArchiveGap: events that were not archived have expired on the bus.
            Fenced: another archiver owns a bucket.
        """
        name = self._category
        state = self._bus.catalog.describe(name)
        committed = {position.bucket: position for position in self._bus.catalog.positions(group_of(name), name)}
        listing = complete.list_days()
        settings = self._resolve_settings(listing, owned, len(state.ends), state.topic_id)
        owners = Owners.of(self._warehouse, name)

        def claim_bucket(bucket: Bucket) -> _Claim:
            return self._claim(bucket, owners, listing, committed.get(bucket), state.starts[bucket.number])

        with ThreadPoolExecutor(WRITERS) as pool:
            claims = list(pool.map(claim_bucket, buckets))
        self._expect_owned(reader, claims)
        listing = self._record_settings(settings, claims, listing, complete)
        with ThreadPoolExecutor(WRITERS) as pool:
            opened = list(pool.map(lambda claimed: self._open(claimed, owners, listing, state.starts), claims))
        reader.start([Position(claimed.bucket, bucket.read) for claimed, bucket in zip(claims, opened, strict=True)])
        return {claimed.bucket.number: bucket for claimed, bucket in zip(claims, opened, strict=True)}

    def expect_same_topic(self) -> None:
        """Check that the category's topic was not replaced by another.

        Raises:
            ArchiveRefused: it was.
        """
        topic = self._bus.catalog.topics([self._category]).get(self._category)
        if self._settings is not None and topic is not None:
            expect_same_topic(self._category, self._settings.settings.topic_id, topic.id)

    def _resolve_settings(self, listing: Listing, owned: int, buckets: int, topic_id: str) -> ResolvedSettings:
        settings = self._settings or resolve_settings(
            self._warehouse,
            self._category,
            listing.files,
            by=self._options.by,
            segment_events=self._options.segment_events,
            schema=self._schema,
            topic_id=topic_id,
        )
        expect_same_topic(self._category, settings.settings.topic_id, topic_id)
        if settings.widens and owned < buckets:
            raise ArchiveRefused(
                f"{self._category}: columns of files in {self._warehouse.location} must become wider, but other archivers own "
                f"{buckets - owned} of its {counted(buckets, 'bucket')}. Nothing was changed. Stop all archivers of {self._category} and start one. "
                "Start the others when it has logged that the files are rewritten."
            )
        return settings

    def _record_settings(
        self, settings: ResolvedSettings, claims: Sequence[_Claim], listing: Listing, complete: CompleteDays
    ) -> Listing:
        """Widen the files if needed, and record the settings. Return a current listing."""
        if settings.widens:
            epochs = {claimed.bucket.number: claimed.epoch for claimed in claims}
            widen_files(self._warehouse, self._category, listing.files, settings.settings, epochs)
            listing = complete.list_days()
        if not settings.is_recorded:
            settings.record(self._warehouse, self._category)
        self._settings = replace(settings, is_recorded=True, widens=False)
        return listing

    def _claim(
        self, bucket: Bucket, owners: Owners, listing: Listing, committed: Position | None, start: int
    ) -> _Claim:
        """Claim a bucket, then determine its position."""
        number = bucket.number
        files = chain(listing.files, listing.superseded)
        above = max((file.epoch for file in files if file.bucket == number), default=0)
        epoch = claim(self._warehouse, owners, number, above)
        noted = owners.noted(number)
        note = note_of(self._warehouse, self._category, number, noted) if noted else None
        return _Claim(bucket, epoch, note, _position(committed, note, noted, start))

    def _expect_owned(self, reader: Reader, claims: Sequence[_Claim]) -> None:
        """Commit under the new epochs. The group accepts this only from the owner of the buckets."""
        try:
            reader.commit([Position(claimed.bucket, claimed.position, claimed.epoch) for claimed in claims])
        except Fenced:
            for claimed in claims:
                self._warehouse.delete(claim_note(self._category, claimed.bucket.number, claimed.epoch))
            raise

    def _open(self, claimed: _Claim, owners: Owners, listing: Listing, starts: Mapping[int, int]) -> OpenBucket:
        """Restore a bucket's open segment, and write its note under the new epoch."""
        name, number, epoch = self._category, claimed.bucket.number, claimed.epoch
        offset = self._past_gap(claimed.bucket, claimed.position, starts[number])
        files = [file for file in listing.files if file.bucket == number]
        late = {day: epochs_among(names, "late").get(number) for day, names in listing.notes.items()}
        days = BucketDays(self._options.patience, claimed.note, offset)
        segment = self._segment(number, offset, epoch, files)
        segment.restore(files, self._warehouse, before=offset)
        opened = OpenBucket(
            epoch,
            segment,
            LateAdditions(
                self._warehouse, name, number, epoch, {day: epochs[-1] for day, epochs in late.items() if epochs}
            ),
            days,
            read=offset,
            written=offset,
            committed=offset,
            earlier=_by_segment(file for file in files if file.segment >= segment.start and file.epoch < epoch),
        )
        note = days.note
        write_note(self._warehouse, bucket_note(name, number, epoch), note)
        days.record_stored(note)
        for old in owners.before(number, epoch):
            self._warehouse.delete(old)
        return opened

    def _segment(self, bucket: int, offset: int, epoch: int, files: Iterable[ArchivedFile]) -> Segment:
        return Segment(
            self._category,
            bucket,
            offset - offset % self._options.segment_events,
            epoch,
            self._schema,
            clock=self.clock,
            compacted=[file for file in files if file.is_compacted],
        )

    def _past_gap(self, bucket: Bucket, position: int, start: int) -> int:
        if position >= start:
            return position
        if not self._options.accept_gaps:
            raise ArchiveGap(
                f"{bucket} is archived up to offset {position}, but Kafka keeps it only from offset {start} on: {counted(start - position, 'offset')} "
                "expired before any warehouse contained the events. Nothing was changed. To continue with the remaining events, start the archiver with "
                "`accept_gaps=True`."
            )
        _LOG.warning("%s: offsets %d to %d have expired in Kafka and were not archived", bucket, position, start - 1)
        self._metrics.expired += start - position
        return start


def _by_segment(files: Iterable[ArchivedFile]) -> dict[tuple[str, int], list[ArchivedFile]]:
    """Return files by day and segment."""
    by_segment: dict[tuple[str, int], list[ArchivedFile]] = {}
    for file in files:
        by_segment.setdefault((file.day, file.segment), []).append(file)
    return by_segment


def _position(committed: Position | None, note: BucketNote | None, noted: int, start: int) -> int:
    """Return the offset to resume a bucket from.

    Args:
        committed: the group's position; None if it has expired or never existed.
        note: the note of the bucket's last owner.
        noted: that owner's epoch.
        start: the first offset on the bus.
    """
    if committed is None:
        # The last owner's note describes its files, the restored ones included.
        return start if note is None else note.marks[-1].offset
    if note is not None and 0 < committed.checkpoint_id < noted:
        # A former owner committed this while the group had no members, so the group could not refuse it.
        return note.marks[-1].offset
    return committed.offset or 0
