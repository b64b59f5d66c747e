"""Rewrites of a changelog: in parts, and again after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Driver, Worker, changelog_of, ends_of
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.testing import InlineExecutor
from penstock.processors.shard import StatePosition
from penstock.state import MemoryStateFolder, StateFolder
from penstock.transport import (
    Aborted,
    Bucket,
    BusError,
    BusUnreachable,
    CategorySpec,
    Fenced,
    Position,
    changelog,
    changelog_batches,
    changelog_position,
    rewrite_changelog_bucket,
)
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.network import REQUEST_LIMIT_S, Network

T = TypeVar("T")
LOG = Bucket("totals.changelog", 0)
States = st.dictionaries(st.binary(max_size=3), st.binary(max_size=20), max_size=40)


class Dying(Network):
    """A network that ends after a number of commits."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.commits = 0

    def request(self, what: str, effect: Callable[[], T], limit_s: float = REQUEST_LIMIT_S) -> T:
        if what == "commit transaction":
            if self.left == 0:
                raise BusUnreachable("No broker answers.")
            self.left = None if self.left is None else self.left - 1
            self.commits += 1
        return super().request(what, effect, limit_s)


def content(bus: MemoryBus) -> dict[bytes, bytes]:
    """Return the state to which a changelog leads."""
    found: dict[bytes, bytes | None] = {}
    for changes, _ in changelog_batches(bus, LOG, 0):
        found |= changes
    return {key: value for key, value in found.items() if value is not None}


@settings(deadline=None)
@given(before=States, after=States, part_bytes=st.integers(1, 200), commits=st.integers(0, 5))
def test_a_rewrite_that_dies_is_completed_by_its_repetition(
    before: dict[bytes, bytes], after: dict[bytes, bytes], part_bytes: int, commits: int
) -> None:
    """Replaying the changelog leads to the new state and its position, whatever it has contained before."""
    network = Dying()
    bus = MemoryBus(network=network)
    bus.create(CategorySpec(LOG.category, 1, compacted=True))
    positions = [StatePosition({"events": offset}, checkpoint_id=offset) for offset in (5, 3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changelog, "PART_BYTES", part_bytes)
        rewrite_changelog_bucket(bus, LOG.category, 0, before.items(), positions[0])
        network.left = commits
        try:
            rewrite_changelog_bucket(bus, LOG.category, 0, after.items(), positions[1])
        except Fenced:
            network.left = None
            rewrite_changelog_bucket(bus, LOG.category, 0, after.items(), positions[1])

    assert content(bus) == after
    assert changelog_position(bus, LOG).offsets == positions[1].offsets


def test_a_large_state_is_rewritten_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own time limit, so the time for a state of any size is not limited."""
    network = Dying()
    bus = MemoryBus(network=network)
    bus.create(CategorySpec(LOG.category, 1, compacted=True))
    monkeypatch.setattr(changelog, "PART_BYTES", 1_000)
    rewrite_changelog_bucket(bus, LOG.category, 0, [(b"%04d" % key, bytes(95)) for key in range(100)], StatePosition())

    assert network.commits == 11


class Owner:
    """Accepts any bucket."""

    def assigned(self, buckets: object) -> None:
        """Accept assigned buckets."""

    def revoked(self, buckets: object) -> None:
        """Ignore revoked buckets."""

    def lost(self, buckets: object) -> None:
        """Ignore lost buckets."""


def test_a_first_write_ends_when_the_bucket_has_another_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its transactions depends on the membership: later ones would overwrite the changes of that owner."""
    bus = MemoryBus()
    for name in (LOG.category, "events"):
        bus.create(CategorySpec(name, 1, compacted=name == LOG.category))
    member, event = bus.reader("totals", ["events"], Owner(), "one"), Position(Bucket("events", 0), 0)
    member.poll(0.0)

    def items() -> Iterator[tuple[bytes, bytes]]:
        yield b"1", b"written"
        yield b"2", b"sent when the membership is lost"
        bus.kill_members("totals")
        yield b"3", b"never sent"

    monkeypatch.setattr(changelog, "PART_BYTES", 1)
    with pytest.raises(Aborted):
        rewrite_changelog_bucket(
            bus, LOG.category, 0, items(), StatePosition(), member=member, committed=[event], commits=[event]
        )

    assert content(bus) == {b"1": b"written"}


class Visit(ps.Record, frozen=True):
    """A visit of a page, or the number of its visits."""

    page: str
    at: ps.EventTime
    number: int = 1


visits = ps.Category("visits", Visit, key="page", event_time="at", buckets=1)
counts = ps.Category("counts", Visit, key="page", event_time="at", buckets=1)
PAGES = ["a", "b", "c", "d", "e"]


class Counted(ps.Stateful[Visit, int, Visit]):
    """Counts the visits of each page."""

    reads, writes, state = visits, counts, int
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, list[Visit]]:
        """Count a visit."""
        number = (state or 0) + 1
        return number, [Visit(event.page, context.event_time, number)]


class Logged(Counted):
    """The same, with a changelog."""

    name = Counted.name
    deterministic = False


def _run(driver: Driver, states: StateFolder, bus: MemoryBus) -> None:
    driver.bus.kill_members(Counted.name)
    worker = Worker(Logged(), WorkerConfig(bus, states, "one"), InlineExecutor(), InlineExecutor(), clock=driver.clock)
    targets = ends_of([visits], driver.bus)
    for _ in range(20):
        worker.run_once()
        if worker.has_reached(targets):
            worker.save()


@pytest.mark.parametrize("is_disk_lost", [False, True])
def test_a_first_write_that_dies_between_its_transactions_is_no_state(
    monkeypatch: pytest.MonkeyPatch, *, is_disk_lost: bool
) -> None:
    """The next owner of the state writes it again; an owner without it does not begin with a part of it."""
    driver, network = Driver(Counted), Dying()
    driver.send(visits, [Visit(page, at) for at, page in enumerate(PAGES * 2)])
    log = changelog_of(Logged)
    assert log is not None
    driver.bus.create(log)
    monkeypatch.setattr(changelog, "PART_BYTES", 1)
    network.left = 3
    with suppress(BusError):
        _run(driver, driver._states[Counted], MemoryBus(cluster=driver.bus.cluster, network=network))
    keys = len(driver.bus.slice(Bucket(log.name, 0), 0, driver.bus.ends(log.name)[0]))
    driver._write(visits, [Visit(page, 20) for page in PAGES])
    _run(driver, MemoryStateFolder() if is_disk_lost else driver._states[Counted], driver.bus)

    assert keys == 3
    assert {last.page: last.number for last in driver.read(counts)} == dict.fromkeys(PAGES, 3)
    assert changelog_position(driver.bus, Bucket(log.name, 0)).offsets == {"visits": 15}
