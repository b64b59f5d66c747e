"""Comparison of records: differing fields, distances and stated errors. This file is the app."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.backfill import BackfillRefused, WarehouseError
from penstock.backfill.compare import (
    EXACT,
    STREAM_AND_BATCH,
    Comparison,
    ComparisonSummary,
    RecordComparer,
    RecordPair,
    identical,
    writes_updates,
)
from penstock.backfill.compare.comparer import Kind, distance
from penstock.backfill.compare.comparison import OutputsPresent, check_outputs
from penstock.backfill.compare.comparison_worker import (
    PAIRS,
    ComparedCategory,
    decode_pair,
    decode_summary,
    differing,
    summarized,
)
from penstock.backfill.compare.difference_file import DifferenceFile
from penstock.backfill.compare.summary import FieldSummary
from penstock.ops.batch.commands.compare import parse_share, report_result, show_comparisons
from penstock.ops.shell import parse_days
from penstock.ops.shell.terminal import output
from penstock.processors import DeclarationError
from penstock.processors.apps import AppName
from penstock.processors.declare import plan_of

APP = AppName(Path(__file__))


class View(ps.Record, frozen=True):
    """A visit to a page."""

    page: str
    at: ps.EventTime
    visitor: str


class Reach(ps.Record, frozen=True):
    """The number of a page's visitors in an hour."""

    page: str
    hour: ps.EventTime
    views: int
    visitors: float


views = ps.Category("views", View, key="page", event_time="at", buckets=1)
late_views = ps.Category("late_views", View, key="page", event_time="at", buckets=1)
reaches = ps.Category("reaches", Reach, key="page", event_time="hour", buckets=1)
seen = ps.Category("seen", View, key="page", event_time="at", buckets=1)


class Seen(ps.Stateless):
    """Forwards every event."""

    reads, writes = views, seen

    def process(self, event: View) -> list[View]:
        """Return the event."""
        return [event]


class Reached(ps.Aggregator):
    """Counts views, and estimates visitors."""

    reads, writes, late = views, reaches, late_views
    monoid, window = (
        ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Distinct()),
        ps.windows.Tumbling(timedelta(hours=1)),
    )
    estimates: ClassVar = {"visitors": ps.monoids.Distinct()}

    def observe(self, event: View) -> tuple[int, str]:
        """Return the observations of both parts."""
        return 1, event.visitor

    def result(self, key: str, window: ps.windows.Window, value: Any) -> Reach:
        """Return both."""
        return Reach(key, window.start, value[0], value[1].estimate)


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
records = st.dictionaries(st.sampled_from("abc"), plain_values, max_size=3)


@settings(max_examples=80, deadline=None)
@given(records, records)
def test_records_differ_in_a_field_if_and_only_if_their_bytes_do(left: dict[str, Any], right: dict[str, Any]) -> None:
    """Every counted difference names a field, and equal fields mean equal records."""
    assert bool(EXACT.differences(left, right)) == (not identical(left, right))


