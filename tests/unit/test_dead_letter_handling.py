"""Dead letters are listed, retried once and dropped."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import pytest

import penstock as ps
from penstock.ops.dead_letters import PendingLetters, Repeats, drop_repeated, effects_on_letters, handling, marks_of
from penstock.ops.dead_letters.handling import RETRY_HEADER, drop, retry
from penstock.ops.dead_letters.letters import Letter, LetterState, group_letters, read_letters
from penstock.ops.dead_letters.repeats import pending_of
from penstock.ops.kernel import Driver
from penstock.ops.kernel.testing import Killed
from penstock.transport import Bucket, BusError, CategorySpec, CategoryState, Outgoing
from penstock.transport.memory import MemoryBus


class Click(ps.Record, frozen=True):
    """A click."""

    user: str
    at: ps.EventTime
    n: int = 0
    note: str = ""


class Total(ps.Record, frozen=True):
    """The sum of a user's clicks."""

    user: str
    at: ps.EventTime
    n: int


clicks = ps.Category("clicks", Click, key="user", event_time="at", buckets=4)
totals = ps.Category("totals", Total, key="user", event_time="at", buckets=4)


class Totals(ps.Stateful):
    """Sums clicks; fails for negative numbers until it is corrected."""

    reads, writes, state = clicks, totals, int
    state_semantics = output_semantics = ps.Semantics.EXACTLY_ONCE
    on_error = ps.ErrorPolicy.DEAD_LETTER
    is_corrected = False

    def process(self, event: Click, state: int | None, context: ps.Context) -> tuple[int, Iterable[Total]]:
        if event.n < 0 and not self.is_corrected:
            raise ValueError(f"{event.n} is below zero")
        total = (state or 0) + abs(event.n)
        return total, [Total(event.user, event.at, total)]


EVENTS = [Click("ann", 1, 1), Click("bob", 2, -2), Click("ann", 3, -3), Click("bob", 4, 4)]


def every(_: Letter) -> bool:
    """Select all letters."""
    return True


@pytest.fixture
def driver() -> Driver:
    """A processor that has rejected two of four events."""
    driver = Driver(Totals)
    driver.send(clicks, EVENTS)
    return driver


def corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Correct the processor."""
    monkeypatch.setattr(Totals, "is_corrected", True)


def states(driver: Driver) -> list[LetterState]:
    """Return the state of each letter."""
    return [letter.state for letter in read_letters(driver.bus, "totals")]


def last_totals(driver: Driver) -> dict[str, int]:
    """Return each user's last total."""
    return {total.user: total.n for total in driver.read(totals)}


def test_a_letter_contains_the_traceback_of_the_users_code(driver: Driver) -> None:
    """It begins with the user's frame and ends with the error."""
    first = driver.dead_letters(Totals)[0].traceback

    assert "in process" in first.splitlines()[0]
    assert first.splitlines()[-1] == "ValueError: -2 is below zero"


def test_letters_are_grouped_by_reason_without_numbers(driver: Driver) -> None:
    """Reasons that differ only in numbers are one group."""
    [group] = group_letters("totals", read_letters(driver.bus, "totals"))

    assert (group.pending, group.retried, group.category) == (2, 0, "clicks")
    assert "-# is below zero" in group.reason


