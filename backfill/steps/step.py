"""What runs in Spark's Python workers: record batches in, through a processor's own core, record batches out.

Nothing of the user's is pickled. A step is told where the app is and the processor's name; each worker imports the app itself
and opens the processor once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import ErrorPolicy, Processor
from ...processors.errors import Deferred, Halted
from ...processors.operators import Operator, StepResult
from ...processors.time.timestamp_validation import UNDOUBTED_MS, YEAR_1_MS, YEAR_9999_END_MS
from ...processors.time.windows import MILLISECOND
from ..errors import BackfillFailed
from ..sources.origins import Origin
from ..spark.batches import Batches
from ..spark.counts import Counters
from ..spark.failures import carried
from ..spark.shipped_app import ShippedApp
from ..warehouse.columns import EVENT_MARKS, Columns
from .outputs import OutputRows


@dataclass(frozen=True)
class Step:
    """Where a step finds its processor and its input.

    Args:
        app: where workers find the app.
        processor: the processor's name.
        category: the name of the category that it reads.
        counters: what is reported back.
        origin: what counts where the events come from; None where they come from one place.
    """

    app: ShippedApp
    processor: str
    category: str
    counters: Counters
    origin: Origin | None = None

    @cached_property
    def opened(self) -> Opened:
        """The processor in this worker."""
        return _opened(self.app, self.processor)

    @cached_property
    def input(self) -> AnyCategory:
        """The category that it reads."""
        return next(category for category in self.opened.processor.inputs() if category.name == self.category)

    @cached_property
    def columns(self) -> Columns:
        """The columns of what it reads."""
        return Columns(self.input.record)

    @property
    def fields(self) -> list[str]:
        """The columns that `feed` needs: those of the record, and where each event lay."""
        return [*self.columns.schema.names, *EVENT_MARKS]

    def taken(self, batches: Batches) -> Batches:
        """Give batches without the events whose times cannot be meant, which a worker sets aside, too."""
        limit = self.opened.processor.max_future
        for batch in batches:
            if self.origin:
                self.origin.count(batch)
            kept = self._without(batch, _outside(batch, limit), "is no time that an event can have")
            if limit is not None:
                kept = self._without(kept, _ahead(kept, limit), f"lies more than {limit} ahead of its arrival")
            yield kept

    def _without(self, batch: pa.RecordBatch, out: pa.BooleanArray, why: str) -> pa.RecordBatch:
        """Return a batch without some of its events, which are counted; stop at one, if the processor asks for that."""
        if not out.true_count:
            return batch
        if self.opened.processor.on_future_event is ErrorPolicy.STOP:
            raise BackfillFailed(
                f"{self._place(*_place_of(batch, out.index(True).as_py()))}: its event time {why}. "
                f"The backfill stops there, and nothing of {self.processor}'s output was published. Let such events be left out "
                "and counted (`on_future_event = ErrorPolicy.DEAD_LETTER`), or declare another `max_future`."
            )
        self.counters.set_aside.add(out.true_count)
        return batch.filter(pc.invert(out))

    def feed(self, core: Operator, events: Sequence[Any], batch: pa.RecordBatch, start: int) -> StepResult:
        """Feed events that begin at a row of their batch; stop at one that raises, if the processor asks for that."""
        try:
            fed = self._fed(core, events)
        except Halted as error:
            raise BackfillFailed(
                f"{self._place(*_place_of(batch, start))}: {error} The backfill stops there, and nothing of {self.processor}'s output was "
                "published."
            ) from error
        # Where a core stops at an event, that is the last one.
        for rejected in fed.rejected[-1:]:
            if self.opened.processor.fate_of(rejected.error).stops:
                raise self.stopped(*_place_of(batch, start + rejected.at), rejected.error)
        return fed

    def _fed(self, core: Operator, events: Sequence[Any]) -> StepResult:
        while True:
            try:
                return core.feed(self.input, events, stop_at_error=self.opened.processor.on_error is ErrorPolicy.STOP)
            except Deferred:
                continue  # who defers has waited

    def stopped(self, bucket: int, offset: int, error: Exception) -> BackfillFailed:
        """Return what is said where the processor raised for an event, and asks to stop at that."""
        name, fate = type(self.opened.processor).__name__, self.opened.processor.fate_of(error)
        return BackfillFailed(
            f"{self._place(bucket, offset)}: {fate.reason}. The backfill stops there, and nothing of {name}'s output was published. Mend "
            f"{name} or what produces such events, or let them be left out and counted (`{fate.otherwise}`)."
        )

    def _place(self, bucket: int, offset: int) -> str:
        return f"{self.category}/{bucket} at offset {offset}"

    def give(self, outputs: Sequence[Any]) -> Batches:
        """Give outputs as rows, and count them."""
        self.counters.events_out.add(len(outputs))
        return self.opened.rows.batches(outputs)


def _outside(batch: pa.RecordBatch, limit: timedelta | None) -> pa.BooleanArray:
    first_ms, last_ms = (-UNDOUBTED_MS, UNDOUBTED_MS) if limit is None else (YEAR_1_MS, YEAR_9999_END_MS)
    times = batch.column("_event_time")
    return pc.or_(pc.less(times, pa.scalar(first_ms, pa.int64())), pc.greater(times, pa.scalar(last_ms, pa.int64())))


def _ahead(batch: pa.RecordBatch, limit: timedelta) -> pa.BooleanArray:
    apart = pc.subtract(batch.column("_event_time"), batch.column("_arrived"))
    return pc.greater(apart, pa.scalar(limit // MILLISECOND, pa.int64()))


def _place_of(batch: pa.RecordBatch, row: int) -> tuple[int, int]:
    """Return the bucket and offset of a row."""
    return batch.column("_bucket")[row].as_py(), batch.column("_offset")[row].as_py()


@dataclass(frozen=True)
class Opened:
    """A processor that is ready in this worker, and the rows that it writes."""

    processor: Processor
    rows: OutputRows


@cache
def _opened(app: ShippedApp, name: str) -> Opened:
    processor = app.opened(name)
    return Opened(processor, OutputRows(type(processor)))


def guarded(step: Step, batches: Batches) -> Batches:
    """Give the batches of a step; what fails on the way carries its paragraph to the driver."""
    with carried(step.processor):
        yield from batches