@settings(max_examples=80, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_distance_is_symmetric(left: float, right: float) -> None:
    """The relative distance is between 0 and 2."""
    absolute, relative = distance(left, right)

    assert (absolute, relative) == distance(right, left)
    assert relative is None or 0 <= relative <= 2


def test_differences_name_the_innermost_value() -> None:
    """The value may be in lists, dicts and nested records. A missing value has no counterpart."""
    stream = {"ranking": [{"dest": "EWR", "score": 7}, {"dest": "JFK", "score": 3}], "by_hour": {"3": 1}, "name": "x"}
    batch = {"ranking": [{"dest": "EWR", "score": 5}], "by_hour": {"3": 1, "4": 2}, "name": "y"}
    found = {difference.field: difference for difference in EXACT.differences(stream, batch)}

    assert found.keys() == {"ranking[0].score", "ranking[1]", "by_hour.4", "name"}
    assert found["ranking[0].score"][1:5] == ("7", "5", 2.0, 2 / 7)
    assert found["ranking[1]"][1:4] == ('{"dest":"JFK","score":3}', None, None)
    assert found["name"][1:5] == ('"x"', '"y"', None, None)


def test_only_the_results_of_an_aggregator_are_updates() -> None:
    """Late events that it forwards, and differences of results, are ordinary events."""

    class Changes(Reached):
        """Writes differences."""

        emit = ps.AtCheckpoint(differences=True)

    assert writes_updates(Reached, "reaches")
    assert not writes_updates(Reached, "late_views")
    assert not writes_updates(Seen, "seen")
    assert not writes_updates(Changes, "reaches")


@pytest.mark.parametrize(
    ("views_", "visitors", "within"),
    [(10, 1010.0, [True]), (10, 1500.0, [False]), (11, 1010.0, [None, True]), (11, 1500.0, [None, False])],
)
def test_a_declared_estimate_uses_the_error_of_its_sketch(views_: int, visitors: float, within: list[Any]) -> None:
    """Other fields of the record are exact."""
    comparer = RecordComparer.of(reaches, [Reached])
    found = comparer.differences(
        {"page": "a", "hour": 0, "views": 10, "visitors": 1000.0},
        {"page": "a", "hour": 0, "views": views_, "visitors": visitors},
    )

    assert [difference.within_error for difference in found] == within


def test_rounding_is_tolerated_in_aggregates_only() -> None:
    """Records of other processors are compared exactly."""
    stream, batch = {"visitors": 0.1 + 0.2}, {"visitors": 0.3}

    assert RecordComparer.of(reaches, [Reached]).differences(stream, batch) == []
    assert len(RecordComparer.of(seen, [Seen]).differences(stream, batch)) == 1


def test_overlapping_bounds_are_within_the_error_of_distinct() -> None:
    """A value is a number or has explicit bounds. Other values are undecided."""
    distinct = ps.monoids.Distinct(lg_k=12)

    assert distinct.within_error(1000, 1060) is True
    assert distinct.within_error(1000, 1080) is False
    assert distinct.within_error({"estimate": 5, "low": 4, "high": 6}, {"estimate": 8, "low": 6, "high": 9}) is True
    assert distinct.within_error("many", 1000) is None


@pytest.mark.parametrize(
    ("left", "right", "within"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 3.0], [1.1, 2.1, 3.1], None),
        ([1.0, 2.0, 3.0], [1.0, 3.5, 4.0], False),
        ([1.0, 2.0, 3.0], [0.0, 1.0, 9.0], None),
        ([1.0, 2.0, 3.0], [1.0, 2.0], None),
        (2.0, 2.1, None),
    ],
)
def test_quantiles_are_within_error_as_far_as_decidable(left: Any, right: Any, within: bool | None) -> None:
    """A quantile beyond the next one of the other side is out; between two of them it is undecided."""
    quantiles = ps.monoids.Quantiles(ranks=(0.25, 0.5, 0.75))

    assert quantiles.within_error(left, right) is within
    assert quantiles.within_error(right, left) is within


def test_dense_quantiles_are_always_decided() -> None:
    """If neighbouring ranks lie within the error, so does every value between them."""
    ranks = tuple(step / 100 for step in range(101))
    exact = [float(step) for step in range(101)]

    assert ps.monoids.Quantiles(ranks).within_error(exact, [value + 0.5 for value in exact]) is True
    assert ps.monoids.Quantiles(ranks).within_error(exact, [value + 5 for value in exact]) is False


def test_an_estimate_of_an_unknown_field_is_refused() -> None:
    """The error lists the fields, before the first event."""

    class Misnamed(Reached):
        """Declares an estimate of an unknown field."""

        estimates: ClassVar = {"people": ps.monoids.Distinct()}

    with pytest.raises(DeclarationError, match=r"'people'.*page, hour, views, visitors"):
        plan_of(Misnamed).check()


def rows(*pairs: tuple[int, Any, Any]) -> pa.RecordBatch:
    """Return rows of PAIRS at the event times 0, 1, 2 and so on."""
    encode = msgspec.msgpack.encode
    made = [
        {
            "key": "a",
            "time": number,
            "equal": equal,
            "stream": None if stream is None else encode(stream),
            "batch": None if batch is None else encode(batch),
        }
        for number, (equal, stream, batch) in enumerate(pairs)
    ]
    return pa.RecordBatch.from_pylist(made, schema=PAIRS)


REACH = {"page": "a", "hour": 0, "views": 1, "visitors": 1000.0}
REACHES = rows(
    (3, None, None), (0, REACH, None), (0, None, REACH), (0, REACH, REACH | {"views": 3, "visitors": 1001.0}),
    (0, REACH, REACH | {"visitors": 1000.0 + 1e-10}), (0, REACH, REACH | {"visitors": 1001.0}),
)  # fmt: skip


