"""A worker that stops at the end of its input, after its group has processed all of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from support.machines import write
from support.statuses import report

import penstock as ps
from penstock.ops.kernel import REPORT_INTERVAL_S, REPORTS, SILENT_AFTER_S, Driver, Report, Worker, ends_of, node_of
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.loop.until_end import UntilEnd
from penstock.ops.kernel.telemetry.reports import report_message
from penstock.ops.kernel.testing import InlineExecutor
from penstock.processors.apps import upstream_of
from penstock.processors.declare import plan_of
from penstock.state import MemoryStateFolder
from penstock.transport import BusUnreachable, Outgoing, WatermarkWriter
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.network import REQUEST_LIMIT_S, Network
from penstock.transport.tables import watermarks_on

Answer = TypeVar("Answer")
MINUTE = 60_000
NOW_MS = 4_102_444_800_000


class Visit(ps.Record, frozen=True):
    """A visit to a page."""

    page: str
    at: ps.EventTime


class Count(ps.Record, frozen=True):
    """The number of a page's visits."""

    page: str
    at: ps.EventTime
    visits: int


visits = ps.Category("visits", Visit, key="page", event_time="at", buckets=2)
counts = ps.Category("counts", Count, key="page", event_time="at", buckets=2)


class Minutes(ps.Aggregator):
    """Counts the visits of each minute by the upstream watermark."""

    reads, writes, monoid = visits, counts, ps.monoids.Count()
    window, emit, late = ps.windows.Tumbling(timedelta(minutes=1)), ps.AtWatermark(), ps.OnLate.DROP
    watermark = ps.watermarks.UpstreamWatermark()

    def result(self, key: str, window: ps.windows.Window, value: int) -> Count:
        """Return the count."""
        return Count(key, window.start, value)


class Later(ps.Stateful):
    """Reports a page one second after its visit, by the clock."""

    reads, writes, state, deterministic = visits, counts, int, False

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, list[Count]]:
        """Count the visit, and set a timer."""
        context.timer(NOW_MS + 1_000, clock=ps.Clock.WALL)
        return (state or 0) + 1, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[int, list[Count]]:
        """Report the page."""
        return state, [Count(context.key, timer.at, state)]


VISITS = [Visit(page, 0) for page in "abcdefgh"]


def worker_of(
    processor: type[ps.Processor],
    driver: Driver,
    states: MemoryStateFolder,
    name: str = "one",
    bus: MemoryBus | None = None,
) -> Worker:
    """Return a worker that joins its group in its first iteration; by default, on the driver's bus."""
    config = WorkerConfig(bus or driver.bus, states, name)
    return Worker(processor(), config, InlineExecutor(), InlineExecutor(), clock=driver.clock)


def run_to_end(worker: Worker, processor: type[ps.Processor], driver: Driver, turn_s: float = 0.0) -> None:
    """Run a worker until it stops. Each turn of its loop takes `turn_s`."""
    at_end, deadline = (
        UntilEnd(ends_of(plan_of(processor).inputs, driver.bus), processor.name, driver.bus),
        time.monotonic() + 120,
    )

    def finished(worker: Worker) -> bool:
        assert time.monotonic() < deadline, "it does not end"
        driver.clock.advance(turn_s)
        return at_end(worker)

    worker.run(finished)


def report_of(processor: type[ps.Processor], end_reason: str = "") -> Outgoing:
    """Return the report of a worker that runs to the end of its input, or has ended."""
    return report_message(reported(processor, "one", until_end=True, end_reason=end_reason))


def reported(processor: type[ps.Processor], worker: str, **fields: Any) -> Report:
    return report(0, node=node_of(processor), worker=worker, shards=(), **fields)


def begun(processor: type[ps.Processor]) -> tuple[Driver, MemoryStateFolder]:
    """Return a bus on which a processor has read all events and has stopped."""
    driver, states = Driver(processor), MemoryStateFolder()
    write(driver.bus, visits, VISITS)
    run_to_end(worker_of(processor, driver, states), processor, driver)
    assert sum(driver.bus.committed(processor.name, "visits").values()) == len(VISITS)
    assert driver.read(counts) == []
    return driver, states


def test_windows_that_an_upstream_watermark_completed_are_written() -> None:
    """The group has read everything before the worker starts."""
    driver, states = begun(Minutes)
    with WatermarkWriter(driver.bus, "visits") as injector:
        injector.advance(MINUTE)
    run_to_end(worker_of(Minutes, driver, states), Minutes, driver)

    assert sorted(one.page for one in driver.read(counts)) == list("abcdefgh")


