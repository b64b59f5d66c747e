"""Counting the events of a batch at once equals counting them one by one."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as some

import penstock as ps
from penstock.processors.keyed_state import EmptyState
from penstock.processors.operators import aggregator, open_operator
from penstock.processors.shard import Overlay
from penstock.processors.time import WindowAssigner

SIZE_MS = 1_000


class Hit(ps.Record, frozen=True):
    """An event."""

    page: str
    at: ps.EventTime


class Hits(ps.Record, frozen=True):
    """The number of events of a page in a window."""

    page: str
    at: ps.EventTime
    count: int


hits = ps.Category("hits", Hit, key="page", event_time="at")


class CountHits(ps.Aggregator):
    """Counts without a method of its own for each event, so whole batches are counted."""

    reads, writes = hits, ps.Category("hit_counts", Hits, key="page", event_time="at")
    monoid = ps.monoids.Count()
    window: ClassVar[WindowAssigner] = ps.windows.Tumbling(timedelta(milliseconds=SIZE_MS))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Hits:
        """Return the count so far."""
        return Hits(key, max(window.start, 0), value)


class CountAll(CountHits):
    """Has one window."""

    window: ClassVar[WindowAssigner] = ps.windows.GlobalWindow()


def counted(processor: type[CountHits], batches: list[list[Hit]]) -> Counter[tuple[str, int]]:
    operator = open_operator(processor(), EmptyState())
    for batch in batches:
        assert operator.feed(hits, hits.batch_of(batch), stop_at_error=True).rejected == []
    return Counter({(hit.page, hit.at): hit.count for hit in operator.drain().outputs})


def in_runs(runs: list[tuple[int, int, int]]) -> list[Hit]:
    """Return events in runs of one window each."""
    return [
        Hit("abc"[(first + number) % 3], window * SIZE_MS + number)
        for window, count, first in runs
        for number in range(count)
    ]


single = some.builds(Hit, page=some.sampled_from("abc"), at=some.integers(0, 3 * SIZE_MS))
run = some.tuples(some.integers(0, 3), some.integers(1, 30), some.integers(0, 2))
batches = some.lists(some.lists(single, max_size=10) | some.lists(run, max_size=4).map(in_runs), max_size=5)


@given(batches)
def test_counts_per_window_equal_a_recount(given_batches: list[list[Hit]]) -> None:
    """The windows of adjacent events may differ, and a window may span several batches."""
    expected = Counter((hit.page, hit.at - hit.at % SIZE_MS) for batch in given_batches for hit in batch)

    assert counted(CountHits, given_batches) == expected


@given(batches, some.integers(1, 4))
def test_a_checkpoint_in_parts_returns_each_changed_window_once(given_batches: list[list[Hit]], part: int) -> None:
    """Its results and changes have the counts of all checkpoints so far."""
    saved = Overlay(EmptyState(), lambda _, later: later)
    operator = open_operator(CountHits(), saved)
    expected: Counter[tuple[str, int]] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregator, "PART_SLOTS", part)
        for batch in given_batches:
            operator.feed(hits, hits.batch_of(batch), stop_at_error=True)
            drained = operator.drain()
            saved.add(drained.changes)
            changed = Counter((hit.page, hit.at - hit.at % SIZE_MS) for hit in batch)
            expected += changed
            written = [((hit.page, hit.at), hit.count) for hit in drained.outputs]
            assert sorted(written) == sorted((slot, expected[slot]) for slot in changed)

    reopened = open_operator(CountHits(), saved)
    reopened.feed(hits, hits.batch_of([Hit(page, at) for page, at in expected]), stop_at_error=True)
    assert {(hit.page, hit.at): hit.count - 1 for hit in reopened.drain().outputs} == expected


@given(batches)
def test_counts_of_all_time_equal_a_recount(given_batches: list[list[Hit]]) -> None:
    """One window contains all events."""
    assert counted(CountAll, given_batches) == Counter((hit.page, 0) for batch in given_batches for hit in batch)
