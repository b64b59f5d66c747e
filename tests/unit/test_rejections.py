"""The limit of dead letters: a worker stops before it writes its whole input to the dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import Rejections
from penstock.processors.shard import EventRejected


class Click(ps.Record, frozen=True):
    """A click."""

    user: str
    at: ps.EventTime
    n: int = 0


class Kept(Click, frozen=True):
    """An accepted click."""


clicks = ps.Category("clicks", Click, key="user", event_time="at", buckets=1)
kept = ps.Category("kept", Kept, key="user", event_time="at", buckets=1)


class Keeping(ps.Stateless):
    """Copies clicks, and raises an exception for negative numbers."""

    reads, writes = clicks, kept
    on_error = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Click) -> Iterable[Kept]:
        if event.n < 0:
            raise ValueError("below zero")
        yield Kept(event.user, event.at, event.n)


class Lenient(Keeping):
    """Accepts any number of dead letters."""

    dead_letter_limit = None


class Strict(Keeping):
    """Stops after a few dead letters."""

    dead_letter_limit = ps.DeadLetterLimit(share=0.2, events=20, consecutive=15)


GOOD = Click("a", 1)
RAISES = Click("a", 1, -1)
BROKEN = b"\x00\x01 of another codec"


def test_a_stream_of_another_codec_does_not_become_dead_letters() -> None:
    """The worker stops at the hundredth event and names the reason; each restart stops there without new dead letters."""
    driver = Driver(Keeping)

    for _ in range(3):
        with pytest.raises(
            EventRejected, match=r"offset 99: the last 100 events .*malformed.*nothing was skipped.*dead_letter_limit"
        ):
            driver.send(
                clicks, [BROKEN] * 5_000 if not driver.read(clicks) and not driver.dead_letters(Keeping) else []
            )

    assert [letter.offset for letter in driver.dead_letters(Keeping)] == list(range(99))
    assert driver.bus.committed("keeping", "clicks") == {0: 99}


class Stopping(Keeping):
    """Stops at each bad event."""

    on_error = on_undecodable = ps.ErrorPolicy.STOP


def test_an_exception_is_not_blamed_on_the_producer() -> None:
    """An exception names the processor, and a malformed event also names its producer."""
    with pytest.raises(EventRejected) as raised:
        Driver(Stopping).send(clicks, [RAISES])
    with pytest.raises(EventRejected) as malformed:
        Driver(Stopping).send(clicks, [BROKEN])

    assert "Fix Stopping, or send such events to" in str(raised.value)
    assert "Fix Stopping or the producer of these events, or send such events to" in str(malformed.value)


def test_a_few_bad_events_become_dead_letters() -> None:
    """A topic with fewer events than the limit may contain only bad events."""
    driver = Driver(Keeping)

    driver.send(clicks, [BROKEN] * 99)
    driver.send(clicks, [GOOD])
    driver.send(clicks, [BROKEN, RAISES] * 40)

    assert len(driver.dead_letters(Keeping)) == 179


def test_a_worker_stops_if_more_than_half_of_the_last_thousand_events_are_bad() -> None:
    """It stops although the bad events are not consecutive."""
    driver = Driver(Keeping)
    driver.send(clicks, [GOOD] * 1_000)

    with pytest.raises(EventRejected, match=r"501 of the last 1,000 events"):
        driver.send(clicks, [BROKEN, BROKEN, GOOD] * 1_000)

    assert len(driver.dead_letters(Keeping)) == 500


def test_events_with_exceptions_count_for_the_dead_letter_limit() -> None:
    """The worker stops after the batch that exceeded the limit, and saves the processed events."""
    driver = Driver(Keeping)

    with pytest.raises(EventRejected, match=r"offset 99: the last 100 events .*below zero"):
        driver.send(clicks, [RAISES] * 150)

    assert driver.bus.committed("keeping", "clicks") == {0: len(driver.dead_letters(Keeping))}


def test_the_dead_letter_limit_can_be_disabled() -> None:
    """With `dead_letter_limit = None`, any number of events become dead letters."""
    driver = Driver(Lenient)
    driver.send(clicks, [BROKEN] * 2_000)

    assert len(driver.dead_letters(Lenient)) == 2_000


@given(st.lists(st.booleans(), max_size=120), st.lists(st.integers(0, 120), max_size=8))
def test_the_dead_letter_limit_does_not_depend_on_batches(bad: list[bool], cuts: list[int]) -> None:
    """It does not depend on restarts either."""
    limit = Strict.dead_letter_limit
    edges = [0, *sorted(min(cut, len(bad)) for cut in cuts), len(bad)]
    whole = Rejections(limit, 0).exceeded_at(len(bad), [at for at, is_bad in enumerate(bad) if is_bad])
    parted, resumed = Rejections(limit, 0), None
    found = []
    for begin, end in pairwise(edges):
        rejected = [at - begin for at in range(begin, end) if bad[at]]
        stop = parted.exceeded_at(end - begin, rejected)
        found += [] if stop is None else [begin + stop]
        earlier = [at for at in range(max(begin - limit.events, 0), begin) if bad[at]]
        resumed = Rejections(limit, begin, earlier).exceeded_at(end - begin, rejected)
        assert resumed == stop

    assert next(iter(found), None) == whole
    window = [sum(bad[max(at + 1 - limit.events, 0) : at + 1]) for at in range(len(bad))]
    runs = [all(bad[at + 1 - limit.consecutive : at + 1]) and at + 1 >= limit.consecutive for at in range(len(bad))]
    many = [at + 1 >= limit.events and window[at] > limit.share * limit.events for at in range(len(bad))]
    assert whole == next((at for at in range(len(bad)) if bad[at] and (runs[at] or many[at])), None)


@pytest.mark.parametrize("wrong", [{"share": 2.0}, {"share": -0.1}, {"events": 0}, {"consecutive": 0}])
def test_an_impossible_dead_letter_limit_is_refused(wrong: dict[str, float]) -> None:
    """The declaration fails before the worker reads any event."""
    with pytest.raises(DeclarationError, match="dead_letter_limit = None"):
        ps.DeadLetterLimit(**wrong)  # type: ignore[arg-type]  # the mistakes under test
