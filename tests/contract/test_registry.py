"""Formats of Confluent's serializers: they read our messages, and we read theirs."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Annotated, Any, ClassVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.codecs import (
    ConfluentAvro,
    ConfluentJson,
    RegistryUnreachable,
    SchemaIncompatible,
    SchemaRegistry,
    SubjectStrategy,
)
from penstock.errors import DeclarationError
from penstock.processors.declare import Codec, CodecSpec
from penstock.transport import MessageCopy
from penstock.transport.codecs import AVRO, Codecs, RegistryClient
from penstock.transport.memory import MemoryBus

pytest.importorskip("confluent_kafka.schema_registry.avro", reason="needs penstock[registry]", exc_type=ImportError)

from confluent_kafka.schema_registry import Schema, SchemaReference, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

_numbers = count()
INT64 = st.integers(-(2**63), 2**63 - 1)


class Item(ps.Record, frozen=True):
    """A part of an order."""

    name: str
    amount: int


class Order(ps.Record, frozen=True):
    """A record as other programs write it."""

    key: str
    at: ps.EventTime
    total: float
    raw: bytes = b""
    note: str | None = None
    items: tuple[Item, ...] = ()
    labels: dict[str, int] = msgspec.field(default_factory=dict)


class OldOrder(ps.Record, frozen=True):
    """An earlier version: without the items, with a field that is gone."""

    key: str
    at: ps.EventTime
    total: int
    gone: str = ""


ORDERS = st.builds(
    Order,
    key=st.text(),
    at=INT64,
    total=st.floats(allow_nan=False, allow_infinity=False),
    raw=st.binary(),
    note=st.none() | st.text(),
    items=st.lists(st.builds(Item, name=st.text(), amount=INT64)).map(tuple),
    labels=st.dictionaries(st.text(), INT64),
)
CONTEXT = SerializationContext("orders", MessageField.VALUE)
ORDER = Order("a", 1, 2.5, b"\xff", "n", (Item("x", 3),), {"l": 4})


def plain(order: Order) -> dict[str, Any]:
    """Return an order as Confluent's serializers see it."""
    return {
        **{name: getattr(order, name) for name in Order.__struct_fields__},
        "items": [{"name": item.name, "amount": item.amount} for item in order.items],
    }


@pytest.fixture
def registry() -> SchemaRegistry:
    return SchemaRegistry(f"mock://registry-{next(_numbers)}")


def client_of(registry: SchemaRegistry) -> Any:
    """Return Confluent's client of a registry in memory."""
    return RegistryClient(registry, AVRO)._client


def codec_of(spec: CodecSpec, record: type[ps.Record] = Order) -> Codec:
    return Codecs(MemoryBus()).of(ps.Category("orders", record, key="key", event_time="at", codec=spec))


@settings(max_examples=30, deadline=None)
@given(orders=st.lists(ORDERS, min_size=1, max_size=3))
def test_confluents_avro_serializers_write_and_read_the_same_bytes(orders: list[Order]) -> None:
    """The schema has the same subject and id, for any records."""
    registry = SchemaRegistry(f"mock://registry-{next(_numbers)}")
    subject = codec_of(ConfluentAvro(registry))
    written = subject.encode(orders)
    client = client_of(registry)
    schema = client.get_latest_version("orders-value").schema

    theirs = [AvroSerializer(client, schema)(plain(order), CONTEXT) for order in orders]
    read = AvroDeserializer(client)

    assert written == theirs
    assert [read(value, CONTEXT) for value in written] == [plain(order) for order in orders]
    assert subject.decode(list(map(MessageCopy, theirs))).events == orders


