"""Conversion of positions to the client's types. The metadata of a committed offset contains the id of its checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from ..messages import Bucket, Position

_CHECKPOINT = "checkpoint "
_MEMBERSHIP = b"CGMDv2:"
"""The prefix of the client library's group metadata; four bytes of the generation follow."""


def to_read(positions: Iterable[Position]) -> list[TopicPartition]:
    """Return the partitions and offsets to read from."""
    return [TopicPartition(*bucket, OFFSET_BEGINNING if offset is None else offset) for bucket, offset, _ in positions]


def to_commit(positions: Iterable[Position]) -> list[TopicPartition]:
    """Return the partitions and offsets to commit."""
    return [
        TopicPartition(*bucket, offset, metadata=f"{_CHECKPOINT}{checkpoint_id}")
        if checkpoint_id
        else TopicPartition(*bucket, offset)
        for bucket, offset, checkpoint_id in positions
        if offset is not None
    ]


def committed_in(found: Iterable[TopicPartition]) -> list[Position]:
    """Return the committed positions in a response."""
    return [
        Position(Bucket(committed.topic, committed.partition), committed.offset, _checkpoint_id_of(committed))
        for committed in found
        if committed.offset >= 0
    ]


def _checkpoint_id_of(committed: TopicPartition) -> int:
    """Return the id of the checkpoint that committed a position; 0 for another program or a checkpoint without an id."""
    digits = (committed.metadata or "").removeprefix(_CHECKPOINT)
    return int(digits) if digits.isdecimal() else 0


def is_membership(metadata: bytes) -> bool:
    """Return whether group metadata is of a member, and not of a client that is joining or was removed.

    A broker accepts positions without a generation from any client while the group has no members.
    """
    generation = metadata.removeprefix(_MEMBERSHIP)[:4]
    return int.from_bytes(generation, sys.byteorder, signed=True) >= 0
