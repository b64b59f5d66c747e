"""Reads of stored categories without Spark: a range of days of one category, as record batches.

    <root>/category=departures/ds=2013-01-31/*.parquet --each event once, selected keys and columns--> record batches

Files of any name are read, except unfinished ones, which start with an underscore or a dot, as in Spark, and superseded ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import BackfillRefused, WarehouseError, WarehouseFileMissing
from .archive_settings import settings_of
from .layout import ArchivedFile, DayOf, Days, EventFile
from .listing import Listing, read_events
from .notes import SUCCESS
from .read_errors import deleted_message, type_mismatch_message, unreadable_message
from .schema_evolution import ColumnTypeMismatch, fitted, merged
from .warehouse import Warehouse

_EVENT_TIME = "_event_time"


@dataclass(frozen=True)
class StoredCategory:
    """A listing of a stored category.

    Args:
        warehouse: the warehouse.
        name: its name.
        schema: the columns to read; columns that a file lacks are null.
        listing: its files.
        by: the time that assigns events to days.
    """

    warehouse: Warehouse
    name: str
    schema: pa.Schema
    listing: Listing
    by: DayOf

    @staticmethod
    def of(warehouse: Warehouse, name: str, schema: pa.Schema) -> StoredCategory:
        """List a category.

        Raises:
            BackfillRefused: its columns do not fit.
            WarehouseError: the warehouse failed.
        """
        settings = settings_of(warehouse, name)
        if settings is None:
            return StoredCategory(warehouse, name, schema, Listing.of(warehouse, name), DayOf.EVENT_TIME)
        stored = pa.schema([field for field in settings.arrow if field.name in schema.names])
        try:
            merged(stored, schema)
        except ColumnTypeMismatch as other:
            raise BackfillRefused(type_mismatch_message(f"{warehouse.location}/category={name}", other)) from other
        return StoredCategory(warehouse, name, schema, Listing.of(warehouse, name), settings.by)

    def spans(self, within: Days) -> list[Days]:
        """Return the ranges of event time, in order, that may contain events and can be read separately.

        These are single days, unless the category is archived by arrival. Then any file may contain events of any day.
        """
        if self.by is DayOf.ARRIVAL:
            return [within] if self.listing.all_files else []
        stored = {file.day for file in self.listing.all_files}
        return [Days.of(day, day) for day in sorted(stored) if within.has(day)]

    def is_complete(self, day: str) -> bool:
        """Return whether a day of event time is complete. It is unknown for a category that is archived by arrival."""
        return self.by is DayOf.EVENT_TIME and SUCCESS in self.listing.notes.get(day, ())

    def read(self, days: Days, *, key: str | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the events of some days of event time.

        Args:
            days: the UTC days.
            key: only this key; None for all.
        """
        wanted = [] if key is None else [pc.field("_key") == key]
        if self.by is DayOf.ARRIVAL:
            within = [pc.field(_EVENT_TIME) >= days.start_ms, pc.field(_EVENT_TIME) < days.end_ms]
            yield from self._read(self.listing.all_files, self.schema, [*wanted, *within])
        else:
            files = [file for file in self.listing.all_files if days.has(file.day)]
            yield from self._read(files, self.schema, wanted)

    def read_files(self, files: Iterable[EventFile], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of some files."""
        return self._read(files, pa.schema([self.schema.field(name) for name in columns]), [])

    def _read(
        self, files: Iterable[EventFile], schema: pa.Schema, wanted: Sequence[pc.Expression]
    ) -> Iterator[pa.RecordBatch]:
        for file in files:
            table = self._table(file, schema, wanted)
            yield from (batch for batch in table.to_batches() if batch.num_rows)

    def _table(self, file: EventFile, schema: pa.Schema, wanted: Sequence[pc.Expression]) -> pa.Table:
        place = f"{self.warehouse.location}/{file.path}"
        try:
            content = pa.BufferReader(read_events(self.warehouse, file))
            names = [name for name in pq.read_schema(content).names if name in schema.names]
            content.seek(0)
            # Arrow's filter type and its stubs disagree.
            only = cast("Any", reduce(and_, wanted)) if wanted else None
            table = pq.read_table(content, columns=names, filters=only, partitioning=None)
        except WarehouseFileMissing as error:
            raise WarehouseError(deleted_message(place)) from error
        except (OSError, pa.ArrowException) as error:
            raise WarehouseError(unreadable_message(place, str(error))) from error
        return fitted(self._checked(table, file, schema), schema, file)

    def _checked(self, table: pa.Table, file: EventFile, schema: pa.Schema) -> pa.Table:
        """Check the columns of an archived file. For other writers' files, only the values must fit."""
        if isinstance(file, ArchivedFile):
            try:
                merged(table.schema.remove_metadata(), schema)
            except ColumnTypeMismatch as other:
                raise BackfillRefused(type_mismatch_message(f"{self.warehouse.location}/{file.path}", other)) from other
        return table
