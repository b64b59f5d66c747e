"""An aggregator's results over time, from two sources as if from one: days that are complete from the batch, the rest from the stream.

    archive's marks of complete days --which days--> batch's files   --|
                                     --the others--> the live result --|--> each key and time once, in order of time

The live result is what a remote store holds, or, of state that lies beside the workers, the last record of each key and event time on
the bus.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal, NamedTuple

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor
from ...processors.errors import DeclarationError
from ...processors.time.timestamp_validation import nearest
from ...processors.time.windows import MILLISECOND, GlobalWindow
from ...state.remote import RemoteResults
from ...transport.bus import Bus
from ...transport.codecs.by_category import Codecs
from ...transport.messages import Bucket, Position
from ..archive.archived_rows import archive_schema
from ..errors import BackfillRefused
from ..warehouse.columns import MARKS, Columns
from ..warehouse.layout import Days, day_of
from ..warehouse.stored import StoredCategory
from ..warehouse.warehouse import Warehouse

_LOG = logging.getLogger("penstock.query")
_AHEAD = timedelta(days=1)
"""How far an event time may lie ahead of its arrival for its result still to be looked for on the bus."""
_ALL = 2**31 - 1

HybridSource = tuple[str, int]
StreamSide = Callable[[int], Mapping[HybridSource, Any]]
"""Gives the record of each key and event time, at least of those from a time on (milliseconds since 1970, UTC)."""


class Result(NamedTuple):
    """A result of a key and time.

    Args:
        key: the record's key.
        event_time: its event time (milliseconds since 1970, UTC).
        record: the record.
        source: where it is from.
    """

    key: str
    event_time: int
    record: Any
    source: Literal["batch", "live"]


@dataclass(frozen=True)
class BatchSide:
    """What the batch has, and how far it is to be trusted.

    Args:
        archive: the warehouse, whose days may be marked complete.
        output: where the batch's output is.
        until: also days up to this one count as complete; None for only those that are marked.
    """

    archive: Warehouse
    output: Warehouse
    until: date | None = None


def expect_results(name: str, processor: type[Processor]) -> type[Aggregator]:
    """Return a processor that has results that can be put together.

    Args:
        name: what the user calls it.
        processor: its class.

    Raises:
        DeclarationError: it is no aggregator, or none that writes whole results.
    """
    if not issubclass(processor, Aggregator):
        raise DeclarationError(
            f"{name} is not an aggregator, so it has no results by key and window. Name one as APP.py:PROCESSOR."
        )
    if not processor.writes or processor.emit.differences:
        why = (
            "writes differences, not results"
            if processor.writes
            else "writes no category, so that a backfill has no results of it"
        )
        raise DeclarationError(
            f"{name} {why}. For a hybrid query it has to write its results whole (`writes = …`, `differences=False`)."
        )
    return processor


def hybrid_results(
    processor: type[Aggregator], batch: BatchSide, live: StreamSide, days: Days, key: str | None = None
) -> list[Result]:
    """Return an aggregator's results whose event times lie in some days, in order of event time and key.

    A day is taken from the batch where the batch has something of it, and the inputs' days are complete up to where the last window ends
    that holds a moment of it. So a backfill has to run when its days are complete, not before.

    Args:
        processor: the aggregator, as `expect_results` takes it.
        batch: where the batch's results are, and which count.
        live: what gives the others; it is asked only where there are others.
        days: the UTC days.
        key: only this key; None for all.

    Raises:
        BackfillRefused: the batch has nothing of the aggregator at all.
        WarehouseError: a file cannot be read.
    """
    category = processor.outputs()[0]
    stored = StoredCategory.of(batch.output, category.name, archive_schema(Columns(category.record)))
    if not stored.listing.all_files:
        raise BackfillRefused(
            f"{batch.output.location} has no {category.name}, the output of {processor.__name__}. Run the backfill first (penstock backfill), "
            "or name where it wrote with --output."
        )
    complete = _Complete(processor, batch)
    there = {day for span in stored.spans(days) for day in span.names()}
    finished = [day for day in days.names() if day in there and complete.has(day)]
    found = list(_of_batch(stored, category, finished, key))
    others = [day for day in days.names() if day not in finished]
    if others:
        found += _of_live(live, days, frozenset(others), key)
    return sorted(found, key=lambda result: (result.event_time, result.key))


class _Complete:
    """Which days of an aggregator's results can change no more."""

    def __init__(self, processor: type[Aggregator], batch: BatchSide) -> None:
        self._processor = processor
        self._until = batch.until
        self._inputs = [StoredCategory.of(batch.archive, category.name, MARKS) for category in processor.inputs()]

    def has(self, day: str) -> bool:
        reached = self._reached_from(day)
        return reached is not None and all(map(self._archived, reached))

    def _archived(self, day: str) -> bool:
        by_word = self._until is not None and day <= str(self._until)
        return by_word or all(category.is_complete(day) for category in self._inputs)

    def _reached_from(self, day: str) -> Sequence[str] | None:
        """Return the days into which windows reach that hold a moment of a day; None where one has no end."""
        only = Days.of(day, day)
        if isinstance(self._processor.window, GlobalWindow):
            return None
        if self._processor.windows_follow_events():
            return [day]  # their results have the times of their ends
        start = max(self._processor.window.spread([only.end_ms - 1]).starts)
        return Days.of(day, day_of(self._processor.window.window(start).end - 1)).names()