@settings(max_examples=20, deadline=None)
@given(orders=st.lists(ORDERS, min_size=1, max_size=3))
def test_confluents_json_serializers_read_and_write_our_messages(orders: list[Order]) -> None:
    """Their deserializer checks our messages against the registered JSON Schema."""
    json_schema = pytest.importorskip("confluent_kafka.schema_registry.json_schema", exc_type=ImportError)
    registry = SchemaRegistry(f"mock://registry-{next(_numbers)}")
    subject = codec_of(ConfluentJson(registry))
    written = subject.encode(orders)
    client = client_of(registry)
    schema = client.get_latest_version("orders-value").schema

    read = json_schema.JSONDeserializer(schema.schema_str, schema_registry_client=client)
    write = json_schema.JSONSerializer(schema.schema_str, client)
    found = [read(value, CONTEXT) for value in written]
    theirs = [MessageCopy(write(fields, CONTEXT)) for fields in found]

    assert [fields["key"] for fields in found] == [order.key for order in orders]
    assert [value[:5] for value in written] == [(message.value() or b"")[:5] for message in theirs]
    assert subject.decode(theirs).events == orders


@pytest.mark.parametrize(
    ("strategy", "name", "subject"),
    [
        (SubjectStrategy.TOPIC, "com.shop.Order", "orders-value"),
        (SubjectStrategy.RECORD, "com.shop.Order", "com.shop.Order"),
        (SubjectStrategy.TOPIC_RECORD, "com.shop.Order", "orders-com.shop.Order"),
        (SubjectStrategy.RECORD, None, "Order"),
    ],
)
@pytest.mark.parametrize("kind", [ConfluentAvro, ConfluentJson])
def test_the_strategy_names_the_subject(
    registry: SchemaRegistry, strategy: SubjectStrategy, name: str | None, subject: str, kind: Any
) -> None:
    """Confluent's strategies of the same names choose the same subject."""
    codec_of(kind(registry, strategy, name)).encode([ORDER])

    assert client_of(registry).get_subjects() == [subject]


@pytest.mark.parametrize("kind", [ConfluentAvro, ConfluentJson])
def test_records_of_an_earlier_type_are_read(registry: SchemaRegistry, kind: Any) -> None:
    """Removed fields are ignored, new ones have their defaults, whole numbers become floats."""
    values = codec_of(kind(registry), OldOrder).encode([OldOrder("a", 1, 2, "x")])

    assert codec_of(kind(registry)).decode(list(map(MessageCopy, values))).events == [Order("a", 1, 2.0)]


class Typed(ps.Record, frozen=True):
    """A record with Avro's logical types."""

    key: str
    at: ps.EventTime
    sold_at: datetime
    day: date
    price: Annotated[Decimal, msgspec.Meta(extra={"precision": 12, "scale": 2})]
    device: UUID


def test_logical_types_are_those_of_confluents_serializers(registry: SchemaRegistry) -> None:
    """Microseconds and all digits are kept."""
    sold_at = datetime(2026, 3, 1, 12, 30, 15, 123_456, UTC)
    record = Typed("a", 1, sold_at, date(2026, 3, 1), Decimal("-12.30"), UUID(int=7))
    fields = {name: getattr(record, name) for name in Typed.__struct_fields__}
    subject = codec_of(ConfluentAvro(registry), Typed)
    [written] = subject.encode([record])
    client = client_of(registry)
    theirs = AvroSerializer(client, client.get_latest_version("orders-value").schema)(fields, CONTEXT)

    assert written == theirs
    assert AvroDeserializer(client)(written, CONTEXT) == fields
    assert subject.decode([MessageCopy(theirs)]).events == [record]


REFERENCED = {
    "type": "record",
    "name": "com.shop.Item",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "amount", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
REFERRING = {
    "type": "record",
    "name": "com.shop.Order",
    "fields": [
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "total", "type": "float"},
        {"name": "items", "type": {"type": "array", "items": "com.shop.Item"}},
    ],
}


def test_schemas_with_references_and_logical_types_are_read(registry: SchemaRegistry) -> None:
    """Times are whole numbers where the record type declares int; the referenced schema is fetched, too."""
    client = client_of(registry)
    client.register_schema("items", Schema(json.dumps(REFERENCED), "AVRO"))
    schema = Schema(json.dumps(REFERRING), "AVRO", [SchemaReference("com.shop.Item", "items", 1)])
    fields: dict[str, Any] = {
        "key": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "at": 5,
        "total": 0.5,
        "items": [{"name": "x", "amount": 7}],
    }
    value = AvroSerializer(client, schema)(fields, CONTEXT)

    [order] = codec_of(ConfluentAvro(registry)).decode([MessageCopy(value)]).events

    assert order == Order(fields["key"], 5, 0.5, items=(Item("x", 7),))


