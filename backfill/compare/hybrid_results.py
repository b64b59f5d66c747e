"""Hybrid results of an aggregator: complete days from the batch output, the other days from the stream.

    archive's marks --complete days--> batch output  --|
                    --other days-----> live results  --|--> each key and time once, in order of time

Live results come from a remote store, or, for local state, from the last record of each key and event time on the bus.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal, NamedTuple

from ...processors import DeclarationError, counted
from ...processors.declare import Aggregator, AnyCategory, Processor, plan_of
from ...processors.time import MILLISECOND, GlobalWindow, nearest_datetime
from ...state.remote import RemoteResults
from ...transport import Bus, old_transactions, ranges_to_end, read_offset_ranges
from ...transport.codecs import Codecs
from ..archive import archive_schema
from ..errors import BackfillRefused
from ..warehouse import MARKS, Days, RecordColumns, StoredCategory, Warehouse, day_of

_LOG = logging.getLogger("penstock.query")
_AHEAD = timedelta(days=1)
"""How far an event time may be after its arrival for its result to be found on the bus."""
_ALL = 2**31 - 1

HybridSource = tuple[str, int]
StreamSide = Callable[[int], Mapping[HybridSource, Any]]
"""Returns the record of each key and event time, at least from a time on (milliseconds since 1970, UTC)."""


class HybridResult(NamedTuple):
    """A result of a key and event time.

    Args:
        key: the record's key.
        event_time: its event time (milliseconds since 1970, UTC).
        record: the record.
        source: its origin.
    """

    key: str
    event_time: int
    record: Any
    source: Literal["batch", "live"]


@dataclass(frozen=True)
class BatchSide:
    """The batch output and its complete days.

    Args:
        archive: the warehouse with the marks of complete days.
        output: the location of the batch output.
        until: days up to this one also count as complete; None for marked days only.
    """

    archive: Warehouse
    output: Warehouse
    until: date | None = None


def expect_results(name: str, processor: type[Processor]) -> type[Aggregator]:
    """Return an aggregator with complete results.

    Args:
        name: the processor's name in the command.
        processor: its class.

    Raises:
        DeclarationError: it is no aggregator, or it does not write complete results.
    """
    if not issubclass(processor, Aggregator):
        raise DeclarationError(
            f"{name} is not an aggregator, so it has no results by key and window. Name one as APP.py:PROCESSOR."
        )
    if not processor.writes or processor.emit.differences:
        reason = "writes differences instead of results" if processor.writes else "writes no category"
        raise DeclarationError(
            f"{name} {reason}. A hybrid query needs an aggregator that writes complete results (`writes = …`, `differences=False`)."
        )
    return processor


def hybrid_results(
    processor: type[Aggregator], batch: BatchSide, live: StreamSide, days: Days, key: str | None = None
) -> list[HybridResult]:
    """Return the results of an aggregator for days of event time, in order of event time and key.

    A day comes from the batch if the batch has results of it and its inputs are complete up to the end of the last window that overlaps
    it. Run a backfill only after its days are complete.

    Args:
        processor: an aggregator that `expect_results` accepts.
        batch: the batch output and its complete days.
        live: returns the live results; called only if there are other days.
        days: the UTC days.
        key: only this key; None for all.

    Raises:
        BackfillRefused: the batch output has no category of the aggregator.
        WarehouseError: a file cannot be read.
    """
    category = plan_of(processor).outputs[0]
    stored = StoredCategory.of(batch.output, category.name, archive_schema(RecordColumns(category.record)))
    if not stored.listing.all_files:
        raise BackfillRefused(
            f"{batch.output.location} has no {category.name}, the output of {processor.__name__}. Run the backfill first (penstock backfill), "
            "or pass its location with --output."
        )
    complete = _Complete(processor, batch)
    stored_days = {day for span in stored.spans(days) for day in span.names()}
    finished = [day for day in days.names() if day in stored_days and complete.has(day)]
    found = list(_of_batch(stored, category, finished, key))
    others = [day for day in days.names() if day not in finished]
    if others:
        found += _of_live(live, days, frozenset(others), key)
    return sorted(found, key=lambda result: (result.event_time, result.key))


class _Complete:
    """The days of an aggregator's results that can no longer change."""

    def __init__(self, processor: type[Aggregator], batch: BatchSide) -> None:
        self._processor = processor
        self._until = batch.until
        self._inputs = [
            StoredCategory.of(batch.archive, category.name, MARKS) for category in plan_of(processor).sources
        ]

    def has(self, day: str) -> bool:
        needed = self._needed_for(day)
        return needed is not None and all(map(self._archived, needed))

    def _archived(self, day: str) -> bool:
        is_declared = self._until is not None and day <= str(self._until)
        return is_declared or all(category.is_complete(day) for category in self._inputs)

    def _needed_for(self, day: str) -> Sequence[str] | None:
        """Return the days that windows overlapping a day extend to; None for a window without end."""
        only = Days.of(day, day)
        if isinstance(self._processor.window, GlobalWindow):
            return None
        if plan_of(self._processor).windows_follow_events:
            return [day]  # a result has the time of its window's end
        start = max(self._processor.window.assign([only.end_ms - 1]).starts)
        return Days.of(day, day_of(self._processor.window.window(start).end - 1)).names()


