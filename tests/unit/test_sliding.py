"""What sliding windows promise: for each time at which something happened to a key, what happened in the last while, however it came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.testing import Crash, Driver
from penstock.processors.errors import DeclarationError
from penstock.processors.operators import Operator, open_operator, sliding_history
from penstock.processors.operators.sliding_aggregate import SlidingAggregate
from penstock.processors.shard.checkpoints import Step
from penstock.processors.shard.overlay import Overlay
from penstock.state.backups.decoded_state import state_inspector
from penstock.state.local.folder import RocksStateFolder
from penstock.state.protocols import MemoryShardState, ShardIdentity

SIZE, BOUND = 20, 25


class Reading(ps.Record, frozen=True):
    """A sensor tells a number."""

    sensor: str
    at: ps.EventTime
    number: int


class Lately(ps.Record, frozen=True):
    """What a sensor told lately."""

    sensor: str
    at: ps.EventTime
    since: int
    told: int
    numbers: str


readings = ps.Category("readings", Reading, key="sensor", event_time="at", buckets=1)
late_readings = ps.Category("late_readings", Reading, key="sensor", event_time="at", buckets=1)
lately = ps.Category("lately", Lately, key="sensor", event_time="at", buckets=1)


class Said(ps.monoids.Monoid[str]):
    """One after another."""

    def identity(self) -> str:
        return ""

    def combine(self, left: str, right: str, /) -> str:
        return left + right


class Latest(ps.Aggregator):
    """What a sensor told in the last while, as of each time at which it told something; it tells nothing by a number below zero."""

    reads, writes = readings, lately
    monoid: ClassVar[ps.monoids.Monoid[Any]] = ps.monoids.TupleOf(ps.monoids.Count(), Said())
    window = ps.windows.Sliding(timedelta(milliseconds=SIZE))
    watermark: ClassVar[ps.watermarks.Watermark] = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=BOUND))
    emit = ps.AtWatermark()
    late: ClassVar[Any] = ps.OnLate.DROP
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def observe(self, event: Reading) -> tuple[int, str] | None:
        if event.number > 9:
            raise ValueError(event.number)
        return None if event.number < 0 else (1, str(event.number))

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, str]) -> Lately:
        return Lately(key, window.end - 1, window.start, *value)


READINGS = st.lists(st.builds(Reading, st.sampled_from("ab"), st.integers(0, 150), st.integers(-1, 9)), max_size=60)
CUTS = st.lists(st.tuples(st.integers(0, 61), st.booleans()), max_size=4)
END = Reading("end", 1_000, -1)


def expected(arrived: Sequence[Reading]) -> list[Lately]:
    """Return what sensors told lately, found by looking at all readings for each time; those of one time as they arrived."""
    told = sorted((one for one in arrived if one.number >= 0), key=lambda one: one.at)
    found = []
    for at, sensor in sorted({(one.at, one.sensor) for one in told}):
        within = [str(one.number) for one in told if one.sensor == sensor and at - SIZE < one.at <= at]
        found.append(Lately(sensor, at, at + 1 - SIZE, len(within), "".join(within)))
    return found


def checkpoint(core: Operator, overlay: Overlay, saved: MemoryShardState) -> int:
    """Save what changed; return how many bytes that are."""
    overlay.add(core.drain().changes)
    changes = overlay.snapshot()
    saved.save(changes)
    overlay.finish({})
    return sum(len(key) + len(value or b"") for key, value in changes.items())


def latest_of(arrived: Sequence[Reading], cuts: Sequence[tuple[int, bool]]) -> list[Lately]:
    """Return what a shard gives, in batches with a checkpoint, and perhaps a restart, at each of these cuts."""
    saved, outputs = MemoryShardState(), list[Any]()
    overlay = Overlay(saved, lambda _, later: later)
    core = open_operator(Latest(), overlay)
    for (begin, restarts), (end, _) in pairwise([(0, False), *sorted(cuts), (len(arrived), False)]):
        core = open_operator(Latest(), overlay) if restarts else core
        outputs += core.feed(readings, arrived[begin:end], stop_at_error=True).outputs
        checkpoint(core, overlay, saved)
    assert all(place.startswith(b"\xffc") for place, _ in saved.scan(b"", b"\xff" * 9, 100)), (
        "more than the time is left"
    )
    return outputs


@contextmanager
def keeping(chunk: int, cached: int) -> Iterator[None]:
    """Let so many values be in a chunk, and in memory between checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliding_history, "CHUNK_VALUES", chunk)
        patch.setattr(sliding_history, "CACHED_VALUES", cached)
        yield


@given(told=READINGS, data=st.data(), cuts=CUTS, chunk=st.sampled_from([1, 3, 64]), cached=st.sampled_from([0, 1_000]))
def test_each_time_has_its_window_however_the_events_came(
    told: list[Reading], data: st.DataObject, cuts: list[tuple[int, bool]], chunk: int, cached: int
) -> None:
    """Held up within the bound, batched and cut by restarts in any way: written once, in order of time, and nothing is left."""
    delays = data.draw(st.lists(st.integers(0, BOUND), min_size=len(told), max_size=len(told)))
    held_up = sorted(zip(told, delays, strict=True), key=lambda held: held[0].at + held[1])
    arrived = [one for one, _ in held_up]

    with keeping(chunk, cached):
        assert latest_of([*arrived, END], cuts) == expected(arrived)


