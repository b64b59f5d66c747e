"""Formats of `penstock.codecs` without a schema, and a codec of one's own program."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import DeclarationError
from penstock.processors.declare import Codec, CodecSpec, InvalidRecord, headers_of
from penstock.testing import Driver
from penstock.transport import MessageCopy, Outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


class Flat(ps.Record, frozen=True):
    """A record of scalars, with a name on the bus."""

    at: ps.EventTime
    key: str
    count: int
    ratio: float
    flag: bool
    raw: bytes
    maybe: int | None = None
    note: str = msgspec.field(name="Note", default="none")


class Nested(ps.Record, frozen=True):
    """A record with a list and a record."""

    at: ps.EventTime
    key: str
    many: list[int]
    inner: Flat | None


FLATS = st.builds(
    Flat,
    at=INT64,
    key=TEXT,
    count=INT64,
    ratio=st.floats(allow_nan=False, allow_infinity=False),
    flag=st.booleans(),
    raw=st.binary(),
    maybe=st.none() | INT64,
    note=TEXT,
)
NESTED = st.builds(Nested, at=INT64, key=TEXT, many=st.lists(INT64), inner=st.none() | FLATS)


class Line(ps.Record, frozen=True):
    """A value that is text."""

    text: str
    host: Annotated[str, ps.metadata.Key]
    at: Annotated[int, ps.metadata.Timestamp]


class Element(ps.Record, frozen=True):
    """An element of an array."""

    id: str
    at: int


class Elements(ps.Record, frozen=True):
    """An array."""

    rows: list[Element]
    received: Annotated[int, ps.metadata.Timestamp]
    gateway: Annotated[str, ps.metadata.Key] = ""


class Image(ps.Record, frozen=True):
    """A value that is bytes."""

    content: bytes
    host: Annotated[str, ps.metadata.Key]
    at: Annotated[int, ps.metadata.Timestamp]


class Ping(ps.Record, frozen=True):
    """A message without a value."""

    host: Annotated[str, ps.metadata.Key]
    at: Annotated[int, ps.metadata.Timestamp]
    event: Annotated[str, ps.metadata.Header("event")]


@dataclass(frozen=True)
class Query:
    """A codec of one's own: `at=1&key=a`, with JSON values."""

    def open(self, payload: ps.codecs.Payload) -> Codec:
        return _QueryCodec(payload)


class _QueryCodec(ps.codecs.FieldsCodec):
    def to_bytes(self, fields: dict[str, Any]) -> bytes:
        return b"&".join(
            name.encode() + b"=" + msgspec.json.encode(value).hex().encode() for name, value in fields.items()
        )

    def to_fields(self, message: ps.codecs.Message) -> Mapping[str, Any]:
        try:
            pairs = [pair.split("=", 1) for pair in ps.codecs.value_of(message).decode().split("&")]
            return {name: msgspec.json.decode(bytes.fromhex(value)) for name, value in pairs}
        except ValueError as error:
            raise ps.codecs.UndecodableValue(f"not a query: {error}") from error


def codec_of(record: type[ps.Record], codec: CodecSpec, key: str = "key") -> Codec:
    return Codecs(MemoryBus()).of(ps.Category("c", record, key=key, event_time="at", codec=codec))


@pytest.mark.parametrize("spec", [ps.codecs.Json(), ps.codecs.MessagePack(), Query()])
@given(records=st.lists(NESTED, max_size=4))
def test_records_are_read_as_they_were_written(spec: CodecSpec, records: list[Nested]) -> None:
    """Records may be nested."""
    subject = codec_of(Nested, spec)

    decoded = subject.decode(list(map(MessageCopy, subject.encode(records))))

    assert decoded.events == records
    assert decoded.bad == []


@pytest.mark.parametrize("spec", [ps.codecs.Csv(null="\\N"), ps.codecs.Csv(separator="\t", null="NULL")])
@given(records=st.lists(FLATS, max_size=4))
def test_csv_records_are_read_as_they_were_written(spec: CodecSpec, records: list[Flat]) -> None:
    """They may contain separators, quotes, line breaks and empty text."""
    subject = codec_of(Flat, spec)

    decoded = subject.decode(list(map(MessageCopy, subject.encode(records))))

    assert decoded.events == records
    assert decoded.bad == []


