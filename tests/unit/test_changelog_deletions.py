"""Deleted keys stay deleted, although the changelog drops deletions after a time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from support.machines import Machine, create_categories, read, write

import penstock as ps
from penstock.processors.shard import steps_of
from penstock.state.files import LocalFileStore
from penstock.transport import DELETIONS, Bucket
from penstock.transport.memory import MemoryBus


class Visit(ps.Record, frozen=True):
    """A guest's arrival or departure."""

    guest: str
    at: ps.EventTime
    goes: bool = False


class Count(ps.Record, frozen=True):
    """The number of visits since the last departure."""

    guest: str
    at: ps.EventTime
    times: int


visits = ps.Category("visits", Visit, key="guest", event_time="at", buckets=1)
counts = ps.Category("counts", Count, key="guest", event_time="at", buckets=1)
LOG = Bucket("stays.changelog", 0)


class Plain(ps.Stateful):
    """Counts visits until the guest leaves."""

    name = "stays"
    reads, writes, state = visits, counts, int
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int | None, list[Count]]:
        """Count."""
        if event.goes:
            return None, []
        times = (state or 0) + 1
        return times, [Count(event.guest, event.at, times)]


class Stays(Plain):
    """Visits with a changelog."""

    name = "stays"
    deterministic = False


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine on a bus whose changelog drops deletions."""
    machine = Machine(tmp_path / "one", MemoryBus(), LocalFileStore(tmp_path / "place"))
    machine.bus.cluster.now_ms = machine.clock.now_ms
    create_categories(machine.bus, [Stays])
    return machine


def elsewhere(machine: Machine) -> Machine:
    """Return another machine on the same bus, at the same time."""
    return Machine(machine.folder.with_name("two"), machine.bus, machine.place, machine.clock)


def after(machine: Machine, time: timedelta) -> None:
    """Advance the clock, and compact the changelog."""
    machine.clock.advance(time.total_seconds())
    now_ms = machine.clock.now_ms()
    machine.bus.cluster.log(LOG).compact(now_ms, now_ms)


def last(machine: Machine) -> tuple[str, int]:
    """Return the newest count."""
    found = read(machine.bus, counts)[-1]
    return found.guest, found.times


@pytest.mark.parametrize("replayed_before", [False, True])
def test_a_key_deleted_long_ago_stays_deleted(machine: Machine, *, replayed_before: bool) -> None:
    """The returning machine has the old state, and the changelog has no message of the key."""
    other = elsewhere(machine)
    write(machine.bus, visits, [Visit("a", 1), Visit("a", 2), Visit("b", 3)])
    machine.run(Stays)
    if replayed_before:
        write(machine.bus, visits, [Visit("c", 4)])
        other.run(Stays)
        write(machine.bus, visits, [Visit("c", 5)])
        machine.run(Stays)
    write(machine.bus, visits, [Visit("a", 6, goes=True), Visit("b", 7)])
    other.run(Stays)
    after(machine, DELETIONS)
    write(machine.bus, visits, [Visit("b", 8)])
    other.run(Stays)
    write(machine.bus, visits, [Visit("a", 9)])
    machine.run(Stays)

    assert last(machine) == ("a", 1)
    assert machine.state(Stays) == {b"a": b"\x01", b"b": b"\x03"} | ({b"c": b"\x02"} if replayed_before else {})


def test_a_short_absence_replays_the_rest_alone(machine: Machine) -> None:
    """The changelog still contains recent deletions, so earlier messages are not read again."""
    other = elsewhere(machine)
    write(machine.bus, visits, [Visit("a", 1), Visit("b", 2)])
    other.run(Stays)
    machine.run(Stays)
    write(machine.bus, visits, [Visit("b", 3)])
    other.run(Stays)
    write(machine.bus, visits, [Visit("c", 4)])
    machine.run(Stays)
    machine.clock.advance(60)
    write(machine.bus, visits, [Visit("a", 5, goes=True)])
    other.run(Stays)
    write(machine.bus, visits, [Visit("a", 6)])
    machine.run(Stays)

    assert last(machine) == ("a", 1)
    assert machine.state(Stays) == {b"a": b"\x01", b"b": b"\x02", b"c": b"\x01"}


def test_a_state_that_predates_its_changelog_is_written_to_it(machine: Machine) -> None:
    """A machine without a state reads the whole changelog, not only recent changes."""
    write(machine.bus, visits, [Visit("a", 1), Visit("a", 2), Visit("b", 3)])
    machine.run(Plain)
    before = LOG.category in machine.bus.names()
    write(machine.bus, visits, [Visit("b", 4)])
    machine.run(Stays)
    other = elsewhere(machine)
    write(machine.bus, visits, [Visit("a", 5)])
    other.run(Stays)

    assert not before
    assert steps_of(Plain) != steps_of(Stays)
    assert last(other) == ("a", 3)
    assert other.state(Stays) == {b"a": b"\x03", b"b": b"\x02"}


def test_deletions_are_kept_for_long(machine: Machine) -> None:
    """They are kept for more than a week, while Kafka's default is one day."""
    machine.run(Stays)

    assert machine.bus.describe(LOG.category).spec.delete_retention == DELETIONS > timedelta(days=7)
