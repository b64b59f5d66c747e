"""Reading what the warehouse and the batch keep, without Spark: one category, a stretch of days at a time, as record batches.

    <root>/category=departures/ds=2013-01-31/*.parquet --each event once, only some keys, only some columns--> record batches

Files of any name are read; those in the making begin with an underscore or a dot and are passed over, as Spark does, and so are those that a
compacted one has taken the place of.
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
from .layout import By, Days, EventFile, StoredFile
from .listing import Listing, read_events
from .notes import SUCCESS
from .read_errors import gone, other_type, unreadable
from .schema_evolution import OtherType, fitted, merged
from .warehouse import Warehouse

_EVENT_TIME = "_event_time"


@dataclass(frozen=True)
class StoredCategory:
    """What was stored of a category when it was looked at.

    Args:
        warehouse: where it is.
        name: its name.
        schema: the columns that are read; those that a file does not have are null.
        listing: its files.
        by: by which time events have their days.
    """

    warehouse: Warehouse
    name: str
    schema: pa.Schema
    listing: Listing
    by: By

    @staticmethod
    def of(warehouse: Warehouse, name: str, schema: pa.Schema) -> StoredCategory:
        """Look at a category.

        Raises:
            BackfillRefused: it is archived with columns that do not fit.
            WarehouseError: the warehouse.
        """
        terms = settings_of(warehouse, name)
        if terms is None:
            return StoredCategory(warehouse, name, schema, Listing.of(warehouse, name), By.EVENT_TIME)
        stored = pa.schema([field for field in terms.arrow if field.name in schema.names])
        try:
            merged(stored, schema)
        except OtherType as other:
            raise BackfillRefused(other_type(f"{warehouse.location}/category={name}", other)) from other
        return StoredCategory(warehouse, name, schema, Listing.of(warehouse, name), terms.by)

    def spans(self, within: Days) -> list[Days]:
        """Return the stretches of event time, in order, of which something may be stored, each of which can be read by itself.

        They are single days, unless the category is archived by arrival: then any file may hold events of any day.
        """
        if self.by is By.ARRIVAL:
            return [within] if self.listing.all_files else []
        stored = {file.day for file in self.listing.all_files}
        return [Days.of(day, day) for day in sorted(stored) if within.has(day)]

    def is_complete(self, day: str) -> bool:
        """Tell whether no more is to come of a day of event time; of a category that is archived by arrival that is not known."""
        return self.by is By.EVENT_TIME and SUCCESS in self.listing.notes.get(day, ())

    def read(self, days: Days, *, key: str | None = None) -> Iterator[pa.RecordBatch]:
        """Give what is stored of days of event time.

        Args:
            days: the UTC days.
            key: only this key; None for all.
        """
        wanted = [] if key is None else [pc.field("_key") == key]
        if self.by is By.ARRIVAL:
            within = [pc.field(_EVENT_TIME) >= days.start_ms, pc.field(_EVENT_TIME) < days.end_ms]
            yield from self._read(self.listing.all_files, self.schema, [*wanted, *within])
        else:
            files = [file for file in self.listing.all_files if days.has(file.day)]
            yield from self._read(files, self.schema, wanted)

    def read_files(self, files: Iterable[EventFile], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Give some columns of some files."""
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
            # Arrow's own type for filters and its stubs disagree.
            only = cast("Any", reduce(and_, wanted)) if wanted else None
            table = pq.read_table(content, columns=names, filters=only, partitioning=None)
        except WarehouseFileMissing as error:
            raise WarehouseError(gone(place)) from error
        except (OSError, pa.ArrowException) as error:
            raise WarehouseError(unreadable(place, str(error))) from error
        return fitted(self._checked(table, file, schema), schema, file)

    def _checked(self, table: pa.Table, file: EventFile, schema: pa.Schema) -> pa.Table:
        """Return events of an archived file whose columns fit; of what others write, only the values have to."""
        if isinstance(file, StoredFile):
            try:
                merged(table.schema.remove_metadata(), schema)
            except OtherType as other:
                raise BackfillRefused(other_type(f"{self.warehouse.location}/{file.path}", other)) from other
        return table
