"""Which topics a state's position is of: a topic that was deleted and created again has the old one's name, and other events.

A position holds, beside the offset of each category, a number made of its topic's id. It goes wherever the position goes: into
checkpoints, backups, the changelog and remote stores. A position that was put together from outside has none until a worker saves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from .protocols import Offsets

_PREFIX = "topic id of "
"""No category's name has a space."""


def topic_marks(topic_ids: Mapping[str, str]) -> Offsets:
    """Return what a position holds for topics.

    Args:
        topic_ids: by category, the bus's id of its topic.
    """
    return {_PREFIX + name: _number(topic_id) for name, topic_id in topic_ids.items()}


def without_topic_marks(position: Mapping[str, int]) -> Offsets:
    """Return a position without what it holds for topics."""
    return {name: offset for name, offset in position.items() if not name.startswith(_PREFIX)}


def of_other_topics(position: Mapping[str, int], topic_ids: Mapping[str, str]) -> list[str]:
    """Return the categories whose topics are others than those that a position is of, as far as it says."""
    marks = topic_marks(topic_ids)
    return [name for name in topic_ids if position.get(_PREFIX + name, marks[_PREFIX + name]) != marks[_PREFIX + name]]


def _number(topic_id: str) -> int:
    """Return 63 bits, as every form of a position takes them."""
    return int.from_bytes(sha256(topic_id.encode()).digest()[:8], "big") >> 1
