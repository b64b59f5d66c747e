"""Envelopes of other programs: Debezium's changes and CloudEvents. The messages are those of their documentation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.codecs import CloudEvents, ConfluentAvro, ContentMode, Debezium, DebeziumKeys, SchemaRegistry
from penstock.errors import DeclarationError
from penstock.processors.declare import Codec, CodecSpec, InvalidRecord, bucket_of
from penstock.testing import Driver
from penstock.transport import MessageCopy, Outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

INT64 = st.integers(-(2**63), 2**63 - 1)
_numbers = count()


class Customer(ps.Record, frozen=True):
    """A row, with fields of the envelope."""

    id: int
    at: int = msgspec.field(name="__ts_ms")
    email: str | None = None
    op: str | None = msgspec.field(name="__op", default=None)
    lsn: int | None = msgspec.field(name="__source_lsn", default=None)


class Row(ps.Record, frozen=True):
    """A row alone."""

    id: int
    email: str | None = None


class Change(ps.Record, frozen=True):
    """A change."""

    op: str
    ts_ms: int
    before: Row | None = None
    after: Row | None = None

    @property
    def row(self) -> Row:
        """The row after the change, or before its deletion."""
        row = self.after or self.before
        assert row is not None
        return row


def change(op: str, before: Any, after: Any, ts_ms: int = 1_559_033_904_863) -> dict[str, Any]:
    """Return a change as the PostgreSQL connector writes it."""
    source = {"version": "2.7.0", "connector": "postgresql", "db": "shop", "table": "customers", "lsn": 24_023_128}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": ts_ms, "transaction": None}


def message(content: Any, key: Any, *, schemas: bool = False) -> MessageCopy:
    """Return a message as Kafka Connect's JsonConverter writes it."""

    def encoded(content: Any) -> bytes:
        return json.dumps(
            {"schema": {"type": "struct"}, "payload": content} if schemas else content, separators=(",", ":")
        ).encode()

    return MessageCopy(None if content is None else encoded(content), encoded(key), timestamp=(1, 5))


ANN, BOB = {"id": 1004, "email": "ann@shop"}, {"id": 1004, "email": "bob@shop"}
TIME_MS = 1_559_033_904_863


def codec_of(spec: CodecSpec, record: type[ps.Record], key: Any = "id", event_time: str = "__ts_ms") -> Codec:
    return Codecs(MemoryBus()).of(ps.Category("c", record, key=key, event_time=event_time, codec=spec))


@pytest.mark.parametrize("schemas", [False, True])
def test_rows_are_read_with_fields_of_the_envelope(*, schemas: bool) -> None:
    """They come from creations, updates and snapshots, with or without the schema in each message."""
    messages = [
        message(change("c", None, ANN), {"id": 1004}, schemas=schemas),
        message(change("u", ANN, BOB), {"id": 1004}, schemas=schemas),
        message(change("r", None, {"id": 7, "email": None, "added": 1}), {"id": 7}, schemas=schemas),
    ]
    category = ps.Category("c", Customer, key="id", event_time="__ts_ms", codec=Debezium())

    decoded = Codecs(MemoryBus()).of(category).decode(messages)

    assert decoded.bad == []
    assert decoded.events == [
        Customer(1004, TIME_MS, "ann@shop", "c", 24_023_128),
        Customer(1004, TIME_MS, "bob@shop", "u", 24_023_128),
        Customer(7, TIME_MS, None, "r", 24_023_128),
    ]


@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize(
    ("content", "key", "deleted"),
    [
        (change("d", ANN, None), {"id": 1004}, "1004"),
        (change("d", None, None), {"id": 1004}, "1004"),
        (change("d", ANN, None), {"other": 1, "columns": 2}, "1004"),
        (change("d", None, None), {"number": 1004}, "1004"),
        (change("d", None, None), {"two": 1, "columns": 2}, None),
        (None, {"id": 1004}, "1004"),
        (None, 1004, "1004"),
    ],
)
def test_deletions_name_the_row(content: Any, key: Any, deleted: str | None, *, schemas: bool) -> None:
    """They name it by the message's key, or by the row before. A null value does, too."""
    [bad] = codec_of(Debezium(), Customer).decode([message(content, key, schemas=schemas)]).bad

    assert bad.deleted_key == deleted
    assert bad.reason


