"""Watermarks: they never go back, and the share of late events matches the declaration."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock as ps
from penstock.processors import DeclarationError
from penstock.processors.time import NEVER_MS, BucketProgress, BucketTime, Lateness, ShardTime, Watermark, watermarks
from penstock.state import MemoryShardState

TIMES = st.lists(st.integers(-(10**6), 10**9), max_size=700)
STRATEGIES = st.sampled_from(
    [
        ps.watermarks.Confidence(0.9, warm_up=5),
        ps.watermarks.Confidence(0.5, warm_up=300),
        ps.watermarks.BoundedOutOfOrderness(timedelta(seconds=2)),
    ]
)


@given(times=TIMES, strategy=STRATEGIES)
def test_a_watermark_never_goes_back(times: list[int], strategy: Watermark) -> None:
    """Events may arrive in any order."""
    found = BucketTime(strategy, BucketProgress()).observe(times).tolist()

    assert all(earlier <= later for earlier, later in pairwise(found))


def watermarks_one_by_one(times: list[int], strategy: Watermark) -> list[int]:
    """The watermark after each event, in whole numbers of any size."""
    lateness, newest_ms, watermark_ms, bound_ms = Lateness(), NEVER_MS, NEVER_MS, None
    found = []
    for events, time in enumerate(times, start=1):
        newest_ms = max(newest_ms, time)
        lateness.add([newest_ms - time])
        if events & (events - 1) == 0 or events % 256 == 0:
            bound_ms = strategy.bound_ms(lateness)
        due_ms = NEVER_MS if bound_ms is None else newest_ms - bound_ms
        watermark_ms = max(watermark_ms, due_ms)
        found.append(watermark_ms)
    return found


@example(times=[*[0] * 13, -1, -1, 1], strategy=ps.watermarks.Confidence(0.9, 5))  # the last event updates the bound
@given(times=st.lists(st.integers(-(2**62), 2**62) | st.integers(0, 1_000), max_size=600), strategy=STRATEGIES)
def test_watermarks_of_extreme_event_times_are_exact(times: list[int], strategy: Watermark) -> None:
    """Sums and differences that need more than 64 bits are neither wrong nor an error."""
    assert BucketTime(strategy, BucketProgress()).observe(times).tolist() == watermarks_one_by_one(times, strategy)


@given(times=TIMES, strategy=STRATEGIES, cuts=st.lists(st.integers(0, 700)))
def test_a_watermark_depends_on_the_events_alone(times: list[int], strategy: Watermark, cuts: list[int]) -> None:
    """Batches and restarts do not change it."""
    whole = BucketTime(strategy, BucketProgress()).observe(times).tolist()
    saved, found = MemoryShardState(), []
    for begin, end in pairwise([0, *sorted(cuts), len(times)]):
        time = ShardTime({"readings": strategy}, saved)
        found += time.observe("readings", times[begin:end]).tolist()
        saved.save(time.drain())

    assert found == whole


def test_batches_do_not_change_the_decay_of_old_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old observations lose weight at the same events."""
    monkeypatch.setattr(watermarks, "MEMORY", 1_000)
    dice = random.Random(3)
    times = [n - int(dice.expovariate(1 / 300)) for n in range(30_000)]
    time, found = BucketTime(ps.watermarks.Confidence(), BucketProgress()), []
    for begin in range(0, len(times), 77):
        found += time.observe(times[begin : begin + 77]).tolist()

    assert found == BucketTime(ps.watermarks.Confidence(), BucketProgress()).observe(times).tolist()


@given(times=TIMES, bound=st.integers(0, 10**6))
def test_a_fixed_bound_follows_the_newest_event(times: list[int], bound: int) -> None:
    """The distance is exactly the bound, from the first event on."""
    watermarks = (
        BucketTime(ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=bound)), BucketProgress())
        .observe(times)
        .tolist()
    )

    assert watermarks == [max(times[: n + 1]) - bound for n in range(len(times))]


@given(latenesses=st.lists(st.integers(0, 10**12), min_size=1), share=st.floats(0, 0.9999))
def test_no_more_than_the_declared_share_exceeds_a_quantile(latenesses: list[int], share: float) -> None:
    """The quantile is at most a sixty-fourth above an observed lateness."""
    sketch = Lateness()
    sketch.add(latenesses)

    found = sketch.quantile(share)
    assert sum(lateness > found for lateness in latenesses) <= (1 - share) * (len(latenesses) + 1)
    assert any(lateness <= found <= lateness * 65 / 64 for lateness in latenesses)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
def test_the_share_of_late_events_matches_the_confidence(share: float) -> None:
    """The stream is long, and has random delays, some of them long."""
    dice = random.Random(7)
    arrivals = sorted((n * 10 + dice.expovariate(1 / 500), n * 10) for n in range(100_000))
    times = [time for _, time in arrivals]

    watermarks = [NEVER_MS, *BucketTime(ps.watermarks.Confidence(share), BucketProgress()).observe(times).tolist()]
    late = sum(time < watermark for time, watermark in zip(times, watermarks, strict=False))
    assert late / len(times) == pytest.approx(1 - share, rel=0.1, abs=5e-4)


