"""Failures of a disk, a store or the bus at any operation of a worker, followed by a restart."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.faulty import DelayedExecutor, Faults, FaultyBus, FaultyStates, disk_full

import penstock as ps
from penstock.ops.kernel import Worker, changelog_of, ends_of
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.loop.ownership import FENCED_PAUSE_S, MOST_FENCED, QUIET_S, IdentityShared, _ordinal
from penstock.ops.kernel.testing import InlineExecutor
from penstock.ops.shell import SteeredClock
from penstock.processors.declare import dead_letters_of, plan_of
from penstock.processors.operators import merge_of
from penstock.processors.shard import EventRejected, Gap
from penstock.state import MemoryStateFolder, StateFolder
from penstock.state.local import RocksStateFolder
from penstock.transport import (
    MESSAGE_LIMIT,
    Bucket,
    CategorySpec,
    CommitUnconfirmed,
    DeliveryFailed,
    Fenced,
    IdentityTaken,
    MembershipLost,
    MessageRefused,
    Outgoing,
    create_missing_categories,
)
from penstock.transport.codecs import Codecs
from penstock.transport.tables import WATERMARKS

LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime


class Total(ps.Record, frozen=True):
    """The number of a meter's readings."""

    meter: str
    at: ps.EventTime
    readings: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=3)
copies = ps.Category("copies", Reading, key="meter", event_time="at", buckets=3)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=3)
FEW = ps.CheckpointInterval(events=8)


class Copies(ps.Stateless):
    """Writes each reading again."""

    reads, writes, checkpoint = readings, copies, FEW

    def process(self, event: Reading) -> Iterable[Reading]:
        yield event


class CopiesOnce(Copies):
    """Copies with exactly-once outputs."""

    output_semantics = EXACT


class CopiesAtMostOnce(Copies):
    """Copies with at-most-once outputs."""

    output_semantics = MOST


class Totals(ps.Stateful):
    """Counts each meter's readings."""

    reads, writes, state, checkpoint = readings, totals, int, FEW

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        return (state or 0) + 1, [Total(context.key, event.at, (state or 0) + 1)]


class Often(Totals):
    """Counts with at-least-once state."""

    state_semantics = LEAST


class Seldom(Totals):
    """Counts with at-most-once state and outputs."""

    state_semantics = output_semantics = MOST


class Silent(Totals):
    """Counts with at-most-once outputs."""

    output_semantics = MOST


class Exact(Totals):
    """Counts with exactly-once outputs."""

    output_semantics = EXACT


class Logged(Exact):
    """The same, with a changelog."""

    deterministic = False


PLAIN = [Copies, CopiesAtMostOnce, Totals, Often, Seldom, Silent]
ROWS = [*PLAIN, CopiesOnce, Exact, Logged]
EVENTS = [Reading(f"m{n % 7}", n) for n in range(60)]
MAX_RUNS = 200
STRIDE = int(os.environ.get("PENSTOCK_FAILURE_STRIDE", "6"))
"""Each how many operations one fails; each processor begins at another one."""


