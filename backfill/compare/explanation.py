"""What lies behind the outputs of one key: its events as the archive has them, and what stream and batch made of them.

archive of the inputs --the key's events--> how far each lay behind its bucket --|
archive of the outputs --last updates--|                                         |--> in order of event time
batch's outputs ----------------------------paired by category and event time----|

It reads the files itself: for one key, starting Spark would take longer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

import msgspec

from ...processors.declare.apps import App, AppName
from ...processors.declare.categories import AnyCategory
from ..archive.archived_rows import archive_schema
from ..errors import BackfillRefused
from ..warehouse.columns import MARKS, Columns
from ..warehouse.layout import Days
from ..warehouse.stored import StoredCategory
from ..warehouse.warehouse import Warehouse
from .keyed_records import DIFFERENT, ONLY_BATCH, ONLY_STREAM, Compared, judge_of, writers_of
from .record_difference import RecordComparer

EQUAL = "equal"

_plain = msgspec.to_builtins


class SeenEvent(NamedTuple):
    """An event of the key in an input.

    Args:
        category: which input.
        bucket: the bucket it lay in.
        offset: its offset there.
        arrived: when it came to the bus (milliseconds since 1970, UTC).
        event_time: when it happened (the same).
        behind_ms: how far its event time lay behind the newest of its bucket when it came; 0 for one that was the newest itself.
        record: what it says, as plain values.
    """

    category: str
    bucket: int
    offset: int
    arrived: int
    event_time: int
    behind_ms: int
    record: Any


class Outcome(NamedTuple):
    """What both sides have for the key at a time.

    Args:
        category: which output.
        event_time: the output's (milliseconds since 1970, UTC).
        verdict: "equal", "different", "only stream" or "only batch".
        stream: the stream's record, as plain values; None where it has none.
        batch: the batch's.
    """

    category: str
    event_time: int
    verdict: str
    stream: Any
    batch: Any


@dataclass(frozen=True)
class Explanation:
    """What was found of a key, both in order of event time.

    Args:
        events: the events of the inputs.
        outcomes: the outputs of both sides.
        more_events: whether there are later ones that were left out.
        more_outcomes: the same of outputs.
    """

    events: tuple[SeenEvent, ...]
    outcomes: tuple[Outcome, ...]
    more_events: bool
    more_outcomes: bool


def explain(
    app_name: AppName, archive: Warehouse, batch: Warehouse, key: str, days: Days, *, limit: int
) -> Explanation:
    """Find the events of a key and what came of them.

    Args:
        app_name: the app, or one processor of it.
        archive: the warehouse.
        batch: where the batch's output is.
        key: the key, of inputs and of outputs.
        days: the UTC days in which event times lie.
        limit: at most so many events, and so many outputs: the earliest.

    Raises:
        BackfillRefused: neither side has anything of the key in these days.
        WarehouseError: a file cannot be read.
    """
    app = app_name.load()
    events = _earliest(
        (event for category in _inputs(app) for event in _events(archive, category, key, days, limit)), limit
    )
    outcomes = _earliest(
        (
            outcome
            for category in _outputs(app)
            for outcome in _Outcomes(app_name, category, archive, batch, key).find(days, limit)
        ),
        limit,
    )
    if not events and not outcomes:
        raise BackfillRefused(
            f"Nothing has the key {key!r} from {days}: no event of an input of {app_name} in {archive.location}, and no output there or in "
            f"{batch.location}. Look whether the key is written as `penstock category tail` shows it, and the days are the right ones."
        )
    return Explanation(
        tuple(events[:limit]),
        tuple(outcomes[:limit]),
        more_events=len(events) > limit,
        more_outcomes=len(outcomes) > limit,
    )


def _inputs(app: App) -> list[AnyCategory]:
    return list({c.name: c for processor in app.processors for c in processor.inputs()}.values())


def _outputs(app: App) -> list[AnyCategory]:
    return list({c.name: c for processor in app.processors for c in processor.outputs()}.values())


def _earliest(found: Iterator[Any], limit: int) -> list[Any]:
    """Return the first ones in order of event time, and one more where there are more."""
    return sorted(found, key=lambda one: one.event_time)[: limit + 1]


def _events(archive: Warehouse, category: AnyCategory, key: str, days: Days, limit: int) -> list[SeenEvent]:
    """Return the earliest events of a key, day by day until there are enough."""
    columns = Columns(category.record)
    stored = StoredCategory.of(archive, category.name, archive_schema(columns))
    found: list[SeenEvent] = []
    for span in stored.spans(days):
        if len(found) > limit:
            break
        for batch in stored.read(span, key=key):
            found += [
                SeenEvent(
                    category.name, at["_bucket"], at["_offset"], at["_arrived"], at["_event_time"], 0, _plain(record)
                )
                for at, record in zip(batch.select(MARKS.names).to_pylist(), columns.records(batch), strict=True)
            ]
    found = sorted(found, key=lambda event: (event.event_time, event.bucket, event.offset))[: limit + 1]
    newest = _newest_before(stored, found)
    return [event._replace(behind_ms=max(newest[event.bucket, event.offset] - event.event_time, 0)) for event in found]


def _newest_before(stored: StoredCategory, events: Sequence[SeenEvent]) -> Mapping[tuple[int, int], int]:
    """Return the newest event time that each event's bucket had up to it, from the files in which a later one can lie."""
    last = {event.bucket: event.offset for event in sorted(events, key=lambda event: event.offset)}
    files = [file for file in stored.listing.files if file.segment <= last.get(file.bucket, -1)]
    marks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for batch in stored.read_files([*files, *stored.listing.others] if events else [], MARKS.names):
        for row in batch.to_pylist():
            marks[row["_bucket"]].append((row["_offset"], row["_event_time"]))
    return {place: newest for bucket in last for place, newest in _running(bucket, marks[bucket], events)}