def test_pairs_are_summarized_in_workers() -> None:
    """Equal records are counted; rounding counts as equal; the summaries of two tasks merge into one."""
    work = summarized(ComparedCategory(APP, "reaches"))
    whole, total = ComparisonSummary(), ComparisonSummary()
    for batches, summary in ([[REACHES, REACHES]], whole), ([[REACHES], [REACHES]], total):
        for task in batches:
            [row] = (row for batch in work(iter(task)) for row in batch.to_pylist())
            summary.merge(decode_summary(row["summary"]))
    found = total.comparison("reaches", ("Reached",), STREAM_AND_BATCH)

    assert found == whole.comparison("reaches", ("Reached",), STREAM_AND_BATCH)
    assert (found.equal, found.only_left, found.only_right, found.different, found.within_error) == (8, 2, 2, 4, 2)
    assert found.fields == (
        FieldSummary("views", 2, 2.0, 2.0, 2 / 3, 2 / 3, None),
        FieldSummary("visitors", 4, 1.0, 1.0, 1 / 1001, 1 / 1001, 0),
    )
    assert [(pair.event_time, pair.kind) for pair in found.examples] == [
        (time, kind)
        for time, kind in ((1, Kind.ONLY_LEFT), (2, Kind.ONLY_RIGHT), (3, Kind.DIFFERENT), (5, Kind.DIFFERENT))
        for _ in range(2)
    ]


def test_the_earliest_examples_of_each_kind_are_kept() -> None:
    """The number and the order of the differences do not matter."""
    summary = ComparisonSummary(examples_per_kind=2)
    for time in (*range(500, 0, -1), *range(501, 1000)):
        summary.add(EXACT.pair("a", time, {"n": time}, None))
        summary.add(EXACT.pair("a", time, {"n": time}, {"n": 0}))
    found = summary.comparison("seen", ("Seen",), STREAM_AND_BATCH)

    assert (found.only_left, found.different, found.within_error) == (999, 999, 0)
    assert sorted((pair.kind.value, pair.event_time) for pair in found.examples) == [
        ("different", 1),
        ("different", 2),
        ("only left", 1),
        ("only left", 2),
    ]


pairable = st.lists(st.dictionaries(st.just("n"), st.integers(0, 3) | st.floats(0, 3, width=16)), max_size=6)


@settings(max_examples=80, deadline=None)
@given(pairable, pairable, st.sampled_from([EXACT, RecordComparer.of(reaches, [Reached])]))
def test_every_record_is_in_one_pair(left: list[Any], right: list[Any], comparer: RecordComparer) -> None:
    """Equal records find each other, so that no equal ones remain on both sides."""
    pairs = list(comparer.pairs("a", 0, left, right))
    rest = [pair for pair in pairs if pair.kind is not Kind.EQUAL]

    def sizes(side: list[Any]) -> list[bytes]:
        return sorted(msgspec.msgpack.encode(record) for record in side if record is not None)

    assert sizes([pair.left for pair in pairs]) == sizes(left)
    assert len([pair for pair in pairs if pair.right is not None]) == len(right)
    assert not any(
        not comparer.differences(one.left, other.right)
        for one in rest
        for other in rest
        if one.left is not None and other.right is not None
    )
    assert {pair.kind for pair in rest} <= {
        Kind.DIFFERENT,
        Kind.ONLY_LEFT if len(left) > len(right) else Kind.ONLY_RIGHT,
    }


def test_differences_are_written_by_field(tmp_path: Path) -> None:
    """Each differing field is a row of the file, and so is a record of one side; the file appears when it is complete."""
    [found] = differing(ComparedCategory(APP, "reaches"))(iter([REACHES]))
    path = tmp_path / "differing.parquet"
    with DifferenceFile(path) as file:
        file.add("reaches", [decode_pair(row["pair"]) for row in found.to_pylist()])
        assert not path.exists()
    written = pq.read_table(path).to_pylist()

    assert [
        (row["event_time"], row["kind"], row["field"], row["absolute"], row["within_error"]) for row in written
    ] == [
        (1, "only in stream", None, None, None),
        (2, "only in batch", None, None, None),
        (3, "different", "views", 2.0, None),
        (3, "different", "visitors", 1.0, True),
        (5, "different", "visitors", 1.0, True),
    ]
    assert msgspec.json.decode(written[0]["stream"]) == REACH
    assert written[0]["batch"] is None


def test_a_file_of_differences_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """A failed comparison keeps the older file; a missing folder is reported."""
    path = tmp_path / "differing.parquet"
    path.write_text("older")
    with pytest.raises(KeyError), DifferenceFile(path):
        raise KeyError
    with (
        pytest.raises(WarehouseError, match=r"nowhere/x\.parquet cannot be written: No such file"),
        DifferenceFile(tmp_path / "nowhere" / "x.parquet"),
    ):
        pass

    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("differing.parquet", "older")]


def test_a_share_is_a_percentage() -> None:
    """Other values are refused with an example."""
    assert parse_share("0.01%") == pytest.approx(0.0001)
    assert parse_share("5 %") == pytest.approx(0.05)
    for wrong in ("0.01", "a lot", "-1%", "101%"):
        with pytest.raises(typer.BadParameter, match=r"Write it as 0\.01%"):
            parse_share(wrong)


