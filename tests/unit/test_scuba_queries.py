"""Scuba's answers, compared with Polars on the raw events; estimates of samples; and what queries cannot do."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import duckdb
import msgspec
import numpy as np
import polars as pl
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from support.scuba_site import SAVING, START_MS, Scuba, hits, new_bus, random_hits, scuba_on, send

import penstock as ps
from penstock.ops.http import Access
from penstock.ops.serve.commands.explore import parse_aggregate, parse_filter
from penstock.ops.serve.commands.server_options import SCUBA
from penstock.ops.serve.results.parameters import BadQuery
from penstock.ops.serve.rows.answers import Exploration, SampledEstimate, SqlRows, Tables
from penstock.ops.serve.rows.explorer import Busy, QueryLimits
from penstock.ops.serve.rows.flat_columns import FlatColumns
from penstock.ops.serve.rows.queries import Aggregation, ExploreQuery, Filter, HistogramQuery, SampleQuery, SqlQuery
from penstock.ops.serve.rows.safe_sql import ALLOWED_FUNCTIONS, checked_select
from penstock.ops.serve.rows.site import create_site
from penstock.ops.serve.rows.store import SavedPositions
from penstock.ops.shell import SteeredClock
from penstock.transport import CategorySpec, Outgoing

RECORDS = random_hits(4_000, seed=20)
RAW = pl.DataFrame(
    {
        "page": [hit.page for hit in RECORDS],
        "at": [hit.at for hit in RECORDS],
        "ms": [hit.ms for hit in RECORDS],
        "g0": [hit.g0 for hit in RECORDS],
        "device.os": [hit.device and hit.device.os for hit in RECORDS],
        "device.memory": [hit.device and hit.device.memory for hit in RECORDS],
    }
)
TABLE = hits.name
TOKEN = "a-token-of-the-tests"  # noqa: S105 - of no server


@pytest.fixture(scope="module")
def scuba() -> Iterator[Scuba]:
    """All events."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    send(bus, RECORDS)
    with scuba_on(bus, clock) as opened:
        opened.read()
        yield opened


def polars_value(aggregate: Aggregation) -> pl.Expr:
    """Return the same aggregate for Polars."""
    if aggregate.column is None:
        return pl.len()
    condition = aggregate.condition()
    if condition is not None:
        return polars_condition(condition).mean()
    values = pl.col(aggregate.column)
    by_name = {
        "count": values.count(),
        "sum": pl.when(values.count() > 0).then(values.sum()),
        "avg": values.mean(),
        "min": values.min(),
        "max": values.max(),
        "distinct": values.drop_nulls().n_unique(),
        "p50": values.cast(pl.Float64).quantile(0.5, "linear"),
        "p95": values.cast(pl.Float64).quantile(0.95, "linear"),
        "p99": values.cast(pl.Float64).quantile(0.99, "linear"),
    }
    return by_name[aggregate.function]


def polars_condition(condition: Filter) -> pl.Expr:
    """Return the same condition for Polars."""
    column, value = pl.col(condition.column), condition.value
    if condition.op in {"is null", "is not null"}:
        return column.is_null() if condition.op == "is null" else column.is_not_null()
    if condition.op in {"in", "not in"}:
        found = column.is_in(value if isinstance(value, list) else [value])
        return found if condition.op == "in" else ~found
    if condition.op == "contains":
        return column.str.contains(str(value), literal=True)
    if condition.op == "starts with":
        return column.str.starts_with(str(value))
    by_name = {
        "=": column == value,
        "!=": column != value,
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
    }
    return by_name[condition.op]


numbers = st.sampled_from(["ms", "g0", "device.memory", "at"])
shares = st.sampled_from(
    [
        Filter("ms", ">=", 20),
        Filter("g0", "=", 3),
        Filter("device.memory", "<", 4),
        Filter("device.os", "in", ["ios", "x"]),
        Filter("device.os", "is null"),
        Filter("page", "contains", "1"),
    ]
).map(lambda each: Aggregation("share", each.column, each.op, each.value))
aggregates = (
    st.builds(Aggregation, st.sampled_from(["sum", "avg", "p50", "p95", "p99"]), numbers)
    | st.builds(Aggregation, st.sampled_from(["count", "min", "max", "distinct"]), st.sampled_from(RAW.columns))
    | st.just(Aggregation())
    | shares
)
filters = (
    st.builds(
        Filter,
        st.just("page"),
        st.sampled_from(["=", "!=", "<", ">=", "contains", "starts with"]),
        st.sampled_from(["/p1", "/p", "2", "'"]),
    )
    | st.builds(Filter, st.just("ms"), st.sampled_from(["<", "<=", ">", ">="]), st.floats(1, 100))
    | st.builds(Filter, st.just("g0"), st.sampled_from(["=", "!=", "<", ">"]), st.integers(0, 5))
    | st.builds(
        Filter,
        st.just("device.os"),
        st.sampled_from(["in", "not in"]),
        st.sampled_from([["ios"], ["ios", "android"], ["x"]]),
    )
    | st.builds(Filter, st.sampled_from(["device.os", "device.memory"]), st.sampled_from(["is null", "is not null"]))
)
groups = st.lists(st.sampled_from(["page", "g0", "device.os", "device.memory"]), max_size=2, unique=True)


def equal(found: Any, expected: Any) -> bool:
    """Compare values; sums of floats may differ in their order."""
    if isinstance(found, float) and isinstance(expected, (int, float)):
        return math.isclose(found, expected, rel_tol=1e-9)
    return bool(found == expected)


