"""Workers of one machine on a memory bus, with local states and backups, for tests of maintenance operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.ops.change.maintenance.processor_positions import LocalStates
from penstock.ops.change.maintenance.state_installation import store_backup
from penstock.ops.kernel import RunLimits, Worker, ends_of, prepare
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.loop.offset_limits import NO_LIMITS
from penstock.ops.kernel.shards.backup_protocol import Backups, NoBackups
from penstock.ops.kernel.testing import InlineExecutor
from penstock.ops.shell import SteeredClock
from penstock.processors.declare import plan_of
from penstock.state.files import LocalFileStore
from penstock.state.local import RocksStateFolder, current, opened_read_only
from penstock.transport import Bucket, CategorySpec, outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

YEAR_2100_MS = 4_102_444_800_000


@dataclass
class Machine:
    """A machine that runs processors.

    Args:
        folder: the machine's disk.
        bus: the bus, which machines may share.
        place: the backup store.
    """

    folder: Path
    bus: MemoryBus
    place: LocalFileStore
    clock: SteeredClock = field(default_factory=lambda: SteeredClock(YEAR_2100_MS))

    @property
    def states(self) -> Path:
        """The state folder."""
        return self.folder / "state"

    @contextmanager
    def working(
        self,
        processor: type[ps.Processor],
        backups: Backups | None = None,
        *,
        from_earliest: bool = False,
        limits: RunLimits = NO_LIMITS,
    ) -> Iterator[Worker]:
        """Run a worker in the block, and stop it cleanly."""
        config = WorkerConfig(self.bus, RocksStateFolder(self.states), str(self.folder), backups or NoBackups())
        worker = Worker(
            prepare(processor, self.bus),
            config,
            InlineExecutor(),
            InlineExecutor(),
            clock=self.clock,
            from_earliest=from_earliest,
            limits=limits,
        )
        try:
            yield worker
        finally:
            worker.stop()
            worker.run()

    def run(
        self,
        processor: type[ps.Processor],
        backups: Backups | None = None,
        *,
        from_earliest: bool = False,
        limits: RunLimits = NO_LIMITS,
    ) -> None:
        """Read to the end or to limits, save, and stop."""
        targets = ends_of(plan_of(processor).inputs, self.bus) | dict(limits.offsets)
        with self.working(processor, backups, from_earliest=from_earliest, limits=limits) as worker:
            worker.run_once()
            while not worker.has_reached(targets):
                worker.run_once()

    def back_up(self, processor: type[ps.Processor]) -> None:
        """Back up every state of this machine."""
        local = LocalStates(processor, self.states, self.place)
        for bucket in range(plan_of(processor).inputs[0].buckets):
            if current(local.folder(bucket)) is not None:
                store_backup(local, bucket)

    def lose(self, processor: type[ps.Processor]) -> None:
        """Move a processor's states away, like the loss of a disk."""
        folder = self.states / processor.name
        folder.rename(folder.with_name(f".lost-{len(list(self.states.glob('.lost-*')))}"))

    def state(self, processor: type[ps.Processor]) -> dict[bytes, bytes]:
        """Return the saved values of all shards by key or slot."""
        local, found = LocalStates(processor, self.states, None), dict[bytes, bytes]()
        for bucket in range(plan_of(processor).inputs[0].buckets):
            folder = current(local.folder(bucket))
            if folder is not None:
                with opened_read_only(folder) as state:
                    found.update((key, value) for key, value in state.items() if key < b"\xff")
        return found


def create_categories(bus: MemoryBus, processors: Iterable[type[ps.Processor]]) -> None:
    """Create the categories of processors."""
    for category in {
        c.name: c for processor in processors for c in (*plan_of(processor).inputs, *plan_of(processor).outputs)
    }.values():
        if category.name not in bus.names():
            bus.create(CategorySpec.of(category))


def write(bus: MemoryBus, category: ps.Category[Any], events: Sequence[Any]) -> None:
    """Write events."""
    values = Codecs(bus).of(category).encode(events)
    keys = category.encode_keys(category.keys_of(events))
    bus.writer().send(category.name, outgoing(category, keys, values))


def read(bus: MemoryBus, category: ps.Category[Any]) -> list[Any]:
    """Return all records of a category."""
    ends = bus.describe(category.name).ends
    messages = [m for number, end in ends.items() for m in bus.slice(Bucket(category.name, number), 0, end)]
    return list(Codecs(bus).of(category).decode(messages).events)
