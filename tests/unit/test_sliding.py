"""Sliding windows: one result for each key and event time, in any order of arrival."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import plan_of
from penstock.processors.keyed_state import ENTRY_BYTES, StateCache
from penstock.processors.operators import Operator, SlidingAggregate, open_operator, sliding_history
from penstock.processors.shard import Overlay, Step
from penstock.state import MemoryShardState, ShardIdentity
from penstock.state.backups import state_inspector
from penstock.state.local import RocksStateFolder

SIZE, BOUND = 20, 25


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime
    number: int


class Lately(ps.Record, frozen=True):
    """A sensor's readings in the last window."""

    sensor: str
    at: ps.EventTime
    since: int
    count: int
    numbers: str


readings = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=1)
late_readings = ps.Category("late_readings", Reading, key="sensor", event_time="at", buckets=1)
lately = ps.Category("lately", Lately, key="sensor", event_time="at", buckets=1)


class Concatenation(ps.monoids.Monoid[str]):
    """Concatenates texts."""

    def identity(self) -> str:
        return ""

    def combine(self, left: str, right: str, /) -> str:
        return left + right


class Latest(ps.Aggregator):
    """Aggregates a sensor's readings of the last window at each event time; ignores negative numbers."""

    reads, writes = readings, lately
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.TupleOf(ps.monoids.Count(), Concatenation())
    window = ps.windows.Sliding(timedelta(milliseconds=SIZE))
    watermark: ClassVar[ps.watermarks.Watermark] = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=BOUND))
    emit = ps.AtWatermark()
    late: ClassVar[Any] = ps.OnLate.DROP
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def observe(self, event: Reading) -> tuple[int, str] | None:
        if event.number > 9:
            raise ValueError(event.number)
        return None if event.number < 0 else (1, str(event.number))

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, str]) -> Lately:
        return Lately(key, window.end - 1, window.start, *value)


READINGS = st.lists(st.builds(Reading, st.sampled_from("ab"), st.integers(0, 150), st.integers(-1, 9)), max_size=60)
CUTS = st.lists(st.tuples(st.integers(0, 61), st.booleans()), max_size=4)
END = Reading("end", 1_000, -1)


def expected(arrived: Sequence[Reading]) -> list[Lately]:
    """Return the expected results, computed from all readings; equal times are in order of arrival."""
    events = sorted((one for one in arrived if one.number >= 0), key=lambda one: one.at)
    found = []
    for at, sensor in sorted({(one.at, one.sensor) for one in events}):
        within = [str(one.number) for one in events if one.sensor == sensor and at - SIZE < one.at <= at]
        found.append(Lately(sensor, at, at + 1 - SIZE, len(within), "".join(within)))
    return found


def checkpoint(operator: Operator, overlay: Overlay, saved: MemoryShardState) -> int:
    """Save the changes; return their size in bytes."""
    overlay.add(operator.drain().changes)
    changes = overlay.snapshot()
    saved.save(changes)
    overlay.finish({})
    return sum(len(key) + len(value or b"") for key, value in changes.items())


def latest_of(arrived: Sequence[Reading], cuts: Sequence[tuple[int, bool]]) -> list[Lately]:
    """Return a shard's outputs for batches with a checkpoint, and perhaps a restart, at each cut."""
    saved, outputs = MemoryShardState(), list[Any]()
    overlay = Overlay(saved, lambda _, later: later)
    operator = open_operator(Latest(), overlay)
    for (begin, restarts), (end, _) in pairwise([(0, False), *sorted(cuts), (len(arrived), False)]):
        operator = open_operator(Latest(), overlay) if restarts else operator
        outputs += operator.feed(readings, arrived[begin:end], stop_at_error=True).outputs
        checkpoint(operator, overlay, saved)
    assert all(place.startswith(b"\xffc") for place, _ in saved.scan(b"", b"\xff" * 9, 100)), (
        "the state contains more than event times"
    )
    return outputs


