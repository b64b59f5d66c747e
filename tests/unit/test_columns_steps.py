"""Processors with columns, and the files that their tasks read: the same results as event by event."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.step_counts import counters

import penstock as ps
from penstock.backfill.archive import archive_schema
from penstock.backfill.sources import PlannedFiles
from penstock.backfill.sources.files import Files, task_numbers
from penstock.backfill.spark import ShippedApp, Transform
from penstock.backfill.spark.failures import WorkerFailure
from penstock.backfill.steps import BatchStep, file_mapper_step, file_partials_step, merge_step
from penstock.backfill.warehouse import (
    DAY_MS,
    ArchivedFile,
    Days,
    Listing,
    RecordColumns,
    content_of,
    day_of,
    open_warehouse,
)
from penstock.processors import DeclarationError
from penstock.processors.apps import AppName
from penstock.processors.declare import plan_of
from penstock.processors.monoids import (
    Count,
    MapOf,
    Mean,
    Sum,
    TupleOf,
)

FIRST_DAY_MS = 15_700 * DAY_MS
DAYS = Days.of(day_of(FIRST_DAY_MS), day_of(FIRST_DAY_MS + DAY_MS))


class Sale(ps.Record, frozen=True):
    """A sale; its quantity is a field that was added later."""

    shop: int
    at: ps.EventTime
    item: str
    price: float | None
    pieces: int = 1


class Dear(ps.Record, frozen=True):
    """A sale of some price."""

    shop: int
    at: ps.EventTime
    total: float


class Sum3(ps.Record, frozen=True):
    """A shop's sales in a window."""

    shop: str
    at: ps.EventTime
    n: int
    mean: float | None
    items: dict[str, int]


def by_item(sale: Sale) -> str:
    """Key by the item."""
    return sale.item


sales = ps.Category("sales", Sale, key="shop", event_time="at", buckets=2)
by_items = ps.Category("by_items", Sale, key=by_item, event_time="at", buckets=2)
dear = ps.Category("dear", Dear, key="shop", event_time="at", buckets=2)
dear_too = ps.Category("dear_too", Sum3, key="shop", event_time="at", buckets=2)
sums = ps.Category("sums", Sum3, key="shop", event_time="at", buckets=2)


class OneByOne(ps.Stateless):
    """Keeps sales above a price of 50."""

    reads, writes = sales, dear

    def process(self, event: Sale) -> Iterable[Dear]:
        """Return the sale, if it was expensive."""
        if event.price is not None and event.price > 50:
            yield Dear(event.shop, event.at, event.price * event.pieces)


class AtOnce(OneByOne):
    """The same, in columns."""

    columns: ClassVar[tuple[str, ...]] = ("shop", "at", "price", "pieces")

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch | pa.Table | None:
        """Return the expensive sales."""
        kept = events.filter(pc.greater(events.column("price"), pa.scalar(50.0)))
        totals = pc.multiply(kept.column("price"), kept.column("pieces").cast(pa.float64()))
        return kept.select(["shop", "at"]).append_column("total", totals)


class Partly(AtOnce):
    """The same, in columns for some batches."""

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch | pa.Table | None:
        """Return the expensive sales; None for some batches."""
        return None if events.column("at")[0].as_py() % 2 else super().process_columns(events)


class Otherwise(AtOnce):
    """Returns different outputs in columns."""

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        """Return all of them."""
        return events.select(["shop", "at"]).append_column("total", pa.array([1.0] * events.num_rows))


class Raising(AtOnce):
    """Reads a column that it did not declare."""

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        """Raise."""
        return pa.table({"item": events.column("item")})


class Unfitting(AtOnce):
    """Returns text for a number."""

    def process_columns(self, events: pa.RecordBatch) -> pa.RecordBatch | pa.Table:
        """Return a column of the wrong type."""
        return events.select(["shop", "at"]).append_column("total", pa.array(["much"] * events.num_rows))


class SumOneByOne(ps.Aggregator):
    """Sums sales in overlapping windows of some hours."""

    reads, writes = sales, sums
    monoid = TupleOf(Count(), Mean(), MapOf[str, float](Sum()))
    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Hopping(timedelta(hours=9), timedelta(hours=4))

    def observe(self, event: Sale) -> tuple[str, float, dict[str, int]] | None:
        """Return the price of the sale; nothing without a price."""
        return None if event.price is None else (event.item, event.price, {event.item: event.pieces})

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, float | None, dict[str, int]]) -> Sum3:
        """Return the window."""
        n, mean, items = value
        return Sum3(key, window.start, n, mean, items)


class SumAtOnce(SumOneByOne):
    """The same, in columns."""

    columns: ClassVar[tuple[str, ...]] = ("item", "price", "pieces")

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any] | None:
        """Return the prices of the sales."""
        item, price, pieces = (events.column(name) for name in SumAtOnce.columns)
        return pa.StructArray.from_arrays(
            [item, price, one_each(item, pieces)], ["n", "mean", "items"], mask=price.is_null()
        )


