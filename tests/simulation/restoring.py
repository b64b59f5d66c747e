"""The state of one processor goes back to a snapshot, while the others run under faults; no result may show it.

The command is the library's, and its steps on disks are simulated, as for a clone.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.ops.change.maintenance.environment import MaintenanceEnvironment
from penstock.ops.change.maintenance.processor_positions import LocalStates
from penstock.ops.change.maintenance.reset import perform_reset
from penstock.ops.change.snapshots.restoring import plan_restore_alone
from penstock.ops.change.snapshots.snapshot import Snapshot, SnapshotError
from penstock.processors.declare import Processor, plan_of
from penstock.processors.shard import StatePosition, Step, is_remote, steps_of
from penstock.transport import BusError
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import MaintenanceRefused
from penstock.transport.tables.maintenance_protocol import MaintenanceGap

from .cloning import KILL_PROBABILITY, RETRY_S, Killed, SimulatedPlace, place_of
from .network import SimulatedNetwork
from .nodes import Node
from .scheduler import Process

if TYPE_CHECKING:
    from .world import World

PROBABILITY = 0.5
"""The probability that a run has a restore."""


def _can_go_back(processor: type[Processor]) -> bool:
    """Return whether a processor has local state that the events alone lead to."""
    return (
        plan_of(processor).state_shape is not None
        and not is_remote(processor)
        and Step.LOG_CHANGES not in steps_of(processor)
    )


def install_backup(local: LocalStates, bucket: int, backup: object, position: StatePosition) -> None:
    """Install the state of the snapshot."""
    place = place_of(local)
    content = place.store.pinned[place.snapshot, local.processor.name, bucket].copy()
    content.save_position(position)
    place.installed[local.processor.name, bucket] = content


class Restorer:
    """Stops the workers of one processor at a random moment, lets its state go back, and starts them again.

    Args:
        world: the simulated world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"restore {world.scenario.seed}")
        self._process = Process("restore")
        self._is_begun = False
        self._nodes = [node for node in world.scenario.nodes if _can_go_back(world.processors[node])]

    def start(self) -> None:
        """Begin, in some runs."""
        if self._nodes and self._rng.random() < PROBABILITY:
            self._world.scheduler.spawn(self._process, "restore", self._work)

    def _work(self) -> None:
        world = self._world
        world.scheduler.sleep(self._rng.uniform(0, world.scenario.length_s))
        if not world.scheduler.wait(lambda: world.snapshots.newest is not None, world.scenario.length_s):
            return
        snapshot, node = world.snapshots.newest, self._rng.choice(self._nodes)
        assert snapshot is not None
        world.machines.hold(node)
        try:
            while not self._is_over(snapshot, node):
                world.scheduler.sleep(RETRY_S)
        finally:
            world.machines.release(node)

    def _is_over(self, snapshot: Snapshot, node: Node) -> bool:
        """Try it once; return whether it is done, or was refused before it changed anything."""
        world = self._world
        network = SimulatedNetwork(world.scheduler, self._process, world.brokers, lambda *_: None)
        bus = MemoryBus(cluster=world.cluster, network=network)
        environment = MaintenanceEnvironment(bus, Path("/nowhere"), SimulatedPlace(world.backup_store, snapshot.id))
        try:
            plan = plan_restore_alone(snapshot, world.processors[node], environment)
            perform_reset(plan, environment, self._at_gap)
        except (SnapshotError, MaintenanceRefused) as error:
            world.note("restore", f"{node.name} is refused: {error}")
            if self._is_begun:
                raise AssertionError("a restore that was begun cannot be finished") from error
            return True
        except (Killed, BusError) as error:
            world.note("restore", f"not yet: {type(error).__name__} {error}")
            return False
        world.note("restore", f"{node.name} is back at {snapshot.id}")
        return True

    def _at_gap(self, gap: MaintenanceGap) -> None:
        self._is_begun = True
        self._world.scheduler.point(f"restore: {gap.before.value}")
        if self._rng.random() < KILL_PROBABILITY:
            raise Killed(gap.before.value)
