"""What a run has left: outputs as readers find them, states as they are saved, how far each input is read."""

from __future__ import annotations

import hashlib
import json
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

import fastavro
import msgspec

from penstock.processors.declare.partitioner import bucket_of
from penstock.state.remote.protocols import Parts
from penstock.transport.messages import Bucket

from .disks import SimulatedState
from .nodes import Node

if TYPE_CHECKING:
    from .world import World

ALL = 1 << 60
SCHEMAS = "penstock.schemas"
"""Where the bus keeps the schemas of Avro."""


def outputs(world: World, name: str) -> list[dict[str, Any]]:
    """Return what readers of committed data find in a category."""
    if name not in world.cluster.topics:
        return []
    values = [message.value() or b"null" for log in world.cluster.topic(name).logs for message in log.committed(0, ALL)]
    if name not in world.scenario.manner.avro:
        return [json.loads(value) for value in values]
    schemas = _schemas(world)
    return [_read_avro(value, schemas) for value in values]


def _schemas(world: World) -> dict[bytes, Any]:
    """Return the schemas of Avro that are on the bus, by the fingerprint that messages carry."""
    if SCHEMAS not in world.cluster.topics:
        return {}
    messages = world.cluster.log(Bucket(SCHEMAS, 0)).committed(0, ALL)
    return {message.key() or b"": json.loads(message.value() or b"null") for message in messages}


def _read_avro(value: bytes, schemas: dict[bytes, Any]) -> dict[str, Any]:
    """Read a message in Avro's single-object encoding: two bytes that mark it, eight that name its schema, and the body."""
    assert value[:2] == b"\xc3\x01", f"not Avro: {value!r}"
    assert value[2:10] in schemas, f"a message contains an unknown schema: {value!r}"
    return cast("dict[str, Any]", fastavro.schemaless_reader(BytesIO(value[10:]), schemas[value[2:10]], None))


def expect_placed(world: World, name: str) -> None:
    """Expect that what was keyed anew lies in the buckets of its new keys."""
    logs = world.cluster.topic(name).logs
    for number, log in enumerate(logs):
        for message in log.committed(0, ALL):
            key = message.key() or b""
            assert bucket_of(key, len(logs)) == number, f"{key!r} lies in bucket {number} of {name}"
            assert key.startswith(b"r"), f"{key!r} in {name} is no new key"


def state(world: World, node: Node) -> dict[bytes, bytes]:
    """Return the saved states of a processor's shards, from their current owners."""
    if node.is_remote:
        rows = (row for shard, row in world.store.rows.items() if shard.processor == node.name)
        return {slot: _joined(parts) for row in rows for slot, parts in row.slots.items()}
    found: dict[bytes, bytes] = {}
    for shard in world.machines.shards(node):
        if isinstance(shard.state, SimulatedState) and shard.state.database is not None:
            found |= shard.state.database.content.values()
    return found


def _joined(parts: Parts) -> bytes:
    """Return what partials of count, sum, smallest and largest come to."""
    partials = [msgspec.msgpack.decode(one) for one in (parts.whole, *parts.partials) if one is not None]
    counts, totals, smallest, largest = zip(*partials, strict=True)
    return msgspec.msgpack.encode((sum(counts), sum(totals), min(smallest), max(largest)))


def expect_read(world: World) -> None:
    """Expect that every processor has read and saved all of its input."""
    for node, processor in world.processors.items():
        for category in processor.inputs():
            committed = world.bus.committed(processor.name, category.name)
            for number in world.bus.ends(category.name):
                bucket = Bucket(category.name, number)
                unread = world.bus.slice(bucket, max(committed.get(number, 0), _saved(world, node, bucket)), 1)
                assert not unread, f"{node.name} has not read {bucket} from offset {unread[0].at} on"


def _saved(world: World, node: Node, bucket: Bucket) -> int:
    """Return up to where a bucket is read and saved: of a quiet one, the group may not know it yet."""
    saved = (shard.saved_position for shard in world.machines.shards(node) if shard.number == bucket.number)
    return max((position.get(bucket.category, 0) for position in saved), default=0)


def digest(world: World) -> str:
    """Return what is the same for the same run."""
    hashed = hashlib.sha256()
    for name in sorted(world.cluster.topics):
        for log in world.cluster.topics[name].logs:
            for message in log.committed(0, ALL):
                hashed.update(repr((name, message.at, message.payload, message.arrived_ms)).encode())
    hashed.update(repr((world.scheduler.points, world.scheduler.now_ms, world.history)).encode())
    return hashed.hexdigest()[:16]