class SumPartly(SumAtOnce):
    """The same, in columns for some batches."""

    columns: ClassVar[tuple[str, ...]] = ("item", "price", "pieces", "at")

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any] | None:
        """Return the prices of the sales; None for some batches."""
        first, observed = events.column("at")[0].as_py(), super().observe_columns(events.select(SumAtOnce.columns))
        return None if first % 2 else observed


class DaysOneByOne(SumOneByOne):
    """By days."""

    window = ps.windows.Tumbling(timedelta(days=1))


class DaysAtOnce(SumAtOnce):
    """By days, in columns."""

    window = ps.windows.Tumbling(timedelta(days=1))


class Cautious(Sum):
    """Refuses high prices."""

    def lift(self, observation: float) -> float:
        """Return the price."""
        if observation > 90:
            raise ValueError("too dear")
        return super().lift(observation)

    def fold(self, accumulator: float, observation: float) -> float:
        """Add the price."""
        return accumulator + self.lift(observation)


class CautiousOneByOne(ps.Aggregator):
    """Sums low prices in overlapping windows."""

    reads, writes = sales, sums
    monoid = Cautious()
    window: ClassVar[ps.windows.WindowAssigner] = ps.windows.Hopping(timedelta(hours=9), timedelta(hours=4))
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def observe(self, event: Sale) -> float | None:
        """Return the price of the sale."""
        return event.price

    def result(self, key: str, window: ps.windows.Window, value: float) -> Sum3:
        """Return the window."""
        return Sum3(key, window.start, 0, value, {})


class CautiousAtOnce(CautiousOneByOne):
    """The same, in columns."""

    columns: ClassVar[tuple[str, ...]] = ("price",)

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any] | None:
        """Return the prices of the sales."""
        return events.column("price")


class CautiousStopping(CautiousAtOnce):
    """Stops at a high price."""

    on_error = ps.ErrorPolicy.STOP


class CautiousShortened(CautiousAtOnce):
    """Forgets the last events of large batches."""

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        """Return at most 250 prices."""
        return events.column("price")[:250]


class SumOtherwise(SumAtOnce):
    """Ignores that some sales have no price."""

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        """Return zero for them."""
        item, price, pieces = (events.column(name) for name in self.columns)
        known = pa.array(price.to_numpy(zero_copy_only=False), pa.float64())
        return pa.StructArray.from_arrays([item, known, one_each(item, pieces)], ["n", "mean", "items"])


def one_each(keys: pa.Array[Any], items: pa.Array[Any]) -> pa.Array[Any]:
    """Return a map with one entry for each event."""
    offsets: pa.Array[Any] = pa.array(range(len(keys) + 1), pa.int32())
    maps: pa.Array[Any] = pa.MapArray.from_arrays(offsets, keys, items)  # type: ignore[call-overload]  # the stubs ask for narrower arrays
    return maps


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Sales of three days, in files of both buckets; the older ones without the field that came later."""
    dice = random.Random(1)
    warehouse = open_warehouse(tmp_path)
    columns = RecordColumns(Sale)
    for day, bucket, segment in [(d, b, s) for d in range(3) for b in range(2) for s in range(2)]:
        events = [
            Sale(
                dice.randrange(5),
                FIRST_DAY_MS + day * DAY_MS + dice.randrange(DAY_MS),
                dice.choice("abc"),
                dice.choice([None, dice.uniform(1, 100)]),
                dice.randrange(1, 4) if day else 1,
            )
            for _ in range(300)
        ]
        times = [event.at for event in events]
        marks: list[Sequence[Any]] = [
            [bucket] * 300,
            range(segment * 300, segment * 300 + 300),
            sales.keys_of(events),
            times,
            times,
        ]
        names = archive_schema(columns)
        arrays = [*columns.arrays(events), *(pa.array(mark) for mark in marks)]
        table = pa.table(dict(zip(names.names, arrays, strict=True))).cast(names)
        kept = table if day else table.drop_columns(["pieces"])
        warehouse.write(ArchivedFile("sales", day_of(times[0]), bucket, segment * 300), content_of(kept))
    return Files(warehouse, archive_schema(columns), by_event_time=True)


def step_of(processor: type[ps.Processor]) -> BatchStep:
    """Return a processor's step over the sales of this file."""
    return BatchStep(ShippedApp(AppName(Path(__file__))), processor.__name__, "sales", counters())


def tasks_of(planned: PlannedFiles) -> list[pa.RecordBatch]:
    """Return the rows that Spark gives each task."""
    return [pa.RecordBatch.from_pydict({"id": [task]}) for task in range(len(planned.tasks))]


