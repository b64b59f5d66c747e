"""Processors whose states are migrated in tests, and the truth about their outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import msgspec

import penstock as ps
from penstock.ops.maintenance.migration import perform_migration
from penstock.ops.maintenance.migration_plan import MigrationPlan, plan_migration
from penstock.ops.maintenance.state_conversion import (
    StateFunction,
)
from penstock.ops.worker.backups import WorkerBackups
from penstock.state.files.local_files import LocalFileStore
from penstock.transport.memory import MemoryBus
from penstock.transport.tables.maintenance_protocol import (
    AtGap,
    no_gap,
)

from .machines import Machine, created, read, write
from .maintenance import environment
from .shop import HOUR_MS, Baskets, Outcome, Purchase, Tale, lows, made_up, orders, told

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE
EVENTS = made_up(Purchase, 300, 1)


class Seen(ps.Record, frozen=True):
    """What is known of a customer."""

    orders: int
    customer: str


class Told(ps.Record, frozen=True):
    """What was told of a customer."""

    text: str


class Bought(ps.Record, frozen=True):
    """What lies in a basket."""

    numbers: tuple[int, ...]


class Numbers(ps.Stateful):
    """Numbers a customer's orders."""

    reads, writes, state = orders, told("numbers"), int

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[int, list[Outcome]]:
        """Count."""
        number = (state or 0) + 1
        return number, [Outcome(event.customer, event.at, f"{event.number} is {number}")]


class NumbersSeen(Numbers):
    """The same, as it is declared later."""

    name = "numbers"
    state: ClassVar[Any] = Seen

    def process(self, event: Purchase, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Count."""
        number, outputs = super().process(event, state and state.orders, context)
        return Seen(number, event.customer), outputs


class Reminders(ps.Stateful):
    """Says after six hours how many orders there are."""

    reads, writes, state = orders, told("reminders"), int
    watermark = lows

    def process(self, event: Purchase, state: int | None, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Count, and wait."""
        context.timer(event.at + 6 * HOUR_MS, str(event.number))
        return (state or 0) + 1, []

    def on_timer(self, timer: ps.Timer, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Tell."""
        return state, [Outcome(context.key, timer.at, f"{timer.tag} {state}")]


class RemindersSeen(Reminders):
    """The same, as it is declared later."""

    name = "reminders"
    state: ClassVar[Any] = Seen

    def process(self, event: Purchase, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Count, and wait."""
        number, outputs = super().process(event, state and state.orders, context)
        return Seen(number, event.customer), outputs

    def on_timer(self, timer: ps.Timer, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Tell."""
        return state, super().on_timer(timer, state.orders, context)[1]


class TaleTold(Tale):
    """The same, as it is declared later."""

    name = "tale"
    state: ClassVar[Any] = Told

    def process(self, event: Purchase, state: Any, context: ps.Context) -> tuple[Any, list[Outcome]]:
        """Add the order."""
        tale, outputs = super().process(event, state and state.text, context)
        return Told(tale), outputs


class BasketsBought(Baskets):
    """The same, as it is declared later."""

    name = "baskets"
    state: ClassVar[Any] = Bought

    def fold(
        self, event: Purchase, state: Any, window: ps.windows.Window, context: ps.Context
    ) -> tuple[Any, Iterable[Outcome]]:
        """Add the order."""
        numbers, outputs = super().fold(event, state and state.numbers, window, context)
        return Bought(numbers), outputs

    def complete(self, state: Any, window: ps.windows.Window, context: ps.Context) -> Iterable[Outcome]:
        """Tell of all."""
        yield from super().complete(state.numbers, window, context)


class Kind(NamedTuple):
    """A processor as it was and as it is declared now, and what leads from the one to the other."""

    before: type[ps.Processor]
    now: type[ps.Processor]
    by: Callable[[str, Any], Any]

    def __str__(self) -> str:
        return self.now.__name__


def seen(key: str, state: int) -> dict[str, Any]:
    """Return what is known of a customer, from a count; of what was changed already there is none."""
    return {"orders": state + 0, "customer": key}


def with_semantics(kind: Kind, **semantics: Any) -> Kind:
    """Return a processor that asks for other guarantees, before and now."""
    return Kind(
        type("Before", (kind.before,), {**semantics, "name": kind.before.name}),
        type("Now", (kind.now,), {**semantics, "name": kind.before.name}),
        kind.by,
    )


NUMBERS = Kind(Numbers, NumbersSeen, seen)
LOGGED = with_semantics(NUMBERS, output_semantics=EXACT, deterministic=False)
KINDS = {
    "exactly-least": NUMBERS,
    "least-least": with_semantics(NUMBERS, state_semantics=LEAST),
    "most-most": with_semantics(NUMBERS, state_semantics=MOST, output_semantics=MOST),
    "exactly-most": with_semantics(NUMBERS, output_semantics=MOST),
    "exactly-exactly": with_semantics(NUMBERS, output_semantics=EXACT),
    "logged": LOGGED,
    "timers": Kind(Reminders, RemindersSeen, seen),
    "held": Kind(Tale, TaleTold, lambda _, state: Told(state)),
    "windows": Kind(Baskets, BasketsBought, lambda _, state: {"numbers": state}),
}


def function(by: Callable[[str, Any], Any]) -> StateFunction:
    """Return a function as a user names it."""
    return StateFunction(Path("upgrade.py"), "upgraded", by)


def migrate(
    machine: Machine,
    kind: Kind,
    at_gap: AtGap = no_gap,
    *,
    backups: bool = True,
    force: bool = False,
) -> MigrationPlan:
    """Plan it and do it."""
    planned = plan_migration(kind.now, environment(machine, backups=backups), force=force)
    if planned.shards:
        perform_migration(planned, environment(machine, backups=backups), function(kind.by), at_gap)
    return planned


def begun(machine: Machine, kind: Kind, end: int = 150) -> None:
    """Let the processor of before read half of the orders."""
    created(machine.bus, [kind.before])
    write(machine.bus, orders, EVENTS[:end])
    machine.run(kind.before)


def ended(machine: Machine, processor: type[ps.Processor], backups: WorkerBackups | None = None) -> list[Any]:
    """Let a processor read the rest; return what was written in all."""
    write(machine.bus, orders, EVENTS[150:])
    machine.run(processor, backups)
    return written(machine, processor)


def written(machine: Machine, processor: type[ps.Processor]) -> list[Any]:
    """Return what was written, in an order that does not depend on buckets."""
    return sorted((one.customer, one.at, one.said) for one in read(machine.bus, processor.outputs()[0]))


@cache
def undisturbed(kind: Kind) -> list[Any]:
    """Return all outputs of the old processor, without a migration."""
    with TemporaryDirectory() as folder:
        machine = Machine(Path(folder, "one"), MemoryBus(), LocalFileStore(Path(folder, "place")))
        begun(machine, kind)
        return ended(machine, kind.before)


def renamed(fields: list[Any]) -> type[Numbers]:
    """Return the processor with a state of the name Seen that has other fields."""
    other = msgspec.defstruct("Seen", fields, bases=(ps.Record,), frozen=True)

    def process(self: Any, event: Purchase, state: Any, context: ps.Context) -> Any:
        number, outputs = Numbers().process(event, state and state.count, context)
        return other(number), outputs

    return type("NumbersAgain", (Numbers,), {"name": "numbers", "state": other, "process": process})


AGAIN = Kind(NumbersSeen, renamed([("count", int)]), lambda _, state: {"count": state["orders"]})


def raising(key: str, state: int) -> Any:
    """Fail for one key."""
    if key == "c7":
        raise KeyError("price")
    return seen(key, state)
