"""Pydantic models in the archive and in Spark. This file is also the app of the backfill, so it imports nothing that Spark's processes lack."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator

import penstock as ps
from penstock.backfill.archive import Archiver
from penstock.backfill.run import Order, run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import RecordColumns, open_warehouse
from penstock.processors.apps import AppName
from penstock.testing import Driver
from penstock.transport import Bucket, CategorySpec, outgoing
from penstock.transport.memory import MemoryBus


class Item(BaseModel):
    """A nested model."""

    article: str = Field(alias="articleId")
    price: Decimal

    @field_validator("price")
    @classmethod
    def with_tax(cls, value: Decimal) -> Decimal:
        """Add tax: whoever runs this twice gets another price."""
        return value * 2


class Sale(BaseModel):
    """A sale of another program."""

    shop: str = Field(alias="shopId")
    at: AwareDatetime
    items: list[Item]


class Turnover(BaseModel):
    """The turnover of a shop so far."""

    model_config = ConfigDict(frozen=True)

    shop: str = Field(alias="shopId")
    at: AwareDatetime
    total: Decimal
    best: Decimal | None = None


sales = ps.Category("sales", Sale, key="shop", event_time="at", buckets=2)
turnovers = ps.Category("turnovers", Turnover, key="shop", event_time="at", buckets=2)


class Turnovers(ps.Stateful[Sale, Turnover, Turnover]):
    """Adds up the sales of each shop. Its state is a model, too."""

    reads, writes, state = sales, turnovers, Turnover

    def process(self, event: Sale, state: Turnover | None, context: ps.Context) -> tuple[Turnover, list[Turnover]]:
        """Return the new turnover."""
        prices = [item.price for item in event.items]
        total = (state.total if state else Decimal(0)) + sum(prices)
        after = Turnover(shopId=event.shop, at=event.at, total=total, best=max(prices, default=None))
        return after, [after]


def test_a_backfill_over_models_equals_the_stream(tmp_path: Path) -> None:
    """Each message is validated once, when it is read from the bus: the archive contains the result."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: models do not pass through Spark")
    dice, start = random.Random(11), datetime(2024, 2, 1, tzinfo=UTC).timestamp()
    given = [
        {
            "shopId": f"s{dice.randrange(4)}",
            "at": datetime.fromtimestamp(start + second, UTC).isoformat(),
            "items": [
                {"articleId": f"a{dice.randrange(9)}", "price": f"{dice.randrange(1_000)}.5"}
                for _ in range(dice.randrange(3))
            ],
        }
        for second in range(200)
    ]
    values = [json.dumps(sale).encode() for sale in given]
    bus, warehouse = MemoryBus(), open_warehouse(tmp_path / "warehouse")
    bus.create(CategorySpec.of(sales))
    keys = sales.encode_keys([str(sale["shopId"]) for sale in given])
    bus.writer().send(sales.name, list(outgoing(sales, keys, values)))
    ends = {Bucket(sales.name, number): end for number, end in bus.describe(sales.name).ends.items()}
    Archiver(bus, [sales], warehouse).run(lambda it: it.has_reached(ends))
    day, folder = date(2024, 2, 1), tmp_path / "turnovers"
    with spark_session("local[2]"):
        app = AppName(Path(__file__), Turnovers.__name__)
        run_backfill(
            app,
            warehouse,
            first=day,
            last=day,
            output=open_warehouse(folder),
            master="local[2]",
            order=Order.EVENT_TIME,
        )
    columns = RecordColumns(Turnover)
    table = pq.read_table(folder / f"category={turnovers.name}").select(columns.schema.names)
    batch = [record for part in table.to_batches() for record in columns.records(part)]
    driver = Driver(Turnovers)
    driver.send(sales, values)

    totals: dict[object, Decimal] = {}
    expected = []
    for sale in given:
        shop, items = sale["shopId"], sale["items"]
        assert isinstance(items, list)
        totals[shop] = totals.get(shop, Decimal(0)) + 2 * sum(Decimal(item["price"]) for item in items)
        expected.append((shop, totals[shop]))
    live = driver.read(turnovers)
    assert sorted((one.shop, one.total) for one in batch) == sorted(expected)
    assert sorted(batch, key=repr) == sorted(live, key=repr)
