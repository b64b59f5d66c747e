"""Windows of stateful processors: each event in its windows, each window completed once, and no state left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import plan_of
from penstock.processors.operators import open_operator
from penstock.processors.shard import Overlay, Step
from penstock.processors.time import NEVER_MS
from penstock.state import MemoryShardState

BOUND = 15
MS = timedelta(milliseconds=1)


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime
    number: int


class Found(ps.Record, frozen=True):
    """The result of a window: its numbers, sorted."""

    sensor: str
    start: ps.EventTime
    end: int
    numbers: tuple[int, ...]


class Seen(Found, frozen=True):
    """The state of a window at an event."""


readings = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=1)
late_readings = ps.Category("late_readings", Reading, key="sensor", event_time="at", buckets=1)
found = ps.Category("found", Found, key="sensor", event_time="start", buckets=1)
seen = ps.Category("seen", Seen, key="sensor", event_time="start", buckets=1)


class Tumble(ps.Windowed):
    """Collects the numbers of ten milliseconds."""

    reads, state = readings, tuple[int, ...]
    writes: ClassVar[Any] = found
    window: ClassVar[Any] = ps.windows.Tumbling(10 * MS)
    watermark = ps.watermarks.BoundedOutOfOrderness(BOUND * MS)
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def fold(
        self, event: Reading, state: tuple[int, ...] | None, window: ps.windows.Window, context: ps.Context
    ) -> tuple[Any, Iterable[ps.Record]]:
        """Add the number."""
        assert window.start <= event.at < window.end
        return tuple(sorted([*(state or ()), event.number])), ()

    def complete(self, state: tuple[int, ...], window: ps.windows.Window, context: ps.Context) -> Iterable[Found]:
        """Write all numbers."""
        yield Found(context.key, *window, state)


class Hop(Tumble):
    """The same every four milliseconds."""

    window = ps.windows.Hopping(10 * MS, 4 * MS)


class Spree(Tumble):
    """Collects numbers without a pause of five milliseconds."""

    window, ordered = ps.windows.Session(5 * MS), True


class Talkative(Tumble):
    """Also writes an output at every event."""

    writes = (found, seen)

    def fold(
        self, event: Reading, state: tuple[int, ...] | None, window: ps.windows.Window, context: ps.Context
    ) -> tuple[tuple[int, ...], Iterable[ps.Record]]:
        """Add the number, and write the numbers so far."""
        after, _ = super().fold(event, state, window, context)
        return after, [Seen(context.key, *window, after)]


class Patient(Tumble):
    """Accepts events up to five milliseconds after its windows are complete; later events go to a category."""

    watermark, allowed_lateness, late = ps.watermarks.BoundedOutOfOrderness(), 5 * MS, late_readings


class Forgetful(Tumble):
    """Deletes its state at a zero."""

    def fold(
        self, event: Reading, state: tuple[int, ...] | None, window: ps.windows.Window, context: ps.Context
    ) -> tuple[Any, Iterable[ps.Record]]:
        """Add the number, or delete the state."""
        return (None, ()) if event.number == 0 else super().fold(event, state, window, context)


class Meddling(Tumble):
    """Sets its own timer, which is not allowed."""

    def fold(
        self, event: Reading, state: tuple[int, ...] | None, window: ps.windows.Window, context: ps.Context
    ) -> tuple[tuple[int, ...], Iterable[ps.Record]]:
        """Set a timer."""
        context.timer(event.at)
        return (), ()


READINGS = st.lists(
    st.builds(Reading, st.sampled_from("ab"), st.integers(0, 100), st.integers(0, 99)), min_size=1, max_size=30
)
END = Reading("end", 10_000, 0)


def expected(processor: type[Tumble], events: Sequence[Reading]) -> Counter[Found]:
    """Return every window, by assigning each event to all windows that contain it."""
    by_sensor: dict[str, list[Reading]] = {}
    for event in events:
        by_sensor.setdefault(event.sensor, []).append(event)
    windows: Counter[Found] = Counter()
    for sensor, own in by_sensor.items():
        times = sorted({event.at for event in own})
        if processor is Spree:
            starts = [
                at for at, before in zip(times, [None, *times], strict=False) if before is None or at - before >= 5
            ]
            lasts = [max(at for at in times if at < after) for after in [*starts[1:], 10**9]]
            spans = [(start, last + 5) for start, last in zip(starts, lasts, strict=True)]
        else:
            step = 4 if processor is Hop else 10
            spans = [(start, start + 10) for start in range(-12, 112, 1) if start % step == 0]
        for start, end in spans:
            numbers = tuple(sorted(event.number for event in own if start <= event.at < end))
            if numbers:
                windows[Found(sensor, start, end, numbers)] += 1
    return windows


def windows_of(processor: type[Tumble], arrived: Sequence[Reading], size: int, restarts: set[int]) -> Counter[Found]:
    """Return a shard's outputs for batches, with a checkpoint after each and a restart after some."""
    saved, given = MemoryShardState(), Counter[Found]()
    overlay = Overlay(saved, lambda _, later: later)
    operator = open_operator(processor(), overlay)
    for number, begin in enumerate(range(0, len(arrived), size)):
        given.update(operator.feed(readings, arrived[begin : begin + size], stop_at_error=True).outputs)
        overlay.add(operator.drain().changes)
        saved.save(overlay.snapshot())
        overlay.finish({})
        operator = open_operator(processor(), overlay) if number in restarts else operator
    assert {key for key, _ in saved.scan(b"", b"\xfe", 100)} <= {b"end"}, "the state still contains complete windows"
    return Counter({one: times for one, times in given.items() if one.sensor != "end"})


