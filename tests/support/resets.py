"""Processors that are reset in tests, and their expected outputs."""

from __future__ import annotations

from typing import Any

import penstock as ps
from penstock.ops.change.maintenance.reset import ResetPlan, perform_reset, plan_reset
from penstock.ops.change.maintenance.reset_plan import StatePolicy
from penstock.ops.change.maintenance.reset_target import ResetTarget
from penstock.processors.declare import bucket_of
from penstock.transport import Bucket
from penstock.transport.tables import AtGap, no_gap

from .machines import Machine, create_categories, read, write
from .maintenance import environment

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE
PAIRS = ((LEAST, LEAST), (EXACT, LEAST), (EXACT, MOST), (EXACT, EXACT))


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


class Total(ps.Record, frozen=True):
    """A meter's running total."""

    meter: str
    at: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
refunds = ps.Category("refunds", Total, key="meter", event_time="at", buckets=2)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=2)


class Totals(ps.Stateful):
    """Sums each meter's readings."""

    reads, writes, state = readings, totals, int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        """Add a reading."""
        total = (state or 0) + event.litres
        return total, [Total(event.meter, event.at, total)]


class Copies(ps.Stateless):
    """Copies its input."""

    reads, writes = readings, totals

    def process(self, event: Reading) -> list[Total]:
        """Copy a reading."""
        return [Total(event.meter, event.at, event.litres)]


class Balances(ps.Stateful):
    """Adds readings, and subtracts refunds."""

    reads, writes, state = (readings, refunds), totals, int
    output_semantics = EXACT

    def process(self, event: Any, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        """Add or subtract."""
        total = (state or 0) + (event.litres if isinstance(event, Reading) else -event.litres)
        return total, [Total(event.meter, event.at, total)]


class Stored(ps.Aggregator):
    """Sums readings in a remote store."""

    reads, monoid, store = readings, ps.monoids.Sum(), ps.RemoteStore()


def of_pair(pair: tuple[ps.Semantics, ps.Semantics]) -> type[Totals]:
    """Return the processor with other semantics."""
    return type("Totals", (Totals,), {"state_semantics": pair[0], "output_semantics": pair[1], "name": "totals"})


def generate_readings(begin: int, end: int, record: type[Any] = Reading) -> list[Any]:
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
    """Plan and perform a reset."""
    planned = plan_reset(processor, environment(machine, backups=backups), to, policy)
    perform_reset(planned, environment(machine, backups=backups), at_gap)
    return planned


def positions(machine: Machine, processor: type[ps.Processor]) -> dict[int, int]:
    """Return the committed offsets of a processor's group."""
    return machine.bus.committed(processor.name, "readings")


def read_twice(
    machine: Machine, processor: type[ps.Processor], category: ps.Category[Any] = readings
) -> dict[Bucket, int]:
    """Let a processor read 50 readings, back up, and read 50 more; return its position at the backup."""
    create_categories(machine.bus, [processor])
    write(machine.bus, category, generate_readings(0, 50))
    machine.run(processor)
    machine.back_up(processor)
    middle = {Bucket("readings", n): offset for n, offset in positions(machine, processor).items()}
    write(machine.bus, category, generate_readings(50, 100))
    machine.run(processor)
    return middle


def outputs_of(machine: Machine) -> list[tuple[str, int, int]]:
    """Return all outputs in an order that does not depend on buckets."""
    return sorted((one.meter, one.at, one.litres) for one in read(machine.bus, totals))


def expected_totals(begin: int = 0, counted_from: int = 0, end: int = 100) -> list[tuple[str, int, int]]:
    """Return the totals of the readings from `begin`, if the processor counts from `counted_from`."""
    sums, found = dict[str, int](), []
    for one in generate_readings(counted_from, end):
        sums[one.meter] = sums.get(one.meter, 0) + 1
        if one.at >= 1_000 * begin:
            found.append((one.meter, one.at, sums[one.meter]))
    return sorted(found)


def buckets_of_readings(begin: int, end: int) -> list[Bucket]:
    """Return the bucket of each reading."""
    return [Bucket("readings", bucket_of(one.meter.encode(), 2)) for one in generate_readings(begin, end)]