def test_other_messages_are_rejected() -> None:
    """Truncations, unwrapped rows and other formats have a reason each."""
    bad = [
        message(change("t", None, None), {}),
        message(ANN, {}),
        message([1], {}),
        MessageCopy(b"x"),
        MessageCopy(b""),
    ]

    decoded = codec_of(Debezium(), Customer).decode([*bad, message(change("c", None, ANN), {"id": 1004})])

    assert [one.at for one in decoded.bad] == [0, 1, 2, 3, 4]
    assert "op 't'" in decoded.bad[0].reason
    assert "declare the JSON or Avro codec" in decoded.bad[1].reason
    assert len(decoded.events) == 1


@given(
    customers=st.lists(
        st.builds(
            Customer, id=INT64, at=INT64, email=st.none() | st.text(), op=st.sampled_from(["c", "u", "r"]), lsn=INT64
        )
    )
)
def test_rows_are_read_as_they_were_written(customers: list[Customer]) -> None:
    """Processors can therefore be tested with records."""
    subject = codec_of(Debezium(), Customer)

    assert subject.decode(list(map(MessageCopy, subject.encode(customers)))).events == customers


def test_changes_are_read_as_records_if_declared() -> None:
    """Deletions are changes, and null values after them are skipped, not rejected."""
    subject = codec_of(Debezium(envelope=True), Change, lambda one: str(one.row.id), "ts_ms")
    messages = [
        message(change("c", None, ANN), {"id": 1004}),
        message(change("d", ANN, None), {"id": 1004}),
        message(None, {"id": 1004}),
        message(change("c", None, BOB), {"id": 1004}),
    ]

    decoded = subject.decode(messages)

    assert decoded.bad == []
    assert list(decoded.at) == [0, 1, 3]
    assert decoded.events[1] == Change("d", TIME_MS, Row(1004, "ann@shop"))


class Order(ps.Record, frozen=True):
    """An order of a customer."""

    customer: int
    at: ps.EventTime


class Addressed(ps.Record, frozen=True):
    """An order with the customer's address."""

    customer: int
    at: ps.EventTime
    email: str | None


class Known(ps.Record, frozen=True):
    """A row at the time of its message."""

    id: int
    at: Annotated[int, ps.metadata.Timestamp]
    email: str | None = None


KEYS = DebeziumKeys("id")
customers = ps.Category("customers", Known, key="id", event_time="at", buckets=4, partitioner=KEYS, codec=Debezium())
orders = ps.Category("orders", Order, key="customer", event_time="at", buckets=4, partitioner=KEYS)
addressed = ps.Category("addressed", Addressed, key="customer", event_time="at", buckets=1)


class WithAddress(ps.TableJoin):
    """Joins the customer's row."""

    stream, table, writes = orders, customers, addressed

    def join(self, event: Order, row: Known | None, context: ps.Context) -> Iterable[Addressed]:
        yield Addressed(event.customer, event.at, row.email if row else None)


changes = ps.Category(
    "changes", Change, key=lambda one: str(one.row.id), event_time="ts_ms", buckets=1, codec=Debezium(envelope=True)
)


class CountChanges(ps.Stateful):
    """Counts the changes of each row, deletions included."""

    reads, writes = changes, addressed
    state = int

    def process(self, event: Change, state: int | None, context: ps.Context) -> tuple[int, Iterator[Addressed]]:
        changes = (state or 0) + 1
        return changes, iter([Addressed(changes, event.ts_ms, event.op)])


def send(driver: Driver, category: ps.Category[Any], *messages: MessageCopy) -> None:
    """Write messages as a connector does, and process them."""
    writer = driver.bus.writer()
    writer.send(category.name, [Outgoing(one.key(), one.value()) for one in messages])
    driver.run()


@pytest.mark.parametrize("deletion", [change("d", ANN, None), change("d", None, None), None])
def test_a_deleted_row_is_deleted_from_the_table(deletion: Any) -> None:
    """The deletion deletes it, and so does the null value after it."""
    driver = Driver(WithAddress)
    send(driver, customers, message(change("c", None, ANN), {"id": 1004}))
    driver.send(orders, [Order(1004, 1)])
    send(driver, customers, message(deletion, {"id": 1004}))
    driver.send(orders, [Order(1004, 2)])

    assert driver.read(addressed) == [Addressed(1004, 1, "ann@shop"), Addressed(1004, 2, None)]


