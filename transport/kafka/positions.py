"""Positions as the client has them. Which checkpoint committed one is kept in the text that Kafka stores beside a group's offset."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from ..messages import Bucket, Position

_CHECKPOINT = "checkpoint "
_MEMBERSHIP = b"CGMDv2:"
"""How the client library's note of a membership begins; the generation follows, as four bytes."""


def to_read(positions: Iterable[Position]) -> list[TopicPartition]:
    """Return from where to read."""
    return [TopicPartition(*bucket, OFFSET_BEGINNING if offset is None else offset) for bucket, offset, _ in positions]


def to_commit(positions: Iterable[Position]) -> list[TopicPartition]:
    """Return what a group is to commit."""
    return [
        TopicPartition(*bucket, offset, metadata=f"{_CHECKPOINT}{checkpoint_id}")
        if checkpoint_id
        else TopicPartition(*bucket, offset)
        for bucket, offset, checkpoint_id in positions
        if offset is not None
    ]


def committed_in(found: Iterable[TopicPartition]) -> list[Position]:
    """Return the positions that a group has committed, of those that were asked for."""
    return [
        Position(Bucket(it.topic, it.partition), it.offset, _checkpoint_id_of(it)) for it in found if it.offset >= 0
    ]


def _checkpoint_id_of(committed: TopicPartition) -> int:
    """Return which checkpoint committed a position; 0 where it was none that has an id, or another program."""
    digits = (committed.metadata or "").removeprefix(_CHECKPOINT)
    return int(digits) if digits.isdecimal() else 0


def is_membership(noted: bytes) -> bool:
    """Tell whether the client's note of a membership is of one, and not of a member that is joining, or was dismissed.

    A broker takes positions that come without a generation from anybody, as long as the group has no members.
    """
    generation = noted.removeprefix(_MEMBERSHIP)[:4]
    return int.from_bytes(generation, sys.byteorder, signed=True) >= 0
