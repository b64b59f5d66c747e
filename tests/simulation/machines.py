"""Machines with workers or archivers; a process that ends is restarted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import penstock as ps
from penstock.ops.worker.backup_protocol import NoBackups
from penstock.ops.worker.backups import WorkerBackups
from penstock.ops.worker.checkpoint_executor import CheckpointRefused
from penstock.ops.worker.preflight import prepare
from penstock.ops.worker.worker import Worker, WorkerConfig
from penstock.processors.errors import PenstockError
from penstock.processors.shard.checkpoints import Gap
from penstock.processors.shard.shard import Shard
from penstock.state.protocols import ShardIdentity, StateFolder
from penstock.transport.bus import Bus
from penstock.transport.clusters import Clusters, placement_of
from penstock.transport.memory import MemoryBus

from .archiving import SimulatedFiles, archiver
from .backing_up import EVERY, ProcessBackups
from .category_settings import SECOND_CLUSTER
from .disks import Disk, SimulatedStates
from .network import SimulatedNetwork
from .nodes import Node
from .reporting import Reporting
from .scheduler import START_MS, Process, SimulatedExecutor
from .stores import Session, sink_in, states_in

if TYPE_CHECKING:
    from .world import World

RESTART_S = 2.0
"""The delay before the restart of a worker that ended by itself."""


@dataclass(eq=False)
class Machine:
    """A machine with a worker or an archiver.

    Args:
        name: the name of machine and worker.
        node: the worker's processor; None for an archiver.
        disk: the disk with the states.
    """

    name: str
    node: Node | None
    disk: Disk
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
        self.all = [Machine(name, node, Disk(world.scheduler)) for name, node in (*names, *archivers)]

    def add(self, node: Node) -> None:
        """Add the machines of a processor, which start soon."""
        machines = (Machine(f"{node.name}-{number}", node, Disk(self._scheduler)) for number in range(node.workers))
        self.all.extend(machines)

    def of(self, node: Node) -> list[Machine]:
        """Return the machines of a processor."""
        return [machine for machine in self.all if machine.node is node]

    def shards(self, node: Node) -> Iterator[Shard[Any]]:
        """Yield the open shards of a processor's live workers."""
        for machine in self.of(node):
            if machine.worker is not None and machine.is_up:
                yield from machine.worker.shards

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
        for machine in self.all:
            if not (machine.is_up or machine.is_stopped) and machine.starts_ms <= self._scheduler.now_ms:
                self._start(machine)

    def _start(self, machine: Machine) -> None:
        process = Process(machine.name)
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
        reporting = Reporting(world, machine, type(processor))
        worker = Worker(
            processor,
            config,
            threads,
            saver,
            clock=world.clock,
            at_gap=self._at_gap,
            after_turn=reporting.report_if_due,
            requests=requests,
        )
        machine.worker = worker
        is_tier = machine.node in world.scenario.tiers
        with reporting.sweeping(worker):
            worker.run(*([world.tiers.start(machine.node, process, clusters).publish] if is_tier else []))
        world.note(process.name, "has stopped")

    def _with_second_cluster(self, home: MemoryBus, process: Process, processor: type[ps.Processor]) -> Bus:
        """Return a bus that also contains the processor's outputs on the second cluster."""
        placement = placement_of(processor.outputs())
        if not placement:
            return home
        world = self._world
        network = SimulatedNetwork(self._scheduler, process, world.second_brokers, world.injector.strike)
        return Clusters(home, {SECOND_CLUSTER: MemoryBus(cluster=world.second_cluster, network=network)}, placement)

    def _archive(self, bus: MemoryBus) -> None:
        world = self._world
        files = SimulatedFiles(world.warehouse.memory, self._scheduler, world.injector.warehouse_is_unreachable)
        categories = {c.name: c for processor in world.processors.values() for c in processor.inputs()}
        archiver(bus, [categories[name] for name in world.scenario.sources], files, world.clock).run()

    def _states(self, node: Node, machine: Machine, process: Process, processor: ps.Processor) -> StateFolder:
        if node.writing is None or not isinstance(processor, ps.Aggregator):
            return SimulatedStates(machine.disk, self._scheduler, process)
        return states_in(self._session(process), self._scheduler, type(processor), node.writing)

    def _session(self, process: Process) -> Session:
        return Session(self._world.store, self._scheduler, process, self._world.injector.strike)

    def _backups(self, machine: Machine, processor: ps.Processor) -> WorkerBackups | NoBackups:
        has_backups = machine.node is not None and (machine.node.backups or self._world.scenario.snapshots)
        if not has_backups or machine.process is None:
            return NoBackups()
        backups: Any = ProcessBackups(self._world.backup_store, machine.disk, self._scheduler, machine.process)
        worker_backups = WorkerBackups(backups, backups, EVERY)
        shape = processor.state_shape()
        if machine.is_standby and shape is not None:
            worker_backups.stand_by(lambda bucket: ShardIdentity(processor.name, bucket, shape), processor.name)
        return worker_backups

    def _at_gap(self, gap: Gap) -> None:
        self._scheduler.point(f"gap {gap}")
