"""Timers: each fires once, in order and not early, across checkpoints and restarts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.disks import Disk, copy_of, restart

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import ProcessorFailed
from penstock.processors.keyed_state import ENTRY_BYTES, StateCache, key_layout
from penstock.processors.shard import Overlay, Step, steps_of
from penstock.processors.time import FOREVER_MS, Clock, Timers, timer_schedule, timers
from penstock.state import MemoryShardState, ShardIdentity
from penstock.state.local import RocksStateFolder

KEYS = st.text(st.sampled_from("a\x00\x01\xffé"), max_size=3)
TAGS = st.sampled_from(["", "b", "\x00"])
TIMES = st.integers(-50, 50)
STEPS = st.one_of(
    st.tuples(st.just("set"), KEYS, TAGS, TIMES),
    st.tuples(st.just("cancel"), KEYS, TAGS),
    st.tuples(st.just("pass"), TIMES),
    st.tuples(st.just("drain")),
    st.tuples(st.just("restart")),
)


class Shard:
    """Timers over a shard's state; `restart` drains first, because undrained changes would be lost."""

    def __init__(self) -> None:
        self.saved = MemoryShardState()
        self.overlay = Overlay(self.saved, lambda _, later: later)
        self.timers = Timers(Clock.EVENT, self.overlay)

    def drain(self) -> None:
        self.overlay.add(self.timers.drain())
        if len(self.overlay.changes) > 3:  # some changes stay in the overlay, others reach the state
            self.saved.save(self.overlay.snapshot())
            self.overlay.finish({})

    def restart(self) -> None:
        self.drain()
        self.timers = Timers(Clock.EVENT, self.overlay)


@given(steps=st.lists(STEPS, max_size=60), read_ahead=st.integers(1, 5))
@settings(max_examples=300)
def test_timers_fire_once_in_order_and_not_early(steps: list[Any], read_ahead: int) -> None:
    """The reference is a plain table that is sorted whenever time advances."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timer_schedule, "READ_AHEAD", read_ahead)
        shard, table, now = Shard(), dict[tuple[str, str], int](), -100
        for step in steps:
            match step:
                case ("set", key, tag, at):
                    shard.timers.set(key, tag, at)
                    table[key, tag] = at
                case ("cancel", key, tag):
                    shard.timers.cancel(key, tag)
                    table.pop((key, tag), None)
                case ("pass", until):
                    now = max(now, until)
                    expected = sorted((at, key.encode(), tag.encode()) for (key, tag), at in table.items() if at <= now)
                    table = {slot: at for slot, at in table.items() if at > now}
                    fired = [(due.timer.at, due.key.encode(), due.timer.tag.encode()) for due in shard.timers.due(now)]
                    assert fired == expected
                case ("drain",):
                    shard.drain()
                case ("restart",):
                    shard.restart()
        assert len(list(shard.timers.due(FOREVER_MS))) == len(table)


@given(pairs=st.lists(st.tuples(KEYS, TAGS), min_size=2))
def test_encoded_pairs_keep_their_order_and_can_be_decoded(pairs: list[tuple[str, str]]) -> None:
    """Keys may contain separator characters."""
    encoded = [key_layout.encode_pair(*pair) for pair in pairs]

    assert [key_layout.decode_pair(one) for one in encoded] == pairs
    assert [key_layout.decode_pair(one) for one in sorted(encoded)] == sorted(pairs)


def test_pending_timers_use_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB stores thirty thousand timers; the process caches one or two thousand, and all due timers fire."""
    monkeypatch.setattr(timers, "STATE_CACHE", StateCache(1_000 * ENTRY_BYTES))
    saved = RocksStateFolder(tmp_path).open(ShardIdentity("reminders", 0, "int by who"))
    pending, fired = Timers(Clock.EVENT, saved), 0
    tracemalloc.start()
    try:
        for begin in range(0, 30_000, 1_000):
            for n in range(begin, begin + 1_000):
                pending.set(f"key-{n}", "", n)
            saved.save(pending.drain())
        held_bytes, _ = tracemalloc.get_traced_memory()
        for now in range(0, 30_000, 500):
            fired += sum(1 for _ in pending.due(now))
            saved.save(pending.drain())
    finally:
        tracemalloc.stop()
        saved.close()

    assert held_bytes < 1_000_000
    assert fired == 29_501


class Visit(ps.Record, frozen=True):
    """A user visits a page."""

    who: str
    at: ps.EventTime


class Inactive(ps.Record, frozen=True):
    """A user has not visited for a while."""

    who: str
    at: ps.EventTime
    visits: int


visits = ps.Category("visits", Visit, key="who", event_time="at", buckets=1)
inactive = ps.Category("inactive", Inactive, key="who", event_time="at", buckets=1)


class Leaving(ps.Stateful):
    """Counts a user's visits until a second passes without one."""

    reads, writes, state = visits, inactive, int
    watermark: ClassVar[ps.watermarks.Watermark] = ps.watermarks.BoundedOutOfOrderness()
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, Iterable[ps.Record]]:
        context.timer(max(event.at, context.watermark) + 1_000, "quiet")
        return (state or 0) + 1, ()

    def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[None, Iterable[ps.Record]]:
        return None, [Inactive(context.key, timer.at, state)]


EVENTS = [Visit("a", 0), Visit("b", 500), Visit("a", 900), Visit("b", 1_600), Visit("c", 1_900), Visit("d", 9_000)]
EXPECTED = [Inactive("b", 1_500, 1), Inactive("a", 1_900, 2), Inactive("b", 2_600, 1), Inactive("c", 2_900, 1)]


