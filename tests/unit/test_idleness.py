"""Idleness: a silent input is idle only if the bus confirms it and its writers are idle and alive. No event is late because of an outage."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.machines import write

import penstock as ps
from penstock.ops.kernel import Crash, Driver, WatermarkSubscriber, Worker
from penstock.ops.kernel.event_time.end_offsets import EndOffsetRequest
from penstock.ops.kernel.event_time.upstream_shards import UpstreamShards
from penstock.ops.kernel.event_time.watermark_subscriber import FRESH_FOR_S, BucketWatermarks, StatementFreshness
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.testing import InlineExecutor, time_steps
from penstock.ops.shell import SteeredClock
from penstock.processors.time import IdleDetector, IdleTimeout
from penstock.state import MemoryStateFolder
from penstock.transport import Bucket, BusUnreachable
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import WATERMARKS, WatermarkStatement, watermark_messages, watermarks_on

MINUTE = 60_000
PATIENCE = IdleTimeout(60)


def confirmed(silence: IdleDetector, times_s: Iterable[float]) -> IdleDetector:
    """Confirm a silence at these times."""
    for at_s in times_s:
        silence.confirm(at_s)
    return silence


def test_a_continuously_confirmed_silence_is_idleness() -> None:
    """A bucket is idle after the timeout, and not before."""
    silence = IdleDetector(PATIENCE)

    assert [confirmed(silence, [at_s]).is_idle(at_s) for at_s in range(62)] == [False] * 60 + [True] * 2


def test_an_event_ends_idleness() -> None:
    """An answer to a request from before the event does not confirm a new silence."""
    silence = confirmed(IdleDetector(PATIENCE), range(100))
    silence.interrupt(100.5)
    assert not silence.is_idle(100.5)
    confirmed(silence, [100, *range(101, 161)])

    assert not silence.is_idle(160)
    assert confirmed(silence, [161]).is_idle(161)


@settings(deadline=None)
@given(
    times_s=st.lists(st.floats(0, 30), max_size=40).map(lambda gaps: [sum(gaps[: n + 1]) for n in range(len(gaps))]),
    later_s=st.floats(0, 30),
)
def test_a_gap_between_answers_never_counts_as_silence(times_s: list[float], later_s: float) -> None:
    """A bucket is idle after confirmations over the whole timeout without a gap; outages, pauses and clock jumps are gaps."""
    silence, now_s = confirmed(IdleDetector(PATIENCE), times_s), (times_s[-1] if times_s else 0.0) + later_s
    lasted_s, later = 0.0, now_s
    for at_s in reversed(times_s):
        if later - at_s > PATIENCE.gap_s:
            break
        lasted_s, later = times_s[-1] - at_s, at_s

    assert silence.is_idle(now_s) == (lasted_s >= 60)


@pytest.mark.parametrize("jump_s", [-100.0, 16.0, 3_600.0])
def test_a_clock_jump_restarts_the_idle_timeout(jump_s: float) -> None:
    """The clock may jump backwards, and the silence may have been long enough before."""
    silence = confirmed(IdleDetector(PATIENCE), range(1_000, 1_100))
    at_s = 1_100 + jump_s
    assert not confirmed(silence, [at_s]).is_idle(at_s)
    confirmed(silence, (at_s + n for n in range(1, 61)))

    assert silence.is_idle(at_s + 60)


@settings(deadline=None)
@given(idle_after_s=st.floats(0, 10**6))
def test_requests_are_frequent_enough_to_leave_no_gap(idle_after_s: float) -> None:
    """Two requests may fail without a gap; a gap is short compared with the timeout, unless that is less than a second."""
    patience = IdleTimeout(idle_after_s)

    assert 0.1 <= patience.ask_every_s <= 1
    assert 3 * patience.ask_every_s <= patience.gap_s <= max(idle_after_s, 0.31)


def test_an_idle_statement_is_dated_by_an_earlier_end_offset() -> None:
    """It was true after this worker's request if the bus had a smaller end then; an equal end may date from before an outage."""
    dating = StatementFreshness(PATIENCE)
    assert not dating.is_fresh(5, 0)
    dating.record_end(0, 4)
    dating.record_end(1, 5)

    assert [dating.is_fresh(as_of, 1) for as_of in (4, 5, 6)] == [False, True, True]
    assert [dating.is_fresh(5, now_s) for now_s in (FRESH_FOR_S, FRESH_FOR_S + 1)] == [True, False]
    dating.record_end(FRESH_FOR_S + 1, 5)
    assert not dating.is_fresh(5, FRESH_FOR_S + 1)


