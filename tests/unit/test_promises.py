"""Watermarks from one processor to the next, through the bus alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import closing
from datetime import timedelta
from typing import Any, ClassVar, NoReturn, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faulty import DelayedExecutor
from support.machines import create_categories, write

import penstock as ps
from penstock.ops.kernel import Crash, Driver, WatermarkSubscriber, Worker, ends_of
from penstock.ops.kernel.checkpoint.checkpoint_scheduler import FLUSH_EVERY_S
from penstock.ops.kernel.event_time import watermark_publisher
from penstock.ops.kernel.event_time.upstream_shards import UpstreamShards
from penstock.ops.kernel.event_time.watermark_publisher import WatermarkPublisher
from penstock.ops.kernel.event_time.watermark_subscriber import BucketWatermarks
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.testing import InlineExecutor
from penstock.processors.apps.clones import cloned
from penstock.processors.declare import bucket_of, plan_of
from penstock.processors.shard import Step, steps_of
from penstock.processors.time import NEVER_MS
from penstock.state import MemoryStateFolder
from penstock.transport import Bucket, BusUnreachable, Fenced, Outgoing, WatermarkWriter
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.network import REQUEST_LIMIT_S, Network
from penstock.transport.tables import (
    WATERMARKS,
    WatermarkStatement,
    deletion_messages,
    watermark_messages,
    watermarks_on,
)
from penstock.transport.watermark_writer import WatermarkWentBack

T = TypeVar("T")
MINUTE = 60_000


class Call(ps.Record, frozen=True):
    """A call."""

    caller: str
    at: ps.EventTime
    seconds: int


class Long(Call, frozen=True):
    """A long call and its taker."""

    taker: str


class Calls(ps.Record, frozen=True):
    """The number of a taker's calls in a minute."""

    taker: str
    minute: ps.EventTime
    calls: int


class Hours(ps.Record, frozen=True):
    """The number of a taker's calls in an hour."""

    taker: str
    hour: ps.EventTime
    calls: int


calls = ps.Category("calls", Call, key="caller", event_time="at", buckets=2)
long_calls = ps.Category("long_calls", Long, key="taker", event_time="at", buckets=3)
minutes = ps.Category("minutes", Calls, key="taker", event_time="minute", buckets=1)
hours = ps.Category("hours", Hours, key="taker", event_time="hour", buckets=1)


class Filter(ps.Stateless):
    """Keeps long calls, and distributes them to two takers."""

    reads, writes = calls, long_calls
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(seconds=10))

    def process(self, event: Call) -> Iterable[Long]:
        if event.seconds >= 10:
            yield Long(event.caller, event.at, event.seconds, f"taker-{event.seconds % 2}")


class Minutes(ps.Aggregator):
    """Counts the calls of each minute at its end."""

    reads: ClassVar[ps.Category[Any]] = long_calls
    writes = minutes
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Count()
    window = ps.windows.Tumbling(timedelta(minutes=1))
    watermark: ClassVar[ps.watermarks.Watermark] = ps.watermarks.UpstreamWatermark()
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def result(self, key: str, window: ps.windows.Window, value: int) -> Calls:
        return Calls(key, window.start, value)


class PerHour(ps.Aggregator):
    """Sums minutes to hours at their end."""

    reads, writes = minutes, hours
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.Sum()
    window = ps.windows.Tumbling(timedelta(hours=1))
    watermark = ps.watermarks.UpstreamWatermark()
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP

    def observe(self, event: Calls) -> int:
        return event.calls

    def result(self, key: str, window: ps.windows.Window, value: int) -> Hours:
        return Hours(key, window.start, value)


APP = [Filter, Minutes, PerHour]
ENDS = [Call(caller, 100 * 60 * MINUTE, 5) for caller in ("a", "b", "c", "d")]  # at least one call in each bucket


def published_watermarks(driver: Driver, processor: type[ps.Processor]) -> dict[int, int]:
    """Return the published watermarks of a processor's shards."""
    return {
        bucket: advance.watermark_ms
        for (name, bucket), advance in watermarks_on(driver.bus).items()
        if name == processor.name
    }


CALLS = st.lists(
    st.builds(Call, st.sampled_from(["a", "b", "c", "d"]), st.integers(0, 200 * MINUTE), st.integers(5, 15)),
    max_size=30,
)


