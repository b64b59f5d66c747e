"""Protobuf: Confluent's serializers read our messages, and we read theirs; records that do not fit the message are refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from itertools import count
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.codecs import ConfluentProtobuf, Protobuf, SchemaIncompatible, SchemaRegistry, SubjectStrategy
from penstock.errors import DeclarationError
from penstock.processors.declare import Codec, CodecSpec, InvalidRecord
from penstock.testing import Driver
from penstock.transport import MessageCopy
from penstock.transport.codecs import PROTOBUF, Codecs, RegistryClient, split_indexes
from penstock.transport.codecs.protobuf_schemas import encode_indexes
from penstock.transport.memory import MemoryBus

pytest.importorskip("confluent_kafka.schema_registry.protobuf", reason="needs penstock[registry,protobuf]")

from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format
from support.protos import compiled

MONEY = """
syntax = "proto3";
package bank;
message Money { int64 cents = 1; string currency = 2; }
"""
SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "penstock_money.proto";

enum Status { UNKNOWN = 0; OPEN = 1; PAID = 2; CANCELLED = 3; }

message Envelope {
  message Item {
    string name = 1;
    int64 amount = 2;
    repeated Item parts = 3;
  }
}

message Order {
  string id = 1;
  google.protobuf.Timestamp at = 2;
  double total = 3;
  bytes raw = 4;
  optional string note = 5;
  repeated Envelope.Item items = 6;
  map<string, int64> labels = 7;
  map<int32, bank.Money> prices = 8;
  Status status = 9;
  repeated Status history = 10;
  google.protobuf.Int64Value points = 11;
  google.protobuf.StringValue nickname = 12;
  google.protobuf.Timestamp shipped = 13;
  bank.Money paid = 14;
  oneof payment {
    string card = 15;
    int64 voucher = 16;
  }
  bool gift = 17;
  sint32 small = 18;
  fixed64 large = 19;
  repeated google.protobuf.Timestamp visits = 20;
  string day = 21;
  string price = 22;
  string device = 23;
  repeated double weights = 24;
  string unused = 25;
}
message Refund { string id = 1; google.protobuf.Timestamp at = 2; double total = 3; }
message OrderKey { string id = 1; }
"""
_numbers = count()


class Status(Enum):
    """By the names of the message's enum."""

    UNKNOWN = "unknown"
    OPEN = "open"
    PAID = "paid"


class Money(ps.Record, frozen=True):
    """An imported message."""

    cents: int
    currency: str


class Item(ps.Record, frozen=True):
    """A nested message that contains others of its type."""

    name: str
    amount: int
    parts: tuple[Item, ...] = ()


class Order(ps.Record, frozen=True):
    """A record with every type of fields."""

    id: str
    at: ps.EventTime
    total: float
    raw: bytes = b""
    note: str | None = None
    items: tuple[Item, ...] = ()
    labels: dict[str, int] = msgspec.field(default_factory=dict)
    prices: dict[int, Money] = msgspec.field(default_factory=dict)
    status: Status = Status.UNKNOWN
    history: tuple[Literal["UNKNOWN", "OPEN"], ...] = ()
    points: int | None = None
    nickname: str | None = None
    shipped: datetime | None = None
    paid: Money | None = None
    card: str | None = None
    voucher: int | None = None
    gift: bool = False
    small: int = 0
    large: int = 0
    visits: tuple[datetime, ...] = ()
    day: date = date(2026, 1, 1)
    price: Decimal = Decimal(1)
    device: UUID = UUID(int=1)
    weights: tuple[float, ...] = ()


INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - the strategy adds the time zone
MONEYS = st.builds(Money, cents=INT64, currency=TEXT)
ITEMS = st.builds(
    Item,
    name=TEXT,
    amount=INT64,
    parts=st.lists(st.builds(Item, name=TEXT, amount=INT64), max_size=2).map(tuple),
)
ORDERS = st.builds(
    Order,
    id=TEXT,
    at=st.integers(-(10**12), 10**13),
    total=FLOATS,
    raw=st.binary(max_size=8),
    note=st.none() | TEXT,
    items=st.lists(ITEMS, max_size=3).map(tuple),
    labels=st.dictionaries(TEXT, INT64, max_size=3),
    prices=st.dictionaries(st.integers(-(2**31), 2**31 - 1), MONEYS, max_size=3),
    status=st.sampled_from(Status),
    history=st.lists(st.sampled_from(["UNKNOWN", "OPEN"]), max_size=3).map(tuple),
    points=st.none() | INT64,
    nickname=st.none() | TEXT,
    shipped=st.none() | TIMES,
    paid=st.none() | MONEYS,
    card=st.none() | TEXT,
    gift=st.booleans(),
    small=st.integers(-(2**31), 2**31 - 1),
    large=st.integers(0, 2**63 - 1),
    visits=st.lists(TIMES, max_size=2).map(tuple),
    day=st.dates(),
    price=st.decimals(-1000, 1000, places=2).map(lambda price: Decimal(str(price)).normalize() + 0),
    device=st.uuids(),
    weights=st.lists(FLOATS, max_size=3).map(tuple),
)
CONTEXT = SerializationContext("orders", MessageField.VALUE)
ORDER = Order("a", 1_700_000_000_123, 2.5, items=(Item("x", 3),), labels={"l": 4}, status=Status.PAID, card="visa")


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that protoc generates."""
    return compiled(tmp_path_factory.mktemp("protos"), penstock_shop=SHOP, penstock_money=MONEY)


@pytest.fixture
def registry() -> SchemaRegistry:
    return new_registry()


def new_registry() -> SchemaRegistry:
    return SchemaRegistry(f"mock://protobuf-{next(_numbers)}")


def client_of(registry: SchemaRegistry) -> Any:
    """Return Confluent's client of a registry in memory."""
    return RegistryClient(registry, PROTOBUF)._client


def codec_of(spec: CodecSpec, record: type[ps.Record] = Order) -> Codec:
    return Codecs(MemoryBus()).of(ps.Category("orders", record, key="id", event_time="at", codec=spec))


def as_json(shop: Any, order: Order) -> dict[str, Any]:
    """Return an order as Protobuf's own JSON, computed without the codec: absent and empty fields are left out."""
    stamp = datetime.fromtimestamp
    seconds, ms = divmod(order.at, 1000)
    found: dict[str, Any] = msgspec.to_builtins(order, builtin_types=(bytes,), str_keys=True)
    found["at"] = stamp(seconds, UTC).replace(microsecond=ms * 1000).isoformat().replace("+00:00", "Z")
    found["status"] = order.status.name
    message = shop.Order()
    message.raw = found.pop("raw")
    return {
        **json_format.MessageToDict(
            json_format.ParseDict({name: value for name, value in found.items() if value is not None}, message)
        )
    }


@settings(max_examples=60, deadline=None)
@given(orders=st.lists(ORDERS, min_size=1, max_size=3))
def test_confluents_protobuf_serializers_write_and_read_the_same_messages(shop: Any, orders: list[Order]) -> None:
    """The schema has the same subject and id. Bytes are equal except for the order of map entries, which Protobuf leaves open."""
    registry = new_registry()
    subject = codec_of(ConfluentProtobuf(shop.Order, registry))
    written = subject.encode(orders)
    client = client_of(registry)
    write = ProtobufSerializer(shop.Order, client)
    read = ProtobufDeserializer(shop.Order, schema_registry_client=client)

    found = [read(value, CONTEXT) for value in written]
    theirs = [write(message, CONTEXT) for message in found]

    assert [json_format.MessageToDict(message) for message in found] == [as_json(shop, order) for order in orders]
    assert subject.decode(list(map(MessageCopy, theirs))).events == orders
    assert subject.decode(list(map(MessageCopy, written))).events == orders
    for order, value, their in zip(orders, written, theirs, strict=True):
        if len(order.labels) < 2 and len(order.prices) < 2:
            assert value == their


@settings(max_examples=40, deadline=None)
@given(orders=st.lists(ORDERS, min_size=1, max_size=3))
def test_plain_protobuf_is_what_the_generated_class_reads_and_writes(shop: Any, orders: list[Order]) -> None:
    """Without a registry, a value is the bytes of the message alone."""
    subject = codec_of(Protobuf(shop.Order))
    written = subject.encode(orders)
    messages = [shop.Order.FromString(value) for value in written]

    assert [json_format.MessageToDict(message) for message in messages] == [as_json(shop, order) for order in orders]
    assert (
        subject.decode([MessageCopy(message.SerializeToString()) for message in messages]).events
        == subject.decode(list(map(MessageCopy, written))).events
        == orders
    )


