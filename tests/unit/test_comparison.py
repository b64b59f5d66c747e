"""How two records are compared: which fields differ, by how much, and whether that is within a stated error. This file is the app."""

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
from penstock.backfill.compare.comparison import Comparison, Difference, FieldSummary
from penstock.backfill.compare.coverage_check import OutputsPresent, check_outputs
from penstock.backfill.compare.difference_file import DifferenceFile
from penstock.backfill.compare.keyed_records import JUDGED, Compared, judge_of, judged, writers_of
from penstock.backfill.compare.record_difference import RecordComparer, distance, identical
from penstock.backfill.errors import BackfillRefused, WarehouseError
from penstock.ops.cli import output
from penstock.ops.cli.comparing import conclude, parse_share, show
from penstock.ops.cli.times import days_of
from penstock.processors.declare.apps import AppName
from penstock.processors.errors import DeclarationError

APP = AppName(Path(__file__))


class View(ps.Record, frozen=True):
    """Somebody looks at a page."""

    page: str
    at: ps.EventTime
    visitor: str


class Reach(ps.Record, frozen=True):
    """How many looked at a page in an hour."""

    page: str
    hour: ps.EventTime
    views: int
    visitors: float


views = ps.Category("views", View, key="page", event_time="at", buckets=1)
late_views = ps.Category("late_views", View, key="page", event_time="at", buckets=1)
reaches = ps.Category("reaches", Reach, key="page", event_time="hour", buckets=1)
seen = ps.Category("seen", View, key="page", event_time="at", buckets=1)


class Seen(ps.Stateless):
    """Lets everything pass."""

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
        """Return what both parts observe."""
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
    """So no difference is counted that is not explained, and none is passed over."""
    assert bool(RecordComparer(identical, {}).differences(left, right)) == (not identical(left, right))