def _shuffled(how: str, events: int, dice: random.Random) -> list[int]:
    """Return the event times of a stream, one each second, in order of arrival."""
    times = range(0, events * 1_000, 1_000)
    late: dict[str, Callable[[int], float]] = {
        "a little": lambda _: dice.expovariate(1 / 500),
        "some": lambda _: dice.expovariate(1 / 2_000),
        "much": lambda _: dice.expovariate(1 / 5_000),
        "in tens": lambda time: dice.uniform(0, 1) - time % 10_000,
        "seldom": lambda _: dice.uniform(0, 30_000) if dice.random() < 0.02 else 0,
        "without order": lambda time: dice.uniform(0, 1) - time,
    }
    return [time for _, time in sorted((time + late[how](time), time) for time in times)]


@pytest.mark.parametrize("events", [10, 30, 100, 1_000])
@pytest.mark.parametrize("how", ["a little", "some", "much", "in tens", "seldom", "without order"])
def test_few_events_of_small_streams_are_late(how: str, events: int) -> None:
    """Ten events of a bucket suffice for a watermark, and a few percent of the events are late at most."""
    dice, late, trials = random.Random(5), 0, max(3, 4_000 // events)
    for _ in range(trials):
        times = _shuffled(how, events, dice)
        watermarks = [NEVER_MS, *BucketTime(ps.watermarks.Confidence(), BucketProgress()).observe(times).tolist()]
        assert watermarks[10] != NEVER_MS
        late += sum(time < watermark for time, watermark in zip(times, watermarks, strict=False))

    assert late / (trials * events) <= 0.025


@pytest.mark.parametrize(
    ("strategy", "events", "message"),
    [
        (ps.watermarks.Confidence(), 0, "has had none of the 8 events after which its watermark begins"),
        (ps.watermarks.Confidence(), 1, "has had 1 of the 8 events after which its watermark begins"),
        (ps.watermarks.Confidence(), 3, "has had 3 of the 8 events after which its watermark begins"),
        (ps.watermarks.Confidence(warm_up=100), 100, "has had 100 of the 128 events after which its watermark begins"),
        (ps.watermarks.Confidence(warm_up=300), 300, "has had 300 of the 512 events after which its watermark begins"),
        (ps.watermarks.Confidence(), 8, ""),
        (ps.watermarks.BoundedOutOfOrderness(), 0, "has had none of the events from which its watermark follows"),
    ],
)
def test_a_bucket_reports_the_events_its_watermark_waits_for(strategy: Watermark, events: int, message: str) -> None:
    """The reported number is the next at which the watermark is computed."""
    time = BucketTime(strategy, BucketProgress())
    time.observe(range(events))

    assert time.waits_for == message
    time.observe(range(512))
    assert time.watermark_ms != NEVER_MS


def test_a_watermark_adapts_to_a_changed_stream() -> None:
    """Old observations lose weight, so the watermark comes closer once events are in order again."""
    time = BucketTime(ps.watermarks.Confidence(0.99), BucketProgress())
    time.observe([n - 5_000 * (n % 2) for n in range(200_000)])
    time.observe(range(200_000, 1_000_000))

    assert time.watermark_ms == 999_999


def test_the_watermark_of_a_shard_is_the_minimum_of_its_inputs() -> None:
    """An input far behind, or without any events, delays it."""
    time = ShardTime(dict.fromkeys(["fast", "slow"], ps.watermarks.BoundedOutOfOrderness()), MemoryShardState())

    assert time.observe("fast", [1_000, 2_000]).tolist() == [NEVER_MS, NEVER_MS]
    assert time.observe("slow", [10, 1_500, 3_000]).tolist() == [10, 1_500, 2_000]


def test_a_custom_watermark_computes_its_bound_from_the_lateness() -> None:
    """It receives the observed lateness."""

    class Cautious:
        def bound_ms(self, seen: ps.watermarks.Lateness) -> int:
            return 10 + 2 * seen.quantile(0.99)

    assert BucketTime(Cautious(), BucketProgress()).observe([100, 150]).tolist() == [90, 140]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.watermarks.Confidence(1.0), "cannot prove"),
        (lambda: ps.watermarks.Confidence(warm_up=0), "at least 1 event"),
        (lambda: ps.watermarks.BoundedOutOfOrderness(timedelta(seconds=-1)), "must not be negative"),
    ],
)
def test_invalid_watermarks_are_refused(make: object, message: str) -> None:
    """The error contains the reason."""
    with pytest.raises(DeclarationError, match=message):
        make()  # type: ignore[operator]
