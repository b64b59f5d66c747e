"""Reads of served results: counted by each server, and missed when they end."""

from __future__ import annotations

from collections.abc import Callable

import penstock as ps
from penstock.ops.kernel import node_of
from penstock.ops.serve.results.read_counter import ReadCounter
from penstock.ops.shell import SteeredClock
from penstock.ops.status.unread import READ_AGAIN_S, UNREAD_S, UnreadResults
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import reads_on

START_MS = 1_790_000_000_000


class View(ps.Record, frozen=True):
    """A view."""

    page: str
    at: ps.EventTime


def category(name: str) -> ps.Category[View]:
    """Return a category."""
    return ps.Category(name, View, key="page", event_time="at", buckets=1)


class Counts(ps.Stateless):
    """Served."""

    name = "counts"
    reads, writes = category("views"), category("counted")

    def process(self, event: View) -> list[View]:
        return [event]


class Others(ps.Stateless):
    """Served, and its results have another reader."""

    name = "others"
    reads, writes = category("views"), category("other")

    def process(self, event: View) -> list[View]:
        return [event]


class Reader(ps.Stateless):
    """Reads the results of another processor."""

    name = "reader"
    reads, writes = category("other"), category("rest")

    def process(self, event: View) -> list[View]:
        return [event]


NODES = [node_of(each) for each in (Counts, Others, Reader)]


def test_the_reads_of_several_servers_add_up_and_survive_restarts() -> None:
    """A server without new reads writes nothing."""
    clock, bus = SteeredClock(START_MS), MemoryBus()
    first, second = (ReadCounter(bus, name, ["counts", "others"], clock) for name in ("a:1", "b:1"))
    first.save()
    clock.advance(10)
    for counter, reads in ((first, 3), (second, 4)):
        for _ in range(reads):
            counter.count("counts")
        counter.save()
    first.count("counts")
    first.save()
    clock.advance(10)
    again = ReadCounter(bus, "a:1", ["counts"], clock)
    again.count("counts")
    again.save()
    again.save()
    found = reads_on(bus)

    assert (found["counts"].reads, found["others"].reads) == (3 + 4 + 1 + 1, 0)
    assert (found["counts"].since_ms, found["counts"].last_ms) == (START_MS, START_MS + 20_000)
    assert found["others"].last_ms is None
    assert set(found["counts"].servers) == {"a:1", "b:1"}


def test_a_server_saves_its_reads_at_its_end(wait_until: Callable[..., None]) -> None:
    """It does not wait for the next minute. Results count as served since its start."""
    bus = MemoryBus()
    counter = ReadCounter(bus, "a:1", ["counts"])
    counter.start()
    wait_until(lambda: bool(reads_on(bus)))
    counter.count("counts")
    counter.close()

    assert reads_on(bus)["counts"].reads == 1


def test_unread_results_are_reported() -> None:
    """The report comes after two weeks, unless another processor reads the results. A read ends the finding."""
    clock, bus = SteeredClock(START_MS), MemoryBus()
    counter = ReadCounter(bus, "a:1", ["counts", "others", "gone"], clock)
    counter.save()
    unread = UnreadResults(bus, clock.monotonic_s)

    def found() -> list[str]:
        return [finding.processor for finding in unread.findings(NODES, clock.now_ms())]

    clock.advance(UNREAD_S - 1)
    assert found() == []
    clock.advance(1)
    assert found() == ["counts"]
    [finding] = unread.findings(NODES, clock.now_ms())
    assert "ever read" in finding.message
    assert "penstock undeploy counts" in finding.message
    counter.count("counts")
    counter.save()
    clock.advance(READ_AGAIN_S)
    assert found() == []
    clock.advance(UNREAD_S)
    [finding] = unread.findings(NODES, clock.now_ms())
    assert "after 1 read." in finding.message
