"""Topics with several record types in the format of a schema registry: one type is read, and the others are skipped or rejected."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from support.protos import compiled

import penstock as ps
from penstock.codecs import ConfluentAvro, ConfluentJson, ConfluentProtobuf, SchemaRegistry
from penstock.errors import DeclarationError
from penstock.transport import MessageCopy
from penstock.transport.codecs import Codecs
from penstock.transport.codecs.registry import _client_of
from penstock.transport.memory import MemoryBus

_numbers = count()
_CONTEXT = SerializationContext("orders", MessageField.VALUE)
_BY_RECORD = {"subject.name.strategy": record_subject_name_strategy}
PROTO = 'syntax = "proto3"; package shop; message Placed { string id = 1; int64 at = 2; } message Cancelled { string id = 1; int64 at = 2; }'


class Placed(ps.Record, frozen=True):
    """An order. A cancellation has the same fields."""

    id: str
    at: ps.EventTime


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that protoc generates."""
    return compiled(tmp_path_factory.mktemp("types"), registry_types=PROTO)


Write = Callable[[SchemaRegistryClient, Any, str], bytes]


def in_avro(client: SchemaRegistryClient, shop: Any, kind: str) -> bytes:
    fields = [{"name": "id", "type": "string"}, {"name": "at", "type": "long"}]
    schema = {"type": "record", "name": kind, "namespace": "com.shop", "fields": fields}
    return bytes(AvroSerializer(client, json.dumps(schema), conf=_BY_RECORD)({"id": kind, "at": 1}, _CONTEXT))


def in_json(client: SchemaRegistryClient, shop: Any, kind: str) -> bytes:
    schema = {"title": f"com.shop.{kind}", "type": "object", "properties": {"id": {"type": "string"}}}
    return bytes(JSONSerializer(json.dumps(schema), client, conf=_BY_RECORD)({"id": kind, "at": 1}, _CONTEXT))


def in_protobuf(client: SchemaRegistryClient, shop: Any, kind: str) -> bytes:
    message = getattr(shop, kind)
    return bytes(ProtobufSerializer(message, client, conf=_BY_RECORD)(message(id=kind, at=1), _CONTEXT))


def spec_of(write: Write, registry: SchemaRegistry, shop: Any, options: dict[str, Any]) -> Any:
    """Return the codec of a format."""
    if write is in_protobuf:
        return ConfluentProtobuf(shop.Placed, registry, **options)
    spec = ConfluentAvro if write is in_avro else ConfluentJson
    return spec(registry, name="com.shop.Placed", **options)


@pytest.mark.parametrize("write", [in_avro, in_json, in_protobuf])
def test_other_types_are_skipped_or_rejected(write: Write, shop: Any) -> None:
    """Their fields would fit."""
    registry = SchemaRegistry(f"mock://types-{next(_numbers)}")
    messages = [MessageCopy(write(_client_of(registry), shop, kind)) for kind in ("Placed", "Cancelled", "Placed")]

    for treatment, rejected in (("skip", 0), ("reject", 1)):
        codec = spec_of(write, registry, shop, {"other_types": treatment})
        decoded = (
            Codecs(MemoryBus())
            .of(ps.Category("orders", Placed, key="id", event_time="at", codec=codec))
            .decode(messages)
        )
        assert decoded.events == [Placed("Placed", 1)] * 2
        assert list(decoded.at) == [0, 2]
        assert ["Cancelled" in bad.reason for bad in decoded.bad] == [True] * rejected


@pytest.mark.parametrize("inner", ["referenced", "inline"])
def test_a_union_of_all_types_of_a_topic_is_read(inner: str) -> None:
    """The topic has one schema that refers to its record types, as Confluent recommends. Logical types apply to each."""
    registry = SchemaRegistry(f"mock://types-{next(_numbers)}")
    client = _client_of(registry)
    time = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "id", "type": "string"}, {"name": "at", "type": time}]
    types = [
        {"type": "record", "name": name, "namespace": "com.shop", "fields": fields} for name in ("Placed", "Cancelled")
    ]
    references = []
    for each in types if inner == "referenced" else ():
        name = f"com.shop.{each['name']}"
        client.register_schema(name, Schema(json.dumps(each), "AVRO"))
        references.append(SchemaReference(name, name, 1))
    names = [f"com.shop.{each['name']}" for each in types]
    union = Schema(json.dumps(names if references else types), "AVRO", references)
    write = AvroSerializer(client, union)
    at = datetime.fromtimestamp(1, UTC)
    messages = [MessageCopy(bytes(write((name, {"id": name, "at": at}), _CONTEXT))) for name in names]
    for treatment, expected in (("read", names), ("skip", names[:1])):
        codec = ConfluentAvro(registry, name=names[0], other_types=treatment)  # type: ignore[arg-type]
        category = ps.Category("orders", Placed, key="id", event_time="at", codec=codec)
        decoded = Codecs(MemoryBus()).of(category).decode([*messages, MessageCopy(messages[0].value()[:5] + b"\x08")])  # type: ignore[index]

        assert decoded.events == [Placed(name, 1_000) for name in expected]
        assert [(bad.at, "does not match its schema" in bad.reason) for bad in decoded.bad] == [(2, True)]


@pytest.mark.parametrize("name", ["Placed", "com.other.Placed", None])
def test_the_name_may_lack_its_namespace(name: str | None, shop: Any) -> None:
    """The default is the name of the class. A name with another namespace is another type."""
    registry = SchemaRegistry(f"mock://types-{next(_numbers)}")
    message = MessageCopy(in_avro(_client_of(registry), shop, "Placed"))
    spec = ConfluentAvro(registry, name=name, other_types="skip")
    decoded = (
        Codecs(MemoryBus()).of(ps.Category("orders", Placed, key="id", event_time="at", codec=spec)).decode([message])
    )

    assert decoded.events == ([] if name == "com.other.Placed" else [Placed("Placed", 1)])


@pytest.mark.parametrize("write", [in_avro, in_json, in_protobuf])
def test_an_unknown_treatment_is_refused(write: Write, shop: Any) -> None:
    """The declaration of the codec is refused."""
    with pytest.raises(DeclarationError, match="other_types='drop'"):
        spec_of(write, SchemaRegistry("mock://types"), shop, {"other_types": "drop"})