def test_a_report_from_before_a_gap_is_not_fresh() -> None:
    """It is not fresh even within its usual time, because this process may have missed anything in the gap."""
    patience = IdleTimeout(3)
    dating = StatementFreshness(patience)
    dating.record_end(0, 4)
    dating.record_end(0.75, 5)
    assert dating.is_fresh(6, 1)
    assert not dating.is_fresh(6, 0.76 + patience.gap_s)
    dating.record_end(4, 6)

    assert [dating.is_fresh(as_of, 4) for as_of in (6, 7)] == [False, True]


def _told(
    number: int, watermark_ms: int, end: int, *, idle: bool = False
) -> tuple[tuple[str, int], WatermarkStatement]:
    return ("up", number), WatermarkStatement(
        "up", number, 2, watermark_ms, {"hours": {0: end}}, watermark_ms, "", idle
    )


def _upstream(known: Iterable[tuple[tuple[str, int], WatermarkStatement]]) -> UpstreamShards:
    upstream = UpstreamShards("hours")
    upstream.record(known)
    return upstream


@pytest.mark.parametrize("beats", [1, 2, 500])
def test_idleness_counts_once_all_earlier_events_are_read(beats: int) -> None:
    """Until then, the shard limits the watermark as if it were not idle, however often it repeats its statement."""
    known = [_told(1, 40, 10), _told(0, 1_000, 10), _told(1, 100, 50), _told(0, 2_000, 60)]
    known += [_told(1, 100, 60 + beat, idle=True) for beat in range(beats)]
    upstream = _upstream(known)
    board = BucketWatermarks(Bucket("hours", 0), upstream)

    assert [board.at(position).watermark_ms for position in (10, 50, 59)] == [40, 100, 100]
    assert board.at(60).watermark_ms == 2_000
    upstream.record([_told(1, 100, 700, idle=True)])
    assert board.at(60).watermark_ms == 2_000
    assert (
        BucketWatermarks(Bucket("hours", 0), upstream)
        .at(49)
        .held_by.startswith("up/1, which is idle, but its earlier outputs")
    )


def test_repeated_idle_statements_do_not_hide_earlier_watermarks() -> None:
    """A shard that is opened later still gets the watermarks of its position, and the start of the idleness."""
    bus, bucket = MemoryBus(), Bucket("hours", 0)
    bus.create(WATERMARKS)
    known = [_told(1, 40, 10), _told(0, 1_000, 10), _told(1, 100, 50), _told(0, 2_000, 60)]
    known += [_told(1, 100, 60 + beat, idle=True) for beat in range(500)]
    bus.writer().send(WATERMARKS.name, watermark_messages(promise for _, promise in known))
    upstream = WatermarkSubscriber(bus, [bucket.category])
    upstream.read()
    upstream.read()
    upstream.begin(bucket)

    assert [upstream.at(bucket, position).watermark_ms for position in (10, 59, 60)] == [40, 100, 2_000]


@pytest.mark.parametrize("is_fresh", [True, False])
def test_consumers_wait_for_an_idle_shard_that_stops_reporting(*, is_fresh: bool) -> None:
    """It may have stopped with unprocessed input; the description says so."""
    known = [_told(0, 1_000, 10), _told(1, 100, 10), _told(1, 100, 10, idle=True)]
    held = BucketWatermarks(Bucket("hours", 0), _upstream(known), lambda _: is_fresh).at(10)

    assert held.watermark_ms == (1_000 if is_fresh else 100)
    assert ("has not been heard from since it stopped" in held.held_by) == (not is_fresh)


class Order(ps.Record, frozen=True):
    """An order."""

    key: str
    at: ps.EventTime
    euros: int


class Payment(Order, frozen=True):
    """The payment of an order."""


class BigOrder(Order, frozen=True):
    """A large order."""


class BigPayment(Order, frozen=True):
    """A large payment."""


class Paid(Order, frozen=True):
    """An order that was paid."""


class Enriched(Order, frozen=True):
    """A paid order with more data."""


class Minute(Order, frozen=True):
    """The payments of a minute."""


def _category(record: type[Any], name: str) -> ps.Category[Any]:
    return ps.Category(name, record, key="key", event_time="at", buckets=2)


