"""Stateless processor as a mapper: batch by batch, as columns if the processor supports them."""

from __future__ import annotations

from functools import partial
from typing import cast

from ...processors.declare.stateless import Stateless
from ...processors.keyed_state.changes import EmptyState
from ...processors.operators import StatelessOperator
from ...processors.time.shard_time import UntrackedTime
from ..sources.files import PlannedFiles
from ..spark.batches import Batches, Transform
from ..spark.session import BATCH_EVENTS
from .columnar import ColumnReader
from .step import Step, guarded


def mapper_step(step: Step) -> Transform:
    """Return the step for Spark, on events."""
    return partial(_run, step)


def file_mapper_step(step: Step, planned: PlannedFiles) -> Transform:
    """Return the step for Spark, on files that a task reads directly."""
    return partial(_run_on_files, step, planned)


def _run(step: Step, batches: Batches) -> Batches:
    return guarded(step, _mapped(step, batches))


def _run_on_files(step: Step, planned: PlannedFiles, tasks: Batches) -> Batches:
    files = planned.files_of(tasks)
    if cast("Stateless", step.opened.processor).has_columns_step():
        return guarded(step, ColumnReader(step, planned, files).outputs(partial(_processed, step)))
    return guarded(step, _mapped(step, planned.read(files, step.fields, BATCH_EVENTS)))


def _mapped(step: Step, batches: Batches) -> Batches:
    return _processed(step, _counted(step, step.accepted(batches)))


def _counted(step: Step, batches: Batches) -> Batches:
    for batch in batches:
        step.counters.events_in.add(batch.num_rows)
        yield batch


def _processed(step: Step, accepted: Batches) -> Batches:
    operator = StatelessOperator(cast("Stateless", step.opened.processor), EmptyState(), UntrackedTime())
    for batch in accepted:
        result = step.feed(operator, step.columns.records(batch), batch, 0)
        step.counters.rejected.add(len(result.rejected) + result.unmatched)
        yield from step.output_rows(result.outputs)