@settings(deadline=None)
@given(indexes=st.lists(st.integers(0, 2**31), min_size=1, max_size=5), rest=st.binary())
def test_message_indexes_are_read_as_written(indexes: list[int], rest: bytes) -> None:
    """Any path of indexes precedes any bytes."""
    assert split_indexes(encode_indexes(indexes) + rest) == (tuple(indexes), rest)


def test_imported_files_are_registered_under_their_names(shop: Any, registry: SchemaRegistry) -> None:
    """Confluent's serializers do the same. The schema refers to them."""
    codec_of(ConfluentProtobuf(shop.Order, registry)).encode([ORDER])
    client = client_of(registry)
    other = new_registry()
    ProtobufSerializer(shop.Order, client_of(other))(shop.Order(), CONTEXT)

    assert sorted(client.get_subjects()) == ["orders-value", "penstock_money.proto"]
    assert (
        client.get_latest_version("orders-value").schema == client_of(other).get_latest_version("orders-value").schema
    )


class Part(ps.Record, frozen=True):
    """A nested message."""

    name: str
    amount: int


def test_a_nested_message_has_a_path_of_indexes(shop: Any, registry: SchemaRegistry) -> None:
    """It is the second message of a file, or a message in a message."""
    spec = ConfluentProtobuf(shop.Envelope.Item, registry)
    category = ps.Category("orders", Part, key="name", event_time="amount", codec=spec)
    [value] = Codecs(MemoryBus()).of(category).encode([Part("x", 7)])
    client = client_of(registry)

    assert value[5:8] == b"\x04\x00\x00"
    assert value == ProtobufSerializer(shop.Envelope.Item, client)(shop.Envelope.Item(name="x", amount=7), CONTEXT)


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        (SubjectStrategy.TOPIC, "orders-value"),
        (SubjectStrategy.RECORD, "shop.Order"),
        (SubjectStrategy.TOPIC_RECORD, "orders-shop.Order"),
    ],
)
def test_the_strategy_names_the_subject_of_a_message(
    shop: Any, registry: SchemaRegistry, strategy: SubjectStrategy, subject: str
) -> None:
    """The record name is the full name of the message."""
    codec_of(ConfluentProtobuf(shop.Order, registry, strategy)).encode([ORDER])

    assert subject in client_of(registry).get_subjects()


def test_a_schema_guid_in_a_header_is_read(shop: Any, registry: SchemaRegistry) -> None:
    """The header contains the GUID and the message indexes, and the value only the message."""
    subject = codec_of(ConfluentProtobuf(shop.Order, registry))
    message = ProtobufDeserializer(shop.Order)(subject.encode([ORDER])[0], CONTEXT)
    headers: list[Any] = []
    context = SerializationContext("orders", MessageField.VALUE, headers=headers)
    write = ProtobufSerializer(shop.Order, client_of(registry), {"schema.id.serializer": header_schema_id_serializer})
    value = write(message, context)

    assert headers
    assert subject.decode([MessageCopy(value, headers=headers)]).events == [ORDER]


def test_a_message_of_another_type_is_undecodable(shop: Any, registry: SchemaRegistry) -> None:
    """Its bytes would decode as an order; the reason names both types. Cut values and unknown schemas have a reason each."""
    subject = codec_of(ConfluentProtobuf(shop.Order, registry))
    [good] = subject.encode([ORDER])
    refund = ProtobufSerializer(shop.Refund, client_of(registry))(shop.Refund(id="r"), CONTEXT)
    bad = [refund, good[:5], good[:-1], b"\0\0\0\0\x63\0", good[:5] + b"\x02\x63", None, b"{}"]

    decoded = subject.decode([MessageCopy(value) for value in (*bad, good)])

    assert decoded.events == [ORDER]
    assert [one.at for one in decoded.bad] == list(range(len(bad)))
    assert "it is a message shop.Refund, not shop.Order" in decoded.bad[0].reason
    assert "schema 99 is not in the schema registry" in decoded.bad[3].reason


