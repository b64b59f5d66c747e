"""Conversion of messages to archive rows. Messages without a row are returned with the reason."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...processors.declare.categories import AnyCategory
from ...processors.declare.codecs import Codec
from ...processors.errors import DeclarationError
from ...transport.messages import RawBatch, split_batch
from ..warehouse.columns import CONVERSION_ERRORS, ELEMENT, MARKS, Columns


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
        self._columns = Columns(category.record)
        self.schema = archive_schema_of(category)

    def of(self, batch: RawBatch) -> RowBatch:
        """Return the rows of messages."""
        batch = split_batch(self._codec, batch)
        offsets, arrived = batch.offsets(), batch.arrivals_ms()
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
        marks: list[Sequence[Any]] = [
            [batch.bucket.number] * len(events),
            [offsets[place] for place in at],
            _keys_of(self._category, events),
            self._category.event_times_of(events),
            arrived[at].tolist(),
        ]
        if self._category.splits_messages:
            marks.append([place - bisect_left(offsets, offsets[place]) for place in at])
        fields = list(self.schema)[len(arrays) :]
        marked = [pa.array(values, field.type) for values, field in zip(marks, fields, strict=True)]
        excluded = [ExcludedEvent(offsets[place], reason) for place, reason in sorted(reasons.items())]
        return RowBatch(pa.RecordBatch.from_arrays([*arrays, *marked], schema=self.schema), excluded)

    def _unfit(self, events: Sequence[object]) -> Iterator[tuple[int, str]]:
        for index, event in enumerate(events):
            try:
                self._columns.arrays([event])
            except CONVERSION_ERRORS as error:
                yield index, f"a value exceeds its column: {error}"


def archive_schema(columns: Columns) -> pa.Schema:
    """Return the columns of an archived category: its record's, and the origin of each event."""
    return pa.schema([*columns.schema, *MARKS])


def archive_schema_of(category: AnyCategory) -> pa.Schema:
    """Return the same for a category, with the number of each event in its message if a message may contain several."""
    schema = archive_schema(Columns(category.record))
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
