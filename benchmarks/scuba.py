"""Scuba without Kafka: decoding and storing JSON events in memory, and queries of all rows, also while rows arrive.

python -m benchmarks.scuba [MILLIONS]
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from statistics import median
from threading import Event, Thread

import msgspec
import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.ops.serve.rows.compiler import QueryCompiler
from penstock.ops.serve.rows.flat_columns import FlatColumns
from penstock.ops.serve.rows.queries import Aggregation, ExploreQuery, Filter
from penstock.ops.serve.rows.sampling import ALL
from penstock.ops.serve.rows.store import SavedPositions, ScubaStore
from penstock.ops.shell import SystemClock
from penstock.processors.declare import Payload
from penstock.transport import MessageCopy
from penstock.transport.codecs.json_codec import JsonCodec

BATCH, FLUSH = 10_000, 10
MEMORY = 6 << 30
REPEATS = 5


class Device(ps.Record, frozen=True):
    """A nested record."""

    os: str
    model: str


class View(ps.Record, frozen=True):
    """An event of about 150 bytes."""

    page: str
    at: ps.EventTime
    ms: float
    status: int
    device: Device


views = ps.Category("views", View, key="page", event_time="at", buckets=1)


def batch_of(dice: random.Random, now_ms: int) -> list[MessageCopy]:
    """Return messages of the last hour."""
    found = [
        View(
            f"/page/{int(dice.expovariate(0.01))}",
            now_ms - dice.randrange(3_600_000),
            round(dice.lognormvariate(3, 1), 2),
            dice.choice([200, 200, 200, 404, 500]),
            Device(dice.choice(["ios", "android", "web"]), f"model {dice.randrange(200)}"),
        )
        for _ in range(BATCH)
    ]
    return [MessageCopy(msgspec.json.encode(view)) for view in found]


class Ingest:
    """Decodes and stores the same batches again and again."""

    def __init__(self, store: ScubaStore, columns: FlatColumns) -> None:
        dice, now_ms = random.Random(1), SystemClock().now_ms()
        self._batches = [batch_of(dice, now_ms) for _ in range(20)]
        self._codec = JsonCodec(Payload("views", View, "at"))
        self._store, self._columns = store, columns
        self._arrivals = np.full(BATCH, now_ms, np.int64)
        self.rows = 0

    def flush(self) -> None:
        """Store ten batches."""
        tables = []
        for _ in range(FLUSH):
            decoded = self._codec.decode(self._batches[self.rows // BATCH % len(self._batches)])
            offsets = np.arange(self.rows, self.rows + BATCH, dtype=np.int64)
            tables.append(self._columns.table(0, decoded.events, offsets, self._arrivals))
            self.rows += BATCH
        self._store.append("views", pa.concat_tables(tables), SavedPositions("topic", {0: self.rows}))


QUERIES: dict[str, ExploreQuery] = {
    "count": ExploreQuery(table="views"),
    "count by os": ExploreQuery(table="views", group_by=["device.os"]),
    "count by page, of 1,000": ExploreQuery(table="views", group_by=["page"]),
    "avg(ms) by status and os, filtered": ExploreQuery(
        table="views",
        aggregates=[Aggregation("avg", "ms")],
        group_by=["status", "device.os"],
        filters=[Filter("page", "starts with", "/page/1"), Filter("ms", ">", 20)],
    ),
    "p95(ms) by os": ExploreQuery(table="views", aggregates=[Aggregation("p95", "ms")], group_by=["device.os"]),
    "distinct(page)": ExploreQuery(table="views", aggregates=[Aggregation("distinct", "page")]),
    "count by os, every minute": ExploreQuery(table="views", group_by=["device.os"], every="1m"),
    "last 5 minutes, sum(ms) by model": ExploreQuery(
        table="views", aggregates=[Aggregation("sum", "ms")], group_by=["device.model"], last="5m"
    ),
}


def measured(store: ScubaStore, query: ExploreQuery) -> float:
    """Return the median time of a query, in milliseconds."""
    compiler = QueryCompiler(store.columns("views"), SystemClock().now_ms(), is_sampled=False)
    times = []
    for _ in range(REPEATS):
        began_s = time.perf_counter()
        with store.cursor() as cursor:
            groups = compiler.groups(query)
            found = cursor.execute(groups.text, groups.parameters).fetchall()
            if query.every is not None:
                points = compiler.points(query, [row[: len(query.group_by)] for row in found])
                cursor.execute(points.text, points.parameters).fetchall()
        times.append((time.perf_counter() - began_s) * 1000)
    return median(times)


def while_ingesting(ingest: Ingest, run: Callable[[], None]) -> float:
    """Return the rows per second that are stored while queries run."""
    done, before = Event(), ingest.rows
    began_s = time.perf_counter()

    def flush() -> None:
        while not done.is_set():
            ingest.flush()

    thread = Thread(target=flush)
    thread.start()
    run()
    done.set()
    thread.join()
    return (ingest.rows - before) / (time.perf_counter() - began_s)


def main() -> None:
    """Print the figures."""
    millions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    columns = FlatColumns(views)
    store = ScubaStore({"views": columns.schema}, None, MEMORY, ALL)
    ingest = Ingest(store, columns)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    while ingest.rows < millions * 1_000_000:
        ingest.flush()
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    size = sum(segment.size_bytes for segment in store.segments())
    print(
        f"ingest: {ingest.rows / took_s:,.0f} rows/s, {ingest.rows / cpu_s:,.0f} rows per CPU second, {size / 1e9:.2f} GB"
    )
    alone = {name: measured(store, query) for name, query in QUERIES.items()}
    beside: dict[str, float] = {}
    rate = while_ingesting(
        ingest, lambda: beside.update({name: measured(store, query) for name, query in QUERIES.items()})
    )
    for name in QUERIES:
        print(f"{name}: {alone[name]:,.0f} ms alone, {beside[name]:,.0f} ms while {rate:,.0f} rows/s are stored")


if __name__ == "__main__":
    main()
