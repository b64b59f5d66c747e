"""Processors whose states are built in batch in tests, and the truth about their outputs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar

import penstock as ps
from penstock.backfill.run.bootstrap_handoff import BootstrapHandoff, plan_handoff
from penstock.ops.maintenance.processor_positions import LocalStates
from penstock.processors.shard.position import StatePosition
from penstock.state.backups.manifest import Manifest
from penstock.state.backups.shard import ShardBackups
from penstock.state.backups.shard_backup import snapshot_folder
from penstock.state.backups.writer import claim
from penstock.state.local.folder import RocksStateFolder
from penstock.transport.memory import MemoryBus
from penstock.transport.tables.maintenance_protocol import (
    AtGap,
    no_gap,
)

from .machines import Machine, created, read, write

EXACT = ps.Semantics.EXACTLY_ONCE


class Reading(ps.Record, frozen=True):
    """What a meter shows."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
refunds = ps.Category("refunds", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Reading, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Adds up."""

    reads: ClassVar[Any] = readings
    writes, state = totals, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        """Add."""
        total = (state or 0) + event.litres
        return total, [Reading(event.meter, event.at, total)]


class Balances(Totals):
    """The same, of two inputs, whose state is kept in a changelog."""

    name, reads, output_semantics = "balances", (readings, refunds), EXACT


KINDS = (Totals, Balances)


def made(begin: int, end: int, litres: int = 1) -> list[Reading]:
    """Return readings of five meters; from the fiftieth on the last one is silent."""
    return [Reading(f"m{n % (5 if n < 50 else 4)}", 1_000 * n, litres) for n in range(begin, end)]


def beside(machine: Machine, name: str) -> Machine:
    """Return another machine on the same bus."""
    return Machine(machine.folder.with_name(name), machine.bus, machine.place)


def begun(machine: Machine, processor: type[ps.Processor]) -> None:
    """Let a processor read 100 events."""
    created(machine.bus, [processor])
    write(machine.bus, readings, made(0, 100))
    machine.run(processor)


def built(machine: Machine, handing_over: BootstrapHandoff) -> dict[int, Manifest]:
    """Store the states that batch makes of the first 50 events: there each is of ten litres, so that one knows whose state it is."""
    processor, batch = handing_over.processor, Machine(_new_folder(machine), MemoryBus(), machine.place)
    created(batch.bus, [processor])
    write(batch.bus, readings, made(0, 50, litres=10))
    batch.run(processor)
    local, manifests = LocalStates(processor, batch.states, None), dict[int, Manifest]()
    for bucket, offset in batch.bus.committed(processor.name, "readings").items():
        identity = local.identity(bucket)
        scratch = RocksStateFolder(batch.folder.with_name("scratch"))
        with (
            closing(RocksStateFolder(batch.states).open(identity)) as made_there,
            closing(scratch.open(identity)) as state,
        ):
            position = StatePosition({"readings": offset}, generation=handing_over.number)
            state.save_together(dict(made_there.items()), position)
            with snapshot_folder(state.folder) as snapshot:
                state.snapshot(snapshot)
                owner = claim(ShardBackups(machine.place, processor.name, bucket), identity)
                manifests[bucket] = owner.store(snapshot, position)
    return manifests


def _new_folder(machine: Machine) -> Path:
    return Path(mkdtemp(prefix="batch", dir=machine.folder.parent))


def bootstrap(machine: Machine, processor: type[ps.Processor], at_gap: AtGap = no_gap) -> None:
    """Build states, and hand them over."""
    handing_over = plan_handoff(processor, machine.bus, machine.place)
    handing_over.perform(built(machine, handing_over), at_gap)


def written(machine: Machine) -> list[tuple[str, int, int]]:
    """Return all outputs, in an order that does not depend on buckets."""
    return sorted((one.meter, one.at, one.litres) for one in read(machine.bus, totals))


def summed(begin: int, end: int, each: int = 0) -> list[tuple[str, int, int]]:
    """Return what readings give that are added to what each meter had."""
    sums, found = {f"m{n}": each for n in range(5)}, []
    for one in made(begin, end):
        sums[one.meter] += one.litres
        found.append((one.meter, one.at, sums[one.meter]))
    return found


STREAMED = summed(0, 100)
"""What the stream gives of the 100 events."""
WENT_ON = summed(50, 100, each=100)
"""What the last 50 give where what was built of the others is gone on with."""
IN_THE_END = {meter.encode(): bytes([total]) for meter, _, total in [("m4", 0, 100), *WENT_ON]}
"""What is then in the state."""
