"""The merge of a shard's inputs: every event once, each input in its order, and between inputs by arrival."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.ops.kernel.loop import input_merger
from penstock.ops.kernel.loop.input_merger import InputMerger
from penstock.ops.kernel.loop.queue_limits import MAX_QUEUED_BYTES
from penstock.ops.shell import SteeredClock
from penstock.transport import Bucket, End, Outgoing, Polled, Position, RawBatch
from penstock.transport.codecs import Codecs
from penstock.transport.memory.log import StoredMessage

LEFT, RIGHT = Bucket("left", 0), Bucket("right", 0)
ARRIVALS = st.lists(st.integers(0, 50), max_size=40)


def batch(bucket: Bucket, arrived: Sequence[int], begin: int = 0) -> RawBatch:
    """Return messages with these arrival times."""
    return RawBatch(bucket, [StoredMessage(begin + at, Outgoing(None, b""), time) for at, time in enumerate(arrived)])


def merged_events(polled: Polled) -> list[tuple[str, int, int]]:
    """Return the events to process: input, offset and arrival."""
    return [
        (batch.bucket.category, message.offset(), message.timestamp()[1])
        for batch in polled.batches
        for message in batch.messages
    ]


@given(left=ARRIVALS, right=ARRIVALS, size=st.integers(1, 9), at_once=st.integers(1, 5))
def test_each_input_keeps_its_order_and_inputs_are_merged_by_arrival(
    left: list[int], right: list[int], size: int, at_once: int
) -> None:
    """An event is processed after all earlier events of the other input, up to the size of a run."""
    merger = InputMerger(["left", "right"], SteeredClock(0))
    found: list[tuple[str, int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_merger, "MIN_RUN", at_once)
        for begin in range(0, max(len(left), len(right), 1), size):
            parts = [(LEFT, left[begin : begin + size]), (RIGHT, right[begin : begin + size])]
            batches = [batch(bucket, part, begin) for bucket, part in parts if part]
            ends = [End(bucket, begin) for bucket, part in parts if not part]
            found += merged_events(merger.merge(Polled(batches, ends)))
        found += merged_events(merger.merge(Polled([], [End(LEFT, len(left)), End(RIGHT, len(right))])))

    for name, arrived in (("left", left), ("right", right)):
        assert [(offset, time) for category, offset, time in found if category == name] == list(enumerate(arrived))
    if at_once == 1:
        latest_arrivals = {
            "left": [max(left[: n + 1]) for n in range(len(left))],
            "right": [max(right[: n + 1]) for n in range(len(right))],
        }
        times = [latest_arrivals[name][offset] for name, offset, _ in found]
        assert times == sorted(times)


def test_the_merger_waits_briefly_for_an_input_without_a_batch() -> None:
    """After the limit, it processes the other input's batch. An input at its end never delays the others."""
    clock = SteeredClock(0)
    merger = InputMerger(["left", "right"], clock)

    assert merged_events(merger.merge(Polled([batch(LEFT, [5])], []))) == []
    clock.advance(input_merger.MAX_WAIT_S / 2)
    assert merged_events(merger.merge(Polled([], []))) == []
    clock.advance(input_merger.MAX_WAIT_S / 2)
    assert merged_events(merger.merge(Polled([], []))) == [("left", 0, 5)]
    assert merged_events(merger.merge(Polled([batch(RIGHT, [7])], [End(LEFT, 1)]))) == [("right", 0, 7)]
    ended = merger.merge(Polled([batch(LEFT, [9], 1)], [End(RIGHT, 1)]))
    assert (merged_events(ended), ended.ended) == ([("left", 1, 9)], [End(RIGHT, 1)])


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


