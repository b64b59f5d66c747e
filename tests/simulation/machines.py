"""Machines with workers or archivers; a process that ends is restarted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import penstock as ps
from penstock.ops.kernel import Worker, ends_of, prepare
from penstock.ops.kernel.checkpoint.checkpoint_executor import CheckpointRefused
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.loop.until_end import UntilEnd
from penstock.ops.kernel.shards.backup_protocol import NoBackups
from penstock.ops.kernel.shards.backups import WorkerBackups
from penstock.ops.shell.process.clock import WallClock
from penstock.processors import PenstockError
from penstock.processors.apps import upstream_of
from penstock.processors.declare import plan_of
from penstock.processors.shard import Gap, Shard
from penstock.state import ShardIdentity, StateFolder
from penstock.transport import Bus, Clusters, placement_of
from penstock.transport.memory import MemoryBus

from .archiving import SimulatedFiles, archiver
from .backing_up import EVERY, ProcessBackups
from .backup_files import ProcessFiles
from .category_settings import SECOND_CLUSTER
from .disks import Disk, SimulatedStates
from .network import SimulatedNetwork
from .nodes import Node
from .reporting import Reporting
from .rocks import RocksDisk, RocksStates
from .scheduler import START_MS, Process, SimulatedClock, SimulatedExecutor
from .stores import Session, sink_in, states_in

if TYPE_CHECKING:
    from .world import World

RESTART_S = 2.0
"""The delay before the restart of a worker that ended by itself."""


class MachineClock:
    """The clock of a machine, whose wall clock may be wrong for a while.

    Args:
        clock: the right time.
    """

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self._ahead_ms = 0
        self._until_ms = 0.0
        self.monotonic_s = clock.monotonic_s

    def jump(self, ahead_ms: int, until_ms: float) -> None:
        """Make the wall clock wrong until a time."""
        self._ahead_ms, self._until_ms = ahead_ms, until_ms

    def read_ms(self) -> int:
        """Return the time that the machine shows."""
        now_ms = self._clock.now_ms()
        return now_ms + self._ahead_ms if now_ms < self._until_ms else now_ms


class ProcessClock(WallClock):
    """The clock of a process on a machine.

    Args:
        clock: the machine's.
    """

    def __init__(self, clock: MachineClock) -> None:
        super().__init__(clock.read_ms, clock.monotonic_s)
        self.monotonic_s = clock.monotonic_s


@dataclass(eq=False)
class Machine:
    """A machine with a worker or an archiver.

    Args:
        name: the name of machine and worker.
        node: the worker's processor; None for an archiver.
        disk: the disk with the states.
        clock: its clock.
    """

    name: str
    node: Node | None
    disk: Disk
    clock: MachineClock
    disks: int = 0
    process: Process | None = None
    worker: Worker | None = None
    starts_ms: float = START_MS
    refusals: int = 0
    is_stopped: bool = False

    @property
    def identity(self) -> str:
        """The worker's identity, which is stored on the disk."""
        return f"{self.name}.{self.disks}"

    @property
    def is_standby(self) -> bool:
        """Whether the worker keeps copies of the states of other machines: every second one of a processor."""
        return self.name.endswith(("1", "3"))

    @property
    def is_up(self) -> bool:
        """Whether the process is alive, running or paused."""
        return self.process is not None and not self.process.is_dead


