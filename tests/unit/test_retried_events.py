"""Retries of events whose processing failed: waits, attempts, order, watermarks and guarantees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from datetime import timedelta
from typing import Annotated, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import DeclarationError, PenstockError
from penstock.ops.kernel import prepare
from penstock.ops.kernel.shards.preflight import InputsChanged
from penstock.processors.declare import Processor, plan_of
from penstock.processors.shard import Step, steps_of
from penstock.testing import Crash, Driver
from penstock.transport import Bucket, Outgoing, Position


class Call(ps.Record, frozen=True):
    """An event whose processing fails a number of times.

    Args:
        key: its key.
        at: its event time.
        failures: the number of calls that fail.
    """

    key: str
    at: ps.EventTime
    failures: int = 0


class Done(ps.Record, frozen=True):
    """A processed event."""

    key: str
    at: ps.EventTime


class Hourly(ps.Record, frozen=True):
    """The number of processed events of an hour."""

    key: str
    at: ps.EventTime
    count: int


CALLS = ps.Category("calls", Call, key="key", event_time="at", buckets=1)
DONE = ps.Category("done", Done, key="key", event_time="at", buckets=1)
RETRY = ps.Retry(after=timedelta(seconds=1), factor=4, attempts=4)
SECOND_MS = 1_000
HOUR_MS = 3_600_000


class Unreachable(Exception):
    """The simulated error of a remote service."""


class Service:
    """A remote service whose first calls for an event fail."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, int]] = Counter()

    def call(self, event: Call) -> Done:
        """Return the answer for an event, or raise."""
        self.calls[event.key, event.at] += 1
        if self.calls[event.key, event.at] <= event.failures:
            raise Unreachable(f"call {self.calls[event.key, event.at]} failed")
        return Done(event.key, event.at)


class Fetch(ps.Stateless):
    """Calls the service for each event."""

    reads, writes = CALLS, DONE
    on_error = RETRY
    watermark = ps.watermarks.BoundedOutOfOrderness()
    service: ClassVar[Service] = Service()

    def process(self, event: Call) -> Iterable[Done]:
        return [self.service.call(event)]


class AsyncFetch(ps.Stateless):
    """Calls the service for each event, concurrently."""

    reads, writes = CALLS, DONE
    on_error = RETRY
    service: ClassVar[Service] = Service()

    async def process(self, event: Call) -> Iterable[Done]:
        return [self.service.call(event)]


class Counts(ps.Stateful):
    """Counts the processed events of each key."""

    reads, writes = CALLS, DONE
    output_semantics = ps.Semantics.EXACTLY_ONCE
    on_error = RETRY
    state = int
    service: ClassVar[Service] = Service()

    def process(self, event: Call, state: int | None, context: ps.Context) -> tuple[int, Iterable[Done]]:
        return (state or 0) + 1, [self.service.call(event)]


def driver_of(processor: type[Fetch | AsyncFetch | Counts], *others: type[Processor]) -> Driver:
    """Return a driver of a processor with a new service."""
    processor.service = Service()
    return Driver([processor, *others])


def pass_time(driver: Driver, seconds: float) -> None:
    """Advance the clock in steps, so that each wait begins soon after the attempt before it."""
    for _ in range(int(2 * seconds)):
        driver.advance(0.5)


@pytest.mark.parametrize("processor", [Fetch, AsyncFetch, Counts])
def test_event_returns_after_its_wait_and_later_events_are_not_held_up(
    processor: type[Fetch | AsyncFetch | Counts],
) -> None:
    """The waits are 1 s, then 4 s; an event of the same key overtakes the failed one."""
    driver = driver_of(processor)
    driver.send(CALLS, [Call("ann", 1, failures=2), Call("ann", 2)])
    at_once = driver.read(DONE)
    driver.advance(0.9)
    driver.advance(0.2)
    after_first_wait = driver.read(DONE), processor.service.calls["ann", 1]
    driver.advance(3.8)
    before_second = processor.service.calls["ann", 1]
    driver.advance(0.3)

    assert at_once == [Done("ann", 2)]
    assert after_first_wait == ([Done("ann", 2)], 2)
    assert before_second == 2
    assert driver.read(DONE) == [Done("ann", 2), Done("ann", 1)]
    assert driver.dead_letters(processor) == []


def test_last_attempt_goes_to_the_dead_letters_with_the_first_origin() -> None:
    """The letter has the bucket, offset and bytes of the event's first message, the number of attempts and the last error."""
    driver = driver_of(Fetch)
    driver.send(CALLS, [Call("ann", 1), Call("ann", 2, failures=9)])
    pass_time(driver, 25)
    [letter] = driver.dead_letters(Fetch)

    assert (letter.category, letter.offset, letter.headers) == ("calls", 1, ())
    assert letter.value == b'{"key":"ann","at":2,"failures":9}'
    assert letter.reason.startswith("after 4 attempts: ")
    assert "call 4 failed" in letter.reason
    assert Fetch.service.calls["ann", 2] == 4