orders, payments = _category(Order, "orders"), _category(Payment, "payments")
big_orders, big_payments = _category(BigOrder, "big_orders"), _category(BigPayment, "big_payments")
paid, enriched, minutes = _category(Paid, "paid"), _category(Enriched, "enriched"), _category(Minute, "minutes")


class BigOrders(ps.Stateless):
    """Keeps large orders."""

    reads, writes, watermark = orders, big_orders, ps.watermarks.BoundedOutOfOrderness()

    def process(self, event: Order) -> Iterable[BigOrder]:
        yield BigOrder(event.key, event.at, event.euros)


class BigPayments(ps.Stateless):
    """Keeps large payments."""

    reads, writes, watermark = payments, big_payments, ps.watermarks.BoundedOutOfOrderness()

    def process(self, event: Payment) -> Iterable[BigPayment]:
        yield BigPayment(event.key, event.at, event.euros)


class Join(ps.Join):
    """Joins orders and payments of the same time."""

    left, right, writes = big_orders, big_payments, paid
    join_type = ps.JoinType.LEFT
    watermark: ClassVar[ps.watermarks.Watermark] = ps.watermarks.BoundedOutOfOrderness()
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def join(self, left: BigOrder, right: BigPayment | None, context: ps.Context) -> Iterable[Paid]:
        yield Paid(left.key, left.at, right.euros if right else -1)


class PromisedJoin(Join):
    """The join with upstream watermarks."""

    name, watermark = "join", ps.watermarks.UpstreamWatermark()


class Enrichment(ps.Stateless):
    """Adds data."""

    reads, writes, watermark = paid, enriched, ps.watermarks.UpstreamWatermark()

    def process(self, event: Paid) -> Iterable[Enriched]:
        yield Enriched(event.key, event.at, event.euros)


class Minutes(ps.Aggregator):
    """Sums the payments of each minute at its end."""

    reads, writes = enriched, minutes
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Sum()
    window = ps.windows.Tumbling(timedelta(minutes=1))
    emit, late, watermark = ps.AtWatermark(), ps.OnLate.DROP, ps.watermarks.UpstreamWatermark()
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def observe(self, event: Enriched) -> int:
        return event.euros

    def result(self, key: str, window: ps.windows.Window, value: int) -> Minute:
        return Minute(key, window.start, value)


JOINS = [Join, PromisedJoin]
KEYS = "abcdef"


