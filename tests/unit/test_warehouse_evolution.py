"""Record types change while a category is archived; all of its files remain one table."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.warehouses import Killed, MemoryWarehouse, dying_warehouse

import penstock as ps
from penstock.backfill import ArchiveRefused, WarehouseError
from penstock.backfill.archive import Archiver, group_of
from penstock.backfill.warehouse import ARCHIVE, Listing, Note, RecordColumns, is_same, merged, stored_as, table_of
from penstock.backfill.warehouse.schema_evolution import is_widened
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus


class Part(ps.Record, frozen=True):
    """A nested record."""

    size: int


class Old(ps.Record, frozen=True):
    """The old record type."""

    at: ps.EventTime
    count: int
    part: Part
    note: str


class WiderPart(Part, frozen=True):
    """The nested record today."""

    size: float  # type: ignore[assignment]
    unit: str = "mm"


class New(ps.Record, frozen=True):
    """The record type today: one field was removed, one added, two widened; one of them is now optional."""

    at: ps.EventTime
    count: float | None
    part: WiderPart
    tags: list[str] = msgspec.field(default_factory=list)


class Other(ps.Record, frozen=True):
    """An incompatible record type."""

    at: ps.EventTime
    count: str


class Site:
    """A bus and a warehouse."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.bus.create(CategorySpec("readings", 1))
        self.warehouse = MemoryWarehouse()

    def archive(self, record: type[ps.Record], *events: ps.Record, warehouse: Any = None) -> None:
        """Send events, and archive all events as a record type."""
        for event in events:
            self.bus.append("readings", Outgoing(b"k", msgspec.json.encode(event)))
        category = ps.Category("readings", record, key=lambda _: "k", event_time="at", buckets=1)
        ends = {Bucket("readings", number): end for number, end in self.bus.ends("readings").items()}
        archiver = Archiver(self.bus, [category], warehouse or self.warehouse, segment_events=2)
        archiver.run(lambda it: it.has_reached(ends))


OLD = [Old(1, 1, Part(1), "a"), Old(2, 2, Part(2), "b"), Old(3, 3, Part(3), "c")]
NEW = [New(4, 4.5, WiderPart(4.5), ["x"]), New(5, None, WiderPart(5.0, "cm"))]


def test_a_record_may_gain_lose_and_widen_fields() -> None:
    """Full segments and the open segment get today's types; removed fields keep their values."""
    site = Site()
    site.archive(Old, *OLD)
    site.archive(New, *NEW)
    files = [table_of(site.warehouse.read(file)) for file in Listing.of(site.warehouse, "readings").files]
    rows = [row for table in files for row in table.to_pylist()]

    assert {str(table.schema.field("count").type) for table in files} == {"double"}
    assert {str(table.schema.field("part").type.field("size").type) for table in files} == {"double"}
    assert [row["count"] for row in rows] == [1.0, 2.0, 3.0, 4.5, None]
    assert [row.get("note") for row in rows][:2] == ["a", "b"]
    assert [row["part"]["size"] for row in rows] == [1.0, 2.0, 3.0, 4.5, 5.0]


def test_the_next_run_completes_an_interrupted_widening() -> None:
    """It rewrites the remaining files."""
    for calls in range(1, 12):
        site = Site()
        site.archive(Old, *OLD)
        with pytest.raises(Killed):
            site.archive(New, *NEW, warehouse=dying_warehouse(site.warehouse, calls))
        site.bus.kill_members(group_of("readings"))
        site.archive(New)
        rows = [
            (row["at"], row["count"])
            for file in Listing.of(site.warehouse, "readings").files
            for row in table_of(site.warehouse.read(file)).to_pylist()
        ]

        assert rows == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.5), (5, None)], calls


def test_an_incompatible_type_is_refused_with_file_column_and_types() -> None:
    """Nothing changes."""
    site = Site()
    site.archive(Old, *OLD)
    before = dict(site.warehouse.stored)
    with pytest.raises(
        ArchiveRefused, match=r"ds=1970-01-01/bucket-.*parquet: column count has type int64, .* string"
    ) as refused:
        site.archive(Other)

    assert "another category" in str(refused.value)
    assert site.warehouse.stored == before


def test_an_integer_without_an_exact_float_is_refused() -> None:
    """A float has 53 bits; larger integers are not rounded silently."""
    site = Site()
    site.archive(Old, Old(1, 2**60 + 1, Part(1), "a"))
    with pytest.raises(
        WarehouseError, match=r"bucket-.*parquet: column count has type int64 and cannot be converted to double"
    ):
        site.archive(New)


def test_an_archive_without_a_settings_file_is_continued() -> None:
    """Its days are by event time, and its columns are those in its files."""
    site = Site()
    site.archive(Old, *OLD)
    site.warehouse.delete(Note("readings", ARCHIVE))
    site.archive(New, *NEW)

    assert len(Listing.of(site.warehouse, "readings").files) == 3


SCALARS = st.sampled_from([pa.int64(), pa.float64(), pa.string()])
TYPES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda item: pa.map_(pa.string(), item)),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(
            lambda fields: pa.struct([pa.field(name, kind) for name, kind in fields.items()])
        ),
    ),
    max_leaves=4,
)
SCHEMAS = st.dictionaries(st.sampled_from("abc"), TYPES, min_size=1).map(
    lambda fields: pa.schema([pa.field(name, kind) for name, kind in fields.items()])
)


@given(SCHEMAS)
def test_merging_columns_with_themselves_changes_nothing(schema: pa.Schema) -> None:
    """A restarted archiver finds its own columns."""
    assert merged(schema, schema) == schema
    assert not is_widened(schema, schema)
    assert stored_as(schema, schema) == schema


def test_types_may_differ_in_missing_fields_only() -> None:
    """Spark fills missing fields with nulls, but does not read numbers of another type."""
    old, new = RecordColumns(Old).schema.field("part").type, RecordColumns(New).schema.field("part").type

    assert is_same(old, pa.struct([("size", pa.int64()), ("unit", pa.string())]))
    assert not is_same(old, new)
