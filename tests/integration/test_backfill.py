"""A backfill produces the stream's results for each kind of processor. This file is the app that both run."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterable, Iterator
from copy import copy
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.archive import Archiver
from penstock.backfill.compare import Comparison, compare, explain
from penstock.backfill.compare.comparer import Kind
from penstock.backfill.run import NodeResult, run_backfill
from penstock.backfill.spark import StageProgress, no_progress, spark_session
from penstock.backfill.spark.progress import Stage
from penstock.backfill.warehouse import DAY_MS, Days, Warehouse, open_warehouse
from penstock.ops.kernel import Driver
from penstock.processors.apps import AppName
from penstock.transport import Bucket

MASTER = "local[2]"
APP = AppName(Path(__file__))
START = date(2013, 1, 1)
START_MS = 15_706 * DAY_MS
EVENTS = 4000
FIRST, LAST = date(2013, 1, 2), date(2013, 1, 4)


class Visit(ps.Record, frozen=True):
    """A visit to a page."""

    visitor: str
    page: str
    at: ps.EventTime
    spent: float


class LongVisit(Visit, frozen=True):
    """A visit with a length."""


class ShortVisit(Visit, frozen=True):
    """A visit without length."""


class Streak(ps.Record, frozen=True):
    """A visitor's visits so far; the result depends on their order."""

    visitor: str
    at: ps.EventTime
    number: int
    smoothed: float
    previous: str | None


class Counted(ps.Record, frozen=True):
    """The number of visits to a page in a window, and their total length."""

    page: str
    window: ps.EventTime
    visits: int
    spent: float


class Newest(ps.Record, frozen=True):
    """The first and the last visitor of a page in a window, in order of arrival."""

    page: str
    window: ps.EventTime
    first: str
    last: str


visits = ps.Category("visits", Visit, key="visitor", event_time="at", buckets=4)
long_visits = ps.Category("long_visits", LongVisit, key="page", event_time="at", buckets=4, codec="avro")
short_visits = ps.Category("short_visits", ShortVisit, key="page", event_time="at", buckets=3)
streaks = ps.Category("streaks", Streak, key="visitor", event_time="at", buckets=4)
counted = ps.Category("counted", Counted, key="page", event_time="window", buckets=2)
newest = ps.Category("newest", Newest, key="page", event_time="window", buckets=2)


class Sort(ps.Stateless):
    """Sends visits to two categories, by their length."""

    reads, writes = visits, (long_visits, short_visits)

    def process(self, event: Visit) -> Iterable[ps.Record]:
        """Return the visit as a long or short one."""
        yield (LongVisit if event.spent > 1 else ShortVisit)(event.visitor, event.page, event.at, event.spent)


class Follow(ps.Stateful):
    """Numbers a visitor's visits; every tenth one ends the streak."""

    reads, writes = visits, streaks
    state = tuple[int, float, str]

    def process(
        self, event: Visit, state: tuple[int, float, str] | None, context: ps.Context
    ) -> tuple[tuple[int, float, str] | None, list[Streak]]:
        """Return the streak so far."""
        number, smoothed, previous = state or (0, event.spent, None)
        smoothed += (event.spent - smoothed) / 3
        streak = Streak(context.key, event.at, number + 1, smoothed, previous)
        return None if number == 9 else (number + 1, smoothed, event.page), [streak]


class CountVisits(ps.Aggregator):
    """Counts and sums in windows that cross days."""

    reads, writes = long_visits, counted
    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Sum())
    window = ps.windows.Tumbling(timedelta(hours=7))

    def observe(self, event: LongVisit) -> tuple[int, float]:
        """Return the observation for both parts of the monoid."""
        return 1, event.spent

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, float]) -> Counted:
        """Return the counts."""
        return Counted(key, window.start, *value)


class FindNewest(ps.Aggregator):
    """Keeps the first and the last visitor: its monoid is not commutative."""

    reads, writes = long_visits, newest
    monoid = ps.monoids.TupleOf(ps.monoids.FirstArrived(), ps.monoids.LastArrived())
    window = ps.windows.Tumbling(timedelta(hours=7))

    def observe(self, event: LongVisit) -> tuple[str, str]:
        """Return the visitor for both parts of the monoid."""
        return event.visitor, event.visitor

    def result(self, key: str, window: ps.windows.Window, value: tuple[str, str]) -> Newest:
        """Return both visitors."""
        return Newest(key, window.start, *value)


