"""Message keys of several fields in the format of a schema registry: Confluent's serializers write and read the same keys."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.codecs import (
    ConfluentAvro,
    ConfluentJson,
    ConfluentProtobuf,
    SchemaIncompatible,
    SchemaRegistry,
    SubjectStrategy,
)
from penstock.errors import DeclarationError, PenstockError
from penstock.processors.declare import InvalidKey
from penstock.testing import Driver
from penstock.transport import Outgoing
from penstock.transport.codecs import AVRO, RegistryClient

pytest.importorskip("confluent_kafka.schema_registry.protobuf", reason="needs penstock[registry,protobuf]")

from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from support.protos import compiled

MESSAGES = """
syntax = "proto3";
package composite;
message Pair { int64 id = 1; string tenant = 2; }
message Texts { string id = 1; string tenant = 2; }
message Three { int64 id = 1; string tenant = 2; string shop = 3; }
message Priced { int64 id = 1; string tenant = 2; double price = 3; }
message Many { repeated int64 id = 1; string tenant = 2; }
"""
CONTEXT = SerializationContext("orders", MessageField.KEY)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)
DEBEZIUM_KEY = {
    "type": "record",
    "name": "Key",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "id", "type": {"type": "int", "connect.default": 0}, "default": 0},
        {"name": "tenant", "type": "string"},
    ],
    "connect.name": "shop.public.orders.Key",
}
"""The key of a table with two key columns, as Debezium registers it; the columns are in another order than the declared fields."""
_numbers = count()


class Order(ps.Record, frozen=True):
    """An order of a tenant."""

    tenant: str
    id: int
    at: ps.EventTime


class Counted(ps.Record, frozen=True):
    """A count."""

    tenant: str
    id: int
    at: ps.EventTime
    orders: int


@pytest.fixture(scope="session")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that protoc generates."""
    return compiled(tmp_path_factory.mktemp("protos"), penstock_composite=MESSAGES)


def new_registry() -> SchemaRegistry:
    return SchemaRegistry(f"mock://composite-{next(_numbers)}")


def client_of(registry: SchemaRegistry) -> Any:
    """Return Confluent's client of a registry in memory."""
    return RegistryClient(registry, AVRO)._client


def registered(schema: Any, kind: str = "AVRO") -> SchemaRegistry:
    """Return a registry with a schema of keys."""
    registry = new_registry()
    client_of(registry).register_schema("orders-key", Schema(json.dumps(schema), kind))
    return registry


def latest(registry: SchemaRegistry) -> Any:
    return client_of(registry).get_latest_version("orders-key").schema


def category_of(key_codec: Any, record: Any = Order, name: str = "orders") -> ps.Category[Any]:
    return ps.Category(name, record, key=("tenant", "id"), event_time="at", key_codec=key_codec)


@settings(max_examples=40, deadline=None)
@given(tenant=TEXT, number=INT64)
def test_keys_have_the_bytes_of_confluents_serializers(messages: Any, tenant: str, number: int) -> None:
    """Keys are in Avro, JSON and Protobuf, with the schemas that Penstock registers. Each side reads the keys of the other."""
    avro, jsons, protobuf = new_registry(), new_registry(), new_registry()
    as_avro, as_json = category_of(ConfluentAvro(avro)), category_of(ConfluentJson(jsons))
    as_protobuf = category_of(ConfluentProtobuf(messages.Pair, protobuf))
    [key] = as_avro.keys_of([Order(tenant, number, 1)])
    [in_avro], [in_json], [in_protobuf] = (each.encode_keys([key]) for each in (as_avro, as_json, as_protobuf))
    fields = {"tenant": tenant, "id": number}
    message = messages.Pair(**fields)
    schema = latest(jsons).schema_str
    theirs = JSONSerializer(schema, client_of(jsons))(fields, CONTEXT)

    assert key == ps.composite_key(tenant, number)
    assert AvroSerializer(client_of(avro), latest(avro))(fields, CONTEXT) == in_avro
    assert AvroDeserializer(client_of(avro))(in_avro, CONTEXT) == fields
    assert JSONDeserializer(schema)(in_json, CONTEXT) == fields
    assert list(json.loads(in_json[5:]).items()) == list(fields.items())
    assert ProtobufSerializer(messages.Pair, client_of(protobuf))(message, CONTEXT) == in_protobuf
    assert ProtobufDeserializer(messages.Pair)(in_protobuf, CONTEXT) == message
    assert as_json.decode_key(theirs) == as_json.decode_key(in_json) == key
    assert as_avro.decode_key(in_avro) == as_protobuf.decode_key(in_protobuf) == key


