"""Messages with several events: the result is the same as for these events sent singly, whatever fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import codecs
from penstock.ops.dead_letters.handling import retry
from penstock.processors import DeclarationError
from penstock.processors.declare import DeadLetter
from penstock.processors.shard import EventRejected, steps_of
from penstock.testing import Crash, Driver
from penstock.transport import MessageCopy, Outgoing
from penstock.transport.codecs import Codecs, rejected_message
from penstock.transport.memory import MemoryBus


class Reading(ps.Record, frozen=True):
    """A reading; a negative one fails."""

    meter: str
    at: ps.EventTime
    litres: int


class Total(ps.Record, frozen=True):
    """All readings of a meter so far, in order."""

    meter: str
    at: ps.EventTime
    litres: str


readings = ps.Category(
    "readings", Reading, key="meter", event_time="at", buckets=1, codec=codecs.JsonArray(), partitioner=None
)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=1)


class Totals(ps.Stateful[Reading, str, Total]):
    """Lists the readings of each meter: the state depends on their order."""

    reads, writes, state = readings, totals, str
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE
    on_error = on_undecodable = on_missing_event_time = ps.ErrorPolicy.DEAD_LETTER
    key_check = False

    def process(self, event: Reading, state: str | None, context: ps.Context) -> tuple[str, list[Total]]:
        if event.litres < 0:
            raise ValueError("below zero")
        total = f"{state or ''} {event.litres}"
        return total, [Total(event.meter, event.at, total)]


class Stopping(Totals):
    """Stops at a failing or malformed event."""

    on_error = on_undecodable = ps.ErrorPolicy.STOP


class Fixed(Totals):
    """The same processor after a correction."""

    name = "totals"

    def process(self, event: Reading, state: str | None, context: ps.Context) -> tuple[str, list[Total]]:
        total = f"{state or ''} {abs(event.litres)}"
        return total, [Total(event.meter, event.at, total)]


def reading(number: int, meter: str = "m") -> dict[str, Any]:
    return {"meter": meter, "at": 1_000 + number, "litres": number}


BAD = {"meter": "m", "at": 1_000, "litres": "many"}
UNTIMED = {"meter": "m", "litres": 1}
ELEMENTS = st.one_of(
    st.builds(reading, st.integers(-2, 40), st.sampled_from("abc")), st.sampled_from([BAD, UNTIMED, 7, None, []])
)


def array(*elements: Any) -> bytes:
    return json.dumps(elements).encode()


def in_groups(elements: Sequence[Any], sizes: Sequence[int]) -> list[bytes]:
    """Return arrays of these sizes, in turn, some of them empty; the last has the rest."""
    rest = iter(elements)
    groups = [array(*islice(rest, size)) for size in sizes]
    return [*groups, array(*rest)]


def letters_of(driver: Driver) -> list[tuple[bytes | None, str]]:
    """Return the values and the reasons of dead letters, without the numbers in messages."""
    return [(each.value, each.reason.rpartition(" in its message: ")[2]) for each in driver.dead_letters(Totals)]


@given(st.lists(ELEMENTS, max_size=20), st.lists(st.integers(0, 5), max_size=6), st.data())
def test_an_array_equals_its_events_sent_singly(elements: list[Any], sizes: list[int], data: st.DataObject) -> None:
    """Outputs, states and dead letters are equal, also when workers crash anywhere in an exactly-once checkpoint."""
    messages: list[bytes | Crash] = list(in_groups(elements, sizes))
    crash = data.draw(st.none() | st.tuples(st.integers(0, len(messages)), st.sampled_from([*steps_of(Totals), None])))
    singly, together = Driver(Totals), Driver(Totals)
    singly.send(readings, [array(element) for element in elements])
    if crash is not None:
        messages.insert(crash[0], Crash(before=crash[1]))

    together.send(readings, messages)

    assert together.read(totals) == singly.read(totals)
    assert letters_of(together) == letters_of(singly)


def test_one_bad_event_is_rejected_alone() -> None:
    """Its letter has its number and the event alone, as a message that can be read and retried."""
    driver = Driver(Totals)
    driver.send(readings, [array(reading(1)), array(reading(2), BAD, reading(-1), reading(3))])

    letters = driver.dead_letters(Totals)
    assert [total.litres for total in driver.read(totals)] == [" 1", " 1 2", " 1 2 3"]
    assert [(each.offset, each.value) for each in letters] == [(1, array(BAD)), (1, array(reading(-1)))]
    assert letters[0].reason.startswith("event 2 of 4 in its message: the message does not decode")
    assert letters[1].reason.startswith("event 3 of 4 in its message:")


def test_a_retried_event_is_processed_alone() -> None:
    """The other events of its message do not count twice."""
    driver = Driver(Totals)
    driver.send(readings, [array(reading(2), reading(-5), reading(3))])

    assert retry(driver.bus, Fixed, lambda _: True).handled == 1
    driver.run()
    [_, letter] = driver.dead_letters(Totals)
    assert rejected_message(letter).value() == array(reading(-5))
    assert driver.read(totals)[-1].litres == " 2 3"


def test_a_truncated_letter_of_an_event_is_retried_alone() -> None:
    """The event is found in its message, which also contains others."""
    driver = Driver(Totals)
    large = {**reading(-5), "note": "x" * 300_000}
    value = array(large, {**large, "litres": -6}).replace(b"-6, ", b"7, ")
    driver.bus.writer().send(readings.name, [Outgoing(b"m", value)])
    driver.run()
    [letter] = driver.dead_letters(Totals)
    assert letter.truncated_bytes == 0
    cut = DeadLetter(
        letter.category, 0, letter.offset, letter.reason, letter.key, (letter.value or b"")[:1_000], letter.at, 299_000
    )
    driver.bus.writer().send(
        "totals.dead_letters", [Outgoing(None, one) for one in Codecs(driver.bus).of(_letters()).encode([cut])]
    )

    assert retry(driver.bus, Fixed, lambda one: one.content.truncated_bytes > 0).handled == 1
    driver.run()
    assert [total.litres for total in driver.read(totals)] == [" 7"]
    assert len(driver.dead_letters(Totals)) == 3


def _letters() -> ps.Category[DeadLetter]:
    from penstock.processors.declare import dead_letters_of

    return dead_letters_of(Totals)


@pytest.mark.parametrize("bad", [reading(-1), BAD], ids=["the processor raises", "malformed"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_stop_within_a_message_counts_no_event_twice(
    bad: dict[str, Any], at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position is between messages, so the events of the message before the stop are not saved, and are read again."""
    elements = [reading(2), reading(3)]
    elements.insert(at, bad)
    driver = Driver(Stopping)
    sent = [array(reading(1)), array(*elements)]
    for messages in (sent, [], []):
        with pytest.raises(EventRejected, match=rf"offset 1: event {at + 1} of 3 in its message.*nothing was skipped"):
            driver.send(readings, messages)
    before = [total.litres for total in driver.read(totals)]

    monkeypatch.setattr(Stopping, "process", Fixed.process)
    monkeypatch.setattr(Stopping, "on_undecodable", ps.ErrorPolicy.DEAD_LETTER)
    driver.run()
    counted = [1, *(abs(element["litres"]) for element in elements if element is not BAD)]
    assert before == (
        [] if at and bad is not BAD else [" 1"]
    )  # nothing of the message was processed if its stop was known before
    assert [total.litres for total in driver.read(totals)] == [
        "".join(f" {litres}" for litres in counted[:count]) for count in range(1, len(counted) + 1)
    ]