@pytest.mark.parametrize(
    "spec", [ps.codecs.Json(), ps.codecs.MessagePack(), ps.codecs.Csv(), Query()], ids=lambda spec: type(spec).__name__
)
@given(bad=st.none() | st.binary(max_size=30))
def test_bad_messages_do_not_affect_good_ones(spec: CodecSpec, bad: bytes | None) -> None:
    """Each bad message has a reason."""
    subject = codec_of(Flat, spec)
    good = [Flat(n, str(n), n, 1.0, flag=True, raw=b"") for n in range(2)]
    first, second = subject.encode(good)

    decoded = subject.decode([MessageCopy(first), MessageCopy(bad), MessageCopy(second)])

    assert decoded.events == good
    assert list(decoded.at) == [0, 2]
    assert [(one.at, bool(one.reason)) for one in decoded.bad] == [(1, True)]


def test_messages_are_what_other_programs_write() -> None:
    """Python's own modules read them, and the bytes of MessagePack are written by hand."""
    record = Flat(1, 'a,"b"', 2, 0.5, flag=True, raw=b"\xff", note="x")

    [line] = codec_of(Flat, ps.codecs.Csv()).encode([record])
    [packed] = codec_of(Nested, ps.codecs.MessagePack()).encode([Nested(1, "a", [2], None)])
    [text] = codec_of(Flat, ps.codecs.Json()).encode([record])

    assert next(csv.reader(io.StringIO(line.decode()))) == ["1", 'a,"b"', "2", "0.5", "true", "/w==", "", "x"]
    assert packed == b"\x84\xa2at\x01\xa3key\xa1a\xa4many\x91\x02\xa5inner\xc0"
    assert json.loads(text)["Note"] == "x"


def test_numbers_in_strings_are_read_if_declared() -> None:
    """`Json(strict=False)` reads producers that quote every value."""
    message = MessageCopy(b'{"at":"5","key":"a","count":"7","ratio":"0.5","flag":"true","raw":""}')

    assert codec_of(Flat, ps.codecs.Json(strict=False)).decode([message]).events == [Flat(5, "a", 7, 0.5, True, b"")]
    assert [bad.at for bad in codec_of(Flat, ps.codecs.Json()).decode([message]).bad] == [0]


@pytest.mark.parametrize("spec", [ps.codecs.MessagePack(), Query()])
def test_a_missing_event_time_is_distinguished(spec: CodecSpec) -> None:
    """Its own policy applies to such a message."""

    class Untimed(ps.Record, frozen=True):
        key: str
        many: list[int]

    payload = ps.codecs.Payload("c", Untimed, None)
    [value] = spec.open(payload).encode([Untimed("a", [])])
    [bad] = codec_of(Nested, spec).decode([MessageCopy(value)]).bad

    assert bad.untimed
    assert "'at'" in bad.reason


def test_the_whole_value_may_be_text_or_bytes() -> None:
    """Other fields are metadata fields."""
    lines, images = codec_of(Line, ps.codecs.Text(), "host"), codec_of(Image, ps.codecs.Bytes(), "host")

    assert lines.encode([Line("größe", "h", 0)]) == ["größe".encode()]
    assert lines.decode([MessageCopy(b"", b"h", timestamp=(1, 5))]).events == [Line("", "h", 5)]
    assert [bad.at for bad in lines.decode([MessageCopy(b"\xff", b"h", timestamp=(1, 5))]).bad] == [0]
    assert images.encode([Image(b"\x00\xff", "h", 0)]) == [b"\x00\xff"]
    assert images.decode([MessageCopy(b"\xff\x00", b"h", timestamp=(1, 5))]).events == [Image(b"\xff\x00", "h", 5)]