@given(given_calls=CALLS, cuts=st.lists(st.integers(0, 30), max_size=3))
@settings(max_examples=40, deadline=None)
def test_downstream_windows_contain_all_events_that_were_in_time_upstream(
    given_calls: list[Call], cuts: list[int]
) -> None:
    """Minutes and hours count every call that passes the filter, for any division into runs."""
    ordered = sorted(given_calls, key=lambda call: call.at)
    driver = Driver(APP)
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(ordered)], strict=True):
        driver.send(calls, ordered[begin:end])
    driver.send(calls, ENDS)
    driver.run()

    long = [call for call in ordered if call.seconds >= 10]
    per_hour: dict[tuple[str, int], int] = {}
    for call in long:
        slot = f"taker-{call.seconds % 2}", call.at // (60 * MINUTE) * 60 * MINUTE
        per_hour[slot] = per_hour.get(slot, 0) + 1
    assert {(row.taker, row.hour): row.calls for row in driver.read(hours)} == per_hour
    assert sum(row.calls for row in driver.read(minutes)) == len(long)
    assert driver.metrics(Minutes).late == driver.metrics(PerHour).late == 0


class Contract(ps.Record, frozen=True):
    """The price that a taker pays per second from a minute on, written by another program."""

    taker: str
    minute: ps.EventTime
    price: int


class Charge(ps.Record, frozen=True):
    """The price of a call's first second; None if its minute has no contract."""

    taker: str
    at: ps.EventTime
    price: int | None


contracts = ps.Category("contracts", Contract, key="taker", event_time="minute", buckets=3)
charges = ps.Category("charges", Charge, key="taker", event_time="at", buckets=1)


class Charges(ps.Join):
    """Joins calls, which the filter writes, with contracts."""

    left, right, writes = long_calls, contracts, charges
    before = timedelta(milliseconds=MINUTE - 1)
    join_type = ps.JoinType.LEFT
    watermark: ClassVar[Mapping[ps.Category[Any], ps.watermarks.Watermark]] = {
        long_calls: ps.watermarks.UpstreamWatermark(),
        contracts: ps.watermarks.BoundedOutOfOrderness(),
    }

    def join(self, left: Long, right: Contract | None, context: ps.Context) -> Iterable[Charge]:
        yield Charge(left.taker, left.at, None if right is None else right.price)


