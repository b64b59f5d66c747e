"""Tiers of a Laser table in this process, on a bus in memory."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import msgspec

import penstock as ps
from penstock.ops.http import listening_at
from penstock.ops.kernel import Environment, Worker, assemble_worker, prepare
from penstock.ops.serve.latest.commands import Cursors, LaserServices
from penstock.ops.serve.latest.pairs import Pairs
from penstock.ops.serve.latest.served_pairs import ServedPairs
from penstock.ops.serve.latest.server import Limits, serving
from penstock.ops.serve.latest.table import LatestTable
from penstock.processors import ending
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

LIMIT_S = 90.0
DEFAULT_LIMITS = Limits()


class Ranking(ps.Record, frozen=True):
    """The busiest airport of a carrier."""

    carrier: str
    at: ps.EventTime
    top: str
    flights: int


rankings = ps.Category("rankings", Ranking, key="carrier", event_time="at", buckets=3)


def bus_of_rankings() -> MemoryBus:
    """Return a bus with the category."""
    bus = MemoryBus()
    bus.catalog.create(CategorySpec.of(rankings))
    return bus


def send(bus: MemoryBus, *sent: Ranking) -> None:
    """Send rankings to their buckets."""
    for ranking in sent:
        message = Outgoing(ranking.carrier.encode(), msgspec.json.encode(ranking), rankings.bucket_of(ranking.carrier))
        bus.append(rankings.name, message)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not become so"
        time.sleep(0.005)


@contextmanager
def tier(bus: MemoryBus, folder: Path, table: LatestTable) -> Iterator[ServedPairs]:
    """Run a tier's worker in a thread; yield its pairs, once they are complete."""
    stopped = Event()
    with (
        ending(prepare(table.processor(), bus)) as processor,
        assemble_worker(processor, bus, Environment(folder)) as worker,
    ):
        pairs = ServedPairs(table, bus)

        def publish(worker: Worker) -> bool:
            pairs.publish(worker)
            return stopped.is_set()

        thread = Thread(target=worker.run, args=(publish,))
        thread.start()
        try:
            wait_for(lambda: pairs.is_complete)
            yield pairs
        finally:
            stopped.set()
            thread.join()


@contextmanager
def redis_server(
    name: str,
    pairs: Pairs,
    port: int = 0,
    limits: Limits = DEFAULT_LIMITS,
    tls: ssl.SSLContext | None = None,
    token: bytes | None = None,
) -> Iterator[int]:
    """Serve pairs to Redis clients; yield the port."""
    services = LaserServices(name, pairs, token, Cursors())
    with listening_at("127.0.0.1", port, "Laser") as listener, serving(services, listener, limits, tls):
        yield int(listener.getsockname()[1])
