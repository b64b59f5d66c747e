"""Processors that are reset in tests, and the truth about their outputs."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock.ops.maintenance.reset import ResetPlan, perform_reset, plan_reset
from penstock.ops.maintenance.reset_plan import StatePolicy
from penstock.ops.maintenance.reset_target import ResetTarget
from penstock.processors.declare.partitioner import bucket_of
from penstock.transport.messages import Bucket
from penstock.transport.tables.maintenance_protocol import (
    AtGap,
    no_gap,
)

from .machines import Machine, created, read, write
from .maintenance import environment

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE
PAIRS = ((LEAST, LEAST), (EXACT, LEAST), (EXACT, MOST), (EXACT, EXACT))


class Reading(ps.Record, frozen=True):
    """What a meter shows."""

    meter: str
    at: ps.EventTime
    litres: int


class Total(ps.Record, frozen=True):
    """What it has come to."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
refunds = ps.Category("refunds", Total, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Adds up."""

    reads, writes, state = readings, totals, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        """Add."""
        total = (state or 0) + event.litres
        return total, [Total(event.meter, event.at, total)]


class Copies(ps.Stateless):
    """Writes what it reads."""

    reads, writes = readings, totals

    def process(self, event: Reading) -> list[Total]:
        """Copy."""
        return [Total(event.meter, event.at, event.litres)]


class Balances(ps.Stateful):
    """Adds up what comes, and takes off what goes back."""

    reads, writes, state = (readings, refunds), totals, int
    output_semantics = EXACT

    def process(self, event: Any, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        """Add or take off."""
        total = (state or 0) + (event.litres if isinstance(event, Reading) else -event.litres)
        return total, [Total(event.meter, event.at, total)]


class Stored(ps.Aggregator):
    """Adds up in a store."""

    reads, monoid, store = readings, ps.monoids.Sum(), ps.RemoteStore()


def of_pair(pair: tuple[ps.Semantics, ps.Semantics]) -> type[Totals]:
    """Return the processor with other semantics."""
    return type("Totals", (Totals,), {"state_semantics": pair[0], "output_semantics": pair[1], "name": "totals"})


def made(begin: int, end: int, record: type[Any] = Reading) -> list[Any]:
    """Return readings, each of one litre, of five meters."""
    return [record(f"m{n % 5}", 1_000 * n, 1) for n in range(begin, end)]


def reset(
    machine: Machine,
    processor: type[ps.Processor],
    to: ResetTarget,
    policy: StatePolicy | None = None,
    *,
    backups: bool = True,
    at_gap: AtGap = no_gap,
) -> ResetPlan:
    """Plan a reset and do it."""
    planned = plan_reset(processor, environment(machine, backups=backups), to, policy)
    perform_reset(planned, environment(machine, backups=backups), at_gap)
    return planned


def positions(machine: Machine, processor: type[ps.Processor]) -> dict[int, int]:
    """Return where its group is."""
    return machine.bus.committed(processor.name, "readings")


def half(machine: Machine, processor: type[ps.Processor], category: ps.Category[Any] = readings) -> dict[Bucket, int]:
    """Let a processor read 50 readings, back its state up, and read 50 more; return where it was in between."""
    created(machine.bus, [processor])
    write(machine.bus, category, made(0, 50))
    machine.run(processor)
    machine.back_up(processor)
    middle = {Bucket("readings", n): offset for n, offset in positions(machine, processor).items()}
    write(machine.bus, category, made(50, 100))
    machine.run(processor)
    return middle


def written(machine: Machine) -> list[tuple[str, int, int]]:
    """Return all outputs, in an order that does not depend on buckets."""
    return sorted((one.meter, one.at, one.litres) for one in read(machine.bus, totals))


def truth(begin: int = 0, counted_from: int = 0, end: int = 100) -> list[tuple[str, int, int]]:
    """Return the totals that the readings from one on give, where those from another on are counted."""
    sums, found = dict[str, int](), []
    for one in made(counted_from, end):
        sums[one.meter] = sums.get(one.meter, 0) + 1
        if one.at >= 1_000 * begin:
            found.append((one.meter, one.at, sums[one.meter]))
    return sorted(found)


def places(begin: int, end: int) -> list[Bucket]:
    """Return the bucket of each reading."""
    return [Bucket("readings", bucket_of(one.meter.encode(), 2)) for one in made(begin, end)]
