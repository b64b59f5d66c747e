"""Which buckets of a category are idle, as the bus has confirmed to this archiver itself.

    every second: where do quiet buckets end? -> where they are read to: silence goes on; further: it is over
    silent for `idle_after` -> idle, until an event comes, or an answer does not

A bucket that another archiver has is read to where that one has noted. So nobody relies on what an archiver noted that may be dead by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from math import inf

from ...processors.time.idleness import IdleDetector, IdleTimeout
from ...transport.bus import Bus
from ...transport.messages import Bucket


class IdleBuckets:
    """Follows the silence of a category's buckets.

    Args:
        bus: where the category is.
        category: its name.
        idle_after: for how long a bucket has to be silent; None for one that is never idle.
        monotonic_s: tells seconds that count on while nothing runs.
    """

    def __init__(self, bus: Bus, category: str, idle_after: timedelta | None, monotonic_s: Callable[[], float]) -> None:
        self._bus = bus
        self._category = category
        self._patience = IdleTimeout(inf if idle_after is None else idle_after.total_seconds())
        self._is_asked_for = idle_after is not None
        self._monotonic_s = monotonic_s
        self._asked_s = -inf
        self._silences: dict[int, IdleDetector] = {}
        self._noted: dict[int, int] = {}

    def interrupt(self, numbers: Iterable[int]) -> None:
        """Note that events came, or that a bucket begins anew."""
        now_s = self._monotonic_s()
        for number in numbers:
            self._of(number).interrupt(now_s)

    def follow(self, noted: Mapping[int, int]) -> frozenset[int]:
        """Take over how far the buckets of other archivers are read, as those have noted; return those that were read further since."""
        moved = frozenset(number for number, offset in noted.items() if self._noted.get(number, offset) != offset)
        self.interrupt(moved)
        self._noted = dict(noted)
        return moved

    def ask(self, read: Mapping[int, int], *, at_once: bool = False) -> None:
        """Ask the bus where quiet buckets end, if it is time to.

        Args:
            read: how far this archiver has read its own buckets.
            at_once: ask also if the last question was a moment ago.
        """
        asked_s = self._monotonic_s()
        if not self._is_asked_for or (not at_once and asked_s - self._asked_s < self._patience.ask_every_s):
            return
        self._asked_s = asked_s
        reached = {
            Bucket(self._category, number): offset
            for number, offset in {**self._noted, **read}.items()
            if at_once or self._of(number).is_quiet(asked_s)
        }
        ends = self._bus.catalog.ends_of(reached) if reached else {}
        for bucket, offset in reached.items():
            if ends[bucket] <= offset:
                self._of(bucket.number).confirm(asked_s)
        self.interrupt(bucket.number for bucket, offset in reached.items() if ends[bucket] > offset)

    def idle(self) -> frozenset[int]:
        """Return the buckets that nobody need wait for."""
        now_s = self._monotonic_s()
        return frozenset(number for number, silence in self._silences.items() if silence.is_idle(now_s))

    def _of(self, number: int) -> IdleDetector:
        return self._silences.setdefault(number, IdleDetector(self._patience))
