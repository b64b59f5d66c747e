"""A stream with columns equals the stream event by event: messages, states, watermarks, dead letters and counts, byte for byte."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.column_traces import START_MS, traces_of_both

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.processors import ProcessorFailed
from penstock.processors.declare import plan_of
from penstock.processors.monoids import Monoid

LETTER = ps.ErrorPolicy.DEAD_LETTER


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: float
    count: int
    note: str | None = None


class Result(ps.Record, frozen=True):
    """A result of a meter."""

    meter: str
    at: ps.EventTime
    value: str


READINGS = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2)
KEPT = ps.Category("kept", Reading, key="meter", event_time="at", buckets=2)
RESULTS = ps.Category("results", Result, key="meter", event_time="at", buckets=2)
IN_TIME = ps.watermarks.BoundedOutOfOrderness(timedelta(seconds=5))
WINDOW = ps.windows.Tumbling(timedelta(seconds=10))


class Kept(ps.Stateless):
    """Keeps the readings of more than a litre; a negative one is an error."""

    reads, writes = READINGS, KEPT
    on_error: ClassVar[ps.ErrorPolicy] = LETTER
    on_undecodable = LETTER
    on_future_event = LETTER
    on_missing_event_time = LETTER
    dead_letter_limit = None
    watermark = IN_TIME

    def process(self, event: Reading) -> tuple[Reading, ...]:
        if event.count < 0:
            raise ValueError(f"negative: {event.count}")
        return (event,) if event.litres > 1 else ()

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch:
        if pc.any(pc.less(events.column("count"), pa.scalar(0))).as_py():
            raise ValueError("negative")
        return events.filter(pc.greater(events.column("litres"), pa.scalar(1.0)))


class KeptOrStopped(Kept):
    """Stops at an error."""

    on_error = ps.ErrorPolicy.STOP


class Counted(ps.Aggregator):
    """Counts readings, without a method for columns."""

    reads, writes = READINGS, RESULTS
    on_error = LETTER
    on_undecodable = LETTER
    on_future_event = LETTER
    on_missing_event_time = LETTER
    dead_letter_limit = None
    watermark = IN_TIME
    monoid: ClassVar[Monoid[Any]] = ps.monoids.Count()
    window: ClassVar[ps.windows.WindowAssigner] = WINDOW

    def result(self, key: str, window: ps.windows.Window, value: Any) -> Result:
        return Result(key, max(window.start, 0), repr(value))


class Summed(Counted):
    """Computes sums, means, and extremes, of the readings with litres."""

    monoid: ClassVar[Monoid[Any]] = ps.monoids.TupleOf(
        ps.monoids.Count(),
        ps.monoids.Sum(),
        ps.monoids.Mean(),
        ps.monoids.Min(),
        ps.monoids.Max(),
        ps.monoids.Sum(),
    )

    def observe(self, event: Reading) -> tuple[Any, ...] | None:
        if event.count < 0:
            raise ValueError(f"negative: {event.count}")
        return (1, event.litres, event.count, event.count, event.count, event.count) if event.litres else None

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        litres, count = events.column("litres"), events.column("count")
        if pc.any(pc.less(count, pa.scalar(0))).as_py():
            raise ValueError("negative")
        parts = [pa.array([1] * len(count), pa.int64()), litres, count, count, count, count]
        return pa.StructArray.from_arrays(parts, names=list("abcdef"), mask=pc.equal(litres, pa.scalar(0.0)))


class Floats(Counted):
    """Computes the extremes of floats, which are folded one by one."""

    monoid: ClassVar[Monoid[Any]] = ps.monoids.TupleOf(ps.monoids.Min(), ps.monoids.Max(), ps.monoids.Distinct())

    def observe(self, event: Reading) -> tuple[Any, ...]:
        return (event.litres, event.litres, event.count)

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        litres = events.column("litres")
        return pa.StructArray.from_arrays([litres, litres, events.column("count")], names=list("abc"))


class Closing(Summed):
    """Writes overlapping windows when they are complete, and drops late readings."""

    monoid: ClassVar[Monoid[Any]] = ps.monoids.Sum()
    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Hopping(timedelta(seconds=10), step=timedelta(seconds=4))
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP

    def observe(self, event: Reading) -> Any:
        return event.litres or None

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        litres = events.column("litres")
        observed: pa.Array[Any] = pc.if_else(pc.equal(litres, pa.scalar(0.0)), pa.scalar(None, pa.float64()), litres)
        return observed


class InSliding(Closing):
    """The same in sliding windows."""

    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Sliding(timedelta(seconds=10))


PROCESSORS = [Kept, KeptOrStopped, Counted, Summed, Floats, Closing, InSliding]

READING = some.builds(
    Reading,
    some.sampled_from(["a", "b", "c", 'é"\n', ""]),
    some.integers(0, 40).map(lambda second: START_MS + second * 1000),
    some.sampled_from([0.0, -0.0, 0.1, 0.2, 0.30000000000000004, 1.5, 1e300, -1e300, 7.0]),
    some.sampled_from([0, 1, 2, 5, 10**17]),
    some.sampled_from([None, None, "", "x"]),
)
ODD = some.one_of(
    READING.map(lambda it: json.dumps(msgspec.to_builtins(it)).encode()),
    READING.map(lambda it: msgspec.json.encode(msgspec.structs.replace(it, at=it.at + 2**55))),
    READING.map(lambda it: msgspec.json.encode(msgspec.structs.replace(it, count=2**63 - 1))),
    READING.map(lambda it: msgspec.json.encode(msgspec.structs.replace(it, count=-1))),
    READING.map(lambda it: msgspec.json.encode(it).replace(b'"at"', b'"when"')),
    READING.map(lambda it: msgspec.json.encode(it).replace(b'"count":', b'"count":18446744073709551616')),
    some.sampled_from([b"{", b"", b'{"meter":"a"}']),
)
ITEMS = some.lists(READING, max_size=12) | some.lists(READING | ODD, max_size=8)
CHUNKS = some.lists(ITEMS, min_size=1, max_size=4)


@pytest.mark.parametrize("processor", PROCESSORS)
@settings(max_examples=40, deadline=None)
@given(chunks=CHUNKS)
def test_a_stream_with_columns_equals_the_stream_event_by_event(
    processor: type[ps.Processor], chunks: list[list[Reading | bytes]]
) -> None:
    """Random batches have messages that do not decode, late events, exceptions, strange texts and numbers."""
    in_columns, one_by_one = traces_of_both(processor, chunks)

    assert in_columns == one_by_one


class _Counting(Kept):
    """Counts the calls of its methods."""

    calls: ClassVar[list[str]] = []

    def process(self, event: Reading) -> tuple[Reading, ...]:
        self.calls.append("process")
        return super().process(event)

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch:
        self.calls.append("process_columns")
        return super().process_columns(events)


def readings(count: int, first: int = 0) -> list[Reading]:
    return [Reading("a", START_MS + number, number / 7, number) for number in range(first, first + count)]


def test_a_large_batch_needs_no_record() -> None:
    """After the first batch, `process` is not called any more; a small batch is processed event by event."""
    driver = Driver(_Counting, start_ms=START_MS + 60_000)
    driver.send(READINGS, readings(300))
    _Counting.calls.clear()
    driver.send(READINGS, readings(300, 300))
    of_large = list(_Counting.calls)
    _Counting.calls.clear()
    driver.send(READINGS, readings(3, 600))

    assert of_large == ["process_columns"]
    assert _Counting.calls == ["process"] * 3


class _Wrong(Kept):
    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch:
        return events


class _WrongType(Summed):
    monoid: ClassVar[Monoid[Any]] = ps.monoids.Sum()

    def observe(self, event: Reading) -> Any:
        return event.count

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        return events.column("count").cast("float64")


@pytest.mark.parametrize(
    ("wrong", "differs"),
    [(_Wrong, "where `process` returns"), (_WrongType, r"returns 0\.0 where `observe` returns 0\.")],
)
def test_different_methods_stop_the_worker_at_the_first_batch(wrong: type[ps.Processor], differs: str) -> None:
    """Nothing is written."""
    driver = Driver(wrong, start_ms=START_MS + 60_000)

    with pytest.raises(ProcessorFailed, match=differs):
        driver.send(READINGS, readings(300))
    assert driver.read(plan_of(wrong).outputs[0]) == []
