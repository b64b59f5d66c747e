"""A stateless processor as a mapper: each batch of events by itself; those of the archive as columns, where the processor takes them."""

from __future__ import annotations

from functools import partial
from typing import cast

from ...processors.declare.stateless import Stateless
from ...processors.keyed_state.changes import EmptyState
from ...processors.operators import StatelessOperator
from ...processors.time.shard_time import NoShardTime
from ..sources.files import Planned
from ..spark.batches import Batches, Transform
from ..spark.session import BATCH_EVENTS
from .columnar import Reading
from .step import Step, guarded


def mapper(step: Step) -> Transform:
    """Return the step as Spark runs it, on events."""
    return partial(_run, step)


def file_mapper(step: Step, planned: Planned) -> Transform:
    """Return the step as Spark runs it, on files that a task reads itself."""
    return partial(_run_on_files, step, planned)


def _run(step: Step, batches: Batches) -> Batches:
    return guarded(step, _mapped(step, batches))


def _run_on_files(step: Step, planned: Planned, tasks: Batches) -> Batches:
    files = planned.named(tasks)
    if cast("Stateless", step.opened.processor).takes_columns():
        return guarded(step, Reading(step, planned, files).mapped())
    return guarded(step, _mapped(step, planned.read(files, step.fields, BATCH_EVENTS)))


def _mapped(step: Step, batches: Batches) -> Batches:
    core = StatelessOperator(cast("Stateless", step.opened.processor), EmptyState(), NoShardTime())
    for batch in step.taken(batches):
        fed = step.feed(core, step.columns.records(batch), batch, 0)
        step.counters.events_in.add(batch.num_rows)
        step.counters.set_aside.add(len(fed.rejected) + fed.unmatched)
        yield from step.give(fed.outputs)
