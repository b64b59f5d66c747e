"""Reads the results of processors into memory, and follows them.

start             --read to the end--> tables
later             --new messages--> tables
topic recreated   --read again--> new tables, which replace the old ones when they are complete
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from threading import Lock
from typing import Any

from ....processors import PenstockError, RetryingThread
from ....processors.declare import Undecodable
from ....processors.shard import valid_deleted_key
from ....transport import Bucket, BucketFollower, Bus, RawBatch, changed_topics, split_batch
from ....transport.codecs import Codecs
from ...shell import SystemClock
from .result_table import Result, ResultTable
from .served import ServedProcessor

_LOG = logging.getLogger("penstock.serve")
READ_WAIT_S = 0.2
CHECK_EVERY_S = 5.0
"""The interval of checks for recreated topics and for expired results."""
_CHUNK = 1_000
"""The number of results that are stored while queries wait."""


class NotReady(PenstockError):
    """The server has not read all earlier results yet: ask again."""


class ResultFollower:
    """Keeps the results of processors in memory, in a thread of its own. Start it once; close it.

    Args:
        served: the processors.
        bus: contains the categories that they write.
        keep: how long results without a change are kept, after the arrival of their last change.
        clock: the wall clock.
    """

    def __init__(
        self, served: Sequence[ServedProcessor], bus: Bus, keep: timedelta, clock: SystemClock | None = None
    ) -> None:
        self.served = {each.name: each for each in served}
        self.lock = Lock()
        """Held by every reader of a table."""
        self.problem = "It has not read the earlier results yet."
        """Why the tables are not up to date; empty while they are."""
        self._bus = bus
        self._keep_ms = int(keep.total_seconds() * 1000)
        self._clock = clock or SystemClock()
        self._reading: _Reading | None = None
        outdated = "Results are not up to date; answers show their lag."
        self._thread = RetryingThread("results", self._follow, log=_LOG, consequence=outdated, failed=self._note)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._thread.close()

    def table(self, name: str) -> ResultTable:
        """Return the results of a processor. Hold `lock` while you read it.

        Raises:
            NotReady: the server has not read all earlier results yet.
        """
        return self._expect_reading().tables[name]

    def positions(self, name: str) -> Mapping[Bucket, int]:
        """Return the next unread offsets of the category with the results of a processor.

        Raises:
            NotReady: as for `table`.
        """
        category = self.served[name].followed.name
        return {
            bucket: offset for bucket, offset in self._expect_reading().positions.items() if bucket.category == category
        }

    def skipped(self, name: str) -> int:
        """Return the number of messages of a processor that are in no answer, because they do not decode or a processor rejects them."""
        return self._expect_reading().skipped[name]

    def _expect_reading(self) -> _Reading:
        reading = self._reading
        if reading is None:
            raise NotReady(f"This server cannot answer yet. {self.problem} Ask again in a second.")
        return reading

    def _note(self, problem: str) -> None:
        self.problem = problem

    def _follow(self) -> None:
        """Read all results, then new ones, until the topics change, a broker fails, or the server closes."""
        reading = _Reading(self.served, self._bus, self._clock.now_ms() - self._keep_ms, self.lock)
        with closing(reading.follower):
            checked_s = time.monotonic()
            while not self._thread.is_closed:
                reading.read()
                if not reading.follower.is_complete:
                    continue
                self._reading, self.problem = reading, ""
                if time.monotonic() - checked_s > CHECK_EVERY_S:
                    checked_s = time.monotonic()
                    reading.drop_unchanged(self._clock.now_ms() - self._keep_ms)
                    if changed_topics(self._bus, reading.topics):
                        _LOG.warning("A category of results was created again or resized. It is read from its start.")
                        return


class _Reading:
    """One pass through the categories, from their kept start on. For the follower's thread, except for finished attributes."""

    def __init__(self, served: Mapping[str, ServedProcessor], bus: Bus, since_ms: int, lock: Lock) -> None:
        self.tables = {name: ResultTable() for name in served}
        self.skipped = dict.fromkeys(served, 0)
        self._served = served
        self._bus = bus
        self._lock = lock
        self._codecs = Codecs(bus)
        self.topics = bus.catalog.topics({each.followed.name for each in served.values()})
        self.follower = BucketFollower(bus, self._starts(since_ms))
        self.positions: Mapping[Bucket, int] = dict(self.follower.positions)
        """The next offsets whose results are not stored."""

    def _starts(self, since_ms: int) -> dict[Bucket, int]:
        starts: dict[Bucket, int] = {}
        for each in self._served.values():
            name = each.followed.name
            found = self._bus.catalog.describe(name).starts
            if each.is_windowed and since_ms > 0:
                found = self._bus.catalog.at_time(name, datetime.fromtimestamp(since_ms / 1000, UTC))
            for number, offset in found.items():
                bucket = Bucket(name, number)
                starts[bucket] = min(offset, starts.get(bucket, offset))
        return starts

    def drop_unchanged(self, since_ms: int) -> None:
        """Drop windows without a change since a time."""
        for name, table in self.tables.items():
            if self._served[name].is_windowed:
                with self._lock:
                    table.drop_unchanged(since_ms)

    def read(self) -> None:
        """Read new messages; wait shortly if there are none."""
        for batch in self.follower.poll(READ_WAIT_S):
            for each in self._served.values():
                if each.followed.name == batch.bucket.category:
                    self._store(each, batch)
        self.positions = dict(self.follower.positions)  # another one each time, for other threads

    def _store(self, served: ServedProcessor, batch: RawBatch) -> None:
        codec = self._codecs.of(served.followed)
        batch = split_batch(codec, batch)
        decoded = codec.decode(batch.messages)
        arrivals_ms = batch.arrivals_ms().tolist()
        results = zip(decoded.at, self._results(served, decoded.events), strict=True)
        deletions = ((bad.at, self._deleted(served, batch, bad)) for bad in decoded.bad)
        changes = sorted((*results, *deletions), key=itemgetter(0))
        table = self.tables[served.name]
        for begin in range(0, len(changes), _CHUNK):
            with self._lock:
                for at, change in changes[begin : begin + _CHUNK]:
                    if isinstance(change, Result):
                        table.put(change, arrivals_ms[at])
                    elif change is not None:
                        table.drop_key(change)

    def _results(self, served: ServedProcessor, records: Sequence[Any]) -> Sequence[Result | None]:
        try:
            return served.results(records)
        except Exception as error:  # noqa: BLE001 - code of users; the record is counted, and named in the log
            if len(records) == 1:
                self.skipped[served.name] += 1
                _LOG.warning("%s: a result is in no answer: %s: %s", served.name, type(error).__name__, error)
                return [None]
        return [result for record in records for result in self._results(served, [record])]

    def _deleted(self, served: ServedProcessor, batch: RawBatch, bad: Undecodable) -> str | None:
        """Return the key that a message deletes; None, and count it, if it deletes none."""
        key = valid_deleted_key(bad, batch.messages[bad.at], served.followed)
        if key is None:
            self.skipped[served.name] += 1
            offset = batch.offsets()[bad.at]
            _LOG.warning(
                "%s: offset %d is in no answer, because it does not decode: %s", batch.bucket, offset, bad.reason
            )
        return key