@settings(max_examples=60, deadline=None)
@given(
    chosen=st.lists(aggregates, min_size=1, max_size=3),
    group_by=groups,
    conditions=st.lists(filters, max_size=2),
    begin=st.none() | st.integers(0, 600_000),
    every_s=st.none() | st.sampled_from([30, 60, 300]),
    series=st.integers(1, 10),
)
def test_answers_are_those_of_polars_on_the_raw_events(
    scuba: Scuba,
    chosen: list[Aggregation],
    group_by: list[str],
    conditions: list[Filter],
    begin: int | None,
    every_s: int | None,
    series: int,
) -> None:
    """Queries have filters, a time range, groups, the largest of them, all aggregates, and their time series."""
    query = ExploreQuery(
        table=TABLE,
        aggregates=chosen,
        group_by=group_by,
        filters=conditions,
        begin=None if begin is None else START_MS + begin,
        every=None if every_s is None else f"{every_s}s",
        series=series,
    )
    answer = scuba.explorer.explore(query)
    raw = RAW if begin is None else RAW.filter(pl.col("at") >= START_MS + begin)
    for condition in conditions:
        raw = raw.filter(polars_condition(condition))
    values = [polars_value(each).alias(f"value{at}") for at, each in enumerate(chosen)]
    expected = (raw.group_by(group_by).agg(values) if group_by else raw.select(values)) if len(raw) else raw.clear()
    by_group = {row[: len(group_by)]: row[len(group_by) :] for row in expected.iter_rows()}

    assert answer.groups == len(by_group)
    assert answer.matched == len(raw)
    assert len(answer.rows) == min(series, len(by_group))
    for row in answer.rows:
        assert all(map(equal, [each.value for each in row.values], by_group[tuple(row.group)]))
        assert {each.margin for each in row.values} == {0}
    firsts = sorted((row[0] for row in by_group.values() if row[0] is not None), reverse=True)
    shown = [row.values[0].value for row in answer.rows if row.values[0].value is not None]
    assert all(map(equal, shown, firsts))

    if every_s is not None and len(raw):
        every_ms = every_s * 1000
        starts = raw.with_columns((pl.col("at") // every_ms * every_ms).alias("start"))
        sliced = starts.group_by("start", *group_by).agg(values)
        points = {row[: len(group_by) + 1]: row[len(group_by) + 1 :] for row in sliced.iter_rows()}
        kept = {tuple(row.group) for row in answer.rows}
        found = {
            (point.start_ms, *answer.rows[point.series].group): [each.value for each in point.values]
            for point in answer.points
        }
        assert found.keys() == {place for place in points if place[1:] in kept}
        assert all(all(map(equal, values_of, points[place])) for place, values_of in found.items())
        assert [point.start_ms for point in answer.points] == sorted(point.start_ms for point in answer.points)


@settings(max_examples=25, deadline=None)
@given(
    aggregate=aggregates,
    group_by=groups,
    conditions=st.lists(filters, max_size=1),
    begin=st.integers(200_000, 500_000),
    minutes=st.sampled_from([1, 3, 5]),
)
def test_a_comparison_has_the_same_groups_at_the_earlier_time(
    scuba: Scuba, aggregate: Aggregation, group_by: list[str], conditions: list[Filter], begin: int, minutes: int
) -> None:
    """Aggregates and time series are moved to the later time. A group without earlier events has none of them."""
    shift_ms, end = minutes * 60_000, begin + 100_000
    query = ExploreQuery(
        table=TABLE,
        aggregates=[aggregate],
        group_by=group_by,
        filters=conditions,
        begin=START_MS + begin,
        end=START_MS + end,
        every="30s",
        compare=f"{minutes}m",
    )
    answer = scuba.explorer.explore(query)
    offset = pl.col("at") - START_MS + shift_ms
    raw = RAW.filter((offset >= begin) & (offset < end))
    for condition in conditions:
        raw = raw.filter(polars_condition(condition))
    value = [polars_value(aggregate).alias("value")]
    earlier = raw.group_by(group_by).agg(value) if group_by else raw.select(value)
    expected = {row[: len(group_by)]: row[len(group_by)] for row in earlier.iter_rows()}
    sliced = raw.with_columns(((pl.col("at") + shift_ms) // 30_000 * 30_000).alias("start"))
    points = {
        row[: len(group_by) + 1]: row[-1]
        for row in (sliced.group_by("start", *group_by).agg(value).iter_rows() if len(raw) else ())
    }
    kept = {tuple(row.group) for row in answer.rows}
    found = {(each.start_ms, *answer.rows[each.series].group): each.values[0].value for each in answer.compared_points}

    assert len(answer.compared) == len(answer.rows)
    for row, before in zip(answer.rows, answer.compared, strict=True):
        known = expected.get(tuple(row.group))
        assert before is None if tuple(row.group) not in expected else before and equal(before[0].value, known)
    assert found.keys() == {place for place in points if place[1:] in kept}
    assert all(equal(each, points[place]) for place, each in found.items())


def test_a_comparison_needs_a_time_range_and_says_what_is_missing(scuba: Scuba) -> None:
    """The rows of the earlier time may have been dropped."""
    with pytest.raises(BadQuery, match="compare needs a time range"):
        scuba.explorer.explore(ExploreQuery(table=TABLE, compare="1d"))
    answer = scuba.explorer.explore(
        ExploreQuery(table=TABLE, begin=START_MS, end=START_MS + 600_000, compare="1d", series=1)
    )

    assert (answer.compared, answer.is_compared_partly) == ([[SampledEstimate(0, 0)]], True)


@pytest.mark.parametrize(("column", "bins"), [("ms", 30), ("ms", 1), ("g0", 5), ("device.memory", 7)])
def test_a_histogram_counts_each_value_once(scuba: Scuba, column: str, bins: int) -> None:
    """The value counts in the interval that contains it, and the largest in the last one. Missing values are not counted."""
    found = scuba.explorer.histogram(HistogramQuery(table=TABLE, column=column, bins=bins))
    values = RAW[column].drop_nulls().to_list()

    assert (found.bins[0].low, found.bins[-1].high) == (min(values), max(values))
    assert all(one.high == other.low for one, other in pairwise(found.bins))
    assert sum(each.events.value for each in found.bins) == len(values)
    for each in found.bins[:-1]:
        inside = sum(each.low <= value < each.high for value in values)
        assert abs(each.events.value - inside) <= 2  # a value at an edge may be on either side


def test_a_histogram_of_one_value_and_of_none(scuba: Scuba) -> None:
    """One value has one interval, and an empty table has none. A text has no histogram."""
    one = HistogramQuery(table=TABLE, column="g0", filters=[Filter("g0", "=", 3)])
    none = HistogramQuery(table=TABLE, column="g0", filters=[Filter("g0", "=", 99)])

    assert [each.events.value for each in scuba.explorer.histogram(one).bins] == [sum(hit.g0 == 3 for hit in RECORDS)]
    assert scuba.explorer.histogram(none).bins == []
    with pytest.raises(BadQuery, match="needs a column with numbers"):
        scuba.explorer.histogram(HistogramQuery(table=TABLE, column="page"))


class Flight(ps.Record, frozen=True):
    """A flight that may be late."""

    carrier: str
    at: ps.EventTime
    late: bool | None


flights = ps.Category("flights", Flight, key="carrier", event_time="at", buckets=1)


@pytest.mark.parametrize("rate", [1.0, 0.999])
def test_the_average_of_a_truth_value_is_its_share(rate: float) -> None:
    """The sum is the number of true values, also as an estimate. A quantile is refused."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    bus.catalog.create(CategorySpec.of(flights))
    for late in (True, False, False, False, None):
        bus.append(flights.name, Outgoing(b"UA", msgspec.json.encode(Flight("UA", START_MS, late)), 0))
    with scuba_on(bus, clock, rate=rate, categories=(flights,)) as opened:
        opened.read()
        wanted = [Aggregation("avg", "late"), Aggregation("sum", "late"), Aggregation("share", "late", "=", "true")]
        [row] = opened.explorer.explore(ExploreQuery(table=flights.name, aggregates=wanted)).rows

        assert [each.value for each in row.values] == pytest.approx([0.25, 1, 0.25], rel=0.01)
        assert row.values[0].margin == row.values[2].margin
        with pytest.raises(BadQuery, match="needs a column with numbers"):
            opened.explorer.explore(ExploreQuery(table=flights.name, aggregates=[Aggregation("p95", "late")]))


class Booking(ps.Record, frozen=True):
    """A record with dates, times and decimals."""

    flight: str
    at: ps.EventTime
    day: date
    boarding: datetime
    price: Decimal


bookings = ps.Category("shop.bookings", Booking, key="flight", event_time="at", buckets=1)


@pytest.fixture(scope="module")
def booked() -> Iterator[Scuba]:
    """Two bookings."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    bus.catalog.create(CategorySpec.of(bookings))
    for hour, price in ((10, "1.10"), (12, "2.25")):
        boarding = datetime(2026, 11, 20, hour, tzinfo=UTC)
        booking = Booking("UA", START_MS, boarding.date(), boarding, Decimal(price))
        bus.append(bookings.name, Outgoing(b"UA", msgspec.json.encode(booking), 0))
    with scuba_on(bus, clock, categories=(bookings,)) as opened:
        opened.read()
        yield opened


@pytest.mark.parametrize(
    ("column", "op", "value", "found"),
    [
        ("boarding", "=", "2026-11-20T10:00", 1),
        ("boarding", "=", "2026-11-20T10:00:00Z", 1),
        ("boarding", "=", "2026-11-20T11:00:00+01:00", 1),
        ("boarding", "in", ["2026-11-20T10:00", "2026-11-20T07:00-05:00"], 2),
        ("boarding", "<", "2026-11-21", 2),
        ("day", "=", "2026-11-20", 2),
        ("day", ">", "2026-11-20", 0),
        ("price", "=", "1.1", 1),
    ],
)
def test_filters_of_times_are_in_utc(booked: Scuba, column: str, op: Any, value: Any, found: int) -> None:
    """An offset of a time counts."""
    query = ExploreQuery(table=bookings.name, filters=[Filter(column, op, value)])

    assert booked.explorer.explore(query).matched == found


@pytest.mark.parametrize(("column", "value"), [("boarding", "soon"), ("day", "20 November"), ("day", 5)])
def test_a_filter_without_a_time_is_refused(booked: Scuba, column: str, value: Any) -> None:
    """The error has words, and not the SQL of the server."""
    query = ExploreQuery(table=bookings.name, filters=[Filter(column, "=", value)])

    with pytest.raises(BadQuery, match=rf"{column} contains (dates|times), such as 2026-01-31.* is none"):
        booked.explorer.explore(query)


def test_decimals_are_numbers_in_charts_and_short_texts_in_groups(booked: Scuba) -> None:
    """Neither shows the eighteen digits of the column."""
    wanted = [Aggregation("sum", "price"), Aggregation("min", "price")]
    found = booked.explorer.explore(ExploreQuery(table=bookings.name, aggregates=wanted, group_by=["price"]))

    assert [(row.group, [each.value for each in row.values]) for row in found.rows] == [
        (["2.25"], [2.25, 2.25]),
        (["1.1"], [1.1, 1.1]),
    ]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_answers_with_unusual_columns_are_exported(scuba: Scuba, form: str) -> None:
    """Columns may share a name, or have types that files do not have."""
    sql = f"SELECT page AS a, g0 AS a, ms AS a_1, INTERVAL 90 MINUTE AS waited FROM \"{TABLE}\" WHERE page = '/none'"
    content = io.BytesIO(scuba.explorer.exported(SqlQuery(sql), form))
    found = pl.read_csv(content) if form == "csv" else pl.read_parquet(content)

    assert found.columns == ["a", "a_2", "a_1", "waited"]
    waited = scuba.explorer.exported(SqlQuery("SELECT INTERVAL 90 MINUTE AS waited"), form)
    assert form == "parquet" or waited == b'"waited"\n"0 months 0 days 1:30:00"\n'


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_answers_are_exported(scuba: Scuba, form: str) -> None:
    """An export has all rows of a SELECT beyond an answer's limit, groups, time series and rows. An unknown format is refused."""
    client = TestClient(create_site(scuba.explorer, Access(SCUBA), SAVING), base_url="http://127.0.0.1")

    def table(path: str, query: dict[str, Any]) -> pl.DataFrame:
        answer = client.post(f"{path}?format={form}", json=query)
        assert answer.status_code == 200, answer.text
        assert f"penstock.{form}" in answer.headers["content-disposition"]
        return pl.read_csv(io.BytesIO(answer.content)) if form == "csv" else pl.read_parquet(io.BytesIO(answer.content))

    wide = f'SELECT a.page, b.g0 FROM "{TABLE}" a, "{TABLE}" b WHERE a.g0 = 1 AND a._offset < 60 AND b._offset < 200'
    few = sum(hit.g0 == 1 for hit in RECORDS[:180]) * 600
    assert len(table("/sql", {"sql": wide})) == few > 10_000
    listed = table("/sql", {"sql": f"SELECT array_agg(g0) AS all_g0 FROM \"{TABLE}\" WHERE page = '/p1'"})
    assert len(listed) == 1
    counted = table("/query", {"table": TABLE, "group_by": ["g0"]})
    assert dict(counted.iter_rows()) == dict(RAW.group_by("g0").len().iter_rows())
    series = table("/query", {"table": TABLE, "every": "1m"})
    assert (series.columns, series["count"].sum()) == (["time_ms", "count"], len(RECORDS))
    assert (
        table("/samples", {"table": TABLE, "limit": 2_000})["at"].to_list() == sorted(RAW["at"].to_list())[::-1][:2_000]
    )
    assert client.post("/sql?format=xlsx", json={"sql": wide}).status_code == 400
    assert client.post("/histogram?format=csv", json={"table": TABLE, "column": "ms"}).status_code == 400


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_estimates_of_a_sample_are_within_their_margins(rate: float) -> None:
    """By definition, 95 of 100 are. Here, at least nine of ten groups are, and all are within twice the margin."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    records = random_hits(30_000, seed=21)
    send(bus, records)
    with scuba_on(bus, clock, rate=rate) as sampled:
        sampled.read()
        chosen = [
            Aggregation(),
            Aggregation("sum", "ms"),
            Aggregation("avg", "ms"),
            Aggregation("count", "device.memory"),
        ]
        answer = sampled.explorer.explore(ExploreQuery(table=TABLE, aggregates=chosen, group_by=["page"], series=8))
    ratios = []
    for row in answer.rows:
        of_page = [hit for hit in records if hit.page == row.group[0]]
        total = sum(hit.ms for hit in of_page)
        with_memory = sum(hit.device is not None and hit.device.memory is not None for hit in of_page)
        truths = [len(of_page), total, total / len(of_page), with_memory]
        for estimate, truth in zip(row.values, truths, strict=True):
            if estimate.margin is None:
                assert len(of_page) * rate < 150  # too few rows for a sum or a mean
                continue
            assert 0 < estimate.margin < truth
            ratios.append(abs(estimate.value - truth) / estimate.margin)

    assert answer.is_sampled
    assert len(ratios) >= 20
    assert sum(ratio <= 1 for ratio in ratios) >= 0.9 * len(ratios)
    assert max(ratios) < 2


class Rare(ps.Record, frozen=True):
    """An event that is slow in two of a hundred cases."""

    page: str
    at: ps.EventTime
    ms: float
    failed: bool


rare = ps.Category("rare", Rare, key="page", event_time="at", buckets=1)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.9])
def test_no_estimate_of_a_sample_claims_to_be_exact(rate: float) -> None:
    """Groups may have few rows, or rows that are all alike. A share or a count of 0 has a margin, too."""
    clock, dice = SteeredClock(START_MS), random.Random(4)
    bus = new_bus(clock)
    bus.catalog.create(CategorySpec.of(rare))
    truth = dict[str, list[float]]()
    for number in range(20_000):
        hit = Rare(f"/p{number % 40}", START_MS + number, 900.0 if dice.random() < 0.02 else 20.0, failed=False)
        truth.setdefault(hit.page, []).append(hit.ms)
        bus.append(rare.name, Outgoing(hit.page.encode(), msgspec.json.encode(hit), 0))
    wanted = [
        Aggregation("share", "ms", ">", 500),
        Aggregation("avg", "failed"),
        Aggregation("sum", "failed"),
        Aggregation(),
        Aggregation("avg", "ms"),
        Aggregation("sum", "ms"),
    ]
    with scuba_on(bus, clock, rate=rate, categories=(rare,)) as opened:
        opened.read()
        answer = opened.explorer.explore(
            ExploreQuery(table=rare.name, group_by=["page"], series=100, aggregates=wanted)
        )
    inside = list[bool]()
    for row in answer.rows:
        times = truth[row.group[0]]
        slow = sum(ms > 500 for ms in times) / len(times)
        truths = [slow, 0, 0, len(times), sum(times) / len(times), sum(times)]
        assert all(estimate.margin != 0 for estimate in row.values)
        assert all(estimate.margin is not None for estimate in row.values[:4])
        inside += [
            abs(estimate.value - true) <= estimate.margin
            for estimate, true in zip(row.values, truths, strict=True)
            if estimate.margin is not None
        ]

    assert len(answer.rows) >= 38
    assert sum(inside) >= 0.93 * len(inside)


def test_values_that_are_no_numbers_do_not_replace_an_aggregate() -> None:
    """Aggregates are those of the other values, and the answer counts them."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    bus.catalog.create(CategorySpec.of(rare))
    values = [1.0, 2.0, 3.0, math.nan, math.inf, -math.inf]
    rows = [Rare("/p", START_MS, ms, failed=True) for ms in values]
    wanted = [
        *(Aggregation(function, "ms") for function in ("sum", "avg", "min", "max", "p50")),
        Aggregation("share", "ms", ">", 1.5),
        Aggregation("count", "ms"),
    ]
    with scuba_on(bus, clock, categories=(rare,)) as opened:
        # As formats with such values store them.
        table = FlatColumns(rare).table(0, rows, np.arange(len(rows)), np.full(len(rows), START_MS))
        opened.store.append(rare.name, table, SavedPositions("x", {0: len(rows)}))
        answer = opened.explorer.explore(ExploreQuery(table=rare.name, group_by=["page"], aggregates=wanted))
        shown = opened.explorer.samples(SampleQuery(table=rare.name))

    assert sorted(str(row[shown.columns.index("ms")]) for row in shown.rows)[-2:] == ["Infinity", "NaN"]
    assert [each.value for each in answer.rows[0].values] == [6.0, 2.0, 1.0, 3.0, 2.0, 2 / 3, 6]
    assert answer.not_finite == 3


def test_a_table_with_several_rates_is_estimated_row_by_row(tmp_path: Path) -> None:
    """Rows of a file that were kept with different rates stand for different numbers of events."""
    clock, file = SteeredClock(START_MS), tmp_path / "hits.duckdb"
    bus = new_bus(clock)
    send(bus, random_hits(300, seed=22))
    with scuba_on(bus, clock, file=file) as whole:
        whole.read()
    send(bus, random_hits(1_200, seed=23))
    with scuba_on(bus, clock, file=file, rate=0.25) as sampled:
        sampled.read()
        with sampled.store.cursor() as cursor:
            rows = cursor.execute('SELECT ms, _offset FROM "shop.hits"').fetchall()
        chosen = [Aggregation("sum", "ms"), Aggregation(), Aggregation("min", "ms"), Aggregation("distinct", "ms")]
        [row] = sampled.explorer.explore(ExploreQuery(table=TABLE, aggregates=chosen)).rows
    early, late = [ms for ms, offset in rows if offset < 100], [ms for ms, offset in rows if offset >= 100]
    spread = 1.96 * math.sqrt(sum(ms * ms * 0.75 / 0.25**2 for ms in late))
    # The larger one of the bounds at which the estimate is 1.96 standard deviations away.
    unit = len(late) * 0.75 / 0.25**2 / (300 + len(late) / 0.25)
    of_count = 1.96**2 / 2 * unit + 1.96 * math.sqrt(len(late) * 0.75 / 0.25**2 + 1.96**2 / 4 * unit**2)
    values = [*early, *late]

    assert len(early) == 300
    assert (row.values[0].value, row.values[0].margin) == pytest.approx((sum(early) + sum(late) / 0.25, spread))
    assert (row.values[1].value, row.values[1].margin) == pytest.approx((300 + len(late) / 0.25, of_count))
    assert [(each.value, each.margin) for each in row.values[2:]] == [(min(values), None), (len(set(values)), None)]


def test_rows_are_shown_newest_first(scuba: Scuba) -> None:
    """Each row has its position, at which `penstock category tail` shows the message."""
    query = SampleQuery(table=TABLE, filters=[Filter("page", "=", "/p1")], limit=5)
    answer = scuba.explorer.samples(query)
    at, page = answer.columns.index("_event_time"), answer.columns.index("page")
    newest = sorted((hit.at for hit in RECORDS if hit.page == "/p1"), reverse=True)[:5]

    assert [row[at] for row in answer.rows] == newest
    assert {row[page] for row in answer.rows} == {"/p1"}
    assert {"_bucket", "_offset", "_rate"} <= set(answer.columns)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"table": "other"}, "no table 'other'"),
    ({"group_by": ["pages"]}, "no column 'pages'"),
    ({"group_by": ['page" --']}, "no column"),
    ({"group_by": ["page"] * 9}, "at most 8"),
    ({"series": 0}, "asks for nothing"),
    ({"series": 100_000}, "at most 1,000"),
    ({"aggregates": []}, "asks for nothing"),
    ({"aggregates": [{"function": "sum"}]}, "needs a column"),
    ({"aggregates": [{"function": "share", "column": "ms"}]}, "share needs a column and a condition"),
    ({"aggregates": [{"function": "share", "op": "=", "value": 1}]}, "share needs a column"),
    ({"aggregates": [{"function": "sum", "column": "ms", "op": ">", "value": 1}]}, "only share may have one"),
    ({"aggregates": [{"function": "share", "column": "ms", "op": ">", "value": "x"}]}, "'x' is none"),
    ({"aggregates": [{"function": "sum", "column": "page"}]}, "column with numbers"),
    ({"filters": [{"column": "ms", "op": ">", "value": "x"}]}, "'x' is none"),
    ({"filters": [{"column": "ms", "op": ">", "value": "nan"}]}, "'nan' is none"),
    ({"filters": [{"column": "ms", "op": ">"}]}, "needs a value"),
    ({"filters": [{"column": "ms", "op": "in", "value": []}]}, "1 to 1,000 values"),
    ({"filters": [{"column": "ms", "op": "=", "value": [1, 2]}]}, "use `in`"),
    ({"filters": [{"column": "g0", "op": "=", "value": "1_0"}]}, "'1_0' is none"),
    ({"every": "0s"}, "no interval"),
    ({"every": "1 fortnight"}, "every='1 fortnight' is no duration"),
    ({"last": "10m", "compare": "x"}, "compare='x' is no duration"),
    ({"last": "10m", "from": 3}, "excludes"),
    ({"from": 5, "to": 3}, "not before"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_an_invalid_query_is_refused_with_its_reason(scuba: Scuba, change: dict[str, Any], reason: str) -> None:
    """It is refused before DuckDB sees it."""
    query = msgspec.convert({"table": TABLE, **change}, ExploreQuery)

    with pytest.raises(BadQuery, match=reason):
        scuba.explorer.explore(query)


SELECTS = [
    'SELECT page, count(*), sum(g0) FROM "shop.hits" GROUP BY page ORDER BY 2 DESC, 1',
    'WITH slow AS (SELECT * FROM "shop.hits" WHERE ms > 50) SELECT g0, quantile_cont(ms, 0.5), max("device.os") FROM slow GROUP BY g0 ORDER BY g0',
    "SELECT date_trunc('minute', epoch_ms(_event_time)) AS m, count(*) FILTER (WHERE ms > 10) FROM \"shop.hits\" GROUP BY m ORDER BY m",
    'SELECT page, ms, row_number() OVER (PARTITION BY page ORDER BY ms DESC) AS n FROM "shop.hits" QUALIFY n = 1 ORDER BY page',
]


@pytest.mark.parametrize("sql", SELECTS)
def test_a_select_returns_the_rows_of_duckdb_on_the_raw_events(scuba: Scuba, sql: str) -> None:
    """The statement that runs is the one that was checked, and means the same."""
    with duckdb.connect() as connection:
        connection.register("shop.hits", RAW.with_columns(pl.col("at").alias("_event_time")).to_arrow())
        expected = connection.execute(sql).fetchall()

    assert [tuple(row) for row in scuba.explorer.select(sql).rows] == expected


UNSAFE = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT read_text('/etc/passwd')",
    "SELECT * FROM glob('*')",
    "COPY \"shop.hits\" TO '/tmp/x'",
    "SELECT 1; SELECT 2",
    'DELETE FROM "shop.hits"',
    'INSERT INTO "shop.hits" SELECT * FROM "shop.hits"',
    "CREATE TABLE x AS SELECT 1",
    "ATTACH '/tmp/x'",
    "INSTALL httpfs",
    "SET memory_limit = '9GB'",
    "PRAGMA database_list",
    "CALL duckdb_settings()",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM scuba.segments",
    "SELECT * FROM segments.s1",
    "SELECT * FROM pragma_database_list",
    "SELECT (SELECT 1 FROM (WITH pg_class AS (SELECT 1) SELECT * FROM pg_class)) FROM pg_class",
    "SELECT * FROM information_schema.tables",
    "SELECT getenv('HOME')",
    "SELECT current_setting('memory_limit')",
    "SELECT query('SELECT 1')",
    "SELECT repeat('x', 1000000000)",
    "SELECT * FROM range(1000000000)",
    "SELECT nextval('x')",
    "SELECT $1",
    "EXPLAIN ANALYZE SELECT 1",
    "VALUES (1)",
    "(((",
    "",
    "(" * 5_000,
]


@pytest.mark.parametrize("sql", UNSAFE)
def test_only_a_select_of_the_tables_is_run(scuba: Scuba, sql: str) -> None:
    """Files, settings, other catalogs and changes are refused."""
    with pytest.raises(BadQuery):
        scuba.explorer.select(sql)


def test_duckdb_itself_reads_no_file_and_accepts_no_setting(scuba: Scuba) -> None:
    """DuckDB would refuse a statement that was not checked, too."""
    with scuba.store.cursor() as cursor:
        for sql in (
            "SELECT * FROM read_text('/etc/hostname')",
            "SET memory_limit = '9GB'",
            "INSTALL httpfs",
            "ATTACH '/tmp/x.db'",
        ):
            with pytest.raises(duckdb.Error):
                cursor.execute(sql)


def test_a_query_ends_at_its_time_limit(scuba: Scuba) -> None:
    """The next query is answered."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    send(bus, RECORDS)
    slow = 'SELECT count(*) FROM "shop.hits" a, "shop.hits" b, "shop.hits" c WHERE a.ms + b.ms + c.ms = 7'
    with scuba_on(bus, clock, limits=QueryLimits(timedelta(seconds=3))) as short:
        short.read()
        with pytest.raises(BadQuery, match="did not end within"):
            short.explorer.select(slow)

        assert short.explorer.select('SELECT count(*) FROM "shop.hits"').rows == [[len(RECORDS)]]


def test_a_query_beyond_the_memory_is_refused() -> None:
    """It says so, and the tables stay."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    send(bus, RECORDS)
    product = (
        'SELECT a.page, b.page FROM "shop.hits" a, "shop.hits" b ORDER BY a.ms * b.ms, a.tags, b.tags LIMIT 5000000'
    )
    with scuba_on(bus, clock, memory=32 << 20, limits=QueryLimits(timedelta(minutes=2))) as small:
        small.read()
        with pytest.raises(BadQuery, match="more memory"):
            small.explorer.select(product)

        assert small.explorer.select('SELECT count(*) FROM "shop.hits"').rows == [[len(RECORDS)]]


def test_too_many_queries_at_a_time_are_refused() -> None:
    """The answer asks the client to try again."""
    clock = SteeredClock(START_MS)
    with scuba_on(new_bus(clock), clock, limits=QueryLimits(timedelta(seconds=3), concurrent=1)) as one:
        began, end = Event(), Event()

        def hold() -> None:
            with one.explorer._reading(one.source):
                began.set()
                end.wait(120)

        holder = Thread(target=hold)
        holder.start()
        began.wait(120)
        with pytest.raises(Busy):
            one.explorer.select('SELECT count(*) FROM "shop.hits"')
        end.set()
        holder.join()

        assert one.explorer.select('SELECT count(*) FROM "shop.hits"').rows == [[0]]


def test_an_empty_table_has_no_groups() -> None:
    """The answer is not an error."""
    clock = SteeredClock(START_MS)
    with scuba_on(new_bus(clock), clock) as empty:
        for group_by in ([], ["page"]):
            answer = empty.explorer.explore(ExploreQuery(table=TABLE, group_by=group_by, every="1m"))

            assert (answer.rows, answer.groups, answer.points) == ([], 0, [])


def test_queries_see_one_state_while_rows_arrive_and_are_dropped() -> None:
    """A group's total is the sum of its time series."""
    clock = SteeredClock(START_MS)
    bus = new_bus(clock)
    records = random_hits(600, seed=23)
    failures: list[str] = []
    done = Event()
    with scuba_on(bus, clock, max_bytes=40_000) as scuba:
        scuba.read()

        def ask() -> None:
            while not done.is_set():
                answer = scuba.explorer.explore(ExploreQuery(table=TABLE, group_by=["g0"], every="1m"))
                for at, row in enumerate(answer.rows):
                    total = sum(point.values[0].value for point in answer.points if point.series == at)
                    if total != row.values[0].value:
                        failures.append(f"{total} instead of {row.values[0].value}")

        asking = [Thread(target=ask) for _ in range(2)]
        for thread in asking:
            thread.start()
        for begin in range(0, 600, 30):
            send(bus, records[begin : begin + 30])
            scuba.read()
            if begin % 90 == 0:
                scuba.store.end_segments()
        done.set()
        for thread in asking:
            thread.join()

        assert failures == []
        assert 0 < len(scuba.positions()) < 600


def test_the_http_interface(scuba: Scuba) -> None:
    """Requests and answers are JSON, and each failure has its status."""
    client = TestClient(create_site(scuba.explorer, Access(SCUBA), SAVING), base_url="http://127.0.0.1:8740")
    found = client.post("/query", json={"table": TABLE, "group_by": ["page"], "series": 2})
    answer = msgspec.json.decode(found.content, type=Exploration)
    rows = client.post("/samples", json={"table": TABLE, "limit": 3})
    counted = client.post("/sql", json={"sql": 'SELECT count(*) FROM "shop.hits"'})

    assert (found.status_code, len(answer.rows), answer.matched) == (200, 2, len(RECORDS))
    assert len(msgspec.json.decode(rows.content, type=SqlRows).rows) == 3
    assert msgspec.json.decode(counted.content, type=SqlRows).rows == [[len(RECORDS)]]
    assert msgspec.json.decode(client.get("/tables").content, type=Tables).tables[0].table == TABLE
    assert client.post("/query", json={"table": TABLE, "series": "7"}).status_code == 400
    assert client.post("/query", json={"table": TABLE, "limit": 7}).status_code == 400
    assert (
        client.post("/query", content=b"x" * 2_000_000, headers={"Content-Type": "application/json"}).status_code == 413
    )
    assert client.get("/query").status_code == 405
    assert client.post("/query", json={"table": "x"}).json()["message"].startswith("There is no table 'x'")


def test_programs_need_the_token_and_pages_of_other_sites_cannot_ask(scuba: Scuba) -> None:
    """The dashboard has the same rules. The health check needs no token."""
    site = create_site(scuba.explorer, Access(SCUBA, TOKEN), SAVING)
    client = TestClient(site, base_url="http://example.com")
    query = {"table": TABLE}
    bearer = {"Authorization": f"Bearer {TOKEN}"}

    assert client.post("/query", json=query).status_code == 401
    assert client.get("/tables").status_code == 401
    assert client.get("/health").status_code == 200
    assert client.post("/query", json=query, headers=bearer).status_code == 200
    assert client.post("/query", json=query, headers={**bearer, "Origin": "http://evil.example"}).status_code == 403
    assert client.post("/query", content=msgspec.json.encode(query), headers=bearer).status_code == 403
    loopback = create_site(scuba.explorer, Access(SCUBA), SAVING)
    assert TestClient(loopback, base_url="http://example.com").get("/tables").status_code == 403


def test_a_share_of_the_command_line() -> None:
    """The share has the condition in its brackets."""
    found = parse_aggregate("share(status not in 200, 304)")

    assert found == Aggregation("share", "status", "not in", ["200", "304"])
    assert found.name == "share(status not in 200, 304)"
    with pytest.raises(typer.BadParameter, match="is no condition"):
        parse_aggregate("share(status)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ms > 100", Filter("ms", ">", "100")),
        ("ms>=1.5", Filter("ms", ">=", "1.5")),
        ("page != /a b", Filter("page", "!=", "/a b")),
        ("page in /a, /b", Filter("page", "in", ["/a", "/b"])),
        ("page not in /a", Filter("page", "not in", ["/a"])),
        ("device.os is not null", Filter("device.os", "is not null")),
        ("device.os is null", Filter("device.os", "is null")),
        ("page contains in", Filter("page", "contains", "in")),
        ("page starts with /", Filter("page", "starts with", "/")),
        ("inside = 3", Filter("inside", "=", "3")),
    ],
)
def test_conditions_of_the_command_line(text: str, expected: Filter) -> None:
    assert parse_filter(text) == expected


