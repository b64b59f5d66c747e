"""A dashboard that refreshes every 10 s: the CPU time of asking Scuba each time, and of the same query as an app in SQL.

python -m benchmarks.saved [EVENTS PER SECOND]

Both are computed per hour. Without Kafka: reading and writing it is not included on either side, and Scuba's ingestion is printed apart.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import numpy as np

import penstock as ps
from penstock.ops.serve import AsOf, sql_of
from penstock.ops.serve.results.follower import ResultFollower
from penstock.ops.serve.results.parameters import Parameters
from penstock.ops.serve.results.queries import Queries
from penstock.ops.serve.results.served import served_processors
from penstock.ops.serve.rows.compiler import QueryCompiler
from penstock.ops.serve.rows.flat_columns import FlatColumns
from penstock.ops.serve.rows.queries import Aggregation, ExploreQuery
from penstock.ops.serve.rows.sampling import ALL
from penstock.ops.serve.rows.store import SavedPositions, ScubaStore
from penstock.ops.shell import SystemClock
from penstock.processors.apps import App
from penstock.testing import Driver, load_app
from penstock.transport import Outgoing

HOUR_S = 3_600
REFRESH_S = 10
BATCH = 20_000
APP_EVENTS = 1_000_000
"""The most events that the app processes; its time is proportional."""
MEMORY = 6 << 30
REPEATS = 10


class View(ps.Record, frozen=True):
    """An event of about 120 bytes."""

    page: str
    at: ps.EventTime
    ms: float
    os: str
    model: str


views = ps.Category("views", View, key="page", event_time="at", buckets=1)


class Slow(ps.Stateless):
    """The app that declares the category."""

    reads, writes = views, ps.Category("slow", View, key="page", event_time="at", buckets=1)

    def process(self, event: View) -> list[View]:
        """Return slow views."""
        return [event] if event.ms > 500 else []


QUERY = ExploreQuery(
    table="views", aggregates=[Aggregation(), Aggregation("avg", "ms")], group_by=["os"], every="1m", last="1h"
)


def batches(count: int, rate: int, end_ms: int) -> Iterator[list[View]]:
    """Yield events in order of time, of which the last is now."""
    dice = random.Random(1)
    systems = ["ios", "android", "web", "tv", "car"]
    for begin in range(0, count, BATCH):
        yield [
            View(
                f"/page/{int(dice.expovariate(0.01))}",
                end_ms - (count - number) * 1_000 // rate,
                round(dice.lognormvariate(3, 1), 2),
                dice.choice(systems),
                f"model {dice.randrange(200)}",
            )
            for number in range(begin, min(begin + BATCH, count))
        ]


def cpu_s(run: Callable[[], object], times: int = 1) -> float:
    """Return the CPU time of a call, of all threads; the mean of several."""
    began_s = time.process_time()
    for _ in range(times):
        run()
    return (time.process_time() - began_s) / times


def of_scuba(rate: int, now_ms: int) -> tuple[float, float]:
    """Return the CPU seconds of a refresh, and of storing the events of an hour."""
    columns = FlatColumns(views)
    store = ScubaStore({"views": columns.schema}, None, MEMORY, ALL)
    storing_s, rows = 0.0, 0
    for records in batches(rate * HOUR_S, rate, now_ms):
        offsets = np.arange(rows, rows + len(records), dtype=np.int64)
        rows += len(records)
        positions = SavedPositions("topic", {0: rows})
        arrivals = np.full(len(records), now_ms, np.int64)
        storing_s += cpu_s(
            lambda: store.append("views", columns.table(0, records, offsets, arrivals), positions)  # noqa: B023 - called at once
        )

    def refresh() -> None:
        compiler = QueryCompiler(store.columns("views"), now_ms, is_sampled=False)
        with store.cursor() as cursor:
            groups = compiler.groups(QUERY)
            found = cursor.execute(groups.text, groups.parameters).fetchall()
            points = compiler.points(QUERY, [row[:1] for row in found])
            cursor.execute(points.text, points.parameters).fetchall()

    refresh()
    refreshes_s = cpu_s(refresh, REPEATS)
    store.close()
    return refreshes_s, storing_s


def of_app(rate: int, now_ms: int) -> tuple[float, float]:
    """Return the CPU seconds of a refresh, and of processing the events of an hour."""
    file = Path(mkdtemp()) / "explored.sql"
    file.write_text(sql_of(QUERY, App.of("shop", [Slow]), "explored", "the benchmark"))
    app = load_app(file)
    category = next(each for each in app.categories() if each.name == "views")
    driver = Driver(app.processors, start_ms=now_ms)
    count, spent_s, writer = min(rate * HOUR_S, APP_EVENTS), 0.0, driver.bus.writer()
    for records in batches(count, rate, now_ms):
        writer.send(category.name, [Outgoing(record.page.encode(), msgspec.json.encode(record)) for record in records])
        spent_s += cpu_s(driver.run)
    served = served_processors(app)
    keys = sorted({record.os for record in next(batches(1_000, rate, now_ms))})
    with closing(ResultFollower(served, driver.bus, timedelta(days=7))) as follower:
        follower.start()
        queries = Queries(follower, lambda _: AsOf(now_ms), lambda: now_ms)
        while follower.problem:
            time.sleep(0.1)
        asked = Parameters({"key": keys, "last": ["1h"], "limit": ["1000"]})

        def refresh() -> None:
            msgspec.json.encode(queries.results(served[-1].name, asked))

        refresh()
        return cpu_s(refresh, REPEATS), spent_s * rate * HOUR_S / count


def main() -> None:
    """Print the figures."""
    rate = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    now_ms = SystemClock().now_ms()
    scuba_s, storing_s = of_scuba(rate, now_ms)
    reading_s, processing_s = of_app(rate, now_ms)
    refreshes = HOUR_S // REFRESH_S
    asking_s, app_s = scuba_s * refreshes, reading_s * refreshes + processing_s
    print(f"{rate:,} events/s, a time series of an hour by 5 groups, every {REFRESH_S} s; CPU seconds per hour")
    print(f"asking Scuba: {asking_s:,.1f} ({scuba_s * 1000:,.1f} ms a refresh); storing the events: {storing_s:,.1f}")
    print(f"app: {app_s:,.1f}, of which processing {processing_s:,.1f}, and {reading_s * 1000:,.2f} ms a refresh")
    print(f"the app needs {app_s / asking_s:.0%} of the CPU time of asking (the paper: 14 %)")


if __name__ == "__main__":
    main()
