"""Contract of every codec, for any record and any bytes."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.processors import DeclarationError
from penstock.processors.declare import (
    AnyCategory,
    Codec,
    CodecName,
    DeadLetter,
    InvalidRecord,
    Message,
    Payload,
    Record,
)
from penstock.transport import Bucket, CategorySpec, MessageCopy
from penstock.transport.codecs import Codecs, dead_letter, decode_any, rejected_message
from penstock.transport.codecs.avro import schema_of
from penstock.transport.codecs.dead_letters import DeadLetterCodec
from penstock.transport.codecs.json_codec import JsonCodec
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import SCHEMAS, Schemas

INT64 = st.integers(-(2**63), 2**63 - 1)


class Inner(ps.Record, frozen=True):
    """A record within a record."""

    name: str
    weight: float | None


class Everything(ps.Record, frozen=True):
    """A field of each type that a record may have."""

    at: ps.EventTime
    key: str
    count: int
    ratio: float
    flag: bool
    raw: bytes
    maybe: str | None
    many: list[int]
    named: dict[str, float]
    inner: Inner
    inners: list[Inner]
    last: Inner | None = None


INNERS = st.builds(Inner, name=st.text(), weight=st.none() | st.floats(allow_nan=False, allow_infinity=False))
RECORDS = st.builds(
    Everything,
    at=INT64,
    key=st.text(),
    count=INT64,
    ratio=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(),
    raw=st.binary(),
    maybe=st.none() | st.text(),
    many=st.lists(INT64),
    named=st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
    inner=INNERS,
    inners=st.lists(INNERS),
    last=st.none() | INNERS,
)
BOTH = pytest.mark.parametrize("codec", ["json", "avro"])


class Old(ps.Record, frozen=True):
    """The earlier version of a record type."""

    at: ps.EventTime
    key: str
    gone: int


class New(ps.Record, frozen=True):
    """The later version: one field removed, one added, one widened."""

    at: ps.EventTime
    key: str
    since: str = "unknown"


def category(record: type[Record], codec: CodecName) -> AnyCategory:
    return ps.Category("c", record, key="key", event_time="at", codec=codec)


def messages(values: Iterable[bytes | None]) -> list[Message]:
    """Return messages with these values."""
    return list(map(MessageCopy, values))


def codec_of(record: type[Record], codec: CodecName, bus: MemoryBus | None = None) -> Codec:
    return Codecs(bus or MemoryBus()).of(category(record, codec))


@BOTH
@given(records=st.lists(RECORDS, max_size=5))
def test_a_batch_decodes_to_the_encoded_records(records: list[Everything], codec: CodecName) -> None:
    """Decoding an encoded batch returns the same records in the same order."""
    subject = codec_of(Everything, codec)

    decoded = subject.decode(messages(subject.encode(records)))

    assert decoded.events == records
    assert list(decoded.at) == list(range(len(records)))
    assert decoded.bad == []


@BOTH
@given(bad=st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=4), places=st.lists(st.integers(0, 6)))
def test_bad_messages_do_not_affect_good_ones(bad: list[bytes | None], places: list[int], codec: CodecName) -> None:
    """Only the bad messages are rejected, each with its index and a reason."""
    subject = codec_of(Old, codec)
    good = [Old(at=n, key=str(n), gone=n) for n in range(6)]
    values: list[bytes | None] = list(subject.encode(good))
    for place, value in zip([*places, *[0] * len(bad)], bad, strict=False):
        values.insert(place, value)

    decoded = subject.decode(messages(values))

    assert decoded.events == good
    assert [values[at] for at in decoded.at] == subject.encode(good)
    assert sorted([*decoded.at, *(b.at for b in decoded.bad)]) == list(range(len(values)))
    assert all(b.reason for b in decoded.bad)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"at":1,"key":"Mü","gone":1}'.encode("latin-1"), "not UTF-8"),
        (b'{"at":"\xfc","key":"a","gone":1}', "not UTF-8"),
        (b'{"at":1,"key":"a","gone":1,"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
    ],
)
def test_a_text_in_another_encoding_is_one_bad_message(bad: bytes, reason: str) -> None:
    """Values that are nested too deeply are bad messages, too. The worker continues."""
    decoded = codec_of(Old, "json").decode(messages([b'{"at":1,"key":"a","gone":1}', bad]))

    assert decoded.events == [Old(1, "a", 1)]
    assert [one.at for one in decoded.bad] == [1]
    assert reason in decoded.bad[0].reason


def test_json_may_begin_with_a_byte_order_mark() -> None:
    """Programs in .NET write one."""
    value = b'\xef\xbb\xbf{"at":1,"key":"a","gone":1}'

    assert codec_of(Old, "json").decode(messages([value, value])).events == [Old(1, "a", 1)] * 2


def test_two_halves_of_a_record_are_two_bad_messages() -> None:
    """The codec neither joins two halves into a record nor splits one message into two records."""
    subject = codec_of(Old, "json")
    whole = b'{"at":1,"key":"a","gone":1}'
    values: list[bytes | None] = [whole + whole, whole + b"\n" + whole, b'{"at":1,"key":"a",', b'"gone":1}', whole]

    decoded = subject.decode(messages(values))

    assert decoded.events == [Old(1, "a", 1)]
    assert [b.at for b in decoded.bad] == [0, 1, 2, 3]


def test_json_may_have_any_whitespace() -> None:
    """Messages of other writers decode, with newlines and spaces."""
    subject = codec_of(Old, "json")
    values: list[bytes | None] = [b'{\n "at": 1,\n "key": "a",\n "gone": 1 }\n', b' {"at":2,"key":"b","gone":2}']

    assert subject.decode(messages(values)).events == [Old(1, "a", 1), Old(2, "b", 2)]


@pytest.mark.parametrize("value", [b'{"key":"a","gone":1}', b'{"at":null,"key":"a","gone":1}'])
def test_a_missing_event_time_is_distinguished_from_other_errors(value: bytes) -> None:
    """If it is missing or null, the reason names the field."""
    [bad] = codec_of(Old, "json").decode(messages([value])).bad

    assert bad.untimed
    assert "'at'" in bad.reason


def test_other_errors_do_not_count_as_a_missing_event_time() -> None:
    """A field of a wrong type is an ordinary decoding error."""
    [bad] = codec_of(Old, "json").decode(messages([b'{"at":1,"key":2,"gone":1}'])).bad

    assert not bad.untimed


@BOTH
def test_a_newer_type_reads_old_messages(codec: CodecName) -> None:
    """A removed field is ignored; an added field has its default."""
    bus = MemoryBus()
    values = codec_of(Old, codec, bus).encode([Old(1, "a", 7)])

    assert codec_of(New, codec, bus).decode(messages(values)).events == [New(1, "a", "unknown")]


def test_an_avro_message_references_its_schema_on_the_bus() -> None:
    """A reader without the type can decode the message."""
    bus = MemoryBus()
    [value] = codec_of(Old, "avro", bus).encode([Old(1, "a", 7)])

    assert value[:2] == b"\xc3\x01"
    assert decode_any(value, Schemas(bus)) == {"at": 1, "key": "a", "gone": 7}
    assert bus.describe(SCHEMAS.name).ends == {0: 1}


def test_a_schema_is_published_once() -> None:
    """Another writer of the same type finds the published schema."""
    bus = MemoryBus()
    for _ in range(3):
        codec_of(Old, "avro", bus).encode([Old(1, "a", 7)])

    assert bus.describe(SCHEMAS.name).ends == {0: 1}


def test_avro_with_an_unknown_schema_is_a_bad_message() -> None:
    """It is rejected with the unpublished fingerprint."""
    [value] = codec_of(Old, "avro", MemoryBus()).encode([Old(1, "a", 7)])

    [bad] = codec_of(Old, "avro", MemoryBus()).decode(messages([value])).bad

    assert value[2:10].hex() in bad.reason


def test_a_type_without_an_avro_equivalent_is_refused() -> None:
    """The error names the field and an alternative."""

    class Odd(ps.Record, frozen=True):
        at: ps.EventTime
        key: str
        oddity: set[int]

    with pytest.raises(DeclarationError, match=r"Odd\.oddity"):
        schema_of(Odd)


def test_a_value_of_a_wrong_type_is_not_sent() -> None:
    """Encoding fails, and nothing reaches the bus."""
    wrong = Old(at="late", key="a", gone=1)  # type: ignore[arg-type]  # a user's code may do this
    with pytest.raises(TypeError, match="Old"):
        codec_of(Old, "avro").encode([wrong])
    with pytest.raises(TypeError, match="Old"):
        codec_of(Old, "json").encode([wrong])


def test_json_is_one_object_per_message() -> None:
    """Its keys are the names of the fields."""
    [value] = JsonCodec(Payload("c", Old, "at")).encode([Old(1, "a\nb", 7)])

    assert json.loads(value) == {"at": 1, "key": "a\nb", "gone": 7}


class Numbers(ps.Record, frozen=True):
    """Floats wherever a record may contain them."""

    at: ps.EventTime
    key: str
    ratio: float = 0.0
    maybe: float | None = None
    many: tuple[float, ...] = ()
    named: dict[str, float] | None = None
    inner: Inner | None = None


class Loose(Numbers, frozen=True):
    """Numbers with a field of any type, which only JSON supports."""

    anything: Any = None


class Counted(ps.Record, frozen=True):
    """An integer, and a list of strings."""

    at: ps.EventTime
    key: str
    count: int = 0
    many: tuple[str, ...] = ()


class Weighed(ps.Record, frozen=True):
    """A nested record with an integer."""

    name: str
    count: int


class Wide(ps.Record, frozen=True):
    """Integers inside nested records, lists and dicts only."""

    at: ps.EventTime
    key: str
    many: tuple[int, ...] = ()
    named: dict[str, int] | None = None
    inner: Weighed | None = None


class Measured(ps.Record, frozen=True):
    """A float."""

    at: ps.EventTime
    key: str
    ratio: float


BOTH_OR_JSON = pytest.mark.parametrize(("codec", "record"), [("json", Numbers), ("avro", Numbers), ("json", Loose)])


@BOTH_OR_JSON
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("field", "around"),
    [
        ("ratio", lambda it: it),
        ("maybe", lambda it: it),
        ("many", lambda it: [1.0, it]),
        ("named", lambda it: {"a": 1.0, "b": it}),
        ("inner", lambda it: Inner("x", it)),
    ],
)
def test_a_float_that_is_not_finite_is_refused_anywhere_in_a_record(
    codec: CodecName, record: type[Record], field: str, around: Callable[[float], object], number: float
) -> None:
    """The error names the field. The codec writes neither null nor NaN in its place."""
    subject = codec_of(record, codec)
    records = [record(at=n, key="a") for n in range(7)]
    records.append(record(at=7, key="a", **{field: around(number)}))

    with pytest.raises(InvalidRecord, match=f"{record.__name__}.*`{field}.*{number}"):
        subject.encode(records)


@BOTH
@pytest.mark.parametrize("wrong", [{"count": "five"}, {"count": 2**63}, {"count": 1.5}, {"key": None}, {"many": [1]}])
def test_every_record_of_a_batch_is_checked(codec: CodecName, wrong: dict[str, object]) -> None:
    """A record that does not match its type is found at any index, and nothing is encoded."""
    subject = codec_of(Counted, codec)
    records = [Counted(at=n, key="a") for n in range(5)]
    records.insert(4, Counted(**{"at": 4, "key": "a", **wrong}))  # type: ignore[arg-type]  # the error under test

    with pytest.raises(InvalidRecord, match=next(iter(wrong))):
        subject.encode(records)


@BOTH
@settings(deadline=None)
@given(count=st.integers(-(2**70), 2**70))
def test_integers_have_64_bits(codec: CodecName, count: int) -> None:
    """The codec refuses to write wider integers."""
    subject = codec_of(Counted, codec)

    if -(2**63) <= count < 2**63:
        assert subject.decode(messages(subject.encode([Counted(1, "a", count)]))).events == [Counted(1, "a", count)]
    else:
        with pytest.raises(InvalidRecord, match="64 bits"):
            subject.encode([Counted(1, "a", count)])


@settings(deadline=None)
@given(count=st.integers(-(2**70), 2**70), before=st.integers(0, 3))
def test_a_message_with_a_wider_integer_is_rejected(count: int, before: int) -> None:
    """No state, Avro schema or column supports it; the codec rejects it alone or among good messages."""
    good = b'{"at":1,"key":"a"}'
    values: list[bytes | None] = [*[good] * before, b'{"at":1,"key":"a","count":%d}' % count, good]

    decoded = codec_of(Counted, "json").decode(messages(values))

    fits = -(2**63) <= count < 2**63
    assert [bad.at for bad in decoded.bad] == ([] if fits else [before])
    assert len(decoded.events) == before + 1 + fits
    assert all("64 bits" in bad.reason for bad in decoded.bad)


def test_a_wider_integer_inside_a_nested_value_is_found() -> None:
    """Lists, dicts and nested records are checked."""
    values: list[bytes | None] = [
        b'{"at":1,"key":"a","many":[1,%d]}' % 2**64,
        b'{"at":1,"key":"a","named":{"x":%d}}' % 2**64,
        b'{"at":1,"key":"a","inner":{"name":"x","count":%d}}' % 2**64,
    ]

    assert [bad.at for bad in codec_of(Wide, "json").decode(messages(values)).bad] == [0, 1, 2]


def test_avro_that_carries_nan_is_a_bad_message() -> None:
    """Another writer may send NaN; records, states and columns contain finite floats only."""
    bus = MemoryBus()
    subject = codec_of(Measured, "avro", bus)
    [value] = subject.encode([Measured(1, "a", 0.5)])
    half, nan = struct.pack("<d", 0.5), struct.pack("<d", math.nan)

    decoded = subject.decode(messages([value, value.replace(half, nan)]))

    assert decoded.events == [Measured(1, "a", 0.5)]
    assert [bad.at for bad in decoded.bad] == [1]
    assert "ratio" in decoded.bad[0].reason


class Born(ps.Record, frozen=True):
    """A record that ends with a date."""

    key: str
    at: ps.EventTime
    born: date


class Seen(ps.Record, frozen=True):
    """A record that ends with a time."""

    key: str
    at: ps.EventTime
    seen: datetime


def zigzag(number: int) -> bytes:
    """Return a number as Avro encodes it."""
    rest, encoded = number * 2 if number >= 0 else -number * 2 - 1, bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*encoded, rest])


@pytest.mark.parametrize("number", [3_000_000, 2**31 - 1, -800_000])
def test_a_date_in_avro_outside_the_years_of_the_calendar_is_a_bad_message(number: int) -> None:
    """Other writers may send one, such as 9999-12-31 in another time zone. The worker continues."""
    subject = codec_of(Born, "avro")
    good = Born("a", 1, date(2026, 1, 31))
    _expect_bad_time(subject, good, zigzag((good.born - date(1970, 1, 1)).days), zigzag(number))


@pytest.mark.parametrize("number", [253_402_300_800_000_000, 2**62, -(2**62)])
def test_a_time_in_avro_outside_the_years_of_the_calendar_is_a_bad_message(number: int) -> None:
    """The codec treats it like a date."""
    subject = codec_of(Seen, "avro")
    good = Seen("a", 1, datetime(2026, 1, 31, tzinfo=UTC))
    _expect_bad_time(subject, good, zigzag(round(good.seen.timestamp() * 1e6)), zigzag(number))


def _expect_bad_time(subject: Codec, good: Any, own: bytes, other: bytes) -> None:
    [value] = subject.encode([good])
    assert value.endswith(own)

    decoded = subject.decode(messages([value.removesuffix(own) + other, value]))

    assert decoded.events == [good]
    assert [bad.at for bad in decoded.bad] == [0]
    assert "outside the years 1 to 9999" in decoded.bad[0].reason


LETTERS = st.builds(
    DeadLetter,
    category=st.text(max_size=20),
    bucket=st.integers(0, 999),
    offset=st.integers(0, 2**63 - 1),
    reason=st.text(max_size=200) | st.just("é" * 300_000),
    key=st.none() | st.binary(max_size=50) | st.just(b"k" * 30_000),
    value=st.none()
    | st.binary(max_size=200)
    | st.sampled_from([bytes([b]) * n for b in (0, 255) for n in (750_000, 999_990, 3_000_000)]),
    at=INT64,
)


@given(letter=LETTERS)
@settings(deadline=None)
def test_a_dead_letter_contains_the_bytes_and_fits_the_bus_limit(letter: DeadLetter) -> None:
    """Every message that the bus accepted has a dead letter that it accepts; longer parts are cut, and the cut bytes counted."""
    bus, category = (
        MemoryBus(),
        ps.Category("x.dead_letters", DeadLetter, key=lambda one: one.category, event_time="at"),
    )
    bus.create(CategorySpec.of(category))
    codec = Codecs(bus).of(category)

    [value] = codec.encode([letter])
    [read] = codec.decode(messages([value])).events

    assert len(value) < bus.message_limit(category.name) - 512
    assert (letter.key or b"").startswith(read.key or b"")
    assert (letter.value or b"").startswith(read.value or b"")
    assert read.truncated_bytes == len(letter.key or b"") + len(letter.value or b"") - len(read.key or b"") - len(
        read.value or b""
    )
    assert (read.category, read.bucket, read.offset) == (letter.category, letter.bucket, letter.offset)
    if len(letter.value or b"") <= 800_000 and len(letter.reason) < 1_000:
        assert read.value == letter.value
    assert decode_any(value, Schemas(MemoryBus()))["offset"] == letter.offset


def test_a_message_that_is_not_a_dead_letter_is_rejected() -> None:
    """The codec rejects other messages in the dead-letter category."""
    codec = DeadLetterCodec(lambda: 10_000)

    assert [bad.at for bad in codec.decode(messages([b"{}", None, b"\xc1\x01rubbish", b""])).bad] == [0, 1, 2, 3]


@pytest.mark.parametrize(("size", "kept"), [(10, 3), (10_000, 3), (200_000, 0)])
def test_a_dead_letter_contains_the_headers_or_counts_their_bytes(size: int, kept: int) -> None:
    """The letter returns the message that was rejected, with its timestamp; large headers are omitted as a whole."""
    headers = [("a", b"x" * size), ("größe", None), ("a", b"")]
    message = MessageCopy(b"v" * 900_000, b"k", 3, 4, (1, 5), headers)
    codec = DeadLetterCodec(lambda: 1_000_000)

    [value] = codec.encode([dead_letter(message, Bucket("c", 3), "reason", 9)])
    [read] = codec.decode([MessageCopy(value)]).events
    found = rejected_message(read)

    assert len(value) < 1_000_000 - 512
    assert (found.key(), found.partition(), found.offset(), found.timestamp()) == (b"k", 3, 4, (1, 5))
    assert found.headers() == (headers if kept else None)
    omitted = 0 if kept else size + len("agrößea".encode())
    assert read.truncated_bytes == omitted + 900_000 - len(found.value() or b"")


@pytest.mark.parametrize("limit", [16_384, 65_536, 262_144])
def test_a_dead_letter_fits_a_small_message_limit(limit: int) -> None:
    """The longest reason and key leave room for the required fields; cut bytes are counted."""
    letter = DeadLetter("x" * 249, 3, 4, "\N{EURO SIGN}" * 20_000, b"k" * 20_000, b"v" * 300_000, 0)
    codec = DeadLetterCodec(lambda: limit)

    [value] = codec.encode([letter])
    [read] = codec.decode(messages([value])).events

    assert len(value) < limit - 512
    assert read.truncated_bytes == 320_000 - len(read.key or b"") - len(read.value or b"")
