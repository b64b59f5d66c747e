"""Schedules: each time of day fires once per shard, across checkpoints, crashes and pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.disks import Disk, copy_of, restart

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.run.plans import order_of
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError, ProcessorFailed
from penstock.processors.declare import plan_of
from penstock.processors.shard import Step, steps_of
from penstock.processors.time import Firing, ScheduledFirings, merge_schedules
from penstock.processors.time.schedules import FIRINGS_AT_ONCE
from penstock.state import MemoryShardState

MINUTE_MS = 60_000
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@st.composite
def fields(draw: st.DrawFn) -> tuple[str, list[set[int] | None]]:
    """Return an expression, and the values that each of its fields selects; None for all."""
    texts, selected = list[str](), list[set[int] | None]()
    for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7)):
        match draw(st.sampled_from(("all", "all", "list", "range", "step"))):
            case "all":
                texts.append("*")
                selected.append(None)
            case "list":
                values = draw(st.sets(st.integers(low, high), min_size=1, max_size=4))
                texts.append(",".join(map(str, sorted(values))))
                selected.append(values)
            case "range":
                first, last = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
                texts.append(f"{first}-{last}")
                selected.append(set(range(first, last + 1)))
            case _:
                step = draw(st.integers(2, 20))
                first = draw(st.integers(low, high))
                texts.append(f"{first}-{high}/{step}")
                selected.append(set(range(first, high + 1, step)))
    return " ".join(texts), selected


def selects(selected: list[set[int] | None], local: datetime) -> bool:
    """Return whether `cron` would run at a minute, from its manual."""
    minutes, hours, days, months, weekdays = selected
    if not all(
        values is None or value in values
        for values, value in ((minutes, local.minute), (hours, local.hour), (months, local.month))
    ):
        return False
    in_month = days is None or local.day in days
    in_week = weekdays is None or bool({local.isoweekday() % 7, local.isoweekday()} & weekdays)
    return in_month or in_week if days is not None and weekdays is not None else in_month and in_week


@given(
    expression=fields(),
    # Around the days on which clocks change, and the ends of months and years.
    start=st.sampled_from([(2024, 3, 30), (2024, 10, 26), (2024, 2, 27), (2023, 12, 30)]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/Santiago", "Asia/Kolkata", "Australia/Lord_Howe"]),
    minutes=st.integers(0, 2_880),
)
@settings(max_examples=100, deadline=None)
def test_the_next_time_is_the_next_minute_that_the_expression_selects(
    expression: tuple[str, list[set[int] | None]], start: tuple[int, int, int], zone: str, minutes: int
) -> None:
    """The reference looks at every minute of three days."""
    text, selected = expression
    try:
        schedule = ps.Cron(text, zone)
    except DeclarationError:
        return  # such as the 31st of February
    after = datetime(*start, tzinfo=UTC) + timedelta(minutes=minutes)
    following = (after + timedelta(minutes=number) for number in range(1, 4_320))
    expected = next((at for at in following if selects(selected, at.astimezone(ZoneInfo(zone)))), None)
    found = schedule.next_after(round(after.timestamp()) * 1_000)

    if expected is None:
        assert found >= round((after + timedelta(minutes=4_320)).timestamp()) * 1_000
    else:
        assert found == round(expected.timestamp()) * 1_000


def test_names_of_months_and_weekdays_are_numbers() -> None:
    """Sunday is 0 and 7."""
    assert ps.Cron("0 6 * jan-mar mon-fri")._times == ps.Cron("0 6 * 1-3 1-5")._times
    assert [ps.Cron(f"0 0 * * {name}")._times for name in WEEKDAYS] == [
        ps.Cron(f"0 0 * * {n}")._times for n in range(7)
    ]
    assert ps.Cron("0 0 * * 7")._times == ps.Cron("0 0 * * 0")._times


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ps.Cron("0 6 * *"), "4 fields instead of 5"),
        (lambda: ps.Cron("60 * * * *"), "'60' is no minute: write 0 to 59"),
        (lambda: ps.Cron("0 0 * foo *"), "'foo' is no month: write 1 to 12, or jan to dec"),
        (lambda: ps.Cron("*/0 * * * *"), "'\\*/0' is no minute"),
        (lambda: ps.Cron("5-1 * * * *"), "'5-1' is no minute"),
        (lambda: ps.Cron("0 0 31 2 *"), "no date matches it"),
        (lambda: ps.Cron("0 0 * * *", zone="Berlin"), "the time zone 'Berlin' is unknown"),
        (lambda: ps.Cron("0 0 * * *", zone=""), "the time zone '' is unknown"),
        (lambda: ps.Cron("0 0 * * *", zone=None), "the time zone None is unknown"),  # type: ignore[arg-type]
        (lambda: ps.Cron(5), "it is no str"),  # type: ignore[arg-type]
        (lambda: ps.Interval(timedelta()), "no positive timedelta"),
        (lambda: ps.Interval(60), "no positive timedelta"),  # type: ignore[arg-type]
    ],
)
def test_a_schedule_that_never_fires_is_refused(make: Callable[[], object], reason: str) -> None:
    """The declaration is refused, with the allowed forms."""
    with pytest.raises(DeclarationError, match=reason):
        make()


@given(
    steps=st.lists(
        st.one_of(st.tuples(st.just("pass"), st.integers(0, 400)), st.just(("drain", 0)), st.just(("crash", 0)))
    ),
    every=st.integers(1, 50),
    catch_up=st.booleans(),
)
@settings(max_examples=200)
def test_each_time_fires_once_whenever_the_shard_is_saved(
    steps: list[tuple[str, int]], every: int, catch_up: bool
) -> None:
    """A crash forgets the firings since the last checkpoint. Each multiple of the interval fires once, or is counted as skipped."""
    schedules = {"beat": ps.Interval(timedelta(milliseconds=every), catch_up=catch_up)}
    saved, now, kept, unsaved = MemoryShardState(), 1_000, list[Firing](), list[Firing]()
    firings, begin = ScheduledFirings(schedules, 3, saved), None
    for step, by in [("drain", 0), *steps, ("pass", 0), ("drain", 0)]:
        now += by
        match step:
            case "drain":
                if begin is None:
                    unsaved += firings.due(now)
                    begin = now
                saved.save(firings.drain())
                kept, unsaved = kept + unsaved, []
            case "crash":
                firings, unsaved = ScheduledFirings(schedules, 3, saved), []
            case _:
                while fired := list(firings.due(now)):
                    unsaved += fired
    assert begin is not None
    times = range((begin // every + 1) * every, now + 1, every)
    covered = [firing.at - every * back for firing in kept for back in range(firing.skipped, -1, -1)]

    assert covered == list(times)
    assert not catch_up or all(firing.skipped == 0 for firing in kept)
    assert all(firing[0::2] == ("beat", 3) for firing in kept)


def test_a_worker_catches_up_in_turns() -> None:
    """A schedule that missed a year does not block the worker for long."""
    firings = ScheduledFirings({"beat": ps.Interval(timedelta(seconds=1), catch_up=True)}, 0, MemoryShardState())
    assert list(firings.due(0)) == []
    year_ms = 365 * 86_400_000
    first, second = list(firings.due(year_ms)), list(firings.due(year_ms))

    assert [firing.at for firing in first + second] == [1_000 * at for at in range(1, 2 * FIRINGS_AT_ONCE + 1)]


def test_a_year_without_a_worker_is_one_firing() -> None:
    """The interval may be short."""
    firings = ScheduledFirings({"beat": ps.Interval(timedelta(milliseconds=1))}, 0, MemoryShardState())
    assert list(firings.due(0)) == []

    assert list(firings.due(365 * 86_400_000)) == [Firing("beat", 365 * 86_400_000, 0, 365 * 86_400_000 - 1)]


def test_a_shard_with_the_keys_of_several_shards_fires_from_the_earliest_of_them() -> None:
    """A resize between two firings would otherwise lose one for some keys."""
    schedules = {"a": ps.Interval(timedelta(milliseconds=10)), "b": ps.Interval(timedelta(milliseconds=10))}
    states = [MemoryShardState(), MemoryShardState(), MemoryShardState()]
    for state, now in zip(states, (20, 40), strict=False):
        firings = ScheduledFirings(schedules, 0, state)
        assert list(firings.due(now)) == []
        state.save(firings.drain())
    merged = MemoryShardState()
    merged.save(merge_schedules(schedules, states))

    assert {(one.name, one.at) for one in ScheduledFirings(schedules, 0, merged).due(39)} == {("a", 30), ("b", 30)}


class Sale(ps.Record, frozen=True):
    """A sale."""

    shop: str
    at: ps.EventTime
    cents: int


class Sum(ps.Record, frozen=True):
    """The sum of a shop at a firing."""

    shop: str
    at: ps.EventTime
    cents: int


sales = ps.Category("sales", Sale, key="shop", event_time="at", buckets=2)
sums = ps.Category("sums", Sum, key="shop", event_time="at", buckets=2)
START_MS = 1_700_000_000_000  # 22:13:20


class Sums(ps.Stateful):
    """Writes the sum of every shop at every full minute."""

    reads, writes, state = sales, sums, int
    deterministic = False
    output_semantics = ps.Semantics.EXACTLY_ONCE
    schedules = {"minutely": ps.Cron("* * * * *", catch_up=True)}  # noqa: RUF012 - a declaration

    def process(self, event: Sale, state: int | None, context: ps.Context) -> tuple[int | None, list[Sum]]:
        total = (state or 0) + event.cents
        return (total if total >= 0 else None), []

    def on_schedule(self, firing: ps.Firing, states: Iterable[tuple[str, int]]) -> Iterable[Sum]:
        for key, state in states:
            yield Sum(key, firing.at, state)


class SumsAtMostOnce(Sums):
    """The same with at-most-once outputs."""

    output_semantics = ps.Semantics.AT_MOST_ONCE


def sums_at(at: int, **cents: int) -> list[Sum]:
    return [Sum(shop, at, value) for shop, value in cents.items()]


def minute_ms(number: int) -> int:
    return (START_MS // MINUTE_MS + number) * MINUTE_MS


def in_order(found: Iterable[Sum]) -> list[Sum]:
    return sorted(found, key=lambda one: (one.at, one.shop))


def test_a_schedule_fires_without_events_for_each_shard_and_sees_its_states() -> None:
    """It fires when the clock reaches its time, and not before. It sees saved and unsaved states, and no deleted ones."""
    driver = Driver(Sums, start_ms=START_MS)
    driver.send(sales, [Sale("a", START_MS, 1), Sale("b", START_MS, 2), Sale("c", START_MS, 3), Sale("d", START_MS, 4)])
    driver.advance(39)
    assert driver.read(sums) == []
    driver.advance(1)
    assert in_order(driver.read(sums)) == sums_at(minute_ms(1), a=1, b=2, c=3, d=4)
    driver.send(sales, [Sale("a", START_MS, 10), Sale("b", START_MS, -100)])
    driver.advance(60)

    assert in_order(driver.read(sums))[4:] == sums_at(minute_ms(2), a=11, c=3, d=4)


@pytest.mark.parametrize("disk", Disk)
@pytest.mark.parametrize(
    ("processor", "step"),
    [(processor, step) for processor in (Sums, SumsAtMostOnce) for step in (*steps_of(processor), None)],
)
def test_a_firing_takes_effect_once_after_a_crash(processor: type[Sums], step: Step | None, disk: Disk) -> None:
    """Its checkpoint leaves the position unchanged; the changelog contains the firing."""
    driver = Driver(processor, start_ms=START_MS)
    driver.send(sales, [Sale("a", START_MS, 1)])
    older = copy_of(driver, processor)
    driver.clock.advance(40)
    driver.send(sales, [Crash(before=step)])
    restart(driver, processor, disk, older)
    driver.advance(60)

    was_committed_unsent = processor is SumsAtMostOnce and step in {Step.APPLY_STATE, Step.SEND_OUTPUTS}
    first = [] if was_committed_unsent else sums_at(minute_ms(1), a=1)
    assert driver.read(sums) == [*first, *sums_at(minute_ms(2), a=1)]


def test_firings_of_a_pause_follow_when_a_worker_runs_again() -> None:
    """With `catch_up`, all of them follow. Otherwise the latest follows, with the number of the others."""
    firings = list[ps.Firing]()

    class Both(Sums):
        schedules = {"all": ps.Cron("* * * * *", catch_up=True), "last": ps.Cron("* * * * *")}  # noqa: RUF012 - a declaration

        def on_schedule(self, firing: ps.Firing, states: Iterable[tuple[str, int]]) -> list[Sum]:
            firings.append(firing)
            return sums_at(firing.at, **dict(states))

    driver = Driver(Both, start_ms=START_MS)
    driver.send(sales, [Sale("a", START_MS, 1)])
    driver.clock.advance(160)
    driver.run()
    shards = {firing.shard for firing in firings}

    assert shards == {0, 1}
    for shard in shards:
        assert [firing for firing in firings if firing.shard == shard] == [
            *(ps.Firing("all", minute_ms(number), shard) for number in (1, 2, 3)),
            ps.Firing("last", minute_ms(3), shard, skipped=2),
        ]


def test_an_ordered_processor_has_schedules() -> None:
    """It sees the states of delivered events."""

    class Ordered(Sums):
        ordered = True
        watermark = ps.watermarks.BoundedOutOfOrderness(timedelta())

    driver = Driver(Ordered, start_ms=START_MS)
    driver.send(sales, [Sale("a", START_MS, 1), Sale("a", START_MS + 5_000, 100)])
    driver.advance(40)

    assert driver.read(sums) == sums_at(minute_ms(1), a=1)


def test_an_error_in_on_schedule_stops_the_worker() -> None:
    """The schedule fires again after a restart."""

    class Broken(Sums):
        def on_schedule(self, firing: ps.Firing, states: Iterable[tuple[str, int]]) -> list[Sum]:
            raise KeyError(firing.name)

    driver = Driver(Broken, start_ms=START_MS)
    driver.send(sales, [Sale("a", START_MS, 1)])
    with pytest.raises(ProcessorFailed, match=r"Broken.on_schedule raised KeyError.*the schedule fires again"):
        driver.advance(40)


class SumsOfHours(ps.Windowed):
    """A windowed processor with a schedule."""

    reads, writes, state = sales, sums, int
    window = ps.windows.Tumbling(timedelta(hours=1))
    deterministic = False
    schedules = {"minutely": ps.Cron("* * * * *")}  # noqa: RUF012 - a declaration

    def fold(self, event: Sale, state: int | None, window: Any, context: ps.Context) -> tuple[int, list[Sum]]:
        return event.cents, []

    def complete(self, state: int, window: Any, context: ps.Context) -> list[Sum]:
        return []

    def on_schedule(self, firing: ps.Firing, states: Iterable[tuple[str, int]]) -> list[Sum]:
        return []


class Copies(ps.Stateless):
    """A stateless processor with a schedule."""

    reads, writes = sales, sums
    schedules = {"minutely": ps.Cron("* * * * *")}  # noqa: RUF012 - a declaration

    def process(self, event: Sale) -> list[Sum]:
        return []


@pytest.mark.parametrize(
    ("base", "declared", "reason"),
    [
        (Sums, {"deterministic": True}, "Declare `deterministic = False`"),
        (Sums, {"schedules": {}}, "no schedule fires"),
        (Sums, {"schedules": {"daily": "0 6 * * *"}}, "no mapping of names to schedules"),
        (Sums, {"schedules": {"": ps.Cron("0 6 * * *")}}, "no mapping of names to schedules"),
        (Sums, {"on_schedule": ps.Stateful.on_schedule}, "Define `def on_schedule"),
        (Sums, {"on_schedule": lambda self, firing: []}, "does not accept the arguments firing, states"),
        (SumsOfHours, {}, "its kind keeps windows or events as its state"),
        (Copies, {}, "declares `schedules`, but its kind saves no state"),
    ],
)
def test_schedules_that_cannot_fire_are_refused(
    base: type[ps.Processor], declared: dict[str, Any], reason: str
) -> None:
    """They are refused before the first event, with a valid declaration."""
    with pytest.raises(DeclarationError, match=reason):
        plan_of(declared_class(base, declared)).check()


def declared_class(base: type[ps.Processor], declared: dict[str, Any]) -> type[ps.Processor]:
    return type("Refused", (base,), declared)


def test_a_backfill_refuses_schedules() -> None:
    """A backfill has no time of day, and its results would silently lack the outputs of the firings."""
    with pytest.raises(BackfillRefused, match=r"has schedules \(minutely\)"):
        order_of(Sums, None)