@pytest.mark.parametrize("processor", [Tumble, Hop, Spree])
@given(
    events=READINGS,
    data=st.data(),
    size=st.integers(1, 12),
    restarts=st.sets(st.integers(0, 30), max_size=4),
)
def test_windows_do_not_depend_on_the_order_of_arrival(
    processor: type[Tumble], events: list[Reading], data: st.DataObject, size: int, restarts: set[int]
) -> None:
    """With delays within the bound, any batches and restarts, each window is written once."""
    delays = data.draw(st.lists(st.integers(0, BOUND), min_size=len(events), max_size=len(events)))
    delayed = sorted(zip(events, delays, strict=True), key=lambda held: held[0].at + held[1])

    assert windows_of(processor, [*(event for event, _ in delayed), END], size, restarts) == expected(processor, events)


@pytest.mark.parametrize("step", [Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None])
def test_each_window_is_written_once_after_a_crash(step: Step | None) -> None:
    """Its state and its timer are part of the saved state."""
    events = [Reading("ab"[n % 2], n * 3, n) for n in range(30)]
    for at in range(1, 30, 7):
        driver = Driver(Hop)
        driver.send(readings, [*events[:at], Crash(before=step), *events[at:], END])

        assert Counter(one for one in driver.read(found) if one.sensor != "end") == expected(Hop, events)


def test_fold_can_write_outputs_at_once() -> None:
    """They do not wait for the end of the window."""
    driver = Driver(Talkative)
    driver.send(readings, [Reading("a", 1, 5), Reading("a", 2, 3)])

    assert [one.numbers for one in driver.read(seen)] == [(5,), (3, 5)]
    assert driver.read(found) == []


def test_a_complete_window_is_written_again_while_lateness_is_allowed() -> None:
    """An event within the allowed lateness causes an update; a later event goes to the category for late events."""
    driver = Driver(Patient)
    events = [Reading("a", 3, 1), Reading("b", 12, 0), Reading("a", 4, 2), Reading("b", 15, 0), Reading("a", 5, 3)]
    driver.send(readings, events)

    assert [one.numbers for one in driver.read(found) if one.sensor == "a"] == [(1,), (1, 2)]
    assert driver.read(late_readings) == [Reading("a", 5, 3)]
    assert (driver.metrics(Patient).late, driver.metrics(Patient).dropped) == (2, 1)


def test_a_window_that_starts_late_is_written_at_once() -> None:
    """It is already complete, and still accepts events."""
    driver = Driver(Patient)
    driver.send(readings, [Reading("b", 12, 0), Reading("a", 4, 2)])

    assert [one.numbers for one in driver.read(found)] == [(2,)]


def test_a_window_without_state_is_not_completed() -> None:
    """It has no result."""
    driver = Driver(Forgetful)
    driver.send(readings, [Reading("a", 3, 1), Reading("a", 4, 0), Reading("b", 4, 7), END])

    assert [one.sensor for one in driver.read(found)] == ["b"]


def test_custom_timers_are_refused() -> None:
    """They would be mistaken for timers of windows."""
    driver = Driver(Meddling)

    with pytest.raises(ps.PenstockError, match="Windows and joins set their own"):
        driver.send(readings, [Reading("a", 3, 1)])


def test_the_output_watermark_is_the_start_of_the_oldest_open_window() -> None:
    """A result may have its window's start as event time."""
    assert plan_of(Hop).output_watermark_ms(25) == 16
    assert plan_of(Hop).output_watermark_ms(NEVER_MS) == NEVER_MS
    assert plan_of(Spree).output_watermark_ms(25) == 25


@pytest.mark.parametrize(
    ("base", "attributes", "message"),
    [
        (Tumble, {"window": ps.windows.GlobalWindow()}, "never complete"),
        (Tumble, {"window": ps.windows.Sliding(timedelta(hours=1))}, "a separate fold for each event"),
        (Tumble, {"window": ps.windows.Session(5 * MS)}, "ordered = True"),
        (Tumble, {"allowed_lateness": -MS}, "must not be negative"),
        (Tumble, {"allowed_lateness": timedelta(days=8)}, "the bus keeps events of readings for only 7 days"),
        (Spree, {"allowed_lateness": MS}, "`allowed_lateness` has no effect"),
        (Tumble, {"late": ps.OnLate.INTO_WINDOW}, "OnLate.DROP or a category"),
        (Tumble, {"late": seen}, "the record type of the input"),
    ],
)
def test_unsupported_window_declarations_are_refused(
    base: type[Tumble], attributes: dict[str, Any], message: str
) -> None:
    """The error explains what to change."""
    wrong: type[ps.Windowed] = type("Wrong", (base,), attributes)

    with pytest.raises(DeclarationError, match=message):
        plan_of(wrong).check()
