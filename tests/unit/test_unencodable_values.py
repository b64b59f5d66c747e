"""Values that fit their types and no encoder accepts: each is treated as a record that does not fit, and the error names its event and field."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest

import penstock as ps
from penstock.backfill.steps import OutputRows
from penstock.processors import PenstockError, ProcessorFailed
from penstock.processors.declare import Context
from penstock.processors.time import wrong_unit_beside
from penstock.testing import Driver

START = 1_700_000_000_000
HALF = "so funny \ud83d"
"""Half an emoji: Python's json module returns it for a truncated text."""


class Item(ps.Record, frozen=True):
    """An input."""

    user: str
    at: ps.EventTime
    number: int


class Note(ps.Record, frozen=True):
    """An output."""

    user: str
    at: ps.EventTime
    text: str


class Tagged(ps.Record, frozen=True):
    """An output with a header."""

    user: str
    at: ps.EventTime
    source: Annotated[str, ps.metadata.Header("source")]


class Numbered(ps.Record, frozen=True):
    """An output with a number as its key."""

    number: int
    at: ps.EventTime


class Precise(ps.Record, frozen=True):
    """An output with values that have a canonical form."""

    user: str
    at: ps.EventTime
    share: Decimal | None = None
    day: datetime | None = None
    words: dict[str, list[str]] | None = None


items = ps.Category("items", Item, key="user", event_time="at", buckets=1)
BAD = START + 1


def category(record: Any, **attributes: Any) -> ps.Category[Any]:
    return ps.Category("out", record, buckets=1, **{"key": "user", "event_time": "at", **attributes})


OUTPUTS: list[tuple[ps.Category[Any], Callable[[Item], Any], str]] = [
    *(
        (category(Note, codec=codec), lambda event: Note(event.user, event.at, HALF), "`text` is 'so funny .ud83d'")
        for codec in ("json", "avro", ps.codecs.Csv())
    ),
    (category(Note), lambda event: Note(HALF, event.at, ""), "`user` is"),
    (category(Note, key=lambda note: note.text), lambda event: Note(event.user, event.at, HALF), "`text` is"),
    (category(Note, key=lambda _: HALF), lambda event: Note(event.user, event.at, ""), "does not fit its `key_codec`"),
    (category(Note), lambda _: ps.Tombstone(HALF), "does not fit its `key_codec`"),
    (category(Tagged), lambda event: Tagged(event.user, event.at, HALF), "`source` is"),
    (
        category(Numbered, key="number", key_codec=ps.KeyCodec.INT32),
        lambda event: Numbered(2**40, event.at),
        "KeyCodec.INT32",
    ),
    (category(Precise), lambda event: Precise(event.user, event.at, Decimal("1e30")), "`share` is 1E.30"),
    (category(Precise), lambda event: Precise(event.user, event.at, day=datetime(2026, 1, 1)), "`day` is"),  # noqa: DTZ001 - the fault under test
    (category(Precise), lambda event: Precise(event.user, event.at, words={"a": ["b", HALF]}), r"`words\.a\[1\]` is"),
]


def returning(outputs: ps.Category[Any], output: Callable[[Item], Any], **attributes: Any) -> type[ps.Stateless]:
    """Return a processor that returns an output for one event of three."""

    class Returns(ps.Stateless):
        reads, writes = items, outputs

        def process(self, event: Item) -> list[Any]:
            return [output(event)] if event.at == BAD else []

    return type("Returns", (Returns,), attributes)


def send(driver: Driver) -> None:
    driver.send(items, [Item("ann", START, 0), Item("ann", BAD, 1), Item("ann", START + 2, 2)])


@pytest.mark.parametrize(("outputs", "output", "field"), OUTPUTS)
def test_an_output_that_no_encoder_accepts_is_a_dead_letter(
    outputs: ps.Category[Any], output: Callable[[Item], Any], field: str
) -> None:
    """The check of an event's outputs is as strict as the encoder, and the worker continues."""
    kind = returning(outputs, output, on_error=ps.ErrorPolicy.DEAD_LETTER)
    driver = Driver(kind)
    send(driver)
    [letter] = driver.dead_letters(kind)

    assert letter.offset == 1
    assert re.search(field, letter.reason)


@pytest.mark.parametrize(("outputs", "output", "field"), OUTPUTS)
def test_an_output_that_no_encoder_accepts_stops_with_its_event(
    outputs: ps.Category[Any], output: Callable[[Item], Any], field: str
) -> None:
    """The error names the bucket, the offset, the processor and the field."""
    with pytest.raises(PenstockError, match=field) as stopped:
        send(Driver(returning(outputs, output)))

    assert str(stopped.value).startswith("items/0 at offset 1: ")
    assert "Fix Returns" in str(stopped.value)
    assert str(stopped.value).encode()


class Timed(ps.Stateful):
    """Sets a timer with each event."""

    reads, state = items, int
    writes = category(Note)
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta())

    def process(self, event: Item, state: int | None, context: ps.Context) -> Any:
        context.timer(event.at + 5)
        return 1, []

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> Any:
        return None, [Note(context.key, timer.at, HALF)]


def test_an_output_of_a_timer_that_no_encoder_accepts_stops_with_its_key() -> None:
    """A timer has no event that could be a dead letter; the error names the batch in which it fired."""
    driver = Driver(type("Timed", (Timed,), {"on_error": ps.ErrorPolicy.DEAD_LETTER}))
    with pytest.raises(
        PenstockError,
        match="items/0, a timer or an event from offset 0 to 1: A Note does not fit its own type: `text` is",
    ):
        driver.send(items, [Item("ann", START, 0), Item("ann", START + 10, 0)])