def test_objects_alone_and_empty_arrays_are_read() -> None:
    """Some producers write an array only for several events."""
    driver = Driver(Totals)
    driver.send(readings, [json.dumps(reading(1)).encode(), b"[]", b" [ ]", array(reading(2), reading(3))])

    assert driver.read(totals)[-1].litres == " 1 2 3"
    assert driver.dead_letters(Totals) == []


@pytest.mark.parametrize("value", [b"[", b'[{"meter":"m"}', b"nonsense", b"[1,]", b"\xff[]", b'"text"'])
def test_a_message_that_is_no_array_is_rejected_whole(value: bytes) -> None:
    """The dead letter has all of its bytes."""
    driver = Driver(Totals)
    driver.send(readings, [value, array(reading(1))])

    assert [each.value for each in driver.dead_letters(Totals)] == [value]
    assert len(driver.read(totals)) == 1


def test_records_are_written_as_arrays_of_one_event() -> None:
    """Another reader of arrays gets every record."""
    codec = Codecs(MemoryBus()).of(readings)
    [value] = codec.encode([Reading("m", 1, 2)])

    assert json.loads(value) == [{"meter": "m", "at": 1, "litres": 2}]
    assert codec.decode([MessageCopy(value)]).events == [Reading("m", 1, 2)]


class InLines(Totals):
    """Reads JSON lines."""

    name = "in_lines"
    reads = ps.Category(
        "lines", Reading, key="meter", event_time="at", buckets=1, codec=codecs.JsonLines(), partitioner=None
    )
    writes = ps.Category("line_totals", Total, key="meter", event_time="at", buckets=1)


def lines(*elements: Any, end: str = "\n") -> bytes:
    return "".join(json.dumps(element) + end for element in elements).encode()


