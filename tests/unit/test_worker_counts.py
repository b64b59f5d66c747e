"""The counts of a worker, as a program reads them."""

from __future__ import annotations

import json

import penstock as ps
from penstock.ops.testing import Driver, InlineExecutor
from penstock.ops.worker.metrics import Metrics
from penstock.ops.worker.worker import Worker, WorkerConfig
from penstock.processors.lookups import LookupMetrics
from penstock.state.protocols import MemoryStateFolder
from penstock.transport.messages import Outgoing


def test_the_counts_of_a_worker_are_json() -> None:
    """`penstock run --json` prints all counts, those of lookups too, and no figures that only Prometheus reads."""
    metrics = Metrics(events_in=3, lookups=LookupMetrics(keys=2))
    metrics.restores.record(10, 0.5)

    counts = json.loads(json.dumps(metrics.counts()))

    assert (counts["events_in"], counts["lookups"]["keys"]) == (3, 2)
    assert counts.keys().isdisjoint({"timings", "restores", "state_cache"})


class Click(ps.Record, frozen=True):
    """A click."""

    user: str
    at: ps.EventTime


class Failing(ps.sinks.Sink):
    """A sink that does not answer the first requests."""

    name, record = "rows", Click
    semantics = frozenset({ps.Semantics.AT_LEAST_ONCE})

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def open(self) -> Failing:
        """Return itself."""
        return self

    def claim(self, processor: str, bucket: int) -> str:
        """Return no position."""
        return ""

    def write(self, batch: ps.sinks.SinkBatch) -> None:
        """Fail a few times."""
        self.failures -= 1
        if self.failures >= 0:
            raise ps.sinks.SinkUnreachable(f"{len(batch.rows)} rows")

    def close(self) -> None:
        """Do nothing."""


class Copies(ps.Stateless[Click, Click]):
    """Writes each click to a sink."""

    reads = ps.Category("clicks", Click, key="user", event_time="at", buckets=1, codec=ps.codecs.JsonArray())
    writes = Failing(0)

    def process(self, event: Click) -> list[Click]:
        """Return it."""
        return [event]


def test_an_event_counts_once_although_its_sink_did_not_answer() -> None:
    """What was read again is said beside the count."""
    declared: type[Copies] = type("Copies", (Copies,), {"writes": Failing(3)})
    driver = Driver(Copies)
    place = WorkerConfig(driver.bus, MemoryStateFolder(), "test")
    worker = Worker(declared(), place, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    driver.bus.append("clicks", Outgoing(b"ann", b'[{"user":"ann","at":1}]'))
    for _ in range(20):
        worker.run_once()
        driver.clock.advance(30)
    metrics = worker.metrics

    assert str(metrics).startswith("1 event in, 1 out,")
    assert f"{metrics.repeated_in} read again after failures" in str(metrics)
    assert (metrics.repeated_in, metrics.counts()["events_in"], metrics.counts()["events_out"]) == (3, 1, 1)


def test_only_events_count() -> None:
    """An empty array contains none, and an array of two contains two."""
    driver = Driver(Copies)
    values = (b"[]", b'[{"user":"ann","at":1},{"user":"ann","at":2}]', b"[]", b'{"user":"ann","at":3}')
    driver.send(Copies.reads, values)

    assert driver.metrics(Copies).events_in == 3
