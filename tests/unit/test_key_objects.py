"""Message keys that are objects with names of their own, with their schema, or with fields that values lack."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import pytest
from confluent_kafka.schema_registry import Schema
from hypothesis import given
from hypothesis import strategies as st
from support.inference import SPEC, change, events_of, inferred, message

import penstock as ps
from penstock import codecs
from penstock.errors import DeclarationError
from penstock.ops.start.inference.registries import NamedRegistry
from penstock.processors.declare import bucket_of
from penstock.testing import Driver
from penstock.transport import MessageCopy, Outgoing
from penstock.transport.codecs.registry import _client_of

INT64 = st.integers(-(2**63), 2**63 - 1)
SCHEMA = (
    '{"type":"struct","fields":[{"type":"string","optional":false,"field":"tenant_id"},{"type":"int32","optional":false,"field":"no"}],'
    '"optional":false,"name":"shop.Key"}'
)
ID_SCHEMA = '{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"optional":false,"name":"shop.customers.Key"}'


class Line(ps.Record, frozen=True):
    """A line of an order."""

    tenant: str
    number: int
    at: ps.EventTime
    cents: int = 0


class Row(Line, frozen=True):
    """A row of the lines."""


class OwnLine(ps.Record, frozen=True):
    """A line of an order whose value lacks the tenant."""

    tenant: Annotated[str, ps.metadata.Key]
    number: int
    at: ps.EventTime


class Count(ps.Record, frozen=True):
    """The number of lines of a key."""

    key: str
    at: ps.EventTime
    lines: int


counts = ps.Category("counts", Count, key="key", event_time="at", buckets=1)


def lines_of(key_codec: Any, record: Any = Line, key: Any = ("tenant", "number"), **options: Any) -> ps.Category[Any]:
    return ps.Category("lines", record, key=key, event_time="at", buckets=4, key_codec=key_codec, **options)


def compact(content: Any) -> bytes:
    """Return JSON as Jackson and `JSON.stringify` write it."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def connect_key(schema: str, payload: Any) -> bytes:
    """Return a key as Kafka Connect's JsonConverter writes it."""
    return compact({"schema": json.loads(schema), "payload": payload})


@given(st.text(st.characters(codec="utf-8"), max_size=10), INT64)
def test_keys_have_the_bytes_of_their_producers_and_are_read_back(tenant: str, number: int) -> None:
    """Keys have one field or several, with and without a schema, and the field names of the message key."""
    key, content = ps.composite_key(tenant, number), {"tenant_id": tenant, "no": number}
    cases: list[tuple[ps.Category[Any], str, bytes]] = [
        (lines_of(codecs.KeyFields(("tenant_id", "no"))), key, compact(content)),
        (lines_of(codecs.ConnectKeys(SCHEMA)), key, connect_key(SCHEMA, content)),
        (lines_of(codecs.KeyFields(("no",)), key="number"), str(number), compact({"no": number})),
        (lines_of(codecs.KeyFields(("t",)), key="tenant"), tenant, compact({"t": tenant})),
        (
            lines_of(codecs.KeyFields(("no",), spaces=True), key="number"),
            str(number),
            json.dumps({"no": number}).encode(),
        ),
        (lines_of(codecs.KeyFields(("tenant_id", "no"), spaces=True)), key, json.dumps(content).encode()),
        (lines_of(codecs.ConnectKeys(ID_SCHEMA), key="number"), str(number), connect_key(ID_SCHEMA, {"id": number})),
        (
            lines_of(codecs.ConnectKeys('{"type":"string","optional":false}'), key="tenant"),
            tenant,
            connect_key('{"type":"string","optional":false}', tenant),
        ),
    ]
    for category, text, message_key in cases:
        assert category.encode_keys([text]) == [message_key]
        assert category.decode_key(message_key) == text


@pytest.mark.parametrize(
    "message_key",
    [b"a", b"{", b"\xff", b"[]", b'{"tenant":"a","number":3}', b'{"tenant_id":"a"}', b'{"tenant_id":"a","no":"3"}'],
)
def test_other_bytes_are_no_keys(message_key: bytes) -> None:
    """They are refused with and without a schema."""
    for codec in (codecs.KeyFields(("tenant_id", "no")), codecs.ConnectKeys(SCHEMA)):
        with pytest.raises(DeclarationError, match="lines: the message key"):
            lines_of(codec).decode_key(message_key)


