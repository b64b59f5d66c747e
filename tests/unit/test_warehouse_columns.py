"""Columns: what a record becomes in the warehouse, and back."""

from __future__ import annotations

from typing import Any, Union

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.backfill.warehouse.columns import CONVERSION_ERRORS, Columns
from penstock.processors.errors import DeclarationError


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


class Renamed(ps.Record, frozen=True, rename="camel", kw_only=True):
    """Fields that have other names on the bus, and cannot be given by place."""

    event_time: ps.EventTime
    is_late: bool = False


class Newer(ps.Record, frozen=True):
    """A record type that has gained fields since."""

    at: ps.EventTime
    gate: str = "unknown"
    tags: list[str] = msgspec.field(default_factory=list)


class Stricter(ps.Record, frozen=True):
    """A record type that has gained a field without default."""

    at: ps.EventTime
    gate: str


INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
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
)


def stored(columns: Columns, records: list[Any]) -> pa.RecordBatch:
    """Return records as the warehouse keeps them."""
    return pa.RecordBatch.from_arrays(columns.arrays(records), schema=columns.schema)


@settings(deadline=None)  # the first call imports
@given(st.lists(WHOLES, max_size=4))
def test_records_come_back_as_they_were(records: list[Whole]) -> None:
    """Every shape that has a column survives the way there and back."""
    columns = Columns(Whole)

    assert columns.records(stored(columns, records)) == records


def test_names_on_the_bus_are_the_columns_names() -> None:
    """Whoever reads the files finds the same fields as who reads the category."""
    columns = Columns(Renamed)
    records = [Renamed(event_time=1), Renamed(event_time=2, is_late=True)]

    assert columns.schema.names == ["eventTime", "isLate"]
    assert columns.records(stored(columns, records)) == records


def test_only_what_may_be_missing_is_nullable() -> None:
    """A column takes nulls where the field is optional or has a default that older files lack."""
    nullable = {field.name for field in Columns(Whole).schema if field.nullable}

    assert nullable == {"maybe", "other"}
    assert Columns(Newer).schema.field("gate").nullable


def test_a_field_that_older_files_lack_takes_its_default() -> None:
    """Spark gives nulls for a column that a file does not have."""
    schema = Columns(Newer).schema
    older = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int64()), pa.nulls(2, pa.string()), pa.nulls(2, schema.field("tags").type)], schema=schema
    )

    assert Columns(Newer).records(older) == [Newer(1), Newer(2)]


def test_a_new_field_without_default_is_refused_with_what_to_do() -> None:
    """Events that were archived before the field existed cannot be read without one."""
    columns = Columns(Stricter)
    older = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int64()), pa.nulls(1, pa.string())], names=columns.schema.names
    )

    with pytest.raises(DeclarationError, match=r"Stricter\.gate is missing .* Give it one"):
        columns.records(older)


def test_a_number_beyond_its_column_is_told() -> None:
    """JSON carries whole numbers of more than 64 bits; a column does not."""
    with pytest.raises(CONVERSION_ERRORS):
        Columns(Newer).arrays([Newer(2**70)])


class Odd(ps.Record, frozen=True):
    """A field of a type that no column holds."""

    what: set[int]


class Either(ps.Record, frozen=True):
    """A field of two types."""

    what: Union[int, str]  # noqa: UP007 - how users of Python 3.9 style write it must be understood too


class Tree(ps.Record, frozen=True):
    """A record of records contains itself."""

    children: list[Tree]


class Taken(ps.Record, frozen=True):
    """A field with the name of a column that the warehouse needs."""

    ds: str


@pytest.mark.parametrize(
    ("record", "reason"),
    [(Odd, "set fields"), (Either, "union"), (Tree, "contains itself"), (Taken, "reserves this column name")],
)
def test_what_has_no_column_is_refused(record: type[ps.Record], reason: str) -> None:
    """The declaration is refused before the first event, with what to change."""
    with pytest.raises(DeclarationError, match=reason):
        Columns(record)
