"""Message keys in the format of a schema registry: Confluent's serializers write and read the same keys."""

from __future__ import annotations

import json
from datetime import timedelta
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
from support.protos import compiled

KEYS = """
syntax = "proto3";
package keys;
message Text { string id = 1; }
message Number { int64 id = 1; }
message Two { string id = 1; string shop = 2; }
"""
CONTEXT = SerializationContext("orders", MessageField.KEY)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)
RECORD_KEY = {"type": "record", "name": "Key", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}
NULLABLE_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": ["null", "long"]}]}
_numbers = count()


class Order(ps.Record, frozen=True):
    """An order with a text as key."""

    id: str
    at: ps.EventTime


class Numbered(ps.Record, frozen=True):
    """An order with an int as key."""

    id: int
    at: ps.EventTime


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that protoc generates."""
    return compiled(tmp_path_factory.mktemp("protos"), penstock_keys=KEYS)


def new_registry() -> SchemaRegistry:
    return SchemaRegistry(f"mock://keys-{next(_numbers)}")


def client_of(registry: SchemaRegistry) -> Any:
    """Return Confluent's client of a registry in memory."""
    return RegistryClient(registry, AVRO)._client


def category_of(key_codec: Any, record: Any = Order, name: str = "orders", buckets: int = 8) -> ps.Category[Any]:
    return ps.Category(name, record, key="id", event_time="at", key_codec=key_codec, buckets=buckets)


def latest(registry: SchemaRegistry) -> Any:
    return client_of(registry).get_latest_version("orders-key").schema


@settings(max_examples=40, deadline=None)
@given(key=TEXT)
def test_a_text_key_has_the_bytes_of_confluents_serializers(keys: Any, key: str) -> None:
    """Keys are in Avro, JSON and Protobuf. Each side reads the keys of the other."""
    avro, jsons, protobuf = new_registry(), new_registry(), new_registry()
    as_avro = category_of(ConfluentAvro(avro))
    as_json = category_of(ConfluentJson(jsons))
    as_protobuf = category_of(ConfluentProtobuf(keys.Text, protobuf))
    [in_avro], [in_json], [in_protobuf] = (each.encode_keys([key]) for each in (as_avro, as_json, as_protobuf))

    assert AvroSerializer(client_of(avro), latest(avro))(key, CONTEXT) == in_avro
    assert AvroDeserializer(client_of(avro))(in_avro, CONTEXT) == key
    schema = latest(jsons).schema_str
    assert json.loads(in_json[5:]) == key == JSONDeserializer(schema)(in_json, CONTEXT)
    theirs = JSONSerializer(schema, client_of(jsons))(key, CONTEXT)
    assert as_json.decode_key(theirs) == as_json.decode_key(in_json) == key
    message = keys.Text(id=key)
    assert ProtobufSerializer(keys.Text, client_of(protobuf))(message, CONTEXT) == in_protobuf
    assert ProtobufDeserializer(keys.Text)(in_protobuf, CONTEXT) == message
    assert as_avro.decode_key(in_avro) == as_protobuf.decode_key(in_protobuf) == key


@settings(max_examples=40, deadline=None)
@given(key=INT64)
def test_an_int_key_has_the_bytes_of_confluents_serializers(keys: Any, key: int) -> None:
    """A key is a long in Avro, an integer in JSON, and an int64 in Protobuf."""
    avro, jsons, protobuf = new_registry(), new_registry(), new_registry()
    as_avro = category_of(ConfluentAvro(avro), Numbered)
    as_json = category_of(ConfluentJson(jsons), Numbered)
    as_protobuf = category_of(ConfluentProtobuf(keys.Number, protobuf), Numbered)
    [in_avro], [in_json], [in_protobuf] = (each.encode_keys([str(key)]) for each in (as_avro, as_json, as_protobuf))

    assert AvroSerializer(client_of(avro), latest(avro))(key, CONTEXT) == in_avro
    assert JSONSerializer(latest(jsons).schema_str, client_of(jsons))(key, CONTEXT) == in_json
    assert ProtobufSerializer(keys.Number, client_of(protobuf))(keys.Number(id=key), CONTEXT) == in_protobuf
    assert [as_avro.decode_key(in_avro), as_json.decode_key(in_json), as_protobuf.decode_key(in_protobuf)] == [
        str(key)
    ] * 3


