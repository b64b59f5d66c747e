"""The latest messages of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....processors.declare import Message
from ....transport import Bucket, Bus, CategorySpec, OffsetRange, read_offset_range

SILENCE_LIMIT_S = 30.0


@dataclass(frozen=True)
class TopicSample:
    """Messages of a topic.

    Args:
        spec: the settings of the topic.
        messages: messages of all its buckets; in order for each bucket.
        unknown: settings that the bus does not report, each with the reason.
    """

    spec: CategorySpec
    messages: Sequence[Message]
    unknown: Mapping[str, str] = field(default_factory=dict)


def read_sample(bus: Bus, topic: str, size: int) -> TopicSample:
    """Return the latest messages of a topic: equally many of each bucket, and more of the others where a bucket contains fewer.

    Args:
        bus: contains the topic.
        topic: its name.
        size: the number of messages of all buckets together.

    Raises:
        MissingCategory: there is no such topic.
    """
    state = bus.catalog.describe(topic)
    ends = bus.catalog.stable_ends(topic)
    of_each = _of_each([ends[number] - state.starts[number] for number in ends], size)
    ranges = [
        OffsetRange(Bucket(topic, number), max(state.starts[number], end - of_each), end)
        for number, end in sorted(ends.items())
    ]
    batches = (
        batch
        for part in ranges
        if part.start < part.end
        for batch in read_offset_range(bus, part, silence_limit_s=SILENCE_LIMIT_S)
    )
    return TopicSample(state.spec, [message for batch in batches for message in batch.messages], state.unknown)


def _of_each(available: Sequence[int], size: int) -> int:
    """Return the greatest number of messages of a bucket such that the sample has at least `size`, if there are so many.

    Args:
        available: the number of offsets in each bucket.
        size: the number of messages of all buckets together.
    """
    missing = size
    for bucket, count in enumerate(sorted(available)):
        others = len(available) - bucket
        if count * others >= missing:
            return -(-missing // others)
        missing -= count
    return max(available, default=0)
