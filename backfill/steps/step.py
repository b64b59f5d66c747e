"""Step of a processor in Spark's Python workers: record batches in, through the processor's operator, record batches out.

User objects are never pickled. A step names the app and the processor; each worker imports the app and opens the processor once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ...processors import Deferred, Halted, UserCodeError
from ...processors.declare import AnyCategory, ErrorPolicy, Processor, plan_of
from ...processors.operators import StepResult
from ...processors.time import MAX_UNCHECKED_MS, MILLISECOND, YEAR_1_MS, YEAR_9999_END_MS
from ..errors import BackfillFailed
from ..spark import Batches, Counters, OriginCounts, ShippedApp, marked_errors, return_freed_memory
from ..warehouse import EVENT_MARKS, RecordColumns
from .outputs import OutputRows

PlaceOf = Callable[[int], tuple[int, int]]
"""Returns the bucket and offset of an event, by its index among the events of a call."""


class EventOperator(Protocol):
    """The part of an operator that processes events."""

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Process events, in order; see `Operator.feed`."""
        ...


@dataclass(frozen=True)
class BatchStep:
    """A processor over one of its inputs.

    Args:
        app: the app, for workers.
        processor: the processor's name.
        category: the name of the input.
        counters: the counters of the step.
        origin: the counters of archived and live events; None if all events come from the archive.
    """

    app: ShippedApp
    processor: str
    category: str
    counters: Counters
    origin: OriginCounts | None = None

    @cached_property
    def opened(self) -> Opened:
        """The processor in this worker."""
        return _opened(self.app, self.processor)

    @cached_property
    def input(self) -> AnyCategory:
        """The input category."""
        return next(category for category in plan_of(self.opened.processor).sources if category.name == self.category)

    @cached_property
    def columns(self) -> RecordColumns:
        """The columns of the input."""
        return RecordColumns(self.input.record)

    @property
    def fields(self) -> list[str]:
        """The columns that `feed` needs: the record and the position of each event."""
        return [*self.columns.schema.names, *EVENT_MARKS]

    def accepted(self, batches: Batches) -> Batches:
        """Yield batches without events of implausible event time, which a worker rejects too."""
        limit = self.opened.processor.max_future
        for batch in batches:
            if self.origin:
                self.origin.count(batch)
            plausible = self._without(batch, _outside(batch, limit), "is not a plausible time")
            if limit is not None:
                plausible = self._without(
                    plausible, _ahead(plausible, limit), f"is more than {limit} after its arrival"
                )
            yield plausible

    def _without(self, batch: pa.RecordBatch, out: pa.BooleanArray, why: str) -> pa.RecordBatch:
        """Return a batch without rejected events, which are counted; fail if the processor's policy is to stop."""
        if not out.true_count:
            return batch
        if self.opened.processor.on_future_event is ErrorPolicy.STOP:
            raise BackfillFailed(
                f"{self._place(*places_in(batch)(out.index(True).as_py()))}: its event time {why}. "
                f"The backfill stopped there, and none of {self.processor}'s output was published. Skip and count such events "
                "(`on_future_event = ErrorPolicy.DEAD_LETTER`), or declare another `max_future`."
            )
        self.counters.rejected.add(out.true_count)
        return batch.filter(pc.invert(out))

    def feed(self, operator: EventOperator, events: Sequence[Any], place_of: PlaceOf) -> StepResult:
        """Process events; fail at an error if the processor's policy is to stop."""
        try:
            result = self._feed_until_ready(operator, events)
        except Halted as error:
            raise BackfillFailed(
                f"{self._place(*place_of(0))}: {error} The backfill stopped there, and none of {self.processor}'s output was "
                "published."
            ) from error
        # If an operator stops at an event, that event is the last rejected one.
        for rejected in result.rejected[-1:]:
            if plan_of(self.opened.processor).error_action(rejected.error).stops:
                raise self.stopped(*place_of(rejected.at), rejected.error)
        return result

    def _feed_until_ready(self, operator: EventOperator, events: Sequence[Any]) -> StepResult:
        while True:
            try:
                return operator.feed(
                    self.input, events, stop_at_error=self.opened.processor.on_error is ErrorPolicy.STOP
                )
            except Deferred:
                continue  # the operator has waited

    def stopped(self, bucket: int, offset: int, error: UserCodeError) -> BackfillFailed:
        """Return the error for an event at which the processor stops."""
        name, action = type(self.opened.processor).__name__, plan_of(self.opened.processor).error_action(error)
        return BackfillFailed(
            f"{self._place(bucket, offset)}: {action.reason}. The backfill stopped there, and none of {name}'s output was published. Correct "
            f"{name} or the producer of the event, or skip and count such events (`{action.alternative}`)."
        )

    def _place(self, bucket: int, offset: int) -> str:
        return f"{self.category}/{bucket} at offset {offset}"

    def output_rows(self, outputs: Sequence[Any]) -> Batches:
        """Return outputs as rows, and count them."""
        self.counters.events_out.add(len(outputs))
        return self.opened.rows.batches(outputs)


def _outside(batch: pa.RecordBatch, limit: timedelta | None) -> pa.BooleanArray:
    first_ms, last_ms = (-MAX_UNCHECKED_MS, MAX_UNCHECKED_MS) if limit is None else (YEAR_1_MS, YEAR_9999_END_MS)
    times = batch.column("_event_time")
    return pc.or_(pc.less(times, pa.scalar(first_ms, pa.int64())), pc.greater(times, pa.scalar(last_ms, pa.int64())))


def _ahead(batch: pa.RecordBatch, limit: timedelta) -> pa.BooleanArray:
    apart = pc.subtract(batch.column("_event_time"), batch.column("_arrived"))
    return pc.greater(apart, pa.scalar(limit // MILLISECOND, pa.int64()))


def places_in(batch: pa.RecordBatch, start: int = 0) -> PlaceOf:
    """Return the places of the events from a row of a batch on."""
    return lambda at: (batch.column("_bucket")[start + at].as_py(), batch.column("_offset")[start + at].as_py())


@dataclass(frozen=True)
class Opened:
    """An opened processor in this worker, and its output rows."""

    processor: Processor
    rows: OutputRows


@cache
def _opened(app: ShippedApp, name: str) -> Opened:
    processor = app.opened(name)
    return Opened(processor, OutputRows(type(processor)))


def guarded(step: BatchStep, batches: Batches) -> Batches:
    """Yield the batches of a step; mark its errors for the driver."""
    return_freed_memory()
    with marked_errors(step.processor):
        yield from batches
