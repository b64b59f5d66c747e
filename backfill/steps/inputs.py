"""The inputs of a processor as one stream: rows that say which input an event came by, in the order in which they meet.

    events of each input --merged--> rows --sorted by arrival, or by key and event time--> one shard's or one key's events

A row has the marks of the archive, the number of its input, and one struct column for each input; all of them are null but its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from itertools import groupby, islice
from typing import Any, NamedTuple, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.window import Window

from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import ErrorPolicy, Processor
from ...processors.operators import StepResult
from ..sources.source import Source
from ..spark.batches import Batches
from ..warehouse.columns import DAY_COLUMN, MARKS, ROW
from .stateful_reducer import expect_keys
from .step import Step

_INPUT = "_input"
_MET = "_met"


def _slot_of(number: int) -> str:
    return f"_event_{number}"


def merged(processor: type[Processor], source: Source, first: date | None = None) -> DataFrame:
    """Return all archived events of a processor's inputs as rows of one table; those from a UTC day of event time on, where one is given."""
    since = str(first or date.min)
    events = [source.events(category).where(F.col(DAY_COLUMN) >= since) for category in processor.inputs()]
    structs = [F.struct(*_fields(frame)) for frame in events]
    types = [
        frame.select(struct.alias("it")).schema["it"].dataType for frame, struct in zip(events, structs, strict=True)
    ]
    frames = [
        frame.select(
            F.lit(number).alias(_INPUT),
            *MARKS.names,
            *(
                (structs[number] if other == number else F.lit(None).cast(kind)).alias(_slot_of(other))
                for other, kind in enumerate(types)
            ),
        )
        for number, frame in enumerate(events)
    ]
    return reduce(DataFrame.unionAll, frames)


def _fields(events: DataFrame) -> list[str]:
    marks = {*MARKS.names, DAY_COLUMN}
    return [name for name in events.columns if name not in marks]


def by_arrival(rows: DataFrame, buckets: int) -> DataFrame:
    """Bring the rows of each bucket together, as a worker may have read them: every input by offset, and several by arrival.

    Arrival times are the producers', and may go back; an event has come when all before it have.
    """
    met = F.max("_arrived").over(Window.partitionBy(_INPUT, "_bucket").orderBy("_offset"))
    return (
        rows.withColumn(_MET, met)
        .repartitionById(buckets, F.col("_bucket"))
        .sortWithinPartitions("_bucket", _MET, _INPUT, "_offset")
        .drop(_MET)
    )


def by_event_time(rows: DataFrame) -> DataFrame:
    """Bring the rows of each key together, in order of event time; of one time, those of the first input come first."""
    return rows.repartition("_key").sortWithinPartitions("_key", "_event_time", _INPUT, "_bucket", "_offset")


class Arrived(NamedTuple):
    """An event among those of all inputs.

    Args:
        input: by which input it came.
        event: the record.
        key: its key.
        time: its event time, in milliseconds since 1970, UTC.
        bucket: the number of its bucket.
        offset: where it lay there.
        arrived: when it came to the bus, in milliseconds since 1970, UTC.
    """

    input: int
    event: Any
    key: str
    time: int
    bucket: int
    offset: int
    arrived: int


class Taking(Protocol):
    """What takes events: as much of a core as is asked for here."""

    def feed(self, category: AnyCategory, events: Sequence[Any], *, stop_at_error: bool) -> StepResult:
        """Process events, in order; see `Operator.feed`."""
        ...


@dataclass(frozen=True)
class Inputs:
    """The steps of a processor over each of its inputs, in the workers.

    Args:
        steps: one for each input.
    """

    steps: Sequence[Step]

    @property
    def processor(self) -> Processor:
        """The processor in this worker."""
        return self.steps[0].opened.processor

    @property
    def names(self) -> list[str]:
        """The names of the categories."""
        return [step.category for step in self.steps]

    def events(self, batches: Batches) -> Iterator[Arrived]:
        """Give the events of rows, in their order, without those that a worker sets aside."""
        for batch in batches:
            rows = batch.append_column(ROW, pa.array(range(batch.num_rows), pa.int64()))
            placed = [one for number in range(len(self.steps)) for one in self._of(number, rows)]
            if len(self.steps) > 1:
                placed.sort(key=lambda one: one[0])
            for _, arrived in placed:
                yield arrived

    def _of(self, number: int, rows: pa.RecordBatch) -> Iterator[tuple[int, Arrived]]:
        """Give the events of one input with their rows."""
        step = self.steps[number]
        own = rows.filter(pc.equal(rows.column(_INPUT), pa.scalar(number, pa.int32())))
        struct = cast("pa.StructArray", own.column(_slot_of(number)))
        names = [*MARKS.names, ROW, *(field.name for field in struct.type)]
        columns = [*(own.column(name) for name in (*MARKS.names, ROW)), *struct.flatten()]
        for taken in step.taken(iter([pa.RecordBatch.from_arrays(columns, names=names)])):
            events = step.columns.records(taken)
            expect_keys(step, taken, events)
            marks = (
                taken.column(name).to_pylist() for name in ("_key", "_event_time", "_bucket", "_offset", "_arrived")
            )
            yield from zip(
                taken.column(ROW).to_pylist(),
                (Arrived(number, *one) for one in zip(events, *marks, strict=True)),
                strict=True,
            )

    def feed(self, core: Taking, events: Sequence[Arrived]) -> list[Any]:
        """Feed events, run by run of one input; return what they give.

        Raises:
            BackfillFailed: one raised, and the processor asks to stop at that.
        """
        outputs: list[Any] = []
        for number, run in groupby(events, key=lambda one: one.input):
            outputs += self._feed_run(core, self.steps[number], list(run))
        return outputs

    def _feed_run(self, core: Taking, step: Step, run: Sequence[Arrived]) -> list[Any]:
        stops = self.processor.on_error is ErrorPolicy.STOP
        fed = core.feed(step.input, [one.event for one in run], stop_at_error=stops)
        if stops and fed.rejected:
            at, error = fed.rejected[0]
            raise step.stopped(run[at].bucket, run[at].offset, error)
        step.counters.events_in.add(len(run))
        step.counters.set_aside.add(len(fed.rejected))
        return fed.outputs


def chunks(events: Iterator[Arrived], length: int) -> Iterator[list[Arrived]]:
    """Cut events into lists of so many."""
    while chunk := list(islice(events, length)):
        yield chunk
