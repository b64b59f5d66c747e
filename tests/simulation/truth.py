"""The expected results of a run, computed from its input alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from support.by_event import hours_in
from support.by_time import sums_in
from support.kinds import BEHIND_MS, HOUR_MS, LATENESS_MS, Event, other_key
from support.lateness import expect_late, too_late
from support.subjects import EXACT, MOST, Subject
from support.verdicts import by_hour, by_key, expect_chains, expect_complete, expect_counts, expect_each_event

from penstock.processors.declare import bucket_of

from . import evidence
from .category_settings import CategorySettings
from .inputs import END_MS, is_deletion
from .nodes import BEAT, LATE, PHASES, TABLES, TIERS, Node, is_refused
from .truth_of_estimates import (
    EstimatedTimes,
    expect_answers_after_events,
    expect_joined_by_estimate,
    sessions_by_arrival,
)
from .truth_of_events import (
    COUNTING,
    Inputs,
    Outputs,
    expect_firings,
    expect_looked_up,
    expect_one_each,
    expect_table_rows,
    expect_tombstones,
)
from .truth_of_windows import expect_partials, expect_windows

if TYPE_CHECKING:
    from .world import World

BY_EVENT = (
    "stateless",
    "rekeyed",
    "looping",
    "asynchronous",
    "pipe",
    "repartition",
    "stateful",
    "deleting",
    "retrying",
    "counting retries",
    "refusing",
    "unsure",
    "timers",
    "clock",
    "ordered",
    "merging",
    "random",
    "forgetting",
)
"""Kinds with an output for each event."""
SCHEDULED = ("scheduled", "catching up")
LOOKUPS = ("lookup", "remembering", "broadcast")


def expect_guarantees(world: World) -> None:
    """Compare outputs and states of a run with its input."""
    for node, inputs in _nodes_with_inputs(world):
        if node.kind in TIERS:
            world.tiers.expect_current(node)
            continue
        outputs = evidence.outputs(world, f"{node.name}.out")
        state = _decoded(evidence.state(world, node))
        if node.on_time is not None:
            accepted, watermarks_ms = _expect_by_estimate(world, node, outputs, inputs)
            _expect_state(node, state, accepted, outputs, watermarks_ms)
            continue
        watermarks_ms = _final_watermarks_ms(node, inputs, world.scenario.category_settings)
        _expect_outputs(world, node, Subject(node.kind, node.state, node.output), inputs, watermarks_ms)
        _expect_state(node, state, inputs, outputs, watermarks_ms)


def expect_states(world: World, copies: Mapping[Node, tuple[Node, Outputs]]) -> None:
    """Compare the states of copies of the scenario's processors with the input and with their outputs."""
    for node, inputs in _nodes_with_inputs(world):
        copy, outputs = copies[node]
        watermarks_ms = _final_watermarks_ms(node, inputs, world.scenario.category_settings)
        _expect_state(node, _decoded(evidence.state(world, copy)), inputs, outputs, watermarks_ms)


def expect_no_wrong_output(world: World) -> None:
    """Expect no wrong output in a run in which a processor refuses to continue; outputs may be missing."""
    for node, inputs in _nodes_with_inputs(world):
        output = MOST if node.output is EXACT else node.output
        if output is MOST:
            watermarks_ms = _final_watermarks_ms(node, inputs, world.scenario.category_settings)
            _expect_outputs(world, node, Subject(node.kind, node.state, output), inputs, watermarks_ms)


def _nodes_with_inputs(world: World) -> Iterator[tuple[Node, list[list[Event]]]]:
    written = dict(world.source.sent)
    for node in world.scenario.nodes:
        keyed = world.scenario.category_settings.other_keyed
        accepted = {name: _accepted(node, written[name]) for name in node.reads}
        yield node, [_rekeyed(events) if name in keyed else events for name, events in accepted.items()]
        written[f"{node.name}.out"] = node.pass_on(written[node.reads[0]])


def _accepted(node: Node, events: list[Event]) -> list[Event]:
    """Return the events that are not in a processor's dead letters."""
    return [event for event in events if not is_refused(event)] if node.kind == "refusing" else events


def _rekeyed(events: list[Event]) -> list[Event]:
    """Return events under the key of their category, which differs from their field."""
    return [Event(other_key(event), event.at, event.number) for event in events]


def _decoded(state: dict[bytes, bytes]) -> dict[bytes, Any]:
    """Return the saved values of keys, without event time and timers."""
    return {key: msgspec.msgpack.decode(value) for key, value in state.items() if not key.startswith(b"\xff")}


def _expect_outputs(
    world: World, node: Node, subject: Subject, inputs: Inputs, watermarks_ms: Mapping[str, int]
) -> None:
    outputs = evidence.outputs(world, f"{node.name}.out")
    if not node.writes_outputs:
        return
    if node.kind in LATE:
        late = too_late(subject, inputs[0], world.scenario.category_settings.buckets_of(node.reads[0]))
        expect_late(subject, inputs[0], late, outputs, evidence.outputs(world, f"{node.name}.late"), watermarks_ms)
    elif node.kind in TABLES:
        expect_table_rows(subject, outputs, inputs[0], inputs[1], watermarks_ms)
    elif node.kind in LOOKUPS:
        expect_looked_up(subject, outputs, inputs[0], world.source.sent_s, world.clock.monotonic_s())
    elif node.kind in SCHEDULED:
        expect_firings(subject, [output for output in outputs if output["key"].startswith(BEAT)])
        of_events = [output for output in outputs if not output["key"].startswith(BEAT)]
        expect_one_each(subject, of_events, inputs, watermarks_ms)
    elif PHASES.get(node.kind) == 0:
        expect_partials(subject, outputs, node.pass_on(inputs[0]))
    elif node.kind in BY_EVENT:
        expect_one_each(subject, outputs, inputs, watermarks_ms)
    else:
        expect_windows(subject, outputs, inputs, watermarks_ms)
    _expect_beside(world, node, subject, inputs)


