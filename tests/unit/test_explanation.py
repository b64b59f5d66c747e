"""What led to an output: the event, the state around it, and the events before it upstream."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.replays import EMPTY, at

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.ops.look_back import BusEventSource, PastRange
from penstock.ops.look_back.replay.errors import ReplayRefused
from penstock.ops.look_back.replay.event_places import EventPlace
from penstock.ops.look_back.replay.explanation import Explanation, Question

START_MS = 4_102_444_800_000


class Reading(ps.Record, frozen=True):
    """A meter's reading, in a house."""

    meter: str
    at: ps.EventTime
    litres: int
    house: str = "h"


class Total(ps.Record, frozen=True):
    """A house's total."""

    house: str
    at: ps.EventTime
    litres: int


raw = ps.Category("raw", Reading, key="meter", event_time="at", buckets=2)
clean = ps.Category("clean", Reading, key="house", event_time="at", buckets=2)
totals = ps.Category("totals", Total, key="house", event_time="at", buckets=2)
by_minute = ps.Category("by_minute", Total, key=lambda total: f"minute-{total.house}", event_time="at", buckets=2)


class Clean(ps.Stateless[Reading, Reading]):
    """Drops readings of nothing."""

    reads, writes = raw, clean

    def process(self, event: Reading) -> Iterable[Reading]:
        if event.litres:
            yield event


class Totals(ps.Stateful):
    """Sums each house's readings; a pause writes zero."""

    reads, writes, state = clean, totals, int
    watermark = ps.watermarks.BoundedOutOfOrderness()

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        context.timer(event.at + 90_000, "pause")
        total = (state or 0) + event.litres
        return total, [Total(event.house, event.at, total)]

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[int, list[Total]]:
        return state, [Total(context.key, timer.at, 0)]


class ByMinute(ps.Aggregator):
    """Counts each house's readings by minute."""

    reads, writes, monoid = clean, by_minute, ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(minutes=1))

    def result(self, key: str, window: ps.Window, value: int) -> Total:
        return Total(key, window.start, value)


APP = [Clean, Totals, ByMinute]


def sent(*readings: tuple[str, int, str], step_ms: int = 1_000) -> Driver:
    """Run the app on readings, one per second: a meter, its litres and its house."""
    driver = Driver(APP, start_ms=START_MS)
    for number, (meter, litres, house) in enumerate(readings):
        driver.send(raw, [Reading(meter, START_MS + number * step_ms, litres, house)])
        driver.advance(1)
    return driver


def explained(
    driver: Driver, processor: type[ps.Processor], key: str, until_s: float = 3_600, since_s: float = 0
) -> list[Explanation]:
    """Return what led to the last output with a key, and upstream."""
    span = PastRange(at(START_MS + round(1_000 * since_s)), at(START_MS + round(1_000 * until_s)))
    question = Question(driver.bus, lambda running: BusEventSource(running, driver.bus), EMPTY, span)
    found = question.last_output(processor, lambda output: output.key == key)
    return [] if found is None else [found, *question.upstream(found, APP)]


def test_an_output_is_followed_to_the_first_event_of_the_app() -> None:
    """The explanation has the state before and after. A meter's reading became an event of its house in another bucket."""
    driver = sent(("m1", 3, "h1"), ("m2", 4, "h2"), ("m3", 5, "h1"), ("m1", 0, "h1"))
    total, reading = explained(driver, Totals, "h1", until_s=60)

    assert total.output.record == Total("h1", START_MS + 2_000, 8)
    assert (total.before, total.after) == (3, 8)
    assert total.inputs[0].event == reading.output.record == Reading("m3", START_MS + 2_000, 5, "h1")
    assert [each.place for each in reading.inputs] == [
        EventPlace("raw", raw.bucket_of("m3"), _offset(driver, "m3"), START_MS + 2_000)
    ]


def _offset(driver: Driver, meter: str) -> int:
    """Return the offset of the last reading of a meter."""
    bucket = raw.bucket_of(meter)
    before = [each for each in driver.read(raw) if raw.bucket_of(each.meter) == bucket]
    return max(number for number, each in enumerate(before) if each.meter == meter and each.litres)


@settings(max_examples=4, deadline=None)
@given(
    readings=st.lists(st.tuples(st.just("m"), st.integers(1, 9), st.sampled_from(["h1", "h2"])), max_size=8),
    seconds=st.integers(0, 9),
)
def test_the_last_output_before_the_moment_is_explained(readings: list[tuple[str, int, str]], seconds: int) -> None:
    """The state is the sum of all readings until then; without an output there is no explanation."""
    own = [litres for _, litres, house in readings[:seconds] if house == "h1"]
    steps = explained(sent(*readings), Totals, "h1", until_s=seconds)

    assert [step.processor for step in steps] == ([Totals, Clean] if own else [])
    assert [step.after for step in steps[:1]] == ([sum(own)] if own else [])


def test_the_result_of_a_window_has_its_events() -> None:
    """The events have its key and window, even if the engine calls no `observe`. The output and the state have different keys."""
    driver = sent(("a", 1, "h1"), ("b", 1, "h2"), ("c", 1, "h1"), ("d", 1, "h1"), step_ms=25_000)
    result, *upstream = explained(driver, ByMinute, "minute-h1")

    assert (result.method, result.argument) == ("result", 1)
    assert [each.event.meter for each in result.inputs] == ["d"]
    assert [step.output.record.meter for step in upstream] == ["d"]
    earlier, *_ = explained(driver, ByMinute, "minute-h1", until_s=3)
    assert [each.event.meter for each in earlier.inputs] == ["a", "c"]


def test_a_timer_is_the_cause_of_its_output() -> None:
    """No event can be followed upstream."""
    driver = sent(("m", 3, "h1"), ("n", 1, "h2"), step_ms=100_000)
    driver.send(raw, [Reading("m", START_MS + 300_000, 1, "h1")])
    span = PastRange(at(START_MS), at(START_MS + 3_600_000))
    question = Question(driver.bus, lambda running: BusEventSource(running, driver.bus), EMPTY, span)
    found = question.last_output(Totals, lambda output: output.key == "h1" and output.record.litres == 0)
    assert found is not None

    assert (found.method, found.argument.tag, found.inputs) == ("on_timer", "pause", [])
    assert list(question.upstream(found, APP)) == []


def test_an_unknown_origin_is_reported() -> None:
    """An event that the writer in the app did not write in the range is the end of the explanation."""
    driver = sent(("m", 3, "h1"))
    driver.send(clean, [Reading("x", START_MS + 5_000, 4, "h1")])
    notes: list[str] = []
    span = PastRange(at(START_MS), at(START_MS + 3_600_000))
    question = Question(driver.bus, lambda running: BusEventSource(running, driver.bus), EMPTY, span, notes.append)
    found = question.last_output(Totals, lambda output: output.key == "h1")
    assert found is not None

    assert list(question.upstream(found, APP)) == []
    assert "did not write this event" in notes[-1]


def test_a_processor_whose_calls_cannot_be_followed_is_refused() -> None:
    """The error contains the reason."""
    with pytest.raises(ReplayRefused, match="Pipe cannot be explained"):
        explained(sent(), ps.Pipe, "h1")