@pytest.mark.parametrize(
    ("kind", "spec", "schema", "content"),
    [
        ("AVRO", ConfluentAvro, RECORD_KEY, b"\x0e"),
        ("AVRO", ConfluentAvro, {"type": "long", "logicalType": "timestamp-millis"}, b"\x0e"),
        ("AVRO", ConfluentAvro, ["null", "long"], b"\x02\x0e"),
        ("AVRO", ConfluentAvro, NULLABLE_KEY, b"\x02\x0e"),
        ("JSON", ConfluentJson, {"type": "object", "properties": {"id": {"type": "integer"}}}, b'{"id":7}'),
        ("JSON", ConfluentJson, {"type": ["null", "integer"]}, b"7"),
        (
            "JSON",
            ConfluentJson,
            {"properties": {"id": {"oneOf": [{"type": "null"}, {"type": "integer"}]}}},
            b'{"id":7}',
        ),
    ],
)
def test_the_latest_schema_of_the_subject_determines_the_bytes(
    kind: str, spec: Any, schema: Any, content: bytes
) -> None:
    """Debezium and ksqlDB write a record with one field, which may permit null. Nothing else is registered."""
    registry = new_registry()
    client_of(registry).register_schema("orders-key", Schema(json.dumps("string"), kind))
    number = client_of(registry).register_schema("orders-key", Schema(json.dumps(schema), kind))
    category = category_of(spec(registry), Numbered)

    assert category.encode_keys(["7"]) == [b"\0" + number.to_bytes(4, "big") + content]
    assert category.decode_key(category.encode_keys(["7"])[0]) == "7"
    assert len(client_of(registry).get_versions("orders-key")) == 2


@pytest.mark.parametrize("key", ["2147483648", "07", "x"])
def test_a_key_that_its_schema_cannot_represent_is_refused(key: str) -> None:
    """It exceeds 32 bits, or is not in the canonical form, so readers would find another key."""
    registry = new_registry()
    client_of(registry).register_schema("orders-key", Schema(json.dumps(RECORD_KEY), "AVRO"))

    with pytest.raises(InvalidKey, match="does not fit its `key_codec`"):
        category_of(ConfluentAvro(registry), Numbered).encode_keys([key])


@pytest.mark.parametrize("part", ["codec", "key_codec"])
def test_a_refused_schema_of_an_output_stops_a_worker_before_the_first_event(part: str) -> None:
    """The worker checks the schemas of values and keys when it starts, even without events."""
    refused = ConfluentAvro(new_registry(), register=False)
    source = ps.Category("source", Order, key="id", event_time="at", buckets=1)
    target = ps.Category("target", Order, key="id", event_time="at", buckets=1, **{part: refused})  # type: ignore[arg-type]  # by name

    class Copy(ps.Stateless[Order, Order]):
        reads, writes = source, target

        def process(self, event: Order) -> list[Order]:
            return [event]

    with pytest.raises(SchemaIncompatible, match="is not registered"):
        Driver(Copy).run()


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        ({"type": "record", "name": "K", "fields": [{"name": n, "type": "int"} for n in "ab"]}, r'`key=\("a", "b"\)`'),
        ({"type": "record", "name": "K", "fields": [{"name": n, "type": "double"} for n in "ab"]}, "Repartition"),
        ("double", "Repartition"),
        (["null", "string", "long"], "Repartition"),
    ],
)
def test_a_key_schema_that_is_not_one_value_is_refused_with_the_remedy(schema: Any, remedy: str) -> None:
    """For several texts and ints, the remedy is the declaration of all fields. The error contains the schema."""
    registry = new_registry()
    client_of(registry).register_schema("orders-key", Schema(json.dumps(schema), "AVRO"))

    with pytest.raises(SchemaIncompatible, match=rf"orders-key.*neither one text nor one int.*{remedy}"):
        category_of(ConfluentAvro(registry)).encode_keys(["7"])


def test_a_message_with_several_fields_is_no_key_of_one_field(keys: Any) -> None:
    """The error names the message."""
    with pytest.raises(DeclarationError, match=r"keys\.Two cannot be the key"):
        category_of(ConfluentProtobuf(keys.Two, new_registry())).encode_keys(["7"])


def test_a_json_key_schema_of_several_types_is_refused() -> None:
    """The error contains the schema, as in Avro."""
    registry = new_registry()
    client_of(registry).register_schema("orders-key", Schema('{"type": ["string", "integer"]}', "JSON"))

    with pytest.raises(SchemaIncompatible, match="neither one text nor one int"):
        category_of(ConfluentJson(registry)).encode_keys(["7"])


def test_a_null_key_that_its_schema_permits_is_no_key() -> None:
    """A key of a category is a text or an int."""
    registry = new_registry()
    number = client_of(registry).register_schema("orders-key", Schema(json.dumps(["null", "long"]), "AVRO"))

    with pytest.raises(InvalidKey, match="neither a text nor an int"):
        category_of(ConfluentAvro(registry), Numbered).decode_key(b"\0" + number.to_bytes(4, "big") + b"\0")


def test_an_unregistered_key_schema_is_refused() -> None:
    """With `register=False`, the registry stays unchanged."""
    registry = new_registry()

    with pytest.raises(SchemaIncompatible, match="not registered"):
        category_of(ConfluentAvro(registry, register=False)).encode_keys(["7"])
    assert client_of(registry).get_subjects() == []