@pytest.mark.parametrize("value", [None, b"", b"{}", b"\xff"])
def test_a_message_without_a_value_may_be_a_record(value: bytes | None) -> None:
    """Its fields are in headers, and a value is ignored. A record is written with a value, since null deletes a key."""
    codec = codec_of(Ping, ps.codecs.NoValue(), "host")
    read = codec.decode([MessageCopy(value, b"h", timestamp=(1, 5), headers=[("event", b"up")])])
    without = codec.decode([MessageCopy(value, b"h", timestamp=(1, 5))])

    assert read.events == [Ping("h", 5, "up")]
    assert ["which `event` requires" in bad.reason for bad in without.bad] == [True]
    assert codec.encode(read.events) == [b""]
    assert headers_of(codec, read.events) == [[("event", b"up")]]


def test_an_array_is_a_record_with_a_list() -> None:
    """A processor yields the elements. A message with an object, or with an element of another type, is undecodable."""
    arrays = ps.Category(
        "arrays", Elements, key="gateway", event_time="received", codec=ps.codecs.JsonArray(), buckets=1
    )
    elements = ps.Category("elements", Element, key="id", event_time="at", buckets=2)

    class Explode(ps.Stateless[Elements, Element]):
        reads, writes = arrays, elements

        def process(self, event: Elements) -> list[Element]:
            return event.rows

    codec = Codecs(MemoryBus()).of(arrays)
    assert codec.encode([Elements([Element("a", 1)], 0, "g"), Elements([], 0, "g")]) == [b'[{"id":"a","at":1}]', b"[]"]
    driver = Driver(Explode)
    driver.send(arrays, [b'[{"id":"a","at":1},{"id":"b","at":2}]', b'{"id":"a"}', b'[{"id":3,"at":1}]', b"[]"])
    assert sorted(element.id for element in driver.read(elements)) == ["a", "b"]
    reasons = [letter.reason for letter in driver.dead_letters(Explode)]
    assert ["not an array" in reason for reason in reasons] == [True, False]
    assert "rows" in reasons[1]


@pytest.mark.parametrize(
    ("spec", "record", "reason"),
    [
        (ps.codecs.Text(), Flat, "exactly one str field"),
        (ps.codecs.Bytes(), Line, "exactly one bytes field"),
        (ps.codecs.NoValue(), Line, "host, text, at|text, host, at"),
        (ps.codecs.Csv(), Nested, "Nested.many"),
        (ps.codecs.Csv(columns=("at", "page")), Flat, "'page' is not a field"),
    ],
)
def test_a_record_that_a_format_cannot_represent_is_refused(
    spec: CodecSpec, record: type[ps.Record], reason: str
) -> None:
    """It is refused before the first message."""
    with pytest.raises(DeclarationError, match=reason):
        spec.open(ps.codecs.Payload("c", record, "at"))


def test_a_worker_refuses_such_a_category_before_it_reads() -> None:
    """The refusal needs no message."""
    numbers = ps.Category("numbers", Flat, key="key", event_time="at", codec=ps.codecs.Text())

    class Copy(ps.Stateless):
        reads = numbers
        writes = ps.Category("copied", Flat, key="key", event_time="at")

        def process(self, event: Flat) -> Iterable[Flat]:
            return [event]

    with pytest.raises(DeclarationError, match="exactly one str field"):
        Driver(Copy).run()


def test_csv_refuses_text_that_would_be_read_as_none() -> None:
    """An optional field cannot contain the text for None."""

    class Noted(ps.Record, frozen=True):
        at: ps.EventTime
        key: str
        note: str | None

    subject = ps.codecs.Csv().open(ps.codecs.Payload("c", Noted, "at"))

    with pytest.raises(InvalidRecord, match="`note`"):
        subject.encode([Noted(1, "a", "")])


class Row(ps.Record, frozen=True):
    """A row of a table."""

    at: int
    shop: str = msgspec.field(name="Shop ID")
    note: str | None = None


class Table(ps.Record, frozen=True):
    """The rows of a message."""

    rows: list[Row]
    received: Annotated[int, ps.metadata.Timestamp]
    key: Annotated[str, ps.metadata.Key]


def table_codec(spec: CodecSpec) -> Codec:
    return Codecs(MemoryBus()).of(ps.Category("c", Table, key="key", event_time="received", codec=spec))


def table_message(value: bytes) -> MessageCopy:
    return MessageCopy(value, b"a", timestamp=(1, 5))


