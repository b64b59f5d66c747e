"""Bytes of other programs where Penstock has a format of its own: headers of retries, dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.dead_letters.handling import retry
from penstock.ops.dead_letters.letters import group_letters, read_letters
from penstock.ops.serve.dashboard.dead_letters import newest_dead_letters
from penstock.processors.declare import DeadLetter
from penstock.testing import Driver
from penstock.transport import Outgoing
from penstock.transport.codecs.dead_letters import DeadLetterCodec


class Reading(ps.Record, frozen=True):
    """An event."""

    key: str
    at: ps.EventTime


READINGS = ps.Category("readings", Reading, key="key", event_time="at", buckets=1)
COPIES = ps.Category("copies", Reading, key="key", event_time="at", buckets=1)
GOOD, BAD = b'{"key":"a","at":1}', b"not json"
ORIGIN = b'{"category":"other","bucket":7,"offset":5,"timestamp_type":1,"timestamp_ms":3,"attempts":4}'
HUGE = ORIGIN.replace(b"7", b"9" * 30)
FOREIGN = [b"x", b"", None, b"[" * 5_000, b"\xff", b'{"category":"other"}', ORIGIN, HUGE, ORIGIN.replace(b"7", b"-7")]


class Copy(ps.Stateless):
    """Copies events."""

    reads, writes = READINGS, COPIES

    def process(self, event: Reading) -> Iterable[Reading]:
        return [event]


class Failing(ps.Stateless):
    """Fails at each attempt."""

    reads, writes = READINGS, COPIES
    on_error = ps.Retry(after=timedelta(seconds=1), attempts=3)
    calls: ClassVar[list[Reading]] = []

    def process(self, event: Reading) -> Iterable[Reading]:
        self.calls.append(event)
        raise TimeoutError("no answer")


def letters_after(driver: Driver, processor: type[Copy | Failing]) -> list[tuple[str, int, int]]:
    """Return the places that the dead letters name after all attempts."""
    driver.run()
    for wait_s in (1, 4):
        driver.advance(wait_s + 0.1)
    return [(letter.category, letter.bucket, letter.offset) for letter in driver.dead_letters(processor)]


@pytest.mark.parametrize("value", FOREIGN)
@pytest.mark.parametrize("names", [["penstock.retry.origin"], ["penstock.retry.origin", "penstock.retry.error"]])
def test_headers_of_another_program_are_no_origin(names: list[str], value: bytes | None) -> None:
    """A rejected message becomes a dead letter with its own place and its headers, also with retries."""
    headers = [(name, value) for name in names]
    for processor in (Copy, Failing):
        driver = Driver(processor)
        driver.bus.append("readings", Outgoing(b"a", GOOD if processor is Failing else BAD, 0, headers))

        assert letters_after(driver, processor) == [("readings", 0, 0)]
        [letter] = driver.dead_letters(processor)
        assert [(header.name, header.value) for header in letter.headers] == headers


@pytest.mark.parametrize("value", [value for value in FOREIGN if value != ORIGIN])
def test_a_foreign_message_in_a_retry_category_has_its_own_place(value: bytes | None) -> None:
    """The headers cannot name a place that does not exist, and stop no worker."""
    driver = Driver(Failing)
    headers = [("penstock.retry.origin", value), ("penstock.retry.error", b"x")]
    driver.run()
    driver.bus.append("failing.retry_2", Outgoing(b"a", GOOD, 0, headers))

    assert letters_after(driver, Failing) == [("failing.retry_2", 0, 0)]


NAMES = st.sampled_from(["penstock.retry.origin", "penstock.retry.error", "penstock.retry_of", "traceparent", "x"])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=40) | st.sampled_from(FOREIGN)), max_size=4))
def test_an_event_returns_from_its_retries_with_the_headers_that_it_had(
    headers: list[tuple[str, bytes | None]],
) -> None:
    """The headers may have any names and values. The dead letter names the event's first place."""
    driver = Driver(Failing)
    driver.bus.append("readings", Outgoing(b"a", GOOD, 0, headers or None))

    assert letters_after(driver, Failing) == [("readings", 0, 0)]
    [letter] = driver.dead_letters(Failing)
    assert [(header.name, header.value) for header in letter.headers] == headers
    assert letter.reason.startswith("after 3 attempts: ")


FAR = 2**63 - 1
LETTERS = [DeadLetter("readings", 99, -1, "", None, None, FAR), DeadLetter("", -1, FAR, "x" * 10, b"", b"\xff", -FAR)]
LETTERS += [DeadLetter("readings", 99, 0, "x", b"a", GOOD, 1, truncated_bytes=5)]


def test_foreign_dead_letters_are_listed_or_skipped_and_never_retried() -> None:
    """Bytes that do not decode as a letter are skipped. Letters with impossible places stay pending with a reason."""
    driver = Driver(Copy)
    driver.send(READINGS, [BAD])
    for value in [b"", b"\xc1\x01", b"\xc1\x01\x91" * 9, None, *DeadLetterCodec(lambda: 10**6).encode(LETTERS)]:
        driver.bus.append("copy.dead_letters", Outgoing(b"k", value, 0))
    driver.send(READINGS, [BAD, Reading("a", 2)])

    letters = list(read_letters(driver.bus, "copy"))
    assert [letter.number for letter in letters] == [0, 5, 6, 7, 8]
    assert len(newest_dead_letters(driver.bus, "copy.dead_letters", 100)) == len(letters)
    assert sum(group.pending for group in group_letters("copy", letters)) == len(letters)
    result = retry(driver.bus, Copy, lambda _: True)
    assert (result.handled, sum(result.refused.values())) == (0, len(letters))
    assert driver.read(COPIES) == [Reading("a", 2)]
