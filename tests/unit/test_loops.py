"""Loops: declarations, the events that circulate, and the watermark that they hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.machines import Machine, create_categories, read, write
from support.maintenance import environment, worker_backups
from support.snapshots import stopped_snapshot

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.run import plans
from penstock.errors import DeclarationError
from penstock.ops.change.maintenance.reset import expect_no_loop
from penstock.ops.change.snapshots.restoring import perform_restore, plan_restore
from penstock.ops.kernel import levels_of, node_of
from penstock.ops.kernel.event_time.loop_watermark import LoopWatermark
from penstock.ops.kernel.loop.until_end import LoopEnd
from penstock.ops.kernel.testing import EndlessLoop
from penstock.ops.status import ProcessorStatus
from penstock.ops.status.observer import with_loops
from penstock.processors.apps import App, loops_of
from penstock.processors.shard import Step, steps_of
from penstock.processors.time import NEVER_MS
from penstock.state.files import LocalFileStore
from penstock.testing import Crash, Driver
from penstock.transport import Bucket
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import LoopRound, MaintenanceRefused, WatermarkStatement

HOUR_MS = 3_600_000


class Edge(ps.Record, frozen=True):
    """An edge of a graph, as one of its ends sees it."""

    node: str
    at: ps.EventTime
    neighbour: str


class Label(ps.Record, frozen=True):
    """A label on its way to a node."""

    node: str
    at: ps.EventTime
    label: str


class Component(ps.Record, frozen=True):
    """What a node knows: its neighbours, and the smallest label that has reached it."""

    neighbours: frozenset[str]
    label: str


EDGES = ps.Category("edges", Edge, key="node", event_time="at", buckets=3)
LABELS = ps.Category("labels", Label, key="node", event_time="at", buckets=3)
CHANGES = ps.Category("changes", Label, key="node", event_time="at", buckets=3)


class Spread(ps.Stateful):
    """Gives the smallest label that a node has heard of to its neighbours."""

    reads, feedback = (EDGES, LABELS), LABELS
    writes = LABELS
    state = Component
    output_semantics = ps.Semantics.EXACTLY_ONCE
    watermark = ps.watermarks.BoundedOutOfOrderness()

    def process(
        self, event: Edge | Label, state: Component | None, context: ps.Context
    ) -> tuple[Component, Iterable[Label]]:
        before = state or Component(frozenset(), event.node)
        if isinstance(event, Edge):
            after = Component(before.neighbours | {event.neighbour}, before.label)
            return after, [Label(event.neighbour, event.at, after.label)]
        if event.label >= before.label:
            return before, []
        after = Component(before.neighbours, event.label)
        return after, [Label(node, event.at, after.label) for node in sorted(after.neighbours)]


class Sort(ps.Stateless):
    """The first half of a loop over two processors."""

    reads, writes = LABELS, CHANGES
    watermark = ps.watermarks.UpstreamWatermark()

    def process(self, event: Label) -> Iterable[Label]:
        yield event


class SpreadChanges(Spread):
    """The second half."""

    reads, feedback = (EDGES, CHANGES), CHANGES
    watermark = ps.watermarks.BoundedOutOfOrderness()


class Hourly(ps.Record, frozen=True):
    """The number of labels of an hour."""

    node: str
    at: ps.EventTime
    count: int


class Heard(ps.Aggregator):
    """Counts the labels that a node has received, by complete hour."""

    reads, writes = LABELS, ps.Category("heard", Hourly, key="node", event_time="at", buckets=3)
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(hours=1))
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP
    watermark = ps.watermarks.UpstreamWatermark()

    def result(self, key: str, window: ps.windows.Window, value: int) -> Hourly:
        return Hourly(key, window.start, value)


def components(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the smallest node of each node's component, with a union-find."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for one, other in pairs:
        least, greatest = sorted((root(one), root(other)))
        parent[greatest] = least
    return {node: root(node) for node in parent}


def both_ends(pairs: Iterable[tuple[str, str]], at: int = HOUR_MS) -> list[Edge]:
    """Return each edge for both of its ends, one event a second."""
    ends = [end for pair in pairs for end in (pair, pair[::-1])]
    return [Edge(node, at + 1_000 * number, neighbour) for number, (node, neighbour) in enumerate(ends)]


def labels_in(driver: Driver, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the label of each node, from the labels that it was sent: its own, or the smallest one."""
    found = {node: node for pair in pairs for node in pair}
    for label in driver.read(LABELS):
        found[label.node] = min(found[label.node], label.label)
    return found


