"""Workers in memory that crash at chosen moments: in a gap of a checkpoint, between two operations, or after an iteration.

Moments are numbered across restarts. So a second crash may happen while the next worker recovers from the first one: while it completes a
prepared checkpoint, replays a changelog, sends an outbox again, or catches up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import penstock as ps
from penstock.ops.kernel import Driver, Worker
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.shards.sink_writers import OpenSink
from penstock.ops.kernel.testing import InlineExecutor, Killed
from penstock.processors.operators import merge_of
from penstock.processors.shard import Gap, is_remote
from penstock.state import MemoryStateFolder
from penstock.state.remote import StoreRetry
from penstock.state.sinks import OwnedRows
from penstock.transport import Outgoing, Position, Reader

from .disks import Disk
from .faulty import DelayedExecutor, Faults, FaultyBus, FaultyRows, FaultyStates, FaultyWriter

FEW = 7
"""The maximum number of messages of a poll, so a checkpoint has several polls and leaves messages unread."""
FULL = 4
"""The number of calls of `send` that a client buffers before it delivers them."""


@dataclass(frozen=True)
class Crash:
    """A crash: its moment and the disk of the next worker.

    Args:
        at: the number of the moment.
        disk: what the next one finds.
    """

    at: int
    disk: Disk


class Buffered:
    """A writer with a client's buffer: messages are lost with the process until the buffer is full or flushed.

    Args:
        writer: receives delivered messages.
    """

    def __init__(self, writer: FaultyWriter) -> None:
        self._writer = writer
        self._waiting: list[tuple[str, list[Outgoing]]] = []

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Buffer messages."""
        self._waiting.append((category, list(messages)))
        if len(self._waiting) > FULL:
            self._deliver()

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, []
        for category, messages in waiting:
            self._writer.send(category, messages)

    def flush(self) -> None:
        """Deliver all messages."""
        self._deliver()
        self._writer.flush()

    def commit(self, positions: Sequence[Position]) -> None:
        """Deliver all messages, and commit the transaction."""
        self._deliver()
        self._writer.commit(positions)

    def __getattr__(self, name: str) -> Any:
        """Return further methods of the writer."""
        return getattr(self._writer, name)


class BufferedBus(FaultyBus):
    """A bus with buffered writers."""

    def writer(self, limit_s: float | None = None) -> Any:
        """Return a writer."""
        return Buffered(super().writer(limit_s))

    def transactional_writer(
        self, identity: str, member: Reader | None, timeout_s: float, writes: Collection[str]
    ) -> Any:
        """Return a transactional writer."""
        return Buffered(super().transactional_writer(identity, member, timeout_s, writes))


class CrashingDriver(Driver):
    """Runs one processor, whose workers crash.

    Args:
        processor: the processor.
        deaths: when.
    """

    def __init__(self, processor: type[ps.Processor], deaths: Sequence[Crash] = ()) -> None:
        super().__init__(processor)
        self._processor = processor
        self._deaths = {death.at: death for death in deaths}
        self._dead: Crash | None = None
        self._older = self._states[processor]
        self.died: list[str] = []
        self._moments = Faults()
        self._moments.fails = self._crash_before
        self.open_sink: OpenSink = self._open_faulty_sink
        """Opens the sink of a worker. By default, its rows are in memory, and each of its operations is a moment."""

    @property
    def moments(self) -> Sequence[str]:
        """The operations so far; each is a moment before which a worker may crash."""
        return self._moments.operations

    def remember(self) -> None:
        """Copy the current disk, like a backup."""
        self._older = deepcopy(self._states[self._processor])

    def _crash_before(self, name: str, before: int) -> Exception | None:
        if self._dead is None and before in self._deaths:
            self._dead = self._deaths[before]
            self.died.append(f"{before}: before {name}, {self._dead.disk.value}")
        return None if self._dead is None else Killed(f"died before {name}")  # a dead worker has no further effects

    def _discard_worker(self, processor: type[ps.Processor]) -> None:
        self._workers.setdefault(processor, None)  # type: ignore[arg-type]  # it may have died in its constructor
        super()._discard_worker(processor)
        if self._dead is not None and not is_remote(processor):
            if self._dead.disk is Disk.NONE:
                self._states[processor] = MemoryStateFolder(merge_of(processor()))
            elif self._dead.disk is Disk.OLDER:
                self._states[processor] = deepcopy(self._older)
        self._dead = None

    def _worker(self, processor: type[ps.Processor], at_gap: object) -> Worker:
        while processor not in self._workers:
            try:
                self._workers[processor] = self._new_worker(processor)
            except Killed:
                self._discard_worker(processor)
        return self._workers[processor]

    def _open_faulty_sink(self, sink: ps.sinks.Sink) -> OwnedRows:
        return OwnedRows(FaultyRows(self._rows[sink.name], self._moments), sink.name, StoreRetry())

    def _new_worker(self, processor: type[ps.Processor]) -> Worker:
        bus = BufferedBus(self._moments, FEW, self.bus.cluster)
        states = FaultyStates(self._states[processor], self._moments)

        def at_gap(gap: Gap) -> None:
            self._moments.at(f"gap: {gap}")

        def after_turn(_: Worker) -> None:
            self._moments.at("iteration")

        config = WorkerConfig(bus, states, "driver", open_sink=self.open_sink)
        running = self._processors[processor]
        return Worker(
            running, config, InlineExecutor(), DelayedExecutor(), clock=self.clock, at_gap=at_gap, after_turn=after_turn
        )