@pytest.mark.parametrize(
    ("key_codec", "key", "reason"),
    [
        (lambda: codecs.KeyFields("id"), "number", "no tuple of str"),  # type: ignore[arg-type]
        (
            lambda: codecs.KeyFields(("id",), codecs.ConfluentAvro(codecs.SchemaRegistry("mock://x")), spaces=True),
            "number",
            "only one of",
        ),
        (lambda: codecs.KeyFields(()), "number", "no tuple of str"),
        (lambda: codecs.KeyFields(("id",), ps.KeyCodec.INT64), "number", "has no names of fields"),
        (lambda: codecs.KeyFields(("id",)), ("tenant", "number"), "names 1 field "),
        (lambda: codecs.KeyFields(("a", "b")), "number", "names 2 fields"),
        (
            lambda: codecs.KeyFields(("a",), codecs.ConfluentAvro(codecs.SchemaRegistry("mock://names"))),
            "number",
            "under any name",
        ),
        (lambda: codecs.ConnectKeys("{"), "number", "no schema of Kafka Connect"),
        (lambda: codecs.ConnectKeys("[]"), "number", "no schema of Kafka Connect"),
        (lambda: codecs.ConnectKeys('{"type":"struct"}'), "number", "no schema of Kafka Connect"),
        (lambda: codecs.ConnectKeys('{"type":"double"}'), "number", "of type 'double'"),
        (lambda: codecs.ConnectKeys(SCHEMA), "number", r"has the fields tenant_id \(a str\), no \(an int\)"),
        (lambda: codecs.ConnectKeys(SCHEMA), ("number", "tenant"), "of these types"),
        (
            lambda: codecs.ConnectKeys(ID_SCHEMA),
            lambda line: str(line.number),
            r"`Annotated\[int, penstock\.metadata\.Key\]`",
        ),
    ],
)
def test_wrong_declarations_are_refused(key_codec: Any, key: Any, reason: str) -> None:
    """The error has the number and the types of the fields."""
    with pytest.raises(DeclarationError, match=reason):
        lines_of(key_codec(), key=key).encode_keys(["1"])


def counting(category: ps.Category[Any]) -> type[ps.Stateful]:
    class Counting(ps.Stateful):
        reads, writes, state = category, counts, int

        def process(self, event: Any, state: int | None, context: ps.Context) -> tuple[int, list[Count]]:
            return (state or 0) + 1, [Count(context.key, event.at, (state or 0) + 1)]

    return Counting


@pytest.mark.parametrize(
    ("key_codec", "message_key"),
    [
        (ps.KeyCodec.JSON, b'{"tenant":"a","number":3}'),
        (ps.KeyCodec.TEXT, b'["a",3]'),
        (codecs.KeyFields(("tenant_id", "no")), b'{"tenant_id":"a","no":3}'),
        (codecs.ConnectKeys(SCHEMA), connect_key(SCHEMA, {"tenant_id": "a", "no": 3})),
    ],
)
def test_a_field_that_only_the_message_key_contains_is_a_part_of_the_key(key_codec: Any, message_key: bytes) -> None:
    """It is read from other producers, counts as a key, and is written into the message key only."""
    category = lines_of(key_codec, OwnLine)
    driver = Driver(counting(category))
    driver.bus.writer().send("lines", [Outgoing(message_key, b'{"number":3,"at":1}', bucket_of(message_key, 4))])
    driver.send(category, [OwnLine("a", 3, 2), OwnLine("b", 3, 3)])

    assert {(one.key, one.lines) for one in driver.read(counts)} == {('["a",3]', 1), ('["a",3]', 2), ('["b",3]', 1)}
    assert sorted(driver.read(category), key=lambda one: one.at) == [
        OwnLine("a", 3, 1),
        OwnLine("a", 3, 2),
        OwnLine("b", 3, 3),
    ]


