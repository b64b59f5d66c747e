"""What becomes of values that no record, state or category can hold: the event that gave them is refused, and no other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import penstock as ps
from penstock.backfill.steps.outputs import OutputRows
from penstock.backfill.warehouse.columns import Columns
from penstock.ops.testing import Crash, Driver
from penstock.ops.worker.output_writer import OutputRefused
from penstock.processors.errors import ProcessorFailed
from penstock.processors.shard.batches import EventRejected
from penstock.processors.time.timestamp_validation import format_duration, format_time, nearest_datetime


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
    """Multiplies into infinity now and then."""

    reads, writes = given_numbers, products

    def process(self, event: Given) -> Iterable[Product]:
        factor = 1e300 if abs(event.a) > 1e200 else 100
        yield Product(event.key, event.at, event.a * factor)


class Forgiving(Multiplying):
    """The same, setting such events aside."""

    on_error = ps.ErrorPolicy.DEAD_LETTER


class Remembering(ps.Stateful):
    """The same with a state: how many events it has taken."""

    reads, writes, state = given_numbers, products, int
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Given, state: int | None, context: ps.Context) -> tuple[int, list[Product]]:
        factor = 1e300 if abs(event.a) > 1e200 else 100
        return (state or 0) + 1, [Product(event.key, event.at, event.a * factor, (state or 0) + 1)]


def test_an_output_that_is_not_finite_stops_the_worker_with_nothing_of_its_batch_sent() -> None:
    """Wherever in a batch it stands: no null is written in its place, and the error names the field."""
    driver = Driver(Multiplying)

    with pytest.raises(OutputRefused, match=r"Product.*`ratio` is inf"):
        driver.send(given_numbers, EVENTS)
    assert driver.read(products) == []


@pytest.mark.parametrize("processor", [Forgiving, Remembering])
def test_an_event_whose_output_does_not_fit_is_set_aside_where_asked(processor: type[ps.Processor]) -> None:
    """It leaves nothing behind, in the state neither; those around it are processed."""
    driver = Driver(processor)

    driver.send(given_numbers, EVENTS)

    assert [product.ratio for product in driver.read(products)] == KEPT
    assert [letter.offset for letter in driver.dead_letters(processor)] == [3, 5]
    assert all("ratio" in letter.reason for letter in driver.dead_letters(processor))
    if processor is Remembering:
        assert [product.n for product in driver.read(products)] == [1, 2, 3, 4, 5]


class Multiplied(ps.Stateful):
    """Multiplies into a state that outgrows 64 bits."""

    reads, writes, state = given_numbers, products, int
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Given, state: int | None, context: ps.Context) -> tuple[int, list[Product]]:
        return (state or 1) * event.n, [Product(event.key, event.at, event.a)]


class Mistyped(Multiplied):
    """Gives a text where a number is declared, at one event."""

    def process(self, event: Given, state: int | None, context: ps.Context) -> tuple[Any, list[Product]]:
        return ("much" if event.n > 2**40 else (state or 0) + 1), [Product(event.key, event.at, event.a)]


@pytest.mark.parametrize("processor", [Multiplied, Mistyped])
def test_an_event_whose_state_cannot_be_saved_is_set_aside_where_asked(processor: type[ps.Processor]) -> None:
    """The key keeps the state that it had, also after a restart."""
    driver = Driver(processor)

    driver.send(given_numbers, [Given("a", 1, 1.0, 2**20), Given("a", 2, 2.0, 2**60), Given("a", 3, 3.0, 3), Crash()])
    driver.send(given_numbers, [Given("a", 4, 4.0, 5)])

    assert [product.ratio for product in driver.read(products)] == [1.0, 3.0, 4.0]
    assert [letter.offset for letter in driver.dead_letters(processor)] == [1]


def test_a_state_that_cannot_be_saved_stops_the_worker_and_is_named() -> None:
    """By default: nothing of the checkpoint is saved, and the error says which key."""

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


def test_an_observation_that_its_monoid_cannot_save_is_set_aside_where_asked() -> None:
    """Others count; a monoid that can save it takes it."""
    events = [Given("a", 1, 1.0, 3), Given("a", 2, 2.0, 2**60), Given("a", 3, 3.0, 2)]
    greatest, added = Driver(Greatest), Driver(Added)

    greatest.send(given_numbers, events)
    added.send(given_numbers, events)

    assert [product.n for product in greatest.read(products)] == [9]
    assert [letter.offset for letter in greatest.dead_letters(Greatest)] == [1]
    assert [product.n for product in added.read(products)] == [str(9 + 2**120 + 4)]


HOUR = timedelta(hours=1)
KEPT_HOW: dict[str, dict[str, Any]] = {
    "for ever": {},
    "windows": {"window": ps.windows.Tumbling(HOUR), "emit": ps.AtWatermark()},
    "sessions": {"window": ps.windows.Session(HOUR), "emit": ps.AtWatermark(), "late": ps.OnLate.DROP},
    "sliding": {"window": ps.windows.Sliding(HOUR), "emit": ps.AtWatermark(), "late": ps.OnLate.DROP},
    "read, modified, written": {"store": ps.RemoteStore(ps.WriteMode.READ_MODIFY_WRITE)},
    "read, merged, written": {"store": ps.RemoteStore(ps.WriteMode.READ_MERGE_WRITE)},
    "appended": {"store": ps.RemoteStore(ps.WriteMode.APPEND), "writes": ()},
}
"""By how an aggregator keeps its partials."""
TOO_MUCH = [Given("a", 1, 1.0, 3), Given("b", 2, 2.0, 2**60), Given("c", 3, 3.0, 2)]


@pytest.mark.parametrize("how", KEPT_HOW)
def test_a_partial_that_cannot_be_saved_stops_the_worker_and_is_named(how: str) -> None:
    """By default: nothing of the checkpoint is saved, and the error says of which processor, which key and which window."""
    processor = type("Greatest", (Greatest,), {**KEPT_HOW[how], "on_error": ps.ErrorPolicy.STOP})
    driver = Driver(processor)

    with pytest.raises(
        ProcessorFailed,
        match=r"Greatest cannot save .* key 'b'.*Max\(\).*64 bits.*Nothing of this checkpoint was saved",
    ):
        driver.send(given_numbers, TOO_MUCH)
    assert driver.bus.committed("greatest", given_numbers.name) == {}


@pytest.mark.parametrize("how", KEPT_HOW)
def test_an_observation_that_cannot_be_saved_is_set_aside_however_it_is_kept(how: str) -> None:
    """Those around it count, and the worker goes on."""
    processor = type("Greatest", (Greatest,), KEPT_HOW[how])
    driver = Driver(processor)

    driver.send(given_numbers, TOO_MUCH)

    assert [letter.offset for letter in driver.dead_letters(processor)] == [1]


@pytest.mark.parametrize("keys", ["ab", "ba"])
def test_no_state_of_another_type_is_saved_beside_good_ones(keys: str) -> None:
    """Each state of a checkpoint is looked at, in whatever order they changed; the error names the key."""

    class Stopping(Mistyped):
        on_error = ps.ErrorPolicy.STOP

    driver = Driver(Stopping)

    with pytest.raises(ProcessorFailed, match=r"of another type than it declares: .*key 'b'"):
        driver.send(given_numbers, [Given(key, 1, 1.0, 2**50 if key == "b" else 1) for key in keys])
    assert driver.bus.committed("stopping", given_numbers.name) == {}


@pytest.mark.parametrize("processor", [Forgiving, Remembering, Greatest])
def test_a_message_with_a_number_beyond_64_bits_is_set_aside(processor: type[ps.Processor]) -> None:
    """It does not decode, by default; what comes after it is processed."""
    driver = Driver(processor)

    driver.send(given_numbers, [b'{"key":"a","at":1,"a":1,"n":%d}' % 2**70, Given("a", 2, 2.0, 2)])

    assert len(driver.read(products)) == 1
    assert "64 bits" in driver.dead_letters(processor)[0].reason


def test_no_timer_is_set_beyond_what_a_time_can_be() -> None:
    """It is the event's own failure, as whatever its processor raises."""

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
    """How many in an hour."""

    reads, writes, monoid = given_numbers, products, ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Given) -> int:
        return 1

    def result(self, key: str, window: ps.windows.Window, value: int) -> Product:
        return Product(key, window.start, None, value)


