"""The input of a run: rounds of events out of order within a bound, and final events that complete all windows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from support.kinds import BEHIND_MS, GAP_MS, HOUR_MS, MINUTE_MS, Event

from penstock.processors.declare import bucket_of

from .scheduler import START_MS

if TYPE_CHECKING:
    from .scenario import Scenario

KEYS = 6
LATE_PROBABILITY = 0.2
"""The probability of a late event, in scenarios with late events; twice as high where a watermark follows their lateness."""
DELETION_PROBABILITY = 0.2
"""The probability that a message to a table deletes a row, in scenarios with deletions."""
LAG_MS = 5 * HOUR_MS
"""The lag of some buckets in event time."""
BASE_MS = START_MS - 985 * HOUR_MS - 34 * MINUTE_MS
"""Before midnight, so the archive has events of two days. After six rounds, the watermark is exactly at the end of an hour."""
END_MS = BASE_MS + 500 * HOUR_MS
"""The event time of the last events, which completes all windows."""


def complete_ms(turn: int, count: int, *, lopsided: bool) -> int:
    """Return the watermark after a round: no later event is earlier."""
    return BASE_MS + (turn * 7 - 1) * MINUTE_MS - lopsided * LAG_MS if turn < count else END_MS - BEHIND_MS


@lru_cache
def active_keys(buckets: int) -> tuple[str, ...]:
    """Return a key for each bucket. Each round has an event of each key, so no bucket becomes idle."""
    keys = (f"b{number}" for number in range(1_000))
    found: dict[int, str] = {}
    for key in keys:
        found.setdefault(bucket_of(key.encode(), buckets), key)
    return tuple(found[number] for number in range(buckets))


def is_deletion(row: Event) -> bool:
    """Return whether a message to a table deletes the row of its key."""
    return row.number < 0


def rounds(scenario: Scenario) -> Iterator[Sequence[Sequence[Event]]]:
    """Yield the events of each round by input. Numbers are unique; the numbers of deletions are negative."""
    count, inputs = len(scenario.rounds_s), scenario.sources
    draw = _Draw(scenario)
    for turn in range(count):
        ends = [turn > count // 2 and scenario.ends_early and place > 0 for place in range(len(inputs))]
        yield [[] if ended else draw.round(turn, place) for place, ended in enumerate(ends)]
    buckets = [scenario.category_settings.buckets_of(name) for name in inputs]
    keys = [active_keys(size)[: 1 if scenario.quiet else None] for size in buckets]
    yield [[draw.event(size, key, END_MS) for key in some] for size, some in zip(buckets, keys, strict=True)]


class _Draw:
    """Draws events.

    Args:
        scenario: the scenario of the run.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._rng = random.Random(scenario.seed)
        self._further = random.Random(-scenario.seed - 1)
        self._number = 0

    def round(self, turn: int, place: int) -> list[Event]:
        """Return the events of a round for an input."""
        scenario, rng = self._scenario, self._rng
        buckets = scenario.category_settings.buckets_of(scenario.sources[place])
        now_ms = BASE_MS + turn * 7 * MINUTE_MS
        narrow = scenario.lopsided and turn > len(scenario.rounds_s) // 2
        awake = active_keys(buckets)[: 1 if narrow else None]
        written = [self.event(buckets, key, now_ms) for key in awake]
        keys = (
            [awake[0]] * scenario.events
            if narrow
            else [f"k{min(rng.randrange(KEYS), rng.randrange(KEYS))}" for _ in range(scenario.events)]
        )
        for key in keys:
            at_ms = now_ms - self._behind_ms()
            if scenario.is_late and self._further.random() < LATE_PROBABILITY * (1 + scenario.is_estimated):
                at_ms -= self._further.randrange(4 * HOUR_MS)
                if scenario.is_estimated:  # late events come together, as from a device that was offline
                    near = (self._further.randrange(-GAP_MS, GAP_MS) for _ in range(self._further.randrange(3)))
                    written.extend(self.event(buckets, key, at_ms + distance) for distance in near)
            written.append(self.event(buckets, key, at_ms))
        if scenario.deletes and place == 0:
            self._delete_some(written)
        return written

    def _behind_ms(self) -> int:
        """Return the distance of an event to the newest one, which watermarks allow."""
        if self._scenario.on_minutes:
            return self._rng.randrange(BEHIND_MS // MINUTE_MS + 1) * MINUTE_MS
        return self._rng.randrange(BEHIND_MS - MINUTE_MS)

    def _delete_some(self, rows: list[Event]) -> None:
        """Replace some rows by deletions."""
        for at, row in enumerate(rows):
            if self._further.random() < DELETION_PROBABILITY:
                rows[at] = Event(row.key, row.at, -row.number)

    def event(self, buckets: int, key: str, at_ms: int) -> Event:
        """Return an event with the next number."""
        self._number += 1
        if self._scenario.lopsided and at_ms < END_MS and bucket_of(key.encode(), buckets) != 0:
            at_ms -= LAG_MS
        if self._scenario.on_minutes:
            at_ms -= at_ms % MINUTE_MS
        return Event(key, at_ms, self._number)
