"""How the loop of a worker spends its time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from support.faulty import DelayedExecutor
from support.machines import create_categories, write
from support.resets import Totals, generate_readings, readings

from penstock.ops.kernel import Worker, prepare
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.loop.worker import POLL_WAIT_S
from penstock.ops.kernel.telemetry.loop_time import LoopTime
from penstock.ops.kernel.testing import InlineExecutor
from penstock.ops.shell import SteeredClock
from penstock.state.local import RocksStateFolder
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.network import REQUEST_LIMIT_S, Network

FLUSH_S = 3.0
T = TypeVar("T")


class SlowNetwork(Network):
    """A network with slow flushes, in which waiting takes time."""

    def __init__(self, clock: SteeredClock) -> None:
        self._clock = clock

    def request(self, what: str, effect: Callable[[], T], limit_s: float = REQUEST_LIMIT_S) -> T:
        """Send a request."""
        if what == "flush":
            self._clock.advance(FLUSH_S)
        return effect()

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for the whole time if the condition is false."""
        if not until():
            self._clock.advance(timeout_s)
        return until()


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    """A worker with 20 events to read."""
    clock = SteeredClock(4_000_000_000_000)
    bus = MemoryBus(clock.now_ms)
    create_categories(bus, [Totals])
    write(bus, readings, generate_readings(0, 20))
    slow = MemoryBus(cluster=bus.cluster, network=SlowNetwork(clock))
    config = WorkerConfig(slow, RocksStateFolder(tmp_path), "worker")
    return Worker(prepare(Totals, bus), config, InlineExecutor(), DelayedExecutor(polls=1_000), clock=clock)


def test_a_worker_is_idle_while_no_event_comes(worker: Worker) -> None:
    """It is not idle while events come."""
    while not worker.metrics.events_in:
        worker.run_once()
    before_s = worker.metrics.loop.idle_s
    assert worker.save()
    worker.run_once()  # the ends of the buckets are news, too
    for _ in range(3):
        worker.run_once()
    worker.stop()
    worker.run()

    assert worker.metrics.loop.idle_s - before_s == pytest.approx(3 * POLL_WAIT_S)


def test_a_worker_is_blocked_while_its_outputs_are_flushed(worker: Worker) -> None:
    """Its loop waits for the flush, for example at its end."""
    while not worker.metrics.events_in:
        worker.run_once()
    before_s = worker.metrics.loop.blocked_s
    assert worker.save()
    after_s = worker.metrics.loop.blocked_s
    worker.stop()
    worker.run()

    assert after_s - before_s >= FLUSH_S


def test_time_is_either_idle_or_blocked() -> None:
    """A worker that has to give a bucket away saves a checkpoint while it waits for events."""
    clock = SteeredClock()
    loop = LoopTime(clock)
    with loop.idle():
        clock.advance(1)
        with loop.blocked():
            clock.advance(5)
        clock.advance(2)

    assert (loop.idle_s, loop.blocked_s) == (3, 5)