@pytest.mark.parametrize(
    ("at", "tag", "reason"),
    [
        (START + 5, HALF, "contains half a character"),
        (START + 5, 7, "no str"),
        (START // 1_000 + 60, "", "looks like seconds"),
        (START * 1_000, "", "looks like microseconds"),
        (START * 1_000_000, "", "looks like nanoseconds"),
        (60_000, "", "`context.event_time + 60_000`"),
        (60, "", "looks like a duration"),
    ],
)
def test_a_timer_that_cannot_be_meant_rejects_its_event(at: int, tag: Any, reason: str) -> None:
    """The event becomes a dead letter, and no timer is set."""

    class Wrong(Timed):
        on_error = ps.ErrorPolicy.DEAD_LETTER

        def process(self, event: Item, state: int | None, context: ps.Context) -> Any:
            context.timer(at, tag)
            return 1, []

    driver = Driver(Wrong)
    driver.send(items, [Item("ann", START, 0), Item("ann", START + 100, 0)])

    assert [letter.offset for letter in driver.dead_letters(Wrong)] == [0, 1]
    assert reason in driver.dead_letters(Wrong)[0].reason
    with pytest.raises((TypeError, ValueError)):
        Context("ann", START, requests=[]).timer(at, tag)


@pytest.mark.parametrize(
    ("at", "event_time"),
    [(0, START), (5, 3), (START + 10**12, START), (2**62, START), (-1, START), (START // 1_000, START // 1_000)],
)
def test_unusual_times_of_timers_are_accepted(at: int, event_time: int) -> None:
    """A timer may be in the past or far away. Event times that are not dates prove nothing."""
    assert wrong_unit_beside(at, event_time) is None


def test_a_lookup_key_that_no_encoder_accepts_rejects_only_its_event() -> None:
    """The other events of the batch are joined."""

    class Looks(ps.LookupJoin):
        reads, writes, source = items, category(Note), ps.lookups.MemoryTable({"ann": "row"})
        on_error = ps.ErrorPolicy.DEAD_LETTER

        def key_of(self, event: Item) -> str:
            return HALF if event.at == BAD else event.user

        def join(self, event: Item, row: str | None) -> list[Note]:
            return [Note(event.user, event.at, str(row))]

    driver = Driver(Looks)
    send(driver)

    assert [letter.offset for letter in driver.dead_letters(Looks)] == [1]
    assert [note.text for note in driver.read(Looks.writes)] == ["row", "row"]


@pytest.mark.parametrize("window", [ps.windows.GlobalWindow(), ps.windows.Tumbling(timedelta(milliseconds=10))])
def test_a_result_that_no_encoder_accepts_stops_with_its_record(window: ps.windows.WindowAssigner) -> None:
    """The result belongs to no single event; the error shows the record."""

    class Counts(ps.Aggregator):
        reads, writes, monoid = items, category(Note), ps.monoids.Count()

        def result(self, key: str, window: ps.Window, value: int) -> Note:
            return Note(key, START, HALF)

    with pytest.raises(PenstockError, match=r"`text` is .*Note\(user='ann'.*Fix Counts") as stopped:
        send(Driver(type("Counts", (Counts,), {"window": window})))

    assert str(stopped.value).encode()


@pytest.mark.parametrize(
    ("convert", "unit"), [(lambda at: at // 1_000, "seconds"), (lambda at: at * 1_000, "microseconds")]
)
def test_outputs_with_event_times_in_another_unit_are_refused(convert: Callable[[int], int], unit: str) -> None:
    """A reader would reject them, so the writer does, in a worker and in batch; without `max_future`, every time is valid."""
    notes = category(Note)
    kind = returning(notes, lambda event: Note(event.user, convert(event.at), ""))
    free = type("Free", (kind,), {"max_future": None})
    driver = Driver(free)
    send(driver)

    with pytest.raises(PenstockError, match=f"items/0, .*offset 0 to 2: .* look like {unit}.*Fix Returns"):
        send(Driver(kind))
    with pytest.raises(ProcessorFailed, match=f"look like {unit}"):
        list(OutputRows(kind).batches([Note("ann", convert(START), "")]))
    assert [note.at for note in driver.read(notes)] == [convert(BAD)]


def test_batch_names_a_text_that_no_encoder_accepts() -> None:
    """The record and the field are in the error."""
    rows = OutputRows(returning(category(Note), lambda event: Note(event.user, event.at, HALF)))
    with pytest.raises(ProcessorFailed, match=r"An output of Returns does not fit its category: .*`text` is 'so funny"):
        list(rows.batches([Note("ann", START, HALF)]))


def test_event_times_of_other_formats_are_checked_with_the_event() -> None:
    """An output without a valid event time is a dead letter."""

    class Dated(ps.Record, frozen=True):
        user: str
        at: str

    dated = category(Dated, event_time=lambda dated: dated.at)
    kind = returning(dated, lambda event: Dated(event.user, "yesterday"), on_error=ps.ErrorPolicy.DEAD_LETTER)
    driver = Driver(kind)
    send(driver)

    assert [letter.offset for letter in driver.dead_letters(kind)] == [1]
