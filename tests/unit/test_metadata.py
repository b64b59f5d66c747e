"""Metadata fields: parts of messages besides their values, as fields of records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest

import penstock as ps
from penstock.errors import DeclarationError
from penstock.processors.declare import InvalidRecord, MessageHeaders
from penstock.testing import Crash, Driver
from penstock.transport import Bucket, MessageCopy, Outgoing
from penstock.transport.codecs import Codecs, encoded_messages, rejected_message
from penstock.transport.memory import MemoryBus

CREATED, APPENDED = 1, 2


class Full(ps.Record, frozen=True):
    """A record with every metadata field, between fields of the value."""

    page: str
    key: Annotated[str, ps.metadata.Key]
    at: Annotated[int, ps.metadata.Timestamp]
    count: int = 1
    raw_key: Annotated[bytes | None, ps.metadata.Key] = None
    source: Annotated[str | None, ps.metadata.Header("source")] = None
    trace: Annotated[bytes, ps.metadata.Header("trace")] = b"none"
    headers: Annotated[dict[str, bytes], ps.metadata.Headers] = msgspec.field(default_factory=dict)
    bucket: Annotated[int, ps.metadata.Partition] = -1
    offset: Annotated[int, ps.metadata.Offset] = -1


class Created(ps.Record, frozen=True):
    """A record at the producer's time."""

    page: str
    at: Annotated[int, ps.metadata.CreateTime]


class Appended(ps.Record, frozen=True):
    """A record at the broker's time."""

    page: str
    at: Annotated[int, ps.metadata.AppendTime]


class Required(ps.Record, frozen=True):
    """A record that requires a header."""

    page: str
    at: ps.EventTime
    source: Annotated[str, ps.metadata.Header("source")]


full = ps.Category("full", Full, key="key", event_time="at", buckets=2)


def decoded(record: type[ps.Record], *messages: MessageCopy, key: str = "page") -> Any:
    category = ps.Category("c", record, key=key, event_time="at")
    return Codecs(MemoryBus()).of(category).decode(messages)


@pytest.mark.parametrize("codec", ["json", "avro", ps.codecs.MessagePack(), ps.codecs.Csv()])
def test_metadata_fields_are_filled_from_the_message_with_every_codec(codec: Any) -> None:
    """The value contains only the other fields; the order of fields does not matter."""
    category = ps.Category("c", Full, key="key", event_time="at", codec=codec)
    subject = Codecs(MemoryBus()).of(category)
    [value] = subject.encode([Full("home", "ignored", 0, 7)])

    headers: MessageHeaders = [("source", b"web"), ("source", "größe".encode()), ("trace", None), ("x", b"\xff")]
    read = subject.decode([MessageCopy(value, b"k", 3, 41, (CREATED, 1_000), headers)])

    assert read.bad == []
    assert read.events == [
        Full("home", "k", 1_000, 7, b"k", "größe", b"none", {"source": "größe".encode(), "x": b"\xff"}, 3, 41)
    ]
    assert b"ignored" not in value


class Dated(ps.Record, frozen=True):
    """A record at the time of its message, as a datetime."""

    page: str
    at: Annotated[datetime, ps.metadata.CreateTime]


def test_a_timestamp_may_be_a_datetime() -> None:
    """It is in UTC. A timestamp beyond the year 9999 does not decode."""
    value = b'{"page":"home"}'
    read = decoded(Dated, *(MessageCopy(value, timestamp=(CREATED, time)) for time in (1_500, 2**60)))

    assert read.events == [Dated("home", datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC))]
    assert [bad.at for bad in read.bad] == [1]


class Nested(ps.Record, frozen=True):
    """The payload of an envelope."""

    ts: int


class Enveloped(ps.Record, frozen=True):
    """A record with a nested event time and a header."""

    page: str
    payload: Nested
    source: Annotated[str | None, ps.metadata.Header("source")] = None


def test_a_nested_event_time_is_distinguished_beside_metadata_fields() -> None:
    """It counts as a missing event time, not as another error."""
    category = ps.Category("c", Enveloped, key="page", event_time="payload.ts")
    subject = Codecs(MemoryBus()).of(category)

    read = subject.decode([MessageCopy(b'{"page":"a","payload":{"ts":5}}'), MessageCopy(b'{"page":"a","payload":{}}')])

    assert [event.payload.ts for event in read.events] == [5]
    assert [(bad.at, bad.untimed) for bad in read.bad] == [(1, True)]


