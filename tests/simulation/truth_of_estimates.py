"""The expected results of processors whose watermark is estimated from the lateness of their events.

Such a watermark jumps when its bound shrinks, so an event may lie behind its own watermark although it was on time before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from support.by_time import is_match, left_end_ms, right_end_ms
from support.kinds import DELAY_MS, GAP_MS, HOUR_MS, LATENESS_MS, Event
from support.subjects import LEAST, MOST, Subject
from support.verdicts import summary

from penstock.processors.declare import bucket_of
from penstock.processors.time import watermarks

Outputs = Sequence[dict[str, Any]]
NEVER_MS = -(2**63)
WARM_UP = 8
"""The number of events before the first watermark of a bucket."""
PRECISION_BITS = 7
"""The number of leading bits of a lateness that are recorded."""


class Lows(NamedTuple):
    """The watermark of a bucket around an event.

    Args:
        before_ms: before the event.
        after_ms: after it.
    """

    before_ms: int
    after_ms: int


class EstimatedTimes:
    """The watermarks of an input, by the number of the event.

    Args:
        events: the input, in write order.
        buckets: its number of buckets.
        share: the share of events on time.
    """

    def __init__(self, events: Sequence[Event], buckets: int, share: float) -> None:
        self._buckets = buckets
        self.lows: dict[int, Lows] = {}
        self._final_ms: dict[int, int] = dict.fromkeys(range(buckets), NEVER_MS)
        by_bucket: defaultdict[int, list[Event]] = defaultdict(list)
        for event in events:
            by_bucket[bucket_of(event.key.encode(), buckets)].append(event)
        for bucket, of_bucket in by_bucket.items():
            self._final_ms[bucket] = self._follow(of_bucket, share)

    def _follow(self, events: Sequence[Event], share: float) -> int:
        newest_ms = low_ms = NEVER_MS
        bound_ms: int | None = None
        latenesses: list[int] = []
        for event in events:
            before_ms, newest_ms = low_ms, max(newest_ms, event.at)
            latenesses.append(_recorded(newest_ms - event.at))
            count = len(latenesses)
            interval = watermarks.UPDATE_INTERVAL
            if count % interval == 0 if count >= interval else count & (count - 1) == 0:
                bound_ms = _bound_ms(latenesses, share)
            if bound_ms is not None:
                low_ms = max(low_ms, newest_ms - bound_ms)
            self.lows[event.number] = Lows(before_ms, low_ms)
        return low_ms

    def final_ms(self, key: str) -> int:
        """Return the last watermark of the bucket of a key."""
        return self._final_ms[bucket_of(key.encode(), self._buckets)]

    def is_on_time(self, event: Event) -> bool:
        """Return whether an event was not behind the watermark before it."""
        return event.at >= self.lows[event.number].before_ms

    def is_accepted(self, kind: str, event: Event) -> bool:
        """Return whether an event is part of a result of a kind, and not dropped as late."""
        match kind:
            case "ordered" | "sliding":
                return self.is_on_time(event)
            case "timers":
                return True
            case _:
                allowed_ms = LATENESS_MS if kind == "differences" else 0
                end_ms = event.at // HOUR_MS * HOUR_MS + HOUR_MS
                return end_ms + allowed_ms > self.lows[event.number].before_ms


def _recorded(lateness_ms: int) -> int:
    """Return the greatest lateness that is recorded like this one."""
    shift = max(lateness_ms.bit_length() - PRECISION_BITS, 0)
    return ((lateness_ms >> shift) + 1 << shift) - 1


def _bound_ms(latenesses: Sequence[int], share: float) -> int | None:
    """Return the lateness that a share of the events does not exceed, with a margin for few events."""
    count = len(latenesses)
    if count < WARM_UP:
        return None
    above = min(int((1 - share) * (count + 1)), count - 1)
    quantile_ms = sorted(latenesses, reverse=True)[above]
    return quantile_ms + quantile_ms * watermarks.CAUTION // count


def sessions_by_arrival(
    events: Sequence[Event], times: EstimatedTimes
) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """Return the sessions below the watermark, by key and start. An event joins the sessions that are open, or opens one if it is on time."""
    found: dict[tuple[str, int], tuple[int, int, int, int]] = {}
    open_: defaultdict[str, list[list[Event]]] = defaultdict(list)

    def end(key: str, low_ms: int) -> None:
        for session in [one for one in open_[key] if max(e.at for e in one) + GAP_MS <= low_ms]:
            open_[key].remove(session)
            found[key, min(e.at for e in session)] = summary([e.number for e in session])

    for event in events:
        before_ms, after_ms = times.lows[event.number]
        end(event.key, after_ms if event.at >= after_ms else before_ms)
        near = [one for one in open_[event.key] if any(abs(other.at - event.at) < GAP_MS for other in one)]
        if near or times.is_on_time(event):
            apart = [one for one in open_[event.key] if one not in near]
            open_[event.key] = [*apart, [*chain.from_iterable(near), event]]
        end(event.key, after_ms)
    for key in list(open_):
        end(key, times.final_ms(key))
    return found


def expect_answers_after_events(outputs: Outputs, events: Sequence[Event], times: EstimatedTimes) -> None:
    """Expect that no timer fires before an event that is on time and earlier."""
    by_number = {event.number: event for event in events}
    for output in outputs:
        due_ms = by_number[output["number"]].at + DELAY_MS
        earlier = sum(one.key == output["key"] and one.at < due_ms and times.is_on_time(one) for one in events)
        assert output["count"] >= earlier, f"{output} lacks events that were on time"


def expect_joined_by_estimate(
    subject: Subject, outputs: Outputs, left: Sequence[Event], right: Sequence[Event], times: Sequence[EstimatedTimes]
) -> None:
    """Compare a join's outputs with all pairs: both inputs determine which late events match, but events on time always do."""
    pairs = {(one.number, other.number) for one in left for other in right if is_match(one, other)}
    on_time = {
        event.number
        for events, of in zip((left, right), times, strict=True)
        for event in events
        if of.is_on_time(event)
    }
    found = [(output["number"], output["answer"]) for output in outputs]
    joined = {pair for pair in found if None not in pair}
    assert joined <= pairs, f"joined without a match: {sorted(joined - pairs)[:10]}"
    matched = {number for pair in joined for number in pair}
    alone = {number for pair in set(found) - joined for number in pair if number is not None}
    certain = {pair for pair in pairs if on_time.issuperset(pair)}
    assert not alone & {number for pair in certain for number in pair}, (
        "an event has a match on time, and is written without one"
    )
    if subject.output is not MOST:
        ended = {event.number for event in left if left_end_ms(event) <= _low(event, times)}
        ended |= {event.number for event in right if right_end_ms(event) <= _low(event, times)}
        assert joined >= certain, f"missing: {sorted(certain - joined)[:10]}"
        assert alone | matched >= ended, f"in no output: {sorted(ended - alone - matched)[:10]}"
    if subject.output is not LEAST:  # outputs that repeat follow another order of both inputs
        assert not alone & matched, f"written with and without a match: {sorted(alone & matched)[:10]}"
        again = [pair for pair in set(found) if found.count(pair) > 1]
        assert not again, f"repeated: {sorted(again, key=str)[:10]}"


def _low(event: Event, times: Sequence[EstimatedTimes]) -> int:
    return min(of.final_ms(event.key) for of in times)
