"""What a worker promises, on the bus in memory and in steered time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from datetime import timedelta
from itertools import product
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.testing import Crash, Driver, InlineExecutor, Killed
from penstock.ops.worker.changelog_replay import changelog_of
from penstock.ops.worker.output_writer import OutputRefused
from penstock.ops.worker.preflight import ends_of
from penstock.ops.worker.worker import Worker, WorkerConfig
from penstock.processors.declare.partitioner import bucket_of
from penstock.processors.errors import DeclarationError, PenstockError, ProcessorFailed
from penstock.processors.shard.batches import EventRejected
from penstock.processors.shard.checkpoints import Gap, Step, steps_of
from penstock.state.protocols import MemoryStateFolder, StateFolder
from penstock.transport.category_spec import CategorySpec
from penstock.transport.memory import StoredMessage
from penstock.transport.messages import Bucket, Outgoing


class Reading(ps.Record, frozen=True):
    """A meter's reading."""

    meter: str
    at: ps.EventTime
    litres: int


class Total(ps.Record, frozen=True):
    """A meter's total so far, and how many readings it is made of."""

    meter: str
    at: ps.EventTime
    litres: int
    readings: int


class Hourly(ps.Record, frozen=True):
    """A meter's litres in an hour."""

    meter: str
    hour: ps.EventTime
    litres: int


readings = ps.Category("readings", Reading, key="meter", event_time="at", buckets=3)
large = ps.Category("large", Reading, key="meter", event_time="at", buckets=3)
totals = ps.Category("totals", Total, key="meter", event_time="at", buckets=3)
hours = ps.Category("hours", Hourly, key="meter", event_time="hour", buckets=3)


class Large(ps.Stateless):
    """Keeps readings of 10 litres or more; negative ones are a mistake."""

    reads, writes = readings, large

    def process(self, event: Reading) -> Iterable[Reading]:
        if event.litres < 0:
            raise ValueError(f"{event.litres} litres")
        if event.litres >= 10:
            yield event


class Forgiving(Large):
    """The same, sending mistakes to the dead letters."""

    on_error = ps.ErrorPolicy.DEAD_LETTER


class Sum(ps.Record, frozen=True):
    """What is known of a meter."""

    litres: int
    readings: int


class Totals(ps.Stateful):
    """Adds up each meter."""

    reads, writes = readings, totals
    state = Sum

    def process(self, event: Reading, state: Sum | None, context: ps.Context) -> tuple[Sum | None, list[Total]]:
        before = state or Sum(0, 0)
        after = Sum(before.litres + event.litres, before.readings + 1)
        return after, [Total(context.key, context.event_time, after.litres, after.readings)]


class Hours(ps.Aggregator):
    """Adds up each meter's hours."""

    reads, writes = readings, hours
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Sum()
    window = ps.windows.Tumbling(timedelta(hours=1))

    def observe(self, event: Reading) -> int | None:
        return event.litres or None

    def result(self, key: str, window: ps.windows.Window, value: int) -> Hourly:
        return Hourly(key, window.start, value)


class Exact(Totals):
    """Adds up each meter, and writes each total once."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


class Often(Totals):
    """Adds up each meter, some readings more than once."""

    state_semantics = ps.Semantics.AT_LEAST_ONCE


class Seldom(Totals):
    """Adds up each meter, without some readings."""

    state_semantics = ps.Semantics.AT_MOST_ONCE
    output_semantics = ps.Semantics.AT_MOST_ONCE


class LargeOnce(Large):
    """Keeps readings of 10 litres or more, each once."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


class LargeAtMostOnce(Large):
    """Keeps readings of 10 litres or more, none twice."""

    output_semantics = ps.Semantics.AT_MOST_ONCE


class Silent(Totals):
    """Adds up each meter, and writes no total twice."""

    output_semantics = ps.Semantics.AT_MOST_ONCE


def worker_of(processor: type[ps.Processor], driver: Driver, states: StateFolder, identity: str = "test") -> Worker:
    """Start a worker beside a driver, on its bus and by its clock."""
    return Worker(
        processor(), WorkerConfig(driver.bus, states, identity), InlineExecutor(), InlineExecutor(), clock=driver.clock
    )