class Numbered(ps.Record, frozen=True):
    """A record with a number as key."""

    page: str
    at: Annotated[int, ps.metadata.Timestamp]
    number: Annotated[int, ps.metadata.Key]


def test_a_key_is_decoded_by_the_key_codec_of_the_category() -> None:
    """A number is decoded from its eight bytes. Other bytes do not decode."""
    category = ps.Category("c", Numbered, key="number", event_time="at", key_codec=ps.KeyCodec.INT64)
    subject = Codecs(MemoryBus()).of(category)
    value, keys = b'{"page":"home"}', [(-7).to_bytes(8, "big", signed=True), b"7", None]

    read = subject.decode([MessageCopy(value, key, timestamp=(CREATED, 1)) for key in keys])

    assert read.events == [Numbered("home", 1, -7)]
    assert [bad.at for bad in read.bad] == [1, 2]
    assert [message.key for message in encoded_messages(category, subject, read.events)] == keys[:1]


def test_a_message_that_lacks_a_required_part_does_not_decode() -> None:
    """The reason names the field and its source; a missing event time counts as such."""
    value = b'{"page":"home"}'
    read = decoded(Full, MessageCopy(value, None, 0, 0, (CREATED, 1)), MessageCopy(value, b"k"), key="key")

    assert [(bad.at, bad.untimed) for bad in read.bad] == [(0, False), (1, True)]
    assert "Key" in read.bad[0].reason
    assert "`at`" in read.bad[1].reason

    [bad] = decoded(Required, MessageCopy(b'{"page":"home","at":1,"source":"in the value"}')).bad
    assert "Header(name='source')" in bad.reason


def test_other_messages_of_the_batch_are_unaffected() -> None:
    """A header that is not UTF-8 rejects one message."""
    value = b'{"page":"home","at":1}'
    messages = [MessageCopy(value, headers=[("source", raw)]) for raw in (b"a", b"\xff", b"b")]

    read = decoded(Required, *messages)

    assert [event.source for event in read.events] == ["a", "b"]
    assert list(read.at) == [0, 2]
    assert [bad.at for bad in read.bad] == [1]


@pytest.mark.parametrize(("record", "kind"), [(Created, CREATED), (Appended, APPENDED)])
def test_create_time_and_append_time_refuse_each_other(record: type[ps.Record], kind: int) -> None:
    """The times of producers and brokers are not exchanged silently."""
    value = b'{"page":"home"}'
    read = decoded(record, MessageCopy(value, timestamp=(kind, 5)), MessageCopy(value, timestamp=(3 - kind, 5)))

    assert [event.at for event in read.events] == [5]
    assert [bad.at for bad in read.bad] == [1]
    assert "declare Timestamp or" in read.bad[0].reason


def test_header_fields_are_written_as_headers() -> None:
    """`Header` fields overrule the entries of the `Headers` field; positions and times are not written."""
    codec = Codecs(MemoryBus()).of(full)
    records = [Full("home", "k", 1, source="web", trace=b"t", headers={"source": b"old", "x": b"1"}), Full("a", "k", 1)]

    written = list(encoded_messages(full, codec, records))

    assert written[0] == Outgoing(
        b"k", b'{"page":"home","count":1}', -1, [("source", b"web"), ("x", b"1"), ("trace", b"t")]
    )
    assert written[1].headers == [("trace", b"none")]


def test_a_header_of_another_type_is_refused() -> None:
    """Nothing is written."""
    with pytest.raises(InvalidRecord, match="`source` is 5"):
        list(encoded_messages(full, Codecs(MemoryBus()).of(full), [Full("home", "k", 1, source=5)]))  # type: ignore[arg-type]


class Wrong(ps.Record, frozen=True):
    """A metadata field of a wrong type."""

    page: str
    at: ps.EventTime
    source: Annotated[int, ps.metadata.Header("source")] = 0


class Twice(ps.Record, frozen=True):
    """A field with two sources."""

    page: str
    at: Annotated[int, ps.metadata.CreateTime, ps.metadata.Timestamp]


