"""Values that no record, state or category can contain: only the event that produced them is refused."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import penstock as ps
from penstock.backfill.steps import OutputRows
from penstock.backfill.warehouse import RecordColumns
from penstock.ops.kernel import Crash, Driver
from penstock.ops.kernel.checkpoint.output_writer import OutputRefused
from penstock.processors import ProcessorFailed
from penstock.processors.shard import EventRejected
from penstock.processors.time import format_time, nearest_datetime
from penstock.processors.time.timestamp_validation import format_duration


class Given(ps.Record, frozen=True):
    """Two numbers."""

    key: str
    at: ps.EventTime
    a: float
    n: int = 1


class Product(ps.Record, frozen=True):
    """Their product, which may be unknown."""

    key: str
    at: ps.EventTime
    ratio: float | None
    n: Any = 0


given_numbers = ps.Category("given_numbers", Given, key="key", event_time="at", buckets=1)
products = ps.Category("products", Product, key="key", event_time="at", buckets=1)

EVENTS = [Given("a", at, a) for at, a in enumerate([1.0, 2.0, 3.0, 1e300, 5.0, -1e300, 7.0])]
KEPT = [100.0, 200.0, 300.0, 500.0, 700.0]


class Multiplying(ps.Stateless):
    """Multiplies some events to infinity."""

    reads, writes = given_numbers, products

    def process(self, event: Given) -> Iterable[Product]:
        factor = 1e300 if abs(event.a) > 1e200 else 100
        yield Product(event.key, event.at, event.a * factor)


class Forgiving(Multiplying):
    """The same, with dead letters for such events."""

    on_error = ps.ErrorPolicy.DEAD_LETTER


class Remembering(ps.Stateful):
    """The same with a state: the number of processed events."""

    reads, writes, state = given_numbers, products, int
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Given, state: int | None, context: ps.Context) -> tuple[int, list[Product]]:
        factor = 1e300 if abs(event.a) > 1e200 else 100
        return (state or 0) + 1, [Product(event.key, event.at, event.a * factor, (state or 0) + 1)]


def test_a_nonfinite_output_stops_the_worker_before_its_batch_is_sent() -> None:
    """The event may be at any position in the batch. A null does not replace it, and the error names the field."""
    driver = Driver(Multiplying)

    with pytest.raises(OutputRefused, match=r"Product.*`ratio` is inf"):
        driver.send(given_numbers, EVENTS)
    assert driver.read(products) == []


@pytest.mark.parametrize("processor", [Forgiving, Remembering])
def test_an_event_with_an_invalid_output_becomes_a_dead_letter_if_declared(processor: type[ps.Processor]) -> None:
    """It changes no state; the events around it are processed."""
    driver = Driver(processor)

    driver.send(given_numbers, EVENTS)

    assert [product.ratio for product in driver.read(products)] == KEPT
    assert [letter.offset for letter in driver.dead_letters(processor)] == [3, 5]
    assert all("ratio" in letter.reason for letter in driver.dead_letters(processor))
    if processor is Remembering:
        assert [product.n for product in driver.read(products)] == [1, 2, 3, 4, 5]


class Multiplied(ps.Stateful):
    """Multiplies into a state beyond 64 bits."""

    reads, writes, state = given_numbers, products, int
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Given, state: int | None, context: ps.Context) -> tuple[int, list[Product]]:
        return (state or 1) * event.n, [Product(event.key, event.at, event.a)]


class Mistyped(Multiplied):
    """Returns a text for one event, although its state is declared as a number."""

    def process(self, event: Given, state: int | None, context: ps.Context) -> tuple[Any, list[Product]]:
        return ("much" if event.n > 2**40 else (state or 0) + 1), [Product(event.key, event.at, event.a)]


@pytest.mark.parametrize("processor", [Multiplied, Mistyped])
def test_an_event_with_an_invalid_state_becomes_a_dead_letter_if_declared(processor: type[ps.Processor]) -> None:
    """The key keeps its previous state, also after a restart."""
    driver = Driver(processor)

    driver.send(given_numbers, [Given("a", 1, 1.0, 2**20), Given("a", 2, 2.0, 2**60), Given("a", 3, 3.0, 3), Crash()])
    driver.send(given_numbers, [Given("a", 4, 4.0, 5)])

    assert [product.ratio for product in driver.read(products)] == [1.0, 3.0, 4.0]
    assert [letter.offset for letter in driver.dead_letters(processor)] == [1]


def test_an_invalid_state_stops_the_worker_by_default() -> None:
    """Nothing of the checkpoint is saved, and the error names the key."""

    class Stopping(Multiplied):
        on_error = ps.ErrorPolicy.STOP

    driver = Driver(Stopping)

    with pytest.raises(ProcessorFailed, match=r"key 'b'.*64 bits"):
        driver.send(given_numbers, [Given("a", 1, 1.0, 3), Given("b", 1, 1.0, 2**60), Given("b", 2, 2.0, 2**60)])


class Greatest(ps.Aggregator):
    """The greatest square."""

    reads, writes = given_numbers, products
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Max()
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def observe(self, event: Given) -> int:
        return event.n * event.n

    def result(self, key: str, window: ps.windows.Window, value: int) -> Product:
        return Product(key, 0, None, value)


class Added(Greatest):
    """The sum of squares, which is exact at any size."""

    monoid = ps.monoids.Sum()

    def result(self, key: str, window: ps.windows.Window, value: int) -> Product:
        return Product(key, 0, None, str(value))


def test_an_invalid_observation_becomes_a_dead_letter_if_declared() -> None:
    """Other observations count; a monoid that can save the value accepts it."""
    events = [Given("a", 1, 1.0, 3), Given("a", 2, 2.0, 2**60), Given("a", 3, 3.0, 2)]
    greatest, added = Driver(Greatest), Driver(Added)

    greatest.send(given_numbers, events)
    added.send(given_numbers, events)

    assert [product.n for product in greatest.read(products)] == [9]
    assert [letter.offset for letter in greatest.dead_letters(Greatest)] == [1]
    assert [product.n for product in added.read(products)] == [str(9 + 2**120 + 4)]


HOUR = timedelta(hours=1)
STORAGES: dict[str, dict[str, Any]] = {
    "for ever": {},
    "windows": {"window": ps.windows.Tumbling(HOUR), "emit": ps.AtWatermark()},
    "sessions": {"window": ps.windows.Session(HOUR), "emit": ps.AtWatermark(), "late": ps.OnLate.DROP},
    "sliding": {"window": ps.windows.Sliding(HOUR), "emit": ps.AtWatermark(), "late": ps.OnLate.DROP},
    "read, modified, written": {"store": ps.RemoteStore(ps.WriteMode.READ_MODIFY_WRITE)},
    "read, merged, written": {"store": ps.RemoteStore(ps.WriteMode.READ_MERGE_WRITE)},
    "appended": {"store": ps.RemoteStore(ps.WriteMode.APPEND), "writes": ()},
}
"""Declarations by storage an aggregator stores its partials."""
TOO_MUCH = [Given("a", 1, 1.0, 3), Given("b", 2, 2.0, 2**60), Given("c", 3, 3.0, 2)]


@pytest.mark.parametrize("storage", STORAGES)
def test_an_invalid_partial_stops_the_worker_by_default(storage: str) -> None:
    """Nothing of the checkpoint is saved, and the error names the processor, the key and the window."""
    processor = type("Greatest", (Greatest,), {**STORAGES[storage], "on_error": ps.ErrorPolicy.STOP})
    driver = Driver(processor)

    with pytest.raises(
        ProcessorFailed,
        match=r"Greatest cannot save .* key 'b'.*Max\(\).*Nothing of this checkpoint was saved.*64 bits",
    ):
        driver.send(given_numbers, TOO_MUCH)
    assert driver.bus.committed("greatest", given_numbers.name) == {}


@pytest.mark.parametrize("storage", STORAGES)
def test_an_invalid_observation_becomes_a_dead_letter_in_any_storage(storage: str) -> None:
    """Other observations count, and the worker continues."""
    processor = type("Greatest", (Greatest,), STORAGES[storage])
    driver = Driver(processor)

    driver.send(given_numbers, TOO_MUCH)

    assert [letter.offset for letter in driver.dead_letters(processor)] == [1]


@pytest.mark.parametrize("keys", ["ab", "ba"])
def test_a_state_of_another_type_is_not_saved_beside_valid_states(keys: str) -> None:
    """Each state of a checkpoint is checked, in any order; the error names the key."""

    class Stopping(Mistyped):
        on_error = ps.ErrorPolicy.STOP

    driver = Driver(Stopping)

    with pytest.raises(ProcessorFailed, match=r"of another type than it declares: .*key 'b'"):
        driver.send(given_numbers, [Given(key, 1, 1.0, 2**50 if key == "b" else 1) for key in keys])
    assert driver.bus.committed("stopping", given_numbers.name) == {}


@pytest.mark.parametrize("processor", [Forgiving, Remembering, Greatest])
def test_a_message_with_a_number_beyond_64_bits_becomes_a_dead_letter(processor: type[ps.Processor]) -> None:
    """It does not decode; later messages are processed."""
    driver = Driver(processor)

    driver.send(given_numbers, [b'{"key":"a","at":1,"a":1,"n":%d}' % 2**70, Given("a", 2, 2.0, 2)])

    assert len(driver.read(products)) == 1
    assert "64 bits" in driver.dead_letters(processor)[0].reason


def test_an_event_that_sets_a_timer_beyond_the_range_becomes_a_dead_letter() -> None:
    """It fails like any event whose processor raises."""

    class Setting(Multiplied):
        def process(self, event: Given, state: int | None, context: ps.Context) -> tuple[int, list[Product]]:
            context.timer(event.n * 2**10)
            return (state or 0) + 1, [Product(event.key, event.at, event.a)]

        def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[int, list[Product]]:
            return state, []

    driver = Driver(Setting)

    driver.send(given_numbers, [Given("a", 1, 1.0, 1), Given("a", 2, 2.0, 2**60), Given("a", 3, 3.0, 1)])

    assert [letter.offset for letter in driver.dead_letters(Setting)] == [1]
    assert math.isclose(driver.read(products)[-1].ratio or 0, 3.0)


FAR = [2**62 + 1, -(2**62) - 1, -(2**63), -(2**63) - 1, 2**63, 10**30, -(10**30)]
BEYOND_THE_CALENDAR = [1_700_000_000_000_000_000, 253_402_300_800_000, -62_135_596_800_001, *FAR]


class Hourly(ps.Aggregator):
    """Counts events per hour."""

    reads, writes, monoid = given_numbers, products, ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Given) -> int:
        return 1

    def result(self, key: str, window: ps.windows.Window, value: int) -> Product:
        return Product(key, window.start, None, value)


class Closing(Hourly):
    """The same, at the end of the hour."""

    emit, late, watermark = ps.AtWatermark(), ps.OnLate.DROP, ps.watermarks.BoundedOutOfOrderness(timedelta(0))


class Sessions(Closing):
    """Counts events per session."""

    window = ps.windows.Session(timedelta(hours=1))  # type: ignore[assignment]  # another kind of window


class Slid(Closing):
    """Counts the events of the last hour."""

    window = ps.windows.Sliding(timedelta(hours=1))  # type: ignore[assignment]  # another kind of window


class Ordered(Remembering):
    """The same, in order of event time."""

    on_error, ordered, watermark = ps.ErrorPolicy.STOP, True, ps.watermarks.BoundedOutOfOrderness(timedelta(0))


class Guessing(Remembering):
    """The same, with the watermark of observed lateness."""

    on_error = ps.ErrorPolicy.STOP


class Unlimited(Ordered):
    """The same, with event times of any distance to the arrival."""

    max_future = None


KINDS = [Multiplying, Remembering, Guessing, Ordered, Hourly, Closing, Sessions, Slid]


@pytest.mark.parametrize("time", BEYOND_THE_CALENDAR)
@pytest.mark.parametrize("processor", KINDS)
def test_an_event_time_outside_the_calendar_becomes_a_dead_letter(processor: type[ps.Processor], time: int) -> None:
    """Other events are processed, also after a restart, and the watermark does not move."""
    driver = Driver(processor)
    usual = [Given("a", 1_700_000_000_000 + at, 1.0) for at in range(20)]

    driver.send(given_numbers, usual)
    driver.send(given_numbers, [b'{"key":"a","at":%d,"a":1}' % time, Given("a", 1_700_000_000_999, 2.0), Crash()])
    driver.send(given_numbers, [Given("a", 1_700_000_001_000, 3.0)])

    assert [letter.offset for letter in driver.dead_letters(processor)] == [20]
    assert str(time) in driver.dead_letters(processor)[0].reason
    assert driver.metrics(processor).late == 0


@pytest.mark.parametrize("time", [2**62, -(2**62)])
@pytest.mark.parametrize("processor", [Unlimited])
def test_without_a_limit_all_62_bit_event_times_are_accepted(processor: type[ps.Processor], time: int) -> None:
    """Larger times could not be saved."""
    driver = Driver(processor)

    driver.send(
        given_numbers, [b'{"key":"a","at":%d,"a":1}' % time, Crash(), b'{"key":"a","at":%d,"a":1}' % (time * 2 + 1)]
    )

    assert driver.metrics(processor).dead_letters == 1
    assert [letter.offset for letter in driver.dead_letters(processor)] == [1]


def test_an_event_time_outside_the_calendar_can_stop_the_worker() -> None:
    """`on_future_event` applies to it, too."""

    class Strict(Remembering):
        on_future_event = ps.ErrorPolicy.STOP

    driver = Driver(Strict)
    driver.send(given_numbers, [Given("a", 1_700_000_000_000 + at, 1.0) for at in range(20)])

    with pytest.raises(EventRejected, match=r"offset 20: .*years 1 to 9999.*on_future_event = ErrorPolicy.DEAD_LETTER"):
        driver.send(given_numbers, [Given("a", 1_700_000_000_000_000_000, 1.0)])


@pytest.mark.parametrize("time", [0, -1, 1_385_000_000_123, *BEYOND_THE_CALENDAR])
def test_any_time_can_be_formatted(time: int) -> None:
    """An absurd time must not fail the program that reports it."""
    assert format_time(time)
    assert format_duration(time)
    assert nearest_datetime(time).year >= 1


class Doubled(Given, frozen=True):
    """The same with a list."""

    many: list[float] = []  # noqa: RUF012 - of a record


doubled = ps.Category("doubled", Doubled, key="key", event_time="at", buckets=1)


class Doubling(ps.Stateless):
    """Writes to a category that has columns."""

    reads, writes = given_numbers, doubled

    def process(self, event: Given) -> Iterable[Doubled]:
        yield Doubled(event.key, event.at, event.a * 2)


@pytest.mark.parametrize("record", [Doubled("a", 1, math.nan), Doubled("a", 1, 1.0, many=[1.0, math.inf])])
def test_a_backfill_refuses_the_same_values_as_the_stream(record: Doubled) -> None:
    """It refuses them as records and as columns, so the warehouse contains no NaN that a stream would refuse."""
    rows, good = OutputRows(Doubling), Doubled("a", 0, 0.5, many=[0.25])
    columns = RecordColumns(Doubled)
    given = pa.RecordBatch.from_arrays(columns.arrays([good, record]), schema=columns.schema)

    assert [batch.num_rows for batch in rows.batches([good, good])] == [2]
    assert rows.of_columns(given.slice(0, 1)).num_rows == 1
    with pytest.raises(ProcessorFailed, match="finite"):
        list(rows.batches([good, record]))
    with pytest.raises(ProcessorFailed, match="finite"):
        rows.of_columns(given)
