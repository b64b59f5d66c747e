"""Declarations inferred from topics: the inferred code decodes every message of the sample."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from fastavro import parse_schema, schemaless_writer
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from support.inference import ARRIVED_MS, SPEC, change, events_of, inferred, message
from support.protos import compiled
from support.registry_server import PASSWORD, USER, registry_server

from penstock.codecs import CloudEvents
from penstock.ops.start import declaration_of, read_sample
from penstock.ops.start.inference.formats import TopicNotInferable
from penstock.ops.start.inference.registries import NamedRegistry
from penstock.ops.start.inference.topic_sample import TopicSample
from penstock.processors.declare import Partitioner, bucket_of, fields_of, split_messages
from penstock.transport import CategorySpec, MessageCopy, Outgoing
from penstock.transport.codecs import PROTOBUF, Codecs, RegistryClient, SchemaRegistry
from penstock.transport.codecs.protobuf_schemas import encode_indexes, schema_of_file
from penstock.transport.codecs.registry import _client_of, prefix_of
from penstock.transport.memory import MemoryBus

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=5) | st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat) | st.uuids().map(str)
NAMES = st.sampled_from(["id", "class", "from", "user-name", "at", "a.b", "x", "größe", "2nd", "_id"])
VALUES = st.recursive(
    SCALARS | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)


@settings(deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking runs for minutes
@given(st.lists(st.dictionaries(NAMES, VALUES, min_size=1, max_size=5), min_size=1, max_size=5))
@example([{"_id": 1, "id": "2415-10-09T23:08:03+00:00"}])
def test_the_inferred_record_decodes_every_message(contents: list[dict[str, Any]]) -> None:
    """The messages are any JSON objects, with missing, null, nested, renamed and mixed fields."""
    messages = [message({**content, "user": "ann"}, b"ann", 0) for content in contents]

    category = inferred(messages)

    assert len(events_of(category, messages)) == len(messages)


def test_fields_have_the_types_of_their_values() -> None:
    """Optional fields have a default; a field of several types is Any."""
    first = {
        "id": 7,
        "at": "2026-05-28T20:26:40Z",
        "price": 2,
        "uid": str(UUID(int=5)),
        "tags": ["a"],
        "to": {"zip": "1"},
    }
    messages = [message({**first, "mixed": 1}), message({**first, "price": 2.5, "note": "x", "mixed": "one"})]

    category = inferred(messages)
    [one, other] = events_of(category, messages)

    assert (one.id, one.price, one.tags, one.to.zip, one.note, other.note) == (7, 2.0, ["a"], "1", None, "x")
    assert one.uid == UUID(int=5)
    assert one.at == datetime(2026, 5, 28, 20, 26, 40, tzinfo=UTC)
    assert (one.mixed, other.mixed) == (1, "one")


@pytest.mark.parametrize(
    "time",
    [
        "2024-02-29T13:00:00+01",
        "2024-02-29 12:00:00+00",
        "2024-02-29T12:00:00,000Z",
        "2024-02-29T12:00Z",
        "2024-02-29T12:00:00+0000",
    ],
)
def test_a_declared_time_decodes(time: str) -> None:
    """A form of ISO 8601 that no datetime field reads is a text, so that no message is lost."""
    messages = [message({"id": f"k{number}", "at": time, "n": number}) for number in range(12)]
    category = inferred(messages)

    assert len(events_of(category, messages)) == len(messages)


@pytest.mark.parametrize("text", ['{"id": "k", "x": NaN, "y": 1}', "{'id': 'k', 'x': None, 'y': 1}", "[1, NaN, 'x']"])
def test_a_text_in_brackets_is_no_csv(text: str) -> None:
    """JSON with NaN and the repr of Python have commas, too."""
    messages = [MessageCopy(text.encode(), b"k", timestamp=(1, ARRIVED_MS)) for _ in range(12)]

    assert "Csv" not in declaration_of(TopicSample(SPEC, messages))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b'{"id": "k", "x": NaN}', "no NaN"),
        (b"{'id': 'k', 'x': None}", "repr of a Python object"),
        (b'"{\\"id\\": 1}"', "encodes it twice"),
        (b"\x1f\x8b\x08\x00\xff", "gzip"),
        ("\ufeff{}".encode("utf-16-le"), "UTF-16"),
        (b'{"id": "k"}\0', "NUL byte"),
        ('{"name": "Müller"}'.encode("latin-1"), "Latin-1"),
        (base64.b64encode(b'{"id": "k"}'), "JSON in base64"),
        (b"\x03\x00" + bytes(range(128, 144)) + b"\xff", "AWS Glue"),
    ],
)
def test_a_damaged_format_is_named(value: bytes, name: str) -> None:
    """The declaration of a text or the error says what surrounds or damages the format."""
    messages = [MessageCopy(value, b"k", timestamp=(1, ARRIVED_MS)) for _ in range(12)]
    try:
        text = declaration_of(TopicSample(SPEC, messages))
    except TopicNotInferable as error:
        text = str(error)

    assert name in text


@pytest.mark.parametrize("damaged", [1, 12])
def test_json_with_half_a_character_is_json(damaged: int) -> None:
    """Producers cut a text within an emoji. The declaration names the fields, and the number and the reason of what does not decode."""
    whole = [message({"id": f"k{n}", "note": "\U0001f600 \\ud83d", "n": n}, b"k") for n in range(12)]
    cut = [message({"id": f"k{n}", "note": "ab\ud83d", "n": n}, b"k") for n in range(damaged)]
    code = declaration_of(TopicSample(SPEC, [*whole[damaged:], *cut]))

    assert "Text()" not in code
    assert "    note: str\n" in code
    assert f" {damaged} of them contain" in code
    assert "half a character (a lone surrogate" in code
    assert f"It decodes {12 - damaged} of 12 messages" in code
    assert "another format" not in code


def test_lines_with_a_decimal_comma_have_the_other_separator() -> None:
    """The separator with the most values in each line wins. Among equals, a separator other than the comma wins."""
    for form in ("k{n};{at};1,{n}", "k{n};1,{n}"):
        values = [form.format(n=n, at=ARRIVED_MS).encode() for n in range(12)]

        assert 'Csv(separator=";")' in declaration_of(TopicSample(SPEC, [message(value, b"k") for value in values]))


def test_the_first_message_that_does_not_decode_is_named() -> None:
    """The printed declaration decodes the sample, so it promises only what was tried."""
    values = [json.dumps({"id": f"k{n}", "at": ARRIVED_MS + n}).encode() for n in range(19)]
    values.insert(7, b'{"id": "k", "x": NaN}')
    messages = [MessageCopy(value, b"k", 3, 40 + n, (1, ARRIVED_MS)) for n, value in enumerate(values)]
    code = declaration_of(TopicSample(SPEC, messages))

    assert " It decodes 19 of 20 messages; first failure: offset 47 of bucket 3: JSON is malformed" in code
    assert "It decodes" not in declaration_of(TopicSample(SPEC, messages[:7]))


def test_objects_with_ids_as_names_are_maps() -> None:
    """A record of the ids of the sample would drop later ones. Names without digits, or of values of several types, are fields."""
    messages = [
        message(
            {
                "id": f"k{n}",
                "counts": {f"u{n}": 1},
                "parts": {"abcdefgh"[n % 8]: 1},
                "facts": {f"f{n}": [1, "x"][n % 2]},
            },
            b"k",
        )
        for n in range(12)
    ]
    code = declaration_of(TopicSample(SPEC, messages))

    assert "    counts: dict[str, int]\n" in code
    assert "    parts: " in code
    assert "class UserOrdersParts(" in code or "Parts(ps.Record" in code
    assert "Facts(ps.Record" in code


def test_names_and_texts_of_messages_are_never_code() -> None:
    """Lines in them stay within a comment or a text: the module can be run."""
    line = '"\nraise SystemExit("run")\n#'
    messages = [
        message({"id": f"k{n}", line: None, f"at{line}": ARRIVED_MS + n, f"too{line}": ARRIVED_MS}, b"k")
        for n in range(9)
    ]
    events = [
        message({"specversion": "1.0", "id": f"e{n}", "source": line, "type": line, "data": {"a": n}}, b"k")
        for n in range(9)
    ]

    assert len(events_of(inferred(messages), messages)) == 9
    assert len(events_of(inferred(events), events)) == 9


@pytest.mark.parametrize(
    ("value", "event_ms"),
    [
        (ARRIVED_MS - 5_000, ARRIVED_MS - 5_000),
        (ARRIVED_MS // 1000 - 5, ARRIVED_MS - 5_000),
        (ARRIVED_MS / 1000 - 0.5, ARRIVED_MS - 500),
        ((ARRIVED_MS - 7) * 1000, ARRIVED_MS - 7),
        ((ARRIVED_MS - 7) * 1_000_000, ARRIVED_MS - 7),
        ("2026-05-28T22:26:40+02:00", ARRIVED_MS),
    ],
)
def test_the_event_time_and_its_unit_are_found(value: Any, event_ms: int) -> None:
    """The time of the message and the name of the field distinguish it from other numbers."""
    messages = [message({"amount": 1_700, "ts": value, "user": "ann"}, b"ann", 0)] * 3

    category = inferred(messages)

    assert category.event_times_of(events_of(category, messages)) == [event_ms] * 3


def test_a_nested_event_time_is_found() -> None:
    """Its path is declared."""
    messages = [message({"meta": {"created_at": ARRIVED_MS}, "user": "ann"}, b"ann", 0)]
    category = inferred(messages)

    assert category.event_times_of(events_of(category, messages)) == [ARRIVED_MS]


@pytest.mark.parametrize(
    ("text", "event_ms"),
    [
        (str(ARRIVED_MS // 1000 - 5), ARRIVED_MS - 5_000),
        (f"{ARRIVED_MS // 1000 - 5}.25", ARRIVED_MS - 4_750),
        (str(ARRIVED_MS - 7), ARRIVED_MS - 7),
        (str((ARRIVED_MS - 7) * 1000), ARRIVED_MS - 7),
        (str((ARRIVED_MS - 7) * 1_000_000), ARRIVED_MS - 7),
        (f"{datetime.fromtimestamp(ARRIVED_MS // 1000, UTC):%Y-%m-%d %H:%M:%S}", ARRIVED_MS),
    ],
)
def test_an_event_time_in_a_text_is_converted(text: str, event_ms: int) -> None:
    """It is a number, or a date and time without an offset, which is taken for UTC. A text without the name of a time does not count."""
    messages = [message({"user": "ann", "created_at": text}, b"ann")]
    category = inferred(messages)

    assert category.event_times_of(events_of(category, messages)) == [event_ms]
    assert ("UTC is a guess" in declaration_of(TopicSample(SPEC, messages))) == ("-" in text)
    assert inferred([message({"user": "ann", "phone": "1780000000"}, b"ann")]).event_time == "message_time"


def test_an_event_time_that_a_few_messages_lack_is_found() -> None:
    """Their number is named, and they follow `on_missing_event_time`. The first message may lack it."""
    messages = [message({"user": "ann", "meta": None, "ts": None})]
    messages += [
        message({"user": "ann", "meta": {"a": {"b": {"c": number}}}, "ts": ARRIVED_MS}) for number in range(19)
    ]
    category = inferred(messages)
    decoded = Codecs(MemoryBus()).of(category).decode(messages)

    assert "in 19 of 20 messages; `on_missing_event_time`" in declaration_of(TopicSample(SPEC, messages))
    assert category.event_times_of(decoded.events) == [ARRIVED_MS] * 19
    assert [(bad.at, bad.untimed) for bad in decoded.bad] == [(0, True)]


def test_a_deeply_nested_event_time_is_found() -> None:
    """It is five levels deep."""
    messages = [message({"user": "ann", "a": {"b": {"c": {"d": {"ts": ARRIVED_MS}}}}}, b"ann")]

    assert inferred(messages).event_time == "a.b.c.d.ts"


def test_without_a_time_the_time_of_the_message_is_used() -> None:
    """It becomes a field of the record."""
    messages = [message({"user": "ann"}, b"ann", 0)]
    category = inferred(messages)

    assert category.event_times_of(events_of(category, messages)) == [ARRIVED_MS]


KEYS: dict[str, tuple[Callable[[int], Any], Callable[[int], bytes]]] = {
    "text": (lambda n: f"user{n}", lambda n: f"user{n}".encode()),
    "digits": (lambda n: n, lambda n: str(n).encode()),
    "long": (lambda n: n, lambda n: n.to_bytes(8, "big", signed=True)),
    "int": (lambda n: n, lambda n: n.to_bytes(4, "big", signed=True)),
    "json": (lambda n: f"user{n}", lambda n: json.dumps(f"user{n}").encode()),
}


@pytest.mark.parametrize("partitioner", Partitioner)
@pytest.mark.parametrize("kind", KEYS)
def test_the_key_and_the_partitioner_are_found(kind: str, partitioner: Partitioner) -> None:
    """The declared category places every key where its message is."""
    field_of, bytes_of = KEYS[kind]
    messages = [
        message({"n": 1, "user": field_of(n), "at": ARRIVED_MS}, bytes_of(n), bucket_of(bytes_of(n), 4, partitioner))
        for n in range(1, 30)
    ]
    category = inferred(messages)
    keys = category.keys_of(events_of(category, messages))

    assert keys == [str(field_of(n)) for n in range(1, 30)]
    assert [category.bucket_of(key) for key in keys] == [found.partition() for found in messages]


def test_keys_without_a_partitioner_need_a_repartition() -> None:
    """The code says so, and does not claim a partitioner."""
    messages = [message({"user": f"u{n}", "at": ARRIVED_MS}, f"u{n}".encode(), n % 4) for n in range(30)]

    assert inferred(messages).partitioner is None
    assert "need a ps.Repartition" in declaration_of(TopicSample(SPEC, messages))


def test_a_key_outside_of_the_value_becomes_a_field() -> None:
    """The record takes it from the message."""
    messages = [message({"at": ARRIVED_MS}, f"u{n}".encode(), bucket_of(f"u{n}".encode(), 4)) for n in range(9)]
    category = inferred(messages)

    assert category.keys_of(events_of(category, messages)) == [f"u{n}" for n in range(9)]


@pytest.mark.parametrize("bytes_of", [lambda n: n.to_bytes(2, "big"), lambda n: b"\0\0\0\0\x09" + bytes([n])])
def test_small_binary_keys_are_no_texts(bytes_of: Callable[[int], bytes]) -> None:
    """Keys of a program with larger numbers would not decode as UTF-8."""
    messages = [message({"at": ARRIVED_MS}, bytes_of(n), bucket_of(bytes_of(n), 4)) for n in range(9)]
    category = inferred(messages)

    assert category.keys_of(events_of(category, messages)) == [bytes_of(n).hex() for n in range(9)]
    assert category.decode_key(b"\xff\xfe") == "fffe"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\x00\x00\x00\x00\x01abc", "schema registry .schema 1.*--registry"),
        (b"\xff\xfe\x00binary", "no format that can be recognised: the first begins with"),
    ],
)
def test_other_formats_are_refused_with_an_example(value: bytes, reason: str) -> None:
    """The error shows the beginning of a message, or the option that is missing."""
    with pytest.raises(TopicNotInferable, match=reason):
        declaration_of(TopicSample(SPEC, [message(value)]))


def test_an_empty_topic_is_refused() -> None:
    """There is nothing to infer from."""
    with pytest.raises(TopicNotInferable, match="contains no message"):
        declaration_of(TopicSample(SPEC, []))


@pytest.mark.parametrize("value", [b"", None])
def test_messages_without_values_have_their_content_in_headers(value: bytes | None) -> None:
    """A header that some messages lack is optional. Without headers, null values are deletions."""
    headers = [[("event-type", b"ping"), ("raw", b"\xff")], [("event-type", b"pong"), ("raw", b""), ("note", b"x")]]
    messages = [MessageCopy(value, b"ann", timestamp=(2, ARRIVED_MS), headers=each) for each in headers]
    category = inferred(messages, CategorySpec("t", 1))
    events = events_of(category, messages)

    assert [(one.event_type, one.raw, one.note) for one in events] == [("ping", b"\xff", None), ("pong", b"", "x")]
    assert category.keys_of(events) == ["ann", "ann"]
    with pytest.raises(TopicNotInferable, match="no message with a value or headers"):
        declaration_of(TopicSample(SPEC, [MessageCopy(None, b"ann")]))


def test_cloud_events_without_data_are_recognised() -> None:
    """All of their content is in their attributes."""
    headers = [("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_type", b"ping"), ("ce_time", b"2026-05-28T20:26:40Z")]
    messages = [MessageCopy(None, b"ann", timestamp=(2, 5), headers=headers)]
    category = inferred(messages, CategorySpec("t", 1))

    assert category.event_times_of(events_of(category, messages)) == [ARRIVED_MS]


def test_a_sample_has_the_latest_messages_of_each_bucket() -> None:
    """A bucket that contains fewer messages contributes fewer."""
    bus = MemoryBus()
    bus.catalog.create(CategorySpec("t", 2))
    writer = bus.writer()
    writer.send("t", [Outgoing(None, msgspec.json.encode({"n": n}), 0) for n in range(10)])
    writer.send("t", [Outgoing(None, msgspec.json.encode({"n": 99}), 1)])
    writer.flush()

    sample = read_sample(bus, "t", 6)

    assert sorted(msgspec.json.decode(one.value() or b"")["n"] for one in sample.messages) == [5, 6, 7, 8, 9, 99]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 100))
def test_a_sample_of_uneven_buckets_has_its_size(counts: list[int], size: int) -> None:
    """It may have one message more of each bucket, because full buckets contribute equally. A small topic is read whole."""
    bus = MemoryBus()
    bus.catalog.create(CategorySpec("t", len(counts)))
    writer = bus.writer()
    for bucket, count in enumerate(counts):
        writer.send("t", [Outgoing(None, b"1", bucket)] * count)
    writer.flush()

    found = Counter(one.partition() for one in read_sample(bus, "t", size).messages)

    assert min(size, sum(counts)) <= found.total() < size + len(counts)
    most = max(found.values(), default=0)
    assert all(found[bucket] == min(count, most) for bucket, count in enumerate(counts))


def test_the_code_is_formatted_for_people(tmp_path: Path) -> None:
    """It has one field per line, and comments with the findings."""
    messages = [message({"user": "ann", "at": ARRIVED_MS}, b"ann", bucket_of(b"ann", 4))]

    assert (
        declaration_of(TopicSample(SPEC, messages))
        == '''"""The topic user-orders, inferred from 1 message. Check types, key and event time."""

from datetime import timedelta

import penstock as ps


class UserOrders(ps.Record, frozen=True):
    user: str
    at: int


user_orders = ps.Category(
    "user-orders",
    UserOrders,
    key="user",  # the message key of 1 of 1 message
    event_time="at",
    buckets=4,
    retention=timedelta(days=7),
)
'''
    )


NAMES_OF_TYPES = {
    "datetime": "2026-05-28T20:26:40Z",
    "UUID": str(UUID(int=5)),
    "list": [1],
    "dict": {"int": 1},
    "int": 1,
    "str": "x",
    "float": 1.5,
    "bool": True,
    "ps": 1,
    "msgspec": 1,
    "Annotated": 1,
    "message_time": 1,
    "message_key": "x",
    "_1": 1,
}


def test_fields_may_have_the_names_of_types() -> None:
    """Optional fields have a default, which would hide the type from the lines below."""
    messages = [message(NAMES_OF_TYPES, b"ann"), message({}, b"ann")]
    category = inferred(messages)

    assert [msgspec.to_builtins(event)["list"] for event in events_of(category, messages)] == [[1], None]


@pytest.mark.parametrize(
    "contents",
    [
        ['{"user": "Mü"}'.encode("latin-1"), {"user": "ann"}],
        [b'\xef\xbb\xbf{"user": "ann"}'],
        [{"op": "c", "after": '{"_id": 1}', "source": {}}],  # documents of MongoDB are text
        [{"schema": {"type": "string"}, "payload": "ann"}],
        [{"schema": None, "payload": None}],
    ],
)
def test_odd_json_is_read_as_json(contents: Sequence[Any]) -> None:
    """What its codec can read is decoded, and nothing ends in an error."""
    messages = [message(content, b'{"id": "\xfc"}') for content in contents]
    category = inferred(messages)

    assert category.codec == "json"
    assert len(events_of(category, messages[-1:])) == 1


def test_values_that_kafka_connect_wraps_are_nested() -> None:
    """The schema is beside them. The codec of Debezium unwraps its changes instead."""
    payload = {"user": "ann", "updated": ARRIVED_MS}
    messages = [message({"schema": {"type": "struct", "fields": []}, "payload": payload}, b"ann")]
    category = inferred(messages)

    assert category.event_time == "payload.updated"
    assert [event.payload.user for event in events_of(category, messages)] == ["ann"]


def test_message_pack_is_recognised() -> None:
    """Messages have times and bytes of MessagePack itself."""
    at = datetime(2026, 5, 28, 20, 26, 40, tzinfo=UTC)
    messages = [
        message(msgspec.msgpack.encode({"user": f"u{n}", "at": at, "raw": b"\xff", "n": n}), f"u{n}".encode())
        for n in range(3)
    ]
    category = inferred(messages, CategorySpec("t", 1))
    events = events_of(category, messages)

    assert [(one.user, one.at, one.raw, one.n) for one in events] == [(f"u{n}", at, b"\xff", n) for n in range(3)]
    assert category.keys_of(events) == ["u0", "u1", "u2"]
    assert category.event_times_of(events) == [ARRIVED_MS] * 3


@pytest.mark.parametrize("key", [True, False])
def test_a_key_of_uuids_is_a_text(*, key: bool) -> None:
    """A category accepts only text or int as key, found or guessed."""
    value = str(UUID(int=5))
    messages = [message({"id": value, "n": 1.5}, value.encode() if key else None)]
    category = inferred(messages)

    assert category.key_fields == ("id",)
    assert category.keys_of(events_of(category, messages)) == [value]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_lines_of_csv_are_recognised(separator: str) -> None:
    """Columns have the types of all their values; an empty value makes a column optional."""
    lines = [["u1", "7", "1.5", str(ARRIVED_MS), ""], ["u2", "8", "2", str(ARRIVED_MS + 1), "x"]]
    messages = [message(separator.join(line).encode(), line[0].encode()) for line in lines]
    category = inferred(messages, CategorySpec("t", 1))
    events = events_of(category, messages)

    assert [(one.column1, one.column2, one.column3, one.column5) for one in events] == [
        ("u1", 7, 1.5, None),
        ("u2", 8, 2.0, "x"),
    ]
    assert category.keys_of(events) == ["u1", "u2"]
    assert category.event_times_of(events) == [ARRIVED_MS, ARRIVED_MS + 1]


def line(text: str, offset: int = 5, bucket: int = 0) -> MessageCopy:
    """Return a message with a line of CSV."""
    return MessageCopy(text.encode(), b"k", bucket, offset, (2, ARRIVED_MS))


@pytest.mark.parametrize(
    "lines",
    [
        [line("Order ID,class,at", 0), line(f"a,7,{ARRIVED_MS}", 1), line(f"b,8,{ARRIVED_MS}", 2)],
        [line(f"a,7,{ARRIVED_MS}"), line("Order ID,class,at"), line(f"b,8,{ARRIVED_MS}"), line("Order ID,class,at")],
        [line("\ufeffOrder ID,class,at\r\n", 0), line(f"a,7,{ARRIVED_MS}\r\n", 1), line(f"b,8,{ARRIVED_MS}\r\n", 2)],
    ],
    ids=["first", "recurring", "byte order mark"],
)
def test_a_header_line_of_csv_names_the_fields(lines: Sequence[MessageCopy]) -> None:
    """The message with it is skipped, and counted apart from messages of another format; other rows have their types."""
    code = declaration_of(TopicSample(CategorySpec("t", 1), lines))
    category = inferred(lines, CategorySpec("t", 1))
    count = sum(b"Order" in (one.value() or b"") for one in lines)

    assert [(one.Order_ID, one.class_, one.at) for one in events_of(category, lines)] == [
        ("a", 7, ARRIVED_MS),
        ("b", 8, ARRIVED_MS),
    ]
    assert list(fields_of(category.record)) == ["message_key", "Order ID", "class", "at"]
    assert f"codec=ps.codecs.Csv(header=True),  # the header line, in {count} message" in code
    assert 'event_time="at"' in code
    assert "another format" not in code


def test_a_header_line_above_texts_is_the_first_of_several_partitions() -> None:
    """A producer writes it where it begins; in one partition, it could be a record."""
    rows = [line("ann,paris", 1), line("bob,rome", 2), line("eve,oslo", 1, 1)]
    several = [line("name,city", 0), *rows[:2], line("name,city", 0, 1), rows[2]]

    assert "Csv(header=True)" in declaration_of(TopicSample(SPEC, several))
    assert {one.name for one in events_of(inferred(several), several)} == {"ann", "bob", "eve"}
    assert "column2: str" in declaration_of(TopicSample(SPEC, [several[0], *rows]))


@pytest.mark.parametrize(
    "odd",
    [
        line("u3,unknown"),
        line("user,user", 0),
        line("user,", 0),
        line("u2,count", 0),
        line("7,count", 0),
        line("user,nan", 0),
        line("- -,count", 0),
        line("2026-05-28T20:26:40Z,count", 0),
    ],
)
def test_a_line_that_may_be_a_record_is_no_header_line(odd: MessageCopy) -> None:
    """It may be among records, have equal, empty or numeric values, or share a value with another record."""
    code = declaration_of(TopicSample(SPEC, [odd, line("u1,1", 1), line("u2,2", 2)]))

    assert "column1:" in code
    assert "header" not in code


@pytest.mark.parametrize("separator", [",", ";"])
def test_messages_with_a_header_line_and_several_lines_are_tables(separator: str) -> None:
    """A record is a list of rows, like a JSON array. Fields have the names and the order of the header line."""
    texts = ["note,at,Shop ID\n,5,a\nx,6,b\n", "note,at,Shop ID\n,7,c"]
    messages = [line(text.replace(",", separator), n) for n, text in enumerate(texts, 3)]
    code = declaration_of(TopicSample(SPEC, messages))
    events = events_of(inferred(messages), messages)

    assert "header=True),  # let a ps.Stateless yield the elements of `rows`" in code
    assert [[(row.note, row.at, row.Shop_ID) for row in one.rows] for one in events] == [
        [(None, 5, "a"), ("x", 6, "b")],
        [(None, 7, "c")],
    ]


@pytest.mark.parametrize(
    "texts",
    [["a,b\n1,2", "c,d\n3,4"], ["a,b\n1,2\n3", "a,b\n1"], ["a,b\nx,y"], ["a\n1", "a\n2"], ["1,2\n3,4", "1,2\n5,6"]],
)
def test_other_messages_of_several_lines_are_texts(texts: Sequence[str]) -> None:
    """Their first lines differ, their rows differ in length, or they have one column, numbers in the first line, or no evidence."""
    assert "ps.codecs.Text()" in declaration_of(TopicSample(SPEC, [line(text) for text in texts]))


CELLS = ["", "7", "007", "-2", "nan", "1e400", "12345678901234567890", "x", "null", "true", str(UUID(int=5)), '"a,b"']


@settings(max_examples=100, deadline=None)
@given(rows=st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[st.sampled_from(CELLS)] * n), min_size=1)))
@example(rows=[("", "7"), ("x", "8")])
@example(rows=[("", "7", ""), ("x", "8", "")])
def test_inferred_columns_have_the_places_and_values_of_the_lines(rows: Sequence[tuple[str, ...]]) -> None:
    """A column may sometimes or always be empty. Leading zeros and long numbers are not lost."""
    messages = [line(",".join(("0", *row))) for row in rows]  # a number, so that no line is a header line
    codec = Codecs(MemoryBus()).of(inferred(messages))
    decoded = codec.decode(messages)

    assert decoded.bad == []
    assert codec.encode(decoded.events) == [one.value() for one in messages]


def test_texts_are_recognised() -> None:
    """The whole value is one field; key and time are those of the message."""
    messages = [message(text.encode(), b"host1") for text in ("GET /", "a, b", "one\ntwo", "2026-05-28T20:26:40Z")]
    category = inferred(messages, CategorySpec("t", 1))
    events = events_of(category, messages)

    assert [one.text for one in events] == ["GET /", "a, b", "one\ntwo", "2026-05-28T20:26:40Z"]
    assert category.keys_of(events) == ["host1"] * 4
    assert category.event_times_of(events) == [ARRIVED_MS] * 4


@pytest.mark.parametrize(
    ("values", "odd", "codec"),
    [
        ([msgspec.msgpack.encode({"user": f"u{n}"}) for n in range(19)], b"\xc1", "codecs.MessagePack"),
        ([f"u{n},{n}".encode() for n in range(19)], b"u19,19,more", "codecs.Csv"),
        ([b"GET /"] * 19, b"\xff\xfe", "codecs.Text"),
        (
            [json.dumps({"op": "c", "after": {"user": "ann"}, "source": {}}).encode()] * 19,
            b'{"ts_ms": 1}',
            "codecs.Debezium",
        ),
        (
            [json.dumps({"specversion": "1.0", "data": {"user": "ann"}}).encode()] * 19,
            b'{"user": "ann"}',
            "codecs.CloudEvents",
        ),
        ([json.dumps({"user": "ann"}).encode()] * 19, b"{", "Category"),
    ],
)
def test_a_few_messages_of_another_format_are_counted(values: Sequence[bytes], odd: bytes, codec: str) -> None:
    """A heartbeat, or the line of a broken producer, neither hides the format of a topic nor stays unmentioned."""
    messages = [message(value) for value in (*values[:9], odd, *values[9:])]
    code = declaration_of(TopicSample(SPEC, messages))

    assert f"ps.{codec}(" in code
    assert "inferred from 20 messages. 1 of them has another format and will not decode (`on_undecodable`)." in code
    category = inferred(messages)
    assert len(Codecs(MemoryBus()).of(category).decode(messages).bad) == 1


def test_lines_of_csv_are_nine_tenths_of_all_messages_not_of_the_texts() -> None:
    """Two limits of nine tenths in succession would accept a lower share."""
    values = [b"ann,1"] * 22 + [b"a, b, c"] * 2 + [b"\xff\xfe"]

    assert "ps.codecs.Text()" in declaration_of(TopicSample(SPEC, [message(value) for value in values]))


def test_two_equally_frequent_formats_are_refused() -> None:
    """The command guesses neither of them."""
    packed = msgspec.msgpack.encode({"user": "ann"})

    with pytest.raises(TopicNotInferable, match="no format that can be recognised"):
        declaration_of(TopicSample(SPEC, [message(value) for value in (packed, b"GET /") * 10]))


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_cloud_events_are_recognised(mode: str) -> None:
    """Attributes that differ become fields; the attribute `time` is the event time."""
    messages = []
    for n in range(3):
        attributes = {"specversion": "1.0", "id": f"e{n}", "source": "/shop", "type": "order", "subject": f"o{n}"}
        attributes["time"] = "2026-05-28T20:26:40Z"
        key, data = f"o{n}".encode(), {"cents": n}
        if mode == "binary":
            headers = [(f"ce_{name}", text.encode()) for name, text in attributes.items()]
            messages.append(message(data, key, headers=[("content-type", b"application/json"), *headers]))
        else:
            headers = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
            messages.append(message({**attributes, "data": data}, key, headers=headers))
    category = inferred(messages, CategorySpec("t", 1))
    events = events_of(category, messages)

    assert isinstance(category.codec, CloudEvents)
    assert category.codec.mode.value == mode
    assert [(one.event_id, one.cents) for one in events] == [("e0", 0), ("e1", 1), ("e2", 2)]
    assert category.keys_of(events) == ["o0", "o1", "o2"]
    assert category.event_times_of(events) == [ARRIVED_MS] * 3
    assert Codecs(MemoryBus()).of(category).encode(events)


@pytest.mark.parametrize("kind", ["number", "text"])
def test_changes_of_debezium_are_recognised(kind: str) -> None:
    """A record is a row. Its key is the column of the message key, and its time is the time of the change in the database."""
    messages = []
    for n in range(1, 20):
        column = n if kind == "number" else f"c{n}"
        key = json.dumps({"id": column}, separators=(",", ":")).encode()
        row = {"id": column, "email": None if n % 3 else f"{n}@example", "created": 19_000 + n}
        messages.append(message(change(n, "c", None, row), key, bucket_of(key, 4)))
    deletion = message(change(1, "d", {"id": 1}, None), messages[0].key(), messages[0].partition())
    category = inferred([*messages, deletion])
    events = events_of(category, messages)

    assert category.keys_of(events) == [str(n) if kind == "number" else f"c{n}" for n in range(1, 20)]
    assert category.event_times_of(events) == [ARRIVED_MS - n for n in range(1, 20)]
    assert [category.bucket_of(key) for key in category.keys_of(events)] == [one.partition() for one in messages]
    assert [one.email for one in events] == [None if n % 3 else f"{n}@example" for n in range(1, 20)]


def test_changes_with_schemas_are_recognised() -> None:
    """Their keys contain schemas, so no partitioner is claimed."""
    key = json.dumps({"schema": {"type": "struct"}, "payload": {"id": 1}}).encode()
    wrapped = message({"schema": {"type": "struct"}, "payload": change(1, "c", None, {"id": 1, "name": "Ann"})}, key, 3)
    category = inferred([wrapped])

    [event] = events_of(category, [wrapped])
    assert (event.name, category.keys_of([event]), category.partitioner) == ("Ann", ["1"], None)


def test_the_schema_beside_a_row_determines_its_types() -> None:
    """The rows of a sample may contain no null and no fraction, and an old schema lacks a column."""
    columns = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "double", "optional": False, "field": "weight"},
        {"type": "string", "optional": True, "field": "note"},
        {"type": "string", "optional": False, "field": "code"},
        {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "field": "seen"},
        {"type": "array", "items": {"type": "int64", "optional": True}, "optional": False, "field": "sizes"},
    ]
    row = {"id": 1, "weight": 2, "note": "x", "code": "2026-01-01T00:00:00Z", "seen": None, "sizes": []}
    later, messages = [*columns, {"type": "boolean", "optional": False, "field": "paid"}], []
    for fields, content in ((columns, row), (later, {**row, "paid": True})):
        schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields}]}
        key = json.dumps({"schema": {"type": "struct"}, "payload": {"id": 1}}).encode()
        messages.append(message({"schema": schema, "payload": change(1, "c", None, content)}, key))
    code = declaration_of(TopicSample(SPEC, messages))

    for line in (
        "id: int",
        "weight: float",
        "note: str | None = None",
        "code: str",
        "seen: datetime | None = None",
        "sizes: list[int | None]",
        "paid: bool | None = None",
    ):
        assert f"    {line}\n" in code, code
    assert len(events_of(inferred(messages), messages)) == 2


def test_decimals_in_base64_are_named() -> None:
    """The row contains only text, so the comment has the scale of the schema, and the way to a Decimal."""
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    row = [{**decimal, "field": "price"}, {"type": "string", "optional": True, "field": "name"}]
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": row}]}
    messages = [
        message({"schema": schema, "payload": change(n, "c", None, {"id": n, "price": "A+g=", "name": "Ann"})})
        for n in range(3)
    ]
    code = declaration_of(TopicSample(SPEC, messages))

    assert "    price: str  # a decimal as bytes in base64, with scale 2; for a Decimal, set decimal.handling" in code
    assert "    name: str | None = None\n" in code
    assert inferred(messages).record.__struct_fields__[:2] == ("id", "price")
    rows = [message({"schema": {"type": "struct", "fields": row}, "payload": {"price": "A+g=", "at": ARRIVED_MS}})]
    assert "    price: str  # a decimal as bytes in base64, with scale 2; for" in declaration_of(
        TopicSample(SPEC, rows)
    )


AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "coupon", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "before", "type": ["null", "State"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Item", "fields": [{"name": "article", "type": "string"}]},
            },
        },
        {"name": "either", "type": ["int", "string"]},
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}


AVRO_ORDER_ID: list[dict[str, Any]] = [{"name": "id", "type": "string"}, {"name": "at", "type": "long"}]


def registered(subject: str, schema: Any, language: str, name: str) -> tuple[NamedRegistry, int]:
    """Return a registry in memory, and the id of a schema in it."""
    registry = SchemaRegistry(f"mock://{name}")
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return NamedRegistry(registry), _client_of(registry).register_schema(subject, Schema(text, language))


KEYS_OF_SEVERAL_FIELDS: dict[str, Any] = {
    "codecs.ConfluentAvro(registry)": {
        "type": "record",
        "name": "Key",
        "fields": [{"name": "tenant", "type": "string"}, {"name": "id", "type": "int"}],
    },
    "codecs.ConfluentJson(registry)": {
        "type": "object",
        "properties": {"tenant": {"type": "string"}, "id": {"type": "integer"}},
    },
}


def avro_bytes(schema: Any, content: Any) -> bytes:
    out = BytesIO()
    schemaless_writer(out, parse_schema(schema), content)
    return out.getvalue()


def avro_message(schema: Any, schema_id: int, content: Any, key: bytes | None = None, bucket: int = 0) -> MessageCopy:
    return message(prefix_of(schema_id) + avro_bytes(schema, content), key, bucket)


def test_avro_with_a_registry_is_recognised() -> None:
    """Types come from the schema: a field is optional if the schema says so, although no message lacks it."""
    registry, schema_id = registered("t-value", AVRO_ORDER, "AVRO", "infer-avro")
    keys = [n.to_bytes(8, "big") for n in range(1, 4)]
    at = datetime(2026, 5, 28, 20, 26, 40, tzinfo=UTC)
    order = {"placed": at, "coupon": "x", "price": Decimal("1.50"), "day": date(2026, 1, 2), "state": "PAID"}
    order |= {"before": "OPEN", "tags": {"a": "b"}, "items": [{"article": "tea"}], "either": 3, "next": None}
    messages = [
        avro_message(AVRO_ORDER, schema_id, {**order, "id": n}, key, bucket_of(key, 4)) for n, key in enumerate(keys, 1)
    ]
    category = inferred(messages, registry=registry)
    events = events_of(category, messages)
    [plain] = events_of(category, [avro_message(AVRO_ORDER, schema_id, {**order, "id": 9, "coupon": None})])

    first = events[0]
    assert (first.placed, first.coupon, plain.coupon, first.price) == (at, "x", None, Decimal("1.5"))
    assert (first.day, first.state, first.before, first.tags) == (date(2026, 1, 2), "PAID", "OPEN", {"a": "b"})
    assert [item.article for item in first.items] == ["tea"]
    assert category.keys_of(events) == ["1", "2", "3"]
    assert category.event_times_of(events) == [ARRIVED_MS] * 3
    code = declaration_of(TopicSample(SPEC, messages), registry)
    assert "either is left out: its values have several types" in code
    assert "next is left out: it contains itself" in code
    assert 'registry = ps.codecs.SchemaRegistry("mock://infer-avro")' in code


def test_json_with_a_registry_is_recognised() -> None:
    """A field that the schema does not require is optional, although no message lacks it; keys have the format, too."""
    schema = {
        "title": "Visit",
        "type": "object",
        "properties": {"user": {"type": "string"}, "page": {"type": "string"}},
    }
    schema["required"] = ["user"]
    registry, schema_id = registered("t-value", schema, "JSON", "infer-json")
    _, key_id = registered("user-orders-key", {"type": "string"}, "JSON", "infer-json")
    keys = [prefix_of(key_id) + json.dumps(f"u{n}").encode() for n in range(9)]
    messages = [
        message(prefix_of(schema_id) + json.dumps({"user": f"u{n}", "page": "/"}).encode(), key, bucket_of(key, 4))
        for n, key in enumerate(keys)
    ]
    category = inferred(messages, registry=registry)
    [without] = events_of(category, [message(prefix_of(schema_id) + b'{"user": "ann"}', keys[0])])

    assert without.page is None
    assert category.keys_of(events_of(category, messages)) == [f"u{n}" for n in range(9)]
    cut = message(prefix_of(schema_id) + rb'{"user": "ann", "page": "\ud83d"}', keys[0])
    assert " 1 of them contains half a character" in declaration_of(TopicSample(SPEC, [*messages, cut]), registry)
    assert [category.bucket_of(f"u{n}") for n in range(9)] == [one.partition() for one in messages]


LINE = {"type": "object", "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}, "required": ["sku"]}
CART: dict[str, Any] = {
    "title": "Cart",
    "type": "object",
    "definitions": {"line": LINE, "loop": {"$ref": "#/definitions/loop"}},
    "properties": {
        "id": {"type": "string"},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "best": {"oneOf": [{"type": "null"}, {"$ref": "line.json"}]},
        "note": {"type": ["string", "null"]},
        "odd": {"$ref": "#/definitions/loop"},
        "more": {"allOf": [{"$ref": "unknown.json"}, {"properties": {"x": {"type": "integer"}}, "required": ["x"]}]},
    },
    "required": ["id", "lines", "best", "note", "more"],
}


def test_a_field_of_several_avro_records_has_the_fields_of_all() -> None:
    """Each is optional unless all of the records have it. Maps with values of several types are left out."""
    records: list[Any] = [
        {"type": "record", "name": kind, "fields": [{"name": "n", "type": "int"}, {"name": kind, "type": "string"}]}
        for kind in "ab"
    ]
    fields: list[Any] = [{"name": "body", "type": ["null", *records]}]
    fields += [{"name": "mixed", "type": {"type": "map", "values": ["int", "string"]}}]
    schema: dict[str, Any] = {"type": "record", "name": "V", "fields": [*AVRO_ORDER_ID, *fields]}
    registry, schema_id = registered("t-value", schema, "AVRO", "infer-several-records")
    bodies: list[Any] = [None, ("a", {"n": 1, "a": "x"}), ("b", {"n": 2, "b": "y"})]
    messages = [
        avro_message(schema, schema_id, {"id": "i", "at": ARRIVED_MS, "body": body, "mixed": {"k": 1}})
        for body in bodies
    ]
    events = events_of(inferred(messages, registry=registry), messages)
    code = declaration_of(TopicSample(SPEC, messages), registry)

    assert [one.body and (one.body.n, one.body.a, one.body.b) for one in events] == [
        None,
        (1, "x", None),
        (2, None, "y"),
    ]
    assert "    n: int\n    a: str | None = None" in code
    assert "mixed is left out: its maps have values of mixed types" in code


def test_a_json_schema_determines_at_every_depth_which_fields_may_be_missing() -> None:
    """It also determines them in items of lists, and in schemas that it refers to or combines."""
    registry, _ = registered("line.json", LINE, "JSON", "infer-cart")
    schema = Schema(json.dumps(CART), "JSON", [SchemaReference("line.json", "line.json", 1)])
    schema_id = _client_of(registry.registry).register_schema("t-value", schema)
    line = {"sku": "tea", "count": 1}
    full = {"id": "a", "lines": [line], "best": line, "note": "x", "odd": 1, "more": {"x": 1}}
    least = {"id": "a", "lines": [{"sku": "tea"}], "best": None, "note": None, "more": {"x": 1}}
    category = inferred([message(prefix_of(schema_id) + json.dumps(full).encode())], registry=registry)
    [event] = events_of(category, [message(prefix_of(schema_id) + json.dumps(least).encode())])

    assert (event.lines[0].count, event.best, event.note, event.odd, event.more.x) == (None, None, None, None, 1)
    assert [field.required for field in fields_of(type(event.more)).values()] == [True]


def test_changes_of_debezium_in_avro_are_recognised() -> None:
    """Rows have the types of the schema; keys in Avro have their codec."""
    row: dict[str, Any] = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}]}
    row["fields"] += [{"name": "email", "type": ["null", "string"], "default": None}]
    source = {"type": "record", "name": "Source", "fields": [{"name": "ts_ms", "type": "long"}]}
    fields = [{"name": "before", "type": ["null", row], "default": None}, {"name": "after", "type": ["null", "Value"]}]
    fields += [{"name": "source", "type": source}, {"name": "op", "type": "string"}]
    schema = {"type": "record", "name": "Envelope", "fields": fields}
    key_schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
    registry, schema_id = registered("user-orders-value", schema, "AVRO", "infer-changes")
    _, key_id = registered("user-orders-key", key_schema, "AVRO", "infer-changes")
    messages = []
    for n in range(1, 9):
        out = BytesIO()
        schemaless_writer(out, parse_schema(key_schema), {"id": n})
        key = prefix_of(key_id) + out.getvalue()
        content = {"before": None, "after": {"id": n, "email": "x"}, "source": {"ts_ms": ARRIVED_MS - n}, "op": "c"}
        messages.append(avro_message(schema, schema_id, content, key, bucket_of(key, 4)))
    category = inferred(messages, registry=registry)
    events = events_of(category, messages)

    assert [(one.id, one.email) for one in events] == [(n, "x") for n in range(1, 9)]
    assert category.event_times_of(events) == [ARRIVED_MS - n for n in range(1, 9)]
    assert [category.bucket_of(key) for key in category.keys_of(events)] == [one.partition() for one in messages]
    assert "email: str | None = None" in declaration_of(TopicSample(SPEC, messages), registry)


@pytest.mark.parametrize("key_codec", ["", "codecs.ConfluentAvro(registry)"])
def test_a_key_of_uuids_in_avro_is_a_text(key_codec: str) -> None:
    """Its key is a text, in UTF-8 or with a registry, although the value has the logical type."""
    uuid = {"type": "string", "logicalType": "uuid"}
    schema = {"type": "record", "name": "V", "fields": [{"name": "n", "type": "int"}, {"name": "id", "type": uuid}]}
    registry, schema_id = registered("t-value", schema, "AVRO", f"infer-uuids-{key_codec}")
    _, key_id = registered("user-orders-key", uuid, "AVRO", f"infer-uuids-{key_codec}")
    ids = [str(UUID(int=n)) for n in range(9)]
    keys = [prefix_of(key_id) + avro_bytes("string", each) if key_codec else each.encode() for each in ids]
    messages = [
        avro_message(schema, schema_id, {"n": n, "id": UUID(int=n)}, key, bucket_of(key, 4))
        for n, key in enumerate(keys)
    ]
    category = inferred(messages, registry=registry)

    assert category.keys_of(events_of(category, messages)) == ids
    assert category.encode_keys(ids) == keys
    assert category.partitioner is not None


@pytest.mark.parametrize("codec", ["KeyCodec.JSON", "codecs.ConfluentAvro(registry)", "codecs.ConfluentJson(registry)"])
def test_a_key_of_several_fields_is_recognised(codec: str) -> None:
    """It is in JSON or in a registry. Its declared fields have the bytes and the buckets of the messages."""
    contents = [{"note": "x", "id": n, "tenant": f"t{n % 3}"} for n in range(1, 9)]
    keys = [msgspec.json.encode({"tenant": one["tenant"], "id": one["id"]}) for one in contents]
    registry, prefix, key_schema = None, b"", KEYS_OF_SEVERAL_FIELDS.get(codec)
    if key_schema is not None:
        schema = {"type": "object", "properties": {"id": {"type": "integer"}, "tenant": {"type": "string"}}}
        schema["required"] = ["id", "tenant"]
        name = f"infer-several-{codec}"
        registry, value_id = registered("t-value", schema, "JSON", name)
        _, key_id = registered("user-orders-key", key_schema, "AVRO" if "Avro" in codec else "JSON", name)
        prefix = prefix_of(value_id)
        keys = [prefix_of(key_id) + key for key in keys]
        if "Avro" in codec:
            keys = [prefix_of(key_id) + avro_bytes(key_schema, one) for one in contents]
    messages = [
        message(prefix + json.dumps(one).encode(), key, bucket_of(key, 4))
        for one, key in zip(contents, keys, strict=True)
    ]
    category = inferred(messages, registry=registry)
    code = declaration_of(TopicSample(SPEC, messages), registry)

    assert 'key=("tenant", "id"),  # the message key of 8 of 8 messages\n' in code
    assert f"key_codec=ps.{codec}," in code
    assert "partitioner" not in code
    assert category.encode_keys(category.keys_of(events_of(category, messages))) == keys


@pytest.mark.parametrize(
    "key",
    [
        b'{"tenant":  "a", "id": 1}',
        b'{"id":[1],"tenant":"a"}',
    ],
)
def test_a_key_with_other_values_or_in_another_form_is_no_key_of_fields(key: bytes) -> None:
    """Penstock would write other bytes, so the key is declared as a part of the message."""
    code = declaration_of(TopicSample(SPEC, [message(b'{"tenant":"a","id":1}', key)]))

    assert 'key="message_key",  # no field equals the message key' in code


MONEY = 'syntax = "proto3"; package shop; message Money { string currency = 1; int64 cents = 2; }'
RECEIPT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "inference_money.proto";
message Ignored { string id = 1; }
message Receipt {
  enum State { OPEN = 0; PAID = 1; }
  message Line { string article = 1; double weight = 2; repeated string tags = 3; }
  string id = 1;
  google.protobuf.Timestamp paid_at = 2;
  State state = 3;
  repeated Line lines = 4;
  optional string coupon = 5;
  Money total = 6;
  google.protobuf.Int64Value points = 7;
  map<string, int32> counts = 8;
  oneof method { string card = 9; string account = 10; }
  map<int32, string> by_number = 11;
  google.protobuf.Struct extra = 12;
  Receipt previous = 13;
  bytes signature = 14;
  Line first = 15;
}
"""


