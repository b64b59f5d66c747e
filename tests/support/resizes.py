"""Processors whose inputs are resized in tests, and their expected outputs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import penstock as ps
from penstock.ops.change.maintenance.resize import ResizePlan, perform_resize, plan_resize
from penstock.processors.declare import plan_of
from penstock.state.files import LocalFileStore
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import AtGap, no_gap

from .machines import Machine, create_categories, read, write
from .maintenance import environment
from .shop import Baskets, Counted, Hourly, Numbered, Outcome, Paid, Purchase, Tale, Visits, output_category

HOUR_MS = 3_600_000
START_MS = 1_357_000_000_000 // HOUR_MS * HOUR_MS
KEYS = 40
EXACT = ps.Semantics.EXACTLY_ONCE


class Reminders(ps.Stateful):
    """Writes the customer's number of orders an hour after each order."""

    reads, writes, state = Numbered.reads, output_category("reminders"), int
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=2))

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Count, and set a timer."""
        context.timer(event.at + HOUR_MS, str(event.number))
        return (state or 0) + 1, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Write the count."""
        return state, [Outcome(context.key, timer.at, timer.tag)]


class Lately(ps.Aggregator):
    """Counts the orders of the three hours before each order."""

    reads, writes, late = Numbered.reads, output_category("lately"), ps.OnLate.DROP
    monoid, window, emit = ps.monoids.Count(), ps.windows.Sliding(timedelta(hours=3)), ps.AtWatermark()
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(hours=2))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Outcome:
        """Return the count."""
        return Outcome(key, window.end, str(value))


class PaidExactly(Paid):
    """The join with a changelog."""

    name, writes, output_semantics = "paid_exactly", output_category("paid_exactly"), EXACT


class Copies(ps.Stateless):
    """Writes the numbers of orders."""

    reads, writes = Numbered.reads, output_category("copies")

    def process(self, event: Purchase) -> list[Outcome]:
        """Copy the number."""
        return [Outcome(event.customer, event.at, str(event.number))]


BY_MULTIPLE = [
    (kind, 6) for kind in (Numbered, Counted, Hourly, Visits, Tale, Baskets, PaidExactly, Reminders, Lately, Copies)
]
KINDS: list[tuple[type[ps.Processor], int]] = [*BY_MULTIPLE, (Hourly, 4), (Reminders, 4), (Tale, 4), (Paid, 4)]


def with_buckets(processor: type[ps.Processor], buckets: int) -> type[ps.Processor]:
    """Return a processor whose inputs have another number of buckets."""
    inputs = [replace(category, buckets=buckets) for category in plan_of(processor).inputs]
    reads = {"left": inputs[0], "right": inputs[1]} if issubclass(processor, ps.Join) else {"reads": tuple(inputs)}
    return type(processor.__name__, (processor,), {"name": processor.name, **reads})


def generate_events(record: type[Any], begin: int, end: int) -> list[Any]:
    """Return events out of order by up to an hour and a half, so no event is late in any bucket."""
    dice = random.Random(7)
    late = [dice.randrange(90) for _ in range(end)]
    return [
        record(f"c{n * 7 % KEYS}", START_MS + n * 10 * 60_000 + (90 - late[n]) * 60_000, n) for n in range(begin, end)
    ]


def final_events(record: type[Any]) -> list[Any]:
    """Return an event of each key that completes all earlier windows."""
    return [record(f"c{n}", START_MS + 10_000 * HOUR_MS, 10_000 + n) for n in range(KEYS)]


def send(bus: MemoryBus, processor: type[ps.Processor], events: Callable[[type[Any]], list[Any]]) -> None:
    """Write events to each input."""
    for category in plan_of(processor).inputs:
        write(bus, category, events(category.record))


def read_part(machine: Machine, processor: type[ps.Processor]) -> None:
    """Let a processor read 120 events."""
    create_categories(machine.bus, [processor])
    send(machine.bus, processor, lambda record: generate_events(record, 0, 120))
    machine.run(processor)


def resize(
    machine: Machine,
    processor: type[ps.Processor],
    buckets: int,
    at_gap: AtGap = no_gap,
    **options: bool,
) -> ResizePlan:
    """Plan and perform a resize."""
    planned = plan_resize([processor], environment(machine), "orders", buckets)
    perform_resize(planned, environment(machine), at_gap, **options)
    return planned


def finish(machine: Machine, processor: type[ps.Processor]) -> list[Any]:
    """Let a processor read the remaining events; return its outputs, and of updates the last."""
    send(machine.bus, processor, lambda record: generate_events(record, 120, 240))
    machine.run(processor)
    send(machine.bus, processor, final_events)
    machine.run(processor)
    outputs = read(machine.bus, plan_of(processor).outputs[0])
    if processor.name == Counted.name:
        outputs = list({(one.customer, one.at): one for one in outputs}.values())
    return sorted((line.customer, line.at, line.said) for line in outputs)


@cache
def outputs_without_resize(processor: type[ps.Processor]) -> list[Any]:
    """Return the outputs of a processor whose categories are not resized."""
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder, "one"), MemoryBus(), LocalFileStore(Path(folder, "place")))
        read_part(machine, processor)
        return finish(machine, processor)
