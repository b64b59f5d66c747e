"""Event times from fields, nested fields, other units, datetimes and functions; keys with two names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.backfill.archive import ArchivedRows
from penstock.errors import DeclarationError
from penstock.processors.declare import InvalidRecord, plan_of
from penstock.processors.shard import EventRejected
from penstock.testing import Driver
from penstock.transport import Bucket, MessageCopy, Outgoing, RawBatch
from penstock.transport.codecs import Codecs
from penstock.transport.memory import MemoryBus

NOON_MS = 1_709_208_000_123
NOON = datetime(2024, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)


class Payload(ps.Record, frozen=True, rename="camel"):
    """A nested record."""

    written_at: int
    maybe_at: int | None = None


class Event(ps.Record, frozen=True, rename="camel"):
    """A record as other programs write it."""

    user_id: str
    at_ms: int = NOON_MS
    at_s: int = NOON_MS // 1_000
    at_us: int = NOON_MS * 1_000 + 999
    at_ns: int = NOON_MS * 1_000_000 + 999_999
    float_s: float = NOON_MS / 1_000
    created: datetime = NOON
    maybe_ms: int | None = None
    maybe_created: datetime | None = None
    payload: Payload | None = None
    inner: Payload = Payload(NOON_MS)
    text: str = "2024-02-29T12:00:00.123Z"
    by_name: dict[str, int] = {}  # noqa: RUF012 - msgspec copies it


def from_text(event: Event) -> datetime:
    """Return the time in a text field."""
    return datetime.fromisoformat(event.text)


def category(event_time: Any, **options: Any) -> ps.Category[Event]:
    """Return a category of events."""
    return ps.Category("events", Event, key="userId", event_time=event_time, **options)


@pytest.mark.parametrize(
    ("event_time", "expected_ms", "column"),
    [
        ("atMs", NOON_MS, "atMs"),
        ("at_ms", NOON_MS, "atMs"),
        (ps.TimeField("at_ms"), NOON_MS, "atMs"),
        (ps.TimeField("atS", unit=ps.TimeUnit.SECONDS), NOON_MS // 1_000 * 1_000, None),
        (ps.TimeField("atUs", unit=ps.TimeUnit.MICROSECONDS), NOON_MS, None),
        (ps.TimeField("atNs", unit=ps.TimeUnit.NANOSECONDS), NOON_MS, None),
        (ps.TimeField("floatS", unit=ps.TimeUnit.SECONDS), NOON_MS, None),
        ("created", NOON_MS, None),
        ("inner.writtenAt", NOON_MS, None),
        ("inner.written_at", NOON_MS, None),
        (ps.TimeField("inner.written_at", unit=ps.TimeUnit.MICROSECONDS), NOON_MS // 1_000, None),
        (from_text, NOON_MS, None),
        (lambda event: event.at_s * 1_000, NOON_MS // 1_000 * 1_000, None),
    ],
)
def test_event_times_are_milliseconds_whatever_their_source(
    event_time: Any, expected_ms: int, column: str | None
) -> None:
    """Both names of a field work; only a top-level field in milliseconds is a column of event times."""
    subject = category(event_time)

    assert subject.event_times_of([Event("ann")]) == [expected_ms]
    assert subject.times.column == column


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_floats_of_seconds_keep_their_milliseconds(time_ms: int) -> None:
    """A float has no exact milliseconds, so rounding down alone would lose one."""
    subject = category(ps.TimeField("float_s", unit=ps.TimeUnit.SECONDS))

    assert subject.event_times_of([Event("ann", float_s=time_ms / 1_000)]) == [time_ms]


@pytest.mark.parametrize(
    ("event_time", "error"),
    [
        ("at_mss", r"`event_time='at_mss'` is not a field of Event, .*Did you mean .at_ms.\?"),
        ("inner.writtenAtt", r"'writtenAtt' is not a field of Payload, .*Did you mean .writtenAt.\?"),
        ("text.at", "'text' of Event is not a record"),
        ("text", "the event time 'text' of Event has the wrong type"),
        ("floatS", r"event_time=penstock.TimeField\('floatS', unit=…\)"),
        (ps.TimeField("created"), "has the wrong type"),
        (ps.TimeField("atMs", unit="s"), "penstock.TimeUnit"),  # type: ignore[arg-type]  # a fault
        (5, "event_time=5 has the wrong type"),
    ],
)
def test_wrong_declarations_of_event_times_are_refused(event_time: Any, error: str) -> None:
    """The error names the field, and suggests the nearest name."""
    with pytest.raises(DeclarationError, match=error):
        category(event_time)


@pytest.mark.parametrize("name", ["user_id", "userId"])
def test_keys_have_both_names(name: str) -> None:
    """A renamed key field may be declared by its Python name or its name on the bus."""
    subject = ps.Category("events", Event, key=name, event_time="at_ms")

    assert subject.keys_of([Event("ann")]) == ["ann"]
    assert subject.key == "userId"


def test_a_name_of_two_fields_is_refused() -> None:
    """Either field could be meant."""

    class Swapped(ps.Record, frozen=True):
        at: int
        key: str = msgspec.field(name="other")
        other: str = msgspec.field(name="key")

    with pytest.raises(DeclarationError, match="`key='key'` names two fields"):
        ps.Category("c", Swapped, key="key", event_time="at")


CODECS: list[Literal["json", "avro"]] = ["json", "avro"]


def decoded(event_time: Any, codec: Literal["json", "avro"], event: Event) -> Any:
    """Encode an event of an unchecked category, and decode it with an event time."""
    bus = MemoryBus()
    [value] = Codecs(bus).of(category("at_ms", codec=codec)).encode([event])
    return Codecs(bus).of(category(event_time, codec=codec)).decode([MessageCopy(value)])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "event_time",
    ["maybe_ms", "maybe_created", "payload.written_at", "payload.maybe_at", "inner.maybe_at", lambda _: None],
)
def test_an_absent_event_time_counts_as_missing(codec: Literal["json", "avro"], event_time: Any) -> None:
    """The policy `on_missing_event_time` applies."""
    [bad] = decoded(event_time, codec, Event("ann")).bad

    assert bad.untimed
    assert "no event time" in bad.reason


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("event_time", "event"),
    [
        ("maybe_ms", Event("ann", maybe_ms=5)),
        ("maybe_created", Event("ann", maybe_created=NOON)),
        ("payload.written_at", Event("ann", payload=Payload(5))),
        ("payload.maybe_at", Event("ann", payload=Payload(5, 6))),
    ],
)
def test_a_present_optional_event_time_is_used(codec: Literal["json", "avro"], event_time: Any, event: Event) -> None:
    """Only None is missing."""
    assert decoded(event_time, codec, event) == ([event], [0], [])


def failing(event: Event) -> int:
    """Fail, as a function of a user may."""
    return int(event.text)


@pytest.mark.parametrize(
    ("event_time", "event", "reason"),
    [
        (failing, Event("ann"), "no valid event time from 'failing': ValueError: invalid literal"),
        (lambda event: event.text, Event("ann"), "It must return whole milliseconds"),
        (lambda _: datetime(2024, 1, 1), Event("ann"), "has no offset from UTC"),  # noqa: DTZ001 - a fault
        (ps.TimeField("at_s", unit=ps.TimeUnit.SECONDS), Event("ann", at_s=2**62), "beyond 64 bits in milliseconds"),
    ],
)
def test_an_invalid_event_time_is_an_undecodable_message(event_time: Any, event: Event, reason: str) -> None:
    """The other messages of the batch are processed, and nothing writes such a record."""
    [bad] = decoded(event_time, "json", event).bad
    with pytest.raises(InvalidRecord, match=reason):
        Codecs(MemoryBus()).of(category(event_time)).encode([event])

    assert not bad.untimed
    assert reason in bad.reason


def test_a_missing_nested_time_in_json_counts_as_missing() -> None:
    """The nested field may be required."""
    codec = Codecs(MemoryBus()).of(category("inner.written_at"))
    values = [b'{"userId":"a","inner":{}}', b'{"userId":"a","inner":null}', b'{"userId":"a","inner":5}']

    assert [bad.untimed for bad in codec.decode(list(map(MessageCopy, values))).bad] == [True, True, False]


class Counted(ps.Record, frozen=True, rename="camel"):
    """A count of a window, with a datetime as its event time."""

    user_id: str
    window_start: datetime
    events: int


def counting(event_time: Any, **options: Any) -> type[ps.Aggregator]:
    """Return an aggregator over events with an event time."""
    outputs = ps.Category("counts", Counted, key="user_id", event_time="window_start", buckets=1)

    class Counts(ps.Aggregator):
        reads = category(event_time, buckets=1)
        writes = outputs
        window = ps.windows.Tumbling(timedelta(minutes=1))
        monoid = ps.monoids.Sum()

        def observe(self, _: Event) -> int:
            return 1

        def result(self, key: str, window: ps.windows.Window, value: int) -> Counted:
            return Counted(key, datetime.fromtimestamp(window.start / 1_000, UTC), value)

    for name, value in options.items():
        setattr(Counts, name, value)
    return Counts


SOURCES: dict[str, tuple[Any, Callable[[int], Event]]] = {
    "milliseconds": ("at_ms", lambda ms: Event("ann", at_ms=ms)),
    "seconds": (ps.TimeField("at_s", unit=ps.TimeUnit.SECONDS), lambda ms: Event("ann", at_s=ms // 1_000)),
    "datetime": ("created", lambda ms: Event("ann", created=datetime.fromtimestamp(ms / 1_000, UTC))),
    "nested": ("inner.written_at", lambda ms: Event("ann", inner=Payload(ms))),
    "function": (from_text, lambda ms: Event("ann", text=datetime.fromtimestamp(ms / 1_000, UTC).isoformat())),
}
"""Declarations of the event time, and the event with a time."""


@pytest.mark.parametrize("source", SOURCES)
def test_windows_are_the_same_whatever_the_source(source: str) -> None:
    """A worker counts the same events in the same windows."""
    event_time, event_at = SOURCES[source]
    processor = counting(event_time)
    driver = Driver(processor)
    minute_ms = NOON_MS // 60_000 * 60_000
    driver.send(plan_of(processor).inputs[0], [event_at(minute_ms + offset) for offset in (0, 59_000, 60_000)])
    driver.advance(3_600)

    found = {each.window_start: each.events for each in driver.read(plan_of(processor).outputs[0])}
    assert found == {
        datetime.fromtimestamp(minute_ms / 1_000, UTC): 2,
        datetime.fromtimestamp(minute_ms / 1_000 + 60, UTC): 1,
    }


@pytest.mark.parametrize("source", SOURCES)
def test_the_archive_marks_the_event_time(source: str) -> None:
    """Backfills order and filter by the mark."""
    event_time, event_at = SOURCES[source]
    subject = category(event_time)
    codec = Codecs(MemoryBus()).of(subject)
    second_ms = NOON_MS // 1_000 * 1_000
    [value] = codec.encode([event_at(second_ms)])
    rows = ArchivedRows(subject, codec).of(RawBatch(Bucket("events", 0), [MessageCopy(value)])).batch

    assert rows.column("_event_time").to_pylist() == [second_ms]


@pytest.mark.parametrize(
    ("declared", "factor", "remedy"),
    [
        ("at_ms", 0.001, r"declare `event_time=penstock.TimeField\('atMs', unit=penstock.TimeUnit.SECONDS\)`"),
        (ps.TimeField("at_ms", unit=ps.TimeUnit.SECONDS), 1, r"unit=penstock.TimeUnit.MILLISECONDS\)`"),
        (ps.TimeField("at_ms", unit=ps.TimeUnit.MICROSECONDS), 1, r"unit=penstock.TimeUnit.MILLISECONDS\)`"),
    ],
)
def test_a_wrong_unit_names_the_right_declaration(declared: Any, factor: float, remedy: str) -> None:
    """The remedy can be copied."""
    processor = counting(declared)
    driver = Driver(processor, start_ms=1_800_000_000_000)
    with pytest.raises(EventRejected, match=remedy):
        driver.send(plan_of(processor).inputs[0], [Event("ann", at_ms=int((NOON_MS + n) * factor)) for n in range(3)])


class User(ps.Record, frozen=True, rename="camel"):
    """A row of a table."""

    user_id: str
    changed_at: datetime
    country: str


class Joined(ps.Record, frozen=True):
    """An event with its user's country."""

    user: str
    at: datetime
    country: str


def test_tombstones_delete_rows_of_tables_with_datetimes() -> None:
    """A deletion has the time of its message as its event time."""
    users = ps.Category("users", User, key="user_id", event_time="changed_at", buckets=1)

    class WithCountry(ps.TableJoin):
        stream = category("created", buckets=1)
        table = users
        writes = ps.Category("joined", Joined, key="user", event_time="at", buckets=1)

        def join(self, event: Event, row: User | None, context: ps.Context) -> tuple[Joined, ...]:
            return (Joined(context.key, event.created, row.country if row else "none"),)

    driver = Driver(WithCountry)
    driver.send(users, [User("ann", NOON, "nl")])
    driver.send(WithCountry.stream, [Event("ann", created=NOON + timedelta(seconds=1))])
    driver.bus.append("users", Outgoing(b"ann", None))
    driver.run()
    driver.send(WithCountry.stream, [Event("ann", created=datetime(2100, 1, 1, 1, tzinfo=UTC))])

    assert [joined.country for joined in driver.read(WithCountry.writes)] == ["nl", "none"]