class Closing(Hourly):
    """The same, when the hour is over."""

    emit, late, watermark = ps.AtWatermark(), ps.OnLate.DROP, ps.watermarks.BoundedOutOfOrderness(timedelta(0))


class Sessions(Closing):
    """How many follow closely on one another."""

    window = ps.windows.Session(timedelta(hours=1))  # type: ignore[assignment]  # another kind of window


class Slid(Closing):
    """How many in the last hour."""

    window = ps.windows.Sliding(timedelta(hours=1))  # type: ignore[assignment]  # another kind of window


class Ordered(Remembering):
    """In order of event time."""

    on_error, ordered, watermark = ps.ErrorPolicy.STOP, True, ps.watermarks.BoundedOutOfOrderness(timedelta(0))


class Guessing(Remembering):
    """By the watermark of observed lateness."""

    on_error = ps.ErrorPolicy.STOP


class Unlimited(Ordered):
    """With event times that are not to be doubted."""

    max_future = None


KINDS = [Multiplying, Remembering, Guessing, Ordered, Hourly, Closing, Sessions, Slid]


@pytest.mark.parametrize("time", BEYOND_THE_CALENDAR)
@pytest.mark.parametrize("processor", KINDS)
def test_an_event_time_that_no_calendar_has_is_set_aside(processor: type[ps.Processor], time: int) -> None:
    """Whatever the kind: the events before and after it are processed, also after a restart, and no watermark is dragged."""
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
def test_without_a_limit_all_times_of_62_bits_are_taken(processor: type[ps.Processor], time: int) -> None:
    """Whoever does not want event times doubted may have any; beyond that, none could be saved."""
    driver = Driver(processor)

    driver.send(
        given_numbers, [b'{"key":"a","at":%d,"a":1}' % time, Crash(), b'{"key":"a","at":%d,"a":1}' % (time * 2 + 1)]
    )

    assert driver.metrics(processor).dead_letters == 1
    assert [letter.offset for letter in driver.dead_letters(processor)] == [1]


