"""Tables of Scuba on a bus in memory, without a thread."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock.ops.serve.rows.explorer import Explorer, QueryLimits
from penstock.ops.serve.rows.flat_columns import FlatColumns
from penstock.ops.serve.rows.from_query import saving
from penstock.ops.serve.rows.ingester import FLUSH_S, Ingester, IngestOptions
from penstock.ops.serve.rows.sampling import ALL, SampleRate
from penstock.ops.serve.rows.store import ScubaStore
from penstock.ops.serve.rows.table_source import NewestEvents
from penstock.ops.shell import SteeredClock
from penstock.processors.apps import App
from penstock.processors.declare import AnyCategory
from penstock.transport import CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

START_MS = 1_790_000_000_000
KEEP = timedelta(hours=2)


class Device(ps.Record, frozen=True):
    """A nested record."""

    os: str
    memory: int | None = None


class Hit(ps.Record, frozen=True):
    """A request of a page. Columns may be named `at` and `g0`."""

    page: str
    at: ps.EventTime
    ms: float
    g0: int
    device: Device | None = None
    tags: list[str] = msgspec.field(default_factory=list)
    labels: dict[str, int] = msgspec.field(default_factory=dict)


hits = ps.Category("shop.hits", Hit, key="page", event_time="at", buckets=3)


class Slow(ps.Stateless):
    """A processor of the served app."""

    reads, writes = hits, ps.Category("shop.slow", Hit, key="page", event_time="at", buckets=3)

    def process(self, event: Hit) -> list[Hit]:
        return [event] if event.ms > 100 else []


SAVING = saving(App.of("shop", [Slow]))
"""Saves queries as apps."""


def random_hits(count: int, seed: int) -> list[Hit]:
    """Return requests within ten minutes; some values are missing."""
    dice = random.Random(seed)
    return [
        Hit(
            f"/p{int(dice.expovariate(0.3))}",
            START_MS + dice.randrange(600_000),
            round(dice.lognormvariate(3, 1), 3),
            dice.randrange(5),
            None if dice.random() < 0.1 else Device(dice.choice(["ios", "android"]), dice.choice([None, 2, 4])),
            dice.sample(["a", "b", "c"], dice.randrange(3)),
            {"n": dice.randrange(3)},
        )
        for _ in range(count)
    ]


class Scuba:
    """A store, its ingester and its explorer. The test lets time pass."""

    def __init__(
        self,
        bus: MemoryBus,
        clock: SteeredClock,
        store: ScubaStore,
        tables: dict[str, tuple[AnyCategory, FlatColumns]],
        options: IngestOptions,
        limits: QueryLimits | None,
    ) -> None:
        self.bus, self.clock, self.store = bus, clock, store
        self.ingester = Ingester(tables, bus, store, options, clock)
        self.source = NewestEvents(store, self.ingester, options.rate, clock)
        self.explorer = Explorer([self.source], limits, clock)

    def read(self) -> None:
        """Read and store all that the bus has."""
        for _ in range(20):
            self.ingester.run_once()
        self.clock.advance(FLUSH_S * 2)
        self.ingester.run_once()

    def rows(self, table: str = hits.name) -> list[tuple[Any, ...]]:
        """Return all rows, in order of their positions."""
        with self.store.cursor() as cursor:
            return cursor.execute(f'SELECT * FROM "{table}" ORDER BY _bucket, _offset').fetchall()

    def positions(self, table: str = hits.name) -> list[tuple[int, int]]:
        """Return the positions of all rows, in order."""
        with self.store.cursor() as cursor:
            return cursor.execute(f'SELECT _bucket, _offset FROM "{table}" ORDER BY ALL').fetchall()


def new_bus(clock: SteeredClock) -> MemoryBus:
    """Return a bus with the category."""
    bus = MemoryBus(now_ms=clock.now_ms)
    bus.catalog.create(CategorySpec.of(hits))
    return bus


def send(bus: MemoryBus, records: Sequence[Hit | bytes | None]) -> None:
    """Send records, or the bytes of messages, in turns to the buckets."""
    for number, record in enumerate(records):
        value = msgspec.json.encode(record) if isinstance(record, Hit) else record
        bus.append(hits.name, Outgoing(b"k", value, number % hits.buckets))


@contextmanager
def scuba_on(
    bus: MemoryBus,
    clock: SteeredClock,
    *,
    file: Path | None = None,
    rate: float = ALL,
    max_bytes: int = 1 << 30,
    memory: int = 1 << 28,
    limits: QueryLimits | None = None,
    categories: Sequence[AnyCategory] = (hits,),
) -> Iterator[Scuba]:
    """Yield tables on a bus."""
    tables = {category.name: (category, FlatColumns(category)) for category in categories}
    schemas = {name: columns.schema for name, (_, columns) in tables.items()}
    options = IngestOptions(KEEP, SampleRate(rate), max_bytes)
    store = ScubaStore(schemas, file, memory, options.rate)
    try:
        yield Scuba(bus, clock, store, tables, options, limits)
    finally:
        store.close()