class Plant:
    """An app whose processors may pause, one by one, and whose bus may fail."""

    def __init__(self, join: type[ps.Join]) -> None:
        self.app: list[type[ps.Processor]] = [BigOrders, BigPayments, join, Enrichment, Minutes]
        self.driver = Driver(self.app)
        self.paid = 0

    def run(self, *processors: type[ps.Processor]) -> None:
        """Run processors to the end of their input, in this order."""
        for processor in processors or self.app:
            self.driver._run_to_end(processor)

    def pass_time(self, seconds: int, *processors: type[ps.Processor]) -> None:
        """Advance the clock while processors run."""
        for _ in range(seconds):
            self.driver.clock.advance(1)
            self.run(*processors)

    def order(self, minute: range) -> None:
        """Write orders of some minutes."""
        write(self.driver.bus, orders, [Order(key, at * MINUTE, 1) for at in minute for key in KEYS])

    def pay(self, minute: range) -> None:
        """Write payments of some minutes."""
        self.paid += len(minute) * len(KEYS)
        write(self.driver.bus, payments, [Payment(key, at * MINUTE, 1) for at in minute for key in KEYS])

    @contextmanager
    def outage(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """The bus returns no events and no answers."""

        def away(*_: object) -> Mapping[Any, int]:
            raise BusUnreachable("no broker")

        with patch.context() as away_for_now:
            for name, instead in (("slice", lambda *_: []), ("ends", away), ("ends_of", away)):
                away_for_now.setattr(self.driver.bus, name, instead)
            yield

    def expect_all(self, until: int) -> None:
        """Expect a match for each order, and complete minutes up to one."""
        self.expect_all_of(range(until))

    def expect_all_of(self, complete: Iterable[int]) -> None:
        """Expect a match for each order, and these complete minutes."""
        assert [one.euros for one in self.driver.read(paid)] == [1] * self.paid
        found = {(one.key, one.at): one.euros for one in self.driver.read(minutes)}
        assert found == {(key, at * MINUTE): 1 for at in complete for key in KEYS}
        assert sum(self.driver.metrics(processor).late for processor in self.app) == 0


@pytest.mark.parametrize("join", JOINS)
def test_no_event_is_late_after_an_outage_longer_than_the_idle_timeout(
    join: type[ps.Join], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outage happens twice. When the bus returns, events of one input wait for the other input."""
    plant = Plant(join)
    for begin in (0, 10, 20):
        plant.order(range(begin, begin + 10))
        plant.run()
        plant.pass_time(20)
        plant.pay(range(begin, begin + 10))
        plant.run()
        plant.pass_time(20)
        with plant.outage(monkeypatch):
            plant.pass_time(130)
    plant.pass_time(3)

    plant.expect_all(until=29)


@pytest.mark.parametrize("join", JOINS)
def test_no_event_is_late_after_all_workers_paused(join: type[ps.Join]) -> None:
    """One input may have been idle before, and workers may restart in any order."""
    plant = Plant(join)
    plant.order(range(10))
    plant.pay(range(10))
    plant.run()
    plant.pass_time(70)
    plant.order(range(10, 20))
    plant.pay(range(10, 20))
    plant.driver.clock.advance(300)
    for _ in range(3):
        plant.run(BigOrders, join, Enrichment, Minutes)
    plant.run()
    plant.pass_time(3)

    plant.expect_all(until=19)


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("was_idle", [True, False])
def test_no_event_of_a_stopped_upstream_processor_is_late(join: type[ps.Join], *, was_idle: bool) -> None:
    """Its consumers wait for any length of time, and name it."""
    plant = Plant(join)
    plant.order(range(10))
    plant.pay(range(10))
    plant.run()
    if was_idle:
        plant.pass_time(70)
    plant.driver._discard_worker(BigPayments)
    others = [one for one in plant.app if one is not BigPayments]
    plant.pass_time(15, *others)
    for at in range(10, 20):
        plant.order(range(at, at + 1))
        plant.pay(range(at, at + 1))
        plant.pass_time(20, *others)
    reason = watermarks_on(plant.driver.bus)["join", 0].held_by
    plant.run()
    plant.pass_time(3)

    plant.expect_all(until=19)
    assert "big_payments/0" in reason
    if was_idle:
        assert "was idle and has not been heard from since it stopped" in reason


@pytest.mark.parametrize("join", JOINS)
def test_consumers_do_not_wait_for_an_idle_processor(join: type[ps.Join]) -> None:
    """Its consumers continue within its idle timeout and a few seconds."""
    plant = Plant(join)
    plant.order(range(10))
    plant.pay(range(10))
    plant.run()
    for second in range(75):
        plant.order(range(10 + second // 10, 11 + second // 10))
        plant.pass_time(1)
        if second == 50:
            assert max(one.at for one in plant.driver.read(minutes)) < 10 * MINUTE
    found = plant.driver.read(minutes)

    assert max(one.at for one in found) >= 14 * MINUTE


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("busy_s", [0, 3])
def test_no_event_is_late_that_arrived_together_with_those_of_another_input(join: type[ps.Join], busy_s: int) -> None:
    """After a pause, one input is read first, and the processor that writes the other is alive, but has not read its own input yet."""
    plant = Plant(join)
    plant.order(range(10))
    plant.pay(range(10))
    plant.run()
    plant.pass_time(75)
    plant.pay(range(70, 80))
    plant.order(range(70, 80))
    others = [one for one in plant.app if one is not BigPayments]
    plant.run(*others)
    plant.pass_time(busy_s, *others)
    plant.run()
    plant.pass_time(75)

    plant.expect_all_of([*range(10), *range(70, 79)])


class Sparse(ps.Aggregator):
    """Counts the events of three inputs in each minute."""

    reads, writes = (orders, payments, big_orders), minutes
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(minutes=1))
    emit, late, watermark = ps.AtWatermark(), ps.OnLate.DROP, ps.watermarks.BoundedOutOfOrderness()

    def result(self, key: str, window: ps.windows.Window, value: int) -> Minute:
        return Minute(key, window.start, value)


@pytest.mark.parametrize("pause_s", [0, 70, 400])
@pytest.mark.parametrize("crash", [False, True])
def test_inputs_that_resume_together_drop_nothing(pause_s: int, *, crash: bool) -> None:
    """Any of them may be read first, after any pause, and after a restart. Several inputs are idle."""
    driver, by_category = Driver(Sparse), {orders: Order, payments: Payment, big_orders: BigOrder}
    for turn in range(3):
        for category in [*by_category][turn:] + [*by_category][:turn]:
            record = by_category[category]
            driver._write(category, [record(key, (60 * turn + at) * MINUTE, 1) for at in range(20) for key in KEYS])
        if crash:
            driver.send(orders, [Crash()])
        driver.run()
        driver.advance(pause_s)

    assert driver.metrics(Sparse).dropped == 0
    assert {row.euros for row in driver.read(minutes)} == {3}


def test_event_time_does_not_pass_an_idle_input_while_the_bus_does_not_confirm_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An event of another input moves it after the confirmation, and the worker reports the reason."""
    plant = Plant(Join)
    plant.order(range(10))
    plant.pay(range(10))
    plant.run()
    plant.pass_time(70)
    before = watermarks_on(plant.driver.bus)["join", 0]

    def away(_: Collection[Bucket]) -> NoReturn:
        raise BusUnreachable("no broker leads this bucket")

    with monkeypatch.context() as patch:
        patch.setattr(plant.driver.bus, "ends_of", away)
        plant.order(range(10, 12))
        plant.pass_time(2)
        held = watermarks_on(plant.driver.bus)["join", 0]
    plant.pass_time(10)

    assert held.low_ms == before.low_ms < watermarks_on(plant.driver.bus)["join", 0].low_ms
    assert held.held_by.startswith("big_payments/0: the bus does not return its end offset")


def test_a_watermark_passes_an_idle_shard_only_as_far_as_it_has_looked() -> None:
    """An idle shard whose input has arrived since may write earlier events. It passes after the shard has looked once more."""

    def statement(shard: int, at_ms: int, *, idle_as_of: int | None = None) -> WatermarkStatement:
        idle = idle_as_of is not None
        return WatermarkStatement(
            "hourly",
            shard,
            2,
            at_ms,
            {"hours": {0: 0}},
            at_ms,
            idle=idle,
            as_of=idle_as_of or 0,
            idle_as_of=idle_as_of or 0,
        )

    upstream = UpstreamShards("hours")
    board = BucketWatermarks(Bucket("hours", 0), upstream)
    upstream.record([(("hourly", 1), statement(1, 5, idle_as_of=0)), (("hourly", 0), statement(0, 100))])
    reached = [board.at(0, 7).watermark_ms]
    for as_of, last in ((7, 8), (8, 9)):
        upstream.record([(("hourly", 1), statement(1, 5, idle_as_of=as_of))])
        reached.append(board.at(0, last).watermark_ms)

    assert reached == [5, 5, 100]
    assert board.at(0).watermark_ms == 100


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.0, 0.0), (0.01, 0.2), (0.04, 0.8), (5.0, 1.0)])
def test_requests_that_events_cause_take_a_small_part_of_the_time(took_s: float, pause_s: float) -> None:
    """After a request, the next one waits for many times as long as it took, and for a second at most."""
    bus, clock = MemoryBus(), SteeredClock()
    request = EndOffsetRequest(bus, InlineExecutor(), clock)
    request.begin([])
    clock.advance(took_s)
    request.answer()
    may_hurry = []
    for wait_s in (pause_s - 0.002, 0.004):
        clock.advance(max(wait_s, 0))
        may_hurry.append(request.may_hurry)

    assert may_hurry == [pause_s == 0, True]


