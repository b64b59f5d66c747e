"""The merge of a shard's inputs: every event once, each input in its order, and between inputs by arrival."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.clock import SteeredClock
from penstock.ops.testing import Driver
from penstock.ops.worker import input_merger
from penstock.ops.worker.input_merger import InputMerger
from penstock.transport.codecs.by_category import Codecs
from penstock.transport.memory import StoredMessage
from penstock.transport.messages import Bucket, End, Outgoing, Polled, Position, RawBatch

LEFT, RIGHT = Bucket("left", 0), Bucket("right", 0)
ARRIVALS = st.lists(st.integers(0, 50), max_size=40)


def batch(bucket: Bucket, arrived: Sequence[int], begin: int = 0) -> RawBatch:
    """Return messages with these arrival times."""
    return RawBatch(bucket, [StoredMessage(begin + at, Outgoing(None, b""), time) for at, time in enumerate(arrived)])


def given_on(polled: Polled) -> list[tuple[str, int, int]]:
    """Return the events to process: input, offset and arrival."""
    return [
        (one.bucket.category, message.offset(), message.timestamp()[1])
        for one in polled.batches
        for message in one.messages
    ]


@given(left=ARRIVALS, right=ARRIVALS, size=st.integers(1, 9), at_once=st.integers(1, 5))
def test_each_input_keeps_its_order_and_neither_runs_ahead(
    left: list[int], right: list[int], size: int, at_once: int
) -> None:
    """An event is processed after all earlier events of the other input, up to the size of a run."""
    met = InputMerger(["left", "right"], SteeredClock(0))
    found: list[tuple[str, int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_merger, "MIN_RUN", at_once)
        for begin in range(0, max(len(left), len(right), 1), size):
            parts = [(LEFT, left[begin : begin + size]), (RIGHT, right[begin : begin + size])]
            batches = [batch(bucket, part, begin) for bucket, part in parts if part]
            ends = [End(bucket, begin) for bucket, part in parts if not part]
            found += given_on(met.merge(Polled(batches, ends)))
        found += given_on(met.merge(Polled([], [End(LEFT, len(left)), End(RIGHT, len(right))])))

    for name, arrived in (("left", left), ("right", right)):
        assert [(offset, time) for category, offset, time in found if category == name] == list(enumerate(arrived))
    if at_once == 1:
        came = {
            "left": [max(left[: n + 1]) for n in range(len(left))],
            "right": [max(right[: n + 1]) for n in range(len(right))],
        }
        times = [came[name][offset] for name, offset, _ in found]
        assert times == sorted(times)


def test_an_input_that_is_neither_here_nor_at_its_end_is_waited_for_a_moment() -> None:
    """Then the present batch is processed; an input at its end never delays the others."""
    clock = SteeredClock(0)
    met = InputMerger(["left", "right"], clock)

    assert given_on(met.merge(Polled([batch(LEFT, [5])], []))) == []
    clock.advance(input_merger.MAX_WAIT_S / 2)
    assert given_on(met.merge(Polled([], []))) == []
    clock.advance(input_merger.MAX_WAIT_S / 2)
    assert given_on(met.merge(Polled([], []))) == [("left", 0, 5)]
    assert given_on(met.merge(Polled([batch(RIGHT, [7])], [End(LEFT, 1)]))) == [("right", 0, 7)]
    ended = met.merge(Polled([batch(LEFT, [9], 1)], [End(RIGHT, 1)]))
    assert (given_on(ended), ended.ended) == ([("left", 1, 9)], [End(RIGHT, 1)])


class Valve:
    """Records pauses and resumptions."""

    def __init__(self) -> None:
        self.paused: set[Bucket] = set()

    def pause(self, buckets: Iterable[Bucket]) -> None:
        """Record paused buckets."""
        self.paused.update(buckets)

    def resume(self, buckets: Iterable[Bucket]) -> None:
        """Record resumed buckets."""
        self.paused.difference_update(buckets)


def test_what_is_far_ahead_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading resumes at half of the limit; a dropped bucket is not paused any more."""
    monkeypatch.setattr(input_merger, "MAX_QUEUED", 10)
    monkeypatch.setattr(input_merger, "MIN_RUN", 1)
    met, valve = InputMerger(["left", "right"], SteeredClock(0)), Valve()

    def after(*batches: RawBatch) -> set[Bucket]:
        met.merge(Polled(batches, []))
        met.limit_queues(valve)  # type: ignore[arg-type]  # as much of a reader as it needs
        return set(valve.paused)

    assert after(batch(LEFT, range(10))) == {LEFT}
    assert after(batch(RIGHT, [4])) == {LEFT}
    assert after(batch(RIGHT, [8], 1)) == set()
    assert after(batch(LEFT, range(20, 40), 10)) == {LEFT}
    met.drop([LEFT])
    assert given_on(met.merge(Polled([batch(LEFT, [1])], [End(RIGHT, 2)]))) == [("left", 0, 1)]