def test_days_are_two_ends_or_one_day() -> None:
    """Yesterday is the last complete UTC day."""
    assert parse_days("2013-01-01", "2013-01-31", None) == (date(2013, 1, 1), date(2013, 1, 31))
    assert parse_days(None, None, "2013-01-31") == (date(2013, 1, 31),) * 2
    assert parse_days(None, None, "yesterday", date(2013, 1, 1)) == (date(2012, 12, 31),) * 2


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((None, None, None), "Name the days"),
        (("2013-01-01", None, None), "Name the days"),
        (("2013-01-01", "2013-01-02", "yesterday"), "Name the days"),
        ((None, None, "tomorrow"), "'tomorrow' is not a day"),
        (("2013-1-1", "2013-01-02", None), "is not a day. Write it as 2013-01-31"),
    ],
)
def test_ambiguous_days_are_refused(asked: tuple[str | None, str | None, str | None], message: str) -> None:
    """The error shows the format."""
    with pytest.raises(typer.BadParameter, match=message):
        parse_days(*asked)


class Shelf:
    """Categories with declared locations."""

    def __init__(self, location: str, *names: str) -> None:
        self.location = location
        self._names = names

    def has(self, category: str) -> bool:
        """Return whether the category is declared there."""
        return category in self._names


def test_a_missing_output_counts_as_empty() -> None:
    """The side must have other outputs, or at least an input. A note names the missing category."""
    written: list[ps.Category[Any]] = [reaches, late_views]
    both = check_outputs(APP.load(), written, Shelf("archive", "reaches"), Shelf("batch", "reaches", "late_views"))
    neither = check_outputs(APP.load(), written, Shelf("archive", "views"), Shelf("batch"))

    assert both == {
        "reaches": OutputsPresent(stream=True, batch=True),
        "late_views": OutputsPresent(stream=False, batch=True),
    }
    assert both["reaches"].note("reaches") == ""
    assert "The archive has no late_views" in both["late_views"].note("late_views")
    assert set(neither.values()) == {OutputsPresent(stream=False, batch=False)}
    assert neither["reaches"].note("reaches").startswith("Neither the archive nor the batch output has reaches")


@pytest.mark.parametrize(
    ("archive", "batch", "message"),
    [
        (["views"], ["reaches"], "archive has no reaches, late_views. Nothing was compared"),
        (["views", "reaches"], [], "batch has no reaches, late_views. Nothing was compared"),
        ([], [], "There are no outputs to compare: archive has no category of test_comparison"),
    ],
)
def test_a_side_without_any_output_is_refused(archive: list[str], batch: list[str], message: str) -> None:
    """A wrong location would otherwise look like an empty result."""
    with pytest.raises(BackfillRefused, match=message):
        check_outputs(APP.load(), [reaches, late_views], Shelf("archive", *archive), Shelf("batch", *batch))


def comparison(**counts: Any) -> Comparison:
    """Return a comparison of ten thousand records, of which some differ."""
    fields = (FieldSummary("visitors", 3, 4.0, 2.0, 0.25, 0.125, None), FieldSummary("page", 1, *[None] * 5))
    example = RecordPair("a", 0, {"page": "a"}, None, [])
    return Comparison(
        "reaches",
        ("Reached",),
        STREAM_AND_BATCH,
        **{"equal": 9_999, **counts},
        fields=fields,
        examples=(example,),
    )


@pytest.mark.parametrize(
    ("counts", "allowed", "fails"),
    [
        ({}, 0, False),
        ({"different": 1}, 0, True),
        ({"different": 1}, 0.0001, False),
        ({"different": 1}, 0.00009, True),
        ({"only_right": 1}, 0.0001, False),
        ({"equal": 0, "only_left": 1}, 0.5, True),
        ({"different": 1, "within_error": 1}, 0, False),
        ({"equal": 0}, 0, False),
    ],
)
def test_the_exit_code_depends_on_the_allowed_share(counts: dict[str, int], allowed: float, fails: bool) -> None:
    """A share equal to the allowed one passes, and so do differences within a stated error."""
    if fails:
        with pytest.raises(typer.Exit) as left:
            report_result([comparison(**counts)], allowed)
        assert left.value.exit_code == 1
    else:
        report_result([comparison(**counts)], allowed)


def test_differences_are_printed_by_field(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field has its share of the records and the distances of its numbers."""
    monkeypatch.setattr(output.out, "width", 200)
    show_comparisons([comparison(different=1)])
    printed = " ".join(capsys.readouterr().out.split())

    assert "9,999 0 0 1 0.0100%" in printed
    assert "visitors 3 4 2 0.25 0.125" in printed
    assert "reaches: only in stream, key a, 1970-01-01 00:00:00" in printed