def _of_batch(stored: StoredCategory, category: AnyCategory, days: Sequence[str], key: str | None) -> Iterator[Result]:
    columns = Columns(category.record)
    for day in days:
        for batch in stored.read(Days.of(day, day), key=key):
            records = columns.records(batch)
            marks = zip(category.keys_of(records), category.event_times_of(records), strict=True)
            yield from (Result(*place, record, "batch") for place, record in zip(marks, records, strict=True))


def _of_live(live: StreamSide, within: Days, days: frozenset[str], key: str | None) -> Iterator[Result]:
    first = Days.of(min(days), min(days)).start_ms
    for (of_key, time), record in live(first).items():
        if within.holds(time) and day_of(time) in days and key in (None, of_key):
            yield Result(of_key, time, record, "live")


def live_from_store(results: RemoteResults, processor: type[Aggregator]) -> StreamSide:
    """Return what asks a remote store: its results, made records by the aggregator itself."""
    category = processor.outputs()[0]

    def live(since_ms: int) -> Mapping[HybridSource, Any]:
        aggregator = processor()
        aggregator.open()
        made = (aggregator.result(key, window, value) for key, window, value in results.scan(_ALL))
        return _by_place(category, [record for record in made if record is not None], since_ms)

    return live


def live_from_bus(connect: Callable[[], Bus], category: AnyCategory) -> StreamSide:
    """Return what reads a category from shortly before a time to its end as of now: the last record of each key and event time.

    Args:
        connect: gives the bus; called when it is needed.
        category: the aggregator's output.
    """

    def live(since_ms: int) -> Mapping[HybridSource, Any]:
        bus = connect()
        since = nearest(max(since_ms - _AHEAD // MILLISECOND, 0))
        starts = bus.catalog.at_time(category.name, since)
        scanner = bus.scanner([Position(Bucket(category.name, number), offset) for number, offset in starts.items()])
        codec, left = Codecs(bus).of(category), set(starts)
        found: dict[HybridSource, Any] = {}
        try:
            while left:
                polled = scanner.poll(0.2)
                for batch in polled.batches:
                    decoded = codec.decode(batch.values())
                    if decoded.bad:
                        _LOG.warning("%s: %d messages do not decode and were left out", batch.bucket, len(decoded.bad))
                    found.update(_by_place(category, decoded.events, since_ms))
                left -= {end.bucket.number for end in polled.ended}
        finally:
            scanner.close()
        return found

    return live


def _by_place(category: AnyCategory, records: Sequence[Any], since_ms: int) -> Mapping[HybridSource, Any]:
    """Return records by key and event time, of which the last counts."""
    places = zip(category.keys_of(records), category.event_times_of(records), strict=True)
    return {place: record for place, record in zip(places, records, strict=True) if place[1] >= since_ms}