@given(st.lists(st.tuples(st.lists(ELEMENTS, max_size=4), st.sampled_from(["\n", "\r\n", "\n\n"])), max_size=6))
def test_lines_equal_arrays_of_the_same_events(messages: list[tuple[list[Any], str]]) -> None:
    """Outputs and the reasons of dead letters are equal. A line break at the end, or blank lines, add no event."""
    in_lines, in_arrays = Driver(InLines), Driver(Totals)
    in_lines.send(InLines.reads, [lines(*elements, end=end) for elements, end in messages])
    in_arrays.send(readings, [array(*elements) for elements, _ in messages if elements != [[]]])

    assert [total.litres for total in in_lines.read(InLines.writes)] == [
        total.litres for total in in_arrays.read(totals)
    ]


def test_one_bad_line_is_rejected_alone() -> None:
    """Its letter is the line, which can be retried; a line cut in the middle rejects no other."""
    driver = Driver(InLines)
    value = lines(reading(1), BAD, reading(2)) + b'{"meter": "m", "at'
    driver.send(InLines.reads, [value, b"", b"\n", json.dumps(reading(3)).encode()])

    letters = driver.dead_letters(InLines)
    assert [total.litres for total in driver.read(InLines.writes)] == [" 1", " 1 2", " 1 2 3"]
    assert [each.value for each in letters] == [json.dumps(BAD).encode(), b'{"meter": "m", "at']
    assert letters[0].reason.startswith("event 2 of 4 in its message: the message does not decode")


@pytest.mark.parametrize(
    ("value", "are_lines"),
    [
        (lines(reading(1), reading(2)), True),
        (lines(reading(1), BAD, end="\r\n") + b"{", True),
        (json.dumps(reading(1), indent=2).encode() + b",", False),
        (lines(reading(1)).strip() + b"}", False),
        (lines(1, reading(2)), False),
    ],
)
def test_lines_that_are_read_as_one_object_name_their_codec(value: bytes, are_lines: bool) -> None:
    """The reason of the dead letter is the declaration to change; other broken JSON is called malformed."""
    one_object = ps.Category("objects", Reading, key="meter", event_time="at", buckets=1)
    [bad] = Codecs(MemoryBus()).of(one_object).decode([MessageCopy(value)]).bad

    assert ("declare `codec=penstock.codecs.JsonLines()`" in bad.reason) is are_lines
    assert ("malformed" in bad.reason) is not are_lines


def test_records_are_written_as_one_line() -> None:
    """A reader of single JSON objects reads it, too."""
    codec = Codecs(MemoryBus()).of(InLines.reads)
    [value] = codec.encode([Reading("m", 1, 2)])

    assert json.loads(value) == {"meter": "m", "at": 1, "litres": 2}
    assert codec.decode([MessageCopy(value)]).events == [Reading("m", 1, 2)]


class Seen(ps.Record, frozen=True):
    """An event with the parts of its message."""

    n: int
    user: Annotated[str, ps.metadata.Key]
    at: Annotated[int, ps.metadata.Timestamp]
    offset: Annotated[int, ps.metadata.Offset]
    trace: Annotated[str, ps.metadata.Header("trace")]


def test_each_event_has_the_parts_of_its_message() -> None:
    """These are its key, headers, timestamp and position."""
    category = ps.Category("seen", Seen, key="user", event_time="at", codec=codecs.JsonArray())
    codec = Codecs(MemoryBus()).of(category)
    message = MessageCopy(b'[{"n":1},{"n":2}]', b"ann", 0, 7, (1, 99), [("trace", b"t")])

    assert isinstance(codec, codecs.SplittingCodec)
    assert codec.decode(codec.split([message])).events == [Seen(n, "ann", 99, 7, "t") for n in (1, 2)]


class Placed(ps.Record, frozen=True, tag="placed"):
    """An order."""

    order: str
    at: ps.EventTime


class Paid(ps.Record, frozen=True, tag="paid"):
    """A payment."""

    order: str
    at: ps.EventTime


def test_elements_may_be_of_several_types() -> None:
    """Other types are skipped if that is declared."""
    category: ps.Category[Placed | Paid] = ps.Category(
        "orders", Placed | Paid, key="order", event_time="at", codec=codecs.JsonArray(other_types="skip")
    )
    codec = Codecs(MemoryBus()).of(category)
    value = json.dumps([{"type": kind, "order": "1", "at": 1} for kind in ("placed", "sent", "paid")]).encode()
    assert isinstance(codec, codecs.SplittingCodec)
    decoded = codec.decode(codec.split([MessageCopy(value)]))

    assert (decoded.events, decoded.bad) == ([Placed("1", 1), Paid("1", 1)], [])


def test_an_unknown_option_is_refused() -> None:
    """The codec of JSON objects refuses it, too."""
    with pytest.raises(DeclarationError, match="other_types='drop'"):
        codecs.JsonArray(other_types="drop")  # type: ignore[arg-type]
