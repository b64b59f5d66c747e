"""A stateless processor as a mapper: each batch of events by itself."""

from __future__ import annotations

from functools import partial
from typing import cast

from ..processors.changes import NothingSaved
from ..processors.cores import StatelessCore
from ..processors.kinds import Stateless
from .steps import Batches, Step, Transform, guarded


def mapper(step: Step) -> Transform:
    """Return the step as Spark runs it."""
    return partial(_run, step)


def _run(step: Step, batches: Batches) -> Batches:
    return guarded(step, _mapped(step, batches))


def _mapped(step: Step, batches: Batches) -> Batches:
    core = StatelessCore(cast("Stateless", step.opened.processor), NothingSaved())
    for batch in step.taken(batches):
        fed = step.feed(core, step.columns.records(batch), batch, 0)
        step.counters.events_in.add(batch.num_rows)
        step.counters.set_aside.add(len(fed.rejected) + fed.unmatched)
        yield from step.give(fed.outputs)
