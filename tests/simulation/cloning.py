"""A clone of a simulated app, made at a random moment while both are under faults; it must reach the results of the original from the cut on.

The command is the library's, and its steps on disks are simulated: states come from the copies of the snapshot, and go to the backup store, from which
the clone's workers take them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from support.subjects import EXACT
from support.warehouses import MemoryFileStore

from penstock.ops.change.clones.cloning import ClonePlan, CloneRefused, original_of, perform_clone, plan_clone
from penstock.ops.change.maintenance.environment import MaintenanceEnvironment
from penstock.ops.change.maintenance.processor_positions import LocalStates
from penstock.ops.change.snapshots.snapshot import Snapshot, SnapshotError
from penstock.ops.kernel import changelog_of
from penstock.processors.apps import App, renamed_categories
from penstock.processors.apps.clones import cloned, own_name
from penstock.processors.declare import plan_of
from penstock.processors.shard import StatePosition
from penstock.processors.time import with_renamed_inputs
from penstock.transport import Bucket, Bus, BusError, rewrite_changelog_bucket
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import MaintenanceRefused
from penstock.transport.tables.maintenance_protocol import MaintenanceGap

from . import evidence
from .backing_up import Backup, SimulatedBackupStore
from .disks import Content
from .network import SimulatedNetwork
from .nodes import Node
from .scheduler import Process
from .truth import BY_EVENT, expect_states

if TYPE_CHECKING:
    from .world import World

NAME = "copy"
TRIES = 20
RETRY_S = 2.0
KILL_PROBABILITY = 0.02
"""The probability that the command dies in the gap before a step."""


CHAINED = ("merging", "random")
"""Kinds whose outputs depend on more than their events: those of the app before the cut and those of the clone form one chain."""


class Killed(Exception):
    """The command was killed."""


class SimulatedPlace(MemoryFileStore):
    """The backup store as the command of a clone uses it.

    Args:
        store: the simulated backups.
        snapshot: the snapshot of the clone.
    """

    def __init__(self, store: SimulatedBackupStore, snapshot: str) -> None:
        super().__init__()
        self.store = store
        self.snapshot = snapshot
        self.installed: dict[tuple[str, int], Content] = {}


def place_of(local: LocalStates) -> SimulatedPlace:
    """Return the store of the command that installs a state."""
    return cast("SimulatedPlace", local.backup_store)


def install_clone(local: LocalStates, bucket: int, original: object, backup: object, position: StatePosition) -> None:
    """Install a copy of the original shard's state."""
    place, processor = place_of(local), local.processor
    content = place.store.pinned[place.snapshot, original_of(processor).name, bucket].copy()
    content.save(with_renamed_inputs(content, renamed_categories(processor)))
    content._position = position
    place.installed[processor.name, bucket] = content


def store_backup(local: LocalStates, bucket: int) -> None:
    """Store an installed state as the newest backup."""
    place, identity = place_of(local), local.identity(bucket)
    place.store.epochs[identity] = place.store.epochs.get(identity, 0) + 1
    content = place.installed[local.processor.name, bucket]
    place.store.store(identity, Backup(place.store.epochs[identity], content.copy()))


def rewrite_changelog(bus: Bus, local: LocalStates, bucket: int) -> None:
    """Rewrite a shard's changelog."""
    changelog, content = changelog_of(local.processor), place_of(local).installed[local.processor.name, bucket]
    if changelog is not None:
        rewrite_changelog_bucket(bus, changelog.name, bucket, content.items(), content.position())


def expect_stored(snapshot: Snapshot, environment: MaintenanceEnvironment) -> None:
    """Expect that the copies of a snapshot exist."""
    place = cast("SimulatedPlace", environment.backups)
    missing = [
        (name, bucket)
        for name, bucket, _ in snapshot.backups()
        if (snapshot.id, name, bucket) not in place.store.pinned
    ]
    assert not missing, f"snapshot {snapshot.id} has no copies of {missing}"


class _CloneOutputs(NamedTuple):
    """The outputs of a processor: of the app, before the messages that the clone's category contains and from there on; and of the clone."""

    before: list[dict[str, Any]]
    after: list[dict[str, Any]]
    of_clone: list[dict[str, Any]]


