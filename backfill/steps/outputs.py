"""Outputs of a processor as rows in Spark.

A row has the output's key, its event time and day, and one struct column for each category that the processor writes. Only the column
of the output's own category is not null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from ...processors.declare.canonical import CanonicalForm
from ...processors.declare.processor import Processor
from ...processors.declare.record_check import RecordCheck
from ...processors.declare.routes import Routes, To
from ...processors.declare.tombstones import Tombstone
from ...processors.errors import ProcessorFailed
from ...processors.wording import counted
from ..spark.session import BATCH_EVENTS
from ..warehouse.columns import CONVERSION_ERRORS, DAY_COLUMN, OUTPUT_MARKS, Columns, days_of


def slot_of(number: int) -> str:
    """Return the name of the struct column of an output category, by its index in `outputs()`."""
    return f"_output_{number}"


class OutputRows:
    """The rows of one processor.

    Args:
        processor: its class.

    Raises:
        DeclarationError: the records of an output have no columns.
    """

    def __init__(self, processor: type[Processor]) -> None:
        self._routes = Routes(processor)
        self._columns = {category.name: Columns(category.record) for category in processor.outputs()}
        self._checks = {category.name: RecordCheck(category.record) for category in processor.outputs()}
        self._forms = {category.name: CanonicalForm(category.record) for category in processor.outputs()}
        self._structs = {name: pa.struct(list(columns.schema)) for name, columns in self._columns.items()}
        slots = [(slot_of(number), struct) for number, struct in enumerate(self._structs.values())]
        marks = [(field.name, field.type) for field in OUTPUT_MARKS]
        self.schema = pa.schema([*marks, (DAY_COLUMN, pa.string()), *slots])

    def batches(self, outputs: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """Yield outputs as rows.

        Raises:
            ProcessorFailed: an output does not fit its category.
        """
        for start in range(0, len(outputs), BATCH_EVENTS):
            part = outputs[start : start + BATCH_EVENTS]
            self.expect_no_tombstones(part)
            try:
                routed = self._routes.split(part)
                rows = [self._rows(category, records) for category, records in routed]
            except (TypeError, *CONVERSION_ERRORS) as error:
                raise ProcessorFailed(
                    f"An output of {self._routes.processor.__name__} does not fit its category: {error}. None "
                    "of its output was published. Correct the processor and run the backfill again."
                ) from error
            yield from rows

    def expect_no_tombstones(self, outputs: Sequence[Any]) -> None:
        """Raise ProcessorFailed for a tombstone: files of batch output contain only records."""
        for output in outputs:
            tombstone = output.record if type(output) is To else output
            if type(tombstone) is Tombstone:
                name = self._routes.processor.__name__
                raise ProcessorFailed(
                    f"{name} returned a tombstone of the key {tombstone.key!r}, and batch output contains only records. None of {name}'s output was "
                    "published. Let a worker process these events instead of a backfill; or write a record that marks the deletion, such as one with "
                    "a field `deleted`."
                )

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return columns of the only output category as rows.

        Raises:
            ProcessorFailed: the columns do not fit the category.
        """
        [category] = self._routes.processor.outputs()
        columns = self._columns[category.name]
        try:
            arrays = [_as(batch.column(field.name), field) for field in columns.schema]
        except (KeyError, *CONVERSION_ERRORS) as error:
            raise ProcessorFailed(
                f"The result of {self._routes.processor.__name__}.process_columns does not fit {category.name}, whose columns are "
                f"{', '.join(f'{field.name}: {field.type}' for field in columns.schema)}: {error}. None of it was published. Correct the processor "
                "and run the backfill again."
            ) from error
        rows = pa.RecordBatch.from_arrays(arrays, schema=columns.schema)
        if isinstance(category.key, str):
            keys = rows.column(category.key).cast(pa.string())
        else:
            keys = pa.array(category.keys_of(columns.records(rows)), pa.string())
        if category.times.column:
            times = rows.column(category.times.column)
        else:
            times = pa.array(category.event_times_of(columns.records(rows)), pa.int64())
        return self._as_rows(category.name, arrays, keys, times)

    def own(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the record columns of rows of the only category."""
        return pa.RecordBatch.from_struct_array(cast("pa.StructArray", rows.column(slot_of(0))))

    def _rows(self, category: Any, records: Sequence[Any]) -> pa.RecordBatch:
        records = self._forms[category.name].of(records)
        self._checks[category.name].expect(records)
        keys = pa.array(category.keys_of(records), pa.string())
        times = pa.array(category.event_times_of(records), pa.int64())
        return self._as_rows(category.name, self._columns[category.name].arrays(records), keys, times)

    def _as_rows(
        self, category: str, arrays: Sequence[pa.Array[Any]], keys: pa.Array[Any], times: pa.Array[Any]
    ) -> pa.RecordBatch:
        """Return rows with the marks of outputs and nulls in the columns of other categories."""
        own = pa.StructArray.from_arrays(arrays, fields=list(self._columns[category].schema))
        slots = [own if name == category else pa.nulls(len(times), struct) for name, struct in self._structs.items()]
        return pa.RecordBatch.from_arrays([keys, times, days_of(times), *slots], schema=self.schema)


def _as(column: pa.Array[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    if column.null_count and not field.nullable:
        raise pa.ArrowInvalid(f"{field.name} is null in {column.null_count} of {counted(len(column), 'output')}")
    fitted = column.cast(field.type)
    _expect_finite(field.name, fitted)
    return fitted


def _expect_finite(name: str, column: pa.Array[Any]) -> None:
    """Raise ArrowInvalid for NaN and infinite floats, at any depth."""
    kind = column.type
    if pa.types.is_floating(kind):
        not_finite = pc.invert(pc.is_finite(column)).true_count
        if not_finite:
            raise pa.ArrowInvalid(
                f"{name} is NaN or infinite in {not_finite} of {counted(len(column), 'output')}, and a float must be finite"
            )
    elif pa.types.is_struct(kind):
        for field, inner in zip(kind, cast("pa.StructArray", column).flatten(), strict=True):
            _expect_finite(f"{name}.{field.name}", inner)
    elif pa.types.is_list(kind):
        _expect_finite(name, cast("pa.ListArray[Any]", column).flatten())
    elif pa.types.is_map(kind):
        maps = cast("pa.MapArray[Any, Any]", column)
        _expect_finite(name, maps.items[maps.offsets[0].as_py() : maps.offsets[-1].as_py()])