def test_due_processing_time_timers_fire() -> None:
    """A run to the end writes their results, too, as it does for upstream watermarks."""
    driver, states = begun(Later)
    driver.clock.advance(2)
    run_to_end(worker_of(Later, driver, states), Later, driver)

    assert sorted(one.page for one in driver.read(counts)) == list("abcdefgh")


def test_a_worker_without_buckets_stops() -> None:
    """The group has assigned all buckets to other workers, which have read them."""
    driver, states = begun(Later)
    others = [worker_of(Later, driver, states, name) for name in ("two", "three")]
    for other in others * 3:  # both join, then the first releases a bucket for the second
        other.run_once()
    worker = worker_of(Later, driver, states, "four")
    knew = worker.owns_nothing
    run_to_end(worker, Later, driver)

    assert not knew
    assert sorted(other.owned for other in others) == [(0,), (1,)]


class ExactMinutes(Minutes):
    """Writes its counts in transactions."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


class ExactLater(Later):
    """Writes its reports in transactions."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


def test_a_worker_without_buckets_ends_the_transaction_of_its_last_run() -> None:
    """Readers of the outputs would otherwise wait until its timeout."""
    driver, states = begun(ExactLater)
    others = [worker_of(ExactLater, driver, states, name) for name in ("two", "three")]
    for other in others * 3:
        other.run_once()
    died = driver.bus.transactional_writer(f"{ExactLater.name}.four", None, 600.0, ["counts"])
    died.send("counts", [Outgoing(b"a", b"{}")])
    died.flush()
    assert driver.bus.catalog.stable_ends("counts") != driver.bus.catalog.ends("counts")
    run_to_end(worker_of(ExactLater, driver, states, "four"), ExactLater, driver)

    assert sorted(other.owned for other in others) == [(0,), (1,)]
    assert driver.bus.catalog.stable_ends("counts") == driver.bus.catalog.ends("counts")


class LosesCommits(Network):
    """Loses the next requests to commit.

    Args:
        losses: how many.
    """

    def __init__(self, losses: int) -> None:
        self.losses = losses

    def request(self, what: str, effect: Callable[[], Answer], limit_s: float = REQUEST_LIMIT_S) -> Answer:
        """Perform every request but the lost ones."""
        if what.startswith("commit") and self.losses:
            self.losses -= 1
            raise BusUnreachable(f"{what} was lost.")
        return super().request(what, effect, limit_s)


@pytest.mark.parametrize("processor", [Minutes, ExactMinutes])
@pytest.mark.parametrize("losses", [1, 2, 3])
def test_a_worker_ends_after_its_last_results_are_saved(processor: type[ps.Processor], losses: int) -> None:
    """The positions of the group do not show that: they were at the end before the worker started."""
    driver, states = begun(processor)
    with WatermarkWriter(driver.bus, "visits") as injector:
        injector.advance(MINUTE)
    network = LosesCommits(losses)
    worker = worker_of(processor, driver, states, bus=MemoryBus(cluster=driver.bus.cluster, network=network))
    run_to_end(worker, processor, driver, turn_s=0.1)

    assert network.losses == 0
    assert worker.is_saved
    assert {one.page for one in driver.read(counts)} == set("abcdefgh")


class Copy(ps.Stateless[Visit, Visit]):
    """Copies visits. Its watermark is the newest event time."""

    reads, writes = visits, ps.Category("copies", Visit, key="page", event_time="at", buckets=2)
    watermark = ps.watermarks.BoundedOutOfOrderness()

    def process(self, event: Visit) -> list[Visit]:
        """Return the visit."""
        return [event]


