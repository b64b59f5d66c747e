"""What goes by event time key by key (timers, ordered delivery, sessions), as a reducer: one key at a time, each timer between the events it lies between.

Nothing is late here: events of a key come sorted by their time, and the watermark is that of the last one. Where the events end, it
goes on to the newest event of all, and timers up to there fire.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

import pyarrow as pa

from ..processors.changes import NothingSaved
from ..processors.cores import Core, SessionCore, StatefulCore
from ..processors.cores.ordered import in_order
from ..processors.event_time import InOrder
from ..processors.kinds import Aggregator, OnBad, Processor, Stateful
from .errors import BackfillFailed
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
    for _, of_key in groupby(parts, key=itemgetter(0)):
        core = _core(step.opened.processor)
        for events in _in_turn(step, of_key):
            yield from step.give(_inside(step, _fed(step, core, events), within))
        rest = core.advance({step.category: until_ms}, ())
        yield from step.give(_inside(step, rest.outputs, within))


def _core(processor: Processor) -> Core:
    """Return the core of one key."""
    if isinstance(processor, Aggregator):
        return SessionCore(processor, NothingSaved(), InOrder())
    return StatefulCore(cast("Stateful", processor), NothingSaved(), InOrder())


def _in_turn(step: Step, of_key: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[list[Any]]:
    """Give a key's events; where they are to come in order, those of one time as a worker delivers them."""
    ordered = isinstance(step.opened.processor, Stateful) and step.opened.processor.ordered
    waiting: list[Any] = []  # those of the newest time: there may be more of it in the next batch
    for _, batch in of_key:
        events = step.columns.records(batch)
        expect_keys(step, batch, events)
        if not ordered:
            yield events
            continue
        waiting += events
        times = step.input.event_times_of(waiting)
        border = bisect_left(times, times[-1])
        yield in_order(step.input, waiting[:border])
        del waiting[:border]
    yield in_order(step.input, waiting)


def _fed(step: Step, core: Core, events: Sequence[Any]) -> list[Any]:
    stops = step.opened.processor.raising is OnBad.STOP
    fed = core.feed(step.input, events, stop_at_error=stops)
    if stops and fed.rejected:
        at, error = fed.rejected[0]
        raise BackfillFailed(
            f"{step.processor} raised {type(error).__name__}: {error}, for {events[at]!r} of {step.category}. The backfill stops there, "
            f"and nothing of {step.processor}'s output was published. Mend it or what produces such events, or let them be left out and "
            "counted (`raising = OnBad.DEAD_LETTER`)."
        )
    step.counters.events_in.add(len(events))
    step.counters.set_aside.add(len(fed.rejected))
    return fed.outputs


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