def test_retried_messages_pass_through_the_processor_once(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """State and outputs include each message once, also after a second retry."""
    corrected(monkeypatch)
    results = []
    for _ in range(2):
        results.append(retry(driver.bus, Totals, every).handled)
        driver.run()

    assert results == [2, 0]
    assert states(driver) == [LetterState.RETRIED] * 2
    assert len(driver.read(totals)) == 4
    assert last_totals(driver) == {"ann": 4, "bob": 6}


def test_a_retried_message_that_fails_again_is_a_new_pending_letter(driver: Driver) -> None:
    """The old letter stays handled."""
    retry(driver.bus, Totals, lambda letter: "-2" in letter.content.reason)
    driver.run()

    assert states(driver) == [LetterState.RETRIED, LetterState.PENDING, LetterState.PENDING]
    letter = driver.dead_letters(Totals)[-1]
    assert [(header.name, header.value) for header in letter.headers] == [(RETRY_HEADER, b"totals.dead_letters/0")]


@pytest.mark.parametrize("error", [Killed("killed"), BusError("the connection broke.")])
def test_a_crash_before_the_commit_leaves_letters_pending(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The next retry writes each message once."""
    corrected(monkeypatch)

    def crash() -> None:
        raise error

    with pytest.raises(ps.errors.PenstockError):
        retry(driver.bus, Totals, every, before_commit=crash)
    driver.run()

    assert (states(driver), len(driver.read(totals))) == ([LetterState.PENDING] * 2, 2)
    retry(driver.bus, Totals, every)
    driver.run()
    assert last_totals(driver) == {"ann": 4, "bob": 6}


def test_a_second_command_ends_the_first(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two retries at the same time write each message once."""
    corrected(monkeypatch)
    handled = []

    def overtake() -> None:
        handled.append(retry(driver.bus, Totals, every).handled)

    with pytest.raises(ps.errors.PenstockError, match="Run the same command again"):
        retry(driver.bus, Totals, every, before_commit=overtake)
    driver.run()

    assert handled == [2]
    assert last_totals(driver) == {"ann": 4, "bob": 6}


def test_dropped_letters_keep_their_content_and_are_not_retried(driver: Driver) -> None:
    """The reason is stored with them."""
    drop(driver.bus, "totals", every, "a test")

    marks = [letter.mark for letter in read_letters(driver.bus, "totals")]
    assert [(mark.state, mark.reason) for mark in marks if mark] == [(LetterState.DROPPED, "a test")] * 2
    assert retry(driver.bus, Totals, every).handled == 0
    assert [letter.value is not None for letter in driver.dead_letters(Totals)] == [True, True]


def test_a_message_that_still_does_not_decode_stays_pending(driver: Driver) -> None:
    """The result names the reason; other letters are retried."""
    driver.send(clicks, [b"no click"])
    before = driver.bus.describe("clicks").events

    result = retry(driver.bus, Totals, lambda letter: "decode" in letter.content.reason)

    assert (result.handled, driver.bus.describe("clicks").events) == (0, before)
    [refusal] = result.refused
    assert "still does not decode" in refusal


def test_a_truncated_letter_is_retried_from_its_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The retried message is the whole message."""
    driver = Driver(Totals)
    long = Click("ann", 1, -1, "x" * 999_900)
    driver.send(clicks, [long])
    assert driver.dead_letters(Totals)[0].truncated_bytes > 0
    corrected(monkeypatch)

    retry(driver.bus, Totals, every)
    driver.run()

    assert last_totals(driver) == {"ann": 1}


def test_a_retried_message_keeps_its_headers(driver: Driver) -> None:
    """The header of the retry follows them."""
    [value] = [letter.value for letter in driver.dead_letters(Totals)[:1]]
    writer = driver.bus.writer()
    writer.send("clicks", [Outgoing(b"bob", value, headers=[("trace", b"7")])])
    driver.run()

    newest = list(read_letters(driver.bus, "totals"))[-1].number
    retry(driver.bus, Totals, lambda letter: letter.number == newest)
    messages = [message for number in range(4) for message in driver.bus.slice(Bucket("clicks", number), 0, 100)]

    assert [("trace", b"7"), (RETRY_HEADER, f"totals.dead_letters/{newest}".encode())] in [
        list(m.headers() or ()) for m in messages
    ]


def test_a_category_without_letters_is_not_asked_for_more() -> None:
    """`penstock status` describes the category of each processor anyway; this bus would refuse every further request."""
    state = CategoryState(CategorySpec("totals.dead_letters", 1), {0: 3}, {0: 3}, "id")

    assert PendingLetters(MemoryBus()).count("totals", "totals.dead_letters", state) == 0


def test_only_pending_letters_are_counted(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reader counts across a drop, a retry that fails again, a message of another program, and a recreated category."""
    pending, counts = PendingLetters(driver.bus), list[int]()

    def count() -> None:
        counts.append(
            pending.count("totals", "totals.dead_letters", driver.bus.catalog.describe("totals.dead_letters"))
        )

    count()
    drop(driver.bus, "totals", lambda letter: letter.number == 0, "a test")
    count()
    retry(driver.bus, Totals, every)
    count()
    driver.run()
    count()
    corrected(monkeypatch)
    retry(driver.bus, Totals, every)
    driver.run()
    count()
    with closing(driver.bus.writer()) as writer:
        writer.send("totals.dead_letters", [Outgoing(None, b"foreign")])
        writer.flush()
    count()
    spec = driver.bus.catalog.describe("totals.dead_letters").spec
    driver.bus.catalog.delete("totals.dead_letters")
    driver.bus.catalog.create(spec)
    count()

    assert counts == [2, 1, 0, 1, 0, 1, 0]


def test_marks_of_expired_letters_are_deleted_by_the_next_retry_or_drop(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transactions are of limited size. The marks of other letters and the states of the letters stay."""
    monkeypatch.setattr(handling, "MOST_MARKS", 2)
    driver.send(clicks, [Click("ann", 5, -number) for number in range(10, 16)])
    numbers = [letter.number for letter in read_letters(driver.bus, "totals")]
    pending = numbers[6]
    drop(driver.bus, "totals", lambda letter: letter.number != pending, "a test")
    assert set(marks_of("totals").read(driver.bus)) == set(numbers) - {pending}
    driver.bus.trim(Bucket("totals.dead_letters", 0), numbers[5])
    corrected(monkeypatch)
    retry(driver.bus, Totals, every)

    assert set(marks_of("totals").read(driver.bus)) == set(numbers[5:])
    assert states(driver) == [LetterState.DROPPED, LetterState.RETRIED, LetterState.DROPPED]
    assert drop(driver.bus, "totals", every, "again").handled == 0


def test_letters_about_messages_that_are_processed_again_are_dropped(driver: Driver) -> None:
    """A processor goes back. The letters are at or after its new positions, or belong to events that wait for a retry again."""
    early, late = (letter.content for letter in read_letters(driver.bus, "totals"))
    first = {Bucket("clicks", number): 0 for number in range(4)}
    between = Repeats(first | {Bucket("clicks", late.bucket): late.offset})
    after = first | {Bucket("clicks", late.bucket): late.offset + 1}
    waiting = Repeats(after, {(Bucket("clicks", late.bucket), early.offset)})
    pending = [
        pending_of(driver.bus, "totals", repeats) for repeats in (Repeats(first), between, Repeats(after), waiting)
    ]
    [sentence] = effects_on_letters(driver.bus, "totals", between)
    for _ in range(2):
        drop_repeated(driver.bus, "totals", between, "reset to earliest")
        drop_repeated(driver.bus, "other", between, "reset to earliest")
    marks = [letter.mark for letter in read_letters(driver.bus, "totals")]

    assert early.bucket == late.bucket
    assert pending == [2, 1, 0, 1]
    assert sentence.startswith("1 pending dead letter of totals will be dropped")
    assert [mark and mark.reason for mark in marks] == [None, "reset to earliest: the message is processed again"]
    assert [*effects_on_letters(driver.bus, "totals", between)] == []
