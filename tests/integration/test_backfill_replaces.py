"""Backfills whose outputs replace earlier ones of their key: the last output of each key is the stream's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support import latest

from penstock.backfill.archive import Archiver
from penstock.backfill.outputs.stored_batch import StoredBatch
from penstock.backfill.run import Written, run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.steps import name_in_batch
from penstock.backfill.warehouse import Warehouse, open_warehouse
from penstock.ops.kernel import Driver
from penstock.processors.apps import AppName
from penstock.processors.declare import AnyCategory, Destination, Sink, plan_of
from penstock.transport import Bucket

APP = AppName(Path(latest.__file__))
FIRST, LAST = date(2013, 1, 1), date(2013, 1, 3)
MASTER = "local[2]"


@dataclass
class World:
    """The outputs of a stream and of a backfill."""

    driver: Driver
    output: Warehouse

    def streamed(self, destination: Destination) -> dict[str, Any]:
        """Return the last output of each customer in the stream."""
        outputs = self.driver.rows(destination) if isinstance(destination, Sink) else self.driver.read(destination)
        return {output.customer: output for output in outputs}

    def backfilled(self, destination: Destination) -> dict[str, Any]:
        """Return the last output of each customer, in the order in which a backfill writes them."""
        batch = StoredBatch.of(self.output, name_in_batch(destination), destination.record)
        return {output.customer: output for part in batch.parts(0) for output in part}  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A stream, processed hour by hour, and a backfill over its archive in small files."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: nothing of the backfill is tested")
    folder = tmp_path_factory.mktemp("latest")
    driver = Driver(latest)
    for orders, payments in latest.parts():
        driver.send(latest.orders, orders)
        driver.advance(1.0)
        driver.send(latest.payments, payments)
        driver.advance(1.0)
    inputs: list[AnyCategory] = [latest.orders, latest.payments]
    ends = {
        Bucket(one.name, number): end for one in inputs for number, end in driver.bus.describe(one.name).ends.items()
    }
    warehouse, output = open_warehouse(folder / "warehouse"), open_warehouse(folder / "batch")
    Archiver(driver.bus, inputs, warehouse, segment_events=100).run(lambda it: it.has_reached(ends))
    with spark_session(MASTER):
        run_backfill(APP, warehouse, first=FIRST, last=LAST, output=output, master=MASTER, written=Written.ALL)
        yield World(driver, output)


@pytest.mark.parametrize("processor", Driver(latest).app.processors, ids=lambda processor: processor.__name__)
def test_the_last_output_of_each_key_is_the_streams(world: World, processor: Any) -> None:
    """The key of the table may be the key of the events alone, without the window."""
    [destination] = plan_of(processor).destinations
    streamed = world.streamed(destination)

    assert len(streamed) == latest.CUSTOMERS
    assert world.backfilled(destination) == streamed