def test_an_event_time_that_no_calendar_has_may_stop_the_worker() -> None:
    """As one that lies ahead may: `on_future_event` says so for both."""

    class Strict(Remembering):
        on_future_event = ps.ErrorPolicy.STOP

    driver = Driver(Strict)
    driver.send(given_numbers, [Given("a", 1_700_000_000_000 + at, 1.0) for at in range(20)])

    with pytest.raises(EventRejected, match=r"offset 20: .*years 1 to 9999.*on_future_event = ErrorPolicy.DEAD_LETTER"):
        driver.send(given_numbers, [Given("a", 1_700_000_000_000_000_000, 1.0)])


@pytest.mark.parametrize("time", [0, -1, 1_385_000_000_123, *BEYOND_THE_CALENDAR])
def test_any_time_can_be_shown(time: int) -> None:
    """Also one that nobody can have meant: what a program says of it must not end it."""
    assert format_time(time)
    assert format_duration(time)
    assert nearest_datetime(time).year >= 1


class Doubled(Given, frozen=True):
    """The same, with a list."""

    many: list[float] = []  # noqa: RUF012 - of a record


doubled = ps.Category("doubled", Doubled, key="key", event_time="at", buckets=1)


class Doubling(ps.Stateless):
    """Writes to a category that has columns."""

    reads, writes = given_numbers, doubled

    def process(self, event: Given) -> Iterable[Doubled]:
        yield Doubled(event.key, event.at, event.a * 2)


@pytest.mark.parametrize("record", [Doubled("a", 1, math.nan), Doubled("a", 1, 1.0, many=[1.0, math.inf])])
def test_a_backfill_refuses_what_the_stream_refuses(record: Doubled) -> None:
    """One by one and as columns: no NaN lies in the warehouse that no stream would have."""
    rows, good = OutputRows(Doubling), Doubled("a", 0, 0.5, many=[0.25])
    columns = Columns(Doubled)
    given = pa.RecordBatch.from_arrays(columns.arrays([good, record]), schema=columns.schema)

    assert [batch.num_rows for batch in rows.batches([good, good])] == [2]
    assert rows.of_columns(given.slice(0, 1)).num_rows == 1
    with pytest.raises(ProcessorFailed, match="finite"):
        list(rows.batches([good, record]))
    with pytest.raises(ProcessorFailed, match="finite"):
        rows.of_columns(given)
