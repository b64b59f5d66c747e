"""Unions of records in each format that supports them, and in the columns of the warehouse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import penstock as ps
from penstock.backfill.warehouse import RecordColumns
from penstock.errors import DeclarationError
from penstock.processors.declare import InvalidRecord
from penstock.transport import MessageCopy
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

TEXT = some.text(some.characters(exclude_categories=["Cs"]), max_size=5)
INT64 = some.integers(-(2**63), 2**63 - 1)


class Line(ps.Record, frozen=True):
    """A nested record."""

    article: str
    price: Decimal


class Placed(ps.Record, frozen=True, tag_field="event", tag="placed", rename="camel"):
    """A record with nested values."""

    order_id: str
    placed_at: datetime
    lines: list[Line]
    note: str | None = None


class Paid(ps.Record, frozen=True, tag_field="event", tag="paid", rename="camel"):
    """A record that shares fields with the others."""

    order_id: str
    placed_at: datetime
    cents: int
    note: str = ""


class Closed(ps.Record, frozen=True, tag_field="event", tag="closed", rename="camel"):
    """A record without fields of its own."""

    order_id: str
    placed_at: datetime


TIMES = some.integers(0, 2**52).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us))
RECORDS = some.lists(
    some.builds(
        Placed,
        order_id=TEXT,
        placed_at=TIMES,
        lines=some.lists(some.builds(Line, TEXT, some.decimals(0, 9, places=2)), max_size=2),
        note=some.none() | TEXT,
    )
    | some.builds(Paid, order_id=TEXT, placed_at=TIMES, cents=INT64, note=TEXT)
    | some.builds(Closed, order_id=TEXT, placed_at=TIMES),
    max_size=6,
)
UNION = Placed | Paid | Closed


def category(codec: Any) -> ps.Category[Any]:
    return ps.Category("orders", UNION, key="order_id", event_time="placed_at", codec=codec)


@settings(deadline=None)
@pytest.mark.parametrize("codec", ["json", ps.codecs.Json(other_types="skip"), ps.codecs.MessagePack()], ids=str)
@given(records=RECORDS)
def test_records_are_read_as_they_were_written(codec: Any, records: list[Any]) -> None:
    """Each has its original type."""
    opened = Codecs(MemoryBus()).of(category(codec))
    decoded = opened.decode(list(map(MessageCopy, opened.encode(records))))

    assert decoded.bad == []
    assert decoded.events == records
    assert list(map(type, decoded.events)) == list(map(type, records))


@settings(deadline=None)
@given(records=RECORDS)
def test_columns_return_the_records(records: list[Any]) -> None:
    """The records keep their order, for any order of the types."""
    columns = RecordColumns(UNION)
    batch = pa.RecordBatch.from_arrays(columns.arrays(records), schema=columns.schema)

    assert columns.records(batch) == records
    assert batch.column("event").to_pylist() == [record.__struct_config__.tag for record in records]
    assert batch.column("orderId").to_pylist() == [record.order_id for record in records]


def test_columns_are_the_tag_and_the_fields_of_all_types() -> None:
    """A field that some types lack may be null."""
    schema = RecordColumns(UNION).schema

    assert schema.names == ["event", "orderId", "placedAt", "lines", "note", "cents"]
    assert {field.name for field in schema if not field.nullable} == {"event", "orderId", "placedAt"}


def test_an_archived_tag_without_a_type_is_refused() -> None:
    """An event is never read as another type."""
    columns = RecordColumns(UNION)
    [at] = [Closed("o", datetime(2024, 1, 1, tzinfo=UTC))]
    batch = pa.RecordBatch.from_arrays(columns.arrays([at]), schema=columns.schema)

    with pytest.raises(DeclarationError, match=r"the tag 'closed' in 'event'.*'placed', 'paid'"):
        RecordColumns(Placed | Paid).records(batch)


class Reserved(ps.Record, frozen=True, tag_field="ds", tag="reserved"):
    """A record whose tag field is a column of the warehouse."""

    at: ps.EventTime


class ReservedToo(ps.Record, frozen=True, tag_field="ds", tag="too"):
    """Another one."""

    at: ps.EventTime


def test_a_tag_field_with_the_name_of_a_column_is_refused() -> None:
    """The archive cannot store it."""
    with pytest.raises(DeclarationError, match=r"The tag field 'ds' of Reserved . ReservedToo"):
        RecordColumns(Reserved | ReservedToo)


@pytest.mark.parametrize("wrong", [Line("a", Decimal(1)), Paid("o", datetime.now(UTC), 2**63)])
def test_a_record_that_does_not_fit_is_refused(wrong: Any) -> None:
    """A record of another type or with a value beyond its type is not written."""
    opened = Codecs(MemoryBus()).of(category("json"))

    with pytest.raises(InvalidRecord):
        opened.encode([Closed("o", datetime(2024, 1, 1, tzinfo=UTC)), wrong])
