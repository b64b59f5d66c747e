"""The results of a run: committed outputs, saved states, and the read positions of inputs."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

import fastavro
import msgspec

from penstock.processors.declare import bucket_of, plan_of
from penstock.state.remote.protocols import Parts
from penstock.transport import Bucket
from penstock.transport.codecs import decode_dead_letter
from penstock.transport.memory.cluster import MemoryCluster

from .disks import SimulatedState
from .nodes import Node
from .rocks import SteeredState

if TYPE_CHECKING:
    from .world import World

ALL = 1 << 60
SCHEMAS = "penstock.schemas"
"""The category of Avro schemas."""


def outputs(world: World, name: str) -> list[dict[str, Any]]:
    """Return the committed records of a category, or the rows of a sink, without tombstones."""
    if name in world.sinks:
        return [msgspec.to_builtins(row) for row in world.sinks[name].rows]
    cluster = world.cluster_of(name)
    if name not in cluster.topics:
        return []
    messages = (message for log in cluster.topic(name).logs for message in log.committed(0, ALL))
    return decoded(world, name, [value for value in (message.value() for message in messages) if value is not None])


def decoded(world: World, name: str, values: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return records of a category as dictionaries."""
    if name not in world.scenario.category_settings.avro:
        return [json.loads(value) for value in values]
    schemas = _schemas(world.cluster_of(name))
    return [_read_avro(value, schemas) for value in values]


def deletions_by_key(world: World, name: str) -> dict[str, list[bool]]:
    """Return, by key, whether each committed message of a category is a tombstone, in order."""
    found: defaultdict[str, list[bool]] = defaultdict(list)
    cluster = world.cluster_of(name)
    for log in cluster.topic(name).logs if name in cluster.topics else ():
        for message in log.committed(0, ALL):
            found[(message.key() or b"").decode()].append(message.value() is None)
    return dict(found)


def dead_letters(world: World, node: Node) -> list[dict[str, Any]]:
    """Return the events in a processor's dead letters. Each names its own place, whatever its headers say."""
    cluster = world.cluster
    name = f"{node.name}.dead_letters"
    stored = (message for log in cluster.topic(name).logs for message in log.committed(0, ALL))
    letters = [decode_dead_letter(message.value() or b"") for message in stored]
    for letter in letters:
        assert letter.category == node.reads[0], f"{letter} is not of an event of {node.reads[0]}"
        [original] = cluster.log(Bucket(letter.category, letter.bucket)).committed(letter.offset, 1)
        assert letter.value == original.value(), f"{letter} is not at its place"
        headers = tuple((header.name, header.value) for header in letter.headers)
        assert headers == tuple(original.headers() or ()), f"{letter} has other headers than its event"
    return decoded(world, node.reads[0], [letter.value or b"" for letter in letters])


def _schemas(cluster: MemoryCluster) -> dict[bytes, Any]:
    """Return the Avro schemas on a cluster by fingerprint."""
    if SCHEMAS not in cluster.topics:
        return {}
    messages = cluster.log(Bucket(SCHEMAS, 0)).committed(0, ALL)
    return {message.key() or b"": json.loads(message.value() or b"null") for message in messages}


def _read_avro(value: bytes, schemas: dict[bytes, Any]) -> dict[str, Any]:
    """Read a message in Avro's single-object encoding: a marker of two bytes, a fingerprint of eight bytes, and the body."""
    assert value[:2] == b"\xc3\x01", f"not Avro: {value!r}"
    assert value[2:10] in schemas, f"a message contains an unknown schema: {value!r}"
    return cast("dict[str, Any]", fastavro.schemaless_reader(BytesIO(value[10:]), schemas[value[2:10]], None))


def expect_placed(world: World, name: str) -> None:
    """Expect that repartitioned records are in the buckets of their new keys."""
    logs = world.cluster_of(name).topic(name).logs
    for number, log in enumerate(logs):
        for message in log.committed(0, ALL):
            key = message.key() or b""
            assert bucket_of(key, len(logs)) == number, f"{key!r} is in bucket {number} of {name}"
            assert key.startswith(b"r"), f"{key!r} in {name} is no new key"


def state(world: World, node: Node) -> dict[bytes, bytes]:
    """Return the saved states of a processor's shards, from their current owners."""
    if node.is_remote:
        rows = (row for shard, row in world.store.rows.items() if shard.processor == node.name)
        return {slot: _joined(parts) for row in rows for slot, parts in row.slots.items()}
    found: dict[bytes, bytes] = {}
    for shard in world.machines.shards(node):
        if isinstance(shard.state, SteeredState):
            found |= shard.state.values()
        if isinstance(shard.state, SimulatedState) and shard.state.database is not None:
            found |= shard.state.database.content.values()
    return found


def _joined(parts: Parts) -> bytes:
    """Combine partials of count, sum, minimum and maximum."""
    partials = [msgspec.msgpack.decode(part) for part in (parts.whole, *parts.partials) if part is not None]
    counts, totals, smallest, largest = zip(*partials, strict=True)
    return msgspec.msgpack.encode((sum(counts), sum(totals), min(smallest), max(largest)))


def expect_read(world: World) -> None:
    """Expect that every processor has read and saved all of its input."""
    for node, processor in world.processors.items():
        for category in plan_of(processor).inputs:
            committed = world.bus.committed(processor.name, category.name)
            for number in world.bus.ends(category.name):
                bucket = Bucket(category.name, number)
                unread = world.bus.slice(bucket, max(committed.get(number, 0), _saved(world, node, bucket)), 1)
                assert not unread, f"{node.name} has not read {bucket} from offset {unread[0].at} on"


def _saved(world: World, node: Node, bucket: Bucket) -> int:
    """Return the saved position of a bucket; the group may not have committed the position of a quiet bucket yet."""
    saved = (shard.saved_position for shard in world.machines.shards(node) if shard.number == bucket.number)
    return max((position.get(bucket.category, 0) for position in saved), default=0)


def digest(world: World) -> str:
    """Return a hash of messages, times and history; equal runs have equal digests."""
    hashed = hashlib.sha256()
    for cluster in (world.cluster, world.second_cluster):
        for name in sorted(cluster.topics):
            for log in cluster.topics[name].logs:
                for message in log.committed(0, ALL):
                    hashed.update(repr((name, message.at, message.payload, message.arrived_ms)).encode())
    hashed.update(repr([rows.rows for rows in world.sinks.values()]).encode())
    hashed.update(repr((world.scheduler.points, world.scheduler.now_ms, world.history)).encode())
    return hashed.hexdigest()[:16]
