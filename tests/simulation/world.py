"""A run: brokers, machines and processes, the input, what goes wrong, and whether all was kept in the end.

begin --input, faults--> heal: nothing goes wrong any more --> all has to come to its end --> held against the truth
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from support.kinds import HOUR_MS, Event
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.errors import BackfillRefused
from penstock.ops.worker.backups import WorkerBackups
from penstock.ops.worker.preflight import prepare
from penstock.ops.worker.shard import Shard
from penstock.ops.worker.shard_loader import NoBackups
from penstock.ops.worker.worker import Worker
from penstock.ops.worker.worker import WorkerConfig as WorkerPlace
from penstock.processors.errors import PenstockError
from penstock.processors.operators import merge_of
from penstock.state.checkpoints import Gap
from penstock.state.protocols import StateFolder
from penstock.transport.bus import Bucket, CategorySpec, Outgoing
from penstock.transport.errors import BusUnreachable
from penstock.transport.internal_topics import ensure
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.cluster import Cluster
from penstock.transport.memory.groups import SESSION_MS
from penstock.transport.tables.upstream_watermarks import WATERMARKS, WatermarkStatement, outgoing

from .archiving import SimulatedWarehouse, archiver, expect_archived, expect_no_gaps
from .backing_up import EVERY, BackupsOf, Place
from .disks import Disk, SimulatedStates
from .faults import OF_ALL, OF_REQUESTS, ON_EMPTY_DISKS, Fault, What
from .inputs import END_MS, complete_ms, rounds
from .network import Brokers, SimulatedLine
from .nodes import Node
from .scenario import Scenario
from .scheduler import START_MS, Process, Scheduler, SimulatedExecutor, running
from .seams import steered
from .stores import SimulatedRemoteStates, Store, StoreLine
from .truth import expect_kept, expect_nothing_wrong

ENDING_S = 300.0
"""By when everything has come to its end when nothing goes wrong any more."""
REFUSALS = 5
"""After how many ends, while nothing goes wrong, a worker is taken to refuse for good."""
LOOK_AT_ARCHIVE_S = 5.0
LOOK_EVERY_S = 2.0
RESTART_S = 2.0
"""How long it takes to start a worker again that ended by itself."""
FIRST_STRANGE = 1_000_000
"""The number of the first event that others write to a category that was made anew."""
STRANGE_EVENTS = 20
"""How much further than before they fill it."""


class Stuck(AssertionError):
    """Something does not come to its end."""


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Args:
        failure: what was not kept; None where all was.
        history: what happened.
        digest: the same for the same run.
        points: how many points were passed.
        virtual_s: how long it took there.
    """

    failure: str | None
    history: Sequence[str]
    digest: str
    points: int
    virtual_s: float


