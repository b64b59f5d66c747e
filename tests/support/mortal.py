"""Workers in memory that die at chosen moments: in a gap of a checkpoint, between two operations of state or bus, after any turn.

Moments are numbered in the order in which they come, whatever life they belong to. So a second death may come while the next worker still makes
good the first one: while it settles what was prepared, replays a changelog, sends an outbox again, catches up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import penstock as ps
from penstock.ops.testing import Driver, InlineExecutor, Killed
from penstock.ops.worker.worker import Worker, WorkerConfig
from penstock.processors.operators import merge_of
from penstock.processors.shard.checkpoints import Gap, is_remote
from penstock.state.protocols import MemoryStateFolder
from penstock.transport.bus import Reader
from penstock.transport.messages import Outgoing, Position

from .disks import Disk
from .faulty import Faults, FaultyBus, FaultyStates, FaultyWriter, Late

FEW = 7
"""How many messages a poll gives at most, so that a checkpoint has several and leaves some."""
FULL = 4
"""How many calls of `send` a client keeps before it delivers what they gave."""


@dataclass(frozen=True)
class Death:
    """When a worker dies, and what is left of it.

    Args:
        at: the number of the moment.
        disk: what the next one finds.
    """

    at: int
    disk: Disk


class Buffered:
    """A writer as clients have them: what is sent waits in the process, and is gone with it, until there is much of it or it is flushed.

    Args:
        writer: takes it then.
    """

    def __init__(self, writer: FaultyWriter) -> None:
        self._writer = writer
        self._waiting: list[tuple[str, list[Outgoing]]] = []

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Keep messages."""
        self._waiting.append((category, list(messages)))
        if len(self._waiting) > FULL:
            self._deliver()

    def _deliver(self) -> None:
        waiting, self._waiting = self._waiting, []
        for category, messages in waiting:
            self._writer.send(category, messages)

    def flush(self) -> None:
        """Deliver all."""
        self._deliver()
        self._writer.flush()

    def commit(self, positions: Sequence[Position]) -> None:
        """Deliver all, and commit the transaction."""
        self._deliver()
        self._writer.commit(positions)

    def __getattr__(self, name: str) -> Any:
        """Return what is not about messages."""
        return getattr(self._writer, name)


class BufferedBus(FaultyBus):
    """A bus with such writers."""

    def writer(self) -> Any:
        """Return a writer."""
        return Buffered(super().writer())

    def transactional_writer(
        self, identity: str, member: Reader | None, timeout_s: float, writes: Collection[str]
    ) -> Any:
        """Return a writer of transactions."""
        return Buffered(super().transactional_writer(identity, member, timeout_s, writes))


class Mortal(Driver):
    """Runs one processor, whose workers die.

    Args:
        processor: whose.
        deaths: when.
    """

    def __init__(self, processor: type[ps.Processor], deaths: Sequence[Death] = ()) -> None:
        super().__init__(processor)
        self._processor = processor
        self._deaths = {death.at: death for death in deaths}
        self._dead: Death | None = None
        self._older = self._states[processor]
        self.died: list[str] = []
        self._moments = Faults()
        self._moments.fails = self._fate

    @property
    def moments(self) -> Sequence[str]:
        """What happened so far, each a moment before which a worker may have died."""
        return self._moments.seen

    def remember(self) -> None:
        """Copy the disk as it is now, as a backup is made."""
        self._older = deepcopy(self._states[self._processor])

    def _fate(self, name: str, before: int) -> Exception | None:
        if self._dead is None and before in self._deaths:
            self._dead = self._deaths[before]
            self.died.append(f"{before}: before {name}, {self._dead.disk.value}")
        return None if self._dead is None else Killed(f"died before {name}")  # who is dead does nothing any more

    def _discard_worker(self, processor: type[ps.Processor]) -> None:
        self._workers.setdefault(processor, None)  # type: ignore[arg-type]  # it may have died while it was made
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
                self._workers[processor] = self._born(processor)
            except Killed:
                self._discard_worker(processor)
        return self._workers[processor]

    def _born(self, processor: type[ps.Processor]) -> Worker:
        bus = BufferedBus(self._moments, FEW, self.bus.cluster)
        states = FaultyStates(self._states[processor], self._moments)

        def at_gap(gap: Gap) -> None:
            self._moments.at(f"gap: {gap}")

        def after_turn(_: Worker) -> None:
            self._moments.at("turn")

        place = WorkerConfig(bus, states, "driver")
        made = self._processors[processor]
        return Worker(made, place, InlineExecutor(), Late(), clock=self.clock, at_gap=at_gap, after_turn=after_turn)