def test_keys_with_equal_names_are_joined_whatever_the_fields_are_called() -> None:
    """A stream has the same message keys as the table, and other fields."""

    class NamedRow(ps.Record, frozen=True):
        tenant_id: str
        no: int
        at: ps.EventTime
        name: str

    named = codecs.KeyFields(("tenant_id", "no"))
    rows: ps.Category[NamedRow] = ps.Category(
        "rows", NamedRow, key=("tenant_id", "no"), event_time="at", buckets=4, key_codec=named
    )
    names = ps.Category("names", NamedRow, key="name", event_time="at", buckets=1)

    class Named(ps.TableJoin):
        table, stream, writes = rows, lines_of(named), names

        def join(self, event: Line, row: NamedRow | None, context: ps.Context) -> Iterable[NamedRow]:
            yield NamedRow(event.tenant, event.number, event.at, row.name if row else "")

    driver = Driver(Named)
    driver.send(rows, [NamedRow("a", 3, 1, "first")])
    driver.send(Named.stream, [Line("a", 3, 2), Line("a", 4, 3)])

    assert {(one.no, one.name) for one in driver.read(names)} == {(3, "first"), (4, "")}


@pytest.mark.parametrize("before", [{"tenant": "a", "number": 3}, None])
@pytest.mark.parametrize("has_envelope", [True, False])
def test_a_deletion_of_debezium_deletes_the_row_of_its_message_key(before: Any, *, has_envelope: bool) -> None:
    """The columns may have other names in the key, and the deletion may be only the null value after it."""
    rows = lines_of(codecs.ConnectKeys(SCHEMA), Row, codec=codecs.Debezium())
    lines = ps.Category(
        "stream", Line, key=("tenant", "number"), event_time="at", buckets=4, key_codec=codecs.ConnectKeys(SCHEMA)
    )

    class Cents(ps.TableJoin):
        table, stream = rows, lines
        writes = ps.Category("cents", Line, key=("tenant", "number"), event_time="at", buckets=4)

        def join(self, event: Line, row: Row | None, context: ps.Context) -> Iterable[Line]:
            yield Line(event.tenant, event.number, event.at, row.cents if row else -1)

    driver = Driver(Cents)
    key = connect_key(SCHEMA, {"tenant_id": "a", "no": 3})
    row = {"tenant": "a", "number": 3, "at": 1, "cents": 7}
    bucket = bucket_of(key, 4)
    driver.bus.writer().send("lines", [Outgoing(key, compact(change(1, "c", None, row)), bucket)])
    driver.send(lines, [Line("a", 3, 2)])
    deletion = compact(change(1, "d", before, None)) if has_envelope else None
    driver.bus.writer().send("lines", [Outgoing(key, deletion, bucket)])
    driver.send(lines, [Line("a", 3, 3)])

    assert [one.cents for one in driver.read(Cents.writes)] == [7, -1]


def keyed(contents: Sequence[Any], keys: Sequence[bytes]) -> list[MessageCopy]:
    return [message(content, key, bucket_of(key, 4)) for content, key in zip(contents, keys, strict=True)]


@pytest.mark.parametrize("schema", [SCHEMA, None])
@pytest.mark.parametrize(
    "content",
    [
        lambda n: {"tenant_id": f"t{n % 3}", "no": n, "at": 1_780_000_000_000 + n},
        lambda n: {"shop": f"t{n % 3}", "number": n, "at": 1_780_000_000_000 + n},
        lambda n: {"no": n, "at": 1_780_000_000_000 + n},
        lambda n: {"tenant_id": f"other {n}", "no": n, "at": 1_780_000_000_000 + n},
        lambda n: {"at": 1_780_000_000_000 + n},
    ],
)
def test_infer_finds_the_fields_of_a_key(content: Any, schema: str | None) -> None:
    """The fields may have other names or be in the message key only, with and without a schema. The declaration writes the same bytes."""
    numbers = range(1, 9)
    payloads = [{"tenant_id": f"t{n % 3}", "no": n} for n in numbers]
    keys = [connect_key(schema, one) if schema else compact(one) for one in payloads]
    messages = keyed([content(n) for n in numbers], keys)
    category = inferred(messages)
    found = category.keys_of(events_of(category, messages))

    assert found == [ps.composite_key(f"t{n % 3}", n) for n in numbers]
    assert category.encode_keys(found) == keys
    assert category.buckets_of(found) == [one.partition() for one in messages]


@pytest.mark.parametrize("schema", [ID_SCHEMA, None])
@pytest.mark.parametrize("name", ["id", "number", "other"])
def test_infer_finds_the_only_field_of_a_key(name: str, schema: str | None) -> None:
    """A JSON object with one field is not read as a text."""
    numbers = range(1, 9)
    keys = [connect_key(schema, {"id": n}) if schema else compact({"id": n}) for n in numbers]
    messages = keyed([{"at": 1_780_000_000_000 + n, name: n if name != "other" else "x"} for n in numbers], keys)
    category = inferred(messages)
    found = category.keys_of(events_of(category, messages))

    assert found == [str(n) for n in numbers]
    assert category.encode_keys(found) == keys


