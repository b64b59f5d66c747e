"""Registrations: the inputs of each processor, and the topics of its positions. They remain after the group's positions expire.

    penstock.processors, compacted    key  processor           value  its inputs and their numbers of buckets, as JSON
                                      key  processor/bucket    value  the record of one shard, as JSON

Kafka drops the committed positions of a group that has had no members for a week, and the positions of a deleted topic. Without a
registration, the processor would look new and would start from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from ...processors.declare import Processor, plan_of
from ..bus import Bus
from ..category_spec import CategorySpec
from ..changelog import changelog_spec
from .bus_table import BusTable, TableKeys

PROCESSORS = CategorySpec("penstock.processors", buckets=1, compacted=True)
"""The category of registrations."""


class RegisteredInputs(msgspec.Struct, frozen=True, tag="inputs"):
    """The inputs of a processor.

    Args:
        buckets: the number of buckets, by category.
    """

    buckets: dict[str, int]


class ShardRecord(msgspec.Struct, frozen=True, tag="shard"):
    """The record of one shard, beside its state and its positions.

    Args:
        topic_ids: the topic ids of its positions, by category: its inputs and its changelog.
        worker: the last worker that opened it.
        has_committed: whether its group has ever committed a position.
    """

    topic_ids: dict[str, str]
    worker: str = ""
    has_committed: bool = False


@dataclass
class Registration:
    """The records of one processor.

    Args:
        inputs: its inputs and their numbers of buckets; None for a processor that has never started.
        shards: the records of its shards, by bucket.
    """

    inputs: dict[str, int] | None = None
    shards: dict[int, ShardRecord] = field(default_factory=dict)


_Key = tuple[str, int | None]
"""A processor, and one of its buckets; None for the processor's inputs."""


def _encode_key(key: _Key) -> bytes:
    processor, bucket = key
    return (processor if bucket is None else f"{processor}/{bucket}").encode()


def _decode_key(key: bytes) -> _Key:
    processor, _, bucket = key.decode().partition("/")
    return processor, int(bucket) if bucket else None


_TABLE: BusTable[_Key, RegisteredInputs | ShardRecord] = BusTable(
    PROCESSORS, TableKeys(_encode_key, _decode_key), msgspec.json.Decoder(RegisteredInputs | ShardRecord).decode
)


def registrations_on(bus: Bus) -> dict[str, Registration]:
    """Return the registrations on a bus, by processor."""
    found: dict[str, Registration] = {}
    for (processor, bucket), record in _TABLE.read(bus).items():
        registration = found.setdefault(processor, Registration())
        if isinstance(record, RegisteredInputs):
            registration.inputs = record.buckets
        elif bucket is not None:
            registration.shards[bucket] = record
    return found


def registration_of(bus: Bus, processor: str) -> Registration:
    """Return the registration of a processor; an empty one for an unregistered processor."""
    return registrations_on(bus).get(processor, Registration())


def register_inputs(bus: Bus, processor: str, inputs: Mapping[str, int]) -> None:
    """Record the inputs of a processor and their numbers of buckets; durable on return."""
    _TABLE.write(bus, [_TABLE.put((processor, None), RegisteredInputs(dict(sorted(inputs.items()))))])


def record_shards(bus: Bus, processor: str, records: Mapping[int, ShardRecord]) -> None:
    """Replace the records of shards, by bucket; durable on return."""
    _TABLE.write(bus, [_TABLE.put((processor, bucket), record) for bucket, record in records.items()])


def topic_ids_of(bus: Bus, processor: type[Processor]) -> dict[str, str]:
    """Return the topic ids of a processor's inputs and of its changelog, without missing topics."""
    names = [*(category.name for category in plan_of(processor).inputs), changelog_spec(processor).name]
    return {name: topic.id for name, topic in bus.catalog.topics(names).items()}


def register_positions(bus: Bus, processor: type[Processor], buckets: Iterable[int]) -> None:
    """Record that shards continue, in the present topics, from positions set by a maintenance operation."""
    registered, topic_ids = registration_of(bus, processor.name), topic_ids_of(bus, processor)
    workers = {bucket: record.worker for bucket, record in registered.shards.items()}
    register_inputs(bus, processor.name, {category.name: category.buckets for category in plan_of(processor).inputs})
    record_shards(
        bus,
        processor.name,
        {bucket: ShardRecord(topic_ids, workers.get(bucket, ""), has_committed=True) for bucket in buckets},
    )


def forget_registration(bus: Bus, processor: str) -> None:
    """Delete the registration of a processor, so that a processor of this name starts from the beginning."""
    own = [key for key in _TABLE.read(bus) if key[0] == processor]
    if own:
        _TABLE.write(bus, map(_TABLE.delete, own))
