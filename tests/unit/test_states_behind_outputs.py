"""States that are older than their outputs: reprocessed events repeat no output, and new events produce theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from support.disks import Disk, copy_of, restart

import penstock as ps
from penstock.ops.kernel import Driver, Worker, changelog_of, committed_positions, ends_of
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.testing import InlineExecutor, Killed
from penstock.processors.declare import plan_of
from penstock.processors.operators import merge_of
from penstock.processors.shard import Gap, StatePosition, Step
from penstock.state import MemoryStateFolder
from penstock.transport import Outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.groups import SESSION_MS
from penstock.transport.memory.network import Network

EXACT, MOST, LEAST = ps.Semantics.EXACTLY_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.AT_LEAST_ONCE


class Arrival(ps.Record, frozen=True):
    """The arrival of a parcel."""

    depot: str
    at: ps.EventTime


class Departure(Arrival, frozen=True):
    """The departure of a parcel."""


class Moved(ps.Record, frozen=True):
    """The number of parcels that a depot has moved."""

    depot: str
    at: ps.EventTime
    parcels: int


arrivals = ps.Category("arrivals", Arrival, key="depot", event_time="at", buckets=1)
departures = ps.Category("departures", Departure, key="depot", event_time="at", buckets=1)
moved = ps.Category("moved", Moved, key="depot", event_time="at", buckets=1)


class Moves(ps.Aggregator):
    """Counts the parcels of a depot."""

    reads, writes, monoid = (arrivals, departures), moved, ps.monoids.Count()
    store: ClassVar[Any] = ps.RemoteStore()
    checkpoint = ps.CheckpointInterval(events=1)

    def observe(self, event: Arrival) -> int:
        """Count one."""
        return 1

    def result(self, key: str, window: ps.windows.Window, value: int) -> Moved:
        """Return the number of parcels."""
        return Moved(key, 0, value)


class Passed(ps.Stateful):
    """Counts the parcels of a depot."""

    name, reads, writes, state = "passed", arrivals, moved, int

    def process(self, event: Arrival, state: int | None, context: ps.Context) -> tuple[int, list[Moved]]:
        """Count one."""
        parcels = (state or 0) + 1
        return parcels, [Moved(event.depot, event.at, parcels)]


def moves(output: ps.Semantics, **declared: Any) -> type[Moves]:
    """Return a processor with these output semantics."""
    return type("Moves", (Moves,), {"output_semantics": output, **declared})


def send_ten(driver: Driver, begin: int = 0) -> None:
    """Write ten events to each input."""
    driver.send(arrivals, [Arrival("north", at) for at in range(begin, begin + 10)])
    if len(plan_of(driver.app.processors[0]).inputs) > 1:
        driver.send(departures, [Departure("north", at) for at in range(begin, begin + 10)])


def write_transaction(driver: Driver, category: ps.Category[Any], records: Sequence[Any]) -> None:
    """Write records in a transaction, as a processor with exactly-once outputs does; its commit marker takes one offset."""
    writer = driver.bus.transactional_writer("upstream", None, 10.0, [])
    encoded = Codecs(driver.bus).of(category).encode(records)
    writer.send(
        category.name,
        [Outgoing(key.encode(), value) for key, value in zip(category.keys_of(records), encoded, strict=True)],
    )
    writer.commit([])
    writer.close()


@pytest.mark.parametrize("late", [arrivals, departures], ids=lambda category: category.name)
@pytest.mark.parametrize("disk", [Disk.NONE, Disk.OLDER])
@pytest.mark.parametrize("output", [EXACT, MOST], ids=lambda output: output.value)
def test_an_older_state_loses_no_new_event(output: ps.Semantics, disk: Disk, late: ps.Category[Any]) -> None:
    """New events of one input wait until the others have caught up; then they count, and their update is written."""
    processor = moves(output)
    driver = Driver(processor)
    send_ten(driver)
    older = copy_of(driver, processor)
    send_ten(driver, 10)
    before = driver.read(moved)
    driver._write(late, [late.record("north", 99)])
    restart(driver, processor, disk, older)

    assert driver.read(moved) == [*before, Moved("north", 0, 41)]
    driver.send(arrivals, [Arrival("north", 100)])
    assert driver.read(moved)[-1] == Moved("north", 0, 42)


@pytest.mark.parametrize("more", [[], [Arrival("south", 99)]], ids=["nothing new", "new events"])
@pytest.mark.parametrize("inputs", [(arrivals,), (arrivals, departures)], ids=len)
@pytest.mark.parametrize("store", [ps.LocalStore(), ps.RemoteStore()], ids=["local", "remote"])
@pytest.mark.parametrize("output", [EXACT, MOST], ids=lambda output: output.value)
def test_updates_are_written_once_although_commit_markers_take_offsets(
    output: ps.Semantics, store: Any, inputs: Sequence[ps.Category[Any]], more: Sequence[Arrival]
) -> None:
    """The group's position is after a commit marker, and no event has that offset."""
    processor = moves(
        output, reads=inputs, store=store, checkpoint=ps.CheckpointInterval()
    )  # no checkpoint during the catch-up
    driver = Driver(processor)
    for category in inputs:
        write_transaction(driver, category, [category.record("north", at) for at in range(10)])
    driver.run()
    before = driver.read(moved)
    write_transaction(driver, arrivals, more)
    restart(driver, processor, Disk.NONE, copy_of(driver, processor))

    assert driver.read(moved) == [*before, *(Moved(arrival.depot, 0, 1) for arrival in more)]


