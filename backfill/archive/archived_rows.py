"""Conversion of messages to archive rows. Messages without a row are returned with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...processors import DeclarationError
from ...processors.declare import AnyCategory, Codec, ColumnCodec, ColumnEvents, needed_columns
from ...processors.time import Times
from ...transport import RawBatch, split_batch
from ..warehouse import CONVERSION_ERRORS, ELEMENT, MARKS, RecordColumns


class ExcludedEvent(NamedTuple):
    """An event without a row.

    Args:
        offset: its offset.
        reason: why, in words.
    """

    offset: int
    reason: str


class RowBatch(NamedTuple):
    """The rows of messages.

    Args:
        batch: a row for each event.
        excluded: the events without a row, in order.
    """

    batch: pa.RecordBatch
    excluded: Sequence[ExcludedEvent]


class ArchivedRows:
    """Converts one category's messages to rows.

    Args:
        category: the declaration.
        codec: decodes the messages.

    Raises:
        DeclarationError: the records have no columns.
    """

    def __init__(self, category: AnyCategory, codec: Codec) -> None:
        self._category = category
        self._codec = codec
        self._columns = RecordColumns(category.record)
        self._names = () if category.splits_messages else needed_columns(category, None) or ()
        self.schema = archive_schema_of(category)

    def of(self, batch: RawBatch) -> RowBatch:
        """Return the rows of messages."""
        events = self._as_columns(batch)
        if events is not None:
            return RowBatch(self._marked(batch, events.columns.columns, events.key_array, events.time_array), ())
        return self._of_records(split_batch(self._codec, batch))

    def _as_columns(self, batch: RawBatch) -> ColumnEvents | None:
        """Return the events of a batch as columns; None where the records are needed."""
        codec = self._codec
        if not self._names or not isinstance(codec, ColumnCodec):
            return None
        columns = codec.decode_columns(batch.messages, self._names)
        if columns is None or not _are_alike(columns.schema, self._columns.schema):
            return None
        events = ColumnEvents(
            self._category, columns, lambda begin, end: codec.decode(batch.messages[begin:end]).events
        )
        return events if events.has_keys and not events.key_array.null_count else None

    def _of_records(self, batch: RawBatch) -> RowBatch:
        """Return the rows of messages by their records."""
        offsets = batch.offsets()
        decoded = self._codec.decode(batch.messages)
        events, at = decoded.events, list(decoded.at)
        reasons = {bad.at: bad.reason for bad in decoded.bad}
        try:
            arrays = self._columns.arrays(events)
        except CONVERSION_ERRORS:
            unfit = dict(self._unfit(events))
            reasons |= {at[index]: reason for index, reason in unfit.items()}
            at = [place for index, place in enumerate(at) if index not in unfit]
            events = [event for index, event in enumerate(events) if index not in unfit]
            arrays = self._columns.arrays(events)
        keys, times = _keys_of(self._category, events), self._category.event_times_of(events)
        excluded = [ExcludedEvent(offsets[place], reason) for place, reason in sorted(reasons.items())]
        return RowBatch(self._marked(batch, arrays, keys, times, at), excluded)

    def _marked(
        self,
        batch: RawBatch,
        arrays: Sequence[pa.Array[Any]],
        keys: Sequence[str | None] | pa.Array[Any],
        times: Sequence[int] | Times,
        at: Sequence[int] | None = None,
    ) -> pa.RecordBatch:
        """Return columns with the origin of each event.

        Args:
            batch: the messages.
            arrays: the fields of the events.
            keys: the keys of the events.
            times: the times of the events.
            at: the index of each event's message; None if each message is one event.
        """
        offsets, arrived = np.asarray(batch.offsets(), np.int64), batch.arrivals_ms()
        if at is not None:
            first = offsets.searchsorted(offsets)
            elements, offsets, arrived = (np.arange(len(offsets)) - first)[at], offsets[at], arrived[at]
        marks = [np.full(len(offsets), batch.bucket.number), offsets, keys, times, arrived]
        if self._category.splits_messages:
            marks.append(elements)
        fields = list(self.schema)[len(arrays) :]
        marked = [pa.array(values, field.type) for values, field in zip(marks, fields, strict=True)]
        return pa.RecordBatch.from_arrays([*arrays, *marked], schema=self.schema)

    def _unfit(self, events: Sequence[object]) -> Iterator[tuple[int, str]]:
        for index, event in enumerate(events):
            try:
                self._columns.arrays([event])
            except CONVERSION_ERRORS as error:
                yield index, f"a value exceeds its column: {error}"


def _are_alike(found: pa.Schema, declared: pa.Schema) -> bool:
    """Return whether two schemas have the same names and types."""
    return found.names == declared.names and found.types == declared.types


def archive_schema(columns: RecordColumns) -> pa.Schema:
    """Return the columns of an archived category: its record's, and the origin of each event."""
    return pa.schema([*columns.schema, *MARKS])


def archive_schema_of(category: AnyCategory) -> pa.Schema:
    """Return the same for a category, with the number of each event in its message if a message may contain several."""
    schema = archive_schema(RecordColumns(category.record))
    return schema.append(ELEMENT) if category.splits_messages else schema


def _keys_of(category: AnyCategory, events: Sequence[object]) -> list[str | None]:
    """Return the key of each event; None if its key function raises."""
    try:
        return list(category.keys_of(events))
    except DeclarationError:
        return [_key_of(category, event) for event in events]


def _key_of(category: AnyCategory, event: object) -> str | None:
    try:
        return category.keys_of([event])[0]
    except DeclarationError:
        return None
