"""The expected results of subjects with event time, computed from the events and the watermark of each bucket."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from .kinds import AFTER_MS, BEFORE_MS, BEHIND_MS, DELAY_MS, GAP_MS, HOUR_MS, KINDS, Event
from .subjects import EXACT, LEAST, MOST, Subject, complete_ms
from .verdicts import Slot, by_hour, by_key, expect_complete, expect_counts, expect_each_event, newest_beside, summary
from .victims import Job

Outputs = Sequence[dict[str, Any]]
State = Mapping[bytes, Any]
Hours = Mapping[Slot, tuple[int, int, int, int]]
Pair = tuple[int | None, int | None]
"""The numbers of an event and its answer; one is None if the other has no match."""


def expect_event_time_guarantees(
    subject: Subject, events: Sequence[Event], outputs: Outputs, state: State, low_ms: Mapping[str, int]
) -> None:
    """Compare a subject's outputs and state with its events; `low_ms` is the watermark of each key."""
    answered = [event for event in events if event.at + DELAY_MS <= low_ms[event.key]]
    match subject.kind:
        case "timers":
            expect_each_event(subject.output, outputs, answered)
            expect_counts(subject.state, sums_in(state), by_key(events))
        case "ordered":
            passed = [event for event in events if event.at < low_ms[event.key]]
            expect_each_event(subject.output, outputs, passed)
            expect_counts(subject.state, sums_in(state), by_key(passed))
            expect_in_order(subject, outputs)
        case "joining":
            expect_joined(subject, outputs, events, low_ms)
            expect_buffered(subject, state, events, low_ms)
        case "early":
            expect_updates_and_ends(outputs, complete_hours(events, low_ms), by_hour(events), subject)
        case "sessions":
            expect_complete(outputs, sessions_of(events, low_ms), subject.state, subject.output)
        case "windowed":
            expect_complete(
                [_as_hour(one) for one in outputs], complete_hours(events, low_ms), subject.state, subject.output
            )
        case "sliding":
            expect_complete(outputs, slides(events, low_ms), subject.state, subject.output)
        case "downstream":
            answers = [Event(event.key, event.at + DELAY_MS, event.number) for event in answered]
            expect_complete(outputs, complete_hours(answers, low_ms), subject.state, subject.output)
        case _:
            expect_complete(outputs, complete_hours(events, low_ms), subject.state, subject.output)


def expect_updates_and_ends(outputs: Outputs, complete: Hours, hours: Hours, subject: Subject) -> None:
    """Compare early and final results of hours with the events: the last result is the total, and only it may repeat an earlier one."""
    found: dict[Slot, list[tuple[int, ...]]] = defaultdict(list)
    for one in outputs:
        found[one["key"], one["hour"]].append((one["count"], one["total"], one["smallest"], one["largest"]))
    assert found.keys() <= hours.keys()
    for slot, updates in found.items():
        *earlier, last = updates
        if subject.state is EXACT:
            assert last == complete.get(slot, last) or subject.output is MOST
            assert all(update[0] <= hours[slot][0] for update in updates)
        elif subject.state is MOST:
            assert all(update[0] <= hours[slot][0] for update in updates)
        else:
            assert slot not in complete or last[0] >= complete[slot][0]
        if subject.output is not LEAST:
            assert len(set(earlier)) == len(earlier), f"{slot} is repeated: {updates}"
            assert last not in earlier[:-1]
    if subject.output is not MOST:
        assert complete.keys() <= found.keys()


def watermarks(job: Job, events: Sequence[Event]) -> dict[str, int]:
    """Return the final watermark of each key's shard."""
    if job.subject.kind == "injected":
        return dict.fromkeys(by_key(events), complete_ms(len(events)))
    inputs = ("events",) if job.subject.kind == "downstream" else KINDS[job.subject.kind].reads
    newest = newest_beside(job.kafka, *(f"{job.prefix}.{name}" for name in inputs))
    if job.subject.kind == "downstream":
        newest = dict.fromkeys(newest, min(newest.values()))
    return {key: newest_ms - BEHIND_MS for key, newest_ms in newest.items()}


def complete_hours(events: Sequence[Event], low_ms: Mapping[str, int]) -> dict[Slot, tuple[int, int, int, int]]:
    """Return the results of all hours below the watermark."""
    return {slot: hour for slot, hour in by_hour(events).items() if slot[1] + HOUR_MS <= low_ms[slot[0]]}


