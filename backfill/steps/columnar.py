"""Processors that process columns: a hundred thousand events per call, without a Python object for each event.

Each task compares the result for its first events with the processor's result for single events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

from ...processors import counted
from ...processors.declare import Aggregator, Stateless, plan_of
from ...processors.monoids import alike
from ...processors.operators import CHECKED_EVENTS, plain
from ..errors import BackfillFailed
from ..sources import PlannedFiles
from ..spark import Batches
from ..warehouse import EVENT_MARKS, ROW, ArchivedFile, RecordColumns
from .step import BatchStep

COLUMNS_EVENTS = 100_000
"""The number of events per call."""

T = TypeVar("T")


@dataclass(frozen=True)
class ColumnReader:
    """The input of one task for a processor that processes columns.

    Args:
        step: the processor and its input.
        planned: the assignment of files to tasks.
        files: the files of the task.
    """

    step: BatchStep
    planned: PlannedFiles
    files: Sequence[ArchivedFile]

    def outputs(self, one_by_one: Callable[[Batches], Batches]) -> Batches:
        """Yield the outputs of a stateless processor.

        Args:
            one_by_one: returns the outputs of batches that must be processed event by event.
        """
        processor = cast("Stateless", self.step.opened.processor)
        self._expect_same_outputs(processor)
        for batch in self._batches(_names(self.step, processor.columns, ())):
            result = self._called(batch, processor.process_columns, processor.columns)
            if result is None:
                yield from one_by_one(self.whole(batch))
                continue
            for part in result.to_batches() if isinstance(result, pa.Table) else [result]:
                self.step.counters.events_out.add(part.num_rows)
                yield self.step.opened.rows.of_columns(part)

    def observed(self) -> Iterator[Observed]:
        """Yield the observations of an aggregator, one value per batch of events."""
        processor = cast("Aggregator", self.step.opened.processor)
        self._expect_same_observations(processor)
        key = str(self.step.input.key)
        for batch in self._batches(_names(self.step, processor.columns, (key,))):
            observed = self._called(batch, processor.observe_columns, processor.columns)
            if observed is not None and len(observed) != batch.num_rows:
                raise self._differ(
                    f"observe_columns returns {counted(len(observed), 'observation')} for {counted(batch.num_rows, 'event')}"
                )
            yield Observed(batch, observed, batch.column(key))

    def _batches(self, names: Sequence[str]) -> Batches:
        for batch in self.step.accepted(_numbered(self.planned.read(self.files, names, COLUMNS_EVENTS))):
            self.step.counters.events_in.add(batch.num_rows)
            if batch.num_rows:
                yield batch

    def whole(self, batch: pa.RecordBatch) -> Batches:
        """Yield the events of a batch with all columns, in the order of the files."""
        rows, begin = batch.column(ROW).to_numpy(), 0
        for whole in self.planned.read(self.files, self.step.fields, COLUMNS_EVENTS):
            within = rows[(rows >= begin) & (rows < begin + whole.num_rows)] - begin
            if len(within):
                yield whole.take(pa.array(within))
            begin += whole.num_rows

    def _called(self, batch: pa.RecordBatch, method: Callable[[pa.RecordBatch], T], names: Sequence[str] | None) -> T:
        """Call the user's code."""
        columns = self.step.columns
        events = columns.filled(batch, columns.schema.names if names is None else names)
        try:
            return method(events)
        except Exception as error:
            ends = [
                f"{self.step.category}/{batch.column('_bucket')[at]} at offset {batch.column('_offset')[at]}"
                for at in (0, -1)
            ]
            raise BackfillFailed(
                f"{self.step.processor}.{method.__name__} raised {type(error).__name__}: {error}, for the events from {ends[0]} to {ends[1]}. "
                "None of its output was published. Correct the method, or remove it to process events one by one."
            ) from error

    def _first(self) -> pa.RecordBatch | None:
        """Return the first events with all columns."""
        return next(self.step.accepted(self.planned.read(self.files, self.step.fields, CHECKED_EVENTS)), None)

    def _expect_same_outputs(self, processor: Stateless) -> None:
        first = self._first()
        if first is None:
            return
        result = self._called(first, processor.process_columns, processor.columns)
        if result is None:
            return
        process = processor.for_batch(self.step.input, events := self.step.columns.records(first))
        one_by_one = [output for event in events for output in process(event)]
        rows = pa.Table.from_batches([result]) if isinstance(result, pa.RecordBatch) else result
        at_once = self._records(rows)
        self._expect_same(at_once, one_by_one, "process_columns", "process")

    def _records(self, rows: pa.Table) -> list[Any]:
        [written] = plan_of(self.step.opened.processor).destinations
        columns = RecordColumns(written.record)
        found = self.step.opened.rows
        return [record for part in rows.to_batches() for record in columns.records(found.own(found.of_columns(part)))]

    def _expect_same_observations(self, processor: Aggregator) -> None:
        first = self._first()
        if first is None:
            return
        observed = self._called(first, processor.observe_columns, processor.columns)
        if observed is None:
            return
        one_by_one = list(map(processor.observe, self.step.columns.records(first)))
        self._expect_same(plain(observed), one_by_one, "observe_columns", "observe")

    def _expect_same(self, at_once: Sequence[Any], one_by_one: Sequence[Any], of_columns: str, of_one: str) -> None:
        for left, right in zip(at_once, one_by_one, strict=False):
            if not (left == right or alike(left, right)):
                raise self._differ(f"{of_columns} returns {left!r} where {of_one} returns {right!r}")
        if len(at_once) != len(one_by_one):
            raise self._differ(
                f"{of_columns} returns {counted(len(at_once), 'value')} for events for which {of_one} returns {len(one_by_one)}"
            )

    def _differ(self, how: str) -> BackfillFailed:
        return BackfillFailed(
            f"{self.step.processor}: {how}. Otherwise batch and stream would differ, so none of its output was published. Correct one of the methods."
        )


class Observed(NamedTuple):
    """The observations of a batch of events.

    Args:
        batch: the events, with the columns that the aggregator needs.
        observations: the observation of each event, null for none; None if they must be observed one by one.
        keys: the key of each event, as it is in its record.
    """

    batch: pa.RecordBatch
    observations: pa.Array[Any] | None
    keys: pa.Array[Any]


def _numbered(batches: Iterable[pa.RecordBatch]) -> Batches:
    """Yield the batches of a task with the index of each event."""
    begin = 0
    for batch in batches:
        yield batch.append_column(ROW, pa.array(np.arange(begin, begin + batch.num_rows)))
        begin += batch.num_rows


def _names(step: BatchStep, columns: Sequence[str] | None, besides: Sequence[str]) -> list[str]:
    """Return the columns to read."""
    wanted = step.columns.schema.names if columns is None else columns
    return list(dict.fromkeys([*wanted, *besides, *EVENT_MARKS]))
