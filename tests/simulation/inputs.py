"""The input of a run: events in rounds, some out of order, none too late, and in the end some far ahead, which complete what waits."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from support.kinds import BEHIND_MS, HOUR_MS, MINUTE_MS, Event
from support.subjects import BUCKETS

from penstock.processors.declare.partitioner import bucket_of

from .scheduler import START_MS

KEYS = 6
LAG_MS = 5 * HOUR_MS
"""How far behind in event time some buckets may lie."""
BASE_MS = START_MS - 985 * HOUR_MS
"""An hour before midnight: what the archive keeps by day lies in two of them."""
END_MS = BASE_MS + 500 * HOUR_MS
"""The event time of the last events: so late that all windows are complete."""


def complete_ms(turn: int, count: int, *, lopsided: bool) -> int:
    """Return what no event is earlier than that is written after a round."""
    return BASE_MS + turn * 7 * MINUTE_MS - lopsided * LAG_MS if turn < count else END_MS - BEHIND_MS


def _awake() -> tuple[str, ...]:
    """Return a key for each bucket."""
    keys = (f"b{number}" for number in range(1_000))
    found: dict[int, str] = {}
    for key in keys:
        found.setdefault(bucket_of(key.encode(), BUCKETS), key)
    return tuple(found[number] for number in range(BUCKETS))


AWAKE = _awake()
"""Keys of which each round has an event, so that no bucket is silent for long."""


def rounds(
    seed: int, count: int, events: int, inputs: int, *, quiet: bool, lame: bool, lopsided: bool
) -> Iterator[Sequence[Sequence[Event]]]:
    """Give what is written in each round to each input; numbers are given once.

    Args:
        seed: of what it is drawn.
        count: how many rounds there are before the last one.
        events: how many events a round has beside those of each bucket.
        inputs: how many inputs there are.
        quiet: whether the last round writes to one bucket alone.
        lopsided: whether all buckets but one lie behind in event time, and get nothing after half of the rounds.
        lame: whether all inputs but the first end after half of the rounds, but for the last round.
    """
    lots = random.Random(seed)
    number = 0

    def event(key: str, at_ms: int) -> Event:
        nonlocal number
        number += 1
        if lopsided and at_ms < END_MS and bucket_of(key.encode(), BUCKETS) != 0:
            at_ms -= LAG_MS
        return Event(key, at_ms, number)

    for turn in range(count):
        now_ms = BASE_MS + turn * 7 * MINUTE_MS
        written: list[list[Event]] = []
        for place in range(inputs):
            if lame and place and turn > count // 2:
                written.append([])
                continue
            narrow = lopsided and turn > count // 2
            awake = [event(key, now_ms) for key in (AWAKE[:1] if narrow else AWAKE)]
            keys = (
                [AWAKE[0]] * events
                if narrow
                else [f"k{min(lots.randrange(KEYS), lots.randrange(KEYS))}" for _ in range(events)]
            )
            others = [event(key, now_ms - lots.randrange(BEHIND_MS - MINUTE_MS)) for key in keys]
            written.append(awake + others)
        yield written
    yield [[event(key, END_MS) for key in (AWAKE[:1] if quiet else AWAKE)] for _ in range(inputs)]
