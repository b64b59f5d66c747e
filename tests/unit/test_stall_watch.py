"""The log of a worker whose loop stalls."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import penstock as ps
from penstock.ops.kernel import Driver, LoopMonitor, Worker, stalls_logged
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.testing import InlineExecutor
from penstock.state import MemoryStateFolder
from penstock.transport import Outgoing

LIMIT_S = 120.0


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=1)


class Slow(ps.Stateless[Reading, ps.Record]):
    """Waits for a meter that does not answer."""

    reads = readings
    until: Callable[[], bool] = staticmethod(lambda: True)

    def process(self, event: Reading) -> tuple[()]:
        """Wait for the meter."""
        deadline = time.monotonic() + LIMIT_S
        while not type(self).until():
            assert time.monotonic() < deadline, "the stall was not logged"
            time.sleep(0.01)  # the meter does not answer
        return ()


def run_once(processor: type[Slow], limit_s: float, caplog: pytest.LogCaptureFixture) -> None:
    """Run a worker over one event, with a watch, until all turns after it are short."""
    driver, monitor = Driver(processor), LoopMonitor()
    config = WorkerConfig(driver.bus, MemoryStateFolder(), "one")
    worker = Worker(processor(), config, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    driver.bus.writer().send("readings", [Outgoing(b"m1", b'{"meter":"m1","at":1}', 0)])
    deadline = time.monotonic() + LIMIT_S

    def finished(worker: Worker) -> bool:
        monitor.record_turn(worker)
        assert time.monotonic() < deadline
        is_reported = "continues after" in caplog.text or "has not turned" not in caplog.text
        return worker.metrics.events_in == 1 and is_reported

    with caplog.at_level(logging.WARNING, "penstock.worker"), stalls_logged(monitor, limit_s, 0.02):
        worker.run(finished)


@contextmanager
def waiting_thread(name: str) -> Iterator[None]:
    """Run a thread that waits during the block."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name=name)
    thread.start()
    yield
    ended.set()
    thread.join()


def test_a_stall_is_logged_once_with_its_line_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """The line of user code comes first, then the stacks of the loop and of the other threads."""

    class Stalled(Slow):
        until = staticmethod(lambda: "has not turned" in caplog.text)

    with waiting_thread("uploader"):
        run_once(Stalled, 2.0, caplog)  # a busy machine may keep the loop from a turn for a while

    assert caplog.text.count("has not turned") == 1
    assert "It is in process (test_stall_watch.py, line" in caplog.text
    assert "time.sleep(0.01)  # the meter does not answer" in caplog.text
    assert caplog.text.index("the worker's loop:") < caplog.text.index("thread uploader:")
    assert "The worker's loop continues after" in caplog.text


def test_a_loop_that_turns_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged below the limit."""
    run_once(Slow, 60.0, caplog)

    assert "has not turned" not in caplog.text