def test_events_of_one_time_count_in_the_order_in_which_they_came() -> None:
    """Also where a checkpoint and a restart lie between them."""
    told = [Reading("a", 5, number) for number in (3, 1, 2)]

    assert latest_of([*told, END], [(1, False), (2, True)]) == [Lately("a", 5, 6 - SIZE, 3, "312")]


@pytest.mark.parametrize("chunk", [1, 64])
def test_nothing_leaves_the_state_that_a_window_to_come_reaches_back_to(chunk: int) -> None:
    """However far the watermark has come when the next event does; one at the watermark itself is not late."""
    with keeping(chunk, 0):
        for low in range(SIZE + 5):
            told = [Reading("a", 0, 1), Reading("a", 1, 2), Reading("b", low + BOUND, 3), Reading("a", low, 4)]
            assert latest_of([*told, END], [(n, True) for n in range(1, 5)]) == expected(told), low


def test_an_event_that_brings_the_watermark_past_itself_is_in_time() -> None:
    """As when it shows that events come less late than was thought."""

    class Learning:
        def bound_ms(self, seen: ps.watermarks.Lateness) -> int:
            return 100 if seen.observed < 4 else 0

    class Learned(Latest):
        watermark = Learning()

    told = [Reading("a", 90, 1), Reading("a", 95, 2), Reading("a", 100, 3), Reading("a", 85, 4)]
    core = open_operator(Learned(), MemoryShardState())
    fed = core.feed(readings, [*told, Reading("a", 99, 5)], stop_at_error=True)

    assert (core.time.low_ms, fed.late) == (100, 1)
    assert fed.outputs == [one for one in expected(told) if one.at < 100]


def test_a_late_event_is_in_no_window() -> None:
    """Not in those that are still to come either; it is put aside, where that is asked for, and counted."""

    class DryRunPool(Latest):
        late = late_readings
        watermark = ps.watermarks.BoundedOutOfOrderness()

    for processor, aside in ((Latest, []), (DryRunPool, [Reading("a", 4, 7)])):
        driver = Driver(processor)
        in_time = [Reading("a", 0, 1), Reading("a", 5 + BOUND, 2), Reading("a", 6 + BOUND, 3), END]
        late = Reading("a", 4, 7)
        driver.send(readings, [*in_time[:2], late, *in_time[2:]])

        assert driver.read(lately) == expected(in_time)
        assert driver.read(late_readings) == aside if aside else True
        assert (driver.metrics(processor).late, driver.metrics(processor).dropped) == (1, 1)


def test_an_event_that_raises_is_in_no_window() -> None:
    """Where a batch stops at it, what came before counts, and the watermark is where that left it."""
    told = [Reading("a", 0, 1), Reading("a", 40, 2), Reading("a", 90, 10), Reading("a", 91, 3), END, Reading("a", 0, 1)]
    stopping, going_on = (open_operator(Latest(), MemoryShardState()) for _ in range(2))
    stopped = stopping.feed(readings, told, stop_at_error=True)

    assert [rejected.at for rejected in stopped.rejected] == [2]
    assert (stopped.late, stopped.dropped) == (0, 0)
    assert stopped.outputs == expected(told[:1])
    assert stopping.time.low_ms == 40 - BOUND
    rest = stopping.feed(readings, told[3:], stop_at_error=True).outputs
    assert stopped.outputs + rest == expected([*told[:2], told[3]])
    assert going_on.feed(readings, told, stop_at_error=False).outputs == expected([*told[:2], told[3]])


