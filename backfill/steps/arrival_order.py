"""What a shard does over its archived bucket, in the order in which the bucket's events came: the stream's own result.

The shard's own core runs, with the watermark that follows from the events, what comes too late included. State that the core has
drained lies in a RocksDB of the task's own, so that a bucket's keys need not fit in memory.

Time passes as the events came: their arrival says which inputs were idle, and what the time of day was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...processors.declare.processor import Processor
from ...processors.operators import Operator, open_operator
from ...processors.time.windows import MILLISECOND
from ...state.local.folder import RocksStateFolder
from ...state.local.rocksdb import RocksShardState
from ...state.protocols import ShardIdentity
from ..spark.batches import Batches, Transform
from ..spark.session import BATCH_EVENTS
from ..warehouse.layout import Days
from .event_time_order import inside
from .inputs import Arrived, Inputs, chunks
from .step import guarded

DRAINED_EVENTS = 100_000
"""After how many events a shard's changes leave memory."""


def arrival_order_step(inputs: Inputs, within: Days) -> Transform:
    """Return the step as Spark runs it, on partitions that hold whole buckets, sorted by bucket and arrival.

    Args:
        inputs: whose.
        within: of which days outputs are given, by their own event time.
    """
    return partial(_run, inputs, within)


def _run(inputs: Inputs, within: Days, batches: Batches) -> Batches:
    return guarded(inputs.steps[0], _by_bucket(inputs, within, batches))


def _by_bucket(inputs: Inputs, within: Days, batches: Batches) -> Batches:
    for bucket, events in groupby(inputs.events(batches), key=lambda one: one.bucket):
        with scratch_state(inputs.processor, bucket) as state:
            for outputs in outputs_of(inputs, state, events):
                yield from inputs.steps[0].give(inside(inputs, outputs, within))


@contextmanager
def scratch_state(processor: Processor, bucket: int) -> Iterator[RocksShardState]:
    """Give an empty state for a shard, which is gone after the block."""
    identity = ShardIdentity(processor.name, bucket, processor.state_shape() or "")
    with TemporaryDirectory() as folder, closing(RocksStateFolder(Path(folder)).open(identity)) as state:
        yield state


def outputs_of(inputs: Inputs, state: RocksShardState, events: Iterator[Arrived]) -> Iterator[list[Any]]:
    """Run a shard over its events, in the order in which they come; give its outputs, and leave its state as it would stand."""
    core = open_operator(inputs.processor, state)
    silence = IdleInputs(inputs.processor, inputs.names)
    undrained = 0
    for chunk in chunks(events, BATCH_EVENTS):
        for idle, part in silence.parts(chunk):
            if idle is not None:
                yield core.advance({}, idle).outputs
            yield inputs.feed(core, part)
        yield core.tick(chunk[-1].arrived).outputs
        undrained += len(chunk)
        if undrained >= DRAINED_EVENTS:
            yield _drained(core, state)
            undrained = 0
    yield _drained(core, state)


def _drained(core: Operator, state: RocksShardState) -> list[Any]:
    drained = core.drain()
    state.save(drained.changes)
    return drained.outputs


class IdleInputs:
    """Says which inputs of a shard are idle, by when events arrived.

    Args:
        processor: whose inputs.
        names: their names, in order.
    """

    def __init__(self, processor: Processor, names: Sequence[str]) -> None:
        alone = len(names) == 1  # nobody waits for the only one
        self._limit_ms = None if alone or processor.idle_after is None else processor.idle_after // MILLISECOND
        self._names = names
        self._heard_ms: dict[int, int] = {}
        self._idle: frozenset[str] = frozenset()

    def parts(self, events: Sequence[Arrived]) -> Iterator[tuple[frozenset[str] | None, Sequence[Arrived]]]:
        """Cut events where an input has become idle; give the parts with the idle ones, and None where they are as before."""
        begin, news = 0, None
        for at, event in enumerate(events if self._limit_ms is not None else ()):
            idle = self._idle_at(event, self._limit_ms or 0)
            if idle - self._idle:
                yield news, events[begin:at]
                begin, news = at, idle
            self._idle = idle
        yield news, events[begin:]

    def _idle_at(self, event: Arrived, limit_ms: int) -> frozenset[str]:
        for number in range(len(self._names)):
            self._heard_ms.setdefault(number, event.arrived)
        self._heard_ms[event.input] = event.arrived
        return frozenset(
            self._names[number] for number, heard in self._heard_ms.items() if event.arrived - heard >= limit_ms
        )