def test_absent_values_follow_the_record_type(shop: Any) -> None:
    """An absent optional field is None, and an absent scalar is zero. An absent event time is missing, and not 1970."""
    subject = codec_of(Protobuf(shop.Order))
    message = shop.Order(id="a", day="2026-01-01", price="1", device=str(UUID(int=1)))
    untimed = message.SerializeToString()
    message.at.FromMilliseconds(5)

    decoded = subject.decode([MessageCopy(untimed), MessageCopy(message.SerializeToString())])

    assert decoded.events == [Order("a", 5, 0.0)]
    assert [(one.at, one.untimed) for one in decoded.bad] == [(0, True)]


def test_an_enum_value_that_the_record_lacks_is_undecodable(shop: Any) -> None:
    """The reason names the value."""
    subject = codec_of(Protobuf(shop.Order))
    cancelled = shop.Order.FromString(subject.encode([ORDER])[0])
    cancelled.status = shop.CANCELLED
    unknown = shop.Order.FromString(subject.encode([ORDER])[0])
    unknown.status = 77

    decoded = subject.decode([MessageCopy(message.SerializeToString()) for message in (cancelled, unknown)])

    assert "`status` is CANCELLED, which Status lacks" in decoded.bad[0].reason
    assert "`status` is 77" in decoded.bad[1].reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"small": 2**31}, "`small`"),
        ({"large": -1}, "`large`"),
        ({"card": "visa", "voucher": 3}, "card and voucher are in one oneof, payment"),
        ({"prices": {2**40: Money(1, "EUR")}}, "`prices`"),
    ],
)
def test_a_value_that_the_message_cannot_represent_is_refused(shop: Any, change: Any, reason: str) -> None:
    """Nothing is cut or dropped silently."""
    with pytest.raises(InvalidRecord, match=reason):
        codec_of(Protobuf(shop.Order)).encode([msgspec.structs.replace(ORDER, **change)])


class Sized(ps.Record, frozen=True):
    """An order with an integer of 32 bits in the message."""

    id: str
    at: ps.EventTime
    small: int


@pytest.mark.parametrize("is_registered", [True, False])
def test_an_event_whose_output_exceeds_the_message_becomes_a_dead_letter(shop: Any, is_registered: bool) -> None:
    """The processor must declare that. The other events of the batch are written."""
    codec = ConfluentProtobuf(shop.Order, new_registry()) if is_registered else Protobuf(shop.Order)
    source = ps.Category("source", Sized, key="id", event_time="at", buckets=1)
    target = ps.Category("target", Sized, key="id", event_time="at", buckets=1, codec=codec)

    class Copy(ps.Stateless[Sized, Sized]):
        reads, writes = source, target
        on_error = ps.ErrorPolicy.DEAD_LETTER

        def process(self, event: Sized) -> list[Sized]:
            return [event]

    driver = Driver(Copy)
    driver.send(source, [Sized("a", 1, 2**31), Sized("b", 2, 2**31 - 1)])

    assert driver.read(target) == [Sized("b", 2, 2**31 - 1)]
    [letter] = driver.dead_letters(Copy)
    assert "`small`: Value out of range" in letter.reason


class Level(IntEnum):
    """Names that the message lacks."""

    LOW = 1


class Misfit(ps.Record, frozen=True):
    """A record of which no field but the key and the time fits."""

    id: str
    at: ps.EventTime
    totl: float
    raw: str
    gift: bool | None
    items: tuple[Misfit, ...]
    labels: dict[str, Any]
    status: Level
    card: str
    nickname: int | None
    weights: float


def test_a_record_that_does_not_fit_is_refused_with_fields_and_types(shop: Any) -> None:
    """All mismatches are in one error, before the first event."""
    with pytest.raises(DeclarationError) as refused:
        codec_of(Protobuf(shop.Order), Misfit)
    lines = str(refused.value).splitlines()

    assert lines[0].startswith(
        "Category orders: Misfit does not fit the message shop.Order. No event was read or written."
    )
    for expected in (
        "Misfit.totl is not a field of shop.Order",
        "Did you mean `total`",
        "Misfit.raw is str, but bytes in shop.Order",
        "Misfit.gift is bool | None, but bool in shop.Order: it has no presence",
        "Misfit.labels is dict[str, Any], but map<string, int64> in shop.Order",
        "Misfit.items.id is not a field of shop.Envelope.Item",
        "Misfit.status is Level, but enum shop.Status in shop.Order: it has no value 1",
        "Misfit.card is str, but string in shop.Order: it is absent if another field of the oneof payment is set",
        "Misfit.nickname is int | None, but google.protobuf.StringValue in shop.Order",
        "Misfit.weights is float, but repeated double in shop.Order",
    ):
        assert any(expected in line for line in lines), (expected, lines)


