"""Time-dependent processors in Spark: in order of arrival they produce the stream's results, late events included."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support import shop
from support.shop import FIRST, HOUR_MS, LAST, Payment, Purchase, random_events

from penstock.backfill.archive import Archiver
from penstock.backfill.compare import Comparison, compare
from penstock.backfill.run import NodeResult, Order, run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import Warehouse, open_warehouse
from penstock.ops.kernel import Driver
from penstock.processors.apps import AppName
from penstock.transport import Bucket

MASTER = "local[2]"
pytestmark = pytest.mark.exhaustive
APP = AppName(Path(shop.__file__))


@dataclass
class World:
    """A processed stream and its archive."""

    folder: Path
    warehouse: Warehouse

    def backfill(self, order: Order | None) -> list[NodeResult]:
        return run_backfill(
            APP,
            self.warehouse,
            first=FIRST,
            last=LAST,
            output=open_warehouse(self.output(order)),
            master=MASTER,
            order=order,
        )

    def output(self, order: Order | None) -> Path:
        return self.folder / f"batch-{order}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A stream that was processed in parts, and its archive, in one Spark session."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of the backfill is tested")
    folder = tmp_path_factory.mktemp("world")
    warehouse = open_warehouse(folder / "warehouse")
    driver = Driver(shop)
    for part in shop.stream_parts():
        for category, events in part:
            driver.send(category, events)
            driver.advance(1.0)
    names = APP.load().categories()
    ends = {
        Bucket(one.name, number): end for one in names for number, end in driver.bus.describe(one.name).ends.items()
    }
    Archiver(driver.bus, names, warehouse, segment_events=300).run(lambda it: it.has_reached(ends))
    with spark_session(MASTER):
        yield World(folder, warehouse)


@pytest.fixture(scope="module")
def by_arrival(world: World) -> dict[str, Comparison]:
    """The comparison of each category with a backfill in order of arrival."""
    results = {result.processor: result for result in world.backfill(None)}
    assert "order of arrival" in results["Hourly"].note
    found = compare(APP, world.warehouse, str(world.output(None)), FIRST, LAST, master=MASTER)
    return {comparison.category: comparison for comparison in found}


@pytest.mark.parametrize(
    "category",
    ["hourly", "late_orders", "sprees", "tales", "silences", "paid", "known", "numbered", "counted", "baskets"],
)
def test_order_of_arrival_reproduces_the_streams_results(by_arrival: dict[str, Comparison], category: str) -> None:
    """Late events, dropped events and results that are not yet written are the same, too."""
    comparison = by_arrival[category]

    assert comparison.agrees, comparison
    assert comparison.equal > 20


def test_order_of_event_time_has_no_late_events(world: World) -> None:
    """The events that were late in the stream differ, and `compare` names them; a join has every pair."""
    world.backfill(Order.EVENT_TIME)
    found = {
        one.category: one
        for one in compare(APP, world.warehouse, str(world.output(Order.EVENT_TIME)), FIRST, LAST, master=MASTER)
    }
    pairs = pq.read_table(world.output(Order.EVENT_TIME) / "category=paid").column("said")
    truth = [
        f"{one.number} {other.cents}"
        for one in random_events(Purchase, 1200, 1)
        for other in random_events(Payment, 600, 2)
        if one.customer == other.customer and 0 <= other.at - one.at <= 3 * HOUR_MS
    ]

    assert found["hourly"].different > 0
    assert found["late_orders"].only_left > 0 == found["late_orders"].only_right
    assert sorted(pair for pair in map(str, pairs) if "None" not in pair) == sorted(truth)
