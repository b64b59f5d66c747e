"""Counts of a batch run that are exact, although Spark may run a task again: it does where an executor is lost with what it had done.

A task reports its running total by its partition, and of several reports of one partition the highest counts. That is idempotent, and
right, since a task that runs again is given the same events. A sum, as Spark's own accumulators are, would count them twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
"""Merges reports."""


class TaskCount:
    """How many of something one step met. It is carried to the workers, and may be used by one step of a run alone.

    Args:
        reported: takes the reports.
    """

    def __init__(self, reported: Accumulator[Totals]) -> None:
        self._reported = reported
        self._total = 0

    @staticmethod
    def of(context: SparkContext) -> TaskCount:
        """Return that of a step that is about to run."""
        return TaskCount(context.accumulator({}, HIGHEST))

    def add(self, number: int) -> None:
        """Count so many more, in a task."""
        self._total += number
        task = TaskContext.get()
        self._reported.add({task.partitionId() if task else 0: self._total})

    @property
    def value(self) -> int:
        """How many all tasks counted, once they are done."""
        return sum(self._reported.value.values())


@dataclass(frozen=True)
class Counters:
    """What the workers report back of one step.

    Args:
        events_in: events taken.
        events_out: records given.
        set_aside: events that raised and were left out, as the processor asks.
    """

    events_in: TaskCount
    events_out: TaskCount
    set_aside: TaskCount

    @staticmethod
    def of(context: SparkContext) -> Counters:
        """Return those of a step that is about to run."""
        return Counters(*(TaskCount.of(context) for _ in range(3)))


def taken_by(steps: Iterable[Counters]) -> int:
    """Return how many events the steps of a run have taken together."""
    return sum(step.events_in.value for step in steps)