class Slow(ps.Stateless):
    """Saves rarely, and keeps its outputs until then."""

    reads, writes, watermark = orders, big_orders, ps.watermarks.BoundedOutOfOrderness()
    output_semantics = ps.Semantics.AT_MOST_ONCE
    checkpoint = ps.CheckpointInterval(time=timedelta(seconds=200))

    def process(self, event: Order) -> Iterable[BigOrder]:
        yield BigOrder(event.key, event.at, event.euros)


class SlowOnce(Slow):
    """Sends outputs in transactions."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


class SlowAtLeastOnce(Slow):
    """Sends outputs at once, without a confirmation of their arrival."""

    output_semantics = ps.Semantics.AT_LEAST_ONCE


def worker_of(processor: type[ps.Processor], driver: Driver) -> Worker:
    """Return a worker that has just joined its group."""
    return Worker(
        processor(),
        WorkerConfig(driver.bus, MemoryStateFolder(), "one"),
        InlineExecutor(),
        InlineExecutor(),
        clock=driver.clock,
    )


@pytest.mark.parametrize("processor", [Slow, SlowOnce, SlowAtLeastOnce])
def test_a_processor_with_unsent_outputs_is_not_idle(processor: type[ps.Processor]) -> None:
    """With checkpoints further apart than the idle timeout, idleness is published after the checkpoint, with the ends of its outputs."""
    driver = Driver(processor)
    worker = worker_of(processor, driver)
    worker.run_once()
    write(driver.bus, orders, [Order(key, 0, 1) for key in KEYS])
    idle = []
    for _ in range(280):
        driver.clock.advance(1)
        worker.run_once()
        promises = [one for (name, _), one in watermarks_on(driver.bus).items() if name == processor.name]
        idle.append(all(one.idle for one in promises))

    assert worker.metrics.checkpoints == 1
    assert not any(idle[:199])
    assert idle[-1]
    assert {one.ends["big_orders"][0] for one in promises} == {driver.bus.ends("big_orders")[0]}


def test_a_stored_watermark_of_an_idle_shard_does_not_prove_idleness() -> None:
    """The shard must repeat it first."""
    plant = Plant(PromisedJoin)
    bus = plant.driver.bus
    both = {"big_orders": {0: 0, 1: 0}}
    writer = bus.writer()
    for number in (0, 1):
        writer.send(
            WATERMARKS.name,
            watermark_messages([WatermarkStatement("gone", number, 2, 0, both, 0, "", idle=True, as_of=10**6)]),
        )
    plant.pay(range(10))
    for _ in range(80):
        plant.driver.clock.advance(1)
        plant.run(BigPayments, PromisedJoin)

    held = watermarks_on(bus)["join", 0]
    assert held.low_ms <= 0
    assert "gone/" in held.held_by


def test_unknown_idleness_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bus does not return a bucket's end offset."""
    plant = Plant(Join)
    plant.order(range(10))
    plant.pay(range(5))
    plant.run()

    def away(_: Collection[Bucket]) -> NoReturn:
        raise BusUnreachable("no broker leads this bucket")

    monkeypatch.setattr(plant.driver.bus, "ends_of", away)
    plant.pass_time(3)

    held = watermarks_on(plant.driver.bus)["join", 0].held_by
    assert held.startswith("big_payments/0: the bus does not return its end offset")