def test_an_input_that_is_ahead_waits_at_its_border() -> None:
    """Until the other inputs have reached their stop offsets; a stop offset without an event before it is reported as an end."""
    met = InputMerger(["left", "right"], SteeredClock(0))
    met.catch_up([Position(LEFT, 0), Position(RIGHT, 2)], {"left": 3})

    first = met.merge(Polled([batch(LEFT, [1]), batch(RIGHT, [0, 0], 2)], []))
    second = met.merge(Polled([batch(LEFT, [2, 9], 1), batch(LEFT, [9], 4)], []))
    then = met.merge(Polled([], [End(LEFT, 5), End(RIGHT, 4)]))

    assert (given_on(first), first.ended) == ([("left", 0, 1)], [])
    assert (given_on(second), second.ended) == ([("left", 1, 2), ("left", 2, 9)], [])
    assert given_on(then) == [("right", 2, 0), ("right", 3, 0), ("left", 4, 9)]

    met.drop([LEFT, RIGHT])
    met.catch_up([Position(LEFT, 0), Position(RIGHT, 2)], {"left": 3})
    gap = met.merge(Polled([batch(LEFT, [1, 1]), batch(LEFT, [1], 4), batch(RIGHT, [0], 2)], []))
    assert (given_on(gap), gap.ended) == ([("left", 0, 1), ("left", 1, 1)], [End(LEFT, 3)])


class Step(ps.Record, frozen=True):
    """A step."""

    key: str
    at: ps.EventTime


class Other(Step, frozen=True):
    """Another kind of step."""


class Ahead(ps.Record, frozen=True):
    """The difference between the numbers of both kinds."""

    key: str
    at: ps.EventTime
    by: int


steps = ps.Category("steps", Step, key="key", event_time="at", buckets=1)
others = ps.Category("others", Other, key="key", event_time="at", buckets=1)
aheads = ps.Category("aheads", Ahead, key="key", event_time="at", buckets=1)


class Balance(ps.Stateful):
    """Counts the difference between both inputs."""

    reads, writes, state = (steps, others), aheads, int

    def process(self, event: Step, state: int | None, context: ps.Context) -> tuple[int, list[Ahead]]:
        """Count up and down."""
        by = (state or 0) + (1 if type(event) is Step else -1)
        return by, [Ahead("k", event.at, by)]


def test_a_worker_with_much_to_catch_up_reads_its_inputs_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """By arrival: neither input is read completely before the other."""
    monkeypatch.setattr(input_merger, "MAX_QUEUED", 2_000)
    driver = Driver(Balance)
    writer, codecs = driver.bus.writer(), Codecs(driver.bus)
    categories: list[tuple[ps.Category[Any], type[Step]]] = [(steps, Step), (others, Other)]
    for second in range(40):
        for category, record in categories:
            encoded = codecs.of(category).encode([record("k", second)] * 1_000)
            writer.send(category.name, [Outgoing(b"k", value) for value in encoded])
        driver.clock.advance(1.0)
    driver.run()
    balances = [one.by for one in driver.read(aheads)]

    assert len(balances) == 80_000
    assert max(map(abs, balances)) <= 1_000 + input_merger.MIN_RUN