def _as_hour(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output of "windowed" in the form of the aggregators' outputs, without minimum and maximum."""
    return {"key": one["key"], "hour": one["at"], "count": one["count"], "total": one["total"]}


def slides(events: Sequence[Event], low_ms: Mapping[str, int]) -> dict[Slot, tuple[int, int, int, int]]:
    """Return the results of the sliding hours below the watermark, by key and start."""
    return {
        (one.key, one.at - HOUR_MS + 1): summary(
            [other.number for other in events if other.key == one.key and one.at - HOUR_MS < other.at <= one.at]
        )
        for one in events
        if one.at < low_ms[one.key]
    }


def sessions_of(events: Sequence[Event], low_ms: Mapping[str, int]) -> dict[Slot, tuple[int, int, int, int]]:
    """Return the results of the sessions below the watermark, by key and start."""
    found: dict[Slot, list[Event]] = {}
    for key, of_key in groupby(sorted(events, key=lambda event: (event.key, event.at)), lambda event: event.key):
        run: list[Event] = []
        for event in of_key:
            if not run or event.at - run[-1].at >= GAP_MS:
                run = found[key, event.at] = []
            run.append(event)
    return {
        slot: summary([event.number for event in run])
        for slot, run in found.items()
        if run[-1].at + GAP_MS <= low_ms[slot[0]]
    }


def sums_in(state: State) -> dict[str, tuple[int, int]]:
    """Return count and sum of each key's state."""
    return {key.decode(): (sums["count"], sums["total"]) for key, sums in state.items()}


def expect_in_order(subject: Subject, outputs: Outputs) -> None:
    """Expect each key's events in order of event time; at weaker semantics, events may be missing or repeated."""
    if subject.state is not EXACT:
        return
    counted: dict[str, dict[int, int]] = defaultdict(dict)
    for output in outputs:
        counted[output["key"]][output["count"]] = output["at"]
    for times in counted.values():
        in_order = [times[count] for count in sorted(times)]
        assert in_order == sorted(in_order)


def expect_joined(subject: Subject, outputs: Outputs, events: Sequence[Event], low_ms: Mapping[str, int]) -> None:
    """Compare a join's outputs with all pairs of events and answers, and with the unmatched ones."""
    left, right = sides(events)
    pairs: set[Pair] = {(one.number, other.number) for one in left for other in right if is_match(one, other)}
    met = {number for pair in pairs for number in pair}
    ended: set[Pair] = {
        (one.number, None) for one in left if one.number not in met and left_end_ms(one) <= low_ms[one.key]
    }
    ended |= {(None, one.number) for one in right if one.number not in met and right_end_ms(one) <= low_ms[one.key]}
    found = Counter((output["number"], output["answer"]) for output in outputs)
    assert {pair for pair in found if None not in pair} <= pairs
    if subject.state is EXACT:  # with weaker state, an event can lose its match
        assert set(found) <= pairs | ended
    if subject.output is not MOST:
        assert set(found) >= pairs | ended, f"missing: {sorted((pairs | ended) - set(found), key=str)[:20]}"
    if subject.output is not LEAST:
        assert set(found.values()) <= {1}, f"repeated: {found}"


def expect_buffered(subject: Subject, state: State, events: Sequence[Event], low_ms: Mapping[str, int]) -> None:
    """Expect an exact join state to contain exactly the events that can still match."""
    if subject.state is not EXACT:
        return
    left, right = sides(events)
    waiting = {one.number for one in left if left_end_ms(one) > low_ms[one.key]}
    waiting |= {one.number for one in right if right_end_ms(one) > low_ms[one.key]}
    held = [event["number"] for both in state.values() for side in both for _, _, event in side]
    assert sorted(held) == sorted(waiting)


def sides(events: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
    """Return the events of the left input and the answers of the right input."""
    return events[::2], events[1::2]


def is_match(left: Event, right: Event) -> bool:
    """Tell whether an event and an answer match."""
    return left.key == right.key and -BEFORE_MS <= right.at - left.at <= AFTER_MS


def left_end_ms(event: Event) -> int:
    """Return the watermark from which no answer can match an event."""
    return event.at + AFTER_MS + 1


def right_end_ms(answer: Event) -> int:
    """Return the watermark from which no event can match an answer."""
    return answer.at + BEFORE_MS + 1
