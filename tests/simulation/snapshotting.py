"""Snapshots of a simulated app, taken again and again under faults; each must be a consistent cut."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from support.subjects import EXACT, LEAST, MOST
from support.warehouses import MemoryFileStore

from penstock.ops.change.snapshots.snapshot import Snapshot, SnapshotError
from penstock.ops.change.snapshots.taking import take_snapshot
from penstock.transport import Bucket, BusError
from penstock.transport.memory import MemoryBus

from . import evidence
from .network import SimulatedNetwork
from .nodes import PASS_THROUGH, Node
from .scheduler import Process

if TYPE_CHECKING:
    from .world import World

EVERY_S = 3.0
RETRY_FOR_S = 20.0


class SnapshotTaker:
    """Takes snapshots in a process of its own until the end of a run.

    Args:
        world: the simulated world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._process = Process("snapshots")
        self.taken = 0
        self.newest: Snapshot | None = None

    def start(self) -> None:
        """Begin."""
        self._world.scheduler.spawn(self._process, "snapshots", self._work)

    def _work(self) -> None:
        world = self._world
        network = SimulatedNetwork(world.scheduler, self._process, world.brokers, lambda *_: None)
        bus, processors = (
            MemoryBus(cluster=world.cluster, network=network),
            [world.processors[node] for node in world.scenario.nodes],
        )
        while True:
            world.scheduler.sleep(EVERY_S)
            try:
                snapshot = take_snapshot("simulated", processors, bus, MemoryFileStore())
            except (SnapshotError, BusError) as error:
                world.note("snapshots", f"none: {error}")
                continue
            self.taken += 1
            world.note("snapshots", f"{snapshot.id} is taken")
            self._expect_consistent(snapshot)
            self.newest = snapshot

    def _expect_consistent(self, snapshot: Snapshot) -> None:
        """Compare what each shard has read before the cut with what its category contains before the cut."""
        for node in self._world.scenario.nodes:
            self._expect_states(node, snapshot)
            if node.kind in {*PASS_THROUGH, "retrying", "looping"}:
                self._expect_sent(node, snapshot)

    def _expect_states(self, node: Node, snapshot: Snapshot) -> None:
        """Expect that each stored state is at the position of the cut."""
        for number, shard in snapshot.processors[node.name].shards.items():
            if shard.backup:
                copied = self._world.backup_store.pinned[snapshot.id, node.name, number].position()
                assert copied == shard.position or not copied, (
                    f"{node.name}, bucket {number}: {copied}, not {shard.position}"
                )

    def _expect_sent(self, node: Node, snapshot: Snapshot) -> None:
        read: Counter[int] = Counter()
        for number, shard in snapshot.processors[node.name].shards.items():
            name = node.reads[0]
            read += self._numbers(Bucket(name, number), shard.position.offsets[name])
        sent: Counter[int] = Counter()
        for number, end in snapshot.ends[f"{node.name}.out"].items():
            sent += self._numbers(Bucket(f"{node.name}.out", number), end)
        sent += self._waiting(node, snapshot)
        if node.output in {EXACT, LEAST}:
            assert not read - sent, (
                f"{node.name} had read {read - sent}, and had not sent them at snapshot {snapshot.id}"
            )
        if node.output in {EXACT, MOST}:
            assert not sent - read, (
                f"{node.name} had sent {sent - read}, and had not read them at snapshot {snapshot.id}"
            )

    def _waiting(self, node: Node, snapshot: Snapshot) -> Counter[int]:
        """Count the numbers of the events that wait for a retry or circulate at the cut, from the ranges of their offsets."""
        found: Counter[int] = Counter()
        for (name, number), (begin, end) in snapshot.in_flight().items():
            if name.startswith(f"{node.name}.retry_") or name == node.loop:
                bucket = Bucket(name, number)
                found += self._numbers(bucket, end) - self._numbers(bucket, begin)
        return found

    def _numbers(self, bucket: Bucket, end: int) -> Counter[int]:
        """Count the numbers of the committed records of a bucket before an offset."""
        world = self._world
        messages = [message for message in world.cluster.log(bucket).committed(0, evidence.ALL) if message.at < end]
        values = [value for value in (message.value() for message in messages) if value is not None]
        return Counter(record["number"] for record in evidence.decoded(world, bucket.category, values))
