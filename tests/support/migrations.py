"""Processors whose states are migrated in tests, and their expected outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import msgspec

import penstock as ps
from penstock.ops.change.maintenance.migration import perform_migration
from penstock.ops.change.maintenance.migration_plan import MigrationPlan, plan_migration
from penstock.ops.change.maintenance.state_conversion import StateFunction
from penstock.ops.kernel.shards.backups import WorkerBackups
from penstock.processors.declare import plan_of
from penstock.state.files import LocalFileStore
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import AtGap, no_gap

from .machines import Machine, create_categories, read, write
from .maintenance import environment
from .shop import HOUR_MS, Baskets, Outcome, Purchase, Tale, lows, orders, output_category, random_events

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE
EVENTS = random_events(Purchase, 300, 1)


class Seen(ps.Record, frozen=True):
    """A customer's state."""

    orders: int
    customer: str


class History(ps.Record, frozen=True):
    """A customer's history."""

    text: str


class Bought(ps.Record, frozen=True):
    """The content of a basket."""

    numbers: tuple[int, ...]


class Numbers(ps.Stateful):
    """Numbers a customer's orders."""

    reads, writes, state = orders, output_category("numbers"), int

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Count."""
        number = (state or 0) + 1
        return number, [Outcome(event.customer, event.at, f"{event.number} is {number}")]


class NumbersConverted(Numbers):
    """The processor with the new type of state."""

    name = "numbers"
    state: ClassVar[Any] = Seen

    def process(self, event: Purchase, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Count."""
        number, outputs = super().process(event, state and state.orders, context)
        return Seen(number, event.customer), outputs


class Reminders(ps.Stateful):
    """Writes the number of orders six hours after each order."""

    reads, writes, state = orders, output_category("reminders"), int
    watermark = lows

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Count, and set a timer."""
        context.timer(event.at + 6 * HOUR_MS, str(event.number))
        return (state or 0) + 1, []

    def on_timer(self, timer: ps.Timer, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Write the count."""
        return state, [Outcome(context.key, timer.at, f"{timer.tag} {state}")]


class RemindersConverted(Reminders):
    """The processor with the new type of state."""

    name = "reminders"
    state: ClassVar[Any] = Seen

    def process(self, event: Purchase, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Count, and set a timer."""
        number, outputs = super().process(event, state and state.orders, context)
        return Seen(number, event.customer), outputs

    def on_timer(self, timer: ps.Timer, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Write the count."""
        return state, super().on_timer(timer, state.orders, context)[1]


class TaleConverted(Tale):
    """The processor with the new type of state."""

    name = "tale"
    state: ClassVar[Any] = History

    def process(self, event: Purchase, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Add the order."""
        tale, outputs = super().process(event, state and state.text, context)
        return History(tale), outputs


class BasketsConverted(Baskets):
    """The processor with the new type of state."""

    name = "baskets"
    state: ClassVar[Any] = Bought

    def fold(
        self, event: Purchase, state: Any, window: ps.windows.Window, context: ps.Context
    ) -> tuple[Any, Iterable[Outcome]]:
        """Add the order."""
        numbers, outputs = super().fold(event, state and state.numbers, window, context)
        return Bought(numbers), outputs

    def complete(self, state: Any, window: ps.windows.Window, context: ps.Context) -> Iterable[Outcome]:
        """Write the orders."""
        yield from super().complete(state.numbers, window, context)


class Kind(NamedTuple):
    """A processor's old and new declaration, and the function that converts its state."""

    before: type[ps.Processor]
    now: type[ps.Processor]
    by: Callable[[str, Any], Any]

    def __str__(self) -> str:
        return self.now.__name__


def with_customer(key: str, state: int) -> dict[str, Any]:
    """Convert a count to a customer's state; the conversion fails for a state that is already converted."""
    return {"orders": state + 0, "customer": key}


def with_semantics(kind: Kind, **semantics: Any) -> Kind:
    """Return a kind whose processors have other semantics."""
    return Kind(
        type("Before", (kind.before,), {**semantics, "name": kind.before.name}),
        type("Now", (kind.now,), {**semantics, "name": kind.before.name}),
        kind.by,
    )


NUMBERS = Kind(Numbers, NumbersConverted, with_customer)
LOGGED = with_semantics(NUMBERS, output_semantics=EXACT, deterministic=False)
KINDS = {
    "exactly-least": NUMBERS,
    "least-least": with_semantics(NUMBERS, state_semantics=LEAST),
    "most-most": with_semantics(NUMBERS, state_semantics=MOST, output_semantics=MOST),
    "exactly-most": with_semantics(NUMBERS, output_semantics=MOST),
    "exactly-exactly": with_semantics(NUMBERS, output_semantics=EXACT),
    "logged": LOGGED,
    "timers": Kind(Reminders, RemindersConverted, with_customer),
    "held": Kind(Tale, TaleConverted, lambda _, state: History(state)),
    "windows": Kind(Baskets, BasketsConverted, lambda _, state: {"numbers": state}),
}


def function(by: Callable[[str, Any], Any]) -> StateFunction:
    """Return a user's state function."""
    return StateFunction(Path("upgrade.py"), "upgraded", by)


def migrate(
    machine: Machine,
    kind: Kind,
    at_gap: AtGap = no_gap,
    *,
    backups: bool = True,
    force: bool = False,
) -> MigrationPlan:
    """Plan and perform a migration."""
    planned = plan_migration(kind.now, environment(machine, backups=backups), force=force)
    if planned.shards:
        perform_migration(planned, environment(machine, backups=backups), function(kind.by), at_gap)
    return planned


def read_part(machine: Machine, kind: Kind, end: int = 150) -> None:
    """Let the old processor read a part of the orders."""
    create_categories(machine.bus, [kind.before])
    write(machine.bus, orders, EVENTS[:end])
    machine.run(kind.before)


def finish(machine: Machine, processor: type[ps.Processor], backups: WorkerBackups | None = None) -> list[Any]:
    """Let a processor read the remaining orders; return all outputs."""
    write(machine.bus, orders, EVENTS[150:])
    machine.run(processor, backups)
    return outputs_of(machine, processor)


def outputs_of(machine: Machine, processor: type[ps.Processor]) -> list[Any]:
    """Return all outputs in an order that does not depend on buckets."""
    return sorted((line.customer, line.at, line.said) for line in read(machine.bus, plan_of(processor).outputs[0]))


@cache
def outputs_without_migration(kind: Kind) -> list[Any]:
    """Return all outputs of the old processor, without a migration."""
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder, "one"), MemoryBus(), LocalFileStore(Path(folder, "place")))
        read_part(machine, kind)
        return finish(machine, kind.before)


def renamed(fields: list[Any]) -> type[Numbers]:
    """Return the processor with a state type of the same name and other fields."""
    other = msgspec.defstruct("Seen", fields, bases=(ps.Record,), frozen=True)

    def process(self: Any, event: Purchase, state: Any, context: ps.Context) -> Any:
        number, outputs = Numbers().process(event, state and state.count, context)
        return other(number), outputs

    return type("NumbersAgain", (Numbers,), {"name": "numbers", "state": other, "process": process})


AGAIN = Kind(NumbersConverted, renamed([("count", int)]), lambda _, state: {"count": state["orders"]})


def failing_function(key: str, state: int) -> Any:
    """Fail for one key."""
    if key == "c7":
        raise KeyError("price")
    return with_customer(key, state)