@pytest.mark.parametrize("clone", [None, "staging"])
def test_an_input_of_another_program_is_joined_with_outputs_of_a_processor_that_catches_up(clone: str | None) -> None:
    """The processor reads one of its buckets after the other. Its outputs are not late, although the other input is far ahead."""
    app = [Filter, Charges] if clone is None else cloned([Filter, Charges], clone)
    driver = Driver(app)
    takers = ("taker-0", "taker-1")
    made = [Call(caller, minute * MINUTE + 9, 10 + minute % 2) for caller in "ad" for minute in range(60)]
    assert len({bucket_of(caller.encode(), calls.buckets) for caller in "ad"}) == 2
    for call in made[:60]:
        driver.send(calls, [call])
    driver.send(contracts, [Contract(taker, minute * MINUTE, minute) for minute in range(120) for taker in takers])
    for call in made[60:]:
        driver.send(calls, [call])
    before_the_end = driver.read(plan_of(app[1]).outputs[0])
    driver.send(calls, ENDS)
    driver.send(contracts, [Contract(f"taker-{n}", 100 * 60 * MINUTE, 0) for n in range(8)])

    found = driver.read(plan_of(app[1]).outputs[0])
    assert Counter((one.taker, one.at, one.price) for one in found) == Counter(
        (f"taker-{call.seconds % 2}", call.at, call.at // MINUTE) for call in made
    )
    assert driver.metrics(app[1]).late == 0
    assert len(before_the_end) == len(found)


def test_the_slowest_shard_holds_the_watermark_back() -> None:
    """Its later outputs can still belong to the window, which is complete when this shard has advanced."""
    driver = Driver(APP)
    callers = {bucket_of(caller.encode(), calls.buckets): caller for caller in "abcdef"}
    slow, fast = callers[0], callers[1]
    driver.send(calls, [Call(slow, 0, 10), Call(fast, 1, 10), Call(fast, 10 * MINUTE, 10)])
    assert driver.read(minutes) == []
    driver.send(calls, [Call(slow, 5 * MINUTE, 10)])

    assert [(row.minute, row.calls) for row in driver.read(minutes)] == [(0, 2)]
    assert published_watermarks(driver, Filter) == {0: 5 * MINUTE - 10_000, 1: 10 * MINUTE - 10_000}


def test_an_idle_bucket_delays_the_watermark_only_up_to_its_limit() -> None:
    """After the limit of idleness and a few seconds, in which its silence is confirmed again, the watermark advances without the bucket."""
    driver = Driver(APP)
    caller = next(caller for caller in "abcdef" if bucket_of(caller.encode(), calls.buckets) == 1)
    driver.send(calls, [Call(caller, 0, 10), Call(caller, 10 * MINUTE, 5)])
    driver.advance(59)
    assert driver.read(minutes) == []
    driver.advance(6)

    assert [row.calls for row in driver.read(minutes)] == [1]


def test_a_removed_upstream_processor_does_not_hold_the_watermark_back() -> None:
    """A stopped one does, until its watermarks are deleted."""
    driver = Driver([Minutes])
    with closing(driver.bus.writer()) as writer:
        writer.send(WATERMARKS.name, watermark_messages([_statement("fast", 10 * MINUTE), _statement("removed", 0)]))
    driver.send(long_calls, [Long("a", 5, 10, "taker-0")])
    assert driver.read(minutes) == []
    with closing(driver.bus.writer()) as writer:
        writer.send(WATERMARKS.name, deletion_messages([("removed", 0)]))
    driver.run()

    assert [row.calls for row in driver.read(minutes)] == [1]


def _statement(processor: str, watermark_ms: int, **ends: int) -> WatermarkStatement:
    return WatermarkStatement(
        processor, 0, 1, watermark_ms, {"long_calls": {int(name[1:]): end for name, end in ends.items()}}
    )


def test_an_upstream_watermark_applies_when_its_offsets_are_read() -> None:
    """It does not apply before, since unread offsets can contain earlier events."""
    upstream = UpstreamShards("long_calls")
    board = BucketWatermarks(Bucket("long_calls", 1), upstream)
    upstream.record([(("filter", 0), _statement("filter", 10, _1=5)), (("filter", 0), _statement("filter", 20, _1=8))])

    assert [board.at(position).watermark_ms for position in (4, 5, 7, 8)] == [NEVER_MS, 10, 10, 20]


def test_a_shard_with_a_backlog_applies_each_watermark_at_its_offsets() -> None:
    """The shard also applies watermarks published before it opened, and stores no more of them than a shard without a backlog."""
    driver = Driver([Minutes])
    with closing(driver.bus.writer()) as writer:
        writer.send(
            WATERMARKS.name, watermark_messages(_statement("filter", 10 * step, _1=step) for step in range(1, 31))
        )
    upstream, bucket = WatermarkSubscriber(driver.bus, ["long_calls"]), Bucket("long_calls", 1)
    while not upstream.is_read:
        upstream.read()
    upstream.begin(bucket)

    assert [upstream.at(bucket, position).watermark_ms for position in (0, 1, 17, 30)] == [NEVER_MS, 10, 170, 300]


def _sent_together(ends: dict[int, int], shards: int) -> list[WatermarkStatement]:
    by_category = {"long_calls": ends}
    return [WatermarkStatement("filter", number, shards, 10 + number, by_category) for number in range(shards)]


def test_the_messages_of_watermarks_grow_with_the_shards_not_with_their_square() -> None:
    """Statements that are sent together contain their end offsets once, and consumers find them in each."""

    def size(shards: int) -> int:
        sent = watermark_messages(_sent_together(dict.fromkeys(range(shards), 10**6), shards))
        return sum(len(message.key or b"") + len(message.value or b"") for message in sent)

    driver, statements = Driver([Minutes]), _sent_together({0: 5, 1: 8}, 2)
    with closing(driver.bus.writer()) as writer:
        writer.send(WATERMARKS.name, watermark_messages(statements))
    found = watermarks_on(driver.bus)

    assert size(400) < 11 * size(40)
    assert found == {statement.owner: statement for statement in statements}


def test_a_watermark_whose_end_offsets_are_compacted_counts_at_the_present_ones() -> None:
    """The first statement of its request contained them, and that shard has published another one since."""
    driver, bucket = Driver([Minutes]), Bucket("long_calls", 0)
    driver._write(long_calls, [Long(name, 5, 10, f"taker-{name}") for name in "abcdefgh"])
    end = driver.bus.describe("long_calls").ends[0]
    _, second = watermark_messages(_sent_together({0: 1}, 2))
    with closing(driver.bus.writer()) as writer:
        writer.send(WATERMARKS.name, [second, *watermark_messages(_sent_together({0: 1}, 2)[:1])])
    upstream = WatermarkSubscriber(driver.bus, ["long_calls"])
    upstream.begin(bucket)
    upstream.read_to_end()

    assert end > 2
    assert [upstream.at(bucket, position).watermark_ms for position in (2, end - 1, end)] == [NEVER_MS, NEVER_MS, 10]


def test_watermarks_are_read_to_their_end_although_the_last_ones_are_compacted() -> None:
    """A deleted watermark leaves no message at the end of the category; a run to the end of its input waits for nothing there."""
    driver, statements = Driver([Minutes]), _sent_together({0: 0}, 2)
    with closing(driver.bus.writer()) as writer:
        writer.send(WATERMARKS.name, [*watermark_messages(statements), *deletion_messages([("filter", 1)])])
    end, now_ms = driver.bus.ends(WATERMARKS.name)[0], driver.bus.cluster.now_ms()
    driver.bus.cluster.log(Bucket(WATERMARKS.name, 0)).compact(now_ms + 1, now_ms + 1)
    upstream = WatermarkSubscriber(driver.bus, ["long_calls"])
    assert not upstream.is_read_to(end)
    upstream.read_to_end()

    assert upstream.is_read_to(end)
    assert not upstream.is_read_to(end + 1)


class WithoutEnds(Network):
    """The network of a client that the bus tells no end offsets for a while."""

    is_silent = True

    def request(self, what: str, effect: Callable[[], T], limit_s: float = REQUEST_LIMIT_S) -> T:
        """Answer all other requests."""
        if what == "ends" and self.is_silent:
            raise BusUnreachable("No broker answered (ends).")
        return super().request(what, effect, limit_s)


def test_a_watermark_is_not_read_while_its_end_offsets_are_missing() -> None:
    """A run to the end of its input would leave windows open that the watermark completes."""
    driver, bucket, network = Driver([Minutes]), Bucket("long_calls", 0), WithoutEnds()
    _, second = watermark_messages(_sent_together({0: 0}, 2))
    with closing(driver.bus.writer()) as writer:
        writer.send(WATERMARKS.name, [*watermark_messages(_sent_together({0: 0}, 2)[:1]), second])
    end = driver.bus.ends(WATERMARKS.name)[0]
    upstream = WatermarkSubscriber(MemoryBus(cluster=driver.bus.cluster, network=network), ["long_calls"])
    upstream.begin(bucket)
    upstream.read_to_end()
    assert not upstream.is_read_to(end)
    assert upstream.at(bucket, 0).watermark_ms == NEVER_MS
    network.is_silent = False
    upstream.read()

    assert upstream.is_read_to(end)
    assert upstream.at(bucket, 0).watermark_ms == 10


def test_a_shard_without_a_watermark_holds_the_watermark_back() -> None:
    """The description names the shard, and each category without upstream watermarks."""
    upstream = UpstreamShards("long_calls")
    board = BucketWatermarks(Bucket("long_calls", 1), upstream)
    assert board.at(0).held_by == "long_calls: no processor publishes a watermark for it"
    upstream.record([(("filter", 1), WatermarkStatement("filter", 1, 2, 10, {"long_calls": {1: 0}}))])

    assert board.at(0) == (NEVER_MS, "filter/0: it has published no watermark yet")


def test_the_reason_of_an_upstream_shard_is_passed_on() -> None:
    """It names the bucket at the beginning of the chain, which the user can do something about."""
    reason = "clicks/0, which has had none of the 8 events"
    statement = WatermarkStatement("filter", 0, 1, NEVER_MS, {"long_calls": {1: 0}}, NEVER_MS, reason)
    upstream = UpstreamShards("long_calls")
    upstream.record([(statement.owner, statement)])
    board = BucketWatermarks(Bucket("long_calls", 1), upstream)

    assert board.at(0).held_by == f"filter/0, held back by {reason}"


@given(marks=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=300))
def test_thinned_watermarks_never_apply_too_early(marks: list[tuple[int, int]]) -> None:
    """A watermark applies only when its offsets are read; at the end, the greatest watermark applies."""
    upstream, promised = UpstreamShards("long_calls"), []
    board = BucketWatermarks(Bucket("long_calls", 0), upstream)
    offset = 0
    for watermark, step in marks:
        offset += step
        promised.append((watermark, offset))
        upstream.record([(("filter", 0), _statement("filter", max(mark for mark, _ in promised), _0=offset))])

    for position in range(0, offset + 1, 7):
        found = board.at(position).watermark_ms
        assert found == NEVER_MS or any(mark == found and end <= position for mark, end in promised)
    assert board.at(offset).watermark_ms == max(mark for mark, _ in promised)