ROWS = st.lists(st.builds(Row, st.integers(0, 2**50), st.text(max_size=5), st.none() | st.text(min_size=1, max_size=5)))


@pytest.mark.parametrize("spec", [ps.codecs.Csv(), ps.codecs.Csv(header=True, separator=";")])
@given(rows=ROWS)
def test_csv_tables_are_read_as_they_were_written(spec: CodecSpec, rows: list[Row]) -> None:
    """They may lack a header line, and may have no rows."""
    subject = table_codec(spec)

    [value] = subject.encode([Table(rows, 5, "a")])
    decoded = subject.decode([table_message(value)])

    assert decoded.bad == []
    assert decoded.events == [Table(rows, 5, "a")]


@pytest.mark.parametrize(
    "value", [b"at,Shop ID,note\n1,a,\n\n2,b,x\n", b'\xef\xbb\xbfat,"Shop ID",note\r\n1,a,\r\n2,b,x']
)
def test_csv_tables_of_other_programs_are_read(value: bytes) -> None:
    """They have line breaks of both kinds, blank lines, and a byte order mark before the header line."""
    decoded = table_codec(ps.codecs.Csv(header=True)).decode([table_message(value)])

    assert [one.rows for one in decoded.events] == [[Row(1, "a"), Row(2, "b", "x")]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "its first line is not the header line with at, Shop ID, note"),
        (b"1,a,", "its first line is not the header line"),
        (b"Shop ID,at,note\na,1,", "its first line is not the header line"),
        (b"at,Shop ID,note\n1,a,x\n2,b", "2 values in row 2, not 3"),
        (b"at,Shop ID,note\nx,a,x", "Expected `int`"),
    ],
)
def test_other_tables_are_undecodable(value: bytes, reason: str) -> None:
    """The whole table is undecodable, with the line and the reason."""
    decoded = table_codec(ps.codecs.Csv(header=True)).decode([table_message(value)])

    assert decoded.events == []
    assert [reason in one.reason for one in decoded.bad] == [True]


def test_header_lines_between_csv_records_are_skipped() -> None:
    """They become neither records nor dead letters. Without `header`, they do not decode."""
    shops = ps.Category("shops", Row, key="shop", event_time="at", buckets=1, codec=ps.codecs.Csv(header=True))

    class Copy(ps.Stateless):
        reads, writes = shops, ps.Category("copied", Row, key="shop", event_time="at")

        def process(self, event: Row) -> Iterable[Row]:
            return [event]

    lines = [b"at,Shop ID,note", b"1,a,x", b"\xef\xbb\xbfat,Shop ID,note\r\n", b"2,b,"]
    driver = Driver(Copy)
    driver.bus.writer().send("shops", list(map(Outgoing, [b"a"] * 4, lines)))
    driver.run()
    strict = codec_of(Row, ps.codecs.Csv(), key="shop").decode(list(map(MessageCopy, lines)))

    assert driver.read(Copy.writes) == [Row(1, "a", "x"), Row(2, "b")]
    assert driver.dead_letters(Copy) == []
    assert [one.at for one in strict.bad] == [0, 2]


def test_a_csv_record_that_readers_would_skip_is_refused() -> None:
    """A record with the names of all columns as its values is a header line."""

    class Named(ps.Record, frozen=True):
        key: str
        name: str
        at: ps.EventTime = 0

    subject = ps.codecs.Csv(("key", "name"), header=True).open(ps.codecs.Payload("c", Named, "at"))

    with pytest.raises(InvalidRecord, match="readers of c would skip it"):
        subject.encode([Named("key", "name")])
    assert subject.encode([Named("key", "key")]) == [b"key,key"]


def test_codecs_are_compared_by_value_and_checked_in_declarations() -> None:
    """Equal declarations are one category. An object or class without `open` is refused."""
    assert ps.codecs.Csv(separator=";") == ps.codecs.Csv(separator=";") != ps.codecs.Csv()
    for wrong in ("xml", 5, ps.codecs.Csv):
        with pytest.raises(DeclarationError, match="Use 'json' or 'avro'"):
            ps.Category("c", Flat, key="key", event_time="at", codec=wrong)  # type: ignore[arg-type]