GRAPHS = st.lists(st.tuples(*[st.sampled_from("abcdefghijkl")] * 2), min_size=1, max_size=15)


@given(pairs=GRAPHS)
@settings(max_examples=25, deadline=None)
def test_labels_spread_until_nothing_changes(pairs: list[tuple[str, str]]) -> None:
    """The loop ends, and each node has the smallest label of its component."""
    driver = Driver(Spread)
    driver.send(EDGES, both_ends(pairs))

    assert labels_in(driver, pairs) == components(pairs)


@given(pairs=GRAPHS)
@settings(max_examples=15, deadline=None)
def test_a_loop_over_two_processors_ends(pairs: list[tuple[str, str]]) -> None:
    """A loop may have several members."""
    driver = Driver([Sort, SpreadChanges])
    driver.send(EDGES, both_ends(pairs))

    assert labels_in(driver, pairs) == components(pairs)
    assert [processor.__name__ for processor in driver.app.processors] == ["SpreadChanges", "Sort"]


class Hop(ps.Record, frozen=True):
    """An event that passes a number of keys."""

    key: str
    at: ps.EventTime
    number: int
    left: int


STARTS = ps.Category("starts", Hop, key="key", event_time="at", buckets=2)
HOPS = ps.Category("hops", Hop, key="key", event_time="at", buckets=2)
HOP_COUNTS = ps.Category("hop_counts", Hourly, key="node", event_time="at", buckets=2)


class Count(ps.Stateful):
    """Counts the events of each key, and sends each on to another key."""

    reads, feedback = (STARTS, HOPS), HOPS
    writes = HOPS, HOP_COUNTS
    state = int

    def process(self, event: Hop, state: int | None, context: ps.Context) -> tuple[int, list[Any]]:
        count = (state or 0) + 1
        onward = [Hop(f"k{(event.number + event.left) % 5}", event.at, event.number, event.left - 1)]
        return count, [Hourly(event.key, event.at, count), *(onward if event.left else [])]