def test_the_partitioner_of_debezium_hashes_its_keys() -> None:
    """The buckets are those of the messages that the connector writes."""
    assert DebeziumKeys("id")(b"1004", 64) == bucket_of(b'{"id":1004}', 64)
    assert DebeziumKeys("name", is_text=True)('a"ö'.encode(), 64) == bucket_of('{"name":"a\\"ö"}'.encode(), 64)


def test_a_stateful_processor_reads_changes() -> None:
    """Null values after deletions do not count, and do not stop it."""
    driver = Driver(CountChanges)
    key = {"id": 1004}
    send(
        driver,
        changes,
        message(change("c", None, ANN), key),
        message(change("d", ANN, None), key),
        message(None, key),
        message(change("c", None, BOB), key),
    )

    assert driver.read(addressed) == [
        Addressed(1, TIME_MS, "c"),
        Addressed(2, TIME_MS, "d"),
        Addressed(3, TIME_MS, "c"),
    ]


def test_changes_in_avro_are_read() -> None:
    """Keys and values come with a schema registry, as Kafka Connect's AvroConverter writes them."""
    pytest.importorskip("confluent_kafka.schema_registry.avro", reason="needs penstock[registry]", exc_type=ImportError)
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    from penstock.transport.codecs import AVRO, RegistryClient

    registry = SchemaRegistry(f"mock://envelopes-{next(_numbers)}")
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "email", "type": ["null", "string"], "default": None},
        ],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.customers",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    client = RegistryClient(registry, AVRO)._client

    def written(schema: Any, content: Any, field: MessageField) -> bytes:
        write = AvroSerializer(client, Schema(json.dumps(schema), "AVRO"))
        return bytes(write(content, SerializationContext("c", field)) or b"")

    keyed = written(key, {"id": 1004}, MessageField.KEY)
    created = written(envelope, {"before": None, "after": ANN, "op": "c", "ts_ms": 5}, MessageField.VALUE)
    deleted = written(envelope, {"before": ANN, "after": None, "op": "d", "ts_ms": 6}, MessageField.VALUE)
    subject = codec_of(Debezium(values=ConfluentAvro(registry)), Customer)

    decoded = subject.decode([MessageCopy(value, keyed) for value in (created, deleted, None)])

    assert decoded.events == [Customer(1004, 5, "ann@shop", "c")]
    assert [one.deleted_key for one in decoded.bad] == ["1004", "1004"]
    with pytest.raises(DeclarationError, match="only be read"):
        subject.encode(decoded.events)


class Reading(ps.Record, frozen=True):
    """The data of an event, and two attributes."""

    meter: str
    value: float
    id: str
    at: ps.EventTime
    subject: str | None = None


ATTRIBUTES = {"id": "id", "at": "time", "subject": "subject"}
EVENTS = CloudEvents(ATTRIBUTES, source="/meters", type="com.meters.reading")
READING = Reading("m1", 2.5, "A234-1234-1234", 1_522_952_711_250, "s")


def events_codec(spec: CloudEvents = EVENTS) -> Codec:
    return codec_of(spec, Reading, "meter", "at")


BINARY: Mapping[str, bytes] = {
    "ce_specversion": b"1.0",
    "ce_type": b"com.meters.reading",
    "ce_source": b"/meters",
    "ce_id": b"A234-1234-1234",
    "ce_time": b"2018-04-05T18:25:11.250Z",
    "ce_subject": b"s",
    "content-type": b"application/json; charset=utf-8",
}
STRUCTURED = {
    "specversion": "1.0",
    "type": "com.meters.reading",
    "source": "/meters",
    "id": "A234-1234-1234",
    "time": "2018-04-05T20:25:11.25+02:00",
    "subject": "s",
    "datacontenttype": "application/json",
}


@pytest.mark.parametrize(
    "event",
    [
        MessageCopy(b'{"meter":"m1","value":2.5}', headers=list(BINARY.items())),
        MessageCopy(json.dumps({**STRUCTURED, "data": {"meter": "m1", "value": 2.5}}).encode()),
        MessageCopy(json.dumps({**STRUCTURED, "data_base64": "eyJtZXRlciI6Im0xIiwidmFsdWUiOjIuNX0="}).encode()),
    ],
    ids=["binary", "structured", "base64"],
)
def test_cloud_events_are_read_in_both_modes(event: MessageCopy) -> None:
    """Attributes become fields; times with any offset become milliseconds."""
    assert events_codec().decode([event]).events == [READING]