@pytest.mark.parametrize(("record", "named"), [(Wrong, "Wrong.source"), (Twice, "Twice.at")])
def test_a_wrong_metadata_field_is_refused_at_the_declaration(record: type[ps.Record], named: str) -> None:
    """The error names the field."""
    with pytest.raises(DeclarationError, match=named):
        ps.Category("c", record, key="page", event_time="at")


class Counted(ps.Record, frozen=True):
    """A count by source."""

    source: str
    at: ps.EventTime
    clicks: int
    tenant: Annotated[str | None, ps.metadata.Header("tenant")] = None


counted = ps.Category("counted", Counted, key="source", event_time="at", buckets=2)


class BySource(ps.Stateless):
    """Passes on metadata."""

    reads = full
    writes = counted

    def process(self, event: Full) -> Iterator[Counted]:
        yield Counted(event.source or "", event.at, event.offset, tenant=event.headers["tenant"].decode())


class Tolerant(BySource):
    """Sets bad messages aside."""

    on_undecodable = ps.ErrorPolicy.DEAD_LETTER


def test_processors_see_and_write_metadata() -> None:
    """Headers arrive, and leave as headers of the outputs."""
    driver = Driver(BySource)
    driver.send(full, [Full("home", "k", 0, source="web", headers={"tenant": b"ann"})])
    [found] = driver.read(counted)
    ends = driver.bus.ends("counted").items()
    messages = [message for number, end in ends for message in driver.bus.slice(Bucket("counted", number), 0, end)]

    assert found == Counted("web", found.at, 0, "ann")
    assert [message.headers() for message in messages] == [[("tenant", b"ann")]]
    assert b"tenant" not in (messages[0].value() or b"")


class CountBySource(ps.Stateful):
    """Counts the clicks of each key."""

    reads, writes, state = full, counted, int

    def process(self, event: Full, state: int | None, context: ps.Context) -> tuple[int, list[Counted]]:
        clicks = (state or 0) + 1
        return clicks, [Counted(event.source or "", event.at, clicks, tenant="ann")]


LEAST, MOST, EXACT = ps.Semantics.AT_LEAST_ONCE, ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("state", "output"), [(LEAST, LEAST), (EXACT, LEAST), (EXACT, EXACT), (MOST, MOST), (EXACT, MOST)]
)
def test_headers_are_sent_under_all_semantics(state: ps.Semantics, output: ps.Semantics) -> None:
    """They are sent at once, in a transaction, or after the state is saved. They survive a crash, except at most once."""
    attributes = {"state_semantics": state, "output_semantics": output, "name": "count_by_source"}
    processor = type("Declared", (CountBySource,), attributes)
    driver = Driver(processor)
    driver.send(
        full, [Full("home", "k", 0, source="web"), *([Crash()] if output is not MOST else []), Full("b", "k", 0)]
    )

    ends = driver.bus.ends("counted").items()
    messages = [one for number, end in ends for one in driver.bus.slice(Bucket("counted", number), 0, end)]

    assert len(messages) >= 2
    assert {tuple(message.headers() or ()) for message in messages} == {(("tenant", b"ann"),)}


def test_dead_letters_keep_headers_and_timestamps() -> None:
    """A rejected message can therefore be processed again."""
    driver = Driver(Tolerant)
    driver.bus.writer().send("full", [Outgoing(b"k", b"not JSON", headers=[("source", b"web"), ("trace", None)])])
    driver.run()

    [letter] = driver.dead_letters(Tolerant)

    assert rejected_message(letter).headers() == [("source", b"web"), ("trace", None)]
    assert rejected_message(letter).timestamp() == (APPENDED, driver.clock.now_ms())


def test_the_archive_contains_metadata_as_columns(tmp_path: Any) -> None:
    """They are ordinary columns, in any order."""
    from penstock.backfill.archive import ArchivedRows
    from penstock.backfill.warehouse import RecordColumns
    from penstock.transport import RawBatch

    message = MessageCopy(b'{"page":"home"}', b"k", 1, 9, (CREATED, 5), [("source", b"web")])
    rows = ArchivedRows(full, Codecs(MemoryBus()).of(full)).of(RawBatch(Bucket("full", 1), [message])).batch
    row: Mapping[str, Any] = rows.to_pylist()[0]

    assert (row["source"], row["headers"], row["offset"], row["_event_time"]) == ("web", [("source", b"web")], 9, 5)
    assert RecordColumns(Full).records(rows)[0].headers == {"source": b"web"}