def test_a_schema_id_in_a_header_is_read(registry: SchemaRegistry) -> None:
    """Newer serializers put the schema's GUID into a header, and the value alone into the message."""
    client = client_of(registry)
    codec_of(ConfluentAvro(registry)).encode([ORDER])
    schema = client.get_latest_version("orders-value").schema
    headers: list[Any] = []
    context = SerializationContext("orders", MessageField.VALUE, headers=headers)
    write = AvroSerializer(client, schema, conf={"schema.id.serializer": header_schema_id_serializer})
    value = write(plain(ORDER), context)

    assert codec_of(ConfluentAvro(registry)).decode([MessageCopy(value, headers=headers)]).events == [ORDER]


def test_bad_messages_do_not_affect_good_ones(registry: SchemaRegistry) -> None:
    """Other formats, cut values and unknown schemas have a reason each."""
    subject = codec_of(ConfluentAvro(registry))
    [good] = subject.encode([ORDER])
    bad = [b"{}", b"", b"\x00\x00\x00\x00\x63abc", good[:-1], None]

    decoded = subject.decode([MessageCopy(value) for value in (*bad, good)])

    assert decoded.events == [ORDER]
    assert [one.at for one in decoded.bad] == [0, 1, 2, 3, 4]
    assert "schema 99 is not in the schema registry" in decoded.bad[2].reason


@pytest.mark.parametrize("kind", [ConfluentAvro, ConfluentJson])
def test_an_unregistered_schema_is_refused_before_the_first_record(registry: SchemaRegistry, kind: Any) -> None:
    """With `register=False`, the registry stays unchanged; once registered, records are written."""
    with pytest.raises(SchemaIncompatible, match="Nothing was written"):
        codec_of(kind(registry, register=False)).encode([ORDER])
    assert client_of(registry).get_subjects() == []

    [value] = codec_of(kind(registry)).encode([ORDER])
    assert codec_of(kind(registry, register=False)).encode([ORDER]) == [value]


def test_json_is_written_with_the_latest_schema_if_declared(registry: SchemaRegistry) -> None:
    """A schema that lacks a field of the record, or requires another one, is refused."""
    codec_of(ConfluentJson(registry)).encode([ORDER])
    client = client_of(registry)
    own = client.get_latest_version("orders-value")
    changed = {**json.loads(own.schema.schema_str), "description": "changed elsewhere"}
    latest = client.register_schema("orders-value", Schema(json.dumps(changed), "JSON"))

    [value] = codec_of(ConfluentJson(registry, latest=True)).encode([ORDER])
    assert value[:5] == b"\0" + latest.to_bytes(4, "big")
    assert latest != own.schema_id
    for properties, required, reason in (
        ({"id": {}}, [], "has no field"),
        (changed["properties"] | {"vat": {}}, ["vat"], "requires vat, which"),
    ):
        unfit = {**changed, "properties": properties, "required": required}
        client.delete_subject("orders-value")
        client.register_schema("orders-value", Schema(json.dumps(unfit), "JSON"))
        with pytest.raises(SchemaIncompatible, match=reason):
            codec_of(ConfluentJson(registry, latest=True)).encode([ORDER])


def test_records_are_written_with_the_latest_schema_if_declared(registry: SchemaRegistry) -> None:
    """Additional fields of the schema have their defaults; a field that it lacks is an error, not a loss."""
    codec_of(ConfluentAvro(registry), OldOrder).encode([OldOrder("a", 1, 2)])
    latest = ConfluentAvro(registry, latest=True)

    class Small(ps.Record, frozen=True):
        key: str
        at: ps.EventTime
        total: int

    [value] = codec_of(latest, Small).encode([Small("b", 3, 4)])
    assert codec_of(latest, OldOrder).decode([MessageCopy(value)]).events == [OldOrder("b", 3, 4)]
    with pytest.raises(SchemaIncompatible, match="has no field raw"):
        codec_of(latest).encode([ORDER])