def _running(
    bucket: int, marks: list[tuple[int, int]], events: Sequence[SeenEvent]
) -> Iterator[tuple[tuple[int, int], int]]:
    marks.sort()
    newest = list(accumulate((time for _, time in marks), max))
    offsets = [offset for offset, _ in marks]
    for event in events:
        if event.bucket == bucket:
            yield (bucket, event.offset), newest[bisect_left(offsets, event.offset)]


def _apart(spans: Sequence[Days]) -> list[Days]:
    """Return stretches of days of which none meets another, in order: those that do are one."""
    apart: list[Days] = []
    for span in sorted(spans):
        if apart and span.first <= apart[-1].last:
            apart[-1] = Days(apart[-1].first, max(apart[-1].last, span.last))
        else:
            apart.append(span)
    return apart


class _Outcomes:
    """The outputs of one category for one key, of both sides."""

    def __init__(
        self, app_name: AppName, category: AnyCategory, archive: Warehouse, batch: Warehouse, key: str
    ) -> None:
        self._category = category
        self._columns = Columns(category.record)
        self._key = key
        self._updates = True in writers_of(app_name.load(), category)
        self._judge: RecordComparer = judge_of(Compared(app_name, category.name))
        schema = archive_schema(self._columns)
        self._stream = StoredCategory.of(archive, category.name, schema)
        self._batch = StoredCategory.of(batch, category.name, schema)

    def find(self, days: Days, limit: int) -> list[Outcome]:
        found: list[Outcome] = []
        for span in _apart([*self._stream.spans(days), *self._batch.spans(days)]):
            if len(found) > limit:
                break
            stream, batch = self._of_days(self._stream, span), self._of_days(self._batch, span)
            for time in sorted({*stream, *batch}):
                ours = stream.get(time, [])[-1:] if self._updates else stream.get(time, [])
                found += [Outcome(self._category.name, time, *pair) for pair in self._pairs(ours, batch.get(time, []))]
        return found

    def _of_days(self, stored: StoredCategory, days: Days) -> Mapping[int, list[Any]]:
        """Return the records of each event time, in the order of the bus where they have one."""
        rows = []
        for batch in stored.read(days, key=self._key):
            marks = [batch.column(name).to_pylist() for name in ("_event_time", "_bucket", "_offset")]
            rows += list(zip(*marks, map(_plain, self._columns.records(batch)), strict=True))
        by_time = defaultdict(list)
        for time, _, _, record in sorted(rows, key=lambda row: (row[0], row[1] or 0, row[2] or 0)):
            by_time[time].append(record)
        return by_time

    def _pairs(self, stream: Sequence[Any], batch: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
        """Give equal records side by side, then what is left of both."""
        left = list(batch)
        unequal = []
        for ours in stream:
            same = next((at for at, theirs in enumerate(left) if not self._judge.differences(ours, theirs)), None)
            if same is None:
                unequal.append(ours)
            else:
                yield EQUAL, ours, left.pop(same)
        for one, other in zip_longest(unequal, left):
            yield ONLY_BATCH if one is None else ONLY_STREAM if other is None else DIFFERENT, one, other