class Machines:
    """All machines of a run.

    Args:
        world: the simulated world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._scheduler = world.scheduler
        scenario = world.scenario
        names = [(f"{node.name}-{number}", node) for node in scenario.nodes for number in range(node.workers)]
        archivers = [(f"archiver-{number}", None) for number in range(scenario.archivers)]
        self.all = [self._machine(name, node) for name, node in (*names, *archivers)]
        self.stop_at_the_end = scenario.to_the_end
        """Whether the workers that start now stop at the end of their input."""

    def _machine(self, name: str, node: Node | None) -> Machine:
        world = self._world
        disk = RocksDisk(self._scheduler, world.folder / name) if world.scenario.rocks else Disk(self._scheduler)
        return Machine(name, node, disk, MachineClock(world.clock))

    def add(self, node: Node) -> None:
        """Add the machines of a processor, which start soon."""
        self.all.extend(self._machine(f"{node.name}-{number}", node) for number in range(node.workers))

    def of(self, node: Node) -> list[Machine]:
        """Return the machines of a processor."""
        return [machine for machine in self.all if machine.node is node]

    def shards(self, node: Node) -> Iterator[Shard[Any]]:
        """Yield the open shards of a processor's live workers."""
        for machine in self.of(node):
            if machine.worker is not None and machine.is_up:
                yield from machine.worker.shards

    @property
    def have_ended(self) -> bool:
        """Whether all workers have reached the end of their input."""
        return all(machine.is_stopped and not machine.is_up for machine in self.all)

    def continue_after_the_end(self) -> None:
        """Start all workers again, which do not stop any more."""
        self.stop_at_the_end = False
        for machine in self.all:
            machine.is_stopped = False

    def hold(self, node: Node) -> None:
        """Stop the workers of a processor until it is released."""
        for machine in self.of(node):
            machine.is_stopped = True
            if machine.process is not None and not machine.process.is_dead:
                self._scheduler.kill(machine.process)

    def release(self, node: Node) -> None:
        """Let the workers of a processor start again."""
        for machine in self.of(node):
            machine.is_stopped = False

    def start_due(self) -> None:
        """Start the machines whose restart is due."""
        if self.stop_at_the_end and not self._world.source.is_done:
            return
        for machine in self.all:
            if not (machine.is_up or machine.is_stopped) and machine.starts_ms <= self._scheduler.now_ms:
                self._start(machine)

    def _start(self, machine: Machine) -> None:
        process = Process(machine.name)
        if isinstance(machine.disk, RocksDisk):
            process.at_death.append(machine.disk.crash)
        machine.process = process
        machine.worker = None

        def work() -> None:
            try:
                self._work(machine, process)
            except CheckpointRefused as error:
                raise AssertionError(f"{process.name} begins a checkpoint that it cannot save") from error
            except PenstockError as error:
                self._world.note(process.name, f"ends: {type(error).__name__}: {error}")
                machine.refusals += 1
            finally:
                if not process.is_dead:
                    self._scheduler.kill(process)
                    machine.starts_ms = max(machine.starts_ms, self._scheduler.now_ms + RESTART_S * 1000)

        self._world.note(process.name, "starts")
        self._scheduler.spawn(process, machine.name, work)

    def _work(self, machine: Machine, process: Process) -> None:
        world = self._world
        network = SimulatedNetwork(self._scheduler, process, world.brokers, world.injector.strike)
        bus = MemoryBus(cluster=world.cluster, network=network)
        if machine.node is None:
            self._archive(bus)
            return
        clusters = self._with_second_cluster(bus, process, world.processors[machine.node])
        processor = prepare(world.processors[machine.node], clusters)
        config = WorkerConfig(
            clusters,
            self._states(machine.node, machine, process, processor),
            machine.identity,
            self._backups(machine, processor),
            takes_snapshots=world.scenario.snapshots,
            open_sink=lambda sink: sink_in(self._session(process), world.sinks[sink.name], self._scheduler, sink.name),
        )
        threads = SimulatedExecutor(self._scheduler, process, f"{machine.name} opener")
        saver = SimulatedExecutor(self._scheduler, process, f"{machine.name} saver", 1)
        requests = SimulatedExecutor(self._scheduler, process, f"{machine.name} requests", 1)
        reporting = Reporting(world, machine, type(processor), until_end=self.stop_at_the_end)
        worker = Worker(
            processor,
            config,
            threads,
            saver,
            clock=ProcessClock(machine.clock),
            at_gap=self._at_gap,
            after_turn=reporting.report_if_due,
            requests=requests,
        )
        machine.worker = worker
        reporting.report_start()
        if self.stop_at_the_end:
            self._scheduler.spawn(process, f"{machine.name} beside", reporting.repeat)
        with reporting.sweeping(worker):
            worker.run(self._finished(machine, process, clusters, processor))
        reporting.report_end()
        world.note(process.name, "has stopped")

    def _finished(
        self, machine: Machine, process: Process, bus: Bus, processor: ps.Processor
    ) -> Callable[[Worker], bool]:
        """Return what a worker calls after each turn, to determine whether it has finished."""
        world, node = self._world, machine.node
        if node in world.scenario.tiers:
            return world.tiers.start(node, process, bus).publish
        if not self.stop_at_the_end:
            return lambda _: False
        apps = list(world.processors.values())
        at_end = UntilEnd(
            ends_of(plan_of(processor).sources, bus),
            processor.name,
            bus,
            upstream=[each.name for each in upstream_of(type(processor), apps)],
            clock=ProcessClock(machine.clock),
        )

        def finished(worker: Worker) -> bool:
            machine.is_stopped = at_end(worker)
            return machine.is_stopped

        return finished

    def _with_second_cluster(self, home: MemoryBus, process: Process, processor: type[ps.Processor]) -> Bus:
        """Return a bus that also contains the processor's outputs on the second cluster."""
        placement = placement_of(plan_of(processor).outputs)
        if not placement:
            return home
        world = self._world
        network = SimulatedNetwork(self._scheduler, process, world.second_brokers, world.injector.strike)
        return Clusters(home, {SECOND_CLUSTER: MemoryBus(cluster=world.second_cluster, network=network)}, placement)

    def _archive(self, bus: MemoryBus) -> None:
        world = self._world
        files = SimulatedFiles(world.warehouse.memory, self._scheduler, world.injector.warehouse_is_unreachable)
        categories = {c.name: c for processor in world.processors.values() for c in plan_of(processor).inputs}
        archiver(bus, [categories[name] for name in world.scenario.sources], files, world.clock).run()

    def _states(self, node: Node, machine: Machine, process: Process, processor: ps.Processor) -> StateFolder:
        if isinstance(machine.disk, RocksDisk):
            return RocksStates(machine.disk)
        if node.writing is None or not isinstance(processor, ps.Aggregator):
            return SimulatedStates(machine.disk, self._scheduler, process)
        return states_in(self._session(process), self._scheduler, type(processor), node.writing)

    def _session(self, process: Process) -> Session:
        return Session(self._world.store, self._scheduler, process, self._world.injector.strike)

    def _backups(self, machine: Machine, processor: ps.Processor) -> WorkerBackups | NoBackups:
        scenario = self._world.scenario
        has_backups = machine.node is not None and (machine.node.backups or scenario.snapshots or scenario.rocks)
        if not has_backups or machine.process is None:
            return NoBackups()
        worker_backups = self._worker_backups(machine.disk, machine.process)
        shape = plan_of(processor).state_shape
        if machine.is_standby and shape is not None:
            worker_backups.stand_by(lambda bucket: ShardIdentity(processor.name, bucket, shape), processor.name)
        return worker_backups

    def _worker_backups(self, disk: Disk, process: Process) -> WorkerBackups:
        world = self._world
        if isinstance(disk, RocksDisk):
            files = ProcessFiles(world.backup_files, self._scheduler, process, world.injector.strike)
            return WorkerBackups(files, disk.root, EVERY)
        backups: Any = ProcessBackups(world.backup_store, disk, self._scheduler, process)
        return WorkerBackups(backups, backups, EVERY)

    def _at_gap(self, gap: Gap) -> None:
        self._scheduler.point(f"gap {gap}")