def _expect_beside(world: World, node: Node, subject: Subject, inputs: Inputs) -> None:
    """Check dead letters, tombstones and places of outputs."""
    if node.kind == "refusing":
        refused = [event for event in world.source.sent[node.reads[0]] if is_refused(event)]
        expect_each_event(subject.output, evidence.dead_letters(world, node), refused)
    if node.kind == "deleting":
        expect_tombstones(subject, evidence.deletions_by_key(world, f"{node.name}.out"), inputs[0])
    if node.kind == "repartition":
        evidence.expect_placed(world, f"{node.name}.out")


def _expect_by_estimate(world: World, node: Node, outputs: Outputs, inputs: Inputs) -> tuple[Inputs, dict[str, int]]:
    """Compare outputs with the input, of which an estimated watermark makes some events late; return the other events and final watermarks."""
    subject, settings, share = (
        Subject(node.kind, node.state, node.output),
        world.scenario.category_settings,
        node.on_time,
    )
    assert share is not None
    times = [
        EstimatedTimes(events, settings.buckets_of(name), share)
        for name, events in zip(node.reads, inputs, strict=True)
    ]
    [events, *others], of_events = inputs, times[0]
    watermarks_ms = {
        event.key: min(of.final_ms(event.key) for of in times) for of_input in inputs for event in of_input
    }
    if others:
        expect_joined_by_estimate(subject, outputs, events, others[0], times)
        return inputs, watermarks_ms
    if node.kind == "sessions":
        expect_complete(outputs, sessions_by_arrival(events, of_events), subject.state, subject.output)
        return inputs, watermarks_ms
    accepted = [event for event in events if of_events.is_accepted(node.kind, event)]
    if node.kind in LATE:
        late = [event for event in events if event not in accepted]
        late_outputs = evidence.outputs(world, f"{node.name}.late")
        expect_late(subject, events, late, outputs, late_outputs, watermarks_ms)
    else:
        _expect_outputs(world, node, subject, [accepted], watermarks_ms)
    if node.kind == "timers":
        expect_answers_after_events(outputs, events, of_events)
    return [accepted], watermarks_ms


def _expect_state(
    node: Node, state: dict[bytes, Any], inputs: Inputs, outputs: Outputs, watermarks_ms: Mapping[str, int]
) -> None:
    events = [event for events_of_input in inputs for event in events_of_input]
    match node.kind:
        case "table" | "latest as of" if node.state is EXACT:
            latest = _latest_rows(node, inputs[0], watermarks_ms)
            assert {key.decode(): row["number"] for key, row in state.items()} == latest
        case kind if kind in {*COUNTING, "timers", "clock"}:
            expect_counts(node.state, sums_in(state), by_key(events))
        case "ordered":
            expect_counts(
                node.state, sums_in(state), by_key([event for event in events if event.at < watermarks_ms[event.key]])
            )
        case "aggregator":
            expect_counts(node.state, hours_in(state), by_hour(events))
        case "closing" | "early" | "late" | "differences":
            lateness_ms = LATENESS_MS if node.kind == "differences" else 0
            closed = [
                (key, hour) for key, hour in hours_in(state) if hour + HOUR_MS + lateness_ms <= watermarks_ms[key]
            ]
            assert not closed, f"the state contains closed windows: {closed[:10]}"
        case "merging" | "random":
            assert {link["key"].encode() for link in outputs} == set(state), (
                "the keys with a state differ from the keys with links"
            )
            expect_chains(outputs, state)


def _latest_rows(node: Node, rows: Sequence[Event], watermarks_ms: Mapping[str, int]) -> dict[str, int]:
    """Return the final row of each key: the last written row, or the row with the latest time."""
    if node.kind == "latest as of":
        rows = sorted((row for row in rows if row.at < watermarks_ms[row.key]), key=lambda row: row.at)
    latest = {row.key: row for row in rows}
    return {key: row.number for key, row in latest.items() if not is_deletion(row)}


def _final_watermarks_ms(node: Node, inputs: Inputs, category_settings: CategorySettings) -> dict[str, int]:
    """Return the final watermark of each key's shard: the minimum of its inputs."""
    buckets = category_settings.buckets_of(node.reads[0])
    newest = [[0 if node.estimates(name) else END_MS] * buckets for name in node.reads]
    for times, name, events in zip(newest, node.reads, inputs, strict=True):
        for event in events if node.estimates(name) else ():
            bucket = bucket_of(event.key.encode(), buckets)
            times[bucket] = max(times[bucket], event.at)
    lows = [min(times) - BEHIND_MS for times in zip(*newest, strict=True)]
    return {event.key: lows[bucket_of(event.key.encode(), buckets)] for events in inputs for event in events}