@settings(max_examples=80, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_distance_is_the_same_from_both_sides(left: float, right: float) -> None:
    """And its share of the larger value lies between 0 and 2."""
    absolute, relative = distance(left, right)

    assert (absolute, relative) == distance(right, left)
    assert relative is None or 0 <= relative <= 2


def test_what_differs_is_named_to_the_innermost_value() -> None:
    """In lists, dicts and records within records; where one side has no value, the other's is shown alone."""
    stream = {"ranking": [{"dest": "EWR", "score": 7}, {"dest": "JFK", "score": 3}], "by_hour": {"3": 1}, "name": "x"}
    batch = {"ranking": [{"dest": "EWR", "score": 5}], "by_hour": {"3": 1, "4": 2}, "name": "y"}
    found = {difference.field: difference for difference in RecordComparer(identical, {}).differences(stream, batch)}

    assert found.keys() == {"ranking[0].score", "ranking[1]", "by_hour.4", "name"}
    assert found["ranking[0].score"][1:5] == ("7", "5", 2.0, 2 / 7)
    assert found["ranking[1]"][1:4] == ('{"dest":"JFK","score":3}', None, None)
    assert found["name"][1:5] == ('"x"', '"y"', None, None)


def test_only_the_results_of_an_aggregator_are_updates() -> None:
    """Late events that it passes on are events, each of which counts."""
    app = APP.load()

    assert writers_of(app, reaches) == {True: ["Reached"]}
    assert writers_of(app, late_views) == {False: ["Reached"]}
    assert writers_of(app, seen) == {False: ["Seen"]}


@pytest.mark.parametrize(
    ("views_", "visitors", "within"),
    [(10, 1010.0, [True]), (10, 1500.0, [False]), (11, 1010.0, [None, True]), (11, 1500.0, [None, False])],
)
def test_a_declared_estimate_is_judged_by_the_error_of_its_sketch(
    views_: int, visitors: float, within: list[Any]
) -> None:
    """Fields beside it are exact: no error excuses them."""
    judge = judge_of(Compared(APP, "reaches"))
    found = judge.differences(
        {"page": "a", "hour": 0, "views": 10, "visitors": 1000.0},
        {"page": "a", "hour": 0, "views": views_, "visitors": visitors},
    )

    assert [difference.within_error for difference in found] == within


def test_what_is_rounded_otherwise_is_the_same_in_aggregates_only() -> None:
    """Records of the other kinds are compared to the last bit."""
    stream, batch = {"visitors": 0.1 + 0.2}, {"visitors": 0.3}

    assert judge_of(Compared(APP, "reaches")).differences(stream, batch) == []
    assert len(judge_of(Compared(APP, "seen")).differences(stream, batch)) == 1


def test_bounds_that_overlap_are_within_the_error_of_distinct() -> None:
    """Given as a number or with its own bounds; what is neither cannot be told."""
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
def test_quantiles_are_judged_as_far_as_they_tell(left: Any, right: Any, within: bool | None) -> None:
    """A quantile that lies beyond the other side's next one is out; whether one between two of them is, nobody knows."""
    quantiles = ps.monoids.Quantiles(ranks=(0.25, 0.5, 0.75))

    assert quantiles.within_error(left, right) is within
    assert quantiles.within_error(right, left) is within


def test_quantiles_that_are_close_together_tell_exactly() -> None:
    """Where ranks lie within the error of their neighbours, so does a value between the neighbours."""
    ranks = tuple(step / 100 for step in range(101))
    exact = [float(step) for step in range(101)]

    assert ps.monoids.Quantiles(ranks).within_error(exact, [value + 0.5 for value in exact]) is True
    assert ps.monoids.Quantiles(ranks).within_error(exact, [value + 5 for value in exact]) is False


def test_an_estimate_of_no_field_is_refused() -> None:
    """Before the first event, with the fields there are."""

    class Misnamed(Reached):
        """Names a field that is not there."""

        estimates: ClassVar = {"people": ps.monoids.Distinct()}

    with pytest.raises(DeclarationError, match=r"'people'.*page, hour, views, visitors"):
        Misnamed.check()


def rows(*pairs: tuple[int, Any, Any]) -> pa.RecordBatch:
    """Return pairs of records as they come to be judged."""
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
    return pa.RecordBatch.from_pylist(made, schema=JUDGED)


def test_pairs_are_told_apart_and_written_down(tmp_path: Path) -> None:
    """Equal ones are counted; of others every field that differs is a row of the file, and a record of one side is one."""
    reach = {"page": "a", "hour": 0, "views": 1, "visitors": 1000.0}
    pairs = rows(
        (3, None, None), (0, reach, None), (0, None, reach), (0, reach, reach | {"views": 3, "visitors": 1001.0}),
        (0, reach, reach | {"visitors": 1000.0 + 1e-10}), (0, reach, reach | {"visitors": 1001.0}),
    )  # fmt: skip
    [found] = judged(Compared(APP, "reaches"))(iter([pairs]))
    path = tmp_path / "differing.parquet"
    with DifferenceFile(path) as file:
        file.add("reaches", [row for row in found.to_pylist() if row["kind"]])
        assert not path.exists()
    written = pq.read_table(path).to_pylist()

    assert found.column("kind").to_pylist() == [None, "only stream", "only batch", "different", None, "different"]
    assert found.column("equal").to_pylist() == [3, 0, 0, 0, 1, 0]
    assert found.column("within_error").to_pylist() == [None, None, None, False, None, True]
    assert [(row["event_time"], row["field"], row["absolute"]) for row in written] == [
        (1, None, None),
        (2, None, None),
        (3, "views", 2.0),
        (3, "visitors", 1.0),
        (5, "visitors", 1.0),
    ]
    assert msgspec.json.decode(written[0]["stream"]) == reach
    assert written[0]["batch"] is None


def test_a_file_of_differences_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """A comparison that fails leaves the older file; a folder that is not there is said."""
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


def test_a_share_is_written_in_per_cent() -> None:
    """What is not, is refused with how to write it."""
    assert parse_share("0.01%") == pytest.approx(0.0001)
    assert parse_share("5 %") == pytest.approx(0.05)
    for wrong in ("0.01", "a lot", "-1%", "101%"):
        with pytest.raises(typer.BadParameter, match=r"write it in per cent, as 0\.01%"):
            parse_share(wrong)


def test_days_are_two_ends_or_one_day() -> None:
    """Yesterday is the UTC day that ended last."""
    assert days_of("2013-01-01", "2013-01-31", None) == (date(2013, 1, 1), date(2013, 1, 31))
    assert days_of(None, None, "2013-01-31") == (date(2013, 1, 31),) * 2
    assert days_of(None, None, "yesterday", date(2013, 1, 1)) == (date(2012, 12, 31),) * 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ((None, None, None), "Say which days"),
        (("2013-01-01", None, None), "Say which days"),
        (("2013-01-01", "2013-01-02", "yesterday"), "Say which days"),
        ((None, None, "tomorrow"), "'tomorrow' is not a day"),
        (("2013-1-1", "2013-01-02", None), "is not a day; write it as 2013-01-31"),
    ],
)
def test_days_that_are_not_clear_are_refused(asked: tuple[str | None, str | None, str | None], says: str) -> None:
    """With what to write."""
    with pytest.raises(typer.BadParameter, match=says):
        days_of(*asked)