def outputs(transform: Transform, batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the rows of a step."""
    return [row for batch in transform(iter(batches)) for row in batch.to_pylist()]


def mapped(processor: type[ps.Processor], files: Files) -> tuple[list[dict[str, Any]], tuple[int, ...]]:
    """Return what a stateless processor gives of the first two days, and what was counted."""
    step = step_of(processor)
    planned = files.planned(Listing.of(files.warehouse, "sales"), DAYS, 3)
    rows = outputs(file_mapper_step(step, planned), tasks_of(planned))
    return rows, (step.counters.events_in.value, step.counters.events_out.value)


def merged(
    processor: type[ps.Processor], files: Files, of_step: Callable[[type[ps.Processor]], BatchStep] = step_of
) -> list[dict[str, Any]]:
    """Return what an aggregator gives of the first two days."""
    step = of_step(processor)
    planned = files.planned(Listing.of(files.warehouse, "sales"), DAYS, 3)
    partials = [part for task in tasks_of(planned) for part in file_partials_step(step, planned)(iter([task]))]
    ordered = pa.Table.from_batches(partials).sort_by(
        [(name, "ascending") for name in ("key", "start", "bucket", "offset")]
    )
    return outputs(merge_step(step), ordered.to_batches())


def test_a_stateless_processor_has_the_same_outputs_in_columns(files: Files) -> None:
    """Keys, days, defaults and counters are equal, too."""
    one_by_one, at_once = mapped(OneByOne, files), mapped(AtOnce, files)

    assert at_once == one_by_one == mapped(Partly, files)
    assert one_by_one[1][0] == 2400
    assert {day_of(row["_event_time"]) for row in one_by_one[0]} == set(DAYS.names())


@pytest.mark.parametrize(
    ("one_by_one", "at_once"), [(SumOneByOne, SumAtOnce), (SumOneByOne, SumPartly), (DaysOneByOne, DaysAtOnce)]
)
def test_an_aggregator_has_the_same_results_in_columns(
    files: Files, one_by_one: type[ps.Processor], at_once: type[ps.Processor]
) -> None:
    """Events are in one window or in several, and keys may be numeric."""
    expected, found = merged(one_by_one, files), merged(at_once, files)

    assert len(expected) > 8
    assert [plain(row) for row in found] == [plain(row) for row in expected]


def test_missing_observations_fail(files: Files) -> None:
    """A backfill fails also after the first events, which are compared."""
    with pytest.raises(WorkerFailure, match=r"observe_columns returns 250 observations for [\d,]+ events"):
        merged(CautiousShortened, files)


def test_refused_observations_of_columns_are_counted_as_event_by_event(files: Files) -> None:
    """The others of their batch count, in all of their windows."""
    one_by_one, at_once = step_of(CautiousOneByOne), step_of(CautiousAtOnce)
    expected = merged(CautiousOneByOne, files, lambda _: one_by_one)
    found = merged(CautiousAtOnce, files, lambda _: at_once)

    assert [plain(row) for row in found] == [plain(row) for row in expected]
    assert at_once.counters.rejected.value == one_by_one.counters.rejected.value > 50


def test_a_backfill_stops_at_a_refused_observation_of_columns(files: Files) -> None:
    """The error names the event."""
    with pytest.raises(WorkerFailure, match=r"sales/0 at offset \d+: .*too dear.*none of CautiousStopping's output"):
        merged(CautiousStopping, files)


def plain(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return a window's row as it may be compared: the order of a map's entries means nothing, nor does a sum's last digit."""
    record = row["_output_0"]
    return row["_key"], row["_event_time"], record["n"], round(record["mean"], 9), sorted(record["items"])


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (Otherwise, r"Otherwise: process_columns returns .* where process returns .*batch and stream would differ"),
        (Raising, r"Raising\.process_columns raised KeyError: .* from sales/0 at offset 0 to sales/0 at offset 199"),
        (Unfitting, r"The result of Unfitting.process_columns does not fit dear, .*total: double"),
    ],
)
def test_columns_that_differ_from_process_fail(files: Files, processor: type[ps.Processor], message: str) -> None:
    """They fail before any output is published."""
    with pytest.raises(WorkerFailure, match=message):
        mapped(processor, files)


def test_observations_that_differ_fail(files: Files) -> None:
    """The error shows the first difference."""
    with pytest.raises(WorkerFailure, match=r"SumOtherwise: observe_columns returns .* where observe returns None"):
        merged(SumOtherwise, files)


def test_unsupported_column_declarations_are_refused() -> None:
    """Unknown fields, functions as keys, and several outputs are unsupported."""

    class Unknown(AtOnce):
        columns = ("shop", "colour")

    class Functional(SumAtOnce):
        reads = by_items

    class Several(AtOnce):
        writes = (dear, dear_too)  # type: ignore[assignment]  # the return annotation declares one output

    for processor, message in [
        (Unknown, "contains colour"),
        (Functional, "the key of by_items is not one field"),
        (Several, "several"),
    ]:
        with pytest.raises(DeclarationError, match=message):
            plan_of(processor).check()


@given(st.lists(st.integers(1, 100 * 2**20), min_size=1), st.integers(1, 40))
def test_tasks_have_neighbouring_files_up_to_a_limit(sizes: list[int], least: int) -> None:
    """A task with several files stays within the limit."""
    tasks = list(task_numbers(sizes, least))
    held = [sum(size for size, of in zip(sizes, tasks, strict=True) if of == task) for task in range(tasks[-1] + 1)]

    assert tasks == sorted(tasks)
    assert set(tasks) == set(range(tasks[-1] + 1))
    assert all(size <= 32 * 2**20 for task, size in enumerate(held) if tasks.count(task) > 1)