@pytest.mark.parametrize("fields", [("id",), ("tenant", "id")])
def test_infer_finds_keys_as_python_writes_them(fields: tuple[str, ...]) -> None:
    """Python writes spaces, and escapes for characters beyond ASCII."""
    contents = [{"tenant": f"tänt {n % 3}", "id": n, "at": 1_780_000_000_000 + n} for n in range(1, 9)]
    keys = [json.dumps({name: content[name] for name in fields}).encode() for content in contents]
    messages = keyed(contents, keys)
    category = inferred(messages)
    found = category.keys_of(events_of(category, messages))

    assert category.key == (fields if len(fields) > 1 else "id")
    assert category.encode_keys(found) == keys
    assert category.buckets_of(found) == [one.partition() for one in messages]


def test_infer_declares_debeziums_keys_with_schemas() -> None:
    """The declaration has the schema that the keys contain."""
    keys = [connect_key(ID_SCHEMA, {"id": n}) for n in range(1, 9)]
    messages = keyed([change(n, "c", None, {"id": n, "name": "Ann"}) for n in range(1, 9)], keys)
    category = inferred(messages)
    found = category.keys_of(events_of(category, messages))

    assert category.key_codec == codecs.ConnectKeys(ID_SCHEMA)
    assert category.encode_keys(found) == keys
    assert isinstance(category.codec, codecs.Debezium)


def test_keys_of_a_registry_may_have_other_names() -> None:
    """The schema of their subject determines the bytes, and KeyFields the fields of the record."""
    registry = codecs.SchemaRegistry("mock://other-names")
    schema = {
        "type": "record",
        "name": "Key",
        "fields": [{"name": "no", "type": "long"}, {"name": "tenant_id", "type": "string"}],
    }
    _client_of(registry).register_schema("lines-key", Schema(json.dumps(schema), "AVRO"))
    avro = codecs.ConfluentAvro(registry)
    category = lines_of(codecs.KeyFields(("tenant_id", "no"), avro), OwnLine)
    [message_key] = category.encode_keys(['["a",3]'])

    assert message_key[5:] == b"\x06\x02a"
    assert category.decode_key(message_key) == '["a",3]'
    with pytest.raises(Exception, match="does not consist of the fields tenant, number"):
        lines_of(avro, Line).encode_keys(['["a",3]'])


def test_infer_finds_the_names_of_a_registrys_keys() -> None:
    """The value has the fields under other names."""
    registry = codecs.SchemaRegistry("mock://infer-other-names")
    client = _client_of(registry)
    key_schema = {
        "type": "record",
        "name": "Key",
        "fields": [{"name": "tenant_id", "type": "string"}, {"name": "no", "type": "long"}],
    }
    value_schema = {
        "type": "record",
        "name": "Line",
        "fields": [
            {"name": "shop", "type": "string"},
            {"name": "number", "type": "long"},
            {"name": "at", "type": "long"},
        ],
    }
    client.register_schema(f"{SPEC.name}-key", Schema(json.dumps(key_schema), "AVRO"))
    client.register_schema(f"{SPEC.name}-value", Schema(json.dumps(value_schema), "AVRO"))

    class Written(ps.Record, frozen=True):
        shop: str
        number: int
        at: ps.EventTime

    avro = codecs.ConfluentAvro(registry, latest=True)
    writer = ps.Category(
        SPEC.name,
        Written,
        key=("shop", "number"),
        event_time="at",
        buckets=4,
        codec=avro,
        key_codec=codecs.KeyFields(("tenant_id", "no"), avro),
    )
    records = [Written(f"t{n % 3}", n, 1_780_000_000_000 + n) for n in range(8)]
    keys = writer.encode_keys(writer.keys_of(records))
    values = Driver(counting(writer))._codecs.of(writer).encode(records)
    messages = [message(value, key, bucket_of(key, 4)) for value, key in zip(values, keys, strict=True)]
    category = inferred(messages, registry=NamedRegistry(registry))

    assert isinstance(category.key_codec, codecs.KeyFields)
    assert category.encode_keys(category.keys_of(events_of(category, messages))) == keys
