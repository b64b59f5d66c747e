"""The expected outputs of windows and joins, computed from the input alone."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from support.by_event import expect_flow
from support.by_time import complete_hours, is_match, left_end_ms, right_end_ms, sessions_of, slides
from support.kinds import HOUR_MS, Event
from support.subjects import EXACT, LEAST, MOST, Subject
from support.verdicts import by_hour, expect_complete, expect_updates

Outputs = Sequence[dict[str, Any]]
Inputs = Sequence[Sequence[Event]]


def expect_windows(subject: Subject, outputs: Outputs, inputs: Inputs, watermarks_ms: Mapping[str, int]) -> None:
    """Check the outputs of processors that aggregate several events."""
    events = [event for events_of_input in inputs for event in events_of_input]
    match subject.kind:
        case "aggregator" if subject.output is MOST:
            # A worker that was paused before it sent its outputs sends them late. No output repeats, but the order may differ.
            updates = Counter((row["key"], row["hour"], row["count"], row["total"]) for row in outputs)
            again = [update for update in updates if updates[update] > 1]
            assert not again, f"repeated: {again[:10]}"
            assert {update[:2] for update in updates} <= set(by_hour(events)), "updates without an event"
        case "aggregator":
            expect_updates(outputs, events, subject.state, subject.output)
        case "windowed":
            _expect_hours(subject, outputs, complete_hours(events, watermarks_ms))
        case "early":
            _expect_early(subject, outputs, events)
        case "flow":
            expect_flow(subject, outputs, by_hour(events))
        case "sliding":
            expect_complete(outputs, slides(events, watermarks_ms), subject.state, subject.output)
        case "sessions":
            expect_complete(outputs, sessions_of(events, watermarks_ms), subject.state, subject.output)
        case "sql windows" | "sql combining":
            hours = _hours_of_query if subject.kind == "sql windows" else _hours_of_groups
            expect_complete(outputs, hours(events, watermarks_ms), subject.state, subject.output)
        case "joining" | "sql join":
            _expect_joined(subject, outputs, inputs[0], inputs[1], watermarks_ms)
        case _:
            expect_complete(outputs, complete_hours(events, watermarks_ms), subject.state, subject.output)


def _hours_of_query(
    events: Sequence[Event], watermarks_ms: Mapping[str, int]
) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """Return the complete hours of "sql windows": with a WHERE, a FILTER and a HAVING."""
    numbers: dict[tuple[str, int], list[int]] = {}
    for event in events:
        hour = event.at // HOUR_MS * HOUR_MS
        if event.number % 7 and hour + HOUR_MS <= watermarks_ms[event.key]:
            numbers.setdefault((event.key, hour), []).append(event.number)
    return {
        slot: (len(found), sum(n for n in found if n % 3), min(found), max(found))
        for slot, found in numbers.items()
        if len(found) % 3
    }


def _hours_of_groups(
    events: Sequence[Event], watermarks_ms: Mapping[str, int]
) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    """Return the complete hours of "sql combining", whose groups are the first values of the JSON in the keys of partials."""
    named = [replace(event, key=msgspec.json.decode(event.key)[0]) for event in events]
    return complete_hours(named, {msgspec.json.decode(key)[0]: end_ms for key, end_ms in watermarks_ms.items()})


def _bytes(partial: str | bytes) -> bytes:
    """Return the bytes of a partial: in JSON, they are base64."""
    return b64decode(partial) if isinstance(partial, str) else partial


def expect_partials(subject: Subject, outputs: Outputs, events: Sequence[Event]) -> None:
    """Expect the partials of hours to add up to the events, by group."""
    found = [
        {"key": output["key"], "hour": output["at"] + 1 - HOUR_MS, "count": count, "total": total}
        for output in outputs
        for count, total, *_ in [msgspec.msgpack.decode(_bytes(output["partial"]))]
    ]
    expect_flow(subject, found, by_hour(events))


def _expect_hours(
    subject: Subject, outputs: Outputs, complete: Mapping[tuple[str, int], tuple[int, int, int, int]]
) -> None:
    """Compare hours that are written once with the complete hours."""
    expected = {(key, hour // HOUR_MS): values for (key, hour), values in complete.items()}
    found = Counter((output["key"], output["number"]) for output in outputs)
    assert set(found) <= set(expected), f"not complete: {sorted(set(found) - set(expected))[:10]}"
    if subject.output is not MOST:
        assert set(found) == set(expected), f"missing: {sorted(set(expected) - set(found))[:10]}"
    if subject.output is not LEAST:
        assert set(found.values()) <= {1}, f"repeated: {[slot for slot in found if found[slot] > 1][:10]}"
    for output in outputs if subject.state is EXACT else ():
        slot = output["key"], output["number"]
        assert (output["count"], output["total"]) == expected[slot][:2], f"{slot} is {output}, not {expected[slot]}"


def _expect_early(subject: Subject, outputs: Outputs, events: Sequence[Event]) -> None:
    """Compare early and final results of hours with the events."""
    expected = by_hour(events)
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for output in outputs:
        values = output["count"], output["total"], output["smallest"], output["largest"]
        found.setdefault((output["key"], output["hour"]), []).append(values)
    assert set(found) <= set(expected), f"without an event: {sorted(set(found) - set(expected))[:10]}"
    if subject.output is not MOST:
        assert set(found) == set(expected), f"missing: {sorted(set(expected) - set(found))[:10]}"
    for slot, results in found.items():
        distinct = results[:-1] if results[-1:] == results[-2:-1] else results
        counts = [result[0] for result in distinct]
        if subject.output is not LEAST and subject.state is EXACT:
            assert counts == sorted(set(counts)), f"an update of {slot} is repeated: {counts}"
        if subject.output is not MOST and subject.state is EXACT:
            assert results[-1] == expected[slot], f"{slot} is {results[-1]} in the end, not {expected[slot]}"


def _expect_joined(
    subject: Subject, outputs: Outputs, left: Sequence[Event], right: Sequence[Event], watermarks_ms: Mapping[str, int]
) -> None:
    """Compare a join's outputs with all pairs, and the events without a match."""
    pairs = {(one.number, other.number) for one in left for other in right if is_match(one, other)}
    joined = {number for pair in pairs for number in pair}
    unmatched: set[tuple[int | None, int | None]] = {
        (event.number, None)
        for event in left
        if event.number not in joined and left_end_ms(event) <= watermarks_ms[event.key]
    }
    is_outer = subject.kind == "joining"
    unmatched |= {
        (None, event.number)
        for event in right
        if is_outer and event.number not in joined and right_end_ms(event) <= watermarks_ms[event.key]
    }
    found = [(output["number"], output["answer"]) for output in outputs]
    complete = {pair for pair in found if None not in pair}
    assert complete <= pairs, f"joined without a match: {sorted(complete - pairs)[:10]}"
    if subject.state is EXACT:
        assert set(found) <= pairs | unmatched, (
            f"written without a match although matched: {sorted(set(found) - pairs - unmatched, key=str)[:10]}"
        )
    if subject.output is not MOST:
        assert set(found) >= pairs | unmatched, f"missing: {sorted((pairs | unmatched) - set(found), key=str)[:10]}"
    if subject.output is not LEAST:
        again = [pair for pair in set(found) if found.count(pair) > 1]
        assert not again, f"repeated: {sorted(again, key=str)[:10]}"