def test_a_timer_can_be_replaced_and_fires_between_events() -> None:
    """A later visit moves it; it fires when the watermark reaches it, in order of time."""
    driver = Driver(Leaving)
    driver.send(visits, EVENTS)

    assert driver.read(inactive) == EXPECTED


@pytest.mark.parametrize(
    "step", [Step.FLUSH_OUTPUTS, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None]
)
@pytest.mark.parametrize("at", range(1, len(EVENTS)))
def test_timers_survive_a_crash(step: Step | None, at: int) -> None:
    """After a crash at any step, each timer fires as if there had been no crash."""
    driver = Driver(Leaving)
    driver.send(visits, [*EVENTS[:at], Crash(before=step), *EVENTS[at:]])

    assert driver.read(inactive) == EXPECTED


class Hourglass(Leaving):
    """Counts visits for a second of wall-clock time."""

    deterministic = False

    def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, Iterable[ps.Record]]:
        if state is None:
            context.timer(1_000_000 + 1_000, clock=ps.Clock.WALL)
        return (state or 0) + 1, ()


def test_a_wall_clock_timer_fires_without_events() -> None:
    """It fires when the clock reaches it, and not before."""
    driver = Driver(Hourglass, start_ms=1_000_000)
    driver.send(visits, [Visit("a", 0), Visit("a", 10**6)])
    driver.advance(0.9)
    assert driver.read(inactive) == []
    driver.advance(0.1)

    assert driver.read(inactive) == [Inactive("a", 1_001_000, 2)]


class Bell(Hourglass):
    """The same with at-most-once outputs."""

    output_semantics = ps.Semantics.AT_MOST_ONCE


class CheapBell(Bell):
    """The same with at-most-once state, too."""

    state_semantics = ps.Semantics.AT_MOST_ONCE


@pytest.mark.parametrize("disk", Disk)
@pytest.mark.parametrize(
    ("processor", "step"),
    [(processor, step) for processor in (Hourglass, Bell, CheapBell) for step in (*steps_of(processor), None)],
)
def test_a_wall_clock_timer_takes_effect_once_after_a_crash(
    processor: type[Hourglass], step: Step | None, disk: Disk
) -> None:
    """Its checkpoint leaves the position unchanged, so the position does not show whether it was committed."""
    driver = Driver(processor, start_ms=1_000_000)
    driver.send(visits, [Visit("a", 0), Visit("a", 10**6)])
    older = copy_of(driver, processor)
    driver.clock.advance(1)
    driver.send(visits, [Crash(before=step)])
    restart(driver, processor, disk, older)
    driver.advance(1)

    was_committed_unsent = processor is not Hourglass and step in {Step.APPLY_STATE, Step.SEND_OUTPUTS}
    assert driver.read(inactive) == ([] if was_committed_unsent else [Inactive("a", 1_001_000, 2)])


def test_wall_clock_timers_require_a_nondeterministic_processor() -> None:
    """A replay of the same events would produce another state."""

    class Sure(Hourglass):
        deterministic = True

    with pytest.raises(ProcessorFailed, match="deterministic = False"):
        Driver(Sure).send(visits, [Visit("a", 0)])


def test_a_timer_that_repeats_without_a_delay_is_refused() -> None:
    """It would fire forever."""

    class Restless(Leaving):
        def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[Any, Iterable[ps.Record]]:
            context.timer(timer.at, timer.tag)
            return state, ()

    with pytest.raises(ProcessorFailed, match="without end"):
        Driver(Restless).send(visits, EVENTS)


def test_a_timer_in_the_past_fires_right_after_its_event() -> None:
    """It fires before the next event."""

    class Echo(Leaving):
        def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, Iterable[ps.Record]]:
            context.timer(-5)
            return (state or 0) + 1, ()

    driver = Driver(Echo)
    driver.send(visits, [Visit("a", 0), Visit("a", 1)])

    assert driver.read(inactive) == [Inactive("a", -5, 1)] * 2


class Sudden:
    """A watermark far behind the events that catches up after four events."""

    def bound_ms(self, seen: ps.watermarks.Lateness) -> int:
        """Return the bound."""
        return 100_000 if seen.observed < 4 else 0


class Suddenly(Leaving):
    """Uses this watermark."""

    watermark = Sudden()


def test_an_event_precedes_timers_that_its_own_arrival_makes_due() -> None:
    """The event is not late, because the watermark advances after it."""
    driver = Driver(Suddenly)
    driver.send(visits, [Visit("a", 0), Visit("b", 5_000), Visit("b", 5_000), Visit("a", 500)])

    assert driver.read(inactive) == [Inactive("a", 1_500, 2)]


def test_a_failing_event_sets_no_timer() -> None:
    """Timers that it set before the error are discarded."""

    class Raising(Leaving):
        on_error = ps.ErrorPolicy.DEAD_LETTER

        def process(self, event: Visit, state: int | None, context: ps.Context) -> tuple[int, Iterable[ps.Record]]:
            found = super().process(event, state, context)
            if event.who == "b":
                raise ValueError(event.who)
            return found

    driver = Driver(Raising)
    driver.send(visits, EVENTS)

    assert driver.read(inactive) == [one for one in EXPECTED if one.who != "b"]


def test_an_error_in_on_timer_stops_the_worker() -> None:
    """Nothing is saved, and the timer remains set."""

    class Broken(Leaving):
        def on_timer(self, timer: ps.Timer, state: int, context: ps.Context) -> tuple[None, Iterable[ps.Record]]:
            raise KeyError("unknown")

    with pytest.raises(ProcessorFailed, match="the timer is still set"):
        Driver(Broken).send(visits, EVENTS)