@settings(deadline=None)
@given(
    seconds=st.floats(0.001, 10**7),
    idle_after_s=st.lists(st.floats(10, 3_600), max_size=3),
    processors=st.integers(1, 8),
)
def test_a_driver_advances_time_in_steps_that_show_idleness(
    seconds: float, idle_after_s: list[float], processors: int
) -> None:
    """It advances all of it in few steps. At the end, the steps have no gaps for the length of the idle timeout, if time permits."""
    steps = list(time_steps(seconds, idle_after_s, processors))

    assert math.isclose(sum(steps), seconds)
    if idle_after_s:
        gap_s = IdleTimeout(min(idle_after_s)).gap_s
        last = steps[1:] if steps[0] > gap_s else steps
        assert all(step <= gap_s for step in last)
        assert sum(last) >= min(seconds, max(idle_after_s)) - 1e-6
    else:
        assert steps == [seconds]


def test_advancing_the_clock_by_a_month_takes_few_steps() -> None:
    """It takes as many steps as a few minutes."""
    assert len(list(time_steps(30 * 86_400, [60.0], 5))) < 60


@pytest.mark.parametrize("idle_after", [None, timedelta(minutes=1)])
def test_end_offsets_are_requested_only_for_idle_timeouts(
    idle_after: timedelta | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor without idleness requests none, and no request is made while events arrive."""
    quiet = type("Quiet", (Slow,), {"idle_after": idle_after, "name": "quiet"})
    driver, asked = Driver(quiet), list[Collection[Bucket]]()
    worker, ends_of = worker_of(quiet, driver), driver.bus.ends_of

    def noted(buckets: Collection[Bucket]) -> Mapping[Bucket, int]:
        asked.append(buckets)
        return ends_of(buckets)

    monkeypatch.setattr(driver.bus, "ends_of", noted)
    for second in range(10):
        write(driver.bus, orders, [Order(key, second, 1) for key in KEYS])
        driver.clock.advance(0.9)
        worker.run_once()
    in_work = len(asked)
    for _ in range(5):
        driver.clock.advance(1)
        worker.run_once()

    assert in_work <= 1
    assert len(asked) - in_work == (0 if idle_after is None else 5)
