"""An app in tests of clones and promotions: it sums readings, in totals and in windows, and looks up a table that it writes itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import penstock as ps
from penstock.ops.change.clones.cloning import ClonePlan, perform_clone, plan_clone
from penstock.ops.change.snapshots.snapshot import Snapshot
from penstock.processors.apps import App, loops_of
from penstock.processors.apps.clones import cloned
from penstock.transport.tables import AtGap, no_gap

from .machines import Machine, create_categories, read, write
from .maintenance import environment, worker_backups
from .resets import EXACT, Reading, Total, generate_readings, readings
from .snapshots import Totals, checked, stopped_snapshot


class Limit(ps.Record, frozen=True):
    """The highest allowed reading of a meter."""

    meter: str
    at: ps.EventTime
    litres: int


def category(name: str, record: type[Any], **options: Any) -> ps.Category[Any]:
    """Return a category with two buckets."""
    return ps.Category(name, record, key="meter", event_time="at", buckets=2, **options)


spare = category("spare", Reading)
limits = category("limits", Limit, compacted=True)
flagged, sums = category("flagged", Total), category("sums", Total)


class Check(ps.Stateless):
    """Passes readings on, to a category that it names."""

    name = "check"
    reads, writes = readings, (checked, spare)

    def process(self, event: Reading) -> list[ps.To]:
        """Pass one on."""
        return [ps.To(checked, event)]


class Limits(ps.Stateless):
    """Writes a table for another processor of the app."""

    name = "limits"
    reads, writes = readings, limits

    def process(self, event: Reading) -> list[Limit]:
        """Write the same limit again."""
        return [Limit(event.meter, event.at, 7)]


class Sums(ps.Aggregator):
    """Sums the checked readings of five seconds."""

    name = "sums"
    reads, writes, monoid = checked, sums, ps.monoids.Sum()
    window, emit = ps.windows.Tumbling(timedelta(seconds=5)), ps.AtWatermark()
    watermark = ps.watermarks.Confidence()

    def observe(self, event: Reading) -> int:
        """Return the litres."""
        return event.litres

    def result(self, key: str, window: ps.windows.Window, value: int) -> Total:
        """Return the sum of a window."""
        return Total(key, window.start, value)


class Flag(ps.LookupJoin):
    """Looks up the limit of each checked reading."""

    name = "flag"
    reads, writes, source = checked, flagged, ps.lookups.CategoryTable(limits)

    def key_of(self, event: Reading) -> str:
        """Return the meter."""
        return event.meter

    def join(self, event: Reading, row: Limit | None) -> Iterable[Total]:
        """Return the limit; zero without one."""
        yield Total(event.meter, event.at, row.litres if row else 0)


Processors = Sequence[type[ps.Processor]]


def app_of(base: type[Totals], state: ps.Semantics, output: ps.Semantics) -> App:
    """Return an app with some semantics. `Limits` is the last one, though another processor looks its table up."""
    made = [
        type(each.__name__, (each,), {"output_semantics": output, "name": each.name}) for each in (Check, Flag, Limits)
    ]
    semantics = {"state_semantics": state, "output_semantics": output}
    totals_kind = type("Totals", (base,), {**semantics, "watermark": base.watermark or ps.watermarks.Confidence()})
    sums_kind = type("Sums", (Sums,), {"output_semantics": EXACT})
    return App("shop", (made[0], totals_kind, sums_kind, made[1], made[2]))


def clone_of(app: App, name: str = "staging") -> App:
    """Return the app under the names of a clone."""
    processors = cloned(app.processors, name)
    return App(f"{app.name}@{name}", tuple(processors), loops=loops_of(processors))


def own(one: ps.Category[Any]) -> ps.Category[Any]:
    """Return the category of the clone."""
    return category(f"staging.{one.name}", one.record, compacted=one.compacted)


def history(machine: Machine, app: App) -> Snapshot:
    """Let an app read 50 readings, and its first and last processors 20 more. Take a snapshot, and let all read 30 more."""
    create_categories(machine.bus, app.processors)
    write(machine.bus, readings, generate_readings(0, 50))
    run(machine, (app.processors[-1], *app.processors[:-1]))
    write(machine.bus, readings, generate_readings(50, 70))
    run(machine, (app.processors[0], app.processors[-1]))
    snapshot = stopped_snapshot(machine, app.processors, app.name)
    write(machine.bus, readings, generate_readings(70, 100))
    run(machine, app.processors)
    return snapshot


def run(machine: Machine, processors: Processors) -> None:
    """Let processors read to the end, one after another."""
    for processor in processors:
        machine.run(processor, worker_backups(machine))


def make(machine: Machine, clone: App, snapshot: Snapshot, at_gap: AtGap = no_gap) -> ClonePlan:
    """Plan and make a clone."""
    plan = plan_clone(snapshot, clone, environment(machine))
    perform_clone(plan, environment(machine), at_gap)
    return plan


def summed(one: ps.Category[Any], machine: Machine) -> Counter[tuple[str, int, int]]:
    """Return how often each record occurs in a category of totals."""
    return Counter((each.meter, each.at, each.litres) for each in read(machine.bus, one))


def expected_totals(begin: int, end: int) -> Counter[tuple[str, int, int]]:
    """Return the expected totals of some readings."""
    count, found = Counter[str](), Counter[tuple[str, int, int]]()
    for number in range(end):
        count[f"m{number % 5}"] += 1
        if number >= begin:
            found[f"m{number % 5}", 1_000 * number, count[f"m{number % 5}"]] += 1
    return found