def test_an_input_far_ahead_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading resumes at half of the limit; a dropped bucket is not paused any more."""
    monkeypatch.setattr(input_merger, "MAX_QUEUED", 10)
    monkeypatch.setattr(input_merger, "MIN_RUN", 1)
    merger, valve = InputMerger(["left", "right"], SteeredClock(0)), Valve()

    def after(*batches: RawBatch) -> set[Bucket]:
        merger.merge(Polled(batches, []))
        merger.limit_queues(valve)  # type: ignore[arg-type]  # the two methods of a reader that the merger calls
        return set(valve.paused)

    assert after(batch(LEFT, range(10))) == {LEFT}
    assert after(batch(RIGHT, [4])) == {LEFT}
    assert after(batch(RIGHT, [8], 1)) == set()
    assert after(batch(LEFT, range(20, 40), 10)) == {LEFT}
    merger.drop([LEFT])
    assert merged_events(merger.merge(Polled([batch(LEFT, [1])], [End(RIGHT, 2)]))) == [("left", 0, 1)]


@pytest.mark.parametrize("bucket_count", [1, 8])
def test_waiting_inputs_are_limited_by_their_size(bucket_count: int) -> None:
    """Events of 200 kB need gigabytes below the limit of their number. The buckets of a worker share the limit."""
    merger, valve, value = InputMerger(["left", "right"], SteeredClock(10_000)), Valve(), b"x" * 200_000
    lefts = [Bucket("left", number) for number in range(bucket_count)]
    sizes = dict.fromkeys(lefts, 0)
    for second in range(1, 10_000):
        parts = []
        for left in lefts:
            if left not in valve.paused:
                sizes[left] += 10 * len(value)
                messages = [StoredMessage(second * 10 + at, Outgoing(None, value), 5_000) for at in range(10)]
                parts.append(RawBatch(left, messages))
            parts.append(batch(Bucket("right", left.number), [second], second))
        merger.merge(Polled(parts, []))
        merger.limit_queues(valve)  # type: ignore[arg-type]  # the two methods of a reader that the merger calls
        if set(valve.paused) == set(lefts):
            break

    assert set(valve.paused) == set(lefts)
    assert sum(sizes.values()) < 1.5 * MAX_QUEUED_BYTES


def test_an_arrival_in_the_future_delays_no_later_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer whose clock is a year ahead does not make the bucket wait until the other inputs reach this time."""
    monkeypatch.setattr(input_merger, "MIN_RUN", 1)
    merger, ahead_ms = InputMerger(["left", "right"], SteeredClock(1_000_000)), 365 * 86_400_000
    polled = Polled([batch(LEFT, [10, ahead_ms, 20, 40]), batch(RIGHT, [15, 30, 50])], [])
    found = merged_events(merger.merge(polled))

    assert [time for _, _, time in found] == [10, ahead_ms, 15, 20, 30, 40]


def test_an_input_ahead_of_the_others_waits_at_its_stop_offset() -> None:
    """It waits until the other inputs reach theirs. A gap in the offsets up to the stop offset is reported as an end."""
    merger = InputMerger(["left", "right"], SteeredClock(0))
    merger.catch_up([Position(LEFT, 0), Position(RIGHT, 2)], {"left": 3})

    first = merger.merge(Polled([batch(LEFT, [1]), batch(RIGHT, [0, 0], 2)], []))
    second = merger.merge(Polled([batch(LEFT, [2, 9], 1), batch(LEFT, [9], 4)], []))
    then = merger.merge(Polled([], [End(LEFT, 5), End(RIGHT, 4)]))

    assert (merged_events(first), first.ended) == ([("left", 0, 1)], [])
    assert (merged_events(second), second.ended) == ([("left", 1, 2), ("left", 2, 9)], [])
    assert merged_events(then) == [("right", 2, 0), ("right", 3, 0), ("left", 4, 9)]

    merger.drop([LEFT, RIGHT])
    merger.catch_up([Position(LEFT, 0), Position(RIGHT, 2)], {"left": 3})
    gap = merger.merge(Polled([batch(LEFT, [1, 1]), batch(LEFT, [1], 4), batch(RIGHT, [0], 2)], []))
    assert (merged_events(gap), gap.ended) == ([("left", 0, 1), ("left", 1, 1)], [End(LEFT, 3)])


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


def test_a_worker_with_a_backlog_reads_its_inputs_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """It merges them by arrival and reads neither input completely before the other."""
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
    balances = [difference.by for difference in driver.read(aheads)]

    assert len(balances) == 80_000
    assert max(map(abs, balances)) <= 1_000 + input_merger.MIN_RUN