@pytest.fixture(scope="module")
def receipts(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The module that protoc generates, under the name that the inferred code imports."""
    return compiled(tmp_path_factory.mktemp("inference"), user_orders=RECEIPT, inference_money=MONEY)


def receipt_messages(receipts: Any, registry: SchemaRegistry) -> tuple[NamedRegistry, list[MessageCopy]]:
    """Return a registry with the file of receipts and the file that it imports, and twelve messages in the format of Confluent's serializers."""
    client = RegistryClient(registry, PROTOBUF)
    schema_id = client.id_of("user-orders-value", schema_of_file(receipts.DESCRIPTOR), register=True)
    messages = []
    for number in range(12):
        receipt = receipts.Receipt(id=f"r{number}", state=number % 2, signature=b"\xff", counts={"a": number})
        receipt.paid_at.FromMilliseconds(ARRIVED_MS - number)
        receipt.lines.add(article="pen", weight=0.5, tags=["x"])
        receipt.total.cents = number
        if number % 3:
            receipt.coupon, receipt.card = "ten", "visa"
            receipt.points.value = 7
        key = f"r{number}".encode()
        value = prefix_of(schema_id) + encode_indexes((1,)) + receipt.SerializeToString()
        messages.append(message(value, key, bucket_of(key, 4)))
    other = prefix_of(schema_id) + encode_indexes((0,)) + receipts.Ignored(id="x").SerializeToString()
    return NamedRegistry(registry), [*messages, message(other, b"x", bucket_of(b"x", 4))]


def test_protobuf_with_a_registry(receipts: Any) -> None:
    """The registered schema determines the fields and the class, which protoc generates; messages of the most frequent type decode."""
    registry, messages = receipt_messages(receipts, SchemaRegistry("mock://infer-receipts"))
    code = declaration_of(TopicSample(SPEC, messages), registry)
    category = inferred(messages, registry=registry)
    events = events_of(category, messages[:-1])

    assert category.keys_of(events) == [f"r{number}" for number in range(12)]
    assert category.event_times_of(events) == [ARRIVED_MS - number for number in range(12)]
    assert (events[1].state, events[1].coupon, events[1].card, events[1].account) == ("PAID", "ten", "visa", None)
    assert (events[0].coupon, events[0].points, events[1].points) == (None, None, 7)
    assert (events[3].total.cents, events[3].lines[0].tags, events[3].counts) == (3, ["x"], {"a": 3})
    assert "Messages of other types are skipped: shop.Ignored (1)." in code
    assert [
        code.count(text)
        for text in (
            'user_orders_pb2.Receipt, registry, other_types="skip")',
            "# previous is left out: it contains itself",
        )
    ] == [
        1,
        1,
    ]
    for line in (
        "#   curl mock://infer-receipts/schemas/ids/2/schema > user_orders.proto",
        "#   Save the schemas that it imports, too: inference_money.proto",
        "#   protoc --python_out=. user_orders.proto inference_money.proto",
        "# extra is left out: a record has no type for google.protobuf.Struct",
        "# by_number is left out: a record has no type for map with keys that are no text",
    ):
        assert line in code


def test_protobuf_with_a_registry_over_http(receipts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns the text of a schema by default, and its descriptor on request."""
    monkeypatch.setenv("PENSTOCK_REGISTRY_PASSWORD", PASSWORD)
    with registry_server() as server:
        registry, messages = receipt_messages(receipts, SchemaRegistry(server.url, USER, PASSWORD))
        _client_of(registry.registry).clear_caches()
        category = inferred(messages, registry=registry)

        assert len(events_of(category, messages)) == 12


def test_avro_with_a_referenced_record() -> None:
    """Its fields are those of the schema that is registered under another subject."""
    address = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
    fields = [*AVRO_ORDER_ID, {"name": "home", "type": "shop.Address"}]
    customer = {"type": "record", "name": "Customer", "namespace": "shop", "fields": fields}
    registry, _ = registered("shop.Address", address, "AVRO", "infer-reference")
    schema = Schema(json.dumps(customer), "AVRO", [SchemaReference("shop.Address", "shop.Address", 1)])
    schema_id = _client_of(registry.registry).register_schema("t-value", schema)
    whole = {**customer, "fields": [*AVRO_ORDER_ID, {"name": "home", "type": address}]}
    messages = [avro_message(whole, schema_id, {"id": "a", "at": ARRIVED_MS, "home": {"city": "B"}}, b"a")]
    category = inferred(messages, CategorySpec("t", 1), registry)

    assert [event.home.city for event in events_of(category, messages)] == ["B"]


def test_avro_with_several_record_types() -> None:
    """The most frequent one is declared, and messages of the others are skipped, although their fields would fit."""
    small = {"type": "record", "name": "Cancelled", "namespace": "com.shop", "fields": AVRO_ORDER_ID}
    large = {**small, "name": "Placed", "fields": [*AVRO_ORDER_ID, {"name": "cents", "type": "long"}]}
    registry, first = registered("com.shop.Cancelled", small, "AVRO", "infer-types")
    second = _client_of(registry.registry).register_schema("com.shop.Placed", Schema(json.dumps(large), "AVRO"))
    rows: list[dict[str, Any]] = [{"id": f"o{n}", "at": ARRIVED_MS - n, "cents": n} for n in range(5)]
    placed = [avro_message(large, second, row, row["id"].encode(), 0) for row in rows]
    cancelled = [avro_message(small, first, {"id": row["id"], "at": row["at"]}, row["id"].encode(), 0) for row in rows]
    for messages, expected in (([*placed, *cancelled[:2]], placed), ([*cancelled, *placed[:2]], cancelled)):
        category = inferred(messages, CategorySpec("t", 1), registry)

        assert category.keys_of(events_of(category, messages)) == [row["id"] for row in rows]
        assert len(events_of(category, messages)) == len(expected)


def test_protobuf_without_descriptors_is_refused_with_the_next_step() -> None:
    """Some registries return only the text of a schema."""
    registry, schema_id = registered(
        "t-value", 'syntax = "proto3"; message A { int32 x = 1; }', "PROTOBUF", "infer-proto"
    )

    with pytest.raises(TopicNotInferable, match=r"cannot be read.*protoc.*ConfluentProtobuf"):
        declaration_of(TopicSample(SPEC, [message(prefix_of(schema_id) + b"\x00\x08\x01")]), registry)


def test_a_key_is_required_although_the_schema_permits_null() -> None:
    """A message without it does not decode."""
    schema = {"title": "Visit", "type": "object", "properties": {"user": {"type": "string"}}}
    registry, schema_id = registered("t-value", schema, "JSON", "infer-optional-key")
    visit = message(prefix_of(schema_id) + b'{"user": "ann"}', b"ann", bucket_of(b"ann", 4))
    category = inferred([visit], registry=registry)

    assert category.keys_of(events_of(category, [visit])) == ["ann"]
    [bad] = Codecs(MemoryBus()).of(category).decode([message(prefix_of(schema_id) + b"{}", b"ann")]).bad
    assert "user" in bad.reason


@pytest.mark.parametrize(
    ("content", "key", "expected"),
    [
        ({"event": "click", "userId": "u1", "n": 1}, 'key="userId"', "u1"),
        ({"event": "click", "user": {"id": 7}}, "key=lambda record: str(record.user.id)", "7"),
        ({"event": "click", "user": {"name": "Ann"}}, 'key="event"', "click"),
        ({"ratio": 0.5, "user": {"name": "Ann"}}, 'key=lambda record: ""', ""),
    ],
)
def test_the_key_of_messages_without_keys_is_guessed(content: dict[str, Any], key: str, expected: str) -> None:
    """Names of ids suggest it, also in nested records. A field that some messages lack is not a key, and every declaration is valid."""
    messages = [message({"maybe": "x", **content} if n else content) for n in range(3)]
    code = declaration_of(TopicSample(SPEC, messages))
    category = inferred(messages)

    assert key in code
    assert category.keys_of(events_of(category, messages)) == [expected] * 3


def split_events(category: Any, messages: Sequence[MessageCopy]) -> list[Any]:
    return events_of(category, split_messages(Codecs(MemoryBus()).of(category), messages))


def test_json_arrays_of_objects_are_recognised() -> None:
    """Each element is an event; some producers write an object alone without an array."""
    messages = [
        message([{"sensor": f"s{n}", "celsius": 0.5 * n}, {"sensor": "x", "celsius": 1}], b"gw") for n in range(3)
    ]
    for sample in (messages, [*messages, message({"sensor": "y", "celsius": 2}, b"gw")]):
        category = inferred(sample, CategorySpec("t", 1))
        events = split_events(category, sample)
        expected = ["s0", "x", "s1", "x", "s2", "x", *["y"] * (len(sample) - 3)]

        assert [event.sensor for event in events] == expected
        assert category.keys_of(events) == ["gw"] * len(expected)
        assert category.event_times_of(events) == [ARRIVED_MS] * len(expected)


def test_empty_arrays_are_no_other_format() -> None:
    """They decode as no event, so the declaration does not call them undecodable."""
    messages = [message([{"sensor": f"s{n}"}] if n % 2 else [], b"gw") for n in range(6)]

    assert "another format" not in declaration_of(TopicSample(CategorySpec("t", 1), messages))


def test_json_lines_are_recognised() -> None:
    """Each line is an event, also in messages of one line; a message with a broken line is counted as another format."""
    messages = [
        message(b'{"user": "a", "n": 1}\n{"user": "b", "n": 2}\n', b"a"),
        message(b'{"user": "c", "n": 3}', b"c"),
        message(b'{"user": "d", "n": 4}\r\n\r\n{"user": "e", "n": 5}\r\n', b"d"),
    ]
    category = inferred(messages, CategorySpec("t", 1))
    broken = message(b'{"user": "f"}\n{"user":', b"f")

    assert [event.user for event in split_events(category, messages)] == [*"abcde"]
    assert "no field equals the message key of 5 of 5 events" in declaration_of(TopicSample(SPEC, messages))
    assert "1 of them has another format" in declaration_of(TopicSample(CategorySpec("t", 1), [*messages, broken]))


def test_an_object_over_several_lines_is_one_event() -> None:
    """The lines of indented JSON are not objects."""
    messages = [message(json.dumps({"user": name, "n": 1}, indent=2).encode(), name.encode()) for name in "abc"]

    assert "codec=" not in declaration_of(TopicSample(CategorySpec("t", 1), messages))


def test_json_arrays_of_values_are_recognised() -> None:
    """A record has the array as a list."""
    messages = [message([0.5 * n, 2.5], b"gw") for n in range(3)]
    category = inferred(messages, CategorySpec("t", 1))

    assert [event.rows for event in events_of(category, messages)] == [[0.5 * n, 2.5] for n in range(3)]


def test_one_array_among_objects_is_a_mistake() -> None:
    """The codec stays the codec of objects, and the array does not decode."""
    messages = [message({"sensor": f"s{n}"}, b"gw") for n in range(20)]
    code = declaration_of(TopicSample(CategorySpec("t", 1), [*messages, message([{"sensor": "x"}], b"gw")]))

    assert "codec=" not in code
    assert "1 of them has another format" in code


PLACED = {"type": "order.placed", "order": "o1", "at": ARRIVED_MS - 5, "cents": 7, "lines": [{"sku": "x", "n": 1}]}
PAID = {"type": "order.paid", "order": "o1", "at": ARRIVED_MS - 4, "card": "visa"}
SHIPPED = {
    "type": "order.shipped",
    "order": "o1",
    "at": ARRIVED_MS - 3,
    "lines": [{"sku": "x", "n": 1}],
    "note": "late",
}


def events_by_type(field: str = "type", count: int = 12) -> list[dict[str, Any]]:
    """Return events of three types in turn; one in four of the last type has no note."""
    found = []
    for number in range(count):
        event = dict((PLACED, PAID, SHIPPED)[number % 3], order=f"o{number % 4}")
        event[field] = event.pop("type")
        if number % 4 == 0:
            event.pop("note", None)
        found.append(event)
    return found


def of_order(contents: Sequence[dict[str, Any]]) -> list[MessageCopy]:
    return [
        message(each, each["order"].encode(), bucket_of(each["order"].encode(), 4, Partitioner.MURMUR2))
        for each in contents
    ]


@pytest.mark.parametrize("field", ["type", "eventType", "event", "payload_kind"])
def test_types_of_events_become_a_union(field: str) -> None:
    """Each type has its own fields, and every message is read as its type; further types are skipped."""
    messages = of_order(events_by_type(field))
    category = inferred(messages)
    events = events_of(category, messages)

    assert [type(event).__name__ for event in events[:3]] == ["OrderPlaced", "OrderPaid", "OrderShipped"]
    assert (events[0].cents, events[0].lines[0].sku, events[1].card) == (7, "x", "visa")
    assert type(events[0].lines[0]) is type(events[2].lines[0])
    assert {event.note for event in events if type(event).__name__ == "OrderShipped"} == {"late", None}
    assert not hasattr(events[1], "lines")
    assert category.keys_of(events) == [f"o{number % 4}" for number in range(12)]
    assert events_of(category, of_order([{**PAID, field: "order.lost"}] if field == "type" else [])) == []


def test_types_in_messagepack_become_a_union() -> None:
    """JSON messages are treated the same."""
    messages = [
        MessageCopy(msgspec.msgpack.encode(each), each["order"].encode(), 0, timestamp=(2, ARRIVED_MS))
        for each in events_by_type()
    ]

    assert len({type(event) for event in events_of(inferred(messages), messages)}) == 3


@pytest.mark.parametrize(
    "contents",
    [
        [{"order": f"o{n}", "at": ARRIVED_MS, "type": ("new", "old")[n % 2], "cents": n} for n in range(12)],
        [{**event, "type": f"t{number}"} for number, event in enumerate(events_by_type(count=30))],
        [{**event, "type": None if number == 5 else event["type"]} for number, event in enumerate(events_by_type())],
        events_by_type("country"),
        [
            {"order": "o1", "at": ARRIVED_MS, "type": ("new", "old")[n % 2], **({"note": "x"} if n % 3 else {})}
            for n in range(12)
        ],
        events_by_type(count=3),
    ],
    ids=["equal fields", "too many values", "a null", "not a type", "an optional field", "too few messages"],
)
def test_other_fields_do_not_become_types(contents: list[dict[str, Any]]) -> None:
    """One record type describes these messages."""
    messages = of_order(contents)
    category = inferred(messages)

    assert len(category.record_types) == 1
    assert len(events_of(category, messages)) == len(messages)


def test_a_topic_without_a_key_field_in_each_type_has_one_record() -> None:
    """A category with several types needs the key in each of them; otherwise the message key is a metadata field."""
    messages = [message(event, b"k%d" % number) for number, event in enumerate(events_by_type())]

    assert len(inferred(messages).record_types) == 1


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b-c", "1 d", 'quote "', "None"]), st.dictionaries(NAMES, SCALARS, max_size=4)),
        min_size=1,
        max_size=12,
    )
)
def test_topics_with_a_type_field_are_always_readable(pairs: list[tuple[str, dict[str, Any]]]) -> None:
    """The types and their fields may be of any kind."""
    messages = of_order([{**fields, "type": kind, "order": "o1", "time": ARRIVED_MS} for kind, fields in pairs])

    assert len(events_of(inferred(messages), messages)) == len(messages)


def test_a_topic_with_some_messages_without_a_key_has_no_partitioner() -> None:
    """They are in any bucket, so a stateful processor would stop at the first of them."""
    numbers = range(12)
    keys = [None if n % 4 == 3 else f"u{n}".encode() for n in numbers]
    messages = [
        message({"user": f"u{n}", "at": ARRIVED_MS}, key, 1 if key is None else bucket_of(key, 4))
        for n, key in zip(numbers, keys, strict=True)
    ]

    assert inferred(messages).partitioner is None
    assert "3 messages without a key are in any bucket" in declaration_of(TopicSample(SPEC, messages))


def test_a_compacted_topic_is_declared_as_compacted() -> None:
    """Processors check this: a lost state could not be rebuilt from such a topic."""
    category = inferred([message({"user": "ann", "at": ARRIVED_MS}, b"ann")], CategorySpec("t", 1, compacted=True))

    assert category.compacted


def test_a_registry_that_no_message_needs_is_reported() -> None:
    """The user expects schemas in it."""
    registry = NamedRegistry(SchemaRegistry("mock://unused"))
    samples = TopicSample(SPEC, [message({"user": "ann", "at": ARRIVED_MS}, b"ann")])

    assert "No message has a schema id, so the registry was not asked." in declaration_of(samples, registry)
    assert "registry" not in declaration_of(samples)