@pytest.mark.parametrize("message_key", [b"", b"7", b"\0\0\0\0\x63\x02a", b"\0\0\0\0\x01\x99", b"\0\0\0\0\1\x02\xff"])
def test_other_bytes_are_no_keys(message_key: bytes) -> None:
    """They raise InvalidKey, like bytes that other key codecs refuse."""
    registry = new_registry()
    category = category_of(ConfluentAvro(registry))
    category.encode_keys(["7"])

    with pytest.raises(InvalidKey, match="does not fit its `key_codec`, ConfluentAvro"):
        category.decode_key(message_key)


class Counted(ps.Record, frozen=True):
    """A count."""

    id: str
    at: ps.EventTime
    orders: int


def test_keys_are_counted_and_tombstones_have_the_same_keys() -> None:
    """Outputs are in the bucket of the bytes with the schema id; a tombstone reads back as one."""
    registry = new_registry()
    orders = category_of(ConfluentAvro(registry))
    counts = category_of(ConfluentJson(registry), Counted, "counts")

    class Counting(ps.Stateful[Order, int, Counted | ps.Tombstone]):
        reads, writes, state = orders, counts, int

        def process(self, event: Order, state: int | None, context: Any) -> Any:
            total = (state or 0) + 1
            return total, [Counted(event.id, event.at, total) if total < 3 else ps.Tombstone(event.id)]

    driver = Driver(Counting)
    driver.send(orders, [Order(str(n % 5), n) for n in range(15)])

    read = driver.read(counts)
    assert sorted(one.id for one in read if isinstance(one, Counted)) == sorted("01234" * 2)
    assert sorted(one.key for one in read if isinstance(one, ps.Tombstone)) == list("01234")
    assert sorted(client_of(registry).get_subjects()) == ["counts-key", "orders-key"]


class Payment(Order, frozen=True):
    """The counterpart of an order."""


class Paid(ps.Record, frozen=True):
    """An order with its counterpart."""

    id: str
    at: ps.EventTime


def joining(orders: ps.Category[Any], payments: ps.Category[Any]) -> Any:
    """Return a join of two categories by key."""

    class Joining(ps.Join[Order, Payment, Paid]):
        left, right = orders, payments
        writes = category_of(ps.KeyCodec.TEXT, Paid, "paid")
        before = after = timedelta(minutes=1)

        def join(self, left: Order, right: Payment, context: Any) -> list[Paid]:
            return [Paid(left.id, left.at)]

    return Joining


def test_categories_whose_keys_have_different_schema_ids_are_not_joined() -> None:
    """Equal keys would be in different buckets. One subject for both categories solves it."""
    registry = new_registry()
    sides = (("orders", Order), ("payments", Payment))
    apart = [category_of(ConfluentAvro(registry), record, name) for name, record in sides]
    same = [category_of(ConfluentAvro(registry, SubjectStrategy.RECORD), record, name) for name, record in sides]

    with pytest.raises(DeclarationError, match="orders and payments, whose keys have different schemas"):
        Driver(joining(*apart)).send(apart[0], [Order("a", 1)])
    processor = joining(*same)
    driver = Driver(processor)
    driver.send(same[0], [Order(str(n), 1) for n in range(20)])
    driver.send(same[1], [Payment(str(n), 1) for n in range(20)])

    assert len(driver.read(processor.writes)) == 20


@pytest.mark.parametrize(
    ("declared", "finding"),
    [
        (ConfluentAvro, "the declared key under another schema of the registry"),
        (
            lambda registry: ps.KeyCodec.TEXT,
            r"may be in the format of a schema registry.*declare `key_codec=codecs\.ConfluentAvro\(…\)` on orders",
        ),
    ],
)
def test_a_key_of_another_format_or_schema_stops_the_worker(declared: Any, finding: str) -> None:
    """The error names the cause: the schema id is a part of the message key, and so of the bucket."""
    registry = new_registry()
    category = category_of(declared(registry))

    class Counting(ps.Stateful[Order, int, Counted]):
        reads, writes, state = category, (), int

        def process(self, event: Order, state: int | None, context: Any) -> Any:
            return (state or 0) + 1, []

    other = client_of(registry).register_schema("orders-key", Schema(json.dumps("string"), "AVRO"))
    client_of(registry).register_schema("orders-key", Schema(json.dumps(RECORD_KEY), "AVRO"))
    driver = Driver(Counting)
    keys = [b"\0" + other.to_bytes(4, "big") + bytes([2, digit]) for digit in b"0123456789"]
    messages = [Outgoing(key, b'{"id":"%c","at":1}' % key[-1]) for key in keys]
    driver.bus.writer().send("orders", messages)

    with pytest.raises(PenstockError, match=f"(?s).*{finding}"):
        driver.run()
