"""Workers on a bus in memory with a simulated clock."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import product
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Crash, Driver, Worker, changelog_of, ends_of
from penstock.ops.kernel.checkpoint.output_writer import OutputRefused
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.testing import InlineExecutor, Killed
from penstock.processors import DeclarationError, PenstockError, ProcessorFailed
from penstock.processors.declare import bucket_of, plan_of
from penstock.processors.shard import EventRejected, Gap, Step, steps_of
from penstock.state import MemoryStateFolder, StateFolder
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.memory.log import StoredMessage


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


class Total(ps.Record, frozen=True):
    """A meter's total so far, and the number of its readings."""

    meter: str
    at: ps.EventTime
    litres: int
    readings: int


class Hourly(ps.Record, frozen=True):
    """A meter's litres in an hour."""

    meter: str
    hour: ps.EventTime
    litres: int


LIMIT_S = 60.0

readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=3)
large = ps.Category("large", Reading, key="meter", event_time="at", buckets=3)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=3)
hours = ps.Category("hours", Hourly, key="meter", event_time="hour", buckets=3)


class Large(ps.Stateless):
    """Keeps readings of 10 litres or more, and raises at negative readings."""

    reads, writes = readings, large

    def process(self, event: Reading) -> Iterable[Reading]:
        if event.litres < 0:
            raise ValueError(f"{event.litres} litres")
        if event.litres >= 10:
            yield event


class Forgiving(Large):
    """The same, with dead letters for negative readings."""

    on_error = ps.ErrorPolicy.DEAD_LETTER


class Sum(ps.Record, frozen=True):
    """The state of a meter."""

    litres: int
    readings: int


class Totals(ps.Stateful):
    """Sums each meter's litres."""

    reads, writes = readings, totals
    state = Sum

    def process(self, event: Reading, state: Sum | None, context: ps.Context) -> tuple[Sum | None, list[Total]]:
        before = state or Sum(0, 0)
        after = Sum(before.litres + event.litres, before.readings + 1)
        return after, [Total(context.key, context.event_time, after.litres, after.readings)]


class Hours(ps.Aggregator):
    """Sums each meter's litres per hour."""

    reads, writes = readings, hours
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Sum()
    window = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Reading) -> int | None:
        return event.litres or None

    def result(self, key: str, window: ps.windows.Window, value: int) -> Hourly:
        return Hourly(key, window.start, value)


class Exact(Totals):
    """Totals with exactly-once outputs."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


class Often(Totals):
    """Totals with at-least-once state."""

    state_semantics = ps.Semantics.AT_LEAST_ONCE


class Seldom(Totals):
    """Totals with at-most-once state and outputs."""

    state_semantics = ps.Semantics.AT_MOST_ONCE
    output_semantics = ps.Semantics.AT_MOST_ONCE


class LargeOnce(Large):
    """Large readings with exactly-once outputs."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


class LargeAtMostOnce(Large):
    """Large readings with at-most-once outputs."""

    output_semantics = ps.Semantics.AT_MOST_ONCE


class Silent(Totals):
    """Totals with at-most-once outputs."""

    output_semantics = ps.Semantics.AT_MOST_ONCE


def worker_of(processor: type[ps.Processor], driver: Driver, states: StateFolder, identity: str = "test") -> Worker:
    """Start a worker on a driver's bus and clock."""
    return Worker(
        processor(), WorkerConfig(driver.bus, states, identity), InlineExecutor(), InlineExecutor(), clock=driver.clock
    )


