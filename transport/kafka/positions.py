"""Conversion of positions to the client's types. The metadata of a committed offset contains the id of its checkpoint, or event times."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from ...processors.time import NEVER_MS
from ..messages import Bucket, Position

_CHECKPOINT = "checkpoint "
_WATERMARK = "watermark "
_MEMBERSHIP = b"CGMDv2:"
"""The prefix of the client library's group metadata; four bytes of the generation follow."""


def to_read(positions: Iterable[Position]) -> list[TopicPartition]:
    """Return the partitions and offsets to read from."""
    return [
        TopicPartition(*position.bucket, OFFSET_BEGINNING if position.offset is None else position.offset)
        for position in positions
    ]


def to_commit(positions: Iterable[Position]) -> list[TopicPartition]:
    """Return the partitions and offsets to commit."""
    return [
        TopicPartition(*position.bucket, position.offset, metadata=_metadata_of(position))
        for position in positions
        if position.offset is not None
    ]


def _metadata_of(position: Position) -> str:
    """Return the metadata to commit. The checkpoints of a processor have ids or, without a state, event times."""
    if position.checkpoint_id:
        return f"{_CHECKPOINT}{position.checkpoint_id}"
    has_times = position.low_ms != NEVER_MS or position.event_time
    return f"{_WATERMARK}{position.low_ms} {position.event_time}".rstrip() if has_times else ""


def committed_in(found: Iterable[TopicPartition]) -> list[Position]:
    """Return the committed positions in a response."""
    return [
        Position(
            Bucket(committed.topic, committed.partition),
            committed.offset,
            _number_in(committed, _CHECKPOINT, 0),
            _number_in(committed, _WATERMARK, NEVER_MS),
            _event_time_in(committed),
        )
        for committed in found
        if committed.offset >= 0
    ]


def _number_in(committed: TopicPartition, kind: str, missing: int) -> int:
    """Return the number in the metadata of a position, if it is of a kind; other programs write other metadata."""
    before, prefix, rest = (committed.metadata or "").partition(kind)
    number = rest.partition(" ")[0]
    is_whole = prefix and not before and number.removeprefix("-").isdecimal()
    return int(number) if is_whole else missing


def _event_time_in(committed: TopicPartition) -> str:
    """Return the event time of the input in the metadata of a position; empty without one."""
    metadata = committed.metadata or ""
    return metadata.removeprefix(_WATERMARK).partition(" ")[2] if metadata.startswith(_WATERMARK) else ""


def is_membership(metadata: bytes) -> bool:
    """Return whether group metadata is of a member, and not of a client that is joining or was removed.

    A broker accepts positions without a generation from any client while the group has no members.
    """
    generation = metadata.removeprefix(_MEMBERSHIP)[:4]
    return int.from_bytes(generation, sys.byteorder, signed=True) >= 0