@contextmanager
def history_limits(chunk: int, cached: int) -> Iterator[None]:
    """Limit the values in a chunk and the values cached between checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding_history, "CHUNK_VALUES", chunk)
        patch.setattr(sliding_history, "STATE_CACHE", StateCache(cached * ENTRY_BYTES))
        yield


@given(
    events=READINGS, data=st.data(), cuts=CUTS, chunk=st.sampled_from([1, 3, 64]), cached=st.sampled_from([0, 1_000])
)
def test_sliding_windows_do_not_depend_on_the_order_of_arrival(
    events: list[Reading], data: st.DataObject, cuts: list[tuple[int, bool]], chunk: int, cached: int
) -> None:
    """With delays within the bound, any batches and restarts, each result is written once, in order of time."""
    delays = data.draw(st.lists(st.integers(0, BOUND), min_size=len(events), max_size=len(events)))
    delayed = sorted(zip(events, delays, strict=True), key=lambda held: held[0].at + held[1])
    arrived = [one for one, _ in delayed]

    with history_limits(chunk, cached):
        assert latest_of([*arrived, END], cuts) == expected(arrived)


def test_events_of_the_same_time_aggregate_in_order_of_arrival() -> None:
    """A checkpoint and a restart may be between them."""
    events = [Reading("a", 5, number) for number in (3, 1, 2)]

    assert latest_of([*events, END], [(1, False), (2, True)]) == [Lately("a", 5, 6 - SIZE, 3, "312")]


@pytest.mark.parametrize("chunk", [1, 64])
def test_the_state_keeps_values_that_future_windows_need(chunk: int) -> None:
    """The watermark may have any value. An event at the watermark itself is not late."""
    with history_limits(chunk, 0):
        for low in range(SIZE + 5):
            events = [Reading("a", 0, 1), Reading("a", 1, 2), Reading("b", low + BOUND, 3), Reading("a", low, 4)]
            assert latest_of([*events, END], [(n, True) for n in range(1, 5)]) == expected(events), low


def test_an_event_that_moves_the_watermark_past_itself_is_not_late() -> None:
    """The estimated lateness may shrink at the event."""

    class Learning:
        def bound_ms(self, seen: ps.watermarks.Lateness) -> int:
            return 100 if seen.observed < 4 else 0

    class Learned(Latest):
        watermark = Learning()

    events = [Reading("a", 90, 1), Reading("a", 95, 2), Reading("a", 100, 3), Reading("a", 85, 4)]
    operator = open_operator(Learned(), MemoryShardState())
    fed = operator.feed(readings, [*events, Reading("a", 99, 5)], stop_at_error=True)

    assert (operator.time.low_ms, fed.late) == (100, 1)
    assert fed.outputs == [one for one in expected(events) if one.at < 100]


def test_a_late_event_is_in_no_window() -> None:
    """Future windows exclude it too; it is counted, and sent to the category for late events if there is one."""

    class WithLateCategory(Latest):
        late = late_readings
        watermark = ps.watermarks.BoundedOutOfOrderness()

    for processor, expected_late in ((Latest, []), (WithLateCategory, [Reading("a", 4, 7)])):
        driver = Driver(processor)
        in_time = [Reading("a", 0, 1), Reading("a", 5 + BOUND, 2), Reading("a", 6 + BOUND, 3), END]
        late = Reading("a", 4, 7)
        driver.send(readings, [*in_time[:2], late, *in_time[2:]])

        assert driver.read(lately) == expected(in_time)
        assert driver.read(late_readings) == expected_late if expected_late else True
        assert (driver.metrics(processor).late, driver.metrics(processor).dropped) == (1, 1)


def test_a_failing_event_is_in_no_window() -> None:
    """If a batch stops there, only earlier events count and move the watermark."""
    events = [
        Reading("a", 0, 1),
        Reading("a", 40, 2),
        Reading("a", 90, 10),
        Reading("a", 91, 3),
        END,
        Reading("a", 0, 1),
    ]
    stopping, continuing = (open_operator(Latest(), MemoryShardState()) for _ in range(2))
    stopped = stopping.feed(readings, events, stop_at_error=True)

    assert [rejected.at for rejected in stopped.rejected] == [2]
    assert (stopped.late, stopped.dropped) == (0, 0)
    assert stopped.outputs == expected(events[:1])
    assert stopping.time.low_ms == 40 - BOUND
    rest = stopping.feed(readings, events[3:], stop_at_error=True).outputs
    assert [*stopped.outputs, *rest] == expected([*events[:2], events[3]])
    assert continuing.feed(readings, events, stop_at_error=False).outputs == expected([*events[:2], events[3]])


@pytest.mark.parametrize(
    "step", [Step.FLUSH_OUTPUTS, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None]
)
def test_sliding_windows_survive_a_crash(step: Step | None) -> None:
    """Each result is written once, and includes events from before the crash."""
    arrived = [Reading("ab"[n % 2], n * 4 + (n // 7) * 9 - (n % 3) * 6, n % 10) for n in range(40)]
    for at in range(1, len(arrived), 6):
        driver = Driver(Latest)
        driver.send(readings, [*arrived[:at], Crash(before=step), *arrived[at:], END])

        assert driver.read(lately) == expected(arrived)


class Total(ps.Record, frozen=True):
    """A sensor's total in the last window."""

    sensor: str
    at: ps.EventTime
    count: int
    total: int


totals = ps.Category("totals", Total, key="sensor", event_time="at", buckets=1)


class Totals(ps.Aggregator):
    """Sums thousands of readings per window."""

    reads, writes = readings, totals
    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Sum())
    window = ps.windows.Sliding(timedelta(seconds=4))
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=100))
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP

    def observe(self, event: Reading) -> tuple[int, int]:
        return 1, event.number

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, int]) -> Total:
        return Total(key, window.end - 1, *value)


