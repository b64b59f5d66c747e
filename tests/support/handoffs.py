"""Processors whose states are built in batch in tests, and their expected outputs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar

import penstock as ps
from penstock.backfill.run.bootstrap_handoff import BootstrapHandoff, plan_handoff
from penstock.ops.change.maintenance.processor_positions import LocalStates
from penstock.processors.shard import StatePosition
from penstock.state.backups import Manifest, ShardBackups, claim, snapshot_folder
from penstock.state.local import RocksStateFolder
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import AtGap, no_gap

from .machines import Machine, create_categories, read, write

EXACT = ps.Semantics.EXACTLY_ONCE


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
refunds = ps.Category("refunds", Reading, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Reading, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Sums each meter's readings."""

    reads: ClassVar[Any] = readings
    writes, state = totals, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        """Add a reading."""
        total = (state or 0) + event.litres
        return total, [Reading(event.meter, event.at, total)]


class Balances(Totals):
    """Sums two inputs; its state has a changelog."""

    name, reads, output_semantics = "balances", (readings, refunds), EXACT


KINDS = (Totals, Balances)


def generate_readings(begin: int, end: int, litres: int = 1) -> list[Reading]:
    """Return readings of five meters; the last meter has none from the fiftieth reading on."""
    return [Reading(f"m{n % (5 if n < 50 else 4)}", 1_000 * n, litres) for n in range(begin, end)]


def another_machine(machine: Machine, name: str) -> Machine:
    """Return another machine on the same bus."""
    return Machine(machine.folder.with_name(name), machine.bus, machine.place)


def read_events(machine: Machine, processor: type[ps.Processor]) -> None:
    """Let a processor read 100 events."""
    create_categories(machine.bus, [processor])
    write(machine.bus, readings, generate_readings(0, 100))
    machine.run(processor)


def build_states(machine: Machine, handoff: BootstrapHandoff) -> dict[int, Manifest]:
    """Store the batch states of the first 50 events. Each has ten litres there, so a state shows its origin."""
    processor, batch = handoff.processor, Machine(_new_folder(machine), MemoryBus(), machine.place)
    create_categories(batch.bus, [processor])
    write(batch.bus, readings, generate_readings(0, 50, litres=10))
    batch.run(processor)
    local, manifests = LocalStates(processor, batch.states, None), dict[int, Manifest]()
    for bucket, offset in batch.bus.committed(processor.name, "readings").items():
        identity = local.identity(bucket)
        scratch = RocksStateFolder(batch.folder.with_name("scratch"))
        with (
            closing(RocksStateFolder(batch.states).open(identity)) as batch_state,
            closing(scratch.open(identity)) as state,
        ):
            position = StatePosition({"readings": offset}, generation=handoff.number)
            state.save_together(dict(batch_state.items()), position)
            with snapshot_folder(state.folder) as snapshot:
                state.snapshot(snapshot)
                owner = claim(ShardBackups(machine.place, processor.name, bucket), identity)
                manifests[bucket] = owner.store(snapshot, position)
    return manifests


def _new_folder(machine: Machine) -> Path:
    return Path(mkdtemp(prefix="batch", dir=machine.folder.parent))


def bootstrap(machine: Machine, processor: type[ps.Processor], at_gap: AtGap = no_gap) -> None:
    """Build states in batch, and perform the handoff."""
    handoff = plan_handoff(processor, machine.bus, machine.place)
    handoff.perform(build_states(machine, handoff), at_gap)


def outputs_of(machine: Machine) -> list[tuple[str, int, int]]:
    """Return all outputs, in an order that does not depend on buckets."""
    return sorted((total.meter, total.at, total.litres) for total in read(machine.bus, totals))


def expected_totals(begin: int, end: int, each: int = 0) -> list[tuple[str, int, int]]:
    """Return the totals of readings, added to an initial total of each meter."""
    sums, found = {f"m{n}": each for n in range(5)}, []
    for reading in generate_readings(begin, end):
        sums[reading.meter] += reading.litres
        found.append((reading.meter, reading.at, sums[reading.meter]))
    return found


STREAMED = expected_totals(0, 100)
"""The outputs of the stream for all 100 events."""
CONTINUED = expected_totals(50, 100, each=100)
"""The outputs of the last 50 events after a handoff of the batch states."""
FINAL_STATE = {meter.encode(): bytes([total]) for meter, _, total in [("m4", 0, 100), *CONTINUED]}
"""The state after a handoff and the last 50 events."""