def test_the_latest_schema_of_the_subject_determines_the_bytes() -> None:
    """Fields have the order of the schema, not of the declaration. Nothing else is registered."""
    registry = registered(DEBEZIUM_KEY)
    category = category_of(ConfluentAvro(registry))
    key = ps.composite_key("a", 3)
    [message_key] = category.encode_keys([key])

    assert message_key == AvroSerializer(client_of(registry), latest(registry))({"tenant": "a", "id": 3}, CONTEXT)
    assert message_key[5:] == b"\x06\x02a"
    assert category.decode_key(message_key) == key
    assert len(client_of(registry).get_versions("orders-key")) == 1


@pytest.mark.parametrize("key", [ps.composite_key("a", 2**31), ps.composite_key("a", "3"), '["a", 3]', "a"])
def test_a_key_that_its_schema_cannot_represent_is_refused(key: str) -> None:
    """Its int exceeds 32 bits, or it is not in the canonical form, so readers would find another key."""
    with pytest.raises(
        InvalidKey, match=r"does not fit its `key_codec`, ConfluentAvro: (it is not the JSON|2147483648)"
    ):
        category_of(ConfluentAvro(registered(DEBEZIUM_KEY))).encode_keys([key])


def record_of(**types: str) -> dict[str, Any]:
    """Return the schema of a record."""
    return {"type": "record", "name": "Key", "fields": [{"name": name, "type": kind} for name, kind in types.items()]}


@pytest.mark.parametrize(
    ("spec", "schema"),
    [
        (ConfluentAvro, record_of(tenant="string")),
        (ConfluentAvro, record_of(tenant="string", id="string")),
        (ConfluentAvro, record_of(tenant="string", id="long", shop="string")),
        (ConfluentAvro, record_of(tenant="string", id="double")),
        (ConfluentAvro, "string"),
        (ConfluentJson, {"type": "object", "properties": {"tenant": {"type": "string"}, "id": {"type": "string"}}}),
        (ConfluentJson, {"type": "object"}),
    ],
)
def test_a_schema_with_other_fields_or_types_is_refused(spec: Any, schema: Any) -> None:
    """It is refused before a key is written. The error names the fields and contains the schema."""
    registry = registered(schema, "AVRO" if spec is ConfluentAvro else "JSON")

    with pytest.raises(SchemaIncompatible, match=r"orders-key.*the fields tenant, id.*Declare all fields"):
        category_of(spec(registry)).prepare_keys()


@pytest.mark.parametrize("message", ["Texts", "Three", "Priced", "Many"])
def test_a_message_with_other_fields_or_types_is_refused(messages: Any, message: str) -> None:
    """The error names both."""
    spec = ConfluentProtobuf(getattr(messages, message), new_registry())

    with pytest.raises(DeclarationError, match=rf"composite\.{message}.*the fields tenant, id"):
        category_of(spec).prepare_keys()


def test_a_protobuf_schema_with_a_further_field_is_refused(messages: Any) -> None:
    """Its other field would be a part of the message keys of other producers."""
    registry = new_registry()
    file = FileDescriptorProto()
    messages.DESCRIPTOR.CopyToProto(file)
    file.message_type[0].field.add(name="shop", number=3, type="TYPE_STRING", label="LABEL_OPTIONAL")
    text = base64.b64encode(file.SerializeToString()).decode()
    client_of(registry).register_schema("orders-key", Schema(text, "PROTOBUF"))
    spec = ConfluentProtobuf(messages.Pair, registry)

    with pytest.raises(SchemaIncompatible, match=r"composite\.Pair with .* of id, tenant, and no other"):
        category_of(spec).prepare_keys()


@pytest.mark.parametrize("message_key", [b"", b"\0\0\0\0\x63\x06\x02a", b"\0\0\0\0\1\x06\x99", b"\0\0\0\0\1\x06"])
def test_other_bytes_are_no_keys(message_key: bytes) -> None:
    """They raise InvalidKey, like bytes that other key codecs refuse."""
    category = category_of(ConfluentAvro(registered(DEBEZIUM_KEY)))

    with pytest.raises(InvalidKey, match="does not fit its `key_codec`, ConfluentAvro"):
        category.decode_key(message_key)