def test_the_state_does_not_grow_with_the_stream() -> None:
    """Some keys have no further events. A checkpoint writes new values, not whole windows."""
    saved = MemoryShardState()
    overlay = Overlay(saved, lambda _, later: later)
    operator = open_operator(Totals(), overlay)
    events = [Reading("abc"[n % 3] if n < 9_000 else "a", n * 2, n % 10) for n in range(14_000)]
    written, kept, outputs = list[int](), list[int](), list[Total]()
    for begin in range(0, len(events), 50):
        outputs += operator.feed(readings, events[begin : begin + 50], stop_at_error=True).outputs
        written.append(checkpoint(operator, overlay, saved))
        kept.append(sum(len(value) for _, value in saved.scan(b"", b"\xff" * 9, 100_000)))

    assert (outputs[8_000].count, outputs[-1].count) == (667, 2_000)
    assert max(kept[100:]) < 1.2 * kept[100]
    assert max(written[100:]) < kept[100] / 3
    assert saved.fetch([b"b"]) == [None]


@given(st.lists(st.tuples(st.integers(1, 12), st.floats(-1e9, 1e9)), max_size=60), st.integers(0, 59))
def test_float_results_do_not_depend_on_the_first_event(events: list[tuple[int, float]], first: int) -> None:
    """The values of one window suffice for bit-identical results."""
    at, timed = -30, []
    for step, number in events:
        at += step
        timed.append((at, number))
    whole, later = SlidingAggregate(ps.monoids.Sum(), SIZE), SlidingAggregate(ps.monoids.Sum(), SIZE)
    values = [whole.add(*one) for one in timed]
    begin = next((n for n, (at, _) in enumerate(timed) if at > timed[min(first, len(timed) - 1)][0] - SIZE), 0)
    again = [later.add(*one) for one in timed[begin:]]

    assert again[max(first - begin, 0) :] == values[begin:][max(first - begin, 0) :]


def test_an_event_costs_at_most_three_merges() -> None:
    """The window may have any size, and all windows of a key may complete at once."""

    class Counted(Concatenation):
        merges = 0

        def combine(self, left: str, right: str, /) -> str:
            self.merges += 1
            return max(left, right)

    for size in (10, 1_000):
        monoid = Counted()
        aggregate = SlidingAggregate(monoid, size)
        values = [aggregate.add(at, str(at % 7)) for at in range(5_000)]

        assert values[-1] == "6"
        assert len(aggregate) <= 2 * size
        assert monoid.merges <= 3 * 5_000


def test_the_output_watermark_equals_the_input_watermark() -> None:
    """A result has the time of its window's last event, not of its start."""
    assert plan_of(Latest).output_watermark_ms(25) == 25


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"emit": ps.AtCheckpoint()}, "known only when it is complete"),
        ({"emit": ps.AtWatermark(early=timedelta(seconds=1))}, "known only when it is complete"),
        ({"emit": ps.AtWatermark(differences=True)}, "known only when it is complete"),
        ({"late": ps.OnLate.INTO_WINDOW}, "sliding windows that were already written"),
        ({"allowed_lateness": timedelta(seconds=1)}, "declare a slower `watermark`"),
        ({"store": ps.RemoteStore()}, "several shards share"),
    ],
)
def test_unsupported_sliding_declarations_are_refused(attributes: dict[str, Any], message: str) -> None:
    """The error explains what to change."""
    wrong: type[ps.Aggregator] = type("Wrong", (Latest,), attributes)

    with pytest.raises(DeclarationError, match=message):
        plan_of(wrong).check()


def test_a_size_with_a_fraction_of_a_millisecond_is_refused() -> None:
    """The same rule applies to windows of any kind."""
    with pytest.raises(DeclarationError, match=r"The size of a sliding window is 0:00:00\.000500"):
        ps.windows.Sliding(timedelta(microseconds=500))


def test_the_state_of_a_key_can_be_inspected(tmp_path: Path) -> None:
    """The inspector lists the key's newest values separately."""
    saved = RocksStateFolder(tmp_path).open(ShardIdentity("latest", 0, plan_of(Latest).state_shape or ""))
    with closing(saved):
        operator = open_operator(Latest(), saved)
        operator.feed(readings, [Reading("a", 5, 1), Reading("a", 9, 2), Reading("b", 36, 3)], stop_at_error=True)
        saved.save(operator.drain().changes)
        shown = state_inspector(Latest, "a", 10)(saved).entries

    assert [(one.key, one.window, one.value) for one in shown] == [
        ("a", ps.windows.Window(5, 6), (1, "1")),
        ("a", ps.windows.Window(9, 10), (1, "2")),
    ]
