"""Step of a processor in Spark's Python workers: record batches in, through the processor's operator, record batches out.

User objects are never pickled. A step names the app and the processor; each worker imports the app and opens the processor once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ...processors import Deferred, Halted, UserCodeError
from ...processors.declare import AnyCategory, ErrorPolicy, Processor, numbers_of, plan_of
from ...processors.operators import StepResult
from ...processors.shard import rejected_for_time
from ...processors.time import implausible
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
        for batch in batches:
            if self.origin:
                self.origin.count(batch)
            yield self._plausible(batch)

    def _plausible(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch without rejected events, which are counted; fail if the processor's policy is to stop."""
        times, arrived_ms = (numbers_of(batch.column(name)) for name in ("_event_time", "_arrived"))
        processor = self.opened.processor
        rejected = implausible(times, arrived_ms, processor.max_future)
        if not len(rejected):
            return batch
        first = int(rejected[0])
        event = rejected_for_time(first, int(times[first]), int(arrived_ms[first]), processor)
        if event.stops:
            raise self._stop(
                *places_in(batch)(first),
                f"{event.reason}.",
                f"Correct the producer of the event, declare another `max_future`, or skip and count such events (`{event.setting}`).",
            )
        self.counters.rejected.add(len(rejected))
        kept = np.ones(batch.num_rows, np.bool_)
        kept[rejected] = False
        return batch.filter(pa.array(kept))

    def feed(self, operator: EventOperator, events: Sequence[Any], place_of: PlaceOf) -> StepResult:
        """Process events; fail at an error if the processor's policy is to stop."""
        try:
            result = self._feed_until_ready(operator, events)
        except Halted as error:
            raise self._stop(*place_of(0), str(error)) from error
        self.expect_no_stop(result, place_of)
        return result

    def expect_no_stop(self, result: StepResult, place_of: PlaceOf) -> None:
        """Raise BackfillFailed if the processor stops at an event: if an operator does, it is the last rejected one."""
        for rejected in result.rejected[-1:]:
            if plan_of(self.opened.processor).error_action(rejected.error).stops:
                raise self.stopped(*place_of(rejected.at), rejected.error)

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
        return self._stop(
            bucket,
            offset,
            f"{action.reason}.",
            f"Correct {name} or the producer of the event, or skip and count such events (`{action.alternative}`).",
        )

    def _stop(self, bucket: int, offset: int, reason: str, remedy: str = "") -> BackfillFailed:
        return BackfillFailed(
            f"{self.category}/{bucket} at offset {offset}: {reason} The backfill stopped there, and none of {self.processor}'s output was published. "
            f"{remedy}".rstrip()
        )

    def output_rows(self, outputs: Sequence[Any]) -> Batches:
        """Return outputs as rows, and count them."""
        self.counters.events_out.add(len(outputs))
        return self.opened.rows.batches(outputs)


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