class Shelf:
    """Categories that are said to be somewhere."""

    def __init__(self, root: str, *names: str) -> None:
        self.root = root
        self._names = names

    def has(self, category: str) -> bool:
        """Whether it was said."""
        return category in self._names


def test_an_output_to_which_nothing_was_written_is_compared_as_empty() -> None:
    """Where the other outputs are there, or at least the input: that neither side has it is said, and is no error."""
    written: list[ps.Category[Any]] = [reaches, late_views]
    both = check_outputs(APP.load(), written, Shelf("archive", "reaches"), Shelf("batch", "reaches", "late_views"))
    neither = check_outputs(APP.load(), written, Shelf("archive", "views"), Shelf("batch"))

    assert both == {
        "reaches": OutputsPresent(stream=True, batch=True),
        "late_views": OutputsPresent(stream=False, batch=True),
    }
    assert both["reaches"].note("reaches") == ""
    assert "The archive has nothing of late_views" in both["late_views"].note("late_views")
    assert set(neither.values()) == {OutputsPresent(stream=False, batch=False)}
    assert neither["reaches"].note("reaches").startswith("Neither the archive nor the batch has anything of reaches")


@pytest.mark.parametrize(
    ("archive", "batch", "says"),
    [
        (["views"], ["reaches"], "archive has no reaches, late_views. Nothing was compared"),
        (["views", "reaches"], [], "batch has no reaches, late_views. Nothing was compared"),
        ([], [], "There is nothing to compare: archive has no category of test_comparison"),
    ],
)
def test_a_side_that_was_forgotten_is_refused(archive: list[str], batch: list[str], says: str) -> None:
    """Rather than called empty: the wrong place looks the same."""
    with pytest.raises(BackfillRefused, match=says):
        check_outputs(APP.load(), [reaches, late_views], Shelf("archive", *archive), Shelf("batch", *batch))


def comparison(**counts: Any) -> Comparison:
    """A comparison of ten thousand records, of which some differ."""
    fields = (FieldSummary("visitors", 3, 4.0, 2.0, 0.25, 0.125, None), FieldSummary("page", 1, *[None] * 5))
    example = Difference("only stream", "a", 0, {"page": "a"}, None)
    return Comparison("reaches", ("Reached",), **{"equal": 9_999, **counts}, fields=fields, examples=(example,))


@pytest.mark.parametrize(
    ("counts", "allowed", "fails"),
    [
        ({}, 0, False),
        ({"different": 1}, 0, True),
        ({"different": 1}, 0.0001, False),
        ({"different": 1}, 0.00009, True),
        ({"only_batch": 1}, 0.0001, False),
        ({"equal": 0, "only_stream": 1}, 0.5, True),
        ({"different": 1, "within_error": 1}, 0, False),
        ({"equal": 0}, 0, False),
    ],
)
def test_the_exit_code_says_whether_more_differs_than_may(counts: dict[str, int], allowed: float, fails: bool) -> None:
    """A share equal to the one that is allowed passes, and so does what lies within a stated error."""
    if fails:
        with pytest.raises(typer.Exit) as left:
            conclude([comparison(**counts)], allowed)
        assert left.value.exit_code == 1
    else:
        conclude([comparison(**counts)], allowed)


def test_what_differs_is_shown_field_by_field(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the share of records, and how far values lie apart; what has no distance has none."""
    monkeypatch.setattr(output.out, "width", 200)
    show([comparison(different=1)])
    printed = " ".join(capsys.readouterr().out.split())

    assert "9,999 0 0 1 0.0100%" in printed
    assert "visitors 3 4 2 0.25 0.125" in printed
    assert "reaches: only stream, key a, 1970-01-01 00:00:00" in printed
