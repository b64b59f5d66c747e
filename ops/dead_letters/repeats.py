"""Pending letters about messages that are processed again after a processor goes back in its inputs: a retry would process them twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ...processors import counted
from ...transport import Bucket, Bus
from .handling import drop
from .letters import Letter, letters_of, read_letters


@dataclass(frozen=True)
class Repeats:
    """The messages that a processor processes again after an operation.

    Args:
        positions: the offsets from which it reads buckets again.
        waiting: the first places of earlier messages that wait for a retry again.
    """

    positions: Mapping[Bucket, int]
    waiting: Collection[tuple[Bucket, int]] = ()

    def include(self, letter: Letter) -> bool:
        """Return whether they include the message of a letter."""
        content = letter.content
        bucket = Bucket(content.category, content.bucket)
        is_read_again = bucket in self.positions and content.offset >= self.positions[bucket]
        return is_read_again or (bucket, content.offset) in self.waiting


def pending_of(bus: Bus, processor: str, repeats: Repeats) -> int:
    """Return the number of a processor's pending letters about messages that it processes again."""
    if not bus.catalog.topics([letters_of(processor)]):
        return 0
    return sum(letter.mark is None and repeats.include(letter) for letter in read_letters(bus, processor))


def effects_on_letters(bus: Bus, processor: str, repeats: Repeats) -> Iterator[str]:
    """Yield what an operation does to these letters, if there are any."""
    number = pending_of(bus, processor, repeats)
    if number:
        yield f"{counted(number, 'pending dead letter')} of {processor} will be dropped, because the rejected messages are processed again."


def drop_repeated(bus: Bus, processor: str, repeats: Repeats, operation: str) -> None:
    """Drop these letters, so that no retry processes a message twice. May be repeated.

    Args:
        bus: the bus.
        processor: the name of the processor; none of its workers runs.
        repeats: what it processes again.
        operation: the operation, for the reason.

    Raises:
        HandlingFailed: the bus failed.
    """
    if pending_of(bus, processor, repeats):
        drop(bus, processor, repeats.include, f"{operation}: the message is processed again")