class SimulatedClock:
    """The scheduler's time, as a worker asks for it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic_s(self) -> float:
        """Return seconds since the begin."""
        return (self._scheduler.now_ms - START_MS) / 1000

    def now_ms(self) -> int:
        """Return milliseconds since 1970, UTC."""
        return int(self._scheduler.now_ms)


@dataclass(eq=False)
class Machine:
    """A machine with a worker, which is started again when it ends.

    Args:
        name: of machine and worker.
        node: what its worker runs; None for a machine with an archiver.
        disk: where the states are.
    """

    name: str
    node: Node | None
    disk: Disk
    disks: int = 0
    process: Process | None = None
    worker: Worker | None = None
    starts_ms: float = START_MS
    refusals: int = 0

    @property
    def identity(self) -> str:
        """By what the worker is known: it is kept on the disk."""
        return f"{self.name}.{self.disks}"


class World:
    """Everything there is.

    Args:
        scenario: what happens.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.scheduler = Scheduler(scenario.seed)
        self.clock = SimulatedClock(self.scheduler)
        self.brokers = Brokers(self.scheduler)
        self.cluster = Cluster(self.clock.now_ms)
        self.bus = MemoryBus(cluster=self.cluster)
        self.history: list[str] = []
        self.sent: dict[str, list[Event]] = {name: [] for name in scenario.sources}
        self.machines = [
            Machine(f"{node.name}-{number}", node, Disk(self.scheduler))
            for node in scenario.nodes
            for number in range(node.workers)
        ]
        self.machines += [
            Machine(f"archiver-{number}", None, Disk(self.scheduler)) for number in range(scenario.archivers)
        ]
        self.processors = {node: node.make() for node in scenario.nodes}
        self.place = Place()
        self.store = Store()
        self.may_refuse = False
        self.warehouse = MemoryWarehouse()
        self._warehouse_away_until_ms = 0.0
        self._looked_ms = 0.0
        self._armed: list[Fault] = []
        self._waiting = list(scenario.faults)
        self._is_written = False
        self.scheduler.interfere = self._interfere
        self.scheduler.pass_time = self.cluster.look

    def note(self, who: str, what: str) -> None:
        """Add to the history."""
        self.history.append(f"{self.clock.monotonic_s():9.3f} s  {who:<14} {what}")

    # What goes wrong.

    def _interfere(self, process: Process, what: str) -> None:
        fault = self._struck(process, what, lambda one: one not in OF_REQUESTS)
        if fault is not None:
            self._befall(process, fault)

    def _strike(self, process: Process, what: str) -> Fault | None:
        fault = self._struck(process, what, OF_REQUESTS.__contains__)
        if fault is not None:
            self.note(process.name, str(fault.what.value) + f" ({what}, {fault.lasts_s:.1f} s)")
        return fault

    def _struck(self, process: Process, what: str, fits: Callable[[What], bool]) -> Fault | None:
        for fault in self._armed:
            if fault.who == process.name and fits(fault.what) and fault.where in {"", what}:
                self._armed.remove(fault)
                return fault
        return None

    def _befall(self, process: Process, fault: Fault) -> None:
        machine = next(machine for machine in self.machines if machine.process is process)
        self.note(
            process.name,
            f"{fault.what.value}"
            + (f" at '{fault.where}'" if fault.where else "")
            + (f", {fault.lasts_s:.1f} s" if fault.lasts_s else ""),
        )
        match fault.what:
            case What.PAUSE:
                self.scheduler.pause(process, fault.lasts_s)
            case What.STOP:
                machine.starts_ms = self.scheduler.now_ms + fault.lasts_s * 1000
                if machine.worker is not None:
                    machine.worker.stop()
            case What.KILL | What.POWER | What.DISK:
                self.scheduler.kill(process)
                machine.starts_ms = self.scheduler.now_ms + fault.lasts_s * 1000
                if fault.what is What.POWER:
                    machine.disk.cut_power()
                if fault.what is What.DISK:
                    machine.disk.lose()
                    machine.disks += 1
            case What.FULL:
                machine.disk.full_until_ms = self.scheduler.now_ms + fault.lasts_s * 1000

    def _arm(self) -> None:
        """Let those faults wait for their place whose time has come."""
        now_s = self.clock.monotonic_s()
        while self._waiting and self._waiting[0].at_s <= now_s:
            fault = self._waiting.pop(0)
            if fault.what is What.BROKERS:
                self.note("", f"{fault.what.value} for {fault.lasts_s:.1f} s")
                self.brokers.go(fault.lasts_s)
            elif fault.what in OF_ALL:
                self._befall_all(fault)
            else:
                self._armed.append(fault)

    def _befall_all(self, fault: Fault) -> None:
        self.note(
            fault.who, f"{fault.what.value} {fault.where}" + (f" for {fault.lasts_s:.1f} s" if fault.lasts_s else "")
        )
        match fault.what:
            case What.SLEEP:
                for machine in self.machines:
                    if machine.process is not None and not machine.process.is_dead:
                        self.scheduler.pause(machine.process, fault.lasts_s)
            case What.PLACE | What.STORE | What.WAREHOUSE:
                self._go_away(fault.what, self.scheduler.now_ms + fault.lasts_s * 1000)
            case What.CLEAN:
                self._clean()
            case What.RECREATE:
                self._recreate(fault.who)
            case What.GROW:
                self.may_refuse = True
                self.bus.resize(fault.who, self.cluster.topic(fault.who).spec.buckets + 1)
            case What.EXPIRE:
                self._expire(next(node for node in self.processors if node.name == fault.who), fault)

    def _go_away(self, what: What, until_ms: float) -> None:
        """Let something answer nobody for a while."""
        if what is What.PLACE:
            self.place.away_until_ms = until_ms
        elif what is What.STORE:
            self.store.away_until_ms = until_ms
        else:
            self._warehouse_away_until_ms = until_ms

    def _recreate(self, name: str) -> None:
        """Put a category of other events in the place of one, in which nobody's position means anything."""
        self.may_refuse = True
        for machine in self.machines:
            if machine.process is not None:
                self.scheduler.kill(machine.process)
        before = self.cluster.topic(name)
        self.bus.delete(name)
        self.bus.create(before.spec)
        for number, log in enumerate(before.logs):
            for place in range(log.end + STRANGE_EVENTS):
                strange = Event("strange", END_MS - HOUR_MS, FIRST_STRANGE + place)
                self.bus.append(name, Outgoing(b"strange", msgspec.json.encode(strange), number))

    def _clean(self) -> None:
        """Compact what is compacted, dropping deletions that are as old as its brokers allow."""
        now_ms = self.clock.now_ms()
        for topic in self.cluster.topics.values():
            if topic.spec.compacted:
                kept_ms = (topic.spec.deletions or timedelta(days=1)) // timedelta(milliseconds=1)
                for log in topic.logs:
                    log.compact(now_ms, now_ms - kept_ms)

    def _expire(self, node: Node, fault: Fault) -> None:
        """Let all workers of a processor die; when they come back, nobody knows where their group was, nor is kept what it had read."""
        for machine in self.machines:
            if machine.node is node:
                if machine.process is not None:
                    self.scheduler.kill(machine.process)
                machine.starts_ms = self.scheduler.now_ms + SESSION_MS + 1000
                if fault.where == ON_EMPTY_DISKS:
                    machine.disk.lose()
                    machine.disks += 1
        self.may_refuse = True
        self._trim(node)

        def expire() -> None:
            self.scheduler.sleep(SESSION_MS / 1000)
            self.cluster.look()
            self.cluster.group(node.name).committed.clear()

        self.scheduler.spawn(Process("brokers"), "brokers", expire)

    def _trim(self, node: Node) -> None:
        """Drop what a processor has read, as far as its backups have it."""
        found = {
            identity: self.place.newest(identity) for identity in self.place.backups if identity.processor == node.name
        }
        for identity, backup in found.items():
            for name, offset in ({} if backup is None else backup.content.position()).items():
                if name in node.reads:
                    self.cluster.log(Bucket(name, identity.bucket)).trim(offset)

    def _heal(self) -> None:
        self._armed.clear()
        self._waiting.clear()
        self.note("", "from here on nothing goes wrong")
        for machine in self.machines:
            machine.refusals = 0

    # Processes.

    def _start(self, machine: Machine) -> None:
        process = Process(machine.name)
        machine.process = process
        machine.worker = None

        def work() -> None:
            try:
                self._work(machine, process)
            except PenstockError as error:
                self.note(process.name, f"ends: {type(error).__name__}: {error}")
                machine.refusals += 1
            finally:
                if not process.is_dead:
                    self.scheduler.kill(process)
                    machine.starts_ms = max(machine.starts_ms, self.scheduler.now_ms + RESTART_S * 1000)

        self.note(process.name, "starts")
        self.scheduler.spawn(process, machine.name, work)

    def _work(self, machine: Machine, process: Process) -> None:
        bus = MemoryBus(cluster=self.cluster, line=SimulatedLine(self.scheduler, process, self.brokers, self._strike))
        if machine.node is None:
            self._archive(bus)
            return
        processor = prepare(self.processors[machine.node], bus)
        place = WorkerPlace(
            bus, self._states(machine, process, processor), machine.identity, self._backups(machine, process)
        )
        threads = SimulatedExecutor(self.scheduler, process, f"{machine.name} opener")
        saver = SimulatedExecutor(self.scheduler, process, f"{machine.name} saver", 1)
        asker = SimulatedExecutor(self.scheduler, process, f"{machine.name} asker", 1)
        worker = Worker(processor, place, threads, saver, clock=self.clock, at_gap=self._at_gap, asker=asker)
        machine.worker = worker
        worker.run()
        self.note(process.name, "has stopped")

    def _archive(self, bus: MemoryBus) -> None:
        away = SimulatedWarehouse(
            self.warehouse, self.scheduler, lambda: self.scheduler.now_ms < self._warehouse_away_until_ms
        )
        categories = {c.name: c for one in self.processors.values() for c in one.inputs()}
        archiver(bus, [categories[name] for name in self.scenario.sources], away, self.clock).run()

    def _states(self, machine: Machine, process: Process, processor: ps.Processor) -> StateFolder:
        if machine.node is None or not machine.node.is_remote:
            return SimulatedStates(machine.disk, self.scheduler, process)
        line = StoreLine(self.store, self.scheduler, process, self._strike)
        return SimulatedRemoteStates(line, merge_of(processor))

    def _backups(self, machine: Machine, process: Process) -> WorkerBackups | NoBackups:
        if machine.node is None or not machine.node.backups:
            return NoBackups()
        own: Any = BackupsOf(self.place, machine.disk, self.scheduler, process)
        return WorkerBackups(own, own, EVERY)

    def _at_gap(self, gap: Gap) -> None:
        self.scheduler.point(f"gap {gap}")

    def _write(self) -> None:
        """Write the input, and promise that it is complete so far. What could not be written in an outage comes after it, all at once."""
        scenario, due_s = self.scenario, 0.0
        waits_s = (*scenario.rounds_s, 1.0)
        writer, told = self.bus.writer(), {name for node in scenario.nodes if node.promised for name in node.reads}
        all_rounds = rounds(
            scenario.seed,
            len(scenario.rounds_s),
            scenario.events,
            len(scenario.sources),
            quiet=scenario.quiet,
            lame=scenario.lame,
            lopsided=scenario.lopsided,
        )
        for turn, (wait_s, written) in enumerate(zip(waits_s, all_rounds, strict=True)):
            due_s += wait_s
            self.scheduler.sleep(max(due_s - self.clock.monotonic_s(), 0.0))
            for name, events in zip(scenario.sources, written, strict=True):
                self.scheduler.wait(lambda: self.brokers.are_up)
                writer.send(name, [Outgoing(event.key.encode(), msgspec.json.encode(event)) for event in events])
                self.sent[name].extend(events)
                complete = complete_ms(turn, len(scenario.rounds_s), lopsided=scenario.lopsided)
                if name in told:
                    ends = {name: self.bus.ends(name)}
                    writer.send(WATERMARKS.name, outgoing([WatermarkStatement(f"source:{name}", 0, 1, complete, ends)]))
        self._is_written = True

    # The whole.

    def run(self) -> None:
        """Let everything happen.

        Raises:
            AssertionError: something was not kept.
        """
        for category in {
            c.name: c for one in self.processors.values() for c in (*one.inputs(), *one.outputs())
        }.values():
            self.bus.create(CategorySpec.of(category))
        ensure(self.bus, WATERMARKS)
        with running(self.scheduler):
            source = Process("source")
            self.scheduler.spawn(source, "source", self._write)
            while not (self._is_written and not self._waiting):
                self._turn(0.5)
            last_ms = max((fault.lasts_s for fault in self.scenario.faults), default=0.0) * 1000 + self.scheduler.now_ms
            while self._armed and self.scheduler.now_ms < last_ms:
                self._turn(1.0)
            self._heal()
            self._come_to_the_end()

    def _turn(self, seconds: float) -> None:
        """Start what is to be started, then let time pass."""
        self._arm()
        for machine in self.machines:
            if (machine.process is None or machine.process.is_dead) and machine.starts_ms <= self.scheduler.now_ms:
                self._start(machine)
        self.scheduler.sleep(seconds)
        if self.scheduler.failures:
            raise self.scheduler.failures[0]
        if self.scenario.archivers and self.scheduler.now_ms >= self._looked_ms + LOOK_AT_ARCHIVE_S * 1000:
            self._looked_ms = self.scheduler.now_ms
            for name in self.scenario.sources:
                expect_no_gaps(self.bus, self.warehouse, name)

    def _come_to_the_end(self) -> None:
        limit_ms = self.scheduler.now_ms + ENDING_S * 1000
        while True:
            self._turn(LOOK_EVERY_S)
            try:
                self._expect_read()
                expect_kept(self)
                for name in self.scenario.sources if self.scenario.archivers else ():
                    expect_archived(self.bus, self.warehouse, name)
            except (AssertionError, BusUnreachable, BackfillRefused) as error:
                if self.may_refuse and any(machine.refusals >= REFUSALS for machine in self.machines):
                    expect_nothing_wrong(self)
                    return
                if self.scheduler.now_ms > limit_ms:
                    raise Stuck(f"{error}") from error
            else:
                return

    def _expect_read(self) -> None:
        """Expect that every processor has read and saved all of its input."""
        for node, processor in self.processors.items():
            for category in processor.inputs():
                committed = self.bus.committed(processor.name, category.name)
                for number in self.bus.ends(category.name):
                    reached = max(committed.get(number, 0), self._saved(node, Bucket(category.name, number)))
                    unread = self.bus.slice(Bucket(category.name, number), reached, 1)
                    assert not unread, (
                        f"{node.name} has not read {category.name}/{number} from offset {unread[0].at} on"
                    )

    def _shards(self, node: Node) -> Iterator[Shard]:
        """Give the shards of a processor that are open, of workers that live."""
        for machine in self.machines:
            if machine.node is node and machine.worker is not None and machine.process and not machine.process.is_dead:
                yield from machine.worker.shards

    def _saved(self, node: Node, bucket: Bucket) -> int:
        """Return up to where a bucket is read and saved: of a quiet one, the group may not know it yet."""
        saved = (shard.saved_position for shard in self._shards(node) if shard.number == bucket.number)
        return max((position.get(bucket.category, 0) for position in saved), default=0)

    def outputs(self, name: str) -> list[dict[str, Any]]:
        """Return what readers of committed data find in a category."""
        ends = self.bus.ends(name)
        logs = [self.cluster.topic(name).logs[number] for number in ends]
        return [json.loads(message.value() or b"null") for log in logs for message in log.committed(0, 1 << 60)]

    def state(self, node: Node) -> dict[bytes, bytes]:
        """Return what is saved, of all shards of a processor, by those who own them now."""
        found: dict[bytes, bytes] = {}
        for shard in self._shards(node):
            if shard.state is not None and shard.state.database is not None:
                found |= shard.state.database.content.values()
        return found

    def digest(self) -> str:
        """Return what is the same for the same run."""
        hashed = hashlib.sha256()
        for name in sorted(self.cluster.topics):
            for log in self.cluster.topics[name].logs:
                for message in log.committed(0, 1 << 60):
                    hashed.update(repr((name, message.at, message.payload, message.arrived_ms)).encode())
        hashed.update(repr((self.scheduler.points, self.scheduler.now_ms, self.history)).encode())
        return hashed.hexdigest()[:16]


def run(scenario: Scenario) -> Outcome:
    """Run a scenario."""
    world = World(scenario)
    failure = None
    with steered(world.scheduler, scenario.seed):
        try:
            world.run()
        except AssertionError as error:
            failure = f"{type(error).__name__}: {error}"
    world.history.append(f"{world.clock.monotonic_s():9.3f} s  {'':<14} {failure or 'all was kept'}")
    return Outcome(failure, world.history, world.digest(), world.scheduler.points, world.clock.monotonic_s())