def test_a_worker_refuses_a_record_that_does_not_fit_before_the_first_event(shop: Any) -> None:
    """The processor is never called."""

    class Fits(ps.Record, frozen=True):
        id: str
        at: ps.EventTime

    class Wrong(ps.Record, frozen=True):
        id: int
        at: ps.EventTime

    source = ps.Category("source", Fits, key="id", event_time="at", codec=Protobuf(shop.Order), buckets=1)
    target = ps.Category("target", Wrong, key="id", event_time="at", codec=Protobuf(shop.Order), buckets=1)
    called = []

    class Copy(ps.Stateless[Fits, Wrong]):
        reads, writes = source, target

        def process(self, event: Fits) -> list[Wrong]:
            called.append(event)
            return []

    with pytest.raises(DeclarationError, match=r"Wrong\.id is int, but string"):
        Driver(Copy).send(source, [Fits("a", 1)])

    assert called == []


@pytest.mark.parametrize("message", [dict, "Order", None, 7])
def test_another_object_than_a_message_class_is_refused(message: Any) -> None:
    """The error names an example."""
    with pytest.raises(DeclarationError, match="is not a message class of Protobuf"):
        codec_of(Protobuf(message))


class Small(ps.Record, frozen=True):
    """The first fields of an order."""

    id: str
    at: ps.EventTime


def test_an_unregistered_message_is_refused_before_the_first_record(shop: Any, registry: SchemaRegistry) -> None:
    """With `register=False`, the registry stays unchanged; once registered, records are written."""
    with pytest.raises(SchemaIncompatible, match="Nothing was written"):
        codec_of(ConfluentProtobuf(shop.Order, registry, register=False)).encode([ORDER])
    assert client_of(registry).get_subjects() == []

    [value] = codec_of(ConfluentProtobuf(shop.Order, registry)).encode([ORDER])
    assert codec_of(ConfluentProtobuf(shop.Order, registry, register=False)).encode([ORDER]) == [value]


def test_messages_are_written_with_the_latest_schema_if_declared(
    shop: Any, registry: SchemaRegistry, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The id and the indexes are the latest schema's; a field that it lacks, or has with another type, is an error."""
    later = SHOP.replace("message Order {", "message First { string id = 1; }\nmessage Order {").replace(
        "double total = 3", "float total = 3"
    )
    folder = tmp_path_factory.mktemp("later")
    newer = compiled_apart(folder, later)
    client_of(registry).register_schema("orders-value", newer)
    latest = ConfluentProtobuf(shop.Order, registry, latest=True)

    [value] = codec_of(latest, Small).encode([Small("b", 3)])

    assert value[5:7] == b"\x02\x04"
    assert codec_of(latest, Small).decode([MessageCopy(value)]).events == [Small("b", 3)]
    with pytest.raises(SchemaIncompatible, match="has no field total of the same number and type"):
        codec_of(latest).encode([ORDER])
    with pytest.raises(SchemaIncompatible, match="has no schema of orders-value"):
        codec_of(ConfluentProtobuf(shop.Order, new_registry(), latest=True)).encode([ORDER])


def compiled_apart(folder: Any, text: str) -> Any:
    """Return the schema of a .proto file, without loading it into this process, where the names are in use."""
    from base64 import b64encode
    from importlib.resources import files

    from confluent_kafka.schema_registry import Schema
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    (folder / "later.proto").write_text(text)
    (folder / "penstock_money.proto").write_text(MONEY)
    included = files("grpc_tools") / "_proto"
    out = folder / "out"
    assert protoc.main(["protoc", f"-I{folder}", f"-I{included}", f"--descriptor_set_out={out}", "later.proto"]) == 0
    [file] = FileDescriptorSet.FromString(out.read_bytes()).file
    return Schema(b64encode(file.SerializeToString()).decode(), "PROTOBUF")
