"""An aggregator that counts updates is named when an app starts, with the choices."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.processors.apps import counted_updates
from penstock.processors.declare.emission import Emission


class View(ps.Record, frozen=True):
    """A view of a page."""

    seen: int
    page: str


class PageViews(ps.Record, frozen=True):
    """The views of a page in a window."""

    page: str
    window_start: int
    views: int


views = ps.Category("views", View, key="page", event_time="seen")
per_page = ps.Category("per_page", PageViews, key="page", event_time="window_start")
users = ps.Category("users", View, key="page", event_time="seen", compacted=True)


class PerPage(ps.Aggregator[View, int, PageViews]):
    """Counts views."""

    reads = views
    writes = per_page
    monoid = ps.monoids.Sum()
    window = ps.windows.Tumbling(timedelta(minutes=5))

    def observe(self, event: View) -> int:
        return 1

    def result(self, key: str, window: ps.Window, value: int) -> PageViews:
        return PageViews(page=key, window_start=window.start, views=value)


class Totals(PerPage):
    """Counts results of the first aggregator."""

    reads = per_page  # type: ignore[assignment]
    writes = ps.Category("totals", PageViews, key="page", event_time="window_start")


class Users(PerPage):
    """Counts the rows of a compacted category."""

    reads = users
    writes = ps.Category("users_per_page", PageViews, key="page", event_time="window_start")


def with_timing(emit: Emission, late: ps.OnLate) -> Any:
    """Return the first aggregator with other times of its results."""
    return type("PerPage", (PerPage,), {"emit": emit, "late": late})


UPDATES = [
    (ps.AtCheckpoint(), ps.OnLate.INTO_WINDOW),
    (ps.AtCheckpoint(), ps.OnLate.DROP),
    (ps.AtWatermark(), ps.OnLate.INTO_WINDOW),
]
FINAL: list[tuple[Emission, ps.OnLate]] = [
    (ps.AtWatermark(), ps.OnLate.DROP),
    (ps.AtCheckpoint(differences=True), ps.OnLate.INTO_WINDOW),
]


@pytest.mark.parametrize(("emit", "late"), UPDATES)
def test_an_aggregator_over_updates_of_another_one_is_named(emit: Emission, late: ps.OnLate) -> None:
    """The warning contains the declaration that makes each result count once."""
    [warning] = counted_updates([Totals], [with_timing(emit, late), Totals])

    assert warning.startswith(f"{Totals.name} aggregates per_page, whose events are updates")
    assert "`emit = penstock.AtWatermark()` and `late = penstock.OnLate.DROP`" in warning


@pytest.mark.parametrize(("emit", "late"), FINAL)
def test_final_results_and_differences_are_no_updates(emit: Emission, late: ps.OnLate) -> None:
    """The declaration that the warning suggests also silences it."""
    assert list(counted_updates([Totals], [with_timing(emit, late), Totals])) == []


def test_an_aggregator_over_a_compacted_category_is_named_unless_it_is_safe() -> None:
    """`compaction_safe` declares that the latest event of each key is enough."""
    [warning] = counted_updates([Users], [Users])

    assert "users, which is compacted" in warning
    safe: Any = type("Users", (Users,), {"compaction_safe": True})
    assert list(counted_updates([safe], [safe])) == []


by_views = ps.Category("by_views", PageViews, key="page", event_time="window_start", buckets=4)
joined = ps.Category("joined", PageViews, key="page", event_time="window_start")


class Copies(ps.Repartition):
    """Copies results under another key."""

    reads = per_page
    writes = by_views


class Joins(ps.TableJoin[PageViews, PageViews | None, PageViews]):
    """Passes the events of its stream on; its table is used for its latest row."""

    stream = per_page
    table = ps.Category("names", PageViews, key="page", event_time="window_start")
    writes = joined

    def join(self, event: PageViews, row: PageViews | None, context: ps.Context) -> list[PageViews]:
        return [event]


@pytest.mark.parametrize(("copier", "copied"), [(Copies, by_views), (Joins, joined)])
def test_updates_stay_updates_when_a_processor_passes_them_on(copier: Any, copied: Any) -> None:
    """A copy under another key counts each version, too; the latest row of a table counts once."""
    totals: Any = type("Totals", (Totals,), {"reads": copied})
    [warning] = counted_updates([totals], [PerPage, copier, totals])
    turned: Any = type("Joins", (Joins,), {"stream": views, "table": per_page})
    final = with_timing(*FINAL[0])

    assert f"{PerPage.name} writes a result again when it changes. {copier.name} passes them on." in warning
    assert list(counted_updates([totals], [final, copier, totals])) == []
    assert list(counted_updates([totals], [PerPage, turned, totals])) == []


SINKS = [
    (ps.sinks.PostgresSink("views", PageViews), True),
    (ps.sinks.PostgresSink("views", PageViews, key=("page", "window_start")), False),
    (ps.sinks.ParquetSink("/views", PageViews), True),
    (ps.sinks.HttpSink("https://team.example/views", PageViews), False),
]


@pytest.mark.parametrize(("sink", "is_named"), SINKS)
def test_updates_that_a_sink_appends_are_named(sink: ps.sinks.Sink, is_named: bool) -> None:
    """Rows with a key replace each other; appended ones would be as many as checkpoints."""

    class Copy(ps.Stateless[PageViews, PageViews]):
        reads, writes = per_page, sink

        def process(self, event: PageViews) -> list[PageViews]:
            return [event]

    for first, last in ((PerPage, Copy), (type("PerPage", (PerPage,), {"writes": sink}),) * 2):
        found = list(counted_updates([last], [first, last]))
        assert [PerPage.name in warning and "appends rows" in warning for warning in found] == [True] * is_named
    final: Any = with_timing(*FINAL[0])
    assert list(counted_updates([Copy], [final, Copy])) == []
