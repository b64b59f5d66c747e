"""Pending letters about messages that are processed again after a processor goes back in its inputs: a retry would process them twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...processors.wording import counted
from ...transport.bus import Bus
from ...transport.messages import Bucket
from .letters import letters_of, read_letters


def pending_from(bus: Bus, processor: str, positions: Mapping[Bucket, int]) -> int:
    """Return the number of a processor's pending letters about messages at or after the positions that it goes back to."""
    if not bus.catalog.topics([letters_of(processor)]):
        return 0
    pending = (letter.content for letter in read_letters(bus, processor) if letter.mark is None)
    places = ((Bucket(content.category, content.bucket), content.offset) for content in pending)
    return sum(bucket in positions and offset >= positions[bucket] for bucket, offset in places)


def repeats_of(bus: Bus, processor: str, positions: Mapping[Bucket, int]) -> Iterator[str]:
    """Yield what to do about these letters, if there are any."""
    number = pending_from(bus, processor, positions)
    if number:
        yield (
            f"{counted(number, 'pending dead letter')} of {processor} will stay, and the rejected messages will be processed again. A retry would process "
            f"them twice: afterwards, drop the letters from before this operation (`penstock dead-letters drop {processor}`)."
        )
