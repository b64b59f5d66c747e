"""What windows and joins of a run have to come to, computed from its input alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from support.by_event import expect_flow
from support.by_time import complete_hours, left_end_ms, lies_within, right_end_ms, sessions_of, slides
from support.kinds import HOUR_MS, Event
from support.subjects import EXACT, LEAST, MOST, Subject
from support.verdicts import by_hour, expect_complete, expect_updates

Outputs = Sequence[dict[str, Any]]
Inputs = Sequence[Sequence[Event]]


def expect_windows(subject: Subject, outputs: Outputs, inputs: Inputs, low_ms: Mapping[str, int]) -> None:
    """Check the outputs of processors that aggregate several events."""
    events = [event for one in inputs for event in one]
    match subject.kind:
        case "aggregator" if subject.output is MOST:
            # A worker that was paused before it sent them sends them late: none is repeated, but the order may differ.
            updates = Counter((one["key"], one["hour"], one["count"], one["total"]) for one in outputs)
            again = [update for update in updates if updates[update] > 1]
            assert not again, f"came again: {again[:10]}"
            assert {update[:2] for update in updates} <= set(by_hour(events)), "updates of no event"
        case "aggregator":
            expect_updates(outputs, events, subject.state, subject.output)
        case "windowed":
            _expect_hours(subject, outputs, complete_hours(events, low_ms))
        case "early":
            _expect_early(subject, outputs, events)
        case "flow":
            expect_flow(subject, outputs, by_hour(events))
        case "sliding":
            expect_complete(outputs, slides(events, low_ms), subject.state, subject.output)
        case "sessions":
            expect_complete(outputs, sessions_of(events, low_ms), subject.state, subject.output)
        case "joining":
            _expect_met(subject, outputs, inputs[0], inputs[1], low_ms)
        case _:
            expect_complete(outputs, complete_hours(events, low_ms), subject.state, subject.output)


def _expect_hours(
    subject: Subject, outputs: Outputs, complete: Mapping[tuple[str, int], tuple[int, int, int, int]]
) -> None:
    """Compare hours that are written once with the complete hours."""
    truth = {(key, hour // HOUR_MS): values for (key, hour), values in complete.items()}
    found = Counter((output["key"], output["number"]) for output in outputs)
    assert set(found) <= set(truth), f"not complete: {sorted(set(found) - set(truth))[:10]}"
    if subject.output is not MOST:
        assert set(found) == set(truth), f"missing: {sorted(set(truth) - set(found))[:10]}"
    if subject.output is not LEAST:
        assert set(found.values()) <= {1}, f"came again: {[slot for slot in found if found[slot] > 1][:10]}"
    for output in outputs if subject.state is EXACT else ():
        slot = output["key"], output["number"]
        assert (output["count"], output["total"]) == truth[slot][:2], f"{slot} is {output}, not {truth[slot]}"


def _expect_early(subject: Subject, outputs: Outputs, events: Sequence[Event]) -> None:
    """Compare hours that are written early and once more when complete with the events; also incomplete hours."""
    truth = by_hour(events)
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for output in outputs:
        one = output["count"], output["total"], output["smallest"], output["largest"]
        found.setdefault((output["key"], output["hour"]), []).append(one)
    assert set(found) <= set(truth), f"of no event: {sorted(set(found) - set(truth))[:10]}"
    if subject.output is not MOST:
        assert set(found) == set(truth), f"missing: {sorted(set(truth) - set(found))[:10]}"
    for slot, values in found.items():
        complete = values[:-1] if values[-1:] == values[-2:-1] else values
        counts = [one[0] for one in complete]
        if subject.output is not LEAST and subject.state is EXACT:
            assert counts == sorted(set(counts)), f"an update of {slot} came again: {counts}"
        if subject.output is not MOST and subject.state is EXACT:
            assert values[-1] == truth[slot], f"{slot} is {values[-1]} in the end, not {truth[slot]}"


def _expect_met(
    subject: Subject, outputs: Outputs, left: Sequence[Event], right: Sequence[Event], low_ms: Mapping[str, int]
) -> None:
    """Compare a join's outputs with all pairs, and the events without a match."""
    pairs = {(one.number, other.number) for one in left for other in right if lies_within(one, other)}
    met = {number for pair in pairs for number in pair}
    ended: set[tuple[int | None, int | None]] = {
        (one.number, None) for one in left if one.number not in met and left_end_ms(one) <= low_ms[one.key]
    }
    ended |= {(None, one.number) for one in right if one.number not in met and right_end_ms(one) <= low_ms[one.key]}
    found = [(output["number"], output["answer"]) for output in outputs]
    complete = {pair for pair in found if None not in pair}
    assert complete <= pairs, f"met that should not have: {sorted(complete - pairs)[:10]}"
    if subject.state is EXACT:
        assert set(found) <= pairs | ended, f"alone, but not so: {sorted(set(found) - pairs - ended, key=str)[:10]}"
    if subject.output is not MOST:
        assert set(found) >= pairs | ended, f"missing: {sorted((pairs | ended) - set(found), key=str)[:10]}"
    if subject.output is not LEAST:
        again = [pair for pair in set(found) if found.count(pair) > 1]
        assert not again, f"came again: {sorted(again, key=str)[:10]}"