def test_cloud_events_are_written_as_their_binding_to_kafka_requires() -> None:
    """Binary events have their attributes in headers. Structured events are a JSON object with its content type."""
    binary, structured = events_codec(), events_codec(CloudEvents(ATTRIBUTES, "/meters", "t", ContentMode.STRUCTURED))

    assert json.loads(binary.encode([READING])[0]) == {"meter": "m1", "value": 2.5}
    [headers] = getattr(binary, "headers")([READING])  # noqa: B009 - an optional method
    assert dict(headers) == {**BINARY, "content-type": b"application/json"}
    [event] = map(json.loads, structured.encode([READING]))
    assert event == {
        **STRUCTURED,
        "type": "t",
        "time": "2018-04-05T18:25:11.250Z",
        "data": {"meter": "m1", "value": 2.5},
    }
    [headers] = getattr(structured, "headers")([READING])  # noqa: B009 - as above
    assert dict(headers) == {"content-type": b"application/cloudevents+json; charset=UTF-8"}


def test_header_fields_stand_beside_cloud_events() -> None:
    """Metadata fields and attributes are written together."""

    class Traced(ps.Record, frozen=True):
        id: str
        at: ps.EventTime
        trace: Annotated[str | None, ps.metadata.Header("traceparent")] = None

    driver_bus = MemoryBus()
    category = ps.Category(
        "c", Traced, key="id", event_time="at", codec=CloudEvents({"id": "id", "at": "time"}, "/s", "t")
    )
    codec = Codecs(driver_bus).of(category)
    records = [Traced("a", 1, "00-1"), Traced("b", 2)]
    values, headers = codec.encode(records), getattr(codec, "headers")(records)  # noqa: B009 - as above

    assert ("traceparent", b"00-1") in headers[0]
    assert ("ce_id", b"b") in headers[1]
    assert codec.decode([MessageCopy(v, headers=h) for v, h in zip(values, headers, strict=True)]).events == records


def test_an_event_without_a_required_attribute_is_refused() -> None:
    """A random id would make each repetition another event."""
    with pytest.raises(InvalidRecord, match="it has no id, source"):
        events_codec(CloudEvents({"at": "time"}, type="t")).encode([READING])
    with pytest.raises(DeclarationError, match="name the field 'missing'"):
        events_codec(CloudEvents({"missing": "id"})).encode([READING])


def test_bad_cloud_events_do_not_affect_good_ones() -> None:
    """A missing time counts as a missing event time."""
    untimed = {name: content for name, content in BINARY.items() if name != "ce_time"}
    data = b'{"meter":"m1","value":2.5}'
    messages = [
        MessageCopy(data),
        MessageCopy(data, headers=list(untimed.items())),
        MessageCopy(data, headers=[*BINARY.items(), ("ce_time", b"yesterday")]),
        MessageCopy(None),
        MessageCopy(data, headers=list(BINARY.items())),
    ]

    decoded = events_codec().decode(messages)

    assert decoded.events == [READING]
    assert [(bad.at, bad.untimed) for bad in decoded.bad] == [(0, False), (1, True), (2, False), (3, False)]


class Priced(ps.Record, frozen=True):
    """A row whose event time is a column in seconds."""

    id: int
    changed: float


class Stamped(ps.Record, frozen=True):
    """A row whose event time is the timestamp of the message."""

    id: int
    at: Annotated[int, ps.metadata.Timestamp]


def test_a_written_change_has_its_event_time_as_the_time_of_the_change() -> None:
    """It is in milliseconds for any unit or function of the category. A row without a time has no such field, and never a null."""
    by_field = ps.Category(
        "c", Priced, key="id", event_time=ps.TimeField("changed", unit=ps.TimeUnit.SECONDS), codec=Debezium()
    )
    by_function = ps.Category(
        "c", Priced, key="id", event_time=lambda one: round(one.changed * 1_000), codec=Debezium()
    )
    by_message = ps.Category("c", Stamped, key="id", event_time="at", codec=Debezium())
    written = [
        msgspec.json.decode(Codecs(MemoryBus()).of(category).encode([record])[0])
        for category, record in (
            (by_field, Priced(1, 7.25)),
            (by_function, Priced(1, 7.25)),
            (by_message, Stamped(1, 5)),
        )
    ]

    assert [one.get("ts_ms", "absent") for one in written] == [7_250, 7_250, "absent"]
    assert [one["op"] for one in written] == ["u"] * 3