HOUR = 3_600_000
EVENTS = [Reading(f"m{n % 4}", n * HOUR // 3, n % 13) for n in range(40)]


def test_a_stateless_processor_maps_each_event() -> None:
    """Its outputs have the keys of the output category."""
    driver = Driver(Large)
    driver.send(readings, EVENTS)

    assert Counter(driver.read(large)) == Counter(event for event in EVENTS if event.litres >= 10)


def test_a_stateful_processor_sees_each_keys_events_in_order() -> None:
    """Each key's state changes with its own events only, in the order in which they were sent."""
    driver = Driver(Totals)
    driver.send(readings, EVENTS)

    for meter in {event.meter for event in EVENTS}:
        litres = [event.litres for event in EVENTS if event.meter == meter]
        found = [(total.litres, total.readings) for total in driver.read(totals) if total.meter == meter]
        assert found == [(sum(litres[: n + 1]), n + 1) for n in range(len(litres))]


def test_an_aggregators_last_update_contains_the_whole_window() -> None:
    """The number of checkpoints does not matter."""
    driver = Driver(Hours)
    for event in EVENTS:
        driver.send(readings, [event])

    last = {(update.meter, update.hour): update.litres for update in driver.read(hours)}
    truth: Counter[tuple[str, int]] = Counter()
    for event in EVENTS:
        truth[event.meter, event.at // HOUR * HOUR] += event.litres
    assert last == {slot: litres for slot, litres in truth.items() if litres}


def test_returning_none_deletes_the_state_of_the_key() -> None:
    """The key's next event starts without state."""

    class Pairs(Totals):
        def process(self, event: Reading, state: Sum | None, context: ps.Context) -> tuple[Sum | None, list[Total]]:
            after, out = super().process(event, state, context)
            return (None if after and after.readings == 2 else after), out

    driver = Driver(Pairs)
    for n in range(5):
        driver.send(readings, [Reading("m", n, 1)])

    assert [total.readings for total in driver.read(totals)] == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("processor", [Totals, Exact, Often, Seldom, Silent, Large, LargeOnce, LargeAtMostOnce])
@settings(max_examples=40, deadline=None)
@given(
    litres=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(10, 19)), min_size=1, max_size=30),
    crashes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), max_size=4),
)
def test_each_guarantee_holds_after_crashes_at_any_steps(
    processor: type[ps.Processor], litres: list[tuple[str, int]], crashes: list[tuple[int, int]]
) -> None:
    """State and outputs match the two declared semantics."""
    steps = [*steps_of(processor), None]
    events = [Reading(meter, at, amount) for at, (meter, amount) in enumerate(litres)]
    items: list[Reading | bytes | Crash] = list(events)
    for place, gap in crashes:
        items.insert(place, Crash(steps[gap % len(steps)]))
    driver = Driver(processor)
    driver.send(readings, items)

    [category] = plan_of(processor).outputs
    expect(processor.output_semantics, [output.at for output in driver.read(category)], list(range(len(events))))
    if category is totals:
        driver.send(readings, [Reading(meter, len(events), 0) for meter in "abcd"])
        for probe in (total for total in driver.read(totals) if total.at == len(events)):
            truth = [amount for name, amount in litres if name == probe.meter]
            expect_count(processor.state_semantics, probe.readings - 1, len(truth))
            expect_count(processor.state_semantics, probe.litres, sum(truth))


def expect(semantics: ps.Semantics, found: list[int], truth: list[int]) -> None:
    """Compare outputs with the expected outputs under these semantics."""
    if semantics is not ps.Semantics.AT_MOST_ONCE:
        assert set(found) == set(truth)
    if semantics is not ps.Semantics.AT_LEAST_ONCE:
        assert len(set(found)) == len(found)
        assert set(found) <= set(truth)


def expect_count(semantics: ps.Semantics, found: int, truth: int) -> None:
    """Compare a count in the state with the expected count under these semantics."""
    if semantics is not ps.Semantics.AT_MOST_ONCE:
        assert found >= truth
    if semantics is not ps.Semantics.AT_LEAST_ONCE:
        assert found <= truth


def test_at_least_once_really_repeats() -> None:
    """A crash between state and position counts the events twice, so the driver reveals repetitions."""
    driver = Driver(Often)
    driver.send(readings, [Reading("m", 1, 5), Crash(Step.SAVE_POSITION)])

    assert driver.read(totals)[-1].litres == 10


def test_at_most_once_really_loses() -> None:
    """A crash after the offsets are committed leaves the event out of state and output."""
    driver = Driver(Seldom)
    driver.send(readings, [Reading("m", 1, 5), Crash(Step.SAVE_POSITION), Reading("m", 2, 1)])

    assert driver.read(totals) == [Total("m", 2, 1, 1)]


def test_a_crash_at_an_unused_step_is_refused() -> None:
    """Such a test would check nothing."""
    with pytest.raises(DeclarationError, match=r"Step\.SAVE_TOGETHER"):
        Driver(Totals).send(readings, [Crash(Step.PREPARE_STATE)])


