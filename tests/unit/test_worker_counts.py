"""The counts of a worker, as a program reads them."""

from __future__ import annotations

import json
from datetime import timedelta

import penstock as ps
from penstock.ops.kernel import Driver, Worker
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.telemetry.metrics import Metrics
from penstock.ops.kernel.testing import InlineExecutor
from penstock.processors.lookups import LookupMetrics
from penstock.state import MemoryStateFolder
from penstock.transport import Outgoing


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
    """A sink that does not answer the first requests for rows other than refused ones."""

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

    def write(self, batch: ps.sinks.SinkBatch) -> list[ps.sinks.RefusedRow]:
        """Fail a few times."""
        refused = [ps.sinks.RefusedRow(row, "no such user") for row in batch.rows if row.user == "nobody"]
        self.failures -= len(refused) < len(batch.rows)
        if self.failures >= 0 and not refused:
            raise ps.sinks.SinkUnreachable(f"{len(batch.rows)} rows")
        return refused

    def close(self) -> None:
        """Do nothing."""


class Copies(ps.Stateless[Click, Click]):
    """Writes each click to a sink."""

    reads = ps.Category("clicks", Click, key="user", event_time="at", buckets=1, codec=ps.codecs.JsonArray())
    writes = Failing(0)
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(0))

    def process(self, event: Click) -> list[Click]:
        """Return it."""
        return [event]


def test_an_event_counts_once_although_its_sink_did_not_answer() -> None:
    """It may be a late event or a dead letter, too. The count of events that were read again appears beside it."""
    declared: type[Copies] = type("Copies", (Copies,), {"writes": Failing(3)})
    driver = Driver(Copies)
    place = WorkerConfig(driver.bus, MemoryStateFolder(), "test")
    worker = Worker(declared(), place, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    for values in (b'[{"user":"nobody","at":5}]', b'[{"user":"ann","at":9},{"user":7,"at":9},{"user":"ann","at":1}]'):
        driver.bus.append("clicks", Outgoing(b"ann", values))
        for _ in range(20):
            worker.run_once()
            driver.clock.advance(30)
    counts = worker.metrics.counts()

    assert str(worker.metrics).startswith(
        "4 events in, 3 out, 1 late, 0 dropped as too late, 2 dead letters, 2 checkpoints, 9 read ag"
    )
    assert [counts[name] for name in ("repeated_in", "events_in", "events_out", "late", "dead_letters")] == [
        9,
        4,
        3,
        1,
        2,
    ]
    assert worker.metrics.dead_letters == 2 + 3


def test_only_events_count() -> None:
    """An empty array contains no events, and an array of two contains two."""
    driver = Driver(Copies)
    values = (b"[]", b'[{"user":"ann","at":1},{"user":"ann","at":2}]', b"[]", b'{"user":"ann","at":3}')
    driver.send(Copies.reads, values)

    assert driver.metrics(Copies).events_in == 3
