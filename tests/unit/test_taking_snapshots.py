"""The coordinator of snapshots beside real workers, which step whenever it waits: two coordinators at once, and workers that are late or die."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import chain, count
from math import inf
from pathlib import Path
from threading import Condition, Event
from typing import Any, NoReturn

import pytest
from support.machines import Machine, create_categories, write
from support.maintenance import worker_backups
from support.resets import Copies, Totals, generate_readings, readings

import penstock as ps
from penstock.ops.change.snapshots import taking
from penstock.ops.change.snapshots.snapshot import SnapshotError, SnapshotStore
from penstock.ops.change.snapshots.taking import take_snapshot
from penstock.ops.kernel import Worker, prepare
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.shards.resume_checks import event_times, positions_of_group
from penstock.ops.kernel.testing import InlineExecutor
from penstock.state.files import LocalFileStore
from penstock.state.local import RocksStateFolder
from penstock.transport import Bucket, Fenced, create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.network import Network
from penstock.transport.tables import SNAPSHOTS, SnapshotChannel, SnapshotOrder, SnapshotRequest

STEP_S = 0.1


class Steps(Network):
    """The network of a coordinator, whose waiting is a step of the others."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Let the others take a step."""
        self._step()
        return until()


class Turns:
    """Lets threads take turns, so that one runs at a time."""

    def __init__(self, *names: str) -> None:
        self._queue = deque(names)
        self._changed = Condition()

    def pass_on(self, name: str) -> None:
        """Let the next thread run until it passes on."""
        with self._changed:
            self._queue.rotate(-1)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._queue[0] == name)

    @contextmanager
    def taken_by(self, name: str) -> Iterator[None]:
        """Run a block in turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue[0] == name)
        try:
            yield
        finally:
            with self._changed:
                self._queue.remove(name)
                self._changed.notify_all()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a backup store, and readings in their category."""
    machine = Machine(tmp_path / "machine", MemoryBus(), LocalFileStore(tmp_path / "place"))
    create_categories(machine.bus, [Totals])
    create_missing_categories(machine.bus, SNAPSHOTS)
    write(machine.bus, readings, generate_readings(0, 20))
    return machine


@contextmanager
def working(
    machine: Machine, name: str = "worker", processor: type[ps.Processor] = Totals
) -> Iterator[Callable[[], None]]:
    """Run a worker that takes part in snapshots; the result lets it take a step."""
    config = WorkerConfig(
        machine.bus, RocksStateFolder(machine.states), name, worker_backups(machine), takes_snapshots=True
    )
    worker = Worker(prepare(processor, machine.bus), config, InlineExecutor(), InlineExecutor(), clock=machine.clock)

    def step() -> None:
        machine.clock.advance(STEP_S)
        worker.run_once()

    try:
        yield step
    finally:
        worker.stop()
        worker.run()


def take(
    machine: Machine,
    step: Callable[[], None],
    report: Callable[[str], None] = lambda _: None,
    processor: type[ps.Processor] = Totals,
) -> str:
    """Take a snapshot, and return its id."""
    bus = MemoryBus(cluster=machine.bus.cluster, network=Steps(step))
    return take_snapshot("app", [processor], bus, machine.place, report).id


def exchanged(machine: Machine) -> list[dict[str, Any]]:
    """Return the requests of coordinators, and the answers of workers."""
    end = machine.bus.ends(SNAPSHOTS.name)[0]
    return [json.loads(message.value() or b"{}") for message in machine.bus.slice(Bucket(SNAPSHOTS.name, 0), 0, end)]


def requested(machine: Machine) -> list[str]:
    """Return what coordinators have requested."""
    return [message["request"] for message in exchanged(machine) if "request" in message]


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
def test_of_two_coordinators_at_once_one_takes_its_snapshot(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, int]
) -> None:
    """The other one ends, without ending the first one. A clock may be behind."""
    ids = chain(numbers, count(3))
    monkeypatch.setattr(taking, "new_id", lambda: f"20261124T00000{next(ids)}-0000")
    monkeypatch.setattr(taking, "PAUSES_S", (0.01, 0.01))
    turns, ended = Turns("a", "b"), list[str]()

    def coordinate(name: str, step: Callable[[], None]) -> None:
        def wait() -> None:
            step()
            turns.pass_on(name)

        with turns.taken_by(name):
            try:
                take(machine, wait)
            except SnapshotError as error:
                ended.append(str(error))

    with working(machine) as step, ThreadPoolExecutor() as threads:
        for done in [threads.submit(coordinate, name, step) for name in ("a", "b")]:
            done.result()

    assert len(SnapshotStore(machine.place).ids("app")) == 1
    assert ["Another process takes snapshot" in one for one in ended] == [True]


