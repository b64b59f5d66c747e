"""Registrations: what each processor reads, and of which topics its positions are. They outlast its group's positions, which expire.

    penstock.processors, compacted    key  processor           value  its inputs, and how many buckets each has, as JSON
                                      key  processor/bucket    value  the record of one of its shards, as JSON

Kafka drops the committed positions of a group that has had no members for a week, and those of a topic that is deleted. A processor without
positions would look like one that has never run, and would begin anew. Its registration tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import msgspec

from ...processors.declare.processor import Processor
from ..bus import Bucket, Bus, CategorySpec, Outgoing, Position
from ..changelog import changelog_spec
from ..internal_topics import ensure

PROCESSORS = CategorySpec("penstock.processors", buckets=1, compacted=True)
"""Where registrations are kept."""

READ_WAIT_S = 1.0


class ShardRecord(msgspec.Struct, frozen=True):
    """What is known of one shard beside its state and its positions.

    Args:
        topic_ids: by category, the id of the topic that its positions are of: its inputs, and its changelog.
        worker: the worker that opened it last.
        has_committed: whether its group has ever committed a position.
    """

    topic_ids: dict[str, str]
    worker: str = ""
    has_committed: bool = False


@dataclass
class Registration:
    """What is known of one processor.

    Args:
        inputs: the categories that it reads, and how many buckets each has; None where it has never been started.
        shards: by bucket.
    """

    inputs: dict[str, int] | None = None
    shards: dict[int, ShardRecord] = field(default_factory=dict)


_encode = msgspec.json.Encoder().encode
_decode_inputs = msgspec.json.Decoder(dict[str, int]).decode
_decode_shard = msgspec.json.Decoder(ShardRecord).decode


def registrations_on(bus: Bus) -> dict[str, Registration]:
    """Return the registrations on a bus, by processor."""
    found: dict[str, Registration] = {}
    for key, value in _newest(bus).items():
        if value is None:
            continue
        processor, _, bucket = key.decode().partition("/")
        registration = found.setdefault(processor, Registration())
        if bucket:
            registration.shards[int(bucket)] = _decode_shard(value)
        else:
            registration.inputs = _decode_inputs(value)
    return found


def registration_of(bus: Bus, processor: str) -> Registration:
    """Return what is known of a processor."""
    return registrations_on(bus).get(processor, Registration())


def register_inputs(bus: Bus, processor: str, inputs: Mapping[str, int]) -> None:
    """Note what a processor reads, and how many buckets that has; durable on return."""
    _send(bus, [Outgoing(processor.encode(), _encode(dict(sorted(inputs.items()))))])


def record_shards(bus: Bus, processor: str, records: Mapping[int, ShardRecord]) -> None:
    """Note what is known of shards, in place of what was known before; durable on return."""
    _send(bus, [Outgoing(f"{processor}/{bucket}".encode(), _encode(record)) for bucket, record in records.items()])


def topic_ids_of(bus: Bus, processor: type[Processor]) -> dict[str, str]:
    """Return the ids of the topics that a processor's positions are of: its inputs, and its changelog, where it has one."""
    names = [*(category.name for category in processor.inputs()), changelog_spec(processor).name]
    return {name: topic.id for name, topic in bus.catalog.topics(names).items()}


def register_moved(bus: Bus, processor: type[Processor], buckets: Iterable[int]) -> None:
    """Note that shards go on, in the topics that are on the bus now, from positions that were set from outside."""
    known, topic_ids = registration_of(bus, processor.name), topic_ids_of(bus, processor)
    workers = {bucket: record.worker for bucket, record in known.shards.items()}
    register_inputs(bus, processor.name, {category.name: category.buckets for category in processor.inputs()})
    record_shards(
        bus,
        processor.name,
        {bucket: ShardRecord(topic_ids, workers.get(bucket, ""), has_committed=True) for bucket in buckets},
    )


def forget_registration(bus: Bus, processor: str) -> None:
    """Forget a processor, so that one of its name begins as if there had never been one."""
    known = [key for key, value in _newest(bus).items() if value is not None]
    own = [key for key in known if key.decode().partition("/")[0] == processor]
    if own:
        _send(bus, [Outgoing(key, None) for key in own])


def _newest(bus: Bus) -> dict[bytes, bytes | None]:
    """Return the newest message of each key."""
    if not bus.catalog.topics([PROCESSORS.name]):
        return {}
    newest: dict[bytes, bytes | None] = {}
    with closing(bus.scanner([Position(Bucket(PROCESSORS.name, 0), None)])) as scanner:
        while True:
            polled = scanner.poll(READ_WAIT_S)
            for message in (message for batch in polled.batches for message in batch.messages):
                newest[message.key() or b""] = message.value()
            if polled.ended:
                return newest


def _send(bus: Bus, messages: list[Outgoing]) -> None:
    ensure(bus, PROCESSORS)
    with closing(bus.writer()) as writer:
        writer.send(PROCESSORS.name, messages)
        writer.flush()
