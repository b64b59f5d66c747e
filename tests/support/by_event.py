"""The expected results of subjects with one output per event, computed from the events in write order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .by_time import sums_in
from .kinds import LONGEST_CHAIN, ROWS, Event
from .subjects import EXACT, LEAST, MOST, Subject
from .verdicts import Slot, by_hour, by_key, expect_chains, expect_counts, expect_each_event, expect_updates

Outputs = Sequence[dict[str, Any]]
State = Mapping[bytes, Any]


def hours_in(state: State) -> dict[Slot, tuple[int, ...]]:
    """Return the values of an aggregator's state by key and hour."""
    return {
        (slot[8:].decode(), int.from_bytes(slot[:8], "big") - 2**63): tuple(values) for slot, values in state.items()
    }


def _expect_answers(subject: Subject, outputs: Outputs, state: State, events: Sequence[Event]) -> None:
    expect_each_event(subject.output, outputs, events)


def _expect_hours(subject: Subject, outputs: Outputs, state: State, events: Sequence[Event]) -> None:
    """Compare updates and state of each hour with its events; in append mode, the subject writes no updates."""
    if subject.writes_outputs:
        expect_updates(outputs, events, subject.state, subject.output)
    expect_counts(subject.state, hours_in(state), by_hour(events))


def _expect_links(subject: Subject, outputs: Outputs, state: State, events: Sequence[Event]) -> None:
    expect_each_event(subject.output, outputs, events)
    if (subject.state, subject.output) == (EXACT, EXACT):
        expect_chains(outputs, dict(state))


def _expect_looked_up(subject: Subject, outputs: Outputs, state: State, events: Sequence[Event]) -> None:
    expect_each_event(subject.output, outputs, events)
    for output in outputs:
        assert output["answer"] == (ROWS[output["key"]].number if output["key"] in ROWS else None)


def _expect_differences(subject: Subject, outputs: Outputs, state: State, events: Sequence[Event]) -> None:
    expect_flow(subject, outputs, by_hour(events))


def _expect_running_sums(subject: Subject, outputs: Outputs, state: State, events: Sequence[Event]) -> None:
    """Expect exact state to produce the running sums of each key, in the order of the bucket."""
    expect_each_event(subject.output, outputs, events)
    expect_counts(subject.state, sums_in(state), by_key(events))
    if subject.state is not EXACT:
        return
    truth: dict[int, tuple[int, int]] = {}
    sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for event in events:
        count, total = sums[event.key]
        truth[event.number] = sums[event.key] = count + 1, total + event.number
    for output in outputs:
        assert (output["count"], output["total"]) == truth[output["number"]], output


def _expect_forgotten(subject: Subject, outputs: Outputs, state: State, events: Sequence[Event]) -> None:
    """Expect exact state to produce chains that restart after each deletion, and no state for a deleted chain."""
    expect_each_event(subject.output, outputs, events)
    if subject.state is not EXACT:
        return
    chains: dict[str, tuple[int, int]] = {}
    truth: dict[int, tuple[int, int, int]] = {}
    for event in events:
        count, link = chains.pop(event.key, (0, 0))
        after = (link * 1_000_003 + event.number) % 2**61
        truth[event.number] = count + 1, link, after
        if count + 1 < LONGEST_CHAIN:
            chains[event.key] = count + 1, after
    for output in outputs:
        assert (output["count"], output["before"], output["after"]) == truth[output["number"]], output
    assert {key.decode(): (chain["count"], chain["link"]) for key, chain in state.items()} == chains


def expect_flow(subject: Subject, outputs: Outputs, truth: Mapping[Slot, tuple[int, int, int, int]]) -> None:
    """Compare the sums of differences with the totals."""
    sums: Counter[tuple[Slot, str]] = Counter()
    for output in outputs:
        for field in ("count", "total"):
            sums[(output["key"], output["hour"]), field] += output[field]
    found = {slot: (sums[slot, "count"], sums[slot, "total"]) for slot, _ in sums}
    whole = {slot: values[:2] for slot, values in truth.items()}
    assert found.keys() <= whole.keys()
    if subject.output is EXACT:
        assert found == whole
    for slot, (count, total) in whole.items():
        actual = found.get(slot, (0, 0))
        assert subject.output is MOST or (actual[0] >= count and actual[1] >= total), slot
        assert subject.output is LEAST or (actual[0] <= count and actual[1] <= total), slot


BY_EVENT: Mapping[str, Callable[[Subject, Outputs, State, Sequence[Event]], None]] = {
    **dict.fromkeys(("stateless", "pipe", "repartition", "clock"), _expect_answers),
    **dict.fromkeys(("stateful", "unsure", "avro"), _expect_running_sums),
    **dict.fromkeys(("merging", "random"), _expect_links),
    **dict.fromkeys(("forgetting", "forgetting_unsure"), _expect_forgotten),
    "aggregator": _expect_hours,
    "flow": _expect_differences,
    "lookup": _expect_looked_up,
}
"""The comparison of outputs and state with the events, by kind."""
