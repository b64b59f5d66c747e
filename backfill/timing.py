"""A stateful processor with timers as a reducer in order of event time: one key at a time, each timer between the events it lies between.

Nothing is late here: events of a key come sorted by their time, and the watermark is that of the last one. Where the events end, it
goes on to the newest event of all, and timers up to there fire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, cast

import pyarrow as pa

from ..processors.changes import NothingSaved
from ..processors.cores import StatefulCore
from ..processors.kinds import Stateful
from ..processors.watermarks import Behind
from .folding import expect_keys
from .layout import Days
from .steps import Batches, Step, Transform, guarded


def timer(step: Step, within: Days, until_ms: int) -> Transform:
    """Return the step as Spark runs it, on partitions that hold whole keys, sorted by key, event time, bucket and offset.

    Args:
        step: whose.
        within: of which days outputs are given, by their own event time.
        until_ms: up to where timers fire when a key has no more events (milliseconds since 1970, UTC).
    """
    return partial(_run, step, within, until_ms)


def _run(step: Step, within: Days, until_ms: int, batches: Batches) -> Batches:
    return guarded(step, _by_key(step, within, until_ms, batches))


def _by_key(step: Step, within: Days, until_ms: int, batches: Batches) -> Batches:
    parts = (part for batch in step.taken(batches) for part in _keys_of(batch))
    for _, of_key in groupby(parts, key=lambda part: part[0]):
        core = StatefulCore(cast("Stateful", step.opened.processor), NothingSaved(), Behind())
        for _, batch in of_key:
            events = step.columns.records(batch)
            expect_keys(step, batch, events)
            fed = step.feed(core, events, batch, 0)
            step.counters.events_in.add(len(events))
            step.counters.set_aside.add(len(fed.rejected))
            yield from step.give(_inside(step, fed.outputs, within))
        rest = core.advance({step.category: until_ms}, ())
        yield from step.give(_inside(step, rest.outputs, within))


def _keys_of(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Cut a batch where the key changes."""
    begin = 0
    for key, run in groupby(batch.column("_key").to_pylist()):
        length = sum(1 for _ in run)
        yield str(key), batch.slice(begin, length)
        begin += length


def _inside(step: Step, outputs: Sequence[Any], within: Days) -> list[Any]:
    """Keep the outputs that belong to the days asked for."""
    return [output for output, time in zip(outputs, _times(step, outputs), strict=True) if within.holds(time)]


def _times(step: Step, outputs: Iterable[Any]) -> Iterator[int]:
    fields = {category.record: category.event_time for category in step.opened.processor.outputs()}
    return (getattr(output, fields[type(output)]) for output in outputs)
