"""A run: brokers, machines and processes, the input, what goes wrong, and whether all was kept in the end.

begin --input, faults--> heal: no more faults --> all work must end --> compared with the truth
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.errors import BackfillRefused
from penstock.transport.category_spec import CategorySpec
from penstock.transport.errors import BusUnreachable
from penstock.transport.internal_topics import create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.cluster import Cluster
from penstock.transport.tables.upstream_watermarks import WATERMARKS

from .archiving import expect_archived, expect_no_gaps
from .backing_up import Place
from .evidence import digest, expect_read
from .lookups import SimulatedRows
from .machines import Machines
from .network import Brokers
from .scenario import Scenario
from .scheduler import Process, Scheduler, SimulatedClock, running
from .seams import steered
from .sources import Source
from .stores import Store
from .troubles import Troubles
from .truth import expect_kept, expect_nothing_wrong

ENDING_S = 300.0
"""How long all work may take after the last fault."""
REFUSALS = 5
"""After how many ends, while nothing goes wrong, a worker is taken to refuse for good."""
LOOK_AT_ARCHIVE_S = 5.0
LOOK_EVERY_S = 2.0


class Stuck(AssertionError):
    """Some work does not end."""


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


class World:
    """Everything there is.

    Args:
        scenario: what happens.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.scheduler = Scheduler(scenario.seed)
        self.clock = SimulatedClock(self.scheduler)
        self.cluster = Cluster(self.clock.now_ms)
        self.brokers = Brokers(self.scheduler, self.cluster.transactions)
        self.bus = MemoryBus(cluster=self.cluster)
        self.history: list[str] = []
        self.processors = {node: node.make(scenario.manner) for node in scenario.nodes}
        self.place = Place()
        self.store = Store()
        self.rows = SimulatedRows(self)
        self.warehouse = MemoryWarehouse()
        self.machines = Machines(self)
        self.troubles = Troubles(self)
        self.source = Source(self)
        self._looked_ms = 0.0
        self.scheduler.interfere = self.troubles.interfere
        self.scheduler.pass_time = self.cluster.tick

    def note(self, who: str, what: str) -> None:
        """Add to the history."""
        self.history.append(f"{self.clock.monotonic_s():9.3f} s  {who:<14} {what}")

    def run(self) -> None:
        """Let everything happen.

        Raises:
            AssertionError: something was not kept.
        """
        self._create_categories()
        with running(self.scheduler):
            self.scheduler.spawn(Process("source"), "source", self.source.write)
            while not self.source.is_done or self.troubles.are_waiting:
                self._turn(0.5)
            last_ms = max((fault.lasts_s for fault in self.scenario.faults), default=0.0) * 1000 + self.scheduler.now_ms
            while self.troubles.are_armed and self.scheduler.now_ms < last_ms:
                self._turn(1.0)
            self._heal()
            self._come_to_the_end()

    def _create_categories(self) -> None:
        all_of = (c for one in self.processors.values() for c in (*one.inputs(), *one.outputs()))
        for category in {category.name: category for category in all_of}.values():
            self.bus.create(CategorySpec.of(category))
            self.cluster.topic(category.name).uses_arrival_time = category.name not in self.scenario.manner.stamped
        create_missing_categories(self.bus, WATERMARKS)
        for processor in self.processors.values():
            if issubclass(processor, ps.LookupJoin):
                processor._environment = self.rows.outside()

    def _heal(self) -> None:
        self.troubles.heal()
        self.note("", "from here on nothing goes wrong")
        for machine in self.machines.all:
            machine.refusals = 0

    def _turn(self, seconds: float) -> None:
        """Start what is to be started, then let time pass."""
        self.troubles.arm()
        self.machines.start_due()
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
                expect_read(self)
                expect_kept(self)
                for name in self.scenario.sources if self.scenario.archivers else ():
                    expect_archived(self.bus, self.warehouse, name)
            except (AssertionError, BusUnreachable, BackfillRefused) as error:
                if self.troubles.may_refuse and any(machine.refusals >= REFUSALS for machine in self.machines.all):
                    expect_nothing_wrong(self)
                    return
                if self.scheduler.now_ms > limit_ms:
                    raise Stuck(f"{error}") from error
            else:
                return


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
    return Outcome(failure, world.history, digest(world), world.scheduler.points, world.clock.monotonic_s())