def test_an_aggregator_with_a_remote_store_runs_in_memory() -> None:
    """The driver keeps its state and outbox; after a crash between the two commits, each update exists once."""

    class Remotely(Hours):
        store = ps.RemoteStore(ps.WriteMode.READ_MERGE_WRITE)
        output_semantics = ps.Semantics.EXACTLY_ONCE

    driver = Driver(Remotely)
    driver.send(readings, [*EVENTS[:20], Crash(Step.COMMIT_TRANSACTION), *EVENTS[20:]])

    last = {(update.meter, update.hour): update.litres for update in driver.read(hours)}
    truth: Counter[tuple[str, int]] = Counter()
    for event in EVENTS:
        truth[event.meter, event.at // HOUR * HOUR] += event.litres
    assert last == {slot: litres for slot, litres in truth.items() if litres}


def test_a_crash_before_anything_is_saved_changes_nothing() -> None:
    """Unsaved state is dropped, and its events are read again."""
    driver = Driver(Totals)
    driver.send(readings, [Reading("m", 1, 5), Crash(Step.SAVE_TOGETHER), Reading("m", 2, 1)])

    assert driver.read(totals)[-1] == Total("m", 2, 6, 2)


def test_an_undecodable_message_becomes_a_dead_letter() -> None:
    """Its bytes, origin and reason are kept, and the events around it are processed."""
    driver = Driver(Large, start_ms=77)
    driver.send(readings, [Reading("a", 1, 10), b"{broken", Reading("b", 2, 20)])

    [letter] = driver.dead_letters(Large)
    assert {event.litres for event in driver.read(large)} == {10, 20}
    assert (letter.category, letter.value, letter.at) == ("readings", b"{broken", 77)
    assert "malformed" in letter.reason
    assert driver.bus.slice(Bucket("readings", letter.bucket), letter.offset, 1)[0].value() == b"{broken"


def test_a_failing_event_becomes_a_dead_letter_if_declared() -> None:
    """Its own outputs are dropped; the outputs of other events are not."""
    driver = Driver(Forgiving)
    driver.send(readings, [Reading("a", 1, 10), Reading("a", 2, -3), Reading("a", 3, 30)])

    [letter] = driver.dead_letters(Forgiving)
    assert [event.litres for event in driver.read(large)] == [10, 30]
    assert letter.reason == "Forgiving raised ValueError: -3 litres"


def test_a_failing_event_stops_the_worker_after_earlier_events_are_saved() -> None:
    """Each restart stops at the same event, and repeats no earlier event."""
    driver = Driver(Large)
    for _ in range(3):
        with pytest.raises(EventRejected, match=r"offset 1: Large raised ValueError: -3 litres"):
            driver.send(readings, [] if driver.read(readings) else [Reading("a", 1, 10), Reading("a", 2, -3)])

    assert [event.litres for event in driver.read(large)] == [10]
    assert driver.bus.committed("large", "readings")[_bucket("a")] == 1


def _bucket(key: str) -> int:
    return bucket_of(key.encode(), readings.buckets)


def test_an_event_without_event_time_stops_the_worker() -> None:
    """Earlier events of the batch are processed or become dead letters; the error names the missing field."""
    driver = Driver(Large)
    for value in (b'{"meter":"a","at":1,"litres":10}', b"nonsense", b'{"meter":"a","litres":20}'):
        driver.bus.append("readings", Outgoing(b"a", value))
    with pytest.raises(EventRejected, match=r"offset 2: .*event time: 'at'"):
        driver.run()

    assert [event.litres for event in driver.read(large)] == [10]
    assert [letter.value for letter in driver.dead_letters(Large)] == [b"nonsense"]


@settings(max_examples=50, deadline=None)
@given(kinds=st.lists(st.sampled_from(["good", "raises", "broken", "untimed"]), max_size=12), forgiving=st.booleans())
def test_every_event_is_processed_dead_lettered_or_stops_the_worker(kinds: list[str], *, forgiving: bool) -> None:
    """Each event before the stop is accounted for once; no later event is processed."""
    made: dict[str, bytes] = {
        "good": b'{"meter":"a","at":1,"litres":10}',
        "raises": b'{"meter":"a","at":1,"litres":-1}',
        "broken": b"{",
        "untimed": b'{"meter":"a","litres":1}',
    }
    subject = Forgiving if forgiving else Large
    stops = {"untimed"} if forgiving else {"untimed", "raises"}
    driver = Driver(subject)
    bus = driver.bus
    for kind in kinds:
        bus.append("readings", Outgoing(b"a", made[kind]))
    stop = next((at for at, kind in enumerate(kinds) if kind in stops), None)
    if stop is None:
        driver.run()
    else:
        with pytest.raises(EventRejected, match=f"offset {stop}"):
            driver.run()

    accepted = kinds[:stop]
    assert len(driver.read(large)) == accepted.count("good")
    assert len(driver.dead_letters(subject)) == len(accepted) - accepted.count("good")
    if accepted or stop is None:
        assert bus.committed(subject.name, "readings").get(_bucket("a"), 0) == len(accepted)


def test_an_output_without_a_category_is_refused() -> None:
    """The error names its type and the declared outputs; nothing is saved."""

    class Wrong(Large):
        def process(self, event: Reading) -> Iterable[Reading]:
            yield Total("m", 1, 2, 3)  # type: ignore[misc]  # user code may do this

    driver = Driver(Wrong)
    with pytest.raises(OutputRefused, match="Total, but writes only Reading to large"):
        driver.send(readings, EVENTS)

    assert driver.bus.committed("wrong", "readings") == {}


def test_a_state_of_another_type_is_refused_before_it_is_saved() -> None:
    """It could not be loaded again; the last valid state remains."""

    class Wrong(Totals):
        def process(self, event: Reading, state: Sum | None, context: ps.Context) -> tuple[Sum | None, list[Total]]:
            return "not a sum", []  # type: ignore[return-value]  # user code may do this

    driver = Driver(Wrong)
    with pytest.raises(ProcessorFailed, match="of another type than it declares"):
        driver.send(readings, EVENTS)

    assert driver.bus.committed("wrong", "readings") == {}


def test_a_monoid_that_breaks_a_law_is_refused_before_anything_is_saved() -> None:
    """A mean of means depends on the checkpoints; the error names the law."""

    class MeanOfMeans(ps.monoids.Monoid[float]):
        def identity(self) -> float:
            return 0.0

        def combine(self, left: float, right: float, /) -> float:
            return (left + right) / 2

    class Means(Hours):
        monoid = MeanOfMeans()

    driver = Driver(Means)
    with pytest.raises(ProcessorFailed, match=r"Means cannot use MeanOfMeans\(\).*law of left identity"):
        driver.send(readings, EVENTS)

    assert driver.bus.committed("means", "readings") == {}


def test_an_error_in_result_names_key_and_window() -> None:
    """Nothing of the checkpoint is saved."""

    class Wrong(Hours):
        def result(self, key: str, window: ps.windows.Window, value: int) -> Hourly:
            raise KeyError(key)

    driver = Driver(Wrong)
    with pytest.raises(ProcessorFailed, match=r"Wrong.result raised KeyError.*key 'm0'"):
        driver.send(readings, [Reading("m0", 1, 5)])

    assert driver.bus.committed("wrong", "readings") == {}


@pytest.mark.parametrize(
    ("every", "events", "seconds", "due"),
    [
        (ps.CheckpointInterval(events=3), 3, 0, True),
        (ps.CheckpointInterval(events=3), 2, 0, False),
        (ps.CheckpointInterval(size_bytes=100), 4, 0, True),
        (ps.CheckpointInterval(size_bytes=100), 1, 0, False),
        (ps.CheckpointInterval(time=timedelta(seconds=5)), 1, 5, True),
        (ps.CheckpointInterval(time=timedelta(seconds=5)), 1, 4, False),
        (ps.CheckpointInterval(time=timedelta(seconds=5)), 0, 60, False),
    ],
)
def test_a_checkpoint_starts_at_the_first_limit_reached(
    every: ps.CheckpointInterval, events: int, seconds: int, *, due: bool
) -> None:
    """The limits are events, bytes and time; without events there is no checkpoint."""

    class Often(Large):
        checkpoint = every

    driver = Driver(Often)
    worker = worker_of(Often, driver, MemoryStateFolder())
    worker.run_once()
    for n in range(events):
        driver.bus.append("readings", Outgoing(b"a", b'{"meter":"a","at":%d,"litres":10}' % n))
    driver.clock.advance(seconds)
    worker.run_once()

    assert worker.metrics.checkpoints == int(due)


@pytest.mark.parametrize(
    ("saving_s", "passed_s", "due"),
    [(0.1, 0.19, False), (0.1, 0.21, True), (0.001, 0.009, False), (0.001, 0.011, True), (30.0, 5.1, True)],
)
def test_an_adaptive_checkpoint_follows_the_duration_of_the_last_one(
    saving_s: float, passed_s: float, *, due: bool
) -> None:
    """It begins after twice this duration, never within 10 ms, and at the latest after the declared time."""

    class Soon(LargeAtMostOnce):
        checkpoint = ps.CheckpointInterval(time=timedelta(seconds=5), adaptive=True)

    driver, saver = Driver(Soon), DeferredExecutor()
    place = WorkerConfig(driver.bus, MemoryStateFolder(), "test")
    worker = Worker(Soon(), place, InlineExecutor(), saver, clock=driver.clock)
    worker.run_once()

    def read(after_s: float) -> None:
        driver.bus.append("readings", Outgoing(b"m", b'{"meter":"m","at":1,"litres":10}'))
        driver.clock.advance(after_s)
        worker.run_once()

    read(1.0)
    driver.clock.advance(saving_s)
    saver.work_for(worker)
    read(passed_s - min(saving_s, passed_s))
    saver.work_for(worker)

    assert worker.metrics.checkpoints == 1 + due


@pytest.mark.parametrize("base", [Large, LargeOnce])
def test_an_adaptive_checkpoint_begins_earlier_only_if_results_wait_for_it(base: type[Large]) -> None:
    """Outputs at least once are sent before it, and would wait while it is saved."""
    soon = type("Soon", (base,), {"checkpoint": ps.CheckpointInterval(time=timedelta(seconds=5), adaptive=True)})
    driver = Driver(soon)
    worker = worker_of(soon, driver, MemoryStateFolder())
    for _ in range(3):
        driver.bus.append("readings", Outgoing(b"m", b'{"meter":"m","at":1,"litres":10}'))
        driver.clock.advance(1.0)
        worker.run_once()

    assert (worker.metrics.checkpoints > 0) is (base is LargeOnce)


def test_one_slow_checkpoint_does_not_delay_the_next_one() -> None:
    """The quicker one of the last two counts."""

    class Soon(LargeAtMostOnce):
        checkpoint = ps.CheckpointInterval(time=timedelta(seconds=50), adaptive=True)

    driver, saver = Driver(Soon), DeferredExecutor()
    place = WorkerConfig(driver.bus, MemoryStateFolder(), "test")
    worker = Worker(Soon(), place, InlineExecutor(), saver, clock=driver.clock)
    worker.run_once()
    for saving_s in (0.1, 10.0, 0.1):
        driver.bus.append("readings", Outgoing(b"m", b'{"meter":"m","at":1,"litres":10}'))
        driver.clock.advance(0.3)
        worker.run_once()
        driver.clock.advance(saving_s)
        saver.work_for(worker)

    assert worker.metrics.checkpoints == 3


class DeferredExecutor(Executor):
    """An executor that runs its tasks on request."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append(lambda: future.set_result(fn(*args, **kwargs)))
        return future

    def work_for(self, worker: Worker) -> None:
        while self._waiting:
            self._waiting.pop()()
            worker.run_once()


@pytest.mark.parametrize("processor", [Totals, Exact, Silent, Large, LargeOnce])
def test_processing_continues_while_a_checkpoint_is_saved(processor: type[ps.Processor]) -> None:
    """Events are processed over the state being saved; their outputs and positions wait for the checkpoint's end."""
    driver, saver = Driver(processor), DeferredExecutor()
    place = WorkerConfig(driver.bus, MemoryStateFolder(), "test")
    worker = Worker(processor(), place, InlineExecutor(), saver, clock=driver.clock)
    written, name = plan_of(processor).outputs[0], processor.name
    worker.run_once()
    driver.clock.advance(2)
    for at in range(2):
        for meter in range(4):
            driver.bus.append(
                "readings", Outgoing(b"m%d" % meter, b'{"meter":"m%d","at":%d,"litres":10}' % (meter, at))
            )
        worker.run_once()
        driver.clock.advance(0.1)
    processed, seen = worker.metrics.events_in, Counter(driver.read(written))
    saver.work_for(worker)
    first = driver.bus.committed(name, "readings")
    driver.clock.advance(2)
    worker.run_once()
    saver.work_for(worker)

    truth = Counter(_truth(written, 4, 2))
    assert processed == 8
    assert seen < truth
    assert sum(first.values()) < 8
    assert Counter(driver.read(written)) == truth
    assert sum(driver.bus.committed(name, "readings").values()) == 8


@pytest.mark.parametrize(("holds", "during"), [(False, [1, 2]), (True, [1])])
def test_outputs_at_least_once_wait_for_a_flush_but_not_for_the_state(holds: bool, during: list[int]) -> None:
    """While the state is saved, outputs of later events are sent, unless a snapshot holds them."""
    driver, saving, may_save = Driver(Totals), threading.Event(), threading.Event()

    def pause(gap: Gap) -> None:
        if gap.before is Step.SAVE_TOGETHER:
            saving.set()
            assert may_save.wait(LIMIT_S)

    def read_counts() -> list[int]:
        return sorted(total.readings for total in driver.read(totals))

    with ThreadPoolExecutor(1) as saver:
        place = WorkerConfig(driver.bus, MemoryStateFolder(), "test")
        worker = Worker(Totals(), place, InlineExecutor(), saver, clock=driver.clock, at_gap=pause)
        worker.run_once()
        for at in (1, 2):
            driver.bus.append("readings", Outgoing(b"m", b'{"meter":"m","at":%d,"litres":10}' % at))
            driver.clock.advance(2 if at == 1 else 0.1)
            if holds and at == 1:
                worker._parts.checkpoints.hold()
            worker.run_once()
            assert saving.wait(LIMIT_S)
        seen = read_counts()
        may_save.set()
        worker.save()

    assert seen == during
    assert read_counts() == [1, 2]


def test_a_checkpoint_waits_for_the_one_in_progress_without_stopping_the_loop() -> None:
    """If it is late, or its work reaches a limit, the loop waits, so that unsaved work stays bounded."""

    class Frequent(Large):
        checkpoint = ps.CheckpointInterval(time=timedelta(milliseconds=10), events=5)

    driver, saver = Driver(Frequent), DeferredExecutor()
    worker = Worker(
        Frequent(),
        WorkerConfig(driver.bus, MemoryStateFolder(), "test"),
        InlineExecutor(),
        saver,
        clock=driver.clock,
    )
    worker.run_once()
    for at in range(1, 5):
        driver.bus.append("readings", Outgoing(b"m", b'{"meter":"m","at":%d,"litres":10}' % at))
        driver.clock.advance(0.02)
        worker.run_once()  # would wait for the saver forever
    in_progress = worker.metrics.checkpoints
    saver.work_for(worker)
    worker.run_once()
    saver.work_for(worker)

    assert (worker.metrics.events_in, in_progress) == (4, 0)
    assert sum(driver.bus.committed(Frequent.name, "readings").values()) == 4


def _truth(category: ps.Category[Any], meters: int, events: int) -> Iterable[Any]:
    for meter, at in product(range(meters), range(events)):
        yield Reading(f"m{meter}", at, 10) if category is large else Total(f"m{meter}", at, 10 * (at + 1), at + 1)


def test_state_moves_with_the_buckets_between_two_workers() -> None:
    """When a second worker joins and the first leaves, each key's count continues."""
    driver = Driver(Totals)
    states = MemoryStateFolder()
    workers = [worker_of(Totals, driver, states, "one")]

    def feed() -> None:
        for n in range(30):
            driver.bus.append("readings", Outgoing(b"m%d" % n, b'{"meter":"m%d","at":1,"litres":1}' % n))
        for _ in range(3):
            for worker in workers:
                worker.run_once()

    feed()
    workers.append(worker_of(Totals, driver, states, "two"))
    feed()
    first = workers.pop(0)
    first.stop()
    first.run()
    feed()
    workers[0].stop()
    workers[0].run()

    counts = Counter(total.readings for total in driver.read(totals))
    assert counts == {1: 30, 2: 30, 3: 30}


@pytest.mark.parametrize(("requests", "remaining"), [((True,), 1), ((True, False), 0), ((False, True), 0)])
def test_a_worker_that_is_removed_leaves_its_group(requests: tuple[bool, ...], remaining: int) -> None:
    """It may be asked at the same moment to hand over to a successor, in either order."""
    driver = Driver(Totals)
    worker = worker_of(Totals, driver, MemoryStateFolder())
    worker.run_once()
    for keep_place in requests:
        worker.stop(keep_place=keep_place)
    worker.run()

    assert len(driver.bus.cluster.group(Totals.name).members) == remaining


def test_outputs_of_lost_buckets_are_rolled_back() -> None:
    """All buckets may be lost at once, and return before another worker has read them."""
    driver = Driver(LargeOnce)
    worker = worker_of(LargeOnce, driver, MemoryStateFolder())
    worker.run_once()
    for n in range(30):
        driver.bus.append("readings", Outgoing(b"m%d" % n, b'{"meter":"m%d","at":1,"litres":10}' % n))
    worker.run_once()
    buckets = [Bucket("readings", number) for number in range(3)]
    worker._parts.ownership.lost(buckets)
    worker._parts.ownership.assigned(buckets)
    for _ in range(3):
        worker.run_once()
    worker.save()

    assert Counter(event.meter for event in driver.read(large)) == {f"m{n}": 1 for n in range(30)}


@pytest.mark.parametrize("processor", [Totals, Exact, Often, Silent, Large, LargeOnce])
def test_sent_outputs_alone_cause_a_checkpoint(processor: type[ps.Processor]) -> None:
    """Neither state nor position has changed since the last checkpoint."""
    driver = Driver(processor)
    driver.send(readings, [Reading("m", 1, 50)])
    worker = driver._workers[processor]
    before, [shard] = worker.metrics.checkpoints, [one for one in worker.shards if one.position.get("readings")]
    [output] = driver.read(plan_of(processor).outputs[0])
    news = [shard.has_news]
    worker._parts.batches._outputs.send(shard, [output])
    news.append(shard.has_news)
    worker.save()
    news.append(shard.has_news)

    assert news == [False, True, False]
    assert driver.read(plan_of(processor).outputs[0]) == [output, output]
    assert worker.metrics.checkpoints == before + 1


@pytest.mark.parametrize("processor", [Totals, Exact, Silent, Large, LargeOnce])
def test_a_position_past_an_aborted_transaction_is_saved(processor: type[ps.Processor]) -> None:
    """No event follows, and a status would otherwise show a backlog forever."""
    driver, bucket = Driver(processor), Bucket("readings", _bucket("m"))
    worker = worker_of(processor, driver, MemoryStateFolder(), "other")

    def turn(count: int = 3) -> None:
        for _ in range(count):
            worker.run_once()
            driver.clock.advance(1.0)

    turn()
    driver.bus.append("readings", Outgoing(b"m", b'{"meter":"m","at":1,"litres":50}'))
    turn()
    writer = driver.bus.transactional_writer("upstream", None, 10.0, [])
    writer.send("readings", [Outgoing(b"m", b"{}", bucket.number)])
    writer.flush()
    writer.abort()
    saved = worker.metrics.checkpoints
    turn(10)

    end = driver.bus.catalog.ends("readings")[bucket.number]
    assert end > 2
    assert driver.bus.committed(processor.name, "readings")[bucket.number] == end
    assert worker.metrics.checkpoints == saved + 1


def test_a_missing_state_is_rebuilt_from_the_start_of_the_category() -> None:
    """A worker without the state reads all events again, although its group has committed positions."""
    driver = Driver(Totals)
    driver.send(readings, EVENTS)
    driver.bus.kill_members("totals")
    elsewhere = worker_of(Totals, driver, MemoryStateFolder())
    driver.bus.append("readings", Outgoing(b"m0", b'{"meter":"m0","at":1,"litres":1}'))
    while elsewhere.metrics.events_in < len(EVENTS) + 1:
        elsewhere.run_once()
    elsewhere.save()

    last = [total for total in driver.read(totals) if total.meter == "m0"][-1]
    assert last.readings == sum(event.meter == "m0" for event in EVENTS) + 1


@pytest.mark.parametrize(
    "dies_at", [Gap(step) for step in (Step.LOG_CHANGES, Step.COMMIT_TRANSACTION)] + [None], ids=str
)
def test_a_changelog_declared_later_contains_the_earlier_state(dies_at: Gap | None) -> None:
    """A processor that declares a changelog later, or again, loses no state with its disk."""
    logged: type[Totals] = type("Exact", (Exact,), {"deterministic": False})
    driver = Driver(Exact)
    driver.send(readings, [Reading(f"m{n % 5}", n, 1) for n in range(10)])
    changelog = changelog_of(logged)
    assert changelog is not None
    driver.bus.create(changelog)
    same = driver._states[Exact]
    runs: list[tuple[type[Totals], StateFolder, Gap | None, list[str]]] = [
        (logged, same, dies_at, ["m0"]),
        (logged, same, None, []),
        (logged, MemoryStateFolder(), None, ["m1"]),
        (Exact, same, None, ["m0", "m2"]),
        (logged, same, None, ["m0"]),
        (logged, MemoryStateFolder(), None, METERS),
    ]
    counted = Counter(dict.fromkeys(METERS, 2))
    for processor, states, at_gap, meters in runs:
        driver.bus.kill_members(processor.name)
        driver._write(readings, [Reading(meter, 20, 1) for meter in meters])
        counted.update(meters)
        worker = worker_of(processor, driver, states)
        worker.at_gap = killed_at(at_gap)
        with suppress(Killed):
            read_to_end(worker, driver)

    last = {total.meter: total.readings for total in driver.read(totals)}
    assert last == counted
    assert len(driver.read(totals)) == counted.total()


METERS = ["m0", "m1", "m2", "m3", "m4"]


def killed_at(fatal_gap: Gap | None) -> Callable[[Gap], None]:
    """Return a callback that kills a worker at a gap."""

    def at_gap(gap: Gap) -> None:
        if gap == fatal_gap:
            raise Killed(f"died {gap}")

    return at_gap


def read_to_end(worker: Worker, driver: Driver) -> None:
    """Let a worker read all readings, and save."""
    targets = ends_of([readings], driver.bus)
    for _ in range(100):
        worker.run_once()
        if worker.has_reached(targets):
            worker.save()
            return
    raise AssertionError("the worker has not reached the end in a hundred rounds")


def test_a_category_outside_the_app_is_refused_by_name() -> None:
    """The bus of the driver does not contain it."""
    driver = Driver(Large)
    other = ps.Category("elsewhere", Reading, key="meter", event_time="at")
    with pytest.raises(PenstockError, match="elsewhere"):
        driver.send(other, EVENTS)

    assert CategorySpec.of(readings).name in driver.bus.names()


AHEAD = 10**12 + 86_400_001
FAR = [Reading("a", 10**12, 1), Reading("a", AHEAD, 2), Reading("a", 10**12 + 5, 3)]


def test_a_future_event_becomes_a_dead_letter_and_does_not_move_the_watermark() -> None:
    """The dead letter contains its distance to the arrival; later events are not late."""
    driver = Driver(Totals, start_ms=10**12)
    driver.send(readings, FAR)

    assert [total.litres for total in driver.read(totals)] == [1, 4]
    assert "1 day, 0:00:00.001000 ahead" in driver.dead_letters(Totals)[0].reason
    assert driver.metrics(Totals).late == 0


def test_an_event_without_an_arrival_time_is_not_a_future_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is processed like any other event."""
    monkeypatch.setattr(StoredMessage, "timestamp", lambda _: (0, -1))
    driver = Driver(Totals, start_ms=10**12)
    driver.send(readings, FAR[:1])

    assert [total.litres for total in driver.read(totals)] == [1]
    assert driver.dead_letters(Totals) == []


def test_a_future_event_can_stop_the_worker() -> None:
    """Earlier events are saved."""

    class Strict(Totals):
        on_future_event = ps.ErrorPolicy.STOP

    driver = Driver(Strict, start_ms=10**12)
    with pytest.raises(EventRejected, match=r"ahead of its arrival.*on_future_event = ErrorPolicy.DEAD_LETTER"):
        driver.send(readings, FAR)

    assert [total.litres for total in driver.read(totals)] == [1]


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (3_000_000_000_000, r"3000000000000 \(2065-01-24 05:20:00 UTC\), is .*; probably the field has another unit"),
        (
            10**15,
            r"is outside the years 1 to 9999; it looks like microseconds, not milliseconds \(divided by 1,000: 2001-09-09 01:46:40 UTC\)",
        ),
    ],
)
def test_a_future_event_time_is_explained(at: int, reason: str) -> None:
    """The error shows the date and the probable cause, which are not obvious from a number of milliseconds or days."""

    class Strict(Totals):
        on_future_event = ps.ErrorPolicy.STOP

    driver = Driver(Strict, start_ms=10**12)
    with pytest.raises(EventRejected, match=reason):
        driver.send(readings, [FAR[0], Reading("a", at, 2)])


@pytest.mark.parametrize(
    ("factor", "unit", "change"),
    [
        (0.001, "seconds", "multiplied by 1,000"),
        (1_000, "microseconds", "divided by 1,000"),
        (1_000_000, "nanoseconds", "divided by 1,000,000"),
    ],
)
def test_event_times_in_another_unit_are_refused(factor: float, unit: str, change: str) -> None:
    """No event is processed, and the error names the factor; `max_future = None` accepts such times."""

    class Meant(Totals):
        max_future = None

    wrong = [Reading("a", int((1_385_000_000_000 + n) * factor), 1) for n in range(3)]
    driver = Driver(Totals, start_ms=1_700_000_000_000)
    with pytest.raises(EventRejected, match=f"look like {unit}, not milliseconds: {change}, that is 2013-11-21"):
        driver.send(readings, wrong)
    assert driver.read(totals) == []
    allowed = Driver(Meant, start_ms=1_700_000_000_000)
    allowed.send(readings, wrong)

    assert len(allowed.read(totals)) == 3


def test_the_unit_is_also_checked_if_the_worker_started_before_the_first_event() -> None:
    """The worker then has a position already, at the start of the empty bucket."""
    driver = Driver(Totals, start_ms=1_700_000_000_000)
    driver.send(readings, [Crash()])
    with pytest.raises(EventRejected, match="look like seconds"):
        driver.send(readings, [Reading("a", 1_385_000_000, 1)])


def test_only_the_first_event_times_of_a_bucket_are_checked_for_their_unit() -> None:
    """A bucket that starts in 1970 is not checked again after a restart."""
    driver = Driver(Totals)
    driver.send(readings, [Reading("a", 0, 1), Crash(), Reading("a", 1_201_800_000, 1)])

    assert [total.litres for total in driver.read(totals)] == [1, 2]


def test_event_times_before_1970_are_valid() -> None:
    """They count, and belong to windows, like any other event times."""
    driver = Driver([Hours])
    driver.send(readings, [Reading("a", -1, 5), Reading("a", -HOUR, 6), Reading("a", 0, 1)])

    assert {(update.hour, update.litres) for update in driver.read(hours)} >= {(-HOUR, 11), (0, 1)}
