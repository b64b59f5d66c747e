"""A run: brokers, machines, input and faults, and the final comparison with the guarantees.

start --input, faults--> heal: no more faults --> all work must end --> comparison with the expected results
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.processors.declare import plan_of
from penstock.state.sinks import MemoryRows
from penstock.transport import BusUnreachable, CategorySpec, create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.cluster import MemoryCluster
from penstock.transport.tables import WATERMARKS

from .archiving import expect_archived, expect_no_gaps
from .backing_up import SimulatedBackupStore
from .backup_files import StoredFiles, expect_backed_up, expect_no_missing_files
from .cloning import Cloner
from .evidence import digest, expect_read, outputs
from .fault_injector import FaultInjector
from .laser import Tiers
from .lookups import SimulatedRows, TableWriter
from .machines import Machines
from .network import Brokers
from .patches import patched_library
from .restoring import Restorer
from .scenario import Scenario
from .scheduler import Process, Scheduler, SimulatedClock, running
from .snapshotting import SnapshotTaker
from .sources import Source
from .stores import Store
from .truth import expect_guarantees, expect_no_wrong_output

FINAL_LIMIT_S = 300.0
"""The time limit for all work after the last fault."""
REFUSALS = 5
"""The number of failed starts without a fault after which a worker refuses for good."""
ARCHIVE_CHECK_INTERVAL_S = 5.0
FINAL_CHECK_INTERVAL_S = 2.0
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own below it
"""Where the states in RocksDB are: each write is synced, which costs nothing there."""


class Stuck(AssertionError):
    """Some work does not end."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Args:
        failure: the violated guarantee, or None.
        history: the events of the run.
        digest: a hash, equal for equal runs.
        points: the number of scheduler points.
        virtual_s: the duration in simulated time.
    """

    failure: str | None
    history: Sequence[str]
    digest: str
    points: int
    virtual_s: float


class World:
    """The simulated cluster with all processes.

    Args:
        scenario: the scenario.
        folder: contains the states in RocksDB.
    """

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.folder = folder
        self.scheduler = Scheduler(scenario.seed)
        self.clock = SimulatedClock(self.scheduler)
        self.cluster = MemoryCluster(self.clock.now_ms)
        self.brokers = Brokers(self.scheduler, self.cluster.transactions, scenario.rate, trickles=scenario.trickles)
        self.bus = MemoryBus(cluster=self.cluster)
        self.second_cluster = MemoryCluster(self.clock.now_ms)
        self.second_brokers = Brokers(self.scheduler, self.second_cluster.transactions)
        self.history: list[str] = []
        self.processors = {node: node.make(scenario.category_settings) for node in scenario.nodes}
        self.backup_store = SimulatedBackupStore()
        self.backup_files = StoredFiles()
        self.store = Store()
        self.sinks = {f"{node.name}.out": MemoryRows() for node in scenario.nodes if node.sink}
        self.rows = SimulatedRows(self)
        self.table_writer: TableWriter | None = None
        self.warehouse = MemoryWarehouse()
        self.tiers = Tiers(self)
        self.machines = Machines(self)
        self.injector = FaultInjector(self)
        self.source = Source(self)
        self.snapshots = SnapshotTaker(self)
        self.cloner = Cloner(self)
        self.restorer = Restorer(self)
        self._archive_checked_ms = 0.0
        self.scheduler.interfere = self.injector.interfere
        self.scheduler.pass_time = self._tick

    def _tick(self) -> None:
        self.cluster.tick()
        self.second_cluster.tick()

    def cluster_of(self, category: str) -> MemoryCluster:
        """Return the cluster that contains a category."""
        return self.second_cluster if category in self.scenario.category_settings.elsewhere else self.cluster

    def note(self, process: str, text: str) -> None:
        """Add to the history."""
        self.history.append(f"{self.clock.monotonic_s():9.3f} s  {process:<14} {text}")

    def run(self) -> None:
        """Run the scenario.

        Raises:
            AssertionError: a guarantee was violated.
        """
        self._create_categories()
        with running(self.scheduler):
            self.scheduler.spawn(Process("source"), "source", self.source.write)
            if self.scenario.snapshots:
                self.snapshots.start()
                self.cloner.start()
                self.restorer.start()
            if self.scenario.tiers:
                self.scheduler.spawn(Process("client"), "client", self.tiers.read)
            while not self.source.is_done or self.injector.are_waiting:
                self._turn(0.5)
            last_ms = (
                max((fault.duration_s for fault in self.scenario.faults), default=0.0) * 1000 + self.scheduler.now_ms
            )
            while self.injector.are_armed and self.scheduler.now_ms < last_ms:
                self._turn(1.0)
            self._heal()
            self._run_to_the_end()

    def _create_categories(self) -> None:
        categories = (
            c
            for processor in self.processors.values()
            for c in (*plan_of(processor).inputs, *plan_of(processor).outputs)
        )
        for processor in self.processors.values():
            for category in plan_of(processor).side_inputs:
                self.bus.create(CategorySpec.of(category))
        for category in {category.name: category for category in categories}.values():
            self.cluster_of(category.name).add(CategorySpec.of(category))
            self.cluster_of(category.name).topic(category.name).uses_arrival_time = (
                category.name not in self.scenario.category_settings.stamped
            )
        create_missing_categories(self.bus, WATERMARKS)
        for processor in self.processors.values():
            if issubclass(processor, ps.LookupJoin):
                processor._environment = self.rows.environment()
            if plan_of(processor).side_inputs:
                self.table_writer = TableWriter(self)

    def _heal(self) -> None:
        self.injector.heal()
        self.note("", "no more faults from here on")
        for machine in self.machines.all:
            machine.refusals = 0

    def _turn(self, seconds: float) -> None:
        """Start due machines, then advance the time."""
        self.injector.arm()
        if self.table_writer is not None:
            self.table_writer.write_due()
        self.machines.start_due()
        self.scheduler.sleep(seconds)
        if self.scheduler.failures:
            raise self.scheduler.failures[0]
        expect_no_missing_files(self)
        if (
            self.scenario.archivers
            and self.scheduler.now_ms >= self._archive_checked_ms + ARCHIVE_CHECK_INTERVAL_S * 1000
        ):
            self._archive_checked_ms = self.scheduler.now_ms
            for name in self.scenario.sources:
                expect_no_gaps(self.bus, self.warehouse, name)

    def _run_to_the_end(self) -> None:
        limit_ms = self.scheduler.now_ms + FINAL_LIMIT_S * 1000
        written = self._written_to_the_end(limit_ms) if self.scenario.to_the_end else None
        while True:
            self._turn(FINAL_CHECK_INTERVAL_S)
            try:
                expect_read(self)
                expect_guarantees(self)
                self.cloner.expect_equal()
                expect_backed_up(self)
                for name in self.scenario.sources if self.scenario.archivers else ():
                    expect_archived(self.bus, self.warehouse, name)
            except (AssertionError, BusUnreachable, BackfillRefused) as error:
                if self.injector.may_refuse and any(machine.refusals >= REFUSALS for machine in self.machines.all):
                    expect_no_wrong_output(self)
                    return
                if self.scheduler.now_ms > limit_ms:
                    raise Stuck(f"{error}") from error
            else:
                assert written in (None, self._written()), "outputs are missing at the end of the input"
                return

    def _written_to_the_end(self, limit_ms: float) -> Mapping[str, frozenset[str]]:
        """Wait until all workers have reached the end of their input, and let them go on; return the outputs at the end."""
        while not self.machines.have_ended:
            self._turn(FINAL_CHECK_INTERVAL_S)
            if self.scheduler.now_ms > limit_ms:
                running = [machine.name for machine in self.machines.all if not machine.is_stopped or machine.is_up]
                raise Stuck(f"{', '.join(running)} do not reach the end of their input")
        written = self._written()
        self.machines.continue_after_the_end()
        return written

    def _written(self) -> Mapping[str, frozenset[str]]:
        """Return the different outputs of each processor; at least once, a worker that starts again may repeat some."""
        return {node.name: frozenset(map(repr, outputs(self, f"{node.name}.out"))) for node in self.scenario.nodes}


def run(scenario: Scenario) -> Outcome:
    """Run a scenario."""
    failure = None
    with TemporaryDirectory(prefix="penstock-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as folder:
        world = World(scenario, Path(folder))
        with patched_library(world.scheduler, scenario.seed, rocks=scenario.rocks):
            try:
                world.run()
            except AssertionError as error:
                failure = f"{type(error).__name__}: {error}"
    world.history.append(f"{world.clock.monotonic_s():9.3f} s  {'':<14} {failure or 'every guarantee held'}")
    return Outcome(failure, world.history, digest(world), world.scheduler.points, world.clock.monotonic_s())
