"""Outputs of a processor as rows in Spark.

A row has the output's key, its event time, and one struct column for each category and sink that the processor writes. Only the
column of the output's own category or sink is not null.

Rows of a sink have neither a key nor an event time. Their time is their number in the worker process, so that rows of one task keep their order.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, islice
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from ...processors import ProcessorFailed, counted
from ...processors.declare import (
    CanonicalForm,
    Destination,
    EventTimes,
    Processor,
    RecordCheck,
    Routes,
    Sink,
    To,
    Tombstone,
    expect_unit_of_outputs,
    only_time_of,
    plan_of,
)
from ..errors import BackfillRefused
from ..spark import BATCH_EVENTS
from ..warehouse import CONVERSION_ERRORS, OUTPUT_MARKS, RecordColumns


def slot_of(number: int) -> str:
    """Return the name of the struct column of a category or sink, by its index in `destinations()`."""
    return f"_output_{number}"


def name_in_batch(destination: Destination) -> str:
    """Return the name of a category or sink in the layout of a warehouse, which allows no spaces or slashes."""
    if not isinstance(destination, Sink):
        return destination.name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", destination.name).strip("-")


def times_in_batch(destination: Destination) -> EventTimes:
    """Return the event times by which outputs are in a range of days.

    Raises:
        BackfillRefused: the rows of a sink do not have exactly one time.
    """
    if not isinstance(destination, Sink):
        return destination.times
    times = only_time_of(destination.name, destination.record)
    if times is None:
        raise BackfillRefused(
            f"Some rows for {destination.name} appear without an event, as event time passes, so only a time in them says to which day they belong; and "
            f"{destination.record_name} does not have exactly one field of type penstock.EventTime or datetime. Nothing was started. Declare one; or write "
            "the results to a category, and let a stateless processor copy it to the sink."
        )
    return times


@dataclass(frozen=True)
class _Written:
    """What a processor writes to one category or sink.

    Args:
        destination: the category or sink.
        columns: the columns of its records.
        check: checks the values of a record.
        form: how records are written.
        numbers: the numbers of the rows of a sink.
        has_known_unit: whether the unit of its first event times has been checked.
    """

    destination: Destination
    columns: RecordColumns
    check: RecordCheck
    form: CanonicalForm
    numbers: Iterator[int]
    has_known_unit: bool = False

    @staticmethod
    def of(destination: Destination) -> _Written:
        """Return what is written to a category or sink.

        Raises:
            DeclarationError: its records have no columns.
        """
        record = destination.record
        return _Written(destination, RecordColumns(record), RecordCheck(record), CanonicalForm(record), count())

    def marks(self, records: Sequence[Any]) -> tuple[pa.Array[Any], pa.Array[Any]]:
        """Return the keys and the event times of records."""
        if isinstance(self.destination, Sink):
            return self._numbered(len(records))
        keys, times = self.destination.keys_of(records), self.destination.event_times_of(records)
        return pa.array(keys, pa.string()), pa.array(times, pa.int64())

    def marks_of_columns(self, rows: pa.RecordBatch) -> tuple[pa.Array[Any], pa.Array[Any]]:
        """Return the keys and the event times of records in columns."""
        category = self.destination
        if isinstance(category, Sink):
            return self._numbered(rows.num_rows)
        if isinstance(category.key, str):
            keys = rows.column(category.key).cast(pa.string())
        else:
            keys = pa.array(category.keys_of(self.columns.records(rows)), pa.string())
        if category.times.column:
            return keys, rows.column(category.times.column)
        return keys, pa.array(category.event_times_of(self.columns.records(rows)), pa.int64())

    def _numbered(self, rows: int) -> tuple[pa.Array[Any], pa.Array[Any]]:
        return pa.array([""] * rows, pa.string()), pa.array(islice(self.numbers, rows), pa.int64())


class OutputRows:
    """The rows of one processor.

    Args:
        processor: its class.

    Raises:
        DeclarationError: the records of an output have no columns.
    """

    def __init__(self, processor: type[Processor]) -> None:
        self._routes = Routes(processor)
        self._written = {each.name: _Written.of(each) for each in plan_of(processor).destinations}
        structs = (pa.struct(list(written.columns.schema)) for written in self._written.values())
        self._structs = dict(zip(self._written, structs, strict=True))
        slots = [(slot_of(number), struct) for number, struct in enumerate(self._structs.values())]
        marks = [(field.name, field.type) for field in OUTPUT_MARKS]
        self.schema = pa.schema([*marks, *slots])

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
                rows = [self._rows(destination.name, records) for destination, records in routed]
            except (TypeError, ValueError, *CONVERSION_ERRORS) as error:
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

    def times_of(self, outputs: Sequence[Any]) -> Iterator[int]:
        """Return the event time of each output (milliseconds since 1970, UTC), for `times_in_batch`."""
        return (
            self._times[destination.name].of_one(record) for destination, record in map(self._routes.route, outputs)
        )

    @cached_property
    def _times(self) -> dict[str, EventTimes]:
        return {
            destination.name: times_in_batch(destination)
            for destination in plan_of(self._routes.processor).destinations
        }

    def of_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return columns of the only output category or sink as rows.

        Raises:
            ProcessorFailed: the columns do not fit the category.
        """
        [(name, written)] = self._written.items()
        columns = written.columns
        try:
            arrays = [_as(batch.column(field.name), field) for field in columns.schema]
        except (KeyError, *CONVERSION_ERRORS) as error:
            raise ProcessorFailed(
                f"The result of {self._routes.processor.__name__}.process_columns does not fit {name}, whose columns are "
                f"{', '.join(f'{field.name}: {field.type}' for field in columns.schema)}: {error}. None of it was published. Correct the processor "
                "and run the backfill again."
            ) from error
        rows = pa.RecordBatch.from_arrays(arrays, schema=columns.schema)
        keys, times = written.marks_of_columns(rows)
        return self._as_rows(name, arrays, keys, times)

    def own(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the record columns of rows of the only category."""
        return pa.RecordBatch.from_struct_array(cast("pa.StructArray", rows.column(slot_of(0))))

    def _rows(self, name: str, records: Sequence[Any]) -> pa.RecordBatch:
        written = self._written[name]
        records = written.form.of(records)
        written.check.expect(records)
        if not (written.has_known_unit or isinstance(written.destination, Sink)):
            now_ms = time.time_ns() // 1_000_000
            expect_unit_of_outputs(self._routes.processor, written.destination, records, now_ms)
            self._written[name] = replace(written, has_known_unit=True)
        with written.check.naming_text(records):
            keys, times = written.marks(records)
            return self._as_rows(name, written.columns.arrays(records), keys, times)

    def _as_rows(
        self, name: str, arrays: Sequence[pa.Array[Any]], keys: pa.Array[Any], times: pa.Array[Any]
    ) -> pa.RecordBatch:
        """Return rows with the marks of outputs, and nulls in the columns of other categories and sinks."""
        own = pa.StructArray.from_arrays(arrays, fields=list(self._written[name].columns.schema))
        slots = [own if other == name else pa.nulls(len(times), struct) for other, struct in self._structs.items()]
        return pa.RecordBatch.from_arrays([keys, times, *slots], schema=self.schema)


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
