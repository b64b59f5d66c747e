"""Datetimes, decimals, dates, UUIDs and enums through Spark, with event times that no column contains. This file is also the app."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.backfill.archive import Archiver
from penstock.backfill.run import Order, run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import RecordColumns, Warehouse, day_of, open_warehouse
from penstock.processors.apps import AppName
from penstock.testing import Driver
from penstock.transport import Bucket, CategorySpec
from penstock.transport.codecs import Codecs, encoded_messages
from penstock.transport.memory import MemoryBus

DAY = date(1890, 3, 1)
"""A day before 1900, for which Spark needs the calendar's setting."""


class Side(Enum):
    """A side of a trade."""

    BUY = "buy"
    SELL = "sell"


class Leg(ps.Record, frozen=True, rename="camel"):
    """A nested record."""

    settled_at: datetime
    price: Decimal


class Trade(ps.Record, frozen=True, rename="camel"):
    """A record with every type."""

    account_id: str
    traded_at: datetime
    trade_id: UUID
    settled_on: date
    amount: Annotated[Decimal, msgspec.Meta(extra={"precision": 12, "scale": 2})]
    rate: Decimal
    side: Side
    legs: list[Leg]
    maybe_at: datetime | None = None


class Total(ps.Record, frozen=True, rename="camel"):
    """The total of an account and an hour."""

    account_id: str
    hour_start: datetime
    pieces: int


trades = ps.Category("trades", Trade, key="account_id", event_time="traded_at", buckets=2)
copies, ordered_copies, totals = (
    ps.Category("copies", Trade, key="account_id", event_time="traded_at", buckets=2),
    ps.Category("ordered_copies", Trade, key="account_id", event_time="traded_at", buckets=2),
    ps.Category("totals", Total, key="account_id", event_time="hour_start", buckets=2),
)


class Copy(ps.Stateless):
    """Returns every trade."""

    reads, writes = trades, copies
    max_future = None

    def process(self, event: Trade) -> Iterable[Trade]:
        """Return the trade."""
        return [event]


class CopyInOrder(ps.Stateful):
    """Returns every trade, with the previous trade's time."""

    reads, writes = trades, ordered_copies
    state, ordered = datetime, True
    max_future = None

    def process(self, event: Trade, state: datetime | None, context: ps.Context) -> tuple[datetime, list[Trade]]:
        """Return the trade."""
        return event.traded_at, [msgspec.structs.replace(event, maybe_at=state)]


class Count(ps.Aggregator):
    """Counts legs per hour, in columns."""

    reads, writes = trades, totals
    window = ps.windows.Tumbling(timedelta(hours=1))
    monoid = ps.monoids.Sum()
    max_future = None
    columns = ("legs",)

    def observe(self, event: Trade) -> int:
        """Return the number of legs."""
        return len(event.legs)

    def observe_columns(self, events: pa.RecordBatch) -> pa.Array[Any]:
        """Return the numbers of legs."""
        return pa.array([len(legs or ()) for legs in events.column("legs").to_pylist()], pa.int64())

    def result(self, key: str, window: ps.windows.Window, value: int) -> Total:
        """Return the total."""
        return Total(key, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=window.start), value)


def trade(number: int) -> Trade:
    """Return one of the trades; later numbers are earlier."""
    at = datetime(1890, 3, 1, 12, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2))) - timedelta(minutes=7 * number)
    return Trade(
        "ab"[number % 2],
        at,
        UUID(int=number),
        date(1500, 2, 28),
        Decimal(number) / 10,
        Decimal("1.000000000000000001"),
        list(Side)[number % 2],
        [Leg(at, Decimal("-0.5"))] * (number % 3),
    )


TRADES: list[Trade] = [trade(number) for number in range(20)]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """The archived trades, and a Spark session."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: no type passes through Spark")
    bus, warehouse = MemoryBus(), open_warehouse(tmp_path_factory.mktemp("warehouse"))
    bus.create(CategorySpec.of(trades))
    bus.writer().send(trades.name, list(encoded_messages(trades, Codecs(bus).of(trades), TRADES)))
    ends = {Bucket(trades.name, number): end for number, end in bus.describe(trades.name).ends.items()}
    Archiver(bus, [trades], warehouse).run(lambda it: it.has_reached(ends))
    with spark_session("local[2]"):
        yield warehouse


@pytest.mark.parametrize(("processor", "output"), [(Copy, copies), (CopyInOrder, ordered_copies), (Count, totals)])
def test_batch_and_stream_write_the_same_records(
    archive: Warehouse, tmp_path: Path, processor: type[ps.Processor], output: ps.Category[Any]
) -> None:
    """They are equal to the last microsecond and digit."""
    app = AppName(Path(__file__), processor.__name__)
    order = Order.EVENT_TIME if processor is CopyInOrder else None
    run_backfill(app, archive, first=DAY, last=DAY, output=open_warehouse(tmp_path), master="local[2]", order=order)
    columns = RecordColumns(output.record)
    tables = pq.read_table(tmp_path / f"category={output.name}").select(columns.schema.names)
    batch = {record for part in tables.to_batches() for record in map(in_json, columns.records(part))}
    driver = Driver(processor)
    in_order: list[Trade] = sorted(TRADES, key=lambda event: event.traded_at)
    driver.send(trades, in_order)
    # The watermark passes the last trade of the day.
    driver.send(
        trades, [msgspec.structs.replace(each, traded_at=each.traded_at + timedelta(days=1)) for each in TRADES[1::-1]]
    )
    stream = of_day(latest(driver.read(output), output), output)

    assert batch == set(map(in_json, stream))
    assert len(batch) == (6 if processor is Count else 20)


def latest(records: list[Any], category: ps.Category[Any]) -> list[Any]:
    """Return the last record of each key and event time."""
    places = zip(category.keys_of(records), category.event_times_of(records), strict=True)
    return list(dict(zip(places, records, strict=True)).values())


def of_day(records: list[Any], category: ps.Category[Any]) -> list[Any]:
    """Return the records of the day, by event time."""
    times = zip(records, category.event_times_of(records), strict=True)
    return [record for record, time in times if day_of(time) == str(DAY)]


def in_json(record: ps.Record) -> bytes:
    """Return a record in JSON."""
    return msgspec.json.encode(record)