class Site:
    """A processor with a faulty bus and faulty states, and checks of its outputs."""

    def __init__(self, processor: type[ps.Processor], states: StateFolder, events: Sequence[Reading] = EVENTS) -> None:
        self.faults = Faults()
        self.bus = FaultyBus(self.faults, at_most=3)
        self.clock = SteeredClock(1_000)
        self.processor = processor
        self._states = FaultyStates(states, self.faults)
        changelog = changelog_of(processor)
        for category in (*plan_of(processor).inputs, *plan_of(processor).outputs, dead_letters_of(processor)):
            self.bus.create(CategorySpec.of(category))
        create_missing_categories(self.bus, WATERMARKS, *([changelog] if changelog else []))
        writer = self.bus.writer()
        for event in events:
            [key], [value] = readings.keys_of([event]), Codecs(self.bus).of(readings).encode([event])
            writer.send("readings", [Outgoing(key.encode(), value)])
        self.faults.operations.clear()

    def worker(self, identity: str = "test") -> Worker:
        """Start a worker."""
        place = WorkerConfig(self.bus, self._states, identity)
        return Worker(
            self.processor(), place, InlineExecutor(), DelayedExecutor(), clock=self.clock, at_gap=self._at_gap
        )

    def _at_gap(self, gap: Gap) -> None:
        self.faults.at(f"gap: {gap}")

    def run_worker(self) -> Exception | None:
        """Run a worker to the end of its input, or until something fails."""
        targets = ends_of(plan_of(self.processor).inputs, self.bus)

        def finished(worker: Worker) -> bool:
            self.clock.advance(0.4)
            return worker.has_reached(targets)

        try:
            self.worker().run(finished)
        except Exception as error:  # noqa: BLE001 - the caller checks it
            self.bus.kill_members(self.processor.name)
            return error
        return None

    def run_until_done(self) -> int:
        """Start workers until one reaches the end; return the number of failed workers."""
        for failed in range(MAX_RUNS):
            if self.run_worker() is None and self._is_done():
                return failed
        raise AssertionError(f"none of {MAX_RUNS} workers reached the end")

    def _is_done(self) -> bool:
        """Return whether all positions are committed; a worker also ends cleanly after a failed last checkpoint."""
        return self.bus.committed(self.processor.name, "readings") == dict(self.bus.ends("readings"))

    def outputs(self) -> list[Any]:
        """Return what was written."""
        [category] = plan_of(self.processor).outputs
        found = [
            message
            for number, end in self.bus.ends(category.name).items()
            for message in self.bus.slice(Bucket(category.name, number), 0, end)
        ]
        return list(Codecs(self.bus).of(category).decode(found).events)

    def expect_kept(self, events: Sequence[Reading] = EVENTS) -> None:
        """Compare the outputs with the declared semantics."""
        found = Counter(output.at for output in self.outputs())
        promise, truth = self.processor.output_semantics, {event.at for event in events}
        assert found.keys() <= truth
        if promise is not MOST:
            assert not truth - found.keys(), f"lost: {sorted(truth - found.keys())}"
        if promise is not LEAST:
            assert not [at for at, times in found.items() if times > 1], "written twice"
        if issubclass(self.processor, ps.Stateful):
            self._expect_counts(events)

    def _expect_counts(self, events: Sequence[Reading]) -> None:
        """Compare the last count of each meter with the number of its readings."""
        truth = Counter(event.meter for event in events)
        last: dict[str, int] = {}
        for total in self.outputs():
            last[total.meter] = max(last.get(total.meter, 0), total.readings)
        for meter, counted in last.items():
            if self.processor.state_semantics is EXACT:
                assert counted <= truth[meter]
                if self.processor.output_semantics is not MOST:
                    assert counted == truth[meter]
            elif self.processor.state_semantics is LEAST:
                assert counted >= truth[meter]
            else:
                assert counted <= truth[meter]


def operations(processor: type[ps.Processor]) -> list[str]:
    """Return all operations of a run in which nothing fails."""
    site = Site(processor, MemoryStateFolder())
    assert site.run_worker() is None
    site.expect_kept()
    return site.faults.operations


def failed_operations(processor: type[ps.Processor]) -> range:
    """Return the numbers of the operations that fail."""
    return range(ROWS.index(processor) % STRIDE, len(operations(processor)), STRIDE)


def failing(name: str) -> Exception:
    """Return the error of an operation."""
    if name.startswith("state"):
        return disk_full(name)
    if name == "bus: flush":
        return DeliveryFailed("no broker answers")
    return RuntimeError(f"{name} failed")


@pytest.mark.parametrize("processor", ROWS)
def test_guarantees_hold_after_a_failure_of_any_operation(processor: type[ps.Processor]) -> None:
    """A write fails once, a message is not delivered, or a step raises; a restarted worker recovers."""
    for at in failed_operations(processor):
        site = Site(processor, MemoryStateFolder())
        site.faults.fails = lambda name, before, at=at: failing(name) if before == at else None  # type: ignore[misc]
        site.run_until_done()
        site.expect_kept()


@pytest.mark.parametrize("processor", ROWS)
def test_guarantees_hold_if_the_disk_stays_full(processor: type[ps.Processor]) -> None:
    """From some operation on, all writes and the closing of each state fail until the worker has ended."""
    for at in failed_operations(processor):
        site = Site(processor, MemoryStateFolder())
        site.faults.fails = lambda name, before, at=at: (  # type: ignore[misc]
            disk_full(name) if before >= at and name.startswith("state") else None
        )
        site.run_worker()
        site.faults.fails = lambda _name, _before: None
        site.run_until_done()
        site.expect_kept()


@pytest.mark.parametrize("processor", ROWS)
def test_guarantees_hold_if_the_disk_recovers_while_the_worker_ends(processor: type[ps.Processor]) -> None:
    """A write and the closing of one state fail; the other states could be saved, and must not be."""
    for at in failed_operations(processor):
        site, closed = Site(processor, MemoryStateFolder()), list[int]()

        def fails(name: str, before: int, at: int = at, closed: list[int] = closed) -> Exception | None:
            if before == at:
                return failing(name)
            if before > at and name == "state: close" and not closed:
                closed.append(before)
                return disk_full(name)
            return None

        site.faults.fails = fails
        site.run_until_done()
        site.expect_kept()