class CountExactly(Count):
    """The same, exactly once."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


STARTED = [Hop(f"k{number % 5}", 1_000 * number, number, number % 4) for number in range(12)]


@pytest.mark.parametrize("before", [*steps_of(CountExactly), None])
def test_an_event_passes_the_loop_once_despite_a_crash(before: Step | None) -> None:
    """With exactly-once outputs, each event counts once on each of its ways around, wherever the worker crashes."""
    driver = Driver(CountExactly)
    started: list[Hop | Crash] = list(STARTED)
    driver.send(STARTS, [*started[:5], Crash(before), *started[5:9], Crash(before), *started[9:]])

    assert sorted((hop.number, hop.left) for hop in driver.read(HOPS)) == sorted(
        (hop.number, left) for hop in STARTED for left in range(hop.left)
    )
    final = {one.node: one.count for one in driver.read(HOP_COUNTS)}
    assert sum(final.values()) == sum(hop.left + 1 for hop in STARTED)


@pytest.mark.parametrize("before", [*steps_of(Count), None])
def test_an_event_passes_the_loop_at_least_once_despite_a_crash(before: Step | None) -> None:
    """With at-least-once outputs, an event may pass several times, and ends nevertheless."""
    driver = Driver(Count)
    driver.send(STARTS, [*STARTED[:5], Crash(before), *STARTED[5:]])

    assert {(hop.number, hop.left) for hop in driver.read(HOPS)} == {
        (hop.number, left) for hop in STARTED for left in range(hop.left)
    }


def run_until_drained(machine: Machine) -> None:
    """Run workers until nothing circulates."""
    names = ("starts", "hops")
    before: list[dict[int, int]] = []
    while (ends := [dict(machine.bus.catalog.stable_ends(name)) for name in names]) != before:
        before = ends
        machine.run(CountExactly, worker_backups(machine))


@pytest.mark.parametrize("turns", [2, 3, 5])
def test_a_restored_snapshot_contains_what_circulated(tmp_path: Path, turns: int) -> None:
    """The state goes back to the cut, and the messages in flight at the cut circulate again: each event counts once on each of its ways."""
    machine = Machine(tmp_path / "machine", MemoryBus(), LocalFileStore(tmp_path / "place"))
    create_categories(machine.bus, [CountExactly])
    write(machine.bus, STARTS, STARTED[:9])
    with machine.working(CountExactly, worker_backups(machine)) as worker:
        for _ in range(turns):
            worker.run_once()
    snapshot = stopped_snapshot(machine, [CountExactly])
    in_flight = sum(
        message.value() is not None
        for (name, number), (begin, end) in snapshot.in_flight().items()
        for message in machine.bus.slice(Bucket(name, number), begin, end - begin)
    )
    run_until_drained(machine)
    before = sum({one.node: one.count for one in read(machine.bus, HOP_COUNTS)}.values())
    plan = plan_restore(snapshot, [CountExactly], environment(machine))
    perform_restore(plan, environment(machine))
    write(machine.bus, STARTS, STARTED[9:])
    machine.lose(CountExactly)
    run_until_drained(machine)

    assert before == sum(hop.left + 1 for hop in STARTED[:9])
    after = {one.node: one.count for one in read(machine.bus, HOP_COUNTS)}
    assert sum(after.values()) == sum(hop.left + 1 for hop in STARTED)
    assert in_flight > 0


def test_the_watermark_of_a_loop_goes_back_with_a_restore() -> None:
    """A worker also reads what was published after the cut, and then its deletion: what circulates again is not late."""
    [loop] = loops_of([CountExactly])
    watermark = LoopWatermark(loop, CountExactly)
    for owner in loop.shards:
        watermark.record(owner, WatermarkStatement(*owner, 2, 9_000, {}, round=LoopRound(7, 9_000)))
    assert watermark.watermark.watermark_ms == 9_000
    for owner in loop.shards:
        watermark.record(owner, None)

    assert watermark.watermark.watermark_ms == NEVER_MS


def hours_in(driver: Driver) -> Mapping[tuple[str, int], int]:
    """Return the number of labels of each node and hour."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for label in driver.read(LABELS):
        counts[label.node, label.at // HOUR_MS * HOUR_MS] += 1
    return counts


def test_windows_downstream_contain_what_has_circulated() -> None:
    """The watermark behind a loop waits for its events: an hour is complete with all of its labels, and it becomes complete."""
    chain = [(f"n{number:02}", f"n{number + 1:02}") for number in range(20)]
    driver = Driver([Spread, Heard])
    driver.send(EDGES, both_ends(chain))
    driver.send(EDGES, both_ends([(f"x{number}", f"y{number}") for number in range(12)], at=6 * HOUR_MS))
    driver.advance(30)

    expected = {slot: count for slot, count in hours_in(driver).items() if slot[1] < 6 * HOUR_MS}
    assert {(one.node, one.at): one.count for one in driver.read(Heard.writes)} == expected
    assert driver.metrics(Heard).dropped == 0


def test_a_drained_loop_becomes_idle() -> None:
    """When nothing circulates and the inputs are silent, its shards report that they are idle, and its consumers do not wait."""
    driver = Driver([Spread, Heard])
    driver.send(EDGES, both_ends([("a", "b")]))
    driver.advance(200)
    driver.send(EDGES, [Edge("a", 9 * HOUR_MS, "b")])
    driver.advance(200)

    assert sum(one.count for one in driver.read(Heard.writes)) == sum(
        count for (_, hour), count in hours_in(driver).items() if hour < 9 * HOUR_MS
    )


def test_an_undeclared_loop_is_refused_with_the_declaration_that_allows_it() -> None:
    """The error names the processors, and the category to declare."""
    with pytest.raises(
        DeclarationError, match=r"Spread -> Spread.*declare the category labels as `feedback` of Spread"
    ):
        App.of("app", [type("Spread", (Spread,), {"feedback": ()})])


@pytest.mark.parametrize(
    ("declared", "error"),
    [
        ({"feedback": CHANGES}, "which it does not read"),
        ({"writes": CHANGES}, "none of its outputs leads to labels"),
        ({"feedback": "labels"}, "wrong type"),
        ({"max_output_delay": timedelta(seconds=1)}, "waits for event time"),
        ({"ordered": True}, "waits for event time"),
    ],
)
def test_a_loop_that_cannot_work_is_refused(declared: Mapping[str, Any], error: str) -> None:
    """It is refused before the first event."""
    with pytest.raises(DeclarationError, match=error):
        App.of("app", [type("Spread", (Spread,), dict(declared))])


def test_an_endless_loop_is_an_error_in_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver does not hang."""
    monkeypatch.setattr("penstock.ops.kernel.testing.MOST_TURNS", 20)

    class Echo(ps.Stateless):
        reads, writes, feedback = LABELS, LABELS, LABELS

        def process(self, event: Label) -> Iterable[Label]:
            yield event

    with pytest.raises(EndlessLoop, match="circulate in Echo -> Echo"):
        Driver(Echo).send(LABELS, [Label("a", 1, "a")])


def test_a_loop_knows_its_members_and_categories() -> None:
    """Categories on the way around belong to it, others do not."""
    [loop] = loops_of([SpreadChanges, Sort, Heard])

    assert list(loop.members) == [SpreadChanges, Sort]
    assert loop.categories == {"labels", "changes"}
    assert loop.inputs_of(SpreadChanges) == ["changes"]


def test_the_members_of_a_loop_run_together_before_their_readers() -> None:
    """A run to the end starts both members at once: each waits for the other."""
    app = App.of("app", [Heard, Sort, SpreadChanges])

    assert levels_of(app) == [[SpreadChanges, Sort], [Heard]]


def test_a_loop_has_ended_when_all_members_have_read_everything() -> None:
    """One unread message anywhere in it keeps all members running."""
    driver = Driver([Sort, SpreadChanges])
    driver.send(EDGES, both_ends([("a", "b"), ("b", "c")]))
    end = LoopEnd.of(driver.app.loops[0], driver.bus)

    assert end.is_reached()
    write(driver.bus, LABELS, [Label("a", 1, "a")])
    assert not end.is_reached()
    driver.run()
    assert end.is_reached()


@pytest.mark.parametrize(
    ("unread", "shown"), [({"labels": 3}, "3 in flight"), ({"labels": 0}, "drained"), ({}, "unknown")]
)
def test_the_status_shows_what_circulates(unread: dict[str, int], shown: str) -> None:
    """These are the messages that the loop's members have not processed. Other processors have no loop."""
    spread, heard = (
        ProcessorStatus(node_of(kind), 0, (), (), 0, unread={"edges": 5, **unread}) for kind in (Spread, Heard)
    )
    in_loop, behind = with_loops([spread, heard])

    assert (str(in_loop.loop), behind.loop) == (shown, None)


def test_what_a_loop_cannot_do_is_refused_with_another_way() -> None:
    """A reset would write again what has circulated, and Spark reads each category once."""
    app = App.of("app", [Spread, Heard])
    with pytest.raises(MaintenanceRefused, match="penstock snapshot restore"):
        expect_no_loop(app.loop_of(Spread))
    expect_no_loop(app.loop_of(Heard))

    with pytest.raises(BackfillRefused, match="has a loop: Spread -> Spread"):
        plans.expect_no_loop(app)
