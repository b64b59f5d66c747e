"""What those processors of a run have to come to that give an output for each event, computed from its input alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from support.by_time import expect_in_order
from support.kinds import DELAY_MS, LONGEST_CHAIN, Event
from support.subjects import EXACT, LEAST, Subject
from support.verdicts import expect_each_event

from .inputs import is_deletion
from .lookups import number_of
from .nodes import FRESH_S

Outputs = Sequence[dict[str, Any]]
Inputs = Sequence[Sequence[Event]]


def expect_one_each(subject: Subject, outputs: Outputs, inputs: Inputs, low_ms: Mapping[str, int]) -> None:
    """Check the outputs of processors with one output for each event."""
    events = [event for one in inputs for event in one]
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


def _expect_short_chains(outputs: Outputs) -> None:
    """Hold the links of chains together that are forgotten when they are long."""
    last: dict[str, dict[str, Any]] = {}
    for link in outputs:
        before = last.get(link["key"])
        goes_on = before is not None and before["count"] < LONGEST_CHAIN
        expected = (before["count"] + 1, before["after"]) if before is not None and goes_on else (1, 0)
        assert (link["count"], link["before"]) == expected, f"{link} follows on {before}"
        last[link["key"]] = link


def expect_rows(
    subject: Subject, outputs: Outputs, rows: Sequence[Event], events: Sequence[Event], low_ms: Mapping[str, int]
) -> None:
    """Hold what a table gave events against the rows that their keys had."""
    if subject.kind == "latest as of":
        events = [event for event in events if event.at < low_ms[event.key]]
    expect_each_event(subject.output, outputs, events)
    known = {(row.key, row.number) for row in rows if not is_deletion(row)}
    found = {output["number"]: output["answer"] for output in outputs}
    of_others = [one for one in outputs if one["answer"] is not None and (one["key"], one["answer"]) not in known]
    assert not of_others, f"rows that the key never had: {of_others[:10]}"
    if subject.state is not EXACT or subject.output is LEAST:
        return
    if subject.kind == "latest as of":
        _expect_latest_as_of(found, rows, events)
    else:
        _expect_no_row_back(found, rows, events)


def _expect_latest_as_of(found: Mapping[int, int | None], rows: Sequence[Event], events: Sequence[Event]) -> None:
    """Expect the latest row as of each event's time; of several of that time, any."""
    for event in events:
        earlier = [row for row in rows if row.key == event.key and row.at <= event.at]
        last_ms = max((row.at for row in earlier), default=0)
        latest = {None if is_deletion(row) else row.number for row in earlier if row.at == last_ms} or {None}
        answer = found.get(event.number, next(iter(latest)))
        assert answer in latest, f"{event} was given {answer}, and the latest is {latest}"


def _expect_no_row_back(found: Mapping[int, int | None], rows: Sequence[Event], events: Sequence[Event]) -> None:
    """Expect that each event of a key is given the row of the one before it, or a later one."""
    history: dict[str, list[int | None]] = defaultdict(lambda: [None])
    for row in rows:
        history[row.key].append(None if is_deletion(row) else row.number)
    at: dict[str, int] = defaultdict(int)
    for event in events:
        if event.number in found:
            answer, later = found[event.number], history[event.key][at[event.key] :]
            assert answer in later, f"{event} was given {answer}, and the one before it a later row"
            at[event.key] += later.index(answer)


def expect_looked_up(
    subject: Subject, outputs: Outputs, events: Sequence[Event], sent_s: Mapping[int, float], end_s: float
) -> None:
    """Compare looked-up rows with the rows that existed when an event arrived or later, or that were cached then."""
    expect_each_event(subject.output, outputs, events)
    for output in outputs:
        key, answer = output["key"], output["answer"]
        from_s = sent_s[output["number"]] - (FRESH_S if subject.kind == "remembering" else 0)
        earliest, latest = number_of(key, from_s), number_of(key, end_s)
        if answer is None:
            assert earliest is None, f"{output} has no row, and its key had one"
        else:
            assert latest is not None, f"{output} has a row, and its key has none"
            assert (earliest or 0) <= answer <= latest, f"{output} has a row that is not from {earliest} to {latest}"
