"""The number of events in a turn of a worker's loop."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import penstock as ps
from penstock.ops.clock import SteeredClock
from penstock.ops.testing import InlineExecutor
from penstock.ops.worker.batch_processor import FIRST_BATCH, TARGET_BATCH_S, BatchSizer
from penstock.ops.worker.worker import Worker, WorkerConfig
from penstock.processors.declare.dead_letters import dead_letters_of
from penstock.state.protocols import MemoryStateFolder
from penstock.transport.category_spec import CategorySpec
from penstock.transport.internal_topics import create_missing_categories
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Outgoing
from penstock.transport.tables.upstream_watermarks import WATERMARKS


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


def test_a_slow_processor_is_given_few_events_at_a_time() -> None:
    """After the first events, the loop turns often enough to report, to save, and to release buckets."""
    slow = Slow()
    bus = MemoryBus(slow.clock.now_ms)
    for category in (readings, dead_letters_of(Slow)):
        bus.create(CategorySpec.of(category))
    create_missing_categories(bus, WATERMARKS)
    for at in range(2_000):
        bus.append("readings", Outgoing(b"m", b'{"meter":"m","at":%d}' % at))
    place, read = WorkerConfig(bus, MemoryStateFolder(), "one"), [0]
    worker = Worker(
        slow,
        place,
        InlineExecutor(),
        InlineExecutor(),
        clock=slow.clock,
        after_turn=lambda it: read.append(it.metrics.events_in),
    )
    while read[-1] < 2_000:
        worker.run_once()
    first, *others = [later - earlier for earlier, later in pairwise(read) if later > earlier]

    assert first == FIRST_BATCH
    assert max(others) <= TARGET_BATCH_S / EVENT_S
    assert bus.committed("slow", "readings")[0] > FIRST_BATCH


def test_a_quick_one_gets_all_that_a_poll_gives() -> None:
    """Within a few turns; when the processor becomes slow, the next poll is small."""
    pace = BatchSizer(10_000)
    seen = []
    for _ in range(4):
        pace.record(pace.at_most, 0.001)
        seen.append(pace.at_most)
    pace.record(10_000, 50.0)

    assert seen == [2_000, 8_000, 10_000, 10_000]
    assert pace.at_most == 100


def test_however_slow_one_event_is_read() -> None:
    """A poll always returns at least one event; an empty batch changes nothing."""
    pace = BatchSizer(10)
    pace.record(0, 60.0)
    assert pace.at_most == 10

    pace.record(1, 60.0)
    assert pace.at_most == 1