def _of_batch(
    stored: StoredCategory, category: AnyCategory, days: Sequence[str], key: str | None
) -> Iterator[HybridResult]:
    columns = RecordColumns(category.record)
    for day in days:
        for batch in stored.read(Days.of(day, day), key=key):
            records = columns.records(batch)
            marks = zip(category.keys_of(records), category.event_times_of(records), strict=True)
            yield from (HybridResult(*place, record, "batch") for place, record in zip(marks, records, strict=True))


def _of_live(live: StreamSide, within: Days, days: frozenset[str], key: str | None) -> Iterator[HybridResult]:
    first = Days.of(min(days), min(days)).start_ms
    for (of_key, at), record in live(first).items():
        if within.contains(at) and day_of(at) in days and key in (None, of_key):
            yield HybridResult(of_key, at, record, "live")


def live_from_store(results: RemoteResults, processor: type[Aggregator]) -> StreamSide:
    """Return the live results of a remote store, converted to records by the aggregator."""
    category = plan_of(processor).outputs[0]

    def live(since_ms: int) -> Mapping[HybridSource, Any]:
        aggregator = processor()
        aggregator.open()
        made = (aggregator.result(key, window, value) for key, window, value in results.scan(_ALL))
        return _by_place(category, [record for record in made if record is not None], since_ms)

    return live


def live_from_bus(connect: Callable[[], Bus], category: AnyCategory) -> StreamSide:
    """Return the live results of a category on the bus, read up to its current end.

    Args:
        connect: returns the bus; called on first use.
        category: the aggregator's output.
    """

    def live(since_ms: int) -> Mapping[HybridSource, Any]:
        bus = connect()
        since = nearest_datetime(max(since_ms - _AHEAD // MILLISECOND, 0))
        ranges = ranges_to_end(bus, category.name, bus.catalog.at_time(category.name, since))
        codec = Codecs(bus).of(category)
        found: dict[HybridSource, Any] = {}
        for batch in read_offset_ranges(bus, ranges):
            decoded = codec.decode(batch.messages)
            if decoded.bad:
                _LOG.warning(
                    "%s: skipped %s, which cannot be decoded", batch.bucket, counted(len(decoded.bad), "message")
                )
            found.update(_by_place(category, decoded.events, since_ms))
        now_ms = round(time.time() * 1000)
        for transaction in old_transactions(bus, [category.name], now_ms):
            _LOG.warning("Newer results are missing: %s", transaction.report(now_ms))
        return found

    return live


def _by_place(category: AnyCategory, records: Sequence[Any], since_ms: int) -> Mapping[HybridSource, Any]:
    """Return the last record of each key and event time."""
    places = zip(category.keys_of(records), category.event_times_of(records), strict=True)
    return {place: record for place, record in zip(places, records, strict=True) if place[1] >= since_ms}