class Occupied(Executor):
    """A thread that is busy until a condition holds.

    Args:
        condition: the condition, which a thread of its own checks.
    """

    def __init__(self, condition: Callable[[], bool]) -> None:
        self._condition = condition
        self._pool = ThreadPoolExecutor(1)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the call once the condition holds."""

        def call() -> Any:
            deadline = time.monotonic() + 120
            while not self._condition():
                assert time.monotonic() < deadline, "the condition does not hold"
                time.sleep(0.01)
            return fn(*args, **kwargs)

        return self._pool.submit(call)


def test_the_last_watermarks_are_published_while_earlier_ones_are_being_sent() -> None:
    """The consumers of a stopped worker may have no later worker to wait for."""
    driver = Driver(Copy)
    for batch in range(3):
        write(driver.bus, visits, [Visit(page, batch * MINUTE) for page in "abcdefgh"])
    occupied = Occupied(lambda: sum(driver.bus.committed("copy", "visits").values()) == 24)
    config = WorkerConfig(driver.bus, MemoryStateFolder(), "one")
    worker = Worker(Copy(), config, InlineExecutor(), InlineExecutor(), clock=driver.clock, requests=occupied)
    run_to_end(worker, Copy, driver)

    found = watermarks_on(driver.bus)
    assert {found["copy", number].low_ms for number in range(2)} == {2 * MINUTE}


class Filter(ps.Stateless):
    """Passes visits on."""

    reads, writes = ps.Category("raw_visits", Visit, key="page", event_time="at", buckets=2), visits

    def process(self, event: Visit) -> list[Visit]:
        """Return the visit."""
        return [event]


class Counting(ps.Stateful):
    """Counts visits, and reports each of them."""

    reads, writes, state = visits, counts, int

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, list[Count]]:
        """Count."""
        return (state or 0) + 1, [Count(context.key, event.at, (state or 0) + 1)]


def test_a_run_to_the_end_waits_for_those_before_it() -> None:
    """It had ended at once, because its input was still empty when it started."""
    assert [each.name for each in upstream_of(Counting, [Filter, Counting])] == ["filter"]
    driver = Driver([Filter, Counting])
    driver.bus.create(REPORTS)
    driver.bus.writer().send(REPORTS.name, [report_of(Filter)])
    worker = worker_of(Counting, driver, MemoryStateFolder())
    at_end = UntilEnd(
        ends_of(plan_of(Counting).inputs, driver.bus), "counting", driver.bus, upstream=["filter"], clock=driver.clock
    )
    deadline, waited = time.monotonic() + 120, 0

    def finished(worker: Worker) -> bool:
        nonlocal waited
        assert time.monotonic() < deadline, "it does not end"
        driver.clock.advance(0.5)
        if worker.has_reached({}) and (waited := waited + 1) == 20:
            write(driver.bus, visits, VISITS)
            driver.bus.writer().send(REPORTS.name, [report_of(Filter, "stopped")])
        return at_end(worker)

    worker.run(finished)

    assert waited >= 20
    assert len(driver.read(counts)) == len(VISITS)


def waiting_for_filter(driver: Driver) -> tuple[Worker, UntilEnd, Callable[[], None]]:
    """Return a worker behind `Filter`, its end, and what lets time pass and reports the worker."""
    forever = reported(Filter, "two")
    own = reported(Counting, "one", until_end=True)
    driver.bus.writer().send(REPORTS.name, [report_message(forever)])
    write(driver.bus, visits, VISITS)
    worker = worker_of(Counting, driver, MemoryStateFolder())
    ends = ends_of(plan_of(Counting).inputs, driver.bus)

    def pass_time() -> None:
        driver.clock.advance(REPORT_INTERVAL_S)
        driver.bus.writer().send(REPORTS.name, [report_message(own)])

    return worker, UntilEnd(ends, "counting", driver.bus, upstream=["filter"], clock=driver.clock), pass_time


def test_a_run_to_the_end_does_not_wait_for_workers_that_are_gone_or_run_for_ever() -> None:
    """A killed worker reports no end, and neither does a worker without an end."""
    driver = Driver([Filter, Counting])
    driver.bus.create(REPORTS)
    driver.bus.writer().send(REPORTS.name, [report_of(Filter)])
    worker, at_end, pass_time = waiting_for_filter(driver)
    deadline, began_s = time.monotonic() + 120, driver.clock.monotonic_s()

    def finished(worker: Worker) -> bool:
        assert time.monotonic() < deadline, "it does not end"
        pass_time()
        return at_end(worker)

    worker.run(finished)

    assert driver.clock.monotonic_s() - began_s >= SILENT_AFTER_S
    assert len(driver.read(counts)) == len(VISITS)


def test_a_run_to_the_end_does_not_take_an_outage_for_the_silence_of_those_before_it() -> None:
    """The processors before it have time to report again after the outage."""
    driver = Driver([Filter, Counting])
    driver.bus.create(REPORTS)
    driver.bus.writer().send(REPORTS.name, [report_of(Filter)])
    worker, at_end, pass_time = waiting_for_filter(driver)
    driver.clock.advance(600)
    turns = 0
    for _ in range(5):
        pass_time()
        worker.run_once()
        assert not at_end(worker)
    driver.bus.writer().send(REPORTS.name, [report_of(Filter, "stopped")])

    def finished(worker: Worker) -> bool:
        nonlocal turns
        turns += 1
        assert turns < 100, "it does not end"
        pass_time()
        return at_end(worker)

    worker.run(finished)

    assert len(driver.read(counts)) == len(VISITS)
