"""Hybrid results of batch and stream. This file is the app."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from support.batches import write_batch

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.compare import BatchSide, HybridResult, expect_results, hybrid_results, live_from_bus
from penstock.backfill.compare.hybrid_results import HybridSource
from penstock.backfill.warehouse import DAY_MS, Days, folder_of, open_warehouse
from penstock.ops.kernel import Driver
from penstock.ops.serve.commands.query import query
from penstock.processors import AppFileError, DeclarationError
from penstock.processors.apps import AppName

APP = AppName(Path(__file__))
HOUR = 3_600_000
NAMES = ["1970-01-01", "1970-01-02", "1970-01-03", "1970-01-04"]
DAYS = Days.of(NAMES[0], NAMES[-1])


class Tick(ps.Record, frozen=True):
    """A tick of a meter."""

    meter: str
    at: ps.EventTime


class Count(ps.Record, frozen=True):
    """The number of a meter's ticks in a window."""

    meter: str
    start: ps.EventTime
    ticks: int


ticks = ps.Category("ticks", Tick, key="meter", event_time="at", buckets=2)
hours = ps.Category("hours", Count, key="meter", event_time="start", buckets=2)
spans = ps.Category("spans", Count, key="meter", event_time="start", buckets=2)
totals = ps.Category("totals", Count, key="meter", event_time="start", buckets=2)


class Hours(ps.Aggregator):
    """Counts by six hours."""

    reads, writes = ticks, hours
    monoid, window = ps.monoids.Count(), ps.windows.Tumbling(timedelta(hours=6))

    def result(self, key: str, window: ps.windows.Window, value: int) -> Count:
        """Return the count."""
        return Count(key, window.start, value)


class Spans(Hours):
    """Counts by windows that reach into the next day."""

    writes = spans
    window = ps.windows.Tumbling(timedelta(hours=36))


class Totals(ps.Aggregator):
    """Counts in a global window."""

    reads, writes, monoid = ticks, totals, ps.monoids.Count()

    def result(self, key: str, window: ps.windows.Window, value: int) -> Count:
        """Return the count, at the second day."""
        return Count(key, DAY_MS, value)


class Steps(Hours):
    """Writes new counts."""

    writes = ps.Category("steps", Count, key="meter", event_time="start", buckets=2)
    emit = ps.AtCheckpoint(differences=True)


class Pass(ps.Stateless):
    """Drops every event."""

    reads = ticks

    def process(self, event: Tick) -> Iterable[Tick]:
        """Return nothing."""
        return []


EVENTS = [Tick(meter, n * 3 * HOUR) for n in range(32) for meter in "ab"]
STREAMED = [Count(meter, start * 6 * HOUR, 2) for start in range(16) for meter in "ab"]


@pytest.fixture(scope="module")
def driver() -> Driver:
    """A stream that has written each window several times."""
    driver = Driver(Hours)
    for event in EVENTS:
        driver.send(ticks, [event])
    return driver


def root_with(folder: Path, complete: Iterable[str], *, batch: Iterable[Any] = (), category: Any = hours) -> BatchSide:
    """An archive in which some days are complete, and a batch of some records."""
    for day in complete:
        marked = folder / "archive" / folder_of("ticks") / f"ds={day}"
        marked.mkdir(parents=True)
        (marked / "_SUCCESS").touch()
    write_batch(folder / "batch", category, list(batch))
    return BatchSide(open_warehouse(folder / "archive"), open_warehouse(folder / "batch"))


def no_stream(since_ms: int) -> Mapping[HybridSource, Any]:
    raise AssertionError(since_ms)