class Cloner:
    """Makes a clone in a process of its own, as soon as there is a snapshot.

    Args:
        world: the simulated world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"clone {world.scenario.seed}")
        self._process = Process("clone")
        self._snapshot: Snapshot | None = None
        self._begins: dict[str, dict[int, int]] = {}
        self._copied_from: dict[Bucket, int] = {}
        self.nodes: dict[Node, Node] = {}
        """The processors of the clone by those of the app; empty before it is made."""

    def start(self) -> None:
        """Begin."""
        self._world.scheduler.spawn(self._process, "clone", self._work)

    def _work(self) -> None:
        world = self._world
        world.scheduler.sleep(self._rng.uniform(0, world.scenario.length_s))
        if not world.scheduler.wait(lambda: world.snapshots.newest is not None, world.scenario.length_s):
            return
        snapshot = world.snapshots.newest
        assert snapshot is not None
        for _ in range(TRIES):
            try:
                self._make(snapshot)
            except CloneRefused:
                raise
            except (Killed, SnapshotError, MaintenanceRefused, BusError) as error:
                world.note("clone", f"not yet: {type(error).__name__} {error}")
                world.scheduler.sleep(RETRY_S)
            else:
                return

    def _make(self, snapshot: Snapshot) -> None:
        world = self._world
        network = SimulatedNetwork(world.scheduler, self._process, world.brokers, lambda *_: None)
        bus = MemoryBus(cluster=world.cluster, network=network)
        originals = [world.processors[node] for node in world.scenario.nodes]
        app = App(f"simulated@{NAME}", tuple(cloned(originals, NAME)))
        place = SimulatedPlace(world.backup_store, snapshot.id)
        environment = MaintenanceEnvironment(bus, Path("/nowhere"), place)
        plan = plan_clone(snapshot, app, environment, runs_programs=True)
        perform_clone(plan, environment, self._at_gap)
        self._begins = {
            name: begins for processor in app.processors for name, begins in _begins_of(processor, snapshot).items()
        }
        self._copied_from = self._starts_of_copies(plan)
        for node, processor in zip(world.scenario.nodes, app.processors, strict=True):
            renamed = renamed_categories(processor)
            copy = replace(node, name=processor.name, reads=tuple(renamed.get(name, name) for name in node.reads))
            self.nodes[node] = copy
            world.processors[copy] = processor
            world.machines.add(copy)
        self._snapshot = snapshot
        world.note("clone", f"is made from {snapshot.id}")

    def _starts_of_copies(self, plan: ClonePlan) -> dict[Bucket, int]:
        """Return where the messages in flight begin in the clone's categories: a killed command has appended them before, too."""
        cluster = self._world.cluster
        found = {}
        for flight in plan.flights:
            copy = Bucket(plan.names[flight.bucket.category], flight.bucket.number)
            in_flight = [
                message
                for message in cluster.log(flight.bucket).committed(flight.start, evidence.ALL)
                if message.at < flight.end
            ]
            found[copy] = cluster.log(copy).end - len(in_flight)
        return found

    def _at_gap(self, gap: MaintenanceGap) -> None:
        self._world.scheduler.point(f"clone: {gap.before.value}")
        if self._rng.random() < KILL_PROBABILITY:
            raise Killed(gap.before.value)

    def expect_equal(self) -> None:
        """Compare the clone with the app, if there is one: its states with the input, and its outputs with those of the app since the cut."""
        if not self.nodes:
            return
        outputs = {node: self._outputs(node) for node in self.nodes if node.writes_outputs}
        copies = {
            node: (copy, [*outputs[node].before, *outputs[node].of_clone] if node in outputs else [])
            for node, copy in self.nodes.items()
        }
        expect_states(self._world, copies)
        for node, found in outputs.items():
            if node.kind in BY_EVENT and node.kind not in CHAINED and node.output is EXACT:
                of_app = Counter(record["number"] for record in found.after)
                of_clone = Counter(record["number"] for record in found.of_clone)
                assert of_clone == of_app, (
                    f"{node.name}.out of the clone lacks {of_app - of_clone}, and has {of_clone - of_app} that the app has not written since the cut"
                )

    def _outputs(self, node: Node) -> _CloneOutputs:
        name = f"{node.name}.out"
        begins = self._begins[name]
        return _CloneOutputs(
            self._records(name, name, lambda number, offset: offset < begins[number]),
            self._records(name, name, lambda number, offset: offset >= begins[number]),
            self._records(
                copy := own_name(NAME, name),
                name,
                lambda number, offset: offset >= self._copied_from.get(Bucket(copy, number), 0),
            ),
        )

    def _records(self, name: str, format_of: str, fits: Callable[[int, int], bool]) -> list[dict[str, Any]]:
        """Return some committed records of a category, in the format of another one."""
        messages = [
            message
            for number in range(self._world.cluster.topic(name).spec.buckets)
            for message in self._world.cluster.log(Bucket(name, number)).committed(0, evidence.ALL)
            if fits(number, message.at)
        ]
        values = [value for value in (message.value() for message in messages) if value is not None]
        return evidence.decoded(self._world, format_of, values)


def _begins_of(processor: type[Any], snapshot: Snapshot) -> dict[str, dict[int, int]]:
    """Return the first offset of each bucket of a processor's output whose message the clone has, too: of those in flight, or after the cut."""
    in_flight = snapshot.in_flight()
    return {
        category.name: {
            number: in_flight.get((category.name, number), (end, end))[0]
            for number, end in snapshot.ends[category.name].items()
        }
        for category in plan_of(original_of(processor)).written_categories
    }