class World:
    """A processed stream, its archive, and a backfill of some of its days."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warehouse = open_warehouse(folder / "warehouse")
        driver = Driver(sys.modules[__name__])
        # Several runs update windows repeatedly as late visits arrive.
        events = made_up_visits()
        for start in range(0, EVENTS, EVENTS // 4):
            driver.send(visits, events[start : start + EVENTS // 4])
        categories = APP.load().categories()
        ends = {
            Bucket(category.name, number): end
            for category in categories
            for number, end in driver.bus.describe(category.name).ends.items()
        }
        Archiver(driver.bus, categories, self.warehouse, segment_events=300).run(lambda it: it.has_reached(ends))
        self.reports: list[StageProgress] = []
        self.results = {result.processor: result for result in self.backfill(APP, "batch", self.reports.append)}

    def backfill(self, app: AppName, output: str, progress: Any = no_progress, **options: Any) -> list[NodeResult]:
        return run_backfill(
            app,
            self.warehouse,
            first=FIRST,
            last=LAST,
            output=open_warehouse(self.folder / output),
            master=MASTER,
            progress=progress,
            **options,
        )

    def over(self, warehouse: Warehouse) -> World:
        """Return this world with another archive."""
        other = copy(self)
        other.warehouse = warehouse
        return other

    def compare(self, app: AppName, output: str, **options: Any) -> list[Comparison]:
        return compare(app, self.warehouse, str(self.folder / output), FIRST, LAST, master=MASTER, **options)


def made_up_visits() -> list[Visit]:
    """Return visits over six days; one in four is late by up to half a day."""
    dice = random.Random(7)
    return [
        Visit(
            f"visitor {dice.randrange(300)}",
            f"page {dice.randrange(9)}",
            START_MS + n * 6 * DAY_MS // EVENTS - dice.choice([0, 0, 0, dice.randrange(DAY_MS // 2)]),
            dice.expovariate(1),
        )
        for n in range(EVENTS)
    ]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One stream, one archive, one backfill, in one Spark session."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of the backfill is tested")
    with spark_session(MASTER):
        yield World(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def comparisons(world: World) -> dict[str, Comparison]:
    """The comparison of each category."""
    return {comparison.category: comparison for comparison in world.compare(APP, "batch")}


@pytest.mark.parametrize("category", ["long_visits", "short_visits", "streaks", "counted", "newest"])
def test_a_backfill_produces_the_streams_results(comparisons: dict[str, Comparison], category: str) -> None:
    """All kinds of processors agree, also order-dependent ones, with late events and windows across days."""
    assert comparisons[category].examples == ()
    assert comparisons[category].agrees
    assert comparisons[category].equal > 50


def test_each_node_reports_its_event_counts(world: World) -> None:
    """Events before the range that only warm up a state do not count."""
    within = [visit for visit in made_up_visits() if START_MS + DAY_MS <= visit.at < START_MS + 4 * DAY_MS]
    sort, follow = world.results["Sort"], world.results["Follow"]

    assert (sort.events_in, sort.events_out, sort.note) == (len(within), len(within), "")
    assert (follow.events_in, follow.events_out) == (len(within), len(within))
    assert "from its beginning" in follow.note
    assert {result.kind for result in world.results.values()} == {"stateless", "stateful", "aggregator"}


def test_progress_reaches_the_end_of_every_node(world: World) -> None:
    """The last report of each node says that all its tasks are done, and how many events they read."""
    last = {reached.node: reached for reached in world.reports}

    assert last.keys() == world.results.keys()
    assert all(reached.done == reached.total > 0 for reached in last.values())
    assert all(reached.stage is Stage.DONE for reached in last.values())
    assert {node: reached.events for node, reached in last.items()} == {
        node: result.events_in for node, result in world.results.items()
    }


def test_no_temporary_files_remain_beside_the_output(world: World) -> None:
    """Files written to a staging folder have been moved or deleted."""
    found = {path.name for path in (world.folder / "batch").iterdir()}

    assert found == {f"category={name}" for name in ("long_visits", "short_visits", "streaks", "counted", "newest")}


def test_a_chain_needs_no_archive_of_its_intermediate_categories(world: World, tmp_path: Path) -> None:
    """Windows computed from the first category alone are equal, except for the order of events, which only an archive records."""
    shutil.copytree(world.folder / "warehouse" / "category=visits", tmp_path / "category=visits")
    alone = world.over(open_warehouse(tmp_path))
    with pytest.raises(BackfillRefused, match=r"CountVisits reads long_visits, .*--chained"):
        alone.backfill(APP, "alone")
    alone.backfill(APP, "alone", chained=True)

    for category in ("long_visits", "short_visits", "counted"):
        parts = [
            pq.read_table(world.folder / output / f"category={category}").sort_by(
                [("_event_time", "ascending"), ("_key", "ascending")]
            )
            for output in ("batch", "alone")
        ]
        assert parts[0].num_rows > 50
        assert [row | {"spent": pytest.approx(row["spent"])} for row in parts[0].to_pylist()] == parts[1].to_pylist()


def test_an_input_can_come_from_an_earlier_output(world: World, tmp_path: Path) -> None:
    """Results are equal up to rounding for the output's days; the warehouse need not contain the category."""
    alone = world.over(open_warehouse(tmp_path))
    earlier = {"long_visits": open_warehouse(world.folder / "batch")}
    [result] = alone.backfill(AppName(Path(__file__), "CountVisits"), "taken", places=earlier)
    parts = [
        sorted(
            pq.read_table(world.folder / output / "category=counted").to_pylist(),
            key=lambda row: (row["_event_time"], row["_key"]),
        )
        for output in ("taken", "batch")
    ]
    within = [row for row in parts[1] if row["_event_time"] + 7 * DAY_MS // 24 <= START_MS + 4 * DAY_MS]

    assert "long_visits is read from file://" in result.note
    assert len(within) > 50
    assert [row | {"spent": pytest.approx(row["spent"])} for row in parts[0][: len(within)]] == within


def test_existing_output_is_replaced_only_on_request(world: World) -> None:
    """A second backfill into the same folder is refused before it starts; with `overwrite` it replaces the output."""
    app = AppName(Path(__file__), "CountVisits")
    with pytest.raises(BackfillRefused, match=r"already has counted\. Nothing was started"):
        world.backfill(app, "batch")
    world.backfill(app, "batch", overwrite=True)
    [again] = world.compare(app, "batch")

    assert again.agrees


def test_a_comparison_finds_altered_missing_and_duplicate_rows(world: World, tmp_path: Path) -> None:
    """Each difference is reported with an example, and the file contains all of them."""
    shutil.copytree(world.folder / "batch", world.folder / "altered")
    file = max((world.folder / "altered" / "category=streaks").rglob("*.parquet"), key=lambda path: path.stat().st_size)
    rows = pq.read_table(file, partitioning=None)
    changed, gone, *kept = rows.to_pylist()
    changed["smoothed"] += 1e-12
    extra = kept[0]
    pq.write_table(rows.from_pylist([changed, *kept, extra], schema=rows.schema), file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    path = tmp_path / "differing.parquet"
    [comparison] = world.compare(AppName(Path(__file__), "Follow"), "altered", differences=path)
    written = {row["kind"]: row for row in pq.read_table(path).to_pylist()}
    examples = {example.kind: example for example in comparison.examples}

    assert not comparison.agrees
    assert (comparison.different, comparison.only_left, comparison.only_right) == (1, 1, 1)
    assert examples[Kind.DIFFERENT].right["smoothed"] - examples[Kind.DIFFERENT].left["smoothed"] == pytest.approx(
        1e-12
    )
    assert (examples[Kind.ONLY_LEFT].key, examples[Kind.ONLY_RIGHT].key) == (gone["_key"], extra["_key"])
    assert [(field.field, field.differing, field.beyond_error) for field in comparison.fields] == [
        ("smoothed", 1, None)
    ]
    assert comparison.fields[0].greatest == comparison.fields[0].mean == pytest.approx(1e-12, rel=1e-3)
    assert comparison.share == pytest.approx(3 / (comparison.equal + 3))
    assert {kind: (row["key"], row["field"]) for kind, row in written.items()} == {
        "different": (changed["_key"], "smoothed"),
        "only in stream": (gone["_key"], None),
        "only in batch": (extra["_key"], None),
    }


def test_an_explanation_reads_batch_files_without_spark(world: World) -> None:
    """It compares the batch run's files with the archive's, window by window."""
    trees = open_warehouse(world.folder / "warehouse"), open_warehouse(world.folder / "batch")
    found = explain(AppName(Path(__file__), "CountVisits"), *trees, "page 3", Days(FIRST, LAST), limit=10_000)

    assert {output.pair.kind for output in found.outputs} == {Kind.EQUAL}
    assert sum(output.pair.left["visits"] for output in found.outputs) > len(found.events) // 2 > 20
    assert any(event.behind_ms for event in found.events)


def test_a_comparison_finds_an_altered_aggregate(world: World) -> None:
    """It ignores rounding of floats, which depends on the grouping of partials, and reports a wrong count."""
    shutil.copytree(world.folder / "batch", world.folder / "miscounted")
    file = next((world.folder / "miscounted" / "category=counted").rglob("*.parquet"))
    rows = pq.read_table(file, partitioning=None)
    wrong, rounded, *kept = rows.to_pylist()
    wrong["visits"] += 1
    rounded["spent"] *= 1 + 1e-14
    pq.write_table(rows.from_pylist([wrong, rounded, *kept], schema=rows.schema), file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    [comparison] = world.compare(AppName(Path(__file__), "CountVisits"), "miscounted")

    assert (comparison.different, comparison.only_left, comparison.only_right) == (1, 0, 0)
    assert [(example.key, example.event_time) for example in comparison.examples] == [(wrong["_key"], wrong["window"])]