@settings(max_examples=25, deadline=None)
@given(complete=st.sets(st.sampled_from(NAMES)), stored=st.sets(st.sampled_from(NAMES), min_size=1))
def test_each_key_and_window_appears_once(
    complete: set[str], stored: set[str], driver: Driver, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Complete days come from the batch, others from the stream, in order of time."""
    of_batch = [count for count in STREAMED if NAMES[count.start // DAY_MS] in stored]
    batch = root_with(tmp_path_factory.mktemp("hybrid"), complete, batch=of_batch)
    found = hybrid_results(Hours, batch, live_from_bus(lambda: driver.bus, hours), DAYS)

    assert [result.record for result in found] == STREAMED
    assert {NAMES[result.event_time // DAY_MS] for result in found if result.source == "batch"} == complete & stored


def test_the_stream_is_not_read_if_all_days_are_complete(tmp_path: Path) -> None:
    """The archive's marks or a declaration complete the days. A requested key limits the results."""
    batch = root_with(tmp_path, NAMES[:2], batch=STREAMED)

    assert len(hybrid_results(Hours, batch, no_stream, Days.of(*NAMES[:2]))) == 16
    declared = BatchSide(batch.archive, batch.output, date(1970, 1, 4))
    assert [result.key for result in hybrid_results(Hours, declared, no_stream, DAYS, "a")] == ["a"] * 16


def test_live_results_outside_the_days_are_omitted(driver: Driver, tmp_path: Path) -> None:
    """The bus is read from before the first day to its end."""
    batch = root_with(tmp_path, [], batch=STREAMED[:1])
    found = hybrid_results(Hours, batch, live_from_bus(lambda: driver.bus, hours), Days.of(NAMES[1], NAMES[2]), "b")

    assert found == [HybridResult("b", count.start, count, "live") for count in STREAMED if count.meter == "b"][4:12]


@pytest.mark.parametrize(("complete", "source"), [(NAMES[:1], "live"), (NAMES[:2], "batch")])
def test_a_window_into_the_next_day_needs_that_day(tmp_path: Path, complete: list[str], source: str) -> None:
    """The batch might otherwise have counted half of it."""
    batch = root_with(tmp_path, complete, batch=[Count("a", 0, 12)], category=spans)
    [found] = hybrid_results(Spans, batch, lambda _: {("a", 0): Count("a", 0, 12)}, Days.of(*NAMES[:1] * 2))

    assert found.source == source


def test_a_window_without_an_end_is_never_complete(tmp_path: Path) -> None:
    """Its results come from the stream."""
    batch = root_with(tmp_path, NAMES, batch=[Count("a", DAY_MS, 9)], category=totals)
    [found] = hybrid_results(Totals, batch, lambda _: {("a", DAY_MS): Count("a", DAY_MS, 12)}, DAYS)

    assert found == HybridResult("a", DAY_MS, Count("a", DAY_MS, 12), "live")


def test_a_missing_batch_output_is_refused(tmp_path: Path) -> None:
    """The error names the location."""
    empty = open_warehouse(tmp_path)
    with pytest.raises(BackfillRefused, match=r"has no hours, the output of Hours\. Run the backfill first"):
        hybrid_results(Hours, BatchSide(empty, empty), no_stream, DAYS)


@pytest.mark.parametrize(
    ("processor", "message"),
    [(Pass, "is not an aggregator"), (Steps, "writes differences instead of results")],
)
def test_processors_without_results_are_refused(processor: type[Any], message: str) -> None:
    """The error names the required declaration."""
    with pytest.raises(DeclarationError, match=message):
        expect_results("app.py:P", processor)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": "1970-01-01"}, "Days need --hybrid"),
        ({"hybrid": True, "at": "1970-01-01T10:00", "key": "a"}, "--at and --hybrid exclude each other"),
        ({"hybrid": True, "day": "soon"}, "'soon' is not a day"),
        ({"hybrid": True, "day": "1970-01-01", "batch_until": "soon"}, "'soon' is not a day"),
    ],
)
def test_conflicting_options_are_refused(options: dict[str, Any], message: str) -> None:
    """They are refused before any data is read."""
    with pytest.raises(typer.BadParameter, match=message):
        query(f"{__file__}:Hours", **options)


def test_a_file_with_several_processors_needs_a_name() -> None:
    """The error shows the format."""
    with pytest.raises(AppFileError, match=r"has \d processors. Name one, as APP.py:PROCESSOR"):
        query(__file__, hybrid=True, day="1970-01-01")
