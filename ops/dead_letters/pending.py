"""The number of pending dead letters, for monitoring: letters that were neither retried nor dropped, without the markers of transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...transport import Bucket, Bus, CategoryState, OffsetRange, read_offset_range
from ...transport.codecs import UndecodableValue, decode_dead_letter
from .letters import marks_of


@dataclass
class _Counted:
    """The letters of one processor that were read.

    Args:
        topic_id: the topic id of their category.
        ends: the ends of letters and marks at the last count.
        next: the next unread offset.
        pending: the number of pending letters at the last count.
        rejected_ms: the rejection times (milliseconds since 1970, UTC), by offset.
    """

    topic_id: str
    ends: tuple[int, int, int] = (-1, -1, -1)
    next: int = 0
    pending: int = 0
    rejected_ms: dict[int, int] = field(default_factory=dict)


class PendingLetters:
    """Counts pending dead letters. It reads each letter once, and its marks only after a change. One thread.

    Args:
        bus: the bus of the processors.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._counted: dict[str, _Counted] = {}

    def count(self, processor: str, category: str, state: CategoryState) -> int:
        """Return the number of pending letters of a processor.

        Args:
            processor: its name.
            category: the category of its dead letters.
            state: the present state of that category.

        Raises:
            BusError: Kafka does not answer.
        """
        if state.starts[0] == state.ends[0]:
            return 0  # most processors have no letter: the bus is asked nothing more
        counted = self._counted.get(processor)
        if counted is None or counted.topic_id != state.topic_id:
            counted = self._counted[processor] = _Counted(state.topic_id)
        ends = (state.starts[0], self._bus.catalog.stable_ends(category)[0], self._marks_end(processor))
        if ends != counted.ends:
            self._read(category, counted, *ends[:2])
            counted.pending = self._pending(processor, counted)
            counted.ends = ends
        return counted.pending

    def _marks_end(self, processor: str) -> int:
        name = marks_of(processor).spec.name
        return self._bus.catalog.stable_ends(name)[0] if self._bus.catalog.topics([name]) else 0

    def _read(self, category: str, counted: _Counted, start: int, end: int) -> None:
        """Read the new letters, and forget expired ones."""
        for offset in [offset for offset in counted.rejected_ms if offset < start]:
            del counted.rejected_ms[offset]
        first = max(start, counted.next)
        if first < end:
            for batch in read_offset_range(self._bus, OffsetRange(Bucket(category, 0), first, end)):
                for message in batch.messages:
                    if (value := message.value()) is not None:
                        counted.rejected_ms[message.offset()] = _rejected_ms(value)
        counted.next = max(first, end)

    def _pending(self, processor: str, counted: _Counted) -> int:
        marks = marks_of(processor).read(self._bus)
        handled = sum(
            counted.rejected_ms.get(number) == mark.rejected_at_ms  # else, it marks a letter of an earlier category
            for number, mark in marks.items()
        )
        return len(counted.rejected_ms) - handled


def _rejected_ms(value: bytes) -> int:
    try:
        return decode_dead_letter(value).at
    except UndecodableValue:
        return -1  # another program wrote it: no mark applies to it, so it stays pending
