"""Datetimes, dates, decimals, UUIDs, enums and literals in every codec and in the warehouse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Category, EventTime, Record
from penstock.backfill.warehouse import RecordColumns
from penstock.codecs import CodecSpec, MessagePack
from penstock.errors import DeclarationError
from penstock.processors.declare import InvalidRecord
from penstock.transport import MessageCopy
from penstock.transport.codecs import Codecs
from penstock.transport.codecs.avro import fingerprint_with_logical_types, schema_of
from penstock.transport.memory import MemoryBus


class Side(Enum):
    """A text enum."""

    BUY = "buy"
    SELL = "sell"


class Level(IntEnum):
    """A number enum."""

    LOW = 1
    HIGH = 2


class Leg(Record, frozen=True, rename="camel"):
    """A nested record."""

    settled_at: datetime
    price: Decimal


class Trade(Record, frozen=True, rename="camel"):
    """A record with every type."""

    trade_id: UUID
    traded_at: datetime
    day: date
    amount: Annotated[Decimal, msgspec.Meta(extra={"precision": 12, "scale": 2})]
    rate: Decimal
    side: Side
    level: Level
    kind: Literal["spot", "forward"]
    legs: list[Leg]
    by_name: dict[str, Decimal]
    maybe_at: datetime | None = None
    maybe_day: date | None = None
    maybe_amount: Annotated[Decimal, msgspec.Meta(extra={"precision": 6, "scale": 3})] | None = None
    maybe_id: UUID | None = None
    maybe_side: Side | None = None
    maybe_kind: Literal["a", "b"] | None = None


def decimals(whole_digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    """Return decimals with at most some digits before and after the point."""
    limit = 10 ** (whole_digits + scale) - 1
    return st.integers(-limit, limit).map(lambda unscaled: Decimal(f"{unscaled}E-{scale}"))


TIMES = st.datetimes(
    datetime(1, 1, 3),  # noqa: DTZ001 - the zone is added
    datetime(9999, 12, 29),  # noqa: DTZ001 - as above
    timezones=st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
RATES = decimals(20, 18)
LEGS = st.builds(Leg, TIMES, RATES)
TRADES = st.builds(
    Trade,
    st.uuids(),
    TIMES,
    st.dates(),
    decimals(10, 2),
    RATES,
    st.sampled_from(Side),
    st.sampled_from(Level),
    st.sampled_from(["spot", "forward"]),
    st.lists(LEGS, max_size=3),
    st.dictionaries(st.text("abc", max_size=3), RATES, max_size=3),
    st.none() | TIMES,
    st.none() | st.dates(),
    st.none() | decimals(3, 3),
    st.none() | st.uuids(),
    st.none() | st.sampled_from(Side),
    st.none() | st.sampled_from(["a", "b"]),
)


def through_codec(name: Literal["json", "avro"] | CodecSpec) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that encodes and decodes records."""
    codec = Codecs(MemoryBus()).of(
        Category("trades", Trade, key=lambda trade: str(trade.trade_id), event_time="tradedAt", codec=name)
    )

    def through(records: Sequence[Any]) -> list[Any]:
        decoded = codec.decode(list(map(MessageCopy, codec.encode(records))))
        assert decoded.bad == []
        return list(decoded.events)

    return through


def through_columns(records: Sequence[Any]) -> list[Any]:
    """Store records in the warehouse's columns and read them."""
    columns = RecordColumns(Trade)
    return columns.records(pa.RecordBatch.from_arrays(columns.arrays(records), schema=columns.schema))


PATHS = {
    "json": through_codec("json"),
    "avro": through_codec("avro"),
    "messagepack": through_codec(MessagePack()),
    "columns": through_columns,
}


@pytest.mark.parametrize("path", PATHS)
@settings(deadline=None)
@given(st.lists(TRADES, max_size=5))
def test_every_type_returns_equal_from_codecs_and_columns(path: str, trades: list[Trade]) -> None:
    """No path changes a value."""
    assert PATHS[path](trades) == trades


@settings(deadline=None)
@given(TRADES)
def test_all_paths_return_the_same_bytes(trade: Trade) -> None:
    """Comparisons of stream and batch compare encoded records, so one value must have one form."""
    encode = msgspec.json.Encoder(order="sorted").encode
    found = {encode(through([trade])[0]) for through in PATHS.values()}

    assert len(found) == 1


@settings(deadline=None)
@given(TRADES)
def test_datetimes_are_in_utc_with_microseconds(trade: Trade) -> None:
    """The offset is normalised; the instant is not."""
    [found] = PATHS["json"]([trade])

    assert found.traded_at.tzinfo is UTC
    assert all(leg.settled_at.tzinfo is UTC for leg in found.legs)
    assert (found.traded_at - trade.traded_at) == timedelta()


TRADE = Trade(
    UUID(int=7),
    datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2))),
    date(2024, 2, 29),
    Decimal("1.1"),
    Decimal("1.10"),
    Side.BUY,
    Level.HIGH,
    "spot",
    [],
    {},
)