def test_other_exceptions_are_not_retried() -> None:
    """Exceptions that `on` does not list go to the dead letters at once."""

    class Careful(Fetch):
        on_error = ps.Retry(on=(TimeoutError,))

    driver = driver_of(Careful)
    driver.send(CALLS, [Call("ann", 1, failures=1)])

    assert Careful.service.calls["ann", 1] == 1
    assert [letter.reason.startswith("after") for letter in driver.dead_letters(Careful)] == [False]


def test_long_wait_of_one_event_does_not_block_a_short_one() -> None:
    """An event in its third wait (16 s) is overtaken by an event in its first."""
    driver = driver_of(Fetch)
    driver.send(CALLS, [Call("ann", 1, failures=3)])
    driver.advance(5.5)
    driver.send(CALLS, [Call("ann", 2, failures=1)])
    driver.advance(1.5)
    before = driver.read(DONE)
    pass_time(driver, 16)

    assert before == [Done("ann", 2)]
    assert driver.read(DONE) == [Done("ann", 2), Done("ann", 1)]


class PerHour(ps.Aggregator):
    """Counts the processed events of each hour, and drops late ones."""

    reads, writes = DONE, ps.Category("hourly", Hourly, key="key", event_time="at")
    monoid = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(hours=1))
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP
    watermark = ps.watermarks.UpstreamWatermark()

    def observe(self, event: Done) -> int:
        return 1

    def result(self, key: str, window: ps.windows.Window, value: int) -> Hourly:
        return Hourly(key, window.start, value)


@pytest.mark.parametrize("restarts", [False, True])
def test_watermark_waits_for_events_that_wait_for_a_retry(restarts: bool) -> None:
    """A window downstream contains a retried event, although later events passed its end, even after a restart."""
    hourly = ps.Category("hourly", Hourly, key="key", event_time="at")
    driver = driver_of(Fetch, PerHour)
    driver.send(CALLS, [Call("ann", 1, failures=2), Call("ann", 2), Call("ann", HOUR_MS + 5)])
    if restarts:
        driver.send(CALLS, [Call("ann", HOUR_MS + 6), Crash()])
        driver.send(CALLS, [Call("ann", HOUR_MS + 8)])
    driver.advance(1.5)
    driver.advance(2)
    before = driver.read(hourly)
    for _ in range(5):
        driver.advance(1.5)
    driver.send(CALLS, [Call("ann", HOUR_MS + 7)])
    for _ in range(3):
        driver.advance(1.5)

    assert before == []
    assert driver.read(hourly)[:1] == [Hourly("ann", 0, 2)]


@pytest.mark.parametrize("step", [*steps_of(Counts), None])
def test_crash_neither_loses_nor_doubles_an_event(step: Step | None) -> None:
    """The crash may be in any gap of any checkpoint. Each event counts once, and has one output."""
    driver = driver_of(Counts)
    calls = [Call(f"k{number % 3}", number, failures=number % 3) for number in range(9)]
    driver.send(CALLS, [*calls[:5], Crash(step), *calls[5:]])
    for _ in range(4):
        driver.advance(2)
        driver.send(CALLS, [Crash(step)])

    assert Counter(driver.read(DONE)) == Counter(Done(call.key, call.at) for call in calls)
    driver.send(CALLS, [])


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=12),
    st.lists(st.floats(0.1, 6), max_size=6),
)
def test_every_event_is_processed_or_a_dead_letter(calls: list[tuple[int, int]], pauses: list[float]) -> None:
    """Events that succeed within the attempts have one output, and the others one letter, for any failures and times."""
    driver = driver_of(Fetch)
    events = [Call(f"k{key}", number, failures) for number, (key, failures) in enumerate(calls)]
    driver.send(CALLS, events)
    for pause in pauses:
        driver.advance(pause)
    pass_time(driver, 25)

    assert Counter(driver.read(DONE)) == Counter(Done(event.key, event.at) for event in events if event.failures < 4)
    assert len(driver.dead_letters(Fetch)) == sum(event.failures == 4 for event in events)


def test_restart_keeps_waiting_events() -> None:
    """A retry that was waiting when the worker crashed is made by its successor, after the same wait."""
    driver = driver_of(Fetch)
    driver.send(CALLS, [Call("ann", 1, failures=1), Crash()])
    driver.advance(0.5)
    early = driver.read(DONE)
    driver.advance(0.6)

    assert early == []
    assert driver.read(DONE) == [Done("ann", 1)]


