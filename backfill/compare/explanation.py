"""Explanation of one key's outputs: its archived input events, and the outputs of stream and batch.

archived inputs --events of the key--> lateness of each within its bucket --|
archived outputs --last updates--|                                          |--> in order of event time
batch outputs -------------------paired by category and event time----------|

It reads the files directly: starting Spark would take longer for one key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from ...processors.apps import App, AppName
from ...processors.declare import AnyCategory, plan_of
from ...processors.models import encode_model
from ..archive import archive_schema
from ..errors import BackfillRefused
from ..warehouse import MARKS, Days, RecordColumns, StoredCategory, Warehouse
from .comparer import RecordComparer, RecordPair, writes_updates
from .summary import by_time_and_key


class ExplainedEvent(NamedTuple):
    """An input event of the key.

    Args:
        category: the input.
        bucket: the number of its bucket.
        offset: its offset in the bucket.
        arrived: when the bus received it (milliseconds since 1970, UTC).
        event_time: its event time (likewise).
        behind_ms: how far its event time was behind the newest of its bucket on arrival; 0 for the newest itself.
        record: the event as plain values.
    """

    category: str
    bucket: int
    offset: int
    arrived: int
    event_time: int
    behind_ms: int
    record: Any


class ExplainedOutput(NamedTuple):
    """The outputs of both sides for the key at one event time.

    Args:
        category: the output.
        pair: the stream's record and the batch's record.
    """

    category: str
    pair: RecordPair


@dataclass(frozen=True)
class DifferenceExplanation:
    """The events and outputs of a key, both in order of event time.

    Args:
        events: the events of the inputs.
        outputs: the outputs of both sides.
        more_events: whether later events were omitted.
        more_outputs: whether later outputs were omitted.
    """

    events: tuple[ExplainedEvent, ...]
    outputs: tuple[ExplainedOutput, ...]
    more_events: bool
    more_outputs: bool


def explain(
    app_name: AppName, archive: Warehouse, batch: Warehouse, key: str, days: Days, *, limit: int
) -> DifferenceExplanation:
    """Find the events and outputs of a key.

    Args:
        app_name: the app, or one processor of it.
        archive: the warehouse.
        batch: the location of the batch output.
        key: the key of the inputs and outputs.
        days: the UTC days of the event times.
        limit: the greatest number of events, and of outputs; the earliest are returned.

    Raises:
        BackfillRefused: neither side has a record of the key in these days.
        WarehouseError: a file cannot be read.
    """
    app = app_name.load()
    events = sorted(
        chain.from_iterable(_events(archive, category, key, days, limit) for category in _inputs(app)),
        key=lambda event: event.event_time,
    )
    outputs = sorted(
        chain.from_iterable(
            _Outputs(app, category, archive, batch, key).find(days, limit) for category in _outputs(app)
        ),
        key=lambda output: by_time_and_key(output.pair),
    )
    if not events and not outputs:
        raise BackfillRefused(
            f"No record from {days} has the key {key!r}: no input event of {app_name} in {archive.location}, and no output there or in "
            f"{batch.location}. Check the days, and that the key is written as `penstock category tail` shows it."
        )
    return DifferenceExplanation(
        tuple(events[:limit]),
        tuple(outputs[:limit]),
        more_events=len(events) > limit,
        more_outputs=len(outputs) > limit,
    )


def _inputs(app: App) -> list[AnyCategory]:
    return list({c.name: c for processor in app.processors for c in plan_of(processor).sources}.values())


def _outputs(app: App) -> list[AnyCategory]:
    return list({c.name: c for processor in app.processors for c in plan_of(processor).outputs}.values())


def _events(archive: Warehouse, category: AnyCategory, key: str, days: Days, limit: int) -> list[ExplainedEvent]:
    """Return the earliest events of a key, and one more than the limit if there are more."""
    columns = RecordColumns(category.record)
    stored = StoredCategory.of(archive, category.name, archive_schema(columns))
    found: list[ExplainedEvent] = []
    for span in stored.spans(days):
        if len(found) > limit:
            break
        for batch in stored.read(span, key=key):
            found += _events_in(category.name, columns, batch)
    found = sorted(found, key=lambda event: (event.event_time, event.bucket, event.offset))[: limit + 1]
    newest = _newest_before(stored, found)
    return [event._replace(behind_ms=max(newest[event.bucket, event.offset] - event.event_time, 0)) for event in found]


def _events_in(category: str, columns: RecordColumns, batch: pa.RecordBatch) -> Iterator[ExplainedEvent]:
    marks = batch.select(MARKS.names).to_pylist()
    for mark, record in zip(marks, columns.records(batch), strict=True):
        position = mark["_bucket"], mark["_offset"], mark["_arrived"], mark["_event_time"]
        yield ExplainedEvent(category, *position, 0, msgspec.to_builtins(record, enc_hook=encode_model))


def _newest_before(stored: StoredCategory, events: Sequence[ExplainedEvent]) -> Mapping[tuple[int, int], int]:
    """Return the newest event time of each event's bucket up to its offset, by bucket and offset."""
    last = {event.bucket: event.offset for event in sorted(events, key=lambda event: event.offset)}
    files = [file for file in stored.listing.files if file.segment <= last.get(file.bucket, -1)]
    marks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for batch in stored.read_files([*files, *stored.listing.others] if events else [], MARKS.names):
        for row in batch.to_pylist():
            marks[row["_bucket"]].append((row["_offset"], row["_event_time"]))
    newest = {bucket: _RunningMaximum(marks[bucket]) for bucket in last}
    return {(event.bucket, event.offset): newest[event.bucket].at(event.offset) for event in events}


