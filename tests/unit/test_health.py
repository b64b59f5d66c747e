"""The health endpoint of a worker."""

from __future__ import annotations

import http.client
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import msgspec
import pytest
from prometheus_client import Counter

import penstock as ps
from penstock.ops.dev_services.ports import choose_ports
from penstock.ops.testing import Driver, InlineExecutor
from penstock.ops.worker.health import STUCK_S, Address, Health, HealthUnavailable, LoopMonitor, serve_health
from penstock.ops.worker.worker import Worker, WorkerConfig
from penstock.state.protocols import MemoryStateFolder
from penstock.transport.messages import Outgoing


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


class Steered:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def asked(address: Address, path: str) -> tuple[int, Health | None]:
    """Send a request; return the status and the body."""
    connection = http.client.HTTPConnection(*address, timeout=10)
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
    monitor, address = LoopMonitor(clock), Address("127.0.0.1", choose_ports(["health"], {})["health"])
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
        worker._shards.close({1})
        monitor.record_turn(worker)
        assert (asked(address, "/health")[0], asked(address, "/ready")[0]) == (200, 503)
        clock.s += STUCK_S + 1
        assert asked(address, "/health")[0] == 503

        assert asked(address, "/other") == (404, None)


def metrics_at(address: Address) -> dict[str, float]:
    """Return the samples that a worker serves."""
    connection = http.client.HTTPConnection(*address, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_a_worker_serves_its_metrics_and_those_of_the_users_code() -> None:
    """Any metric of prometheus_client is among them; the counters of the worker have the name of the processor."""
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
        Address("127.0.0.1", choose_ports(["health"], {})["health"]),
    )
    with serve_health(address, monitor):
        before = metrics_at(address)
        with closing(driver.bus.writer()) as writer:
            writer.send(readings.name, [Outgoing(b"m", b'{"meter": "m", "at": 1}') for _ in range(5)])
            writer.flush()
        while worker.metrics.events_in < 5:
            worker.run_once()
        monitor.record_turn(worker)
        after = metrics_at(address)

    assert "penstock_worker_events_in_total" not in before
    assert after['penstock_worker_events_in_total{processor="counted"}'] == 5
    assert after['test_health_calls_total{result="ok"}'] == 5


def test_an_unavailable_address_is_named() -> None:
    """The error precedes the first event."""
    address = Address("127.0.0.1", choose_ports(["health"], {})["health"])
    with (
        serve_health(address, LoopMonitor()),
        pytest.raises(HealthUnavailable, match=f"{address.port}.*another port"),
        serve_health(address, LoopMonitor()),
    ):
        pass
    assert Address.parse("8080") == ("127.0.0.1", 8080)
    assert Address.parse("0.0.0.0:80") == ("0.0.0.0", 80)  # noqa: S104 - the address in a pod

    with pytest.raises(HealthUnavailable, match="Use a port"):
        Address.parse("here")