@pytest.mark.parametrize(
    "step", [Step.LOG_CHANGES, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None]
)
def test_windows_by_upstream_watermarks_are_written_once_despite_crashes(step: Step | None) -> None:
    """Their state has a changelog, since watermarks arrive at other times when events are read again."""
    assert Step.LOG_CHANGES in steps_of(Minutes)
    events = [Call("abcd"[n % 4], n * MINUTE // 3, 10 + n % 3) for n in range(40)]
    driver = Driver([Minutes])
    outcome = []
    for at in range(0, 40, 8):
        long = [Long(call.caller, call.at, call.seconds, f"taker-{call.seconds % 2}") for call in events[at : at + 8]]
        ends = dict.fromkeys(range(3), 0)
        driver.send(long_calls, [*long[:5], Crash(before=step), *long[5:]] if at else long)
        with closing(driver.bus.writer()) as writer:
            ends = dict(driver.bus.ends("long_calls"))
            writer.send(
                WATERMARKS.name,
                watermark_messages([WatermarkStatement("filter", 0, 1, long[-1].at, {"long_calls": ends})]),
            )
        driver.run()
        outcome.append(len(driver.read(minutes)))
    with closing(driver.bus.writer()) as writer:
        writer.send(
            WATERMARKS.name, watermark_messages([WatermarkStatement("filter", 0, 1, 10**9, {"long_calls": ends})])
        )
    driver.run()

    found = driver.read(minutes)
    assert outcome == sorted(outcome)
    assert len({(row.taker, row.minute) for row in found}) == len(found)
    assert sum(row.calls for row in found) == 40


class Observed(Minutes):
    """Determines its watermark from its events."""

    watermark = ps.watermarks.BoundedOutOfOrderness()


def test_a_crash_between_a_checkpoint_and_its_watermark_only_delays_the_watermark() -> None:
    """The restarted processor publishes the watermark, and downstream windows complete without further events."""
    driver = Driver([Observed, PerHour])
    takers = {bucket_of(taker.encode(), long_calls.buckets): taker for taker in map("taker-{}".format, range(20))}
    taken = [Long("a", hour * 60 * MINUTE, 10, taker) for hour in (0, 2) for taker in takers.values()]
    driver.send(long_calls, [*taken, Crash()])
    driver.run()

    assert published_watermarks(driver, Observed) == dict.fromkeys(range(3), 120 * MINUTE)
    assert [(row.hour, row.calls) for row in driver.read(hours)] == [(0, 1)] * 3


@pytest.mark.parametrize("output", list(ps.Semantics))
def test_a_shard_without_state_publishes_the_watermark_of_its_last_checkpoint_after_a_crash(
    output: ps.Semantics,
) -> None:
    """It needs no further event, because the positions of its group contain the watermark."""
    kind = type("Filter", (Filter,), {"output_semantics": output})
    driver = Driver([kind, Minutes, PerHour])
    driver.send(calls, [*ENDS, Crash()])
    driver.run()

    assert set(published_watermarks(driver, kind).values()) == {ENDS[0].at - 10_000}


def test_an_injector_publishes_watermarks_for_external_events() -> None:
    """The watermark covers events written before it. It continues after a restart and never decreases."""
    driver = Driver([Minutes])
    driver.send(long_calls, [Long("a", 5, 10, "taker-0")])
    with WatermarkWriter(driver.bus, "long_calls", "gateway") as injector:
        injector.advance(3 * MINUTE)
    driver.run()
    assert [row.calls for row in driver.read(minutes)] == [1]
    driver.send(long_calls, [Long("a", 4 * MINUTE, 10, "taker-0")])
    with WatermarkWriter(driver.bus, "long_calls", "gateway") as injector:
        with pytest.raises(WatermarkWentBack, match="cannot go back to 1970-01-01 00:01:00 UTC"):
            injector.advance(MINUTE)
        injector.advance(5 * MINUTE)
    driver.run()

    assert [row.minute for row in driver.read(minutes)] == [0, 4 * MINUTE]


class Checked(Long, frozen=True):
    """A checked long call."""


checked = ps.Category("checked", Checked, key="taker", event_time="at", buckets=3)
by_caller = ps.Category("by_caller", Long, key="caller", event_time="at", buckets=3)


def _checked(event: Long) -> Checked:
    return Checked(event.caller, event.at, event.seconds, event.taker)


class Check(ps.Stateless):
    """Checks calls."""

    reads, writes, watermark = long_calls, checked, ps.watermarks.UpstreamWatermark()

    def process(self, event: Long) -> Iterable[Checked]:
        yield _checked(event)


class CheckOnce(Check):
    """Sends outputs in transactions."""

    output_semantics = ps.Semantics.EXACTLY_ONCE


class CheckAtMostOnce(Check):
    """Sends outputs at most once."""

    output_semantics = ps.Semantics.AT_MOST_ONCE


class CheckTaker(ps.LookupJoin):
    """Checks the takers."""

    reads, writes, watermark = long_calls, checked, ps.watermarks.UpstreamWatermark()
    source = ps.lookups.MemoryTable({f"taker-{n}": {"name": "Ann"} for n in range(2)})

    def key_of(self, event: Long) -> str:
        return event.taker

    def join(self, event: Long, row: Any) -> Iterable[Checked]:
        yield _checked(event)


class CheckState(ps.Stateful):
    """Also counts."""

    reads, writes, state, watermark = long_calls, checked, int, ps.watermarks.UpstreamWatermark()

    def process(self, event: Long, state: int | None, context: ps.Context) -> tuple[int, list[Checked]]:
        return (state or 0) + 1, [_checked(event)]


class ByCaller(ps.Repartition):
    """Returns calls to their callers."""

    reads, writes, watermark = long_calls, by_caller, ps.watermarks.UpstreamWatermark()


class AfterCheck(Minutes):
    """Counts the minutes of its outputs."""

    reads = checked


class AfterRepartition(Minutes):
    """Counts by caller."""

    reads = by_caller


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("kind", [Check, CheckOnce, CheckAtMostOnce, CheckTaker, CheckState, ByCaller])
def test_watermarks_pass_through_processors_without_further_events(
    kind: type[ps.Processor], *, is_restarted: bool
) -> None:
    """They pass through processors of every kind, also after a restart."""
    after = AfterRepartition if kind is ByCaller else AfterCheck
    driver = Driver([kind, after])
    driver.send(long_calls, [Long("a", 5, 10, "taker-0")])
    assert driver.read(minutes) == []
    if is_restarted:
        driver._discard_worker(kind)
    with WatermarkWriter(driver.bus, "long_calls", "gateway") as injector:
        injector.advance(3 * MINUTE)
    driver.run()
    assert [row.calls for row in driver.read(minutes)] == [1]
    driver.send(long_calls, [Long("a", 4 * MINUTE, 10, "taker-0")])
    with WatermarkWriter(driver.bus, "long_calls", "gateway") as injector:
        injector.advance(6 * MINUTE)
    driver.run()

    assert [row.minute for row in driver.read(minutes)] == [0, 4 * MINUTE]
    assert set(published_watermarks(driver, kind).values()) == {6 * MINUTE}


def test_a_pausing_watermark_causes_no_checkpoints() -> None:
    """Each advance of the watermark causes one checkpoint, and a pause causes no checkpoint."""
    driver = Driver([Check])
    driver.send(long_calls, [Long("a", 5, 10, "taker-0")])
    for step in range(1, 4):
        with WatermarkWriter(driver.bus, "long_calls", "gateway") as injector:
            injector.advance(step * MINUTE)
        driver.run()
    saved = driver.metrics(Check).checkpoints
    driver.advance(30)

    assert driver.metrics(Check).checkpoints == saved
    assert saved <= 5


@pytest.mark.parametrize("later", [None, 20])
def test_a_watermark_that_was_not_published_is_published_later(
    later: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is retried without further events; a later watermark of the shard replaces it."""
    driver = Driver([Filter])
    publisher = WatermarkPublisher(Filter(), driver.bus, InlineExecutor())
    publisher.publish(1, 10_005, "", idle=False)
    publisher.send_pending()
    with monkeypatch.context() as outage:
        outage.setattr(driver.bus, "ends", _no_broker)
        publisher.publish(0, 10_010, "", idle=True)
        publisher.publish(1, 10_010, "", idle=False)
        for _ in range(3):
            publisher.send_pending()
    if later is not None:
        publisher.publish(0, 10_000 + later, "", idle=False)
    for _ in range(3):
        publisher.send_pending()

    found = watermarks_on(driver.bus)
    assert found["filter", 0].watermark_ms - plan_of(Filter).output_watermark_ms(0) == 10_000 + (later or 10)
    assert found["filter", 0].idle == (later is None)
    assert found["filter", 1].low_ms == 10_010


def test_no_watermark_is_published_for_a_revoked_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pending watermarks of the shard are dropped. An unreachable bus does not delay the end of the worker."""
    driver = Driver([Filter])
    publisher = WatermarkPublisher(Filter(), driver.bus, InlineExecutor())
    with monkeypatch.context() as outage:
        outage.setattr(driver.bus, "ends", _no_broker)
        publisher.publish(0, 10, "", idle=False)
        publisher.publish(1, 10, "", idle=False)
        publisher.send_pending()
        publisher.drop([0])
        publisher.send_pending()
    publisher.send_pending()
    publisher.send_pending()
    assert watermarks_on(driver.bus).keys() == {("filter", 1)}
    with monkeypatch.context() as outage:
        outage.setattr(driver.bus, "ends", _no_broker)
        publisher.publish(1, 20, "", idle=False)
        publisher.close()

    assert watermarks_on(driver.bus)["filter", 1].low_ms == 10


class FailedWriter:
    """A writer after an error from which its client does not recover."""

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Raise Fenced."""
        raise Fenced(f"the client has failed: {category}")

    def close(self) -> None:
        """Nothing is open."""


def test_watermarks_go_on_after_their_writer_has_failed_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt opens a new writer."""
    driver = Driver([Filter])
    publisher = WatermarkPublisher(Filter(), driver.bus, InlineExecutor())
    with monkeypatch.context() as failing:
        failing.setattr(driver.bus, "writer", FailedWriter)
        publisher.publish(0, 10, "", idle=False)
        publisher.send_pending()
    publisher.send_pending()
    publisher.send_pending()

    assert watermarks_on(driver.bus)["filter", 0].low_ms == 10


class HangingExecutor(Executor):
    """A thread that hangs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


def test_an_unresponsive_bus_does_not_delay_the_end_and_unpublished_watermarks_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last watermarks are published when the shards are opened again."""
    monkeypatch.setattr(watermark_publisher, "FLUSH_LIMIT_S", 0.01)
    driver = Driver([Filter])
    publisher = WatermarkPublisher(Filter(), driver.bus, HangingExecutor())
    publisher.publish(0, 10, "", idle=False)
    publisher.close()

    assert watermarks_on(driver.bus) == {}
    assert "filter: its last watermarks were not published" in caplog.text


def _no_broker(_: str) -> NoReturn:
    raise BusUnreachable("no broker")


def test_a_consumer_with_a_backlog_waits_for_a_shard_that_became_idle_later() -> None:
    """It waits until it has read the shard's earlier outputs, so no event is late."""
    driver = Driver([Minutes])
    bucket = bucket_of(b"taker-0", long_calls.buckets)

    def advance(number: int, watermark_ms: int, *, idle: bool = False) -> None:
        ends = {"long_calls": dict(driver.bus.ends("long_calls"))}
        statement = WatermarkStatement("up", number, 2, watermark_ms, ends, watermark_ms, "", idle)
        driver.bus.writer().send(WATERMARKS.name, watermark_messages([statement]))

    def put(times: range) -> None:
        write(driver.bus, long_calls, [Long("a", at, 10, "taker-0") for at in times])

    advance(1, 0)
    put(range(0, 100 * MINUTE, MINUTE // 5))
    advance(0, 100 * MINUTE)
    put(range(0, 20 * MINUTE, MINUTE // 5))
    advance(1, 20 * MINUTE)
    put(range(100 * MINUTE, 130 * MINUTE, MINUTE // 5))
    advance(0, 130 * MINUTE)
    advance(1, 20 * MINUTE, idle=True)
    driver.run()

    assert driver.bus.ends("long_calls")[bucket] == 750
    assert [row.calls for row in driver.read(minutes)] == [10] * 20
    assert driver.metrics(Minutes).late == 0


def before_a_flush(driver: Driver, processor: ps.Processor, network: Network, saver: Executor) -> Worker:
    """Return a worker that has processed all events, and may now publish their watermark without a checkpoint."""
    bus = MemoryBus(cluster=driver.bus.cluster, network=network)
    config = WorkerConfig(bus, MemoryStateFolder(), "worker")
    worker = Worker(processor, config, InlineExecutor(), saver, clock=driver.clock)
    while not worker.has_reached(ends_of([calls], bus)):
        worker.run_once()
    worker.run_once()  # the ends of the buckets
    driver.clock.advance(1.5 * FLUSH_EVERY_S)
    return worker


@pytest.mark.parametrize("output", list(ps.Semantics))
def test_only_watermarks_of_outputs_at_least_once_are_published_between_checkpoints(output: ps.Semantics) -> None:
    """The other outputs are not visible before the checkpoint."""
    kind = type("Filter", (Filter,), {"output_semantics": output})
    driver = Driver([kind])
    write(driver.bus, calls, ENDS)
    worker = before_a_flush(driver, kind(), Network(), InlineExecutor())
    worker.run_once()

    assert worker.metrics.checkpoints == 0
    low_ms = ENDS[0].at - 10_000 if output is ps.Semantics.AT_LEAST_ONCE else NEVER_MS
    assert published_watermarks(driver, kind) == dict.fromkeys(range(2), low_ms)


class Busy(Network):
    """The network of a client that has more to send than one request takes."""

    def buffers(self) -> bool:
        """Return True: messages are stored by the flush."""
        return True


def test_a_watermark_between_checkpoints_follows_its_outputs() -> None:
    """The client still gathers outputs when the watermark is due, and others are produced while these are flushed."""
    driver = Driver([Filter])
    write(driver.bus, calls, [Call(call.caller, call.at, 10) for call in ENDS])
    worker = before_a_flush(driver, Filter(), Busy(), DelayedExecutor())
    worker.run_once()
    write(driver.bus, calls, [Call(call.caller, call.at + MINUTE, 10) for call in ENDS])
    published: set[int] = set()
    for _ in range(20):
        worker.run_once()
        driver.clock.advance(FLUSH_EVERY_S / 10)
        watermarks = published_watermarks(driver, Filter).values()
        sent = [call.at for call in driver.read(long_calls)]
        assert max(watermarks, default=NEVER_MS) <= max(sent, default=NEVER_MS) - 10_000
        published.update(watermarks)

    assert worker.metrics.checkpoints == 0
    assert {ENDS[0].at - 10_000, ENDS[0].at + MINUTE - 10_000} <= published


def test_outputs_that_repeat_behind_a_watermark_between_checkpoints_were_there_before_it() -> None:
    """After a crash, they are late for their consumer, whose windows are complete already."""
    driver = Driver([Minutes])
    create_categories(driver.bus, [Filter])
    write(driver.bus, calls, [Call("a", minute * MINUTE, 10) for minute in range(5)] + ENDS)
    before_a_flush(driver, Filter(), Network(), InlineExecutor()).run_once()
    driver.run()
    complete = driver.read(minutes)
    assert [(row.minute, row.calls) for row in complete] == [(minute * MINUTE, 1) for minute in range(5)]

    driver.advance(60)
    successor = before_a_flush(driver, Filter(), Network(), InlineExecutor())
    assert successor.metrics.events_in == 5 + len(ENDS)
    assert successor.save()
    driver.run()
    assert driver.read(minutes) == complete
    assert driver.metrics(Minutes).late == 5
