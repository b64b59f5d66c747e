"""What a processor's step leaves behind in Spark: rows that say which category each output belongs to.

A row has the output's key, its event time and day, and one struct column for each category that the processor writes; all of
them are null but the output's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..processors.errors import ProcessorFailed
from ..processors.kinds import Processor
from ..processors.routes import Routes
from .columns import DAY_COLUMN, MARKS, UNFIT, Columns
from .layout import day_of
from .session import BATCH_EVENTS

OUTPUT_MARKS = pa.schema([MARKS.field("_key"), MARKS.field("_event_time")])
"""What the output of a batch run has beside its record's columns."""


def slot_of(number: int) -> str:
    """Return the name of the struct column of a processor's output category, by its place in `outputs()`."""
    return f"_output_{number}"


class OutputRows:
    """The rows of one processor.

    Args:
        processor: its class.

    Raises:
        DeclarationError: an output whose records have no columns.
    """

    def __init__(self, processor: type[Processor]) -> None:
        self._routes = Routes(processor)
        self._columns = {category.name: Columns(category.record) for category in processor.outputs()}
        self._structs = {name: pa.struct(list(columns.schema)) for name, columns in self._columns.items()}
        slots = [(slot_of(number), struct) for number, struct in enumerate(self._structs.values())]
        marks = [(field.name, field.type) for field in OUTPUT_MARKS]
        self.schema = pa.schema([*marks, (DAY_COLUMN, pa.string()), *slots])

    def batches(self, outputs: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Give outputs as rows.

        Raises:
            ProcessorFailed: an output that its category cannot take.
        """
        for start in range(0, len(outputs), BATCH_EVENTS):
            part = outputs[start : start + BATCH_EVENTS]
            try:
                routed = self._routes.split(part)
                rows = [self._rows(category, records) for category, records in routed]
            except (TypeError, *UNFIT) as error:
                raise ProcessorFailed(
                    f"An output of {self._routes.processor.__name__} does not fit the category it goes to: {error}. Nothing "
                    "of it was published; mend the processor and run the backfill again."
                ) from error
            yield from rows

    def _rows(self, category: Any, records: Sequence[Any]) -> pa.RecordBatch:
        times = category.event_times_of(records)
        columns = self._columns[category.name]
        own = pa.StructArray.from_arrays(columns.arrays(records), fields=list(columns.schema))
        slots = [
            own if name == category.name else pa.nulls(len(records), struct) for name, struct in self._structs.items()
        ]
        marks: list[pa.Array[Any]] = [pa.array(category.keys_of(records), pa.string()), pa.array(times, pa.int64())]
        days = pa.array([day_of(time) for time in times], pa.string())
        return pa.RecordBatch.from_arrays([*marks, days, *slots], schema=self.schema)
