"""A topic with several record types in the archive and in Spark. This file is also the app of the backfill, so it imports nothing that Spark's processes lack."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.backfill.archive import Archiver
from penstock.backfill.run import Order, run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import RecordColumns, open_warehouse
from penstock.processors.apps import AppName
from penstock.testing import Driver
from penstock.transport import Bucket, CategorySpec
from penstock.transport.codecs import Codecs, encoded_messages
from penstock.transport.memory import MemoryBus


class Rose(ps.Record, frozen=True, tag="rose"):
    """A price rose."""

    share: str
    at: ps.EventTime
    by: int


class Fell(ps.Record, frozen=True, tag="fell"):
    """A price fell."""

    share: str
    at: ps.EventTime
    by: int
    reason: str | None = None


class Price(ps.Record, frozen=True):
    """The price of a share."""

    share: str
    at: ps.EventTime
    price: int


moves: ps.Category[Rose | Fell] = ps.Category("moves", Rose | Fell, key="share", event_time="at", buckets=2)
prices = ps.Category("prices", Price, key="share", event_time="at", buckets=2)
falls: ps.Category[Rose | Fell] = ps.Category("falls", Rose | Fell, key="share", event_time="at", buckets=2)


class Prices(ps.Stateful[Rose | Fell, int, Price]):
    """Keeps the price of each share."""

    reads, writes, state, ordered = moves, prices, int, True

    def process(self, event: Rose | Fell, state: int | None, context: ps.Context) -> tuple[int, list[Price]]:
        """Return the new price."""
        price = (state or 0) + (event.by if isinstance(event, Rose) else -event.by)
        return price, [Price(event.share, event.at, price)]


class Large(ps.Stateless[Rose | Fell, Rose | Fell]):
    """Keeps large moves of both types."""

    reads, writes = moves, falls

    def process(self, event: Rose | Fell) -> list[Rose | Fell]:
        """Return the event."""
        return [event] if event.by > 50 else []


def test_a_backfill_equals_the_stream(tmp_path: Path) -> None:
    """The state covers two types, and an output category has two types."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: unions do not pass through Spark")
    dice, midnight = random.Random(7), datetime(2024, 2, 1, tzinfo=UTC)
    start = int(midnight.timestamp() * 1000)
    given: list[Rose | Fell] = [
        Rose(f"s{dice.randrange(4)}", start + n, dice.randrange(100))
        if dice.random() < 0.5
        else Fell(f"s{dice.randrange(4)}", start + n, dice.randrange(100), dice.choice([None, "news"]))
        for n in range(200)
    ]
    bus, warehouse = MemoryBus(), open_warehouse(tmp_path / "warehouse")
    bus.create(CategorySpec.of(moves))
    bus.writer().send(moves.name, list(encoded_messages(moves, Codecs(bus).of(moves), given)))
    ends = {Bucket(moves.name, number): end for number, end in bus.describe(moves.name).ends.items()}
    Archiver(bus, [moves], warehouse).run(lambda it: it.has_reached(ends))
    day = date(2024, 2, 1)
    batch: dict[str, list[object]] = {}
    with spark_session("local[2]"):
        for processor, output, order in ((Prices, prices, Order.EVENT_TIME), (Large, falls, None)):
            folder = tmp_path / output.name
            app = AppName(Path(__file__), processor.__name__)
            run_backfill(
                app, warehouse, first=day, last=day, output=open_warehouse(folder), master="local[2]", order=order
            )
            columns = RecordColumns(output.record)
            table = pq.read_table(folder / f"category={output.name}").select(columns.schema.names)
            batch[output.name] = [record for part in table.to_batches() for record in columns.records(part)]
    driver = Driver(Large)
    driver.send(moves, given)

    totals: defaultdict[str, int] = defaultdict(int)
    expected = []
    for move in given:
        totals[move.share] += move.by if isinstance(move, Rose) else -move.by
        expected.append(Price(move.share, move.at, totals[move.share]))
    assert set(batch["prices"]) == set(expected)
    assert set(batch["falls"]) == set(driver.read(falls)) == {move for move in given if move.by > 50}
