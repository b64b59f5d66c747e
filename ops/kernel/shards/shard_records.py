"""Records of shards on the bus: the topics of their positions, their last worker, and whether the group has committed positions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future

import msgspec

from ....processors.shard import StatePosition
from ....transport import Bus, BusError
from ....transport.tables import ShardRecord, record_shards
from .bus_snapshot import BusSnapshot

_LOG = logging.getLogger("penstock.worker")


class ShardRecords:
    """Records the shards of one worker.

    Args:
        bus: stores the records.
        processor: the processor's name.
        worker: the worker's name.
        threads: write records beside the loop.
    """

    def __init__(self, bus: Bus, processor: str, worker: str, threads: Executor) -> None:
        self._bus = bus
        self._processor = processor
        self._worker = worker
        self._threads = threads
        self._records: dict[int, ShardRecord] = {}
        self._recording: Future[None] | None = None

    def record_opening(self, number: int, committed: StatePosition, snapshot: BusSnapshot) -> None:
        """Record the topics of the positions that this worker commits from now on."""
        before = snapshot.registration.shards.get(number)
        has_committed = bool(committed.offsets) or (before is not None and before.has_committed)
        record = self._records[number] = ShardRecord(snapshot.topic_ids, self._worker, has_committed)
        if record != before:
            record_shards(self._bus, self._processor, {number: record})

    def record_committed(self, numbers: Sequence[int]) -> None:
        """Record that the group has committed positions of open shards, once for each shard; return at once."""
        first = [number for number in numbers if number in self._records and not self._records[number].has_committed]
        if first and (self._recording is None or self._recording.done()):
            records = {number: msgspec.structs.replace(self._records[number], has_committed=True) for number in first}
            self._recording = self._threads.submit(self._write, records)

    def _write(self, records: Mapping[int, ShardRecord]) -> None:
        try:
            record_shards(self._bus, self._processor, records)
        except BusError as error:
            _LOG.info("%s The next checkpoint records the shards.", error)
        else:
            self._records.update(records)