def test_decimals_with_a_scale_keep_it() -> None:
    """An amount of money has its two digits in every message; other decimals have no trailing zeros."""
    [found] = PATHS["avro"]([TRADE])

    assert (str(found.amount), str(found.rate)) == ("1.10", "1.1")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"traded_at": datetime(2024, 1, 1)}, "`tradedAt` is 2024-01-01T00:00:00, a datetime without an offset"),  # noqa: DTZ001 - a fault
        ({"legs": [Leg(datetime(2024, 1, 1), Decimal(1))]}, "`legs.settledAt` is .* without an offset"),  # noqa: DTZ001 - as above
        ({"amount": Decimal("1.001")}, "`amount` is 1.001, which exceeds 10 digits before or 2 digits after"),
        ({"amount": Decimal("1E10")}, "exceeds 10 digits before"),
        ({"rate": Decimal("1E+999999")}, "exceeds 20 digits before"),
        ({"rate": Decimal("NaN")}, "`rate` is NaN, and a decimal must be finite"),
        ({"maybe_amount": Decimal("0.0001")}, "`maybeAmount`"),
        ({"side": "up"}, "does not fit"),
    ],
)
@pytest.mark.parametrize("codec", ["json", "avro", "messagepack"])
def test_values_that_one_path_cannot_carry_are_refused_by_all(codec: str, change: dict[str, Any], reason: str) -> None:
    """Otherwise the stream would accept a value that the archive refuses."""
    with pytest.raises(InvalidRecord, match=reason):
        PATHS[codec]([msgspec.structs.replace(TRADE, **change)])


def test_a_naive_datetime_in_a_message_is_undecodable() -> None:
    """The rest of the batch is decoded."""
    codec = Codecs(MemoryBus()).of(
        Category("trades", Trade, key=lambda trade: str(trade.trade_id), event_time="tradedAt")
    )
    [good] = codec.encode([TRADE])
    decoded = codec.decode([MessageCopy(good), MessageCopy(good.replace(b"123456Z", b"123456"))])

    assert (decoded.events, list(decoded.at)) == ([TRADE], [0])
    assert [(bad.at, bad.untimed) for bad in decoded.bad] == [(1, False)]
    assert "`tradedAt` is 2024-02-29T10:00:00.123456, a datetime without an offset" in decoded.bad[0].reason


class Old(Record, frozen=True):
    """A record before it had more fields."""

    at: EventTime


class New(Record, frozen=True):
    """The record with more fields."""

    at: EventTime
    since: datetime = datetime(2020, 1, 1, tzinfo=UTC)
    day: date = date(2020, 1, 1)
    price: Decimal = Decimal("-1.5")
    id: UUID = UUID(int=3)
    side: Side = Side.SELL


def test_avro_defaults_of_logical_types_apply_to_old_messages() -> None:
    """A field with a default may be missing in older messages."""
    bus = MemoryBus()
    old, new = (Codecs(bus).of(Category("c", record, key="at", event_time="at", codec="avro")) for record in (Old, New))

    assert new.decode(list(map(MessageCopy, old.encode([Old(5)])))).events == [New(5)]


def test_avro_fingerprints_distinguish_logical_types() -> None:
    """A reader of an int must not read microseconds of a datetime as another unit."""

    class Event(Record, frozen=True):
        at: int

    numbers = fingerprint_with_logical_types(schema_of(Event))

    class Event(Record, frozen=True):  # type: ignore[no-redef]
        at: datetime

    assert fingerprint_with_logical_types(schema_of(Event)) != numbers


def test_avro_schemas_have_logical_types() -> None:
    """Other readers decode the values as what they are."""
    types = {field["name"]: field["type"] for field in schema_of(Trade)["fields"]}

    assert types["tradedAt"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert types["day"] == {"type": "int", "logicalType": "date"}
    assert types["amount"] == {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    assert types["tradeId"] == {"type": "string", "logicalType": "uuid"}
    assert (types["side"], types["level"], types["kind"]) == ("string", "long", "string")


def test_columns_have_types_of_spark() -> None:
    """Spark sees timestamps, dates and decimals."""
    schema = RecordColumns(Trade).schema

    assert schema.field("tradedAt").type == pa.timestamp("us", tz="UTC")
    assert schema.field("day").type == pa.date32()
    assert schema.field("amount").type == pa.decimal128(12, 2)
    assert schema.field("rate").type == pa.decimal128(38, 18)
    assert schema.field("tradeId").type == pa.string()
    assert schema.field("level").type == pa.int64()


def test_invalid_digits_are_refused_at_the_declaration() -> None:
    """No event is needed to find them."""

    class Broken(Record, frozen=True):
        at: EventTime
        price: Annotated[Decimal, msgspec.Meta(extra={"precision": 50, "scale": 2})]

    with pytest.raises(DeclarationError, match="precision 50 and scale 2"):
        RecordColumns(Broken)