def test_unsafe_declarations_are_refused() -> None:
    """These have semantics that could lose or double a waiting event, several inputs, sinks, windows, or waits beyond the retention."""

    class Inexact(Counts):
        output_semantics = ps.Semantics.AT_LEAST_ONCE

    class Lossy(Fetch):
        output_semantics = ps.Semantics.AT_MOST_ONCE

    class Several(Fetch):
        reads = (CALLS, ps.Category("more_calls", Call, key="key", event_time="at", buckets=1))  # type: ignore[assignment]

    class Windows(PerHour):
        on_error = RETRY

    class Slow(Fetch):
        on_error = ps.Retry(after=timedelta(days=1), factor=10, attempts=3)

    class Outside(Fetch):
        writes = ps.sinks.MemorySink(Done)  # type: ignore[assignment]

    for processor, words in (
        (Outside, "writes a sink"),
        (Inexact, "state and outputs exactly once"),
        (Lossy, "at most once"),
        (Several, "reads calls, more_calls"),
        (Windows, "its kind"),
        (Slow, "retention"),
    ):
        with pytest.raises(DeclarationError, match=words):
            plan_of(processor).check()


@pytest.mark.parametrize(
    "arguments",
    [{"attempts": 1}, {"attempts": 11}, {"factor": 0.5}, {"after": timedelta()}, {"on": ()}, {"on": (str,)}],
)
def test_values_out_of_range_are_refused(arguments: dict[str, object]) -> None:
    """The values of a declaration are checked when it is made."""
    with pytest.raises(DeclarationError):
        ps.Retry(**arguments)  # type: ignore[arg-type]


class Stamped(ps.Record, frozen=True):
    """An event whose time is the timestamp of its message."""

    key: str
    at: Annotated[ps.EventTime, ps.metadata.Timestamp]


STAMPED = ps.Category("stamped", Stamped, key="key", event_time="at", buckets=1)


class Echo(ps.Stateless):
    """Fails at the first call, and passes the event on at the second."""

    reads, writes = STAMPED, DONE
    on_error = RETRY
    max_future = None
    calls = 0

    def process(self, event: Stamped) -> Iterable[Done]:
        self.calls += 1
        if self.calls == 1:
            raise Unreachable
        return [Done(event.key, event.at)]


def test_event_time_from_the_timestamp_of_the_message_stays() -> None:
    """A later attempt sees the timestamp of the first message, not of the waiting one."""
    driver = Driver(Echo)
    before_ms = driver.clock.now_ms()
    driver.send(STAMPED, [b'{"key": "ann"}'])
    pass_time(driver, 2)

    assert driver.read(DONE) == [Done("ann", before_ms)]


def test_fewer_attempts_are_refused_while_an_event_waits_for_one() -> None:
    """Otherwise, nothing would ever read the event. With nothing waiting, the declaration may change, and retries may be added."""

    class Fewer(Fetch):
        name = Fetch.name
        on_error = ps.Retry(attempts=2)

    class Never(Fetch):
        name = Fetch.name
        on_error = ps.ErrorPolicy.DEAD_LETTER  # type: ignore[assignment]

    driver = driver_of(Never)
    driver.send(CALLS, [Call("ann", 1)])
    prepare(Never, driver.bus)
    prepare(Fetch, driver.bus)
    with closing(driver.bus.writer()) as writer:
        writer.send("fetch.retry_3", [Outgoing(b"ann", b"{}", 0)])
        writer.flush()

    with pytest.raises(InputsChanged, match="wait for a retry in fetch"):
        prepare(Fewer, driver.bus)
    driver.bus.kill_members(Fetch.name)
    driver.bus.catalog.set_committed(Fetch.name, [Position(Bucket("fetch.retry_3", 0), 1)])
    prepare(Fewer, driver.bus)


def test_attempts_before_the_last_do_not_count_for_the_dead_letter_limit() -> None:
    """A service that fails for more events than the limit allows, and then answers, stops no worker."""
    driver = driver_of(Fetch)
    driver.send(CALLS, [Call("ann", number, failures=3) for number in range(150)])
    pass_time(driver, 25)

    assert len(driver.read(DONE)) == 150
    assert driver.metrics(Fetch).retries == 450


class Careful(Fetch):
    """Stops after three dead letters in a row, or two of ten."""

    name = "careful"
    dead_letter_limit = ps.DeadLetterLimit(share=0.2, events=10, consecutive=3)


def test_events_that_fail_for_good_count_among_all_events_for_the_dead_letter_limit() -> None:
    """The last retry category contains only failing events, so a share of it would always exceed the limit."""
    driver = driver_of(Careful)
    driver.send(CALLS, [Call("ann", number, failures=99 * (not number % 10)) for number in range(100)])
    pass_time(driver, 25)

    assert len(driver.dead_letters(Careful)) == 10
    assert len(driver.read(DONE)) == 90


@pytest.mark.parametrize("before_crash", [0, 2])
def test_a_worker_stops_when_events_in_a_row_have_failed_for_good(before_crash: int) -> None:
    """Some of them may have failed before a crash. The error names the bucket in which they were read first."""
    driver = driver_of(Careful)
    driver.send(CALLS, [Call("ann", number, failures=99) for number in range(before_crash)])
    pass_time(driver, 25)
    driver.send(
        CALLS, [Crash(steps_of(Careful)[0]), *(Call("ann", number, failures=99) for number in range(before_crash, 3))]
    )

    with pytest.raises(PenstockError, match="the last 3 events of calls/0 in a row could not be processed"):
        pass_time(driver, 25)
