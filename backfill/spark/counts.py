"""Exact counters of a batch run, although Spark repeats the tasks of a lost executor.

A task reports its running total with its partition number, and the highest total of each partition counts. This is idempotent, and
correct because a repeated task receives the same events. Spark's own accumulators would count them twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

Totals = dict[int, int]
"""The highest total of each partition."""


class _Highest(AccumulatorParam[Totals]):
    def zero(self, value: Totals) -> Totals:  # noqa: ARG002 - Spark's interface
        return {}

    def addInPlace(self, value1: Totals, value2: Totals) -> Totals:  # noqa: N802 - as above
        for partition, total in value2.items():
            value1[partition] = max(total, value1.get(partition, 0))
        return value1


HIGHEST = _Highest()
"""Merges the reports of tasks."""


class TaskCount:
    """A counter that travels to the workers. Each step of a run needs its own.

    Args:
        reported: the accumulator of reports.
    """

    def __init__(self, reported: Accumulator[Totals]) -> None:
        self._reported = reported
        self._total = 0

    @staticmethod
    def of(context: SparkContext) -> TaskCount:
        """Return a counter for a new step."""
        return TaskCount(context.accumulator({}, HIGHEST))

    def add(self, number: int) -> None:
        """Add to the count, in a task."""
        self._total += number
        task = TaskContext.get()
        self._reported.add({task.partitionId() if task else 0: self._total})

    @property
    def value(self) -> int:
        """The total of all tasks, once they have ended."""
        return sum(self._reported.value.values())


@dataclass(frozen=True)
class Counters:
    """The counters of one step.

    Args:
        events_in: events processed.
        events_out: records written.
        rejected: events skipped under the processor's error policy.
    """

    events_in: TaskCount
    events_out: TaskCount
    rejected: TaskCount

    @staticmethod
    def of(context: SparkContext) -> Counters:
        """Return the counters for a new step."""
        return Counters(*(TaskCount.of(context) for _ in range(3)))


def total_events_in(steps: Iterable[Counters]) -> int:
    """Return the number of events that all steps of a run have processed."""
    return sum(step.events_in.value for step in steps)


@dataclass(frozen=True)
class OriginCounts:
    """Counters of events by origin: the warehouse, or the bus beyond the archive's end.

    Args:
        handoffs: the first offset that comes from the bus, by bucket.
        archived: counts the events from the warehouse.
        live: counts the events from the bus.
    """

    handoffs: Mapping[int, int]
    archived: TaskCount
    live: TaskCount

    def count(self, batch: pa.RecordBatch) -> None:
        """Count the events of a batch."""
        buckets, offsets = batch.column("_bucket"), batch.column("_offset")
        live = 0
        numbers: set[int] = set(buckets.to_pylist())  # type: ignore[arg-type]  # the column has no nulls
        for number in numbers:
            behind = pc.greater_equal(offsets, pa.scalar(self.handoffs[number], pa.int64()))
            live += pc.and_(pc.equal(buckets, pa.scalar(number, pa.int32())), behind).true_count
        self.live.add(live)
        self.archived.add(batch.num_rows - live)
