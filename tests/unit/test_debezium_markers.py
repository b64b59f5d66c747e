"""What Debezium writes in place of data: unchanged large values, truncations, other kinds of messages."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import pytest

import penstock as ps
from penstock import codecs
from penstock.errors import PenstockError
from penstock.testing import Driver
from penstock.transport import MessageCopy, Outgoing
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

MARK = "__debezium_unavailable_value"
HOUR_MS = 3_600_000


class Doc(ps.Record, frozen=True):
    """A row with large values."""

    id: int
    at: Annotated[int, ps.metadata.Timestamp]
    title: str
    body: str | None = None
    image: bytes | None = None
    numbers: list[int] | None = None
    texts: list[str] | None = None


class View(ps.Record, frozen=True):
    """An event that is joined with a row."""

    id: int
    at: ps.EventTime


class Joined(ps.Record, frozen=True):
    """A view with the row."""

    id: int
    at: ps.EventTime
    row: str


KEYS = codecs.KeyFields(("id",))
DOCS = ps.Category(
    "docs", Doc, key="id", event_time="at", buckets=1, codec=codecs.Debezium(), key_codec=KEYS, compacted=True
)
VIEWS = ps.Category("views", View, key="id", event_time="at", buckets=1, key_codec=KEYS)
JOINED = ps.Category("joined", Joined, key="id", event_time="at", buckets=1, key_codec=KEYS)


def shown(row: Doc | None) -> str:
    """Return a row without its time."""
    return "no row" if row is None else repr((row.title, row.body, row.image, row.numbers, row.texts))


class Join(ps.TableJoin):
    """Joins views with the latest row."""

    table, stream, writes = DOCS, VIEWS, JOINED
    on_error: ClassVar[ps.ErrorPolicy | ps.Retry] = ps.ErrorPolicy.DEAD_LETTER

    def join(self, event: View, row: Doc | None, context: ps.Context) -> Iterable[Joined]:
        yield Joined(event.id, event.at, shown(row))


class OrderedJoin(Join):
    """Joins views with the row of their time."""

    ordered = True
    on_error = ps.ErrorPolicy.STOP
    watermark = ps.watermarks.BoundedOutOfOrderness()


class Lookup(ps.LookupJoin):
    """Joins views with the row of a table in memory."""

    reads, writes = VIEWS, JOINED
    source = ps.lookups.CategoryTable(DOCS)

    def key_of(self, event: View) -> str:
        return str(event.id)

    def join(self, event: View, row: Doc | None) -> Iterable[Joined]:
        yield Joined(event.id, event.at, shown(row))


class Titles(ps.Stateless):
    """Reads the rows as events."""

    reads, writes = DOCS, JOINED

    def process(self, event: Doc) -> Iterable[Joined]:
        yield Joined(event.id, event.at, shown(event))


def change(op: str, before: Any, after: Any) -> bytes:
    """Return a change."""
    return json.dumps({"before": before, "after": after, "source": {"table": "docs"}, "op": op, "ts_ms": 1}).encode()


FULL = {
    "id": 1,
    "title": "a",
    "body": "x" * 9_000,
    "image": b64encode(b"\x00\xff").decode(),
    "numbers": [1, 2],
    "texts": ["t"],
}
MARKED = {
    "id": 1,
    "title": "b",
    "body": MARK,
    "image": b64encode(MARK.encode()).decode(),
    "numbers": [*MARK.encode()],
    "texts": [MARK],
}
WANTED = repr(("b", "x" * 9_000, b"\x00\xff", [1, 2], ["t"]))


def put(driver: Driver, value: bytes | None, key: bytes | None = b'{"id":1}') -> None:
    """Write a change of the table."""
    driver.bus.append(DOCS.name, Outgoing(key, value, 0))
    driver.run()


def seen(driver: Driver) -> str:
    """Return the row that a view is joined with now."""
    driver.advance(1)
    now_ms = driver.clock.now_ms()
    driver.send(VIEWS, [View(1, now_ms)])
    driver.advance(6)  # a lookup table reads again after five seconds
    driver.send(VIEWS, [View(1, driver.clock.now_ms())])
    return driver.read(JOINED)[-1].row


@pytest.mark.parametrize("processor", [Join, OrderedJoin, Lookup])
def test_an_unchanged_value_stays_in_a_table(processor: type[Join | Lookup]) -> None:
    """The placeholder may have any of its forms. A null still replaces the value."""
    driver = Driver(processor)
    for value in (change("c", None, FULL), change("u", None, MARKED)):
        put(driver, value)

    if processor is OrderedJoin:
        put(driver, change("u", None, MARKED))
        driver.advance(70)
    assert seen(driver) == WANTED
    put(driver, change("u", None, {"id": 1, "title": "c", "body": None}))
    if processor is OrderedJoin:
        driver.advance(70)
    assert seen(driver) == repr(("c", None, None, None, None))


@pytest.mark.parametrize("processor", [Join, Lookup, Titles])
def test_the_row_before_the_change_has_the_value(processor: type[Join | Lookup | Titles]) -> None:
    """With REPLICA IDENTITY FULL, no table is needed."""
    driver = Driver(processor)
    put(driver, change("u", FULL, MARKED))

    assert (driver.read(JOINED)[0].row if processor is Titles else seen(driver)) == WANTED


@pytest.mark.parametrize("processor", [Join, Titles])
def test_an_unknown_value_is_a_dead_letter_and_never_data(processor: type[Join | Titles]) -> None:
    """A table without an earlier row, and a processor of rows, name the column and what to do."""
    driver = Driver(processor)
    put(driver, change("u", None, MARKED))

    [letter] = driver.dead_letters(processor)
    assert "lacks the unchanged value of `body`, `image`, `numbers`, `texts`" in letter.reason
    assert "REPLICA IDENTITY FULL" in letter.reason


def test_a_truncation_stops_a_join_and_clears_a_table_in_memory() -> None:
    """No row of the table is joined after it."""
    join, lookup = Driver(Join), Driver(Lookup)
    for driver in (join, lookup):
        put(driver, change("c", None, FULL))
    with pytest.raises(PenstockError, match=r"docs/0 at offset 1: the table was truncated .*penstock reset"):
        put(join, change("t", None, None), None)

    put(lookup, change("t", None, None), None)
    assert seen(lookup) == "no row"
    put(lookup, change("c", None, FULL))
    assert seen(lookup) != "no row"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (change("t", None, None), "the table was truncated (op 't')"),
        (change("c", None, '{"_id": 1}'), "`after` is a text, as MongoDB's connector writes it"),
        (b'{"ts_ms":1}', "a heartbeat of Debezium"),
        (b'{"status":"BEGIN","id":"571:1","event_count":null,"ts_ms":1}', "the begin or end of a transaction"),
    ],
)
def test_other_messages_are_named(value: bytes, reason: str) -> None:
    """Each has its own reason."""
    [bad] = Codecs(MemoryBus()).of(DOCS).decode([MessageCopy(value, b'{"id":1}')]).bad

    assert reason in bad.reason


def rows_with(marked: Mapping[str, Any], unavailable_value: str) -> tuple[list[Any], int]:
    """Return the rows that a codec with options reads, and the number of other messages."""
    category = ps.Category(
        "docs",
        Doc,
        key="id",
        event_time="at",
        codec=codecs.Debezium(unavailable_value=unavailable_value),
        key_codec=KEYS,
    )
    decoded = (
        Codecs(MemoryBus()).of(category).decode([MessageCopy(change("u", None, marked), b'{"id":1}', timestamp=(1, 5))])
    )
    return list(decoded.events), len(decoded.bad)


def test_the_placeholder_is_configurable() -> None:
    """The connector has the same setting. Without a placeholder, the text is ordinary."""
    assert rows_with({"id": 1, "title": "b", "body": "n/a"}, unavailable_value="n/a") == ([], 1)
    [row] = rows_with({"id": 1, "title": "b", "body": MARK}, unavailable_value="")[0]
    assert row.body == MARK


class Change(ps.Record, frozen=True):
    """A change as the record, with the row."""

    op: str
    ts_ms: int
    before: Doc | None = None
    after: Doc | None = None


class TitleOnly(ps.Record, frozen=True):
    """A row without its large values."""

    id: int
    title: str


class ChangedTitle(ps.Record, frozen=True):
    """A change of the title."""

    op: str
    ts_ms: int
    after: TitleOnly | None = None


class ChangedColumns(ps.Record, frozen=True):
    """A change of any columns."""

    op: str
    ts_ms: int
    after: dict[str, Any] | None = None


def changes_of(record: type[ps.Record], value: bytes, unavailable_value: str = MARK) -> tuple[list[Any], list[str]]:
    """Return the changes that a category of changes reads, and the reasons of the others."""
    codec = codecs.Debezium(envelope=True, unavailable_value=unavailable_value)
    category = ps.Category("docs", record, key="op", event_time="ts_ms", codec=codec)
    decoded = Codecs(MemoryBus()).of(category).decode([MessageCopy(value, b'{"id":1}', timestamp=(1, 5))])
    return list(decoded.events), [bad.reason for bad in decoded.bad]


def test_a_change_as_the_record_has_the_value_of_the_row_before() -> None:
    """A row gets the value in the same way."""
    row = {**FULL, "at": 7}
    [event], bad = changes_of(Change, change("u", row, {**MARKED, "at": 7}))

    assert not bad
    assert shown(event.after) == WANTED


@pytest.mark.parametrize("record", [Change, ChangedColumns])
def test_a_change_as_the_record_never_contains_the_placeholder(record: type[ps.Record]) -> None:
    """A processor of changes would take it for the text of a document."""
    events, [reason] = changes_of(record, change("u", None, {**MARKED, "at": 7}))

    assert not events
    assert "`after` lacks the unchanged value of `body`, `image`, `numbers`, `texts`" in reason
    assert "REPLICA IDENTITY FULL" in reason


def test_a_change_is_read_if_its_record_lacks_the_column() -> None:
    """The placeholder may even be declared to be an ordinary text."""
    [event], bad = changes_of(ChangedTitle, change("u", None, MARKED))
    [columns], none = changes_of(ChangedColumns, change("u", None, MARKED), unavailable_value="")

    assert (event.after, bad, none) == (TitleOnly(1, "b"), [], [])
    assert columns.after["body"] == MARK
