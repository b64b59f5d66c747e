"""The health endpoint of a worker."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Counter
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import penstock as ps
from penstock.ops.kernel import Driver, Health, ListenAddress, LoopMonitor, Worker, serve_health
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.telemetry.health import HANGING_S, STUCK_S, HealthUnavailable
from penstock.ops.kernel.telemetry.histogram import FAST_S, Histogram
from penstock.ops.kernel.testing import InlineExecutor
from penstock.ops.shell import free_port
from penstock.state import MemoryStateFolder
from penstock.transport import Outgoing


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=3)


class Count(ps.Stateful):
    """Counts the readings."""

    reads, state = readings, int

    def process(self, event: Reading, state: Any, context: ps.Context) -> tuple[Any, Iterable[ps.Record]]:
        return (state or 0) + 1, ()


CALLS = Counter("test_health_calls", "calls of the code of this test", ["result"])


class Counted(Count):
    """Counts its calls."""

    def process(self, event: Reading, state: Any, context: ps.Context) -> tuple[Any, Iterable[ps.Record]]:
        """Count the call."""
        CALLS.labels("ok").inc()
        return super().process(event, state, context)


LIMIT_S = 120.0


class Steered:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def asked(address: ListenAddress, path: str) -> tuple[int, Health | None]:
    """Send a request; return the status and the body."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, msgspec.json.decode(body, type=Health) if body else None


