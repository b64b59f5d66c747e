"""Stateless processor as a mapper: batch by batch, as columns if the processor supports them; or in order of arrival."""

from __future__ import annotations

from functools import partial
from typing import cast

from ...processors.declare import Stateless, plan_of
from ...processors.keyed_state import EmptyState
from ...processors.operators import StatelessOperator
from ...processors.time import UntrackedTime
from ..sources import PlannedFiles
from ..spark import BATCH_EVENTS, Batches, Transform
from .columnar import ColumnReader
from .inputs import Inputs, chunks
from .step import BatchStep, guarded, places_in


def mapper_step(step: BatchStep) -> Transform:
    """Return the step for Spark, on events."""
    return partial(_run, step)


def file_mapper_step(step: BatchStep, planned: PlannedFiles) -> Transform:
    """Return the step for Spark, on files that a task reads directly."""
    return partial(_run_on_files, step, planned)


def arrival_mapper_step(inputs: Inputs) -> Transform:
    """Return the step for Spark, on partitions of complete buckets, sorted by bucket and arrival."""
    return partial(_run_by_arrival, inputs)


def _run(step: BatchStep, batches: Batches) -> Batches:
    return guarded(step, _mapped(step, batches))


def _run_on_files(step: BatchStep, planned: PlannedFiles, tasks: Batches) -> Batches:
    files = planned.files_of(tasks)
    if plan_of(cast("Stateless", step.opened.processor)).has_columns_step:
        return guarded(step, ColumnReader(step, planned, files).outputs(partial(_processed, step)))
    return guarded(step, _mapped(step, planned.read(files, step.fields, BATCH_EVENTS)))


def _run_by_arrival(inputs: Inputs, batches: Batches) -> Batches:
    return guarded(inputs.steps[0], _mapped_by_arrival(inputs, batches))


def _mapped_by_arrival(inputs: Inputs, batches: Batches) -> Batches:
    operator = StatelessOperator(cast("Stateless", inputs.processor), EmptyState(), UntrackedTime())
    for events in chunks(inputs.events(batches), BATCH_EVENTS):
        yield from inputs.steps[0].output_rows(inputs.feed(operator, events))


def _mapped(step: BatchStep, batches: Batches) -> Batches:
    return _processed(step, _counted(step, step.accepted(batches)))


def _counted(step: BatchStep, batches: Batches) -> Batches:
    for batch in batches:
        step.counters.events_in.add(batch.num_rows)
        yield batch


def _processed(step: BatchStep, accepted: Batches) -> Batches:
    operator = StatelessOperator(cast("Stateless", step.opened.processor), EmptyState(), UntrackedTime())
    for batch in accepted:
        result = step.feed(operator, step.columns.records(batch), places_in(batch))
        step.counters.rejected.add(len(result.rejected) + result.unmatched)
        yield from step.output_rows(result.outputs)