HOUR = 3_600_000
EVENTS = [Reading(f"m{n % 4}", n * HOUR // 3, n % 13) for n in range(40)]


def test_a_stateless_processor_maps_each_event() -> None:
    """What it yields is written, keyed by the output's own key."""
    driver = Driver(Large)
    driver.send(readings, EVENTS)

    assert Counter(driver.read(large)) == Counter(event for event in EVENTS if event.litres >= 10)


def test_a_stateful_processor_sees_each_keys_events_in_order() -> None:
    """Each key's state runs over its own events alone, in the order in which they were sent."""
    driver = Driver(Totals)
    driver.send(readings, EVENTS)

    for meter in {event.meter for event in EVENTS}:
        litres = [event.litres for event in EVENTS if event.meter == meter]
        found = [(total.litres, total.readings) for total in driver.read(totals) if total.meter == meter]
        assert found == [(sum(litres[: n + 1]), n + 1) for n in range(len(litres))]


def test_an_aggregators_last_update_is_the_whole_window() -> None:
    """However often a checkpoint falls, the last record of a key and window holds all of its events."""
    driver = Driver(Hours)
    for event in EVENTS:
        driver.send(readings, [event])

    last = {(update.meter, update.hour): update.litres for update in driver.read(hours)}
    truth: Counter[tuple[str, int]] = Counter()
    for event in EVENTS:
        truth[event.meter, event.at // HOUR * HOUR] += event.litres
    assert last == {slot: litres for slot, litres in truth.items() if litres}


def test_returning_no_state_forgets_the_key() -> None:
    """The next event of the key begins anew."""

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
def test_each_row_keeps_its_promise_wherever_it_dies(
    processor: type[ps.Processor], litres: list[tuple[str, int]], crashes: list[tuple[int, int]]
) -> None:
    """After deaths in any gaps, state and outputs are what the two settings say."""
    steps = [*steps_of(processor), None]
    events = [Reading(meter, at, amount) for at, (meter, amount) in enumerate(litres)]
    items: list[Reading | bytes | Crash] = list(events)
    for place, gap in crashes:
        items.insert(place, Crash(steps[gap % len(steps)]))
    driver = Driver(processor)
    driver.send(readings, items)

    [category] = processor.outputs()
    expect(processor.output_semantics, [output.at for output in driver.read(category)], list(range(len(events))))
    if category is totals:
        driver.send(readings, [Reading(meter, len(events), 0) for meter in "abcd"])
        for probe in (total for total in driver.read(totals) if total.at == len(events)):
            truth = [amount for name, amount in litres if name == probe.meter]
            expect_count(processor.state_semantics, probe.readings - 1, len(truth))
            expect_count(processor.state_semantics, probe.litres, sum(truth))


def expect(promise: ps.Semantics, found: list[int], truth: list[int]) -> None:
    """Hold the outputs against those that should be there."""
    if promise is not ps.Semantics.AT_MOST_ONCE:
        assert set(found) == set(truth)
    if promise is not ps.Semantics.AT_LEAST_ONCE:
        assert len(set(found)) == len(found)
        assert set(found) <= set(truth)


def expect_count(promise: ps.Semantics, found: int, truth: int) -> None:
    """Hold a count in the state against the truth."""
    if promise is not ps.Semantics.AT_MOST_ONCE:
        assert found >= truth
    if promise is not ps.Semantics.AT_LEAST_ONCE:
        assert found <= truth


def test_at_least_once_really_repeats() -> None:
    """A death between state and position counts the events twice: the harness bites where it should."""
    driver = Driver(Often)
    driver.send(readings, [Reading("m", 1, 5), Crash(Step.SAVE_POSITION)])

    assert driver.read(totals)[-1].litres == 10


def test_at_most_once_really_loses() -> None:
    """A death after the offsets are committed leaves the event out of state and output."""
    driver = Driver(Seldom)
    driver.send(readings, [Reading("m", 1, 5), Crash(Step.SAVE_POSITION), Reading("m", 2, 1)])

    assert driver.read(totals) == [Total("m", 2, 1, 1)]


def test_a_death_that_cannot_happen_is_refused() -> None:
    """A step that no processor of the driver has would make a test that tests nothing."""
    with pytest.raises(DeclarationError, match=r"Step\.SAVE_TOGETHER"):
        Driver(Totals).send(readings, [Crash(Step.PREPARE_STATE)])


def test_an_aggregator_with_a_remote_store_runs_in_memory_too() -> None:
    """The driver keeps its state and its outbox; after a death between the two commits each update is there once."""

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


def test_a_death_before_anything_is_saved_changes_nothing() -> None:
    """State that was not saved is dropped, and its events are read again."""
    driver = Driver(Totals)
    driver.send(readings, [Reading("m", 1, 5), Crash(Step.SAVE_TOGETHER), Reading("m", 2, 1)])

    assert driver.read(totals)[-1] == Total("m", 2, 6, 2)


def test_what_does_not_decode_becomes_a_dead_letter() -> None:
    """Its bytes, origin and reason are kept, and the events around it are processed."""
    driver = Driver(Large, start_ms=77)
    driver.send(readings, [Reading("a", 1, 10), b"{broken", Reading("b", 2, 20)])

    [letter] = driver.dead_letters(Large)
    assert {event.litres for event in driver.read(large)} == {10, 20}
    assert (letter.category, letter.value, letter.at) == ("readings", b"{broken", 77)
    assert "malformed" in letter.reason
    assert driver.bus.slice(Bucket("readings", letter.bucket), letter.offset, 1)[0].value() == b"{broken"


def test_a_processor_may_send_what_raises_to_the_dead_letters() -> None:
    """The event's own outputs are dropped, the others' are not."""
    driver = Driver(Forgiving)
    driver.send(readings, [Reading("a", 1, 10), Reading("a", 2, -3), Reading("a", 3, 30)])

    [letter] = driver.dead_letters(Forgiving)
    assert [event.litres for event in driver.read(large)] == [10, 30]
    assert letter.reason == "Forgiving raised ValueError: -3 litres"


def test_what_raises_stops_the_worker_with_all_before_it_saved() -> None:
    """By default: each start stops at the same event, and repeats none of those before."""
    driver = Driver(Large)
    for _ in range(3):
        with pytest.raises(EventRejected, match=r"offset 1: Large raised ValueError: -3 litres"):
            driver.send(readings, [] if driver.read(readings) else [Reading("a", 1, 10), Reading("a", 2, -3)])

    assert [event.litres for event in driver.read(large)] == [10]
    assert driver.bus.committed("large", "readings")[_bucket("a")] == 1


def _bucket(key: str) -> int:
    return bucket_of(key.encode(), readings.buckets)


def test_an_event_without_event_time_stops_the_worker() -> None:
    """Those before it in the batch are processed or set aside first, and it is said which field is missing."""
    driver = Driver(Large)
    for value in (b'{"meter":"a","at":1,"litres":10}', b"nonsense", b'{"meter":"a","litres":20}'):
        driver.bus.append("readings", Outgoing(b"a", value))
    with pytest.raises(EventRejected, match=r"offset 2: .*event time: 'at'"):
        driver.run()

    assert [event.litres for event in driver.read(large)] == [10]
    assert [letter.value for letter in driver.dead_letters(Large)] == [b"nonsense"]


@settings(max_examples=50, deadline=None)
@given(kinds=st.lists(st.sampled_from(["good", "raises", "broken", "untimed"]), max_size=12), forgiving=st.booleans())
def test_every_event_is_processed_set_aside_or_stops_the_worker(kinds: list[str], *, forgiving: bool) -> None:
    """Up to the first one that stops the worker, each is accounted for once; beyond it, none is touched."""
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

    taken = kinds[:stop]
    assert len(driver.read(large)) == taken.count("good")
    assert len(driver.dead_letters(subject)) == len(taken) - taken.count("good")
    if taken or stop is None:
        assert bus.committed(subject.name, "readings").get(_bucket("a"), 0) == len(taken)


def test_an_output_of_no_category_is_refused() -> None:
    """The error names the type and what the processor writes; nothing is saved."""

    class Wrong(Large):
        def process(self, event: Reading) -> Iterable[Reading]:
            yield Total("m", 1, 2, 3)  # type: ignore[misc]  # what a user's code may do all the same

    driver = Driver(Wrong)
    with pytest.raises(OutputRefused, match="Total, but writes only Reading to large"):
        driver.send(readings, EVENTS)

    assert driver.bus.committed("wrong", "readings") == {}


def test_a_state_that_is_not_of_its_type_is_refused_before_it_is_saved() -> None:
    """It could not be loaded again; the last good state stays."""

    class Wrong(Totals):
        def process(self, event: Reading, state: Sum | None, context: ps.Context) -> tuple[Sum | None, list[Total]]:
            return "not a sum", []  # type: ignore[return-value]  # what a user's code may do all the same

    driver = Driver(Wrong)
    with pytest.raises(ProcessorFailed, match="of another type than it declares"):
        driver.send(readings, EVENTS)

    assert driver.bus.committed("wrong", "readings") == {}


def test_a_monoid_that_breaks_a_law_is_refused_before_anything_is_saved() -> None:
    """A mean of means depends on where checkpoints fall; the error says what to keep instead."""

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


def test_a_result_that_raises_names_key_and_window() -> None:
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
def test_a_checkpoint_falls_at_whichever_limit_comes_first(
    every: ps.CheckpointInterval, events: int, seconds: int, *, due: bool
) -> None:
    """After so many events, so many bytes or so long; never for nothing."""

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


class Patient(Executor):
    """Does what it is given when it is told to."""

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
def test_work_goes_on_while_a_checkpoint_is_being_saved(processor: type[ps.Processor]) -> None:
    """Events are processed over the state that is being saved; their outputs and positions wait for the checkpoint's end."""
    driver, saver = Driver(processor), Patient()
    place = WorkerConfig(driver.bus, MemoryStateFolder(), "test")
    worker = Worker(processor(), place, InlineExecutor(), saver, clock=driver.clock)
    written, name = processor.outputs()[0], processor.name
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


def _truth(category: ps.Category[Any], meters: int, events: int) -> Iterable[Any]:
    for meter, at in product(range(meters), range(events)):
        yield Reading(f"m{meter}", at, 10) if category is large else Total(f"m{meter}", at, 10 * (at + 1), at + 1)


def test_two_workers_share_buckets_and_state_follows() -> None:
    """When a second worker joins and the first leaves, each key's count goes on where it stood."""
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


def test_what_lost_buckets_gave_is_taken_back() -> None:
    """Also when all are lost at once, and come back before anybody else has done their work."""
    driver = Driver(LargeOnce)
    worker = worker_of(LargeOnce, driver, MemoryStateFolder())
    worker.run_once()
    for n in range(30):
        driver.bus.append("readings", Outgoing(b"m%d" % n, b'{"meter":"m%d","at":1,"litres":10}' % n))
    worker.run_once()
    buckets = [Bucket("readings", number) for number in range(3)]
    worker._ownership.lost(buckets)
    worker._ownership.assigned(buckets)
    for _ in range(3):
        worker.run_once()
    worker.save()

    assert Counter(event.meter for event in driver.read(large)) == {f"m{n}": 1 for n in range(30)}


@pytest.mark.parametrize("processor", [Totals, Exact, Often, Silent, Large, LargeOnce])
def test_outputs_that_were_sent_are_news_whatever_else_stayed(processor: type[ps.Processor]) -> None:
    """A checkpoint flushes or commits them, also where neither state nor position has moved since the last one."""
    driver = Driver(processor)
    driver.send(readings, [Reading("m", 1, 50)])
    worker = driver._workers[processor]
    before, [shard] = worker.metrics.checkpoints, [one for one in worker.shards if one.position.get("readings")]
    [output] = driver.read(processor.outputs()[0])
    news = [shard.has_news]
    worker._outputs.send(shard, [output])
    news.append(shard.has_news)
    worker.save()
    news.append(shard.has_news)

    assert news == [False, True, False]
    assert driver.read(processor.outputs()[0]) == [output, output]
    assert worker.metrics.checkpoints == before + 1


def test_a_missing_state_is_rebuilt_from_the_start_of_the_category() -> None:
    """A group that had committed, on a machine without the state, reads all again instead of counting from nothing."""
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
def test_a_changelog_that_begins_late_holds_the_state_of_before(dies_at: Gap | None) -> None:
    """A processor that is declared to keep one from now on, or again, loses nothing of its state with its disk."""
    drawing: type[Totals] = type("Exact", (Exact,), {"deterministic": False})
    driver = Driver(Exact)
    driver.send(readings, [Reading(f"m{n % 5}", n, 1) for n in range(10)])
    changelog = changelog_of(drawing)
    assert changelog is not None
    driver.bus.create(changelog)
    same = driver._states[Exact]
    lives: list[tuple[type[Totals], StateFolder, Gap | None, list[str]]] = [
        (drawing, same, dies_at, ["m0"]),
        (drawing, same, None, []),
        (drawing, MemoryStateFolder(), None, ["m1"]),
        (Exact, same, None, ["m0", "m2"]),
        (drawing, same, None, ["m0"]),
        (drawing, MemoryStateFolder(), None, METERS),
    ]
    counted = Counter(dict.fromkeys(METERS, 2))
    for processor, states, at_gap, meters in lives:
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


def killed_at(death: Gap | None) -> Callable[[Gap], None]:
    """Return what lets a worker die in a gap."""

    def at_gap(gap: Gap) -> None:
        if gap == death:
            raise Killed(f"died {gap}")

    return at_gap


def read_to_end(worker: Worker, driver: Driver) -> None:
    """Let a worker read all readings that there are, and save."""
    targets = ends_of([readings], driver.bus)
    for _ in range(100):
        worker.run_once()
        if worker.has_reached(targets):
            worker.save()
            return
    raise AssertionError("it has not read to the end in a hundred turns")


def test_driver_errors_are_for_people() -> None:
    """A category that the app does not know is refused by the bus, by name."""
    driver = Driver(Large)
    other = ps.Category("elsewhere", Reading, key="meter", event_time="at")
    with pytest.raises(PenstockError, match="elsewhere"):
        driver.send(other, EVENTS)

    assert CategorySpec.of(readings).name in driver.bus.names()


AHEAD = 10**12 + 86_400_001
FAR = [Reading("a", 10**12, 1), Reading("a", AHEAD, 2), Reading("a", 10**12 + 5, 3)]


def test_an_event_far_ahead_is_set_aside_and_does_not_drag_the_watermark() -> None:
    """It goes to the dead letters with the distance; the events after it are not late."""
    driver = Driver(Totals, start_ms=10**12)
    driver.send(readings, FAR)

    assert [total.litres for total in driver.read(totals)] == [1, 4]
    assert "1 day, 0:00:00.001000 ahead" in driver.dead_letters(Totals)[0].reason
    assert driver.metrics(Totals).late == 0


def test_an_event_of_which_no_arrival_is_known_is_not_ahead_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can say that it is; it is an event as any other."""
    monkeypatch.setattr(StoredMessage, "timestamp", lambda _: (0, -1))
    driver = Driver(Totals, start_ms=10**12)
    driver.send(readings, FAR[:1])

    assert [total.litres for total in driver.read(totals)] == [1]
    assert driver.dead_letters(Totals) == []


def test_an_event_far_ahead_may_stop_the_worker() -> None:
    """With all before it saved."""

    class Strict(Totals):
        on_future_event = ps.ErrorPolicy.STOP

    driver = Driver(Strict, start_ms=10**12)
    with pytest.raises(EventRejected, match=r"ahead of its arrival.*on_future_event = ErrorPolicy.DEAD_LETTER"):
        driver.send(readings, FAR)

    assert [total.litres for total in driver.read(totals)] == [1]


@pytest.mark.parametrize(
    ("factor", "unit", "change"),
    [
        (0.001, "seconds", "multiplied by 1,000"),
        (1_000, "microseconds", "divided by 1,000"),
        (1_000_000, "nanoseconds", "divided by 1,000,000"),
    ],
)
def test_event_times_in_another_unit_are_refused(factor: float, unit: str, change: str) -> None:
    """Before anything is done with them; the factor is named. Whoever means them so may say that."""

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


def test_only_the_first_events_of_a_bucket_are_looked_at() -> None:
    """Who began in 1970 is not asked again what it means, whoever goes on with it."""
    driver = Driver(Totals)
    driver.send(readings, [Reading("a", 0, 1), Crash(), Reading("a", 1_201_800_000, 1)])

    assert [total.litres for total in driver.read(totals)] == [1, 2]


def test_event_times_before_1970_are_event_times() -> None:
    """They count, and lie in windows, as any other."""
    driver = Driver([Hours])
    driver.send(readings, [Reading("a", -1, 5), Reading("a", -HOUR, 6), Reading("a", 0, 1)])

    assert {(update.hour, update.litres) for update in driver.read(hours)} >= {(-HOUR, 11), (0, 1)}
