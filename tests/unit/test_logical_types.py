"""Logical types of Avro at every depth: a record gets the number, the text or the time that it declares."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import codecs
from penstock.transport import MessageCopy
from penstock.transport.codecs import AVRO, Codecs, RegistryClient
from penstock.transport.codecs.registry import json_schema_of
from penstock.transport.memory import MemoryBus

REGISTRY = codecs.SchemaRegistry("mock://logical-types")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
SECOND = datetime(2024, 2, 29, 12, tzinfo=UTC)
MILLIS = (SECOND - EPOCH) // timedelta(milliseconds=1)


def long(kind: str) -> dict[str, str]:
    """Return a whole number with a logical type."""
    return {"type": "long", "logicalType": kind}


def field(name: str, schema: Any) -> dict[str, Any]:
    """Return a field of a record."""
    return {"name": name, "type": schema}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a record."""
    return {"type": "record", "name": name, "namespace": "com.shop", "fields": list(fields)}


def without_logical(schema: Any) -> Any:
    """Return a schema with which a test writes numbers as they are."""
    if isinstance(schema, list):
        return [without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: without_logical(one) for name, one in schema.items() if name != "logicalType" or schema == PRICE}


def message(subject: str, schema: Any, content: Any) -> MessageCopy:
    """Return a message of another producer, with whole numbers where the schema has times."""
    number = RegistryClient(REGISTRY, AVRO).id_of(f"{subject}-value", json_schema_of(schema), register=True)
    body = BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(json.dumps(without_logical(schema)))), content)
    return MessageCopy(struct.pack(">bI", 0, number) + body.getvalue(), b"k")


class Line(ps.Record, frozen=True):
    """A nested record with both kinds of fields."""

    price: Decimal
    created: int
    seen: datetime


class Order(ps.Record, frozen=True):
    """Times as numbers and as datetimes, at several depths."""

    id: str
    at: ps.EventTime
    price: Decimal
    line: Line
    lines: list[Line]
    named: dict[str, Line]
    created: list[int]
    seen: list[datetime]
    maybe: int | None = None


LINE = record(
    "Line", field("price", PRICE), field("created", long("timestamp-millis")), field("seen", long("timestamp-micros"))
)
ORDER = record(
    "Order",
    field("ignored", ["null", {"type": "array", "items": LINE}]),
    field("id", "string"),
    field("at", long("timestamp-millis")),
    field("price", PRICE),
    field("line", "Line"),
    field("lines", {"type": "array", "items": "com.shop.Line"}),
    field("named", {"type": "map", "values": ["null", "Line"]}),
    field("created", {"type": "array", "items": long("timestamp-millis")}),
    field("seen", {"type": "array", "items": long("timestamp-millis")}),
    field("maybe", ["null", {"type": "int", "logicalType": "date"}]),
)
LINE_SENT = {"price": Decimal("1.50"), "created": MILLIS, "seen": MILLIS * 1000}
SENT = {
    "ignored": [LINE_SENT],
    "id": "a",
    "at": MILLIS,
    "price": Decimal("2.00"),
    "line": LINE_SENT,
    "lines": [LINE_SENT],
    "named": {"x": LINE_SENT},
    "created": [MILLIS],
    "seen": [MILLIS],
    "maybe": 19_000,
}
LINE_READ = Line(Decimal("1.50"), MILLIS, SECOND)
READ = Order("a", MILLIS, Decimal("2.00"), LINE_READ, [LINE_READ], {"x": LINE_READ}, [MILLIS], [SECOND], 19_000)


def test_a_number_is_a_number_at_every_depth() -> None:
    """The number may be in nested records, lists, maps and unions. The schema may define a record in a field that is not read."""
    category = ps.Category("orders", Order, key="id", event_time="at", codec=codecs.ConfluentAvro(REGISTRY))
    decoded = Codecs(MemoryBus()).of(category).decode([message("orders", ORDER, SENT)])

    assert (decoded.events, decoded.bad) == ([READ], [])


class Row(ps.Record, frozen=True):
    """A row of a table."""

    id: int
    at: ps.EventTime
    price: Decimal | None = None
    seen: datetime | None = None


ROW = record(
    "Value",
    field("id", "int"),
    field(
        "at",
        {"type": "long", "connect.name": "org.apache.kafka.connect.data.Timestamp", "logicalType": "timestamp-millis"},
    ),
    field("price", ["null", PRICE]),
    field("seen", ["null", long("timestamp-millis")]),
)
ENVELOPE = record("Envelope", field("before", ["null", ROW]), field("after", ["null", "Value"]), field("op", "string"))


def test_a_column_is_what_the_record_of_the_row_declares() -> None:
    """In changes of Debezium, the rows are below the envelope."""
    codec = codecs.Debezium(values=codecs.ConfluentAvro(REGISTRY))
    category = ps.Category("rows", Row, key="id", event_time="at", codec=codec)
    row = {"id": 1, "at": MILLIS, "price": Decimal("1.50"), "seen": MILLIS}
    decoded = (
        Codecs(MemoryBus()).of(category).decode([message("rows", ENVELOPE, {"before": None, "after": row, "op": "c"})])
    )

    assert (decoded.events, decoded.bad) == ([Row(1, MILLIS, Decimal("1.50"), SECOND)], [])


class Timed(ps.Record, frozen=True):
    """A record with a time."""

    id: str
    at: datetime


UNITS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("prefix", ["", "local-"])
@given(nanoseconds=st.integers(-(2**62), 2**62))
def test_a_time_of_any_unit_is_a_datetime_rounded_down(prefix: str, unit: str, nanoseconds: int) -> None:
    """A local timestamp is read as UTC."""
    written = nanoseconds // UNITS[unit]
    schema = record("Timed", field("id", "string"), field("at", long(f"{prefix}timestamp-{unit}")))
    category = ps.Category("timed", Timed, key="id", event_time="at", codec=codecs.ConfluentAvro(REGISTRY))
    codec = Codecs(MemoryBus()).of(category)
    [event] = codec.decode([message(f"timed-{prefix}{unit}", schema, {"id": "a", "at": written})]).events

    assert event.at == EPOCH + timedelta(microseconds=written * UNITS[unit] // 1_000)
