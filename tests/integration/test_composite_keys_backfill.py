"""Keys of several fields in the archive and in Spark. This file is also the app of the backfill, so it imports nothing that Spark's processes lack."""

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
from penstock.transport import Bucket, CategorySpec
from penstock.transport.codecs import Codecs, encoded_messages
from penstock.transport.memory import MemoryBus


class Sale(ps.Record, frozen=True):
    """A sale of a tenant."""

    tenant: str
    id: int
    at: ps.EventTime
    cents: int


class Total(ps.Record, frozen=True):
    """The sum of a key."""

    key: str
    at: ps.EventTime
    cents: int


sales = ps.Category("sales", Sale, key=("tenant", "id"), event_time="at", buckets=2, key_codec=ps.KeyCodec.JSON)
totals = ps.Category("totals", Total, key="key", event_time="at", buckets=2)


class Totals(ps.Stateful[Sale, int, Total]):
    """Adds up the sales of each key."""

    reads, writes, state, ordered = sales, totals, int, True

    def process(self, event: Sale, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
        """Return the new sum."""
        cents = (state or 0) + event.cents
        return cents, [Total(context.key, event.at, cents)]


def test_a_backfill_keeps_the_state_of_each_key(tmp_path: Path) -> None:
    """The state of each key is its own, also where two keys differ in one field only."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: keys of several fields do not pass through Spark")
    dice, midnight = random.Random(7), datetime(2024, 2, 1, tzinfo=UTC)
    start = int(midnight.timestamp() * 1000)
    given = [Sale(f"t{dice.randrange(3)}", dice.randrange(3), start + n, dice.randrange(100)) for n in range(200)]
    bus, warehouse = MemoryBus(), open_warehouse(tmp_path / "warehouse")
    bus.create(CategorySpec.of(sales))
    bus.writer().send(sales.name, list(encoded_messages(sales, Codecs(bus).of(sales), given)))
    ends = {Bucket(sales.name, number): end for number, end in bus.describe(sales.name).ends.items()}
    Archiver(bus, [sales], warehouse).run(lambda it: it.has_reached(ends))
    day, folder = date(2024, 2, 1), tmp_path / "output"
    with spark_session("local[2]"):
        app = AppName(Path(__file__), Totals.__name__)
        run_backfill(
            app,
            warehouse,
            first=day,
            last=day,
            output=open_warehouse(folder),
            master="local[2]",
            order=Order.EVENT_TIME,
        )
    columns = RecordColumns(Total)
    table = pq.read_table(folder / "category=totals").select(columns.schema.names)
    batch = {record for part in table.to_batches() for record in columns.records(part)}
    sums: defaultdict[tuple[str, int], int] = defaultdict(int)
    expected = set()
    for sale in given:
        sums[sale.tenant, sale.id] += sale.cents
        key = ps.composite_key(sale.tenant, sale.id)
        expected.add(Total(key, sale.at, sums[sale.tenant, sale.id]))

    assert batch == expected
