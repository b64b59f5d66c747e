"""Opening of shards in threads, beside the loop. An unreachable bus or store is retried for as long as the shard is wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from threading import Event
from typing import NamedTuple

from ....processors import LogRateLimiter, PenstockError, backoff
from ....processors.declare import Processor, SinkUnreachable
from ....state import ShardIdentity, StateFolder
from ....state.remote import StoreUnreachable
from ....transport import Bus, BusUnreachable, CommitUnconfirmed
from ..telemetry import Waits
from .backup_protocol import Backups
from .bus_snapshot import BusSnapshot, read_bus_snapshot
from .open_shard import close_shard
from .shard_opener import LoadedShard, ShardOpener
from .shard_records import ShardRecords
from .sink_writers import SinkWriters

_LOG = logging.getLogger("penstock.worker")
RETRY_S = 0.5
"""The pause before an unreachable bus is asked again."""


class _Opening(NamedTuple):
    """A shard that is being opened.

    Args:
        shard: the open shard.
        canceled: set when the shard is not wanted any more.
    """

    shard: Future[LoadedShard]
    canceled: Event


class ShardLoader:
    """Opens the shards of one worker in threads.

    Args:
        processor: the processor of the shards.
        bus: contains its inputs.
        states: contains its states.
        backups: restore newer states.
        threads: open the shards.
        worker: the worker's name, the same after a restart.
        from_earliest: resume at the first retained event if earlier ones have expired.
        now_ms: returns the time of day (milliseconds since 1970, UTC).
        sinks: claimed for each shard.
        waits: note when the bus does not answer for a shard.
    """

    def __init__(
        self,
        processor: Processor,
        bus: Bus,
        states: StateFolder,
        backups: Backups,
        threads: Executor,
        *,
        worker: str,
        from_earliest: bool,
        now_ms: Callable[[], int],
        sinks: SinkWriters,
        waits: Waits,
    ) -> None:
        self._processor = type(processor)
        self._waits = waits
        self._sinks = sinks
        self._bus = bus
        self._threads = threads
        self._records = ShardRecords(bus, processor.name, worker, threads)
        self._opener = ShardOpener(
            processor,
            bus,
            states,
            backups,
            self._records,
            worker=worker,
            from_earliest=from_earliest,
            now_ms=now_ms,
            read_snapshot=self._read_snapshot,
            sinks=sinks,
        )
        self._openings: dict[int, _Opening] = {}
        self._closed = Event()
        self._log_limiter = LogRateLimiter()

    def begin(self, numbers: Sequence[int]) -> None:
        """Begin to open shards; return at once."""
        snapshot = self._threads.submit(self._read_snapshot)
        for number in numbers:
            canceled = Event()
            self._openings[number] = _Opening(self._threads.submit(self._open, number, snapshot, canceled), canceled)

    def cancel(self, numbers: Sequence[int]) -> None:
        """Cancel the opening of shards that belong to another worker now, and end their waits. A shard that is open by then is closed."""
        self._sinks.release(numbers)
        for number in numbers:
            self._waits.end(_bus_for(number))
        self._cancel(numbers)

    def _cancel(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            opening = self._openings.pop(number, None)
            if opening is not None:
                opening.canceled.set()
                if not opening.shard.cancel():
                    opening.shard.add_done_callback(_discard)

    def opened(self) -> Iterator[LoadedShard]:
        """Yield each opened shard once.

        Raises:
            PenstockError: a shard cannot be opened.
        """
        for number in [number for number, opening in self._openings.items() if opening.shard.done()]:
            try:
                loaded = self._openings.pop(number).shard.result()
            except BusUnreachable:
                self._waits.begin(_bus_for(number))
                raise
            self._waits.end(_bus_for(number))
            yield loaded

    def cancel_all(self) -> None:
        """Cancel the opening of all shards, which may be opened again. A wait for the bus goes on."""
        self._cancel(list(self._openings))

    def close(self) -> None:
        """Cancel everything; open no shard any more."""
        self._closed.set()
        self.cancel_all()

    def identity(self, number: int) -> ShardIdentity | None:
        """Return the identity of a shard's state; None for a stateless processor."""
        return self._opener.identity(number)

    def record_committed(self, numbers: Sequence[int]) -> None:
        """Record on the bus that the group has committed positions of open shards; return at once."""
        self._records.record_committed(numbers)

    def _read_snapshot(self) -> BusSnapshot:
        """Read a snapshot of the bus. An unreachable broker stops no worker."""
        while True:
            try:
                return read_bus_snapshot(self._processor, self._bus)
            except (BusUnreachable, CommitUnconfirmed) as error:
                if self._closed.wait(RETRY_S):
                    raise
                _LOG.info("%s", error)

    def _open(self, number: int, future: Future[BusSnapshot], canceled: Event) -> LoadedShard:
        """Open a shard. An unreachable store stops no worker."""
        snapshot, waits = future.result(), backoff()
        while True:
            try:
                return self._opener.open(number, snapshot, canceled)
            except (StoreUnreachable, SinkUnreachable) as error:
                if canceled.wait(next(waits)):
                    raise
                self._log_outage(number, error)
                snapshot = self._read_snapshot()  # by the time the store answers, events may have expired on the bus

    def _log_outage(self, number: int, error: PenstockError) -> None:
        if self._log_limiter.is_due():
            _LOG.warning(
                "%s pauses its buckets (%d, and maybe others) until the store of its state or its sink answers. It retries continually. Saved work is safe, "
                "and unsaved events are read again, so nothing is lost. %s",
                self._processor.name,
                number,
                error,
            )


def _bus_for(number: int) -> str:
    """Return the name of the wait for the bus to open a shard: its changelog may be away while everything else answers."""
    return f"Kafka to open bucket {number}"


def _discard(opening: Future[LoadedShard]) -> None:
    error = opening.exception()
    if error is None:
        close_shard(opening.result().shard)
    else:
        _LOG.info("A bucket that moved to another worker was not opened: %s", error)