@pytest.mark.parametrize(
    "step", [Step.FLUSH_OUTPUTS, Step.PREPARE_STATE, Step.COMMIT_TRANSACTION, Step.APPLY_STATE, None]
)
def test_sliding_windows_outlive_a_crash(step: Step | None) -> None:
    """Each is written once, and holds what came before the crash, too."""
    arrived = [Reading("ab"[n % 2], n * 4 + (n // 7) * 9 - (n % 3) * 6, n % 10) for n in range(40)]
    for at in range(1, len(arrived), 6):
        driver = Driver(Latest)
        driver.send(readings, [*arrived[:at], Crash(before=step), *arrived[at:], END])

        assert driver.read(lately) == expected(arrived)


class Total(ps.Record, frozen=True):
    """How much a sensor told lately."""

    sensor: str
    at: ps.EventTime
    told: int
    total: int


totals = ps.Category("totals", Total, key="sensor", event_time="at", buckets=1)


class Totals(ps.Aggregator):
    """The same for thousands of readings."""

    reads, writes = readings, totals
    monoid = ps.monoids.TupleOf(ps.monoids.Count(), ps.monoids.Sum())
    window = ps.windows.Sliding(timedelta(seconds=4))
    watermark = ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=100))
    emit = ps.AtWatermark()
    late = ps.OnLate.DROP

    def observe(self, event: Reading) -> tuple[int, int]:
        return 1, event.number

    def result(self, key: str, window: ps.windows.Window, value: tuple[int, int]) -> Total:
        return Total(key, window.end - 1, *value)


def test_a_long_stream_takes_no_more_state_than_its_windows() -> None:
    """Also of keys that fall silent; and a checkpoint writes what is new, not all that lies in a window."""
    saved = MemoryShardState()
    overlay = Overlay(saved, lambda _, later: later)
    core = open_operator(Totals(), overlay)
    told = [Reading("abc"[n % 3] if n < 9_000 else "a", n * 2, n % 10) for n in range(14_000)]
    written, kept, outputs = list[int](), list[int](), list[Total]()
    for begin in range(0, len(told), 50):
        outputs += core.feed(readings, told[begin : begin + 50], stop_at_error=True).outputs
        written.append(checkpoint(core, overlay, saved))
        kept.append(sum(len(value) for _, value in saved.scan(b"", b"\xff" * 9, 100_000)))

    assert (outputs[8_000].told, outputs[-1].told) == (667, 2_000)
    assert max(kept[100:]) < 1.2 * kept[100]
    assert max(written[100:]) < kept[100] / 3
    assert saved.fetch([b"b"]) == [None]


@given(st.lists(st.tuples(st.integers(1, 12), st.floats(-1e9, 1e9)), max_size=60), st.integers(0, 59))
def test_floats_round_alike_wherever_one_begins(told: list[tuple[int, float]], first: int) -> None:
    """What a window needs is enough to go on with: not nearly the same comes of it, but the same."""
    at, timed = -30, []
    for step, number in told:
        at += step
        timed.append((at, number))
    whole, later = SlidingAggregate(ps.monoids.Sum(), SIZE), SlidingAggregate(ps.monoids.Sum(), SIZE)
    values = [whole.add(*one) for one in timed]
    begin = next((n for n, (at, _) in enumerate(timed) if at > timed[min(first, len(timed) - 1)][0] - SIZE), 0)
    again = [later.add(*one) for one in timed[begin:]]

    assert again[max(first - begin, 0) :] == values[begin:][max(first - begin, 0) :]


def test_a_window_costs_three_merges_however_many_events_it_holds() -> None:
    """Also where all windows of a key become complete at once."""

    class Counted(Said):
        merges = 0

        def combine(self, left: str, right: str, /) -> str:
            self.merges += 1
            return max(left, right)

    for size in (10, 1_000):
        monoid = Counted()
        trailing = SlidingAggregate(monoid, size)
        values = [trailing.add(at, str(at % 7)) for at in range(5_000)]

        assert values[-1] == "6"
        assert len(trailing) <= 2 * size
        assert monoid.merges <= 3 * 5_000


def test_consumers_are_promised_the_times_of_events_to_come() -> None:
    """A result has the time of its window's last event: not of its beginning, which lies far behind."""
    assert Latest.output_watermark_ms(25) == 25


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"emit": ps.AtCheckpoint()}, "known only when it is complete"),
        ({"emit": ps.AtWatermark(early=timedelta(seconds=1))}, "known only when it is complete"),
        ({"emit": ps.AtWatermark(differences=True)}, "known only when it is complete"),
        ({"late": ps.OnLate.INTO_WINDOW}, "sliding windows that were already written"),
        ({"allowed_lateness": timedelta(seconds=1)}, "declare a slower `watermark`"),
        ({"store": ps.RemoteStore()}, "several shards share"),
    ],
)
def test_sliding_windows_that_could_not_be_written_once_are_refused(attributes: dict[str, Any], told: str) -> None:
    """With what to change."""
    wrong: type[ps.Aggregator] = type("Wrong", (Latest,), attributes)

    with pytest.raises(DeclarationError, match=told):
        wrong.check()


def test_a_size_of_no_whole_milliseconds_is_refused() -> None:
    """As windows of any kind."""
    with pytest.raises(DeclarationError, match=r"The size of a sliding window is 0:00:00\.000500"):
        ps.windows.Sliding(timedelta(microseconds=500))


def test_what_is_kept_of_a_key_can_be_looked_at(tmp_path: Path) -> None:
    """The values of its newest times, each by itself."""
    saved = RocksStateFolder(tmp_path).open(ShardIdentity("latest", 0, Latest.state_shape() or ""))
    with closing(saved):
        core = open_operator(Latest(), saved)
        core.feed(readings, [Reading("a", 5, 1), Reading("a", 9, 2), Reading("b", 36, 3)], stop_at_error=True)
        saved.save(core.drain().changes)
        shown = state_inspector(Latest, "a", 10)(saved).entries

    assert [(one.key, one.window, one.value) for one in shown] == [
        ("a", ps.windows.Window(5, 6), (1, "1")),
        ("a", ps.windows.Window(9, 10), (1, "2")),
    ]