def test_a_statement_keeps_its_meaning() -> None:
    """The checked statement differs in its letters only."""
    assert checked_select("select page from hits", ["hits"]).sql == "SELECT page FROM hits"


@pytest.mark.parametrize(
    ("rest", "condition"),
    [
        ("WHERE ds = '2026-03-28'", "(ds = '2026-03-28')"),
        ("c WHERE C.ds > '2026' AND page = '/'", "(ds > '2026')"),
        ("WHERE \"hits\".ds > '2026'", "(ds > '2026')"),
        ("c, (VALUES ('2026-03-28')) v(ds) WHERE v.ds = '2026-03-28'", None),
        ("c, (VALUES ('2026-03-28')) v(ds) WHERE ds = '2026-03-28'", None),
        ("c LEFT JOIN (VALUES ('2026-03-28', '/')) v(ds, page) ON c.page = v.page WHERE v.ds = '2026-03-28'", None),
        ("c WHERE v.ds = '2026-03-28'", None),
    ],
)
def test_only_a_condition_on_the_days_of_a_table_leaves_days_out(rest: str, condition: str | None) -> None:
    """A condition on a column ds of another relation in the same SELECT, or around it, leaves no day out."""
    found = checked_select(f"SELECT count(*) FROM hits {rest}", ["hits"]).days

    assert found == ({} if condition is None else {"hits": condition})