@pytest.mark.parametrize(
    "before", [None, Gap(Step.COMMIT_TRANSACTION), Gap(None)], ids=["survives", "dies early", "dies late"]
)
@pytest.mark.parametrize("late", [arrivals, departures], ids=lambda category: category.name)
@pytest.mark.parametrize("output", [EXACT, MOST], ids=lambda output: output.value)
def test_a_changelog_that_starts_after_the_outputs_loses_no_new_event(
    output: ps.Semantics, late: ps.Category[Any], before: Gap | None
) -> None:
    """A processor's outputs were at least once earlier, and its state is older than they are."""
    earlier, later = (moves(declared, store=ps.LocalStore()) for declared in (LEAST, output))
    driver = Driver(earlier)
    send_ten(driver)
    older = copy_of(driver, earlier)
    send_ten(driver, 10)
    written = driver.read(moved)
    changelog = changelog_of(later)
    assert changelog is not None
    driver.bus.create(changelog)
    driver._discard_worker(earlier)
    driver._write(late, [late.record("north", 99)])
    for dies in (before, None):
        worker = Worker(
            later(), WorkerConfig(driver.bus, older, "later"), InlineExecutor(), InlineExecutor(), clock=driver.clock
        )
        worker.at_gap = killed_at(dies)
        with suppress(Killed):
            read_to_end(worker, driver)
        driver.bus.kill_members("moves")

    assert driver.read(moved) == [*written, Moved("north", 0, 41)]


@pytest.mark.parametrize("store", [ps.LocalStore(), ps.RemoteStore()], ids=["local", "remote"])
@pytest.mark.parametrize(
    ("state", "output"), [(EXACT, LEAST), (EXACT, MOST), (LEAST, LEAST)], ids=lambda semantics: semantics.value
)
def test_the_groups_position_of_a_quiet_bucket_catches_up_with_its_state(
    state: ps.Semantics, output: ps.Semantics, store: Any
) -> None:
    """A worker died between saving its state and committing offsets; the next one commits them without a new event."""
    processor = moves(output, reads=arrivals, store=store, state_semantics=state)
    driver, states = Driver(processor), MemoryStateFolder(merge_of(processor()))
    driver._write(arrivals, [Arrival("north", at) for at in range(10)])
    dying = Worker(
        processor(), WorkerConfig(driver.bus, states, "dying"), InlineExecutor(), InlineExecutor(), clock=driver.clock
    )
    dying.at_gap = killed_at(Gap(Step.COMMIT_OFFSETS))
    with pytest.raises(Killed):
        read_to_end(dying, driver, [arrivals])
    assert committed_positions(processor, driver.bus).get(0, StatePosition()).offsets.get("arrivals", 0) == 0
    driver.bus.kill_members("moves")

    worker = Worker(
        processor(), WorkerConfig(driver.bus, states, "next"), InlineExecutor(), InlineExecutor(), clock=driver.clock
    )
    for _ in range(5):
        worker.run_once()
        driver.clock.advance(1.0)

    assert committed_positions(processor, driver.bus)[0].offsets == {"arrivals": 10}
    assert worker.metrics.events_in == 0
    assert worker.metrics.checkpoints == 1


