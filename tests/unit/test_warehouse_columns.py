"""Columns: records converted to the warehouse and back."""

from __future__ import annotations

from typing import Any, Union

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.backfill.warehouse import CONVERSION_ERRORS, DAY_MS, RecordColumns, by_day, day_of
from penstock.processors import DeclarationError


class Part(ps.Record, frozen=True):
    """A record within a record."""

    name: str
    sizes: dict[str, int] = msgspec.field(default_factory=dict)


class Whole(ps.Record, frozen=True):
    """One field of each shape that has a column."""

    at: ps.EventTime
    flag: bool
    ratio: float
    text: str
    raw: bytes
    many: list[int]
    pair: tuple[str, ...]
    named: dict[str, float]
    part: Part
    parts: list[Part]
    maybe: int | None = None
    other: Part | None = None
    anything: Any = None
    things: list[Any] = msgspec.field(default_factory=list)


class Renamed(ps.Record, frozen=True, rename="camel", kw_only=True):
    """Fields with other names on the bus, as keyword-only arguments."""

    event_time: ps.EventTime
    is_late: bool = False


class Newer(ps.Record, frozen=True):
    """A record type with added fields."""

    at: ps.EventTime
    gate: str = "unknown"
    tags: list[str] = msgspec.field(default_factory=list)


class Stricter(ps.Record, frozen=True):
    """A record type with an added field without default."""

    at: ps.EventTime
    gate: str


INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
PARTS = st.builds(Part, TEXT, st.dictionaries(TEXT, INT64, max_size=3))
WHOLES = st.builds(
    Whole,
    at=INT64,
    flag=st.booleans(),
    ratio=st.floats(allow_nan=False),
    text=TEXT,
    raw=st.binary(),
    many=st.lists(INT64, max_size=3),
    pair=st.lists(TEXT, max_size=3).map(tuple),
    named=st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=3),
    part=PARTS,
    parts=st.lists(PARTS, max_size=2),
    maybe=st.none() | INT64,
    other=st.none() | PARTS,
    anything=JSON,
    things=st.lists(JSON, max_size=2),
)


def stored(columns: RecordColumns, records: list[Any]) -> pa.RecordBatch:
    """Return records as the warehouse stores them."""
    return pa.RecordBatch.from_arrays(columns.arrays(records), schema=columns.schema)


@settings(deadline=None)  # the first call imports
@given(st.lists(WHOLES, max_size=4))
def test_records_survive_the_conversion_to_columns_and_back(records: list[Whole]) -> None:
    """Every field type that has a column survives."""
    columns = RecordColumns(Whole)

    assert columns.records(stored(columns, records)) == records


def test_columns_have_the_names_on_the_bus() -> None:
    """Readers of the files find the same fields as readers of the category."""
    columns = RecordColumns(Renamed)
    records = [Renamed(event_time=1), Renamed(event_time=2, is_late=True)]

    assert columns.schema.names == ["eventTime", "isLate"]
    assert columns.records(stored(columns, records)) == records


def test_only_optional_fields_are_nullable() -> None:
    """Fields with a default are nullable, too, because older files lack them."""
    nullable = {field.name for field in RecordColumns(Whole).schema if field.nullable}

    assert nullable == {"maybe", "other", "anything", "things"}
    assert RecordColumns(Newer).schema.field("gate").nullable


def test_a_field_that_older_files_lack_takes_its_default() -> None:
    """Spark returns nulls for a column that a file lacks."""
    schema = RecordColumns(Newer).schema
    older = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int64()), pa.nulls(2, pa.string()), pa.nulls(2, schema.field("tags").type)], schema=schema
    )

    assert RecordColumns(Newer).records(older) == [Newer(1), Newer(2)]


def test_a_new_field_without_default_is_refused() -> None:
    """Older events cannot be read without a default; the error asks for one."""
    columns = RecordColumns(Stricter)
    older = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int64()), pa.nulls(1, pa.string())], names=columns.schema.names
    )

    with pytest.raises(DeclarationError, match=r"Stricter\.gate has no value in .* give it a default"):
        columns.records(older)


def test_a_number_beyond_64_bits_is_refused() -> None:
    """JSON allows larger integers; a column does not."""
    with pytest.raises(CONVERSION_ERRORS):
        RecordColumns(Newer).arrays([Newer(2**70)])


class Odd(ps.Record, frozen=True):
    """A field of a type that has no column."""

    what: set[int]


class Either(ps.Record, frozen=True):
    """A field of two types."""

    what: Union[int, str]  # noqa: UP007 - users of Python 3.9 write unions like this


class Tree(ps.Record, frozen=True):
    """A record type that contains itself."""

    children: list[Tree]


class Taken(ps.Record, frozen=True):
    """A field with a column name that the warehouse reserves."""

    ds: str


@pytest.mark.parametrize(
    ("record", "reason"),
    [(Odd, "set fields"), (Either, "union"), (Tree, "contains itself"), (Taken, "reserves this column name")],
)
def test_a_field_without_a_column_type_is_refused(record: type[ps.Record], reason: str) -> None:
    """The declaration fails before the first event; the error explains what to change."""
    with pytest.raises(DeclarationError, match=reason):
        RecordColumns(record)


@given(st.lists(st.integers(-3 * DAY_MS, 3 * DAY_MS), max_size=30), st.booleans())
def test_rows_are_divided_by_day(times: list[int], in_order: bool) -> None:
    """Each day has its rows, in their order, whether or not the days are mixed."""
    times = sorted(times) if in_order else times
    arrays = [pa.array(times, pa.int64()), pa.array(range(len(times)), pa.int64())]
    rows = pa.RecordBatch.from_arrays(arrays, ["at", "number"])

    found = [(day, part.to_pylist()) for day, part in by_day(rows, "at")]

    expected: dict[str, list[dict[str, int]]] = {}
    for number, time_ms in enumerate(times):
        expected.setdefault(day_of(time_ms), []).append({"at": time_ms, "number": number})
    assert dict(found) == expected
    assert len(found) == len(expected)