def test_each_listed_function_is_run_by_its_name_in_duckdb() -> None:
    """The parser has other names for some of them."""
    with duckdb.connect() as connection:
        [names] = zip(
            *connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall(), strict=True
        )
    listed = sorted(set(names) & ALLOWED_FUNCTIONS)
    refused = []
    for name in listed:
        for arguments in ("x", "x, y", "x, y, z", "1, 2, 3, 4, 5, 6"):
            try:
                checked_select(f"SELECT {name}({arguments}) FROM hits", ["hits"])
            except BadQuery as error:
                if f"does not run the function {name}" in str(error) or "no SQL" not in str(error):
                    refused.append((name, str(error)))

    assert len(listed) > 100
    assert refused == []


def test_a_sample_of_a_sample_is_refused() -> None:
    """It would silently have few rows or no rows."""
    for text in ("hits TABLESAMPLE 10%", "hits USING SAMPLE 10"):
        with pytest.raises(BadQuery, match="does not run 'TABLESAMPLE"):
            checked_select(f"SELECT * FROM {text}", ["hits"])


def test_sums_beyond_64_bits_are_answered(scuba: Scuba) -> None:
    """The answer has approximate numbers, which JSON supports."""
    [row] = scuba.explorer.explore(ExploreQuery(table=TABLE, aggregates=[Aggregation("sum", "at")])).rows
    wide = scuba.explorer.select('SELECT sum("at") * 100000000 FROM "shop.hits"').rows

    assert row.values[0].value == sum(hit.at for hit in RECORDS)
    assert wide[0][0] == pytest.approx(sum(hit.at for hit in RECORDS) * 1e8)
    assert msgspec.json.encode(wide)


def test_random_bytes_are_no_query(scuba: Scuba) -> None:
    """The answer is a refusal, never a failure of the server."""
    client = TestClient(create_site(scuba.explorer, Access(SCUBA), SAVING), base_url="http://127.0.0.1:8740")
    dice = random.Random(3)
    for _ in range(30):
        body = dice.randbytes(dice.randrange(40))
        answer = client.post("/query", content=body, headers={"Content-Type": "application/json"})

        assert answer.status_code == 400