class Buffering(Network):
    """A network whose clients send their messages with the next flush."""

    def buffers(self) -> bool:
        """Buffer all."""
        return True


@pytest.mark.parametrize(
    ("output", "pauses_at", "counts"),
    [
        (MOST, Step.SEND_OUTPUTS, [2]),
        (LEAST, Step.FLUSH_OUTPUTS, [2]),
        (LEAST, Step.SAVE_TOGETHER, [1, 2]),
        (EXACT, Step.COMMIT_TRANSACTION, [1, 2]),
    ],
    ids=lambda one: one.value if isinstance(one, Step | ps.Semantics) else "",
)
def test_a_paused_worker_sends_no_output_after_its_successor(
    output: ps.Semantics, pauses_at: Step, counts: list[int]
) -> None:
    """The newest output is the last. At most once, the outputs of the paused worker are missing."""
    processor = moves(output, reads=arrivals)
    driver, states = Driver(processor), MemoryStateFolder(merge_of(processor()))
    bus = MemoryBus(cluster=driver.bus.cluster, network=Buffering())
    paused = Worker(
        processor(), WorkerConfig(bus, states, "paused"), InlineExecutor(), InlineExecutor(), clock=driver.clock
    )

    def pause(gap: Gap) -> None:
        if gap == Gap(pauses_at):
            paused.at_gap = lambda _: None
            driver.bus.kill_members("moves")
            driver.clock.advance(SESSION_MS / 1000)
            driver._write(arrivals, [Arrival("north", 2)])
            place = WorkerConfig(driver.bus, states, "successor")
            successor = Worker(processor(), place, InlineExecutor(), InlineExecutor(), clock=driver.clock)
            read_to_end(successor, driver, [arrivals])

    paused.at_gap = pause
    driver._write(arrivals, [Arrival("north", 1)])
    for _ in range(5):
        paused.run_once()

    assert [one.parcels for one in driver.read(moved)] == counts


def killed_at(death: Gap | None) -> Callable[[Gap], None]:
    """Return a callback that kills a worker in one gap of a checkpoint."""

    def at_gap(gap: Gap) -> None:
        if gap == death:
            raise Killed(f"died {gap}")

    return at_gap


def read_to_end(worker: Worker, driver: Driver, inputs: Sequence[ps.Category[Any]] = (arrivals, departures)) -> None:
    """Run a worker to the end of its inputs, and save."""
    targets = ends_of(inputs, driver.bus)
    for _ in range(100):
        worker.run_once()
        if worker.has_reached(targets):
            worker.save()
            return
    raise AssertionError("it has not read to the end in a hundred iterations")


@pytest.mark.parametrize(("is_replaced", "counts"), [(True, [2]), (False, [1])])
def test_outputs_that_were_computed_before_a_pause_are_sent_by_the_owner_only(
    monkeypatch: pytest.MonkeyPatch, is_replaced: bool, counts: list[int]
) -> None:
    """After a pause between `process` and its outputs, the worker asks its group whether it still owns the bucket."""
    driver, states = Driver(Passed), MemoryStateFolder(merge_of(Passed()))

    def start(identity: str) -> Worker:
        place = WorkerConfig(driver.bus, states, identity)
        return Worker(Passed(), place, InlineExecutor(), InlineExecutor(), clock=driver.clock)

    paused = start("paused")
    driver._write(arrivals, [Arrival("south", 0)])
    read_to_end(paused, driver, [arrivals])
    send = paused._parts.batches._outputs.send

    def send_after_a_pause(*outputs: Any) -> None:
        monkeypatch.undo()
        driver.clock.advance(SESSION_MS / 1000 - 1.0)
        if is_replaced:
            driver.bus.kill_members("passed")
            driver._write(arrivals, [Arrival("north", 2)])
            read_to_end(start("successor"), driver, [arrivals])
        send(*outputs)

    monkeypatch.setattr(paused._parts.batches._outputs, "send", send_after_a_pause)
    driver._write(arrivals, [Arrival("north", 1)])
    for _ in range(5):
        paused.run_once()

    assert [one.parcels for one in driver.read(moved) if one.depot == "north"] == [*range(1, counts[0]), *counts]
