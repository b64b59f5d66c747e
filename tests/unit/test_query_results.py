"""The results of a query server in memory, and the parameters of its queries."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.serve.results.parameters import BadQuery, Parameters, TimeSpan
from penstock.ops.serve.results.result_table import Result, ResultTable
from penstock.ops.serve.results.served import NotServable, served_processors
from penstock.processors import DeclarationError
from penstock.processors.apps import App
from penstock.processors.time import Window

SIZE = 10
NOW_MS = 1_790_000_000_000


class Count(ps.Record, frozen=True):
    """A count of a page."""

    page: str
    at: int
    n: int


def result(key: str, start: int, n: int | None) -> Result:
    """Return a result of a window; for None, the result that removes an earlier one."""
    records = [] if n is None else [Count(key, start, n)]
    return Result(key, start, Window(start, start + SIZE), start, records)


puts = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.integers(0, 6).map(lambda at: at * SIZE),
        st.none() | st.integers(0, 9),
        st.integers(0, 50),
    ),
    max_size=40,
)


bounds = st.integers(-1, 7).map(lambda at: at * SIZE) | st.integers(-5, 75)


lengths = st.sampled_from([SIZE, 2 * SIZE, 3 * SIZE]) | st.integers(1, 40)


@given(puts, bounds, lengths, st.integers(0, 50))
def test_a_table_contains_the_last_result_of_each_key_and_window(
    given_puts: list[tuple[str, int, int | None, int]], begin: int, length: int, since: int
) -> None:
    """Queries are by key, in a time span, latest, ranked and listed, also after old windows were dropped."""
    table, expected, changed = ResultTable(), dict[tuple[str, int], int](), dict[int, int]()
    for key, start, n, arrived in given_puts:
        table.put(result(key, start, n), arrived)
        if n is None:
            expected.pop((key, start), None)
            if not any(other == start for _, other in expected):
                changed.pop(start, None)
        else:
            expected[key, start] = n
            changed[start] = max(arrived, changed.get(start, arrived))
    expect_equal(table, expected, begin, begin + length)
    table.drop_unchanged(since)
    expect_equal(
        table, {place: n for place, n in expected.items() if changed[place[1]] >= since}, begin, begin + length
    )
    table.drop_key("a")
    left = {place: n for place, n in expected.items() if place[0] != "a" and changed[place[1]] >= since}
    expect_equal(table, left, begin, begin + length)


def expect_equal(table: ResultTable, expected: dict[tuple[str, int], int], begin: int, end: int) -> None:
    assert len(table) == len(expected)
    starts = sorted({start for _, start in expected})
    inside = [start for start in starts if start < end and start + SIZE > begin]
    assert table.slots_overlapping(begin, end) == inside
    assert table.bounds == ((starts[0], starts[-1]) if starts else None)
    assert table.keys("", "", 10, None) == sorted({key for key, _ in expected})
    assert table.keys("a", "", 10, inside) == sorted({key for key, start in expected if start in inside and key > "a"})
    for key in "abcd":
        mine = {start: n for (of, start), n in expected.items() if of == key}
        latest = table.latest(key)
        assert (latest and latest.records[0].n) == (mine[max(mine)] if mine else None)
        spanned = [each.slot for each in table.overlapping(key, begin, end)]
        assert spanned == sorted((start for start in mine if start in inside), reverse=True)
    ranked = [
        (each.record.n, each.result.slot, each.result.key) for each in table.top(inside, "n", lambda one: one.n, 3)
    ]
    rank = sorted((-n, start, key) for (key, start), n in expected.items() if start in inside)[:3]
    assert ranked == [(-n, start, key) for n, start, key in rank]


def test_a_repeated_ranking_contains_later_results() -> None:
    """They may be new, changed or removed."""
    table = ResultTable()

    def ranked() -> list[tuple[str, int]]:
        return [(each.result.key, each.record.n) for each in table.top([0], "n", lambda one: one.n, 2)]

    found = []
    for key, n in (("a", 1), ("b", 2), ("a", 3), ("b", None)):
        table.put(result(key, 0, n), 0)
        found.append(ranked())
        assert ranked() == found[-1]

    assert found == [[("a", 1)], [("b", 2), ("a", 1)], [("a", 3), ("b", 2)], [("a", 3)]]


@pytest.mark.parametrize(
    ("given_parameters", "expected"),
    [
        ({}, None),
        ({"at": ["1790000000000"]}, NOW_MS),
        ({"at": ["2026-09-21T14:13:20Z"]}, NOW_MS),
        ({"at": ["2026-09-21T16:13:20+02:00"]}, NOW_MS),
        ({"at": ["2026-09-21T16:13:20 02:00"]}, NOW_MS),
        ({"last": ["1h"]}, TimeSpan(NOW_MS - 3_600_000, NOW_MS + 1)),
        ({"from": ["5"], "to": ["9"]}, TimeSpan(5, 9)),
        ({"from": ["5"]}, TimeSpan(5, NOW_MS)),
    ],
)
def test_parameters_name_a_time(given_parameters: dict[str, list[str]], expected: object) -> None:
    """They accept milliseconds, durations and ISO times, even if a URL turned the + into a space."""
    assert Parameters(given_parameters).when(NOW_MS) == expected


@pytest.mark.parametrize(
    ("given_parameters", "message"),
    [
        ({"at": ["noon"]}, "is no time"),
        ({"at": ["9" * 15]}, "is no time"),
        ({"at": ["1", "2"]}, "occurs 2 times"),
        ({"last": ["1 year"]}, "is no duration"),
        ({"last": ["999999999w"]}, "too long"),
        ({"at": ["1"], "last": ["1h"]}, "exclude each other"),
        ({"to": ["1"]}, "to needs from"),
        ({"from": ["9"], "to": ["5"]}, "is not before"),
    ],
)
def test_an_invalid_time_is_refused(given_parameters: dict[str, list[str]], message: str) -> None:
    """The message names the parameter and the correct form."""
    with pytest.raises(BadQuery, match=message):
        Parameters(given_parameters).when(NOW_MS)


@pytest.mark.parametrize("text", ["0", "-1", "ten", "10001", "²", "9" * 5_000])
def test_an_invalid_limit_is_refused(text: str) -> None:
    """A number beyond the limit is invalid, too."""
    with pytest.raises(BadQuery, match="from 1 to"):
        Parameters({"limit": [text]}).limit("limit")


class View(ps.Record, frozen=True):
    """A view of a page."""

    page: str
    at: int


views = ps.Category("views", View, key="page", event_time="at")
counts = ps.Category("counts", Count, key="page", event_time="at")


class Counts(ps.Aggregator):
    """Views per page."""

    reads, writes, monoid = views, counts, ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(milliseconds=SIZE))

    def result(self, key: str, window: Window, value: int) -> Count:
        return Count(key, window.start, value)


class Differences(Counts):
    """Views since the last result."""

    writes = ps.Category("differences", Count, key="page", event_time="at")
    emit = ps.AtCheckpoint(differences=True)


class Halves(ps.Stateless):
    """Two records of each result."""

    reads, writes = counts, ps.Category("halves", Count, key="page", event_time="at")

    def process(self, event: Count) -> list[Count]:
        return [Count(event.page, event.at, event.n // 2), Count(event.page, event.at, event.n - event.n // 2)]


class Early(ps.Stateless):
    """No results: it reads events."""

    reads, writes = views, ps.Category("early", View, key="page", event_time="at")

    def process(self, event: View) -> list[View]:
        return [event]


def test_aggregators_and_stateless_processors_after_them_are_served() -> None:
    """A new result replaces all records that a stateless processor derived from the earlier one."""
    app = App.of("app", [Counts, Differences, Halves, Early])
    served = {each.name: each for each in served_processors(app)}
    table = ResultTable()
    for record in (Count("a", 20, 5), Count("a", 20, 9)):
        [found] = served[Halves.name].results([record])
        table.put(found, 0)

    assert served.keys() == {Counts.name, Halves.name}
    assert served[Halves.name].followed is counts
    assert served[Halves.name].upstream == {Counts.name, Halves.name}
    latest = table.latest("a")
    assert latest is not None
    assert [record.n for record in latest.records] == [4, 5]
    assert latest.window == Window(20, 30)


@pytest.mark.parametrize(
    ("name", "message"), [("Differences", "differences=True"), ("Early", "does not read the results")]
)
def test_a_processor_without_results_is_refused(name: str, message: str) -> None:
    """The message contains the reason."""
    app = App.of("app", [Counts, Differences, Early])
    with pytest.raises(NotServable, match=message):
        served_processors(app, [name])


def test_a_ranking_needs_a_numeric_field() -> None:
    """The only one is the default."""
    [served] = served_processors(App.of("app", [Counts]))

    assert served.weight(None)(Count("a", 1, 7)) == 7
    with pytest.raises(DeclarationError, match=r"no numeric field 'page'.*`by`: n\."):
        served.weight("page")