def test_nothing_is_held_until_the_workers_are_ready(machine: Machine) -> None:
    """The coordinator asks a restarting worker repeatedly, and outputs of the others do not wait for it."""
    with working(machine) as step:
        before = list[str]()

        def late() -> None:
            if len(requested(machine)) >= 3:
                step()
            else:
                before[:] = requested(machine)

        take(machine, late)

    assert set(before) == {"prepare"}
    assert "release" in requested(machine)


def test_a_worker_that_dies_while_it_stores_its_copies_delays_the_snapshot_only(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copies are lost, which the coordinator notices, and takes the snapshot again with the next worker."""
    monkeypatch.setattr(taking, "ALIVE_LIMIT_S", 0.2)
    monkeypatch.setattr(taking, "ASK_EVERY_S", 0.1)
    monkeypatch.setattr(taking, "PAUSES_S", (0.01, 0.01))
    notes = list[str]()

    def live() -> None:
        if len(notes) != 1:  # the first note is about the cut, the second one about the failure
            step()

    with working(machine) as step:
        id_ = take(machine, live, notes.append)

    assert "died meanwhile" in notes[1]
    assert SnapshotStore(machine.place).ids("app") == [id_]


@pytest.mark.parametrize("stage", ["hold", "release"])
def test_a_worker_that_starts_again_ends_the_attempt_and_outputs_wait_no_longer(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """The attempt ends before any time limit."""
    for limit in ("HOLD_LIMIT_S", "ALIVE_LIMIT_S"):
        monkeypatch.setattr(taking, limit, inf)
    notes = list[str]()
    after = Machine(tmp_path / "after", machine.bus, machine.place)
    with working(machine) as step, working(after) as step_after:

        def live() -> None:
            if stage in requested(machine):
                step_after()
            else:
                step()

        id_ = take(machine, live, notes.append)

    assert any("has started since" in note for note in notes)
    assert SnapshotStore(machine.place).ids("app") == [id_]


class SlowFileStore(LocalFileStore):
    """A backup store that stores nothing before it is opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened = Event()

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file, as soon as the store is open."""
        self.opened.wait()
        super().write(path, chunks)


def test_a_worker_that_stores_its_copies_slowly_is_waited_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers meanwhile, for longer than the limit for a dead worker."""
    monkeypatch.setattr(taking, "ALIVE_LIMIT_S", 4.0)
    monkeypatch.setattr(taking, "ASK_EVERY_S", 0.05)
    machine.place = place = SlowFileStore(Path(machine.folder.parent / "place"))
    notes = list[str]()
    with working(machine) as step:

        def live() -> None:
            step()
            if requested(machine).count("check") > 100:
                place.opened.set()

        take(machine, live, notes.append)

    assert len(notes) == 1


def test_a_worker_may_die_after_its_copies_are_stored(machine: Machine, tmp_path: Path) -> None:
    """The snapshot no longer needs it, and does not depend on the answers of its successor."""
    slow = Machine(tmp_path / "slow", machine.bus, place := SlowFileStore(machine.folder.parent / "place"))
    after, notes = Machine(tmp_path / "after", machine.bus, machine.place), list[str]()
    with working(machine, "one") as step, working(slow, "two") as step_slow, working(after, "one") as step_after:

        def live() -> None:
            stages = [message["stage"] for message in exchanged(machine) if message.get("worker") == "one"]
            (step_after if "stored" in stages else step)()
            step_slow()
            if "failed" in stages:
                place.opened.set()

        take(machine, live, notes.append)

    assert len(notes) == 1


def test_a_snapshot_contains_the_event_times_of_processors_without_state(machine: Machine) -> None:
    """Their clones and restored apps can then continue with the watermarks of their inputs."""
    with working(machine, processor=Copies) as step:
        id_ = take(machine, step, processor=Copies)

    shards = SnapshotStore(machine.place).read("app", id_).processors[Copies.name].shards
    committed = event_times(positions_of_group(Copies, machine.bus))
    assert {number: shard.event_times for number, shard in shards.items()} == {
        number: times.inputs for number, times in committed.items()
    }
    assert all(shard.event_times.keys() == {"readings"} for shard in shards.values())


def test_messages_of_snapshots_go_on_after_their_writer_has_failed_for_good(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed message is reported, and the next one opens a new writer."""
    create_missing_categories(machine.bus, SNAPSHOTS)
    writer = machine.bus.writer()
    monkeypatch.setattr(writer, "flush", _fail)
    first, second = (SnapshotRequest("app", id_, SnapshotOrder.PREPARE, ()) for id_ in ("first", "second"))
    with closing(SnapshotChannel(machine.bus)) as channel:
        with monkeypatch.context() as failing:
            failing.setattr(machine.bus, "writer", lambda: writer)
            with pytest.raises(Fenced):
                channel.send(first)
        channel.send(second)

    assert exchanged(machine)[-1]["snapshot"] == "second"


def _fail() -> NoReturn:
    raise Fenced("the client has failed")