@pytest.mark.parametrize("processor", ROWS)
def test_guarantees_hold_if_all_operations_fail(processor: type[ps.Processor]) -> None:
    """From some operation on, the disk, the bus and the steps fail."""
    for at in failed_operations(processor):
        site = Site(processor, MemoryStateFolder())
        site.faults.fails = lambda name, before, at=at: failing(name) if before >= at else None  # type: ignore[misc]
        site.run_worker()
        site.faults.fails = lambda _name, _before: None
        site.run_until_done()
        site.expect_kept()


@pytest.mark.parametrize("processor", [Totals, Silent, Exact, Logged])
def test_guarantees_hold_if_the_disk_is_full_under_rocksdb(processor: type[ps.Processor], tmp_path: Path) -> None:
    """Each state on a real disk is opened again with its saved content."""
    count = len(operations(processor))
    for at in range(0, count, max(1, count // 4)):
        site = Site(processor, RocksStateFolder(tmp_path / str(at)))
        site.faults.fails = lambda name, before, at=at: (  # type: ignore[misc]
            disk_full(name) if before >= at and name.startswith("state") else None
        )
        site.run_worker()
        site.faults.fails = lambda _name, _before: None
        site.run_until_done()
        site.expect_kept()


@pytest.mark.parametrize("processor", PLAIN)
@pytest.mark.parametrize("error", [CommitUnconfirmed, Fenced, MembershipLost])
def test_guarantees_hold_if_a_commit_is_refused(processor: type[ps.Processor], error: type[Exception]) -> None:
    """The worker continues, and nothing that waited for this checkpoint is lost."""
    commits = [at for at, name in enumerate(operations(processor)) if name == "bus: commit"]
    for at in commits:
        site = Site(processor, MemoryStateFolder())
        site.faults.fails = lambda _name, before, at=at: error("refused") if before == at else None  # type: ignore[misc]
        site.run_until_done()
        site.expect_kept()


@pytest.mark.parametrize("processor", PLAIN)
@pytest.mark.parametrize("error", [CommitUnconfirmed, Fenced, MembershipLost])
def test_guarantees_hold_if_a_commit_is_refused_during_a_rebalance(
    processor: type[ps.Processor], error: type[Exception]
) -> None:
    """The worker that gives up buckets cannot commit, and continues with its other buckets."""
    for refused in range(1, 12):
        site = Site(processor, MemoryStateFolder())
        first = site.worker("first")
        for _ in range(refused):
            first.run_once()
            site.clock.advance(0.4)
        second = site.worker("second")
        left = [1]

        def fails(name: str, _before: int, left: list[int] = left) -> Exception | None:
            return error("refused") if name == "bus: commit" and left and left.pop() else None

        site.faults.fails = fails
        expect_finished(site, [first, second])


def test_a_worker_whose_identity_another_process_uses_ends() -> None:
    """Each would otherwise end the other's membership forever. A successor takes it once, and earlier losses do not count."""
    site = Site(Copies, MemoryStateFolder())
    worker = site.worker("ab12-0")
    worker.run_once()
    for _ in range(MOST_FENCED - 1):
        worker._parts.ownership.rejoin(IdentityTaken("fenced"))
        worker._parts.ownership.rejoin(MembershipLost("an outage"))
        worker.run_once()
    with pytest.raises(
        IdentityShared, match=r"same identity, ab12-0.*no event is lost.*`copies/workers` of the clone's"
    ):
        worker._parts.ownership.rejoin(IdentityTaken("fenced"))

    later = site.worker("ab12-0")
    for _ in range(MOST_FENCED + 3):
        later._parts.ownership.rejoin(IdentityTaken("fenced"))
        site.clock.advance(QUIET_S)
    assert [_ordinal(number) for number in (1, 4, 11, 21, 112)] == ["first", "4th", "11th", "21st", "112th"]


def expect_finished(site: Site, workers: Sequence[Worker]) -> None:
    """Run workers until all events are read and saved, and check the outputs."""
    targets = ends_of(plan_of(site.processor).inputs, site.bus)
    for _ in range(2_000):
        for worker in workers:
            worker.run_once()
            site.clock.advance(0.4)
        if all(worker.owns_nothing or worker.has_reached(targets) for worker in workers):
            break
    for worker in workers:
        worker.save()
    for _ in range(200):
        for worker in workers:
            worker.run_once()
            site.clock.advance(0.4)
    for worker in workers:
        worker.save()
    site.expect_kept()


@pytest.mark.parametrize("processor", [CopiesOnce, Exact, Logged])
@pytest.mark.parametrize("turns", range(1, 14))
def test_buckets_assigned_during_the_pause_after_fencing_are_opened_once(
    processor: type[ps.Processor], turns: int
) -> None:
    """They are not read twice into one transaction when the worker opens its shards again."""
    site = Site(processor, MemoryStateFolder())
    first, second = site.worker("first"), site.worker("second")
    for _ in range(3):
        first.run_once()
        second.run_once()
    left = [1]

    def fails(name: str, _before: int) -> Exception | None:
        return Fenced("the outcome is unknown") if name == "bus: commit a transaction" and left and left.pop() else None

    site.faults.fails = fails
    while left:
        first.run_once()
        site.clock.advance(0.4)
    second.run(lambda _: True)
    for _ in range(turns):
        first.run_once()
    site.clock.advance(FENCED_PAUSE_S)

    expect_finished(site, [first])


LARGE = "x" * 600_000


class Posted(ps.Record, frozen=True):
    """A text about a meter."""

    meter: str
    at: ps.EventTime
    text: str


posts = ps.Category("posts", Posted, key="meter", event_time="at", buckets=3)


class Posting(ps.Aggregator):
    """Writes one output that is too large for any bus."""

    reads, writes, checkpoint = readings, posts, FEW
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Count()
    store = ps.RemoteStore(ps.WriteMode.READ_MERGE_WRITE)
    output_semantics = EXACT
    name = "posting"
    size = 2

    def observe(self, event: Reading) -> int:
        return 1

    def result(self, key: str, window: ps.windows.Window, value: int) -> Posted:
        return Posted(key, window.start, LARGE * (self.size if key == "m3" else 1))


class FixedPosting(Posting):
    """The same processor with the error fixed."""

    size = 1


class PostingAtMostOnce(ps.Stateless):
    """Writes one output that is too large for any bus, without state."""

    reads, writes, checkpoint, output_semantics = readings, posts, FEW, MOST

    def process(self, event: Reading) -> Iterable[Posted]:
        yield Posted(event.meter, event.at, LARGE * (2 if event.meter == "m3" else 1))


class Remembering(ps.Stateful):
    """Keeps a state that its changelog cannot store."""

    reads, writes, state, checkpoint = readings, totals, str, FEW
    state_semantics, output_semantics, deterministic, name = EXACT, EXACT, False, "remembering"

    def process(self, event: Reading, state: str | None, context: ps.Context) -> tuple[str, list[Total]]:
        return LARGE * (2 if event.meter == "m3" else 1), []


@pytest.mark.parametrize("processor", [Posting, PostingAtMostOnce, Remembering])
def test_an_oversized_output_or_state_is_refused_before_it_is_saved(processor: type[ps.Processor]) -> None:
    """Neither state nor positions include its event."""
    site = Site(processor, MemoryStateFolder(), EVENTS[:4])
    error = site.run_worker()

    assert isinstance(error, (MessageRefused, EventRejected))
    assert "bytes, and that category accepts 1,000,000" in str(error)
    assert "Its checkpoint was not saved" in str(error)
    assert site.bus.committed(processor.name, "readings") == {}


def test_a_fixed_processor_continues_after_an_oversized_output() -> None:
    """The failed checkpoint leaves nothing that blocks it."""
    states = MemoryStateFolder(merge_of(Posting()))
    site = Site(Posting, states, EVENTS[:8])
    assert isinstance(site.run_worker(), MessageRefused)
    site.processor = FixedPosting
    site.run_until_done()

    assert {post.meter for post in site.outputs()} == {event.meter for event in EVENTS[:8]}


def test_an_oversized_outbox_is_kept_until_it_can_be_sent() -> None:
    """The category's limit was lowered between two runs; the error explains what to do."""
    site = Site(FixedPosting, MemoryStateFolder(merge_of(FixedPosting())), EVENTS[:8])
    site.faults.fails = lambda name, _before: RuntimeError("died") if name == "bus: commit a transaction" else None
    assert isinstance(site.run_worker(), RuntimeError)
    site.faults.fails = lambda _name, _before: None
    site.bus.cluster.message_limit = 1_000
    error = site.run_worker()
    assert isinstance(error, MessageRefused)
    assert "They remain in the store" in str(error)
    site.bus.cluster.message_limit = MESSAGE_LIMIT
    site.run_until_done()

    assert {post.meter for post in site.outputs()} == {event.meter for event in EVENTS[:8]}
