"""Reads categories into the store, in a thread of its own, outside of any group.

start              --position in the file, else the oldest event that is kept--> follower
each poll          --sample, decode, columns--> pending rows
each second        --one transaction with the next offsets--> store
topic recreated    --follower from the oldest event that is kept--> the same tables
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....processors import RetryingThread, counted
from ....processors.declare import AnyCategory
from ....processors.shard import valid_deleted_key
from ....transport import (
    Bucket,
    BucketFollower,
    Bus,
    MessageColumns,
    OffsetOutOfRange,
    RawBatch,
    Topic,
    changed_topics,
    split_batch,
)
from ....transport.codecs import Codecs
from ...shell import MachineClock, SystemClock
from .flat_columns import FlatColumns
from .sampling import ALL, SampleRate, sampled
from .store import SavedPositions, ScubaStore

_LOG = logging.getLogger("penstock.scuba")
FLUSH_ROWS = 100_000
"""The number of pending rows at which they are stored. DuckDB is slow with many small appends."""
FLUSH_S = 1.0
"""The longest time for which rows are pending."""
CHECK_EVERY_S = 2.0
"""The interval of checks for lag, recreated topics and old rows."""
READ_WAIT_S = 0.2
MAX_SHOWN = 5
"""The number of rejected events with a reason in the status of a table."""
SEGMENTS_PER_AGE = 10
"""The least number of segments in the time for which rows are kept."""


@dataclass(frozen=True)
class IngestOptions:
    """What to keep.

    Args:
        keep: how long rows are kept after their arrival at the bus.
        rate: the share of events to keep.
        max_bytes: the largest size of all rows.
    """

    keep: timedelta
    rate: SampleRate = ALL
    max_bytes: int = 1 << 30

    @property
    def keep_ms(self) -> int:
        """The same time in milliseconds."""
        return int(self.keep.total_seconds() * 1000)


@dataclass
class TableProgress:
    """What the ingester knows about a table. Other threads read it.

    Args:
        rejected: the number of sampled events that are in no row, because they do not decode or do not fit their columns.
        rejections: the last of them, with the reasons.
        expired: offsets that Kafka deleted before they were read.
        lost: rows that DuckDB could not store.
        behind: offsets that were not read, as of the last check; None before it.
        arrived_ms: the arrival of the last event that was read (milliseconds since 1970, UTC); None before the first.
    """

    rejected: int = 0
    rejections: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_SHOWN))
    expired: int = 0
    lost: int = 0
    behind: int | None = None
    arrived_ms: int | None = None


@dataclass
class _Source:
    """A category, its columns, the offsets that were read, and the rows that were not stored yet."""

    category: AnyCategory
    columns: FlatColumns
    progress: TableProgress = field(default_factory=TableProgress)
    topic: Topic | None = None
    offsets: dict[int, int] = field(default_factory=dict)
    pending: list[pa.Table] = field(default_factory=list)
    is_changed: bool = False

    @property
    def pending_rows(self) -> int:
        return sum(rows.num_rows for rows in self.pending)


class Ingester:
    """Keeps the tables up to date. Start it once, and close it.

    Args:
        categories: the categories and their columns.
        bus: contains them.
        store: contains their tables. The ingester alone changes it.
        options: what to keep.
        clock: the wall clock.
    """

    def __init__(
        self,
        categories: Mapping[str, tuple[AnyCategory, FlatColumns]],
        bus: Bus,
        store: ScubaStore,
        options: IngestOptions,
        clock: MachineClock | None = None,
    ) -> None:
        self.problem = "It has not read an event yet."
        """Why the tables are not up to date; empty while they are."""
        self._sources = {name: _Source(category, columns) for name, (category, columns) in categories.items()}
        self._bus = bus
        self._store = store
        self._options = options
        self._clock = clock or SystemClock()
        self._codecs = Codecs(bus)
        self._codecs.open(category for category, _ in categories.values())
        self._follower: BucketFollower | None = None
        self._flushed_s = self._checked_s = self._segmented_s = self._clock.monotonic_s()
        self._thread = RetryingThread(
            "scuba", self._follow, log=_LOG, consequence="Tables are not up to date.", failed=self._note
        )

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading, and store what was read."""
        self._thread.close()
        self.flush()

    def progress(self, name: str) -> TableProgress:
        """Return what is known about a table. For any thread."""
        return self._sources[name].progress

    def event_time(self, name: str) -> str:
        """Return the column of a table that contains the event time in milliseconds; empty if it has none."""
        return self._sources[name].columns.event_time

    @property
    def is_current(self) -> bool:
        """Whether it reads without a problem, and knows how far it is behind."""
        is_known = all(source.progress.behind is not None for source in self._sources.values())
        return self._thread.is_alive and is_known and not self.problem

    @property
    def buckets(self) -> tuple[int, ...]:
        """The numbers of the buckets that it reads."""
        return tuple(sorted({number for source in self._sources.values() for number in source.offsets}))

    def _note(self, problem: str) -> None:
        self.problem = problem

    def _follow(self) -> None:
        """Read until a broker fails, or the ingester closes. Nothing is read twice: it continues at the offsets that were read."""
        try:
            while not self._thread.is_closed:
                self.run_once(READ_WAIT_S)
        finally:
            self._close_follower()

    def _close_follower(self) -> None:
        if self._follower is not None:
            follower, self._follower = self._follower, None
            follower.close()

    def run_once(self, wait_s: float = 0.0) -> None:
        """Read new events; store and drop rows if it is time to.

        Raises:
            BusError: a category is missing, or no broker answers.
        """
        follower = self._follower = self._follower or self._opened()
        try:
            for batch in follower.poll(wait_s):
                self._take(self._sources[batch.bucket.category], batch)
        except OffsetOutOfRange:
            self._skip_expired()
        now_s = self._clock.monotonic_s()
        pending = sum(source.pending_rows for source in self._sources.values())
        if pending >= FLUSH_ROWS or now_s - self._flushed_s >= FLUSH_S:
            self.flush()
        if now_s - self._checked_s >= CHECK_EVERY_S:
            self._checked_s = now_s
            self._check(follower.positions)
        self.problem = ""

    def _opened(self) -> BucketFollower:
        """Begin where each bucket was read to; in a new topic, at the oldest event that is kept."""
        topics = self._bus.catalog.topics(self._sources)
        oldest_ms = self._clock.now_ms() - self._options.keep_ms
        oldest = datetime.fromtimestamp(max(oldest_ms, 0) / 1000, UTC)
        for name, source in self._sources.items():
            source_topic = topics.get(name)
            firsts = self._bus.catalog.at_time(name, oldest)  # raises if it is missing
            if source.topic is None:
                saved = self._store.saved_positions(name)
                known = saved.offsets if saved and source_topic and saved.topic_id == source_topic.id else {}
            else:
                known = source.offsets if source_topic and source.topic.id == source_topic.id else {}
            source.topic = source_topic
            source.offsets = {number: max(first, known.get(number, first)) for number, first in firsts.items()}
        starts = {
            Bucket(name, number): offset
            for name, source in self._sources.items()
            for number, offset in source.offsets.items()
        }
        return BucketFollower(self._bus, starts)

    def _skip_expired(self) -> None:
        """Go on at the first event that the bus still has."""
        self._close_follower()
        for name, source in self._sources.items():
            for number, first in self._bus.catalog.describe(name).starts.items():
                expired = first - source.offsets.get(number, first)
                if expired > 0:
                    source.offsets[number] = first
                    source.progress.expired += expired
                    _LOG.warning("%s/%d: %s expired unread.", name, number, counted(expired, "offset"))

    def _take(self, source: _Source, batch: RawBatch) -> None:
        """Add the rows of a batch to the pending ones."""
        number = batch.bucket.number
        arrivals_ms = batch.arrivals_ms()
        offsets = _offsets_of(batch)
        chosen = np.flatnonzero(sampled(number, offsets, self._options.rate))
        if len(chosen):
            sample = (
                batch
                if len(chosen) == len(offsets)
                else RawBatch(batch.bucket, [batch.messages[index] for index in chosen.tolist()])
            )
            self._take_sample(source, sample)
        source.offsets[number] = batch.next_offset
        source.progress.arrived_ms = max(source.progress.arrived_ms or 0, int(arrivals_ms[-1]))
        source.is_changed = True

    def _take_sample(self, source: _Source, sample: RawBatch) -> None:
        """Add the rows of chosen messages to the pending ones."""
        codec, number = self._codecs.of(source.category), sample.bucket.number
        sample = split_batch(codec, sample)
        offsets = _offsets_of(sample)
        decoded = codec.decode(sample.messages)
        for bad in decoded.bad:
            if valid_deleted_key(bad, sample.messages[bad.at], source.category) is None:
                self._reject(source, number, int(offsets[bad.at]), bad.reason)
        at = np.asarray(decoded.at, np.int64)
        source.pending += self._tables(source, number, decoded.events, offsets[at], sample.arrivals_ms()[at])

    def _tables(
        self,
        source: _Source,
        number: int,
        records: Sequence[Any],
        offsets: npt.NDArray[np.int64],
        arrivals_ms: npt.NDArray[np.int64],
    ) -> Iterator[pa.Table]:
        """Yield the rows of records. If that fails, halve them until the records that do not fit are found."""
        if not len(records):
            return
        try:
            table = source.columns.table(number, records, offsets, arrivals_ms)
        except Exception as error:  # noqa: BLE001 - also code of users; the event is counted and shown
            if len(records) == 1:
                self._reject(source, number, int(offsets[0]), f"{type(error).__name__}: {error}")
                return
        else:
            yield table
            return
        middle = len(records) // 2
        for half in (slice(None, middle), slice(middle, None)):
            yield from self._tables(source, number, records[half], offsets[half], arrivals_ms[half])

    def _reject(self, source: _Source, number: int, offset: int, reason: str) -> None:
        source.progress.rejected += 1
        source.progress.rejections.append(f"bucket {number}, offset {offset}: {reason}")

    def flush(self) -> None:
        """Store the pending rows. Rows that DuckDB cannot store are lost, and counted."""
        self._flushed_s = self._clock.monotonic_s()
        for name, source in self._sources.items():
            if source.topic is None or not source.is_changed:
                continue
            rows = pa.concat_tables([source.columns.schema.empty_table(), *source.pending])
            source.pending, source.is_changed = [], False
            try:
                self._store.append(name, rows, SavedPositions(source.topic.id, source.offsets))
            except duckdb.Error as error:
                source.progress.lost += rows.num_rows
                _LOG.error(
                    "%d rows of %s were lost: %s. Increase --memory, or lower --max-size or --sample.",
                    rows.num_rows,
                    name,
                    error,
                )

    def _check(self, positions: Mapping[Bucket, int]) -> None:
        """Drop old rows, measure the lag, and look for recreated or resized topics."""
        now_s = self._clock.monotonic_s()
        if now_s - self._segmented_s >= self._options.keep.total_seconds() / SEGMENTS_PER_AGE:
            self._segmented_s = now_s
            self._store.end_segments()
        self._store.drop(self._clock.now_ms() - self._options.keep_ms, self._options.max_bytes)
        ends = self._bus.catalog.ends_of(positions)
        for name, source in self._sources.items():
            behind = [ends[bucket] - offset for bucket, offset in positions.items() if bucket.category == name]
            source.progress.behind = sum(max(0, each) for each in behind)
        changed = changed_topics(self._bus, {name: source.topic for name, source in self._sources.items()})
        if changed:
            _LOG.warning("%s: created again or resized. Reading begins again; rows stay.", ", ".join(changed))
            self.flush()
            self._close_follower()


def _offsets_of(batch: RawBatch) -> npt.NDArray[np.int64]:
    messages = batch.messages
    return messages.offsets if isinstance(messages, MessageColumns) else np.array(batch.offsets(), np.int64)
