"""Resets of remote state: only forward, counting or discarding the skipped events."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from support.machines import YEAR_2100_MS, create_categories, read, write
from support.stores import unique_name

import penstock as ps
from penstock.ops.change.maintenance.environment import MaintenanceEnvironment
from penstock.ops.change.maintenance.reset import ResetPlan, perform_reset, plan_reset
from penstock.ops.change.maintenance.reset_plan import ResetMethod, StatePolicy
from penstock.ops.change.maintenance.reset_target import Edge, ResetTarget
from penstock.ops.change.maintenance.resize import plan_resize
from penstock.ops.kernel import StoreMissing, Worker, ends_of, prepare
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.shards.resume_checks import MaintenanceUnfinished
from penstock.ops.kernel.testing import InlineExecutor
from penstock.ops.shell import SteeredClock
from penstock.processors.shard import Gap, Step
from penstock.state.remote import read_results, remote_states
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import AtGap, MaintenanceRefused, MaintenanceStep, no_gap
from penstock.transport.tables.maintenance_protocol import MaintenanceGap

HOUR_MS = 3_600_000
EXACT, LEAST = ps.Semantics.EXACTLY_ONCE, ps.Semantics.AT_LEAST_ONCE


class Visit(ps.Record, frozen=True):
    """A visit to a page."""

    page: str
    at: ps.EventTime


class Hour(ps.Record, frozen=True):
    """The number of visits to a page in an hour."""

    page: str
    at: ps.EventTime
    visits: int


visits = ps.Category("visits", Visit, key="page", event_time="at", buckets=2)
hours = ps.Category("hours", Hour, key="page", event_time="at", buckets=2)


class Killed(Exception):
    """The process died."""


class World:
    """A processor with remote state, on its own bus.

    Args:
        url: the store.
        output: its output semantics.
        folder: an empty local folder.
    """

    def __init__(self, url: str, output: ps.Semantics, folder: Path) -> None:
        self.bus = MemoryBus()
        self.clock = SteeredClock(YEAR_2100_MS)
        self.url = url

        class Visits(ps.Aggregator):
            name = unique_name("visits")
            reads, writes, monoid, store = visits, hours, ps.monoids.Count(), ps.RemoteStore()
            window = ps.windows.Tumbling(timedelta(hours=1))
            output_semantics = output

            def result(self, key: str, window: ps.windows.Window, value: int) -> Hour:
                return Hour(key, window.start, value)

        self.processor = Visits
        self.around = MaintenanceEnvironment(self.bus, folder, store=url)
        create_categories(self.bus, [Visits])

    def send(self, hour: int) -> None:
        """Send two visits to each of four pages within an hour."""
        write(self.bus, visits, [Visit(page, hour * HOUR_MS + n) for n in range(2) for page in "abcd"])

    def run(self, at_gap: Callable[[Gap], None] = lambda _: None) -> None:
        """Read to the end, save and stop."""
        targets = ends_of([visits], self.bus)
        with closing(remote_states(self.url, self.processor)) as states:
            place = WorkerConfig(self.bus, states, "one")
            opened = prepare(self.processor, self.bus)
            worker = Worker(opened, place, InlineExecutor(), InlineExecutor(), clock=self.clock, at_gap=at_gap)
            worker.run_once()
            worker.run(lambda it: it.has_reached(targets))

    def reset(
        self,
        to: ResetTarget,
        policy: StatePolicy | None = None,
        at_gap: AtGap = no_gap,
    ) -> ResetPlan:
        """Plan and execute a reset."""
        planned = plan_reset(self.processor, self.around, to, policy)
        perform_reset(planned, self.around, at_gap)
        return planned

    def stored(self) -> dict[int, int]:
        """Return the number of visits per hour in the store."""
        found: dict[int, int] = {}
        with read_results(self.url, self.processor) as results:
            for _, window, count in results.scan(1_000):
                found[window.start // HOUR_MS] = found.get(window.start // HOUR_MS, 0) + count
        return found

    def written(self) -> dict[int, int]:
        """Return the same numbers from the last record of each page and hour."""
        last = {(one.page, one.at // HOUR_MS): one.visits for one in read(self.bus, hours)}
        return {hour: sum(count for (_, at), count in last.items() if at == hour) for hour in {at for _, at in last}}


@pytest.fixture(params=[LEAST, EXACT], ids=["least", "exact"])
def world(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> World:
    """A processor that has counted the first hour."""
    world = World(url, request.param, tmp_path)
    world.send(0)
    world.run()
    assert world.stored() == world.written() == {0: 8}
    return world


def test_a_reset_that_counts_skipped_events_updates_the_store(world: World) -> None:
    """It writes no outputs for them; the store is as if the events had not been skipped."""
    world.send(1)
    planned = world.reset(Edge.LATEST)
    world.send(2)
    world.run()

    assert ({shard.method for shard in planned.shards}, planned.skipped) == ({ResetMethod.KEPT}, 8)
    assert world.stored() == {0: 8, 1: 8, 2: 8}
    assert world.written() == {0: 8, 2: 8}


def test_a_reset_that_keeps_the_state_ignores_skipped_events(world: World) -> None:
    """They are neither in the store nor in the outputs."""
    world.send(1)
    planned = world.reset(Edge.LATEST, StatePolicy.KEEP)
    world.send(2)
    world.run()

    assert ({shard.method for shard in planned.shards}, planned.skipped) == ({ResetMethod.SKIPPED}, 8)
    assert world.stored() == world.written() == {0: 8, 2: 8}


@pytest.mark.parametrize("policy", [StatePolicy.AUTO, StatePolicy.KEEP])
@pytest.mark.parametrize(
    "step", [MaintenanceStep.INSTALL_STATE, MaintenanceStep.MOVE_POSITIONS, MaintenanceStep.RECORD_END]
)
def test_a_killed_reset_is_repeated(world: World, step: MaintenanceStep, policy: StatePolicy) -> None:
    """No worker starts before; afterwards the state is as if the reset had not been killed."""

    def die(gap: MaintenanceGap) -> None:
        if gap.before is step and gap.bucket in {None, 1}:
            raise Killed

    world.send(1)
    with pytest.raises(Killed):
        world.reset(Edge.LATEST, policy, die)
    with pytest.raises(MaintenanceUnfinished):
        world.run()
    world.bus.kill_members(world.processor.name)  # its session expires
    world.reset(Edge.LATEST, policy)
    world.send(2)
    world.run()

    assert world.stored() == {0: 8, 2: 8} | ({1: 8} if policy is StatePolicy.AUTO else {})
    assert world.written() == {0: 8, 2: 8}


@pytest.mark.parametrize(
    ("to", "policy", "expected"),
    [
        (Edge.EARLIEST, None, "cannot go back"),
        (Edge.EARLIEST, StatePolicy.KEEP, "would count events twice"),
        (Edge.EARLIEST, StatePolicy.EMPTY, "which a reset does not empty"),
    ],
)
def test_a_backward_reset_is_refused(world: World, to: ResetTarget, policy: StatePolicy | None, expected: str) -> None:
    """The error gives the reason, and nothing changes."""
    with pytest.raises(MaintenanceRefused, match=expected):
        world.reset(to, policy)
    world.send(1)
    world.run()

    assert world.stored() == world.written() == {0: 8, 1: 8}


def test_a_reset_asks_for_a_missing_store_address(world: World, tmp_path: Path) -> None:
    """Nothing changes."""
    with pytest.raises(StoreMissing, match="--store"):
        plan_reset(world.processor, MaintenanceEnvironment(world.bus, tmp_path), Edge.LATEST, None)


def test_pending_outputs_in_the_store_are_sent_before_a_reset(url: str, tmp_path: Path) -> None:
    """A worker must send them: at other positions it could not tell whether they were sent."""
    world = World(url, EXACT, tmp_path)

    def die(gap: Gap) -> None:
        if gap.before is Step.COMMIT_TRANSACTION:
            world.bus.kill_members(world.processor.name)
            raise Killed

    world.send(0)
    with pytest.raises(Killed):
        world.run(die)
    world.send(1)
    with pytest.raises(MaintenanceRefused, match="outputs that are not sent yet"):
        world.reset(Edge.LATEST)
    world.run()
    world.send(2)
    world.reset(Edge.LATEST)

    assert world.written() == {0: 8, 1: 8}


def test_a_shard_in_a_store_cannot_be_split(world: World) -> None:
    """More buckets are refused with an alternative, and nothing changes."""
    with pytest.raises(MaintenanceRefused, match=r"penstock\.Repartition"):
        plan_resize([world.processor], world.around, "visits", 4)

    assert world.bus.describe("visits").spec.buckets == 2
