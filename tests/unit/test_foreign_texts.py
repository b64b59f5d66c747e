"""Texts of other programs: times finer than microseconds, and byte order marks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import codecs
from penstock.processors.declare import AnyRecord, Decoded, split_messages
from penstock.transport import MessageCopy
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Inner(ps.Record, frozen=True):
    """A nested record."""

    seen: datetime
    note: str = ""


class Timed(ps.Record, frozen=True):
    """A record with times at several depths, and a text that looks like one."""

    id: str
    at: datetime
    note: str = ""
    inner: Inner | None = None
    seen_all: tuple[datetime, ...] = ()


@dataclass(frozen=True)
class PlainTimed:
    """A dataclass."""

    id: str
    at: datetime


class TextId(ps.Record, frozen=True):
    """A record whose first field is text."""

    id: str
    n: int


def decoded(record: type[AnyRecord], codec: Any, values: list[bytes]) -> Decoded:
    """Decode values of a category."""
    time = "at" if "at" in record.__annotations__ else lambda _: 0
    category = ps.Category("texts", record, key="id", event_time=time, buckets=1, codec=codec)
    opened = Codecs(MemoryBus()).of(category)
    return opened.decode(split_messages(opened, [MessageCopy(value) for value in values]))


def as_json(fields: Mapping[str, Any]) -> bytes:
    """Return the fields as JSON."""
    return msgspec.json.encode(fields)


def as_csv(fields: Mapping[str, Any]) -> bytes:
    """Return the values in one line."""
    return ",".join(fields.values()).encode()


def as_change(fields: Mapping[str, Any]) -> bytes:
    """Return a change of Debezium."""
    return msgspec.json.encode({"op": "c", "before": None, "after": fields, "source": {}})


def as_array(fields: Mapping[str, Any]) -> bytes:
    """Return a JSON array."""
    return msgspec.json.encode([fields])


FORMATS: list[tuple[Any, Callable[[Mapping[str, Any]], bytes]]] = [
    ("json", as_json),
    (codecs.Json(strict=False), as_json),
    (codecs.JsonArray(), as_array),
    (codecs.JsonLines(), as_json),
    (codecs.MessagePack(), msgspec.msgpack.encode),
    (codecs.Csv(), as_csv),
    (codecs.Debezium(), as_change),
]


@given(
    st.integers(-(2**31), 2**33).map(lambda at: (EPOCH + timedelta(seconds=at)).replace(tzinfo=None)),
    st.integers(0, 10**12 - 1),
    st.integers(1, 12),
    st.sampled_from(["Z", "+00:00", "-05:30"]),
)
def test_a_time_in_text_is_rounded_down_in_every_format(
    second: datetime, fraction: int, digits: int, offset: str
) -> None:
    """The microseconds are the first six digits, so no event moves into the next window."""
    text = f"{fraction:012d}"[:digits]
    at = f"{second.isoformat()}.{text}{offset}"
    want = datetime.fromisoformat(f"{second.isoformat()}.{text[:6].ljust(6, '0')}{offset.replace('Z', '+00:00')}")

    for codec, encode in FORMATS:
        for record in (Timed, PlainTimed) if codec == "json" else (PlainTimed,):
            [event] = decoded(record, codec, [encode({"id": "a", "at": at})]).events
            assert event.at == want, codec


def test_times_are_cut_at_all_depths_and_other_texts_stay() -> None:
    """A str field keeps each digit, even in a message whose times are cut."""
    fine, cut = "2024-02-29T12:00:00.999999999Z", datetime(2024, 2, 29, 12, 0, 0, 999_999, UTC)
    fields = {"id": fine, "at": fine, "note": f'"at": "{fine}"', "inner": {"seen": fine, "note": fine}}
    value = as_json(fields | {"seen_all": [fine, fine]})
    want = Timed(fine, cut, f'"at": "{fine}"', Inner(cut, fine), (cut, cut))

    assert decoded(Timed, "json", [value] * 3).events == [want] * 3
    assert decoded(Timed, "json", [value, b"{"]).events == [want]
    assert decoded(Timed, codecs.Debezium(), [as_change(msgspec.json.decode(value))]).events == [want]
    category = ps.Category("texts", Timed, key="id", event_time="at", buckets=1)
    assert category.event_times_of([want]) == [(cut - EPOCH) // timedelta(milliseconds=1)]


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("json", b'{"id":"a","n":1}'),
        (codecs.JsonLines(), b'{"id":"a","n":1}\n'),
        (codecs.JsonArray(), b'[{"id":"a","n":1}]'),
        (codecs.Csv(), b"a,1"),
        (codecs.Csv(header=True), b"a,1"),
        (codecs.CloudEvents(), b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"id":"a","n":1}}'),
        (codecs.Debezium(), b'{"op":"c","after":{"id":"a","n":1}}'),
        (codecs.Debezium(), b'{"schema":null,"payload":{"op":"c","after":{"id":"a","n":1}}}'),
    ],
)
def test_a_byte_order_mark_belongs_to_no_field(codec: Any, value: bytes) -> None:
    """Values with and without one decode to the same record."""
    result = decoded(TextId, codec, [value, BOM + value])

    assert (result.events, result.bad) == ([TextId("a", 1)] * 2, [])
