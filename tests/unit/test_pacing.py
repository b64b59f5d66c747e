"""The number of events in one iteration of a worker's loop."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import penstock as ps
from penstock.ops.kernel import Worker
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.loop.batch_sizer import FIRST_BATCH, TARGET_BATCH_S, BatchSizer
from penstock.ops.kernel.testing import InlineExecutor
from penstock.ops.shell import SteeredClock
from penstock.processors.declare import dead_letters_of
from penstock.state import MemoryStateFolder
from penstock.transport import CategorySpec, Outgoing, create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import WATERMARKS


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=1)
EVENT_S = 0.01


class Slow(ps.Stateless):
    """Takes a fixed time for each event, on the worker's clock."""

    reads = readings

    def __init__(self) -> None:
        self.clock = SteeredClock()

    def process(self, event: Reading) -> Iterable[Reading]:
        self.clock.advance(EVENT_S)
        return ()


def test_a_slow_processor_gets_small_batches() -> None:
    """After the first batch, the loop iterates often enough to report, to save, and to release buckets."""
    slow = Slow()
    bus = MemoryBus(slow.clock.now_ms)
    for category in (readings, dead_letters_of(Slow)):
        bus.create(CategorySpec.of(category))
    create_missing_categories(bus, WATERMARKS)
    for at in range(2_000):
        bus.append("readings", Outgoing(b"m", b'{"meter":"m","at":%d}' % at))
    config, read = WorkerConfig(bus, MemoryStateFolder(), "one"), [0]
    worker = Worker(
        slow,
        config,
        InlineExecutor(),
        InlineExecutor(),
        clock=slow.clock,
        after_turn=lambda worker: read.append(worker.metrics.events_in),
    )
    while read[-1] < 2_000:
        worker.run_once()
    first, *others = [later - earlier for earlier, later in pairwise(read) if later > earlier]

    assert first == FIRST_BATCH
    assert max(others) <= TARGET_BATCH_S / EVENT_S
    assert bus.committed("slow", "readings")[0] > FIRST_BATCH


def test_a_fast_processor_gets_batches_of_the_maximum_size() -> None:
    """The size grows within a few iterations, and shrinks at once when the processor becomes slow."""
    sizer = BatchSizer(10_000)
    sizes = []
    for _ in range(4):
        sizer.record(sizer.at_most, 0.001)
        sizes.append(sizer.at_most)
    sizer.record(10_000, 50.0)

    assert sizes == [2_000, 8_000, 10_000, 10_000]
    assert sizer.at_most == 100


def test_a_batch_has_at_least_one_event() -> None:
    """The slowest processor still gets one event; an empty batch does not change the size."""
    sizer = BatchSizer(10)
    sizer.record(0, 60.0)
    assert sizer.at_most == 10

    sizer.record(1, 60.0)
    assert sizer.at_most == 1