def test_a_worker_is_healthy_while_its_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is unhealthy before its first iteration and when one takes too long; it is ready only while it reads all of its buckets."""
    monkeypatch.setenv("PENSTOCK_DEPLOYMENT", "count@3")
    driver, clock = Driver(Count), Steered()
    worker = Worker(
        Count(),
        WorkerConfig(driver.bus, MemoryStateFolder(), "test"),
        InlineExecutor(),
        InlineExecutor(),
        clock=driver.clock,
    )
    monitor, address = LoopMonitor(clock), ListenAddress("127.0.0.1", free_port())
    with serve_health(address, monitor):
        assert asked(address, "/health")[0] == 503
        worker.run_once()
        worker.run_once()
        monitor.record_turn(worker)
        clock.s += 7
        monitor.record_turn(worker)
        status, report = asked(address, "/health")
        assert status == asked(address, "/ready")[0] == 200
        assert report is not None
        assert (report.deployment, report.buckets, report.settled_s, report.since_turn_s) == (
            "count@3",
            (0, 1, 2),
            7.0,
            0.0,
        )
        worker._parts.shards.close({1})
        monitor.record_turn(worker)
        assert (asked(address, "/health")[0], asked(address, "/ready")[0]) == (200, 503)
        clock.s += STUCK_S + 1
        assert asked(address, "/health")[0] == 503

        assert asked(address, "/other") == (404, None)


def test_only_a_hang_in_user_code_calls_for_a_restart() -> None:
    """A worker that waits for a broker, at its start or later, is not killed; one that hangs in its processor is."""
    driver, clock = Driver(Count), Steered()
    config = WorkerConfig(driver.bus, MemoryStateFolder(), "test")
    worker = Worker(Count(), config, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    monitor, address = LoopMonitor(clock), ListenAddress("127.0.0.1", free_port())
    began, released = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        released.wait(LIMIT_S)

    with serve_health(address, monitor), ThreadPoolExecutor(1) as loop:
        at_start = asked(address, "/live")[0]
        loop.submit(monitor.record_turn, worker).result()
        clock.s += HANGING_S
        in_library = asked(address, "/live")[0], asked(address, "/health")[0]
        loop.submit(hang)
        assert began.wait(LIMIT_S)
        in_user_code = asked(address, "/live")[0]
        clock.s -= 1
        shortly_before = asked(address, "/live")[0]
        released.set()

    assert (at_start, in_library) == (200, (200, 503))
    assert (in_user_code, shortly_before) == (503, 200)


def metrics_text(address: ListenAddress, accept: str = "") -> tuple[str, str]:
    """Return the content type and the text of the metrics that a worker serves."""
    connection = http.client.HTTPConnection(*address, timeout=60)
    connection.request("GET", "/metrics", headers={"Accept": accept})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return str(answer.getheader("Content-Type")), text


def metrics_at(address: ListenAddress) -> dict[str, float]:
    """Return the samples that a worker serves."""
    lines = [line.rsplit(" ", 1) for line in metrics_text(address)[1].splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


@contextmanager
def counting_worker() -> Iterator[tuple[Worker, Driver, LoopMonitor, ListenAddress]]:
    """Yield a worker of `Counted` and the address at which it serves its health."""
    driver = Driver(Counted)
    worker = Worker(
        Counted(),
        WorkerConfig(driver.bus, MemoryStateFolder(), "test"),
        InlineExecutor(),
        InlineExecutor(),
        clock=driver.clock,
    )
    monitor, address = (
        LoopMonitor(driver.clock.monotonic_s),
        ListenAddress("127.0.0.1", free_port()),
    )
    with serve_health(address, monitor):
        yield worker, driver, monitor, address


parse_openmetrics: Any = text_string_to_metric_families


def send_readings(driver: Driver, count: int) -> None:
    """Send readings of one meter."""
    with closing(driver.bus.writer()) as writer:
        writer.send(readings.name, [Outgoing(b"m", b'{"meter": "m", "at": 1}') for _ in range(count)])
        writer.flush()


def test_a_worker_serves_its_metrics_and_those_of_the_users_code() -> None:
    """Any metric of prometheus_client is among them; the counters of the worker have the name of the processor."""
    with counting_worker() as (worker, driver, monitor, address):
        before = metrics_at(address)
        send_readings(driver, 5)
        while worker.metrics.events_in < 5:
            worker.run_once()
        monitor.record_turn(worker)
        after = metrics_at(address)

    assert "penstock_worker_events_in_total" not in before
    assert after['penstock_worker_events_in_total{processor="counted"}'] == 5
    assert after['test_health_calls_total{result="ok"}'] == 5


def test_a_worker_serves_histograms_of_its_times() -> None:
    """They count the age of each event, and the durations of batches and checkpoints. The OpenMetrics format parses, too."""
    with counting_worker() as (worker, driver, monitor, address):
        send_readings(driver, 5)
        driver.clock.advance(2)
        while worker.metrics.events_in < 5:
            worker.run_once()
        worker.save()
        monitor.record_turn(worker)
        samples = metrics_at(address)
        kind, text = metrics_text(address, "application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in parse_openmetrics(text)}
    ages = "penstock_worker_event_age_seconds_bucket"

    assert samples[f'{ages}{{le="1.0",processor="counted"}}'] == 0
    assert (
        samples[f'{ages}{{le="2.5",processor="counted"}}'] == samples[f'{ages}{{le="+Inf",processor="counted"}}'] == 5
    )
    assert samples['penstock_worker_event_age_seconds_sum{processor="counted"}'] == 10
    assert samples['penstock_worker_checkpoint_seconds_count{processor="counted"}'] == worker.metrics.checkpoints
    assert kind.startswith("application/openmetrics-text")
    assert families["penstock_worker_event_age_seconds"].type == "histogram"
    assert {"penstock_worker_events_in", "penstock_worker_processing_seconds", "test_health_calls"} <= families.keys()


@given(durations=st.lists(st.floats(0, 1_000)), cut=st.integers(0, 20))
def test_a_histogram_counts_each_duration(durations: list[float], cut: int) -> None:
    """A duration counts in the first bucket whose bound it does not exceed. The division into batches does not matter."""
    histogram = Histogram(FAST_S)
    for part in (durations[:cut], durations[cut:]):
        histogram.record(np.array(part, dtype=float))
    expected = [(bound, sum(each <= bound for each in durations)) for bound in (*FAST_S, float("inf"))]

    assert list(histogram.cumulative()) == expected
    assert histogram.sum_s == pytest.approx(sum(durations))


def test_an_unavailable_address_is_named() -> None:
    """The error precedes the first event."""
    address = ListenAddress("127.0.0.1", free_port())
    with (
        serve_health(address, LoopMonitor()),
        pytest.raises(HealthUnavailable, match=f"{address.port}.*another port"),
        serve_health(address, LoopMonitor()),
    ):
        pass
    assert ListenAddress.parse("8080") == ("127.0.0.1", 8080)
    assert ListenAddress.parse("0.0.0.0:80") == ("0.0.0.0", 80)  # noqa: S104 - the address in a pod

    with pytest.raises(HealthUnavailable, match="Use a port"):
        ListenAddress.parse("here")