def test_the_keys_of_other_producers_are_counted_and_read_back() -> None:
    """Their placement is verified; outputs and tombstones have the same form of keys."""
    registry = registered(DEBEZIUM_KEY)
    orders, counts = category_of(ConfluentAvro(registry)), category_of(ConfluentJson(registry), Counted, "counts")

    class Counting(ps.Stateful[Order, int, Counted | ps.Tombstone]):
        reads, writes, state = orders, counts, int

        def process(self, event: Order, state: int | None, context: Any) -> Any:
            total = (state or 0) + 1
            counted = Counted(event.tenant, event.id, event.at, total)
            return total, [counted if total < 3 else ps.Tombstone(context.key)]

    write = AvroSerializer(client_of(registry), latest(registry))
    driver = Driver(Counting)
    events = [Order("ab"[n % 2], n % 5, n) for n in range(30)]
    for event in events:
        key = write({"tenant": event.tenant, "id": event.id}, CONTEXT)
        value = json.dumps({"tenant": event.tenant, "id": event.id, "at": event.at}).encode()
        driver.bus.writer().send("orders", [Outgoing(key, value)])
    driver.run()
    read = driver.read(counts)
    every = sorted(ps.composite_key(tenant, n) for tenant in "ab" for n in range(5))

    assert sorted(counts.keys_of([one for one in read if isinstance(one, Counted)])) == sorted(every * 2)
    assert sorted(one.key for one in read if isinstance(one, ps.Tombstone)) == every


def test_a_key_under_another_schema_stops_the_worker() -> None:
    """The schema id is a part of the message key, and so of the bucket."""
    registry = registered(record_of(tenant="string", id="long"))
    category = category_of(ConfluentAvro(registry))
    other = latest(registry)
    client_of(registry).register_schema("orders-key", Schema(json.dumps(DEBEZIUM_KEY), "AVRO"))

    class Counting(ps.Stateful[Order, int, Counted]):
        reads, writes, state = category, (), int

        def process(self, event: Order, state: int | None, context: Any) -> Any:
            return (state or 0) + 1, []

    driver = Driver(Counting)
    write = AvroSerializer(client_of(registry), other, conf={"auto.register.schemas": False})
    keys = [write({"tenant": "a", "id": n}, CONTEXT) for n in range(10)]
    driver.bus.writer().send(
        "orders", [Outgoing(key, b'{"tenant":"a","id":%d,"at":1}' % n) for n, key in enumerate(keys)]
    )

    with pytest.raises(PenstockError, match=r"(?s)its 'tenant', 'id' is.*declared key under another schema"):
        driver.run()


def test_rows_of_a_table_with_two_key_columns_are_joined_and_deleted() -> None:
    """A stream with the same subject of keys finds the row, until a null value deletes it."""
    spec = ConfluentAvro(new_registry(), SubjectStrategy.RECORD, name="shop.Key")
    visits, rows = category_of(spec), category_of(spec, Counted, "rows")
    joined = category_of(ps.KeyCodec.TEXT, Counted, "joined")

    class Joining(ps.TableJoin[Order, Counted, Counted]):
        stream, table, writes = visits, rows, joined

        def join(self, event: Order, row: Counted | None, context: Any) -> Iterable[Counted]:
            yield Counted(event.tenant, event.id, event.at, row.orders if row else 0)

    driver = Driver(Joining)
    driver.send(rows, [Counted("a", n, 1, 10 + n) for n in range(8)])
    driver.send(visits, [Order("a", n, 2) for n in range(8)])
    driver.send(rows, [ps.Tombstone(ps.composite_key("a", 3))])
    driver.send(visits, [Order("a", 3, 3), Order("b", 4, 3), Order("a", 4, 3)])
    found = {(one.tenant, one.id, one.at): one.orders for one in driver.read(joined)}

    assert found == {("a", n, 2): 10 + n for n in range(8)} | {("a", 3, 3): 0, ("b", 4, 3): 0, ("a", 4, 3): 14}


def test_a_registry_is_asked_before_the_first_event() -> None:
    """A starting worker checks the schema of the keys of an output, as it does for keys of one field."""
    source = category_of(ps.KeyCodec.TEXT, name="source")
    target = category_of(ConfluentAvro(new_registry(), register=False), name="target")

    class Copy(ps.Stateless[Order, Order]):
        reads, writes = source, target

        def process(self, event: Order) -> list[Order]:
            return [event]

    with pytest.raises(SchemaIncompatible, match="is not registered"):
        Driver(Copy).run()