class _RunningMaximum:
    """The newest event time of a bucket by offset."""

    def __init__(self, marks: list[tuple[int, int]]) -> None:
        marks.sort()
        self._offsets = [offset for offset, _ in marks]
        self._newest = list(accumulate((time for _, time in marks), max))

    def at(self, offset: int) -> int:
        return self._newest[bisect_left(self._offsets, offset)]


def _merged(spans: Sequence[Days]) -> list[Days]:
    """Merge overlapping ranges of days."""
    merged: list[Days] = []
    for span in sorted(spans):
        if merged and span.first <= merged[-1].last:
            merged[-1] = Days(merged[-1].first, max(merged[-1].last, span.last))
        else:
            merged.append(span)
    return merged


class _Outputs:
    """The outputs of one category for one key, of both sides."""

    def __init__(self, app: App, category: AnyCategory, archive: Warehouse, batch: Warehouse, key: str) -> None:
        self._category = category
        self._columns = RecordColumns(category.record)
        self._key = key
        self._updates = any(writes_updates(processor, category.name) for processor in app.processors)
        self._comparer = RecordComparer.of(category, app.processors)
        schema = archive_schema(self._columns)
        self._stream = StoredCategory.of(archive, category.name, schema)
        self._batch = StoredCategory.of(batch, category.name, schema)

    def find(self, days: Days, limit: int) -> list[ExplainedOutput]:
        """Return the earliest outputs, and at least one more than the limit if there are more."""
        found: list[ExplainedOutput] = []
        for span in _merged([*self._stream.spans(days), *self._batch.spans(days)]):
            if len(found) > limit:
                break
            stream, batch = self._by_time(self._stream, span), self._by_time(self._batch, span)
            for time in sorted({*stream, *batch}):
                records = stream.get(time, [])[-1:] if self._updates else stream.get(time, [])
                pairs = self._comparer.pairs(self._key, time, records, batch.get(time, []))
                found += [ExplainedOutput(self._category.name, pair) for pair in pairs]
        return found

    def _by_time(self, stored: StoredCategory, days: Days) -> Mapping[int, list[Any]]:
        """Return the records of each event time, in order of offset if they have one."""
        rows = []
        for batch in stored.read(days, key=self._key):
            marks = [batch.column(name).to_pylist() for name in ("_event_time", "_bucket", "_offset")]
            rows += list(
                zip(
                    *marks,
                    (msgspec.to_builtins(record, enc_hook=encode_model) for record in self._columns.records(batch)),
                    strict=True,
                )
            )
        by_time = defaultdict(list)
        for time, _, _, record in sorted(rows, key=lambda row: (row[0], row[1] or 0, row[2] or 0)):
            by_time[time].append(record)
        return by_time
