"""The expected outputs of processors with one output per event, computed from the input alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from support.by_time import expect_in_order
from support.kinds import DELAY_MS, LONGEST_CHAIN, Event
from support.subjects import EXACT, LEAST, MOST, Subject
from support.verdicts import expect_each_event

from .inputs import is_deletion
from .lookups import number_of
from .nodes import BEAT_MS, FRESH_S

Outputs = Sequence[dict[str, Any]]
Inputs = Sequence[Sequence[Event]]
COUNTING = ("stateful", "deleting", "counting retries", "refusing", "unsure", "scheduled", "catching up")
"""Kinds whose output for an event contains the count of its key's events."""


def expect_one_each(subject: Subject, outputs: Outputs, inputs: Inputs, watermarks_ms: Mapping[str, int]) -> None:
    """Check the outputs of processors with one output for each event."""
    events = [event for events_of_input in inputs for event in events_of_input]
    match subject.kind:
        case "timers":
            events = [event for event in events if event.at + DELAY_MS <= watermarks_ms[event.key]]
        case "ordered":
            events = [event for event in events if event.at < watermarks_ms[event.key]]
            expect_in_order(subject, outputs)
        case "forgetting":
            _expect_short_chains(outputs)
        case kind if kind in COUNTING and subject.state is EXACT and subject.output is not LEAST:
            counts = Counter((output["key"], output["count"]) for output in outputs)
            again = [count for count in counts if counts[count] > 1]
            assert not again, f"counted more than once: {again[:10]}"
    expect_each_event(subject.output, outputs, events)


def expect_tombstones(subject: Subject, deletions: Mapping[str, Sequence[bool]], events: Sequence[Event]) -> None:
    """Compare the tombstones of each key with its events: one after each output.

    Args:
        subject: the processor.
        deletions: by key, whether each committed message in order is a tombstone.
        events: the input.
    """
    truth = Counter(event.key for event in events)
    assert set(deletions) <= set(truth), f"tombstones of unknown keys: {sorted(set(deletions) - set(truth))}"
    for key, count in truth.items():
        of_key = deletions.get(key, ())
        if subject.output is not MOST:
            assert sum(of_key) >= count, f"{count - sum(of_key)} tombstones of {key} are missing"
        if subject.output is not LEAST:
            assert sum(of_key) <= count, f"{sum(of_key) - count} tombstones of {key} came again"
        if subject.output is EXACT:
            assert list(of_key) == [False, True] * count, f"outputs and tombstones of {key} do not alternate"


def expect_firings(subject: Subject, outputs: Outputs) -> None:
    """Compare the scheduled lines of each shard with the times of the schedule.

    At least once, a line may come again, and a lost state may begin its schedules anew.
    """
    by_shard = defaultdict[int, list[dict[str, Any]]](list)
    for output in outputs:
        assert output["at"] % BEAT_MS == 0, f"{output} is not at a time of its schedule"
        by_shard[output["number"]].append(output)
    for lines in by_shard.values():
        times = [line["at"] for line in lines]
        if subject.output is not LEAST:
            assert times == sorted(set(times)), f"lines are repeated or out of order: {times}"
        if subject.state is EXACT and subject.output is EXACT:
            covered = [line["at"] - BEAT_MS * back for line in lines for back in range(line["count"], -1, -1)]
            expected = list(range(covered[0], covered[-1] + 1, BEAT_MS))
            assert covered == expected, f"lines are missing or repeated: {lines}"
        if subject.kind == "catching up":
            assert not any(line["count"] for line in lines), f"a time was skipped: {lines}"


def _expect_short_chains(outputs: Outputs) -> None:
    """Compare consecutive links of chains, which are dropped at a maximum length."""
    last: dict[str, dict[str, Any]] = {}
    for link in outputs:
        previous = last.get(link["key"])
        continues = previous is not None and previous["count"] < LONGEST_CHAIN
        expected = (previous["count"] + 1, previous["after"]) if previous is not None and continues else (1, 0)
        assert (link["count"], link["before"]) == expected, f"{link} follows {previous}"
        last[link["key"]] = link


def expect_table_rows(
    subject: Subject, outputs: Outputs, rows: Sequence[Event], events: Sequence[Event], watermarks_ms: Mapping[str, int]
) -> None:
    """Compare the joined rows with the rows that their keys had."""
    if subject.kind == "latest as of":
        events = [event for event in events if event.at < watermarks_ms[event.key]]
    expect_each_event(subject.output, outputs, events)
    written = {(row.key, row.number) for row in rows if not is_deletion(row)}
    found = {output["number"]: output["answer"] for output in outputs}
    of_others = [row for row in outputs if row["answer"] is not None and (row["key"], row["answer"]) not in written]
    assert not of_others, f"rows that the key never had: {of_others[:10]}"
    if subject.state is not EXACT or subject.output is LEAST:
        return
    if subject.kind == "latest as of":
        _expect_latest_as_of(found, rows, events)
    else:
        _expect_no_row_back(found, rows, events)


def _expect_latest_as_of(found: Mapping[int, int | None], rows: Sequence[Event], events: Sequence[Event]) -> None:
    """Expect the latest row as of each event's time, or any row of that time."""
    for event in events:
        earlier = [row for row in rows if row.key == event.key and row.at <= event.at]
        last_ms = max((row.at for row in earlier), default=0)
        latest = {None if is_deletion(row) else row.number for row in earlier if row.at == last_ms} or {None}
        answer = found.get(event.number, next(iter(latest)))
        assert answer in latest, f"{event} was joined with {answer}, and the latest row is {latest}"


def _expect_no_row_back(found: Mapping[int, int | None], rows: Sequence[Event], events: Sequence[Event]) -> None:
    """Expect that the joined rows of a key's events never go back."""
    history: dict[str, list[int | None]] = defaultdict(lambda: [None])
    for row in rows:
        history[row.key].append(None if is_deletion(row) else row.number)
    at: dict[str, int] = defaultdict(int)
    for event in events:
        if event.number in found:
            answer, later = found[event.number], history[event.key][at[event.key] :]
            assert answer in later, f"{event} was joined with {answer}, and the previous event with a later row"
            at[event.key] += later.index(answer)


def expect_looked_up(
    subject: Subject, outputs: Outputs, events: Sequence[Event], sent_s: Mapping[int, float], end_s: float
) -> None:
    """Compare looked-up rows with the rows that existed when an event arrived or later, or that were cached then.

    Rows of a category may be late, except for rows that were in it before the first worker started.
    """
    expect_each_event(subject.output, outputs, events)
    for output in outputs:
        key, answer = output["key"], output["answer"]
        from_s = 0.0 if subject.kind == "broadcast" else sent_s[output["number"]]
        if subject.kind == "remembering":
            from_s -= FRESH_S
        earliest, latest = number_of(key, from_s), number_of(key, end_s)
        if answer is None:
            assert earliest is None, f"{output} has no row, and its key had one"
        else:
            assert latest is not None, f"{output} has a row, and its key has none"
            assert (earliest or 0) <= answer <= latest, f"{output} has a row that is not from {earliest} to {latest}"
