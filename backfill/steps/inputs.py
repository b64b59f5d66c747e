"""The inputs of a processor as one stream of rows.

    events of each input --merged--> rows --sorted by arrival, or by key and event time--> events of one shard or key

A row has the marks of the archive, the number of its input, and one struct column for each input. Only the column of its own input is
not null.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, islice
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.window import Window

from ...processors.declare import Processor, Stateless, plan_of
from ..sources import BatchEvents
from ..spark import Batches
from ..warehouse import DAY_COLUMN, ELEMENT, MARKS, ROW
from .event_blocks import EventBlocks
from .stateful_reducer import expect_keys
from .step import BatchStep, EventOperator

_INPUT = "_input"
_ARRIVED_SO_FAR = "_arrived_so_far"


def bus_order(events: DataFrame) -> list[str]:
    """Return the columns that determine the order of events on the bus."""
    return ["_bucket", "_offset", *([ELEMENT.name] if ELEMENT.name in events.columns else [])]


def _column_of(number: int) -> str:
    return f"_event_{number}"


def merged_inputs(processor: type[Processor], source: BatchEvents, wanted: Column | None = None) -> DataFrame:
    """Return the archived events of all inputs of a processor as rows of one table; perhaps only the events of a condition, such as `in_days`."""
    events = [source.events(category) for category in plan_of(processor).sources]
    events = [frame if wanted is None else frame.where(wanted) for frame in events]
    structs = [F.struct(*_fields(frame)) for frame in events]
    types = [
        frame.select(struct.alias("record")).schema["record"].dataType
        for frame, struct in zip(events, structs, strict=True)
    ]
    frames = [
        frame.select(
            F.lit(number).alias(_INPUT),
            *MARKS.names,
            F.col(ELEMENT.name) if ELEMENT.name in frame.columns else F.lit(None).cast("int").alias(ELEMENT.name),
            *(
                (structs[number] if other == number else F.lit(None).cast(kind)).alias(_column_of(other))
                for other, kind in enumerate(types)
            ),
        )
        for number, frame in enumerate(events)
    ]
    return reduce(DataFrame.unionAll, frames)


def _fields(events: DataFrame) -> list[str]:
    marks = {*MARKS.names, ELEMENT.name, DAY_COLUMN}
    return [name for name in events.columns if name not in marks]


def by_arrival(rows: DataFrame, buckets: int) -> DataFrame:
    """Group rows by bucket, in an order in which a worker may have read them: each input by offset, several inputs by arrival.

    Producers set arrival times, which may go back. The arrival of an event is therefore the latest arrival up to its offset.
    """
    arrived = F.max("_arrived").over(Window.partitionBy(_INPUT, "_bucket").orderBy("_offset"))
    return (
        rows.withColumn(_ARRIVED_SO_FAR, arrived)
        .repartitionById(buckets, F.col("_bucket"))
        .sortWithinPartitions("_bucket", _ARRIVED_SO_FAR, _INPUT, "_offset", ELEMENT.name)
        .drop(_ARRIVED_SO_FAR)
    )


def by_event_time(rows: DataFrame) -> DataFrame:
    """Group rows by key, in order of event time; at the same time, the first input comes first."""
    order = ("_key", "_event_time", _INPUT, *bus_order(rows))
    return rows.repartition("_key").sortWithinPartitions(*order)


class InputEvent(NamedTuple):
    """An event of one of the inputs.

    Args:
        input: the number of the input.
        event: the record.
        key: its key.
        time: its event time (milliseconds since 1970, UTC).
        bucket: the number of its bucket.
        offset: its offset.
        arrived: when the bus received it (milliseconds since 1970, UTC).
    """

    input: int
    event: Any
    key: str
    time: int
    bucket: int
    offset: int
    arrived: int


@dataclass(frozen=True)
class Inputs:
    """The steps of a processor over each of its inputs, in the workers.

    Args:
        steps: one for each input.
    """

    steps: Sequence[BatchStep]

    @property
    def processor(self) -> Processor:
        """The processor in this worker."""
        return self.steps[0].opened.processor

    @property
    def names(self) -> list[str]:
        """The names of the categories."""
        return [step.category for step in self.steps]

    def events(self, batches: Batches) -> Iterator[InputEvent]:
        """Yield the events of rows in order, without events that a worker rejects."""
        for batch in batches:
            rows = batch.append_column(ROW, pa.array(range(batch.num_rows), pa.int64()))
            placed = [placed_row for number in range(len(self.steps)) for placed_row in self._of(number, rows)]
            if len(self.steps) > 1:
                placed.sort(key=lambda placed_row: placed_row[0])
            for _, arrived in placed:
                yield arrived

    def events_in(self, blocks: EventBlocks, batches: Batches) -> Iterator[InputEvent]:
        """Yield the events of the sorted blocks of the only input, without events that a worker rejects."""
        for accepted in self.steps[0].accepted(blocks.unpacked(batches)):
            yield from self._events_of(0, accepted)

    def _of(self, number: int, rows: pa.RecordBatch) -> Iterator[tuple[int, InputEvent]]:
        """Yield the events of one input with their row numbers."""
        step = self.steps[number]
        own = rows.filter(pc.equal(rows.column(_INPUT), pa.scalar(number, pa.int32())))
        struct = cast("pa.StructArray", own.column(_column_of(number)))
        names = [*MARKS.names, ROW, *(field.name for field in struct.type)]
        columns = [*(own.column(name) for name in (*MARKS.names, ROW)), *struct.flatten()]
        for accepted in step.accepted(iter([pa.RecordBatch.from_arrays(columns, names=names)])):
            yield from zip(accepted.column(ROW).to_pylist(), self._events_of(number, accepted), strict=True)

    def _events_of(self, number: int, accepted: pa.RecordBatch) -> Iterator[InputEvent]:
        step = self.steps[number]
        events = step.columns.records(accepted)
        if not isinstance(self.processor, Stateless):
            expect_keys(step, accepted, events)
        marks = (
            accepted.column(name).to_pylist() for name in ("_key", "_event_time", "_bucket", "_offset", "_arrived")
        )
        return (InputEvent(number, *values) for values in zip(events, *marks, strict=True))

    def feed(self, operator: EventOperator, events: Sequence[InputEvent]) -> list[Any]:
        """Process events, one call per run of events of the same input; return the outputs.

        Raises:
            BackfillFailed: an event failed, and the processor's error policy is to stop.
        """
        outputs: list[Any] = []
        for number, run in groupby(events, key=lambda event: event.input):
            outputs += self._feed_run(operator, self.steps[number], list(run))
        return outputs

    def _feed_run(self, operator: EventOperator, step: BatchStep, run: Sequence[InputEvent]) -> list[Any]:
        result = step.feed(operator, [event.event for event in run], lambda at: (run[at].bucket, run[at].offset))
        step.counters.events_in.add(len(run))
        step.counters.rejected.add(len(result.rejected) + result.unmatched)
        return list(result.outputs)


def chunks(events: Iterator[InputEvent], length: int) -> Iterator[list[InputEvent]]:
    """Split events into lists of a length."""
    while chunk := list(islice(events, length)):
        yield chunk