class Answers(http.server.BaseHTTPRequestHandler):
    """A registry that refuses every schema, and counts requests."""

    requests: ClassVar[list[tuple[str, str | None]]] = []
    schema = json.dumps(REFERENCED)

    def do_GET(self) -> None:
        self.requests.append((self.path, self.headers["Authorization"]))
        self._answer(200, {"schema": self.schema})

    def do_POST(self) -> None:
        self._answer(
            409, {"error_code": 409, "message": "Schema being registered is incompatible: READER_FIELD_MISSING"}
        )

    def _answer(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@pytest.fixture
def refusing() -> Iterator[SchemaRegistry]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SchemaRegistry(f"http://127.0.0.1:{server.server_port}", "ann", "secret")
    server.shutdown()
    server.server_close()


def test_an_incompatible_schema_is_refused_before_the_first_record(refusing: SchemaRegistry) -> None:
    """The error contains the registry's reason and the remedy."""
    with pytest.raises(SchemaIncompatible, match=r"READER_FIELD_MISSING.*Nothing was written"):
        codec_of(ConfluentAvro(refusing)).encode([ORDER])


def test_a_schema_is_fetched_once_with_the_credentials(refusing: SchemaRegistry) -> None:
    """Any number of messages and batches cause one request."""
    Answers.requests.clear()

    class Amount(ps.Record, frozen=True):
        name: str
        amount: int

    subject = Codecs(MemoryBus()).of(
        ps.Category("orders", Amount, key="name", event_time="amount", codec=ConfluentAvro(refusing))
    )
    message = MessageCopy(b"\x00\x00\x00\x00\x07\x02x\x06")
    for _ in range(3):
        assert subject.decode([message] * 5).events == [Amount("x", 3)] * 5

    [(path, login)] = Answers.requests
    assert path.startswith("/schemas/ids/7")
    assert login == "Basic YW5uOnNlY3JldA=="


def test_an_unreachable_registry_is_an_error_and_no_bad_message() -> None:
    """The messages can be read again later, so they do not become dead letters."""
    subject = codec_of(ConfluentAvro(SchemaRegistry("http://127.0.0.1:9")))

    with pytest.raises(RegistryUnreachable, match=r"127.0.0.1:9"):
        subject.decode([MessageCopy(b"\x00\x00\x00\x00\x07\x02x\x06")])


@pytest.mark.parametrize("setting", ["ca", "certificate", "key"])
def test_a_file_that_is_missing_is_named_with_its_setting(setting: str, tmp_path: Path) -> None:
    """The library's error names neither."""
    (tmp_path / "mine").touch()
    files = {name: str(tmp_path / "mine") for name in ("ca", "certificate", "key")} | {
        setting: str(tmp_path / "missing")
    }

    with pytest.raises(
        DeclarationError, match=f"`{setting}` of the schema registry .* names the file {tmp_path}/missing"
    ):
        RegistryClient(SchemaRegistry("https://127.0.0.1:1", **files), AVRO)


def test_the_password_is_not_shown() -> None:
    """Codecs are parts of errors and of descriptions of apps; equal codecs are equal categories."""
    registry = SchemaRegistry("https://registry:8081", "ann", "secret")

    assert "secret" not in repr(ConfluentAvro(registry))
    assert ConfluentAvro(registry) == ConfluentAvro(SchemaRegistry("https://registry:8081", "ann", "secret"))
    with pytest.raises(DeclarationError, match="must not contain credentials"):
        SchemaRegistry("https://ann:secret@registry")
    with pytest.raises(DeclarationError, match="both"):
        SchemaRegistry("https://registry", "ann")


@pytest.mark.parametrize("codec", [ps.codecs.ConfluentAvro, ps.codecs.ConfluentJson])
def test_an_address_is_no_registry(codec: Any) -> None:
    """The declaration is refused, with the code to write."""
    with pytest.raises(DeclarationError, match=r"SchemaRegistry\('http://localhost:8081'\)"):
        codec("http://localhost:8081")
