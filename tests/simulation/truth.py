"""What a run has to come to, computed from its input alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from support.by_time import (
    complete_hours,
    expect_in_order,
    left_end_ms,
    lies_within,
    right_end_ms,
    sessions_of,
    sums_in,
)
from support.kinds import BEHIND_MS, DELAY_MS, HOUR_MS, LONGEST_CHAIN, Event
from support.subjects import BUCKETS, EXACT, LEAST, MOST, Subject
from support.verdicts import (
    by_hour,
    by_key,
    expect_chains,
    expect_complete,
    expect_counts,
    expect_each_event,
    expect_updates,
)

from penstock.processors.declare.partitioner import bucket_of

from .inputs import END_MS
from .nodes import Node

if TYPE_CHECKING:
    from .world import World

BY_EVENT = (
    "stateless",
    "rekeyed",
    "stateful",
    "unsure",
    "timers",
    "clock",
    "ordered",
    "merging",
    "random",
    "forgetting",
)
"""Kinds that give an output for each event."""


def expect_kept(world: World) -> None:
    """Hold outputs and states of a run against its input."""
    for node, inputs in _nodes_with_inputs(world):
        _expect_outputs(node, Subject(node.kind, node.state, node.output), world.outputs(f"{node.name}.out"), inputs)
        _expect_state(node, _decoded(world.state(node)), inputs, world.outputs(f"{node.name}.out"))


def expect_nothing_wrong(world: World) -> None:
    """The same of a run in which a processor refuses to go on, as it should: what is there is right, and some may be missing."""
    for node, inputs in _nodes_with_inputs(world):
        output = MOST if node.output is EXACT else node.output
        if output is MOST:
            _expect_outputs(node, Subject(node.kind, node.state, output), world.outputs(f"{node.name}.out"), inputs)


def _nodes_with_inputs(world: World) -> Iterator[tuple[Node, list[list[Event]]]]:
    written = dict(world.sent)
    for node in world.scenario.nodes:
        inputs = [written[name] for name in node.reads]
        yield node, inputs
        written[f"{node.name}.out"] = node.passed_on(inputs[0])


def _decoded(state: dict[bytes, bytes]) -> dict[bytes, Any]:
    """Return what is saved under keys; not what lies beside them: how far event time is, and timers."""
    return {key: msgspec.msgpack.decode(value) for key, value in state.items() if not key.startswith(b"\xff")}


def _expect_outputs(node: Node, subject: Subject, outputs: list[dict[str, Any]], inputs: list[list[Event]]) -> None:
    if subject.kind in BY_EVENT:
        _expect_one_each(node, subject, outputs, inputs)
    else:
        _expect_windows(node, subject, outputs, inputs)


def _expect_one_each(node: Node, subject: Subject, outputs: list[dict[str, Any]], inputs: list[list[Event]]) -> None:
    """Hold the outputs of those that give one for each event, sooner or later."""
    events, low_ms = [event for one in inputs for event in one], _lows_ms(node, inputs)
    match subject.kind:
        case "timers":
            events = [event for event in events if event.at + DELAY_MS <= low_ms[event.key]]
        case "ordered":
            events = [event for event in events if event.at < low_ms[event.key]]
            expect_in_order(subject, outputs)
        case "forgetting":
            _expect_short_chains(outputs)
        case "stateful" | "unsure" if subject.state is EXACT and subject.output is not LEAST:
            counts = Counter((output["key"], output["count"]) for output in outputs)
            again = [count for count in counts if counts[count] > 1]
            assert not again, f"counted more than once: {again[:10]}"
    expect_each_event(subject.output, outputs, events)


def _expect_windows(node: Node, subject: Subject, outputs: list[dict[str, Any]], inputs: list[list[Event]]) -> None:
    """Hold the outputs of those that give what several events come to."""
    events, low_ms = [event for one in inputs for event in one], _lows_ms(node, inputs)
    match subject.kind:
        case "aggregator" if subject.output is MOST:
            # A worker that stood still right before it sent them sends them late: none comes twice, but not in order.
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
        case "sessions":
            expect_complete(outputs, sessions_of(events, low_ms), subject.state, subject.output)
        case "joining":
            _expect_met(subject, outputs, inputs[0], inputs[1], low_ms)
        case _:
            expect_complete(outputs, complete_hours(events, low_ms), subject.state, subject.output)


def _expect_state(
    node: Node, state: dict[bytes, Any], inputs: list[list[Event]], outputs: list[dict[str, Any]]
) -> None:
    events = [event for one in inputs for event in one]
    match node.kind:
        case "stateful" | "unsure" | "timers" | "clock":
            expect_counts(node.state, sums_in(state), by_key(events))
        case "ordered":
            low_ms = _lows_ms(node, inputs)
            expect_counts(
                node.state, sums_in(state), by_key([event for event in events if event.at < low_ms[event.key]])
            )
        case "aggregator":
            found = {
                (slot[8:].decode(), int.from_bytes(slot[:8], "big") - 2**63): tuple(v) for slot, v in state.items()
            }
            expect_counts(node.state, found, by_hour(events))
        case "merging" | "random":
            assert {link["key"].encode() for link in outputs} == set(state), "other keys have a state than have links"
            expect_chains(outputs, state)


def _lows_ms(node: Node, inputs: list[list[Event]]) -> dict[str, int]:
    """Return, by key, how far its shard's event time is in the end: of several inputs, the one that is not so far."""
    if node.promised:
        return {event.key: END_MS - BEHIND_MS for events in inputs for event in events}
    newest = [[0] * BUCKETS for _ in inputs]
    for number, events in enumerate(inputs):
        for event in events:
            bucket = bucket_of(event.key.encode(), BUCKETS)
            newest[number][bucket] = max(newest[number][bucket], event.at)
    lows = [min(times) - BEHIND_MS for times in zip(*newest, strict=True)]
    return {event.key: lows[bucket_of(event.key.encode(), BUCKETS)] for events in inputs for event in events}


def _expect_hours(
    subject: Subject, outputs: list[dict[str, Any]], complete: dict[tuple[str, int], tuple[int, int, int, int]]
) -> None:
    """Hold hours that are written once against those that are complete."""
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


def _expect_early(subject: Subject, outputs: list[dict[str, Any]], events: list[Event]) -> None:
    """Hold hours against the events that are written now and then, and once more when they are complete; also those that never are."""
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


def _expect_short_chains(outputs: list[dict[str, Any]]) -> None:
    """Hold the links of chains together that are forgotten when they are long."""
    last: dict[str, dict[str, Any]] = {}
    for link in outputs:
        before = last.get(link["key"])
        goes_on = before is not None and before["count"] < LONGEST_CHAIN
        expected = (before["count"] + 1, before["after"]) if before is not None and goes_on else (1, 0)
        assert (link["count"], link["before"]) == expected, f"{link} follows on {before}"
        last[link["key"]] = link


def _expect_met(
    subject: Subject, outputs: list[dict[str, Any]], left: list[Event], right: list[Event], low_ms: dict[str, int]
) -> None:
    """Hold what a join gave against all pairs, and those that met none."""
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
