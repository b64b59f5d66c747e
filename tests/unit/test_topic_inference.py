"""Declarations inferred from topics: the inferred code decodes every message of the sample."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from penstock.ops.topic_inference import TopicSample, declaration_of, read_sample
from penstock.ops.topic_inference.declaration import TopicNotInferable
from penstock.processors.declare.categories import AnyCategory, Category
from penstock.processors.declare.partitioner import Partitioner, bucket_of
from penstock.transport.category_spec import CategorySpec
from penstock.transport.codecs.by_category import Codecs
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import MessageCopy, Outgoing

ARRIVED_MS = 1_780_000_000_000
SPEC = CategorySpec("user-orders", 4, timedelta(days=7))


def message(content: Any, key: bytes | None = None, bucket: int = 0) -> MessageCopy:
    """Return a JSON message."""
    value = content if isinstance(content, bytes) else json.dumps(content).encode()
    return MessageCopy(value, key, bucket, timestamp=(2, ARRIVED_MS))


def inferred(messages: Sequence[MessageCopy], spec: CategorySpec = SPEC) -> AnyCategory:
    """Run the inferred module, and return its category."""
    names: dict[str, Any] = {"__name__": "inferred"}
    code = declaration_of(TopicSample(spec, messages))
    exec(compile(code, "inferred.py", "exec", dont_inherit=True), names)  # noqa: S102 - the code under test
    [category] = [value for value in names.values() if isinstance(value, Category)]
    return category


def events_of(category: AnyCategory, messages: Sequence[MessageCopy]) -> list[Any]:
    """Decode messages; each of them decodes."""
    decoded = Codecs(MemoryBus()).of(category).decode(messages)
    assert decoded.bad == []
    return decoded.events


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = (
    st.text(max_size=5) | st.datetimes(timezones=st.just(timezone.utc)).map(datetime.isoformat) | st.uuids().map(str)
)
NAMES = st.sampled_from(["id", "class", "from", "user-name", "at", "a.b", "x", "größe", "2nd", "_id"])
VALUES = st.recursive(
    SCALARS | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)


@settings(deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking runs for minutes
@given(st.lists(st.dictionaries(NAMES, VALUES, min_size=1, max_size=5), min_size=1, max_size=5))
@example([{"_id": 1, "id": "2415-10-09T23:08:03+00:00"}])
def test_the_inferred_record_decodes_every_message(contents: list[dict[str, Any]]) -> None:
    """Any JSON objects: with missing, null, nested, renamed and mixed fields."""
    messages = [message({**content, "user": "ann"}, b"ann", 0) for content in contents]

    category = inferred(messages)

    assert len(events_of(category, messages)) == len(messages)


def test_fields_have_the_types_of_their_values() -> None:
    """Optional fields have a default; a field of mixed types is left out and named."""
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
    assert one.at == datetime(2026, 5, 28, 20, 26, 40, tzinfo=timezone.utc)
    assert "mixed is left out: its values have several types" in declaration_of(TopicSample(SPEC, messages))
    assert "mixed" not in category.record.__struct_fields__


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
    """Among other numbers, by the time of the message and the name of the field."""
    messages = [message({"amount": 1_700, "ts": value, "user": "ann"}, b"ann", 0)] * 3

    category = inferred(messages)

    assert category.event_times_of(events_of(category, messages)) == [event_ms] * 3


def test_a_nested_event_time_is_found() -> None:
    """Its path is declared."""
    messages = [message({"meta": {"created_at": ARRIVED_MS}, "user": "ann"}, b"ann", 0)]
    category = inferred(messages)

    assert category.event_times_of(events_of(category, messages)) == [ARRIVED_MS]


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


@pytest.mark.parametrize("value", [b"\x00\x00\x00\x00\x01abc", b"plain text", b"[1, 2]"])
def test_other_formats_are_refused_with_an_example(value: bytes) -> None:
    """The error shows the beginning of a message."""
    with pytest.raises(TopicNotInferable, match="user-orders are not JSON objects"):
        declaration_of(TopicSample(SPEC, [message(value)]))


def test_an_empty_topic_is_refused() -> None:
    """There is nothing to infer from."""
    with pytest.raises(TopicNotInferable, match="contains no message"):
        declaration_of(TopicSample(SPEC, []))


def test_a_sample_has_the_latest_messages_of_each_bucket() -> None:
    """Fewer of buckets that contain fewer."""
    bus = MemoryBus()
    bus.catalog.create(CategorySpec("t", 2))
    writer = bus.writer()
    writer.send("t", [Outgoing(None, msgspec.json.encode({"n": n}), 0) for n in range(10)])
    writer.send("t", [Outgoing(None, msgspec.json.encode({"n": 99}), 1)])
    writer.flush()

    sample = read_sample(bus, "t", 6)

    assert sorted(msgspec.json.decode(one.value() or b"")["n"] for one in sample.messages) == [7, 8, 9, 99]


def test_the_code_is_formatted_for_people(tmp_path: Path) -> None:
    """One field per line, comments on what was found."""
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
