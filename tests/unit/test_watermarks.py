"""What a watermark promises: never to go back, and to be right as often as was asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.processors.errors import DeclarationError
from penstock.processors.time import watermarks
from penstock.processors.time.shard_time import ShardTime
from penstock.processors.time.watermarks import NEVER_MS, BucketProgress, BucketTime, Lateness, Watermark
from penstock.state.protocols import MemoryShardState

TIMES = st.lists(st.integers(-(10**6), 10**9), max_size=700)
WAYS = st.sampled_from(
    [
        ps.watermarks.Confidence(0.9, warm_up=5),
        ps.watermarks.Confidence(0.5, warm_up=300),
        ps.watermarks.BoundedOutOfOrderness(timedelta(seconds=2)),
    ]
)


@given(times=TIMES, way=WAYS)
def test_a_watermark_never_goes_back(times: list[int], way: Watermark) -> None:
    """However the events come."""
    found = BucketTime(way, BucketProgress()).observe(times)

    assert all(earlier <= later for earlier, later in pairwise(found))


@given(times=TIMES, way=WAYS, cuts=st.lists(st.integers(0, 700)))
def test_a_watermark_depends_on_the_events_alone(times: list[int], way: Watermark, cuts: list[int]) -> None:
    """Not on how they were batched, nor on restarts between them."""
    whole = BucketTime(way, BucketProgress()).observe(times)
    saved, found = MemoryShardState(), []
    for begin, end in pairwise([0, *sorted(cuts), len(times)]):
        time = ShardTime(way, ["readings"], saved)
        found += time.observe("readings", times[begin:end])
        saved.save(time.drain())

    assert found == whole


def test_nor_does_a_long_stream_whose_past_fades(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old observations count for less at the same events, however those were batched."""
    monkeypatch.setattr(watermarks, "MEMORY", 1_000)
    lots = random.Random(3)
    times = [n - int(lots.expovariate(1 / 300)) for n in range(30_000)]
    time, found = BucketTime(ps.watermarks.Confidence(), BucketProgress()), []
    for begin in range(0, len(times), 77):
        found += time.observe(times[begin : begin + 77])

    assert found == BucketTime(ps.watermarks.Confidence(), BucketProgress()).observe(times)


@given(times=TIMES, bound=st.integers(0, 10**6))
def test_a_fixed_bound_lies_behind_the_newest_event(times: list[int], bound: int) -> None:
    """By just that much, from the first event on."""
    watermarks = BucketTime(
        ps.watermarks.BoundedOutOfOrderness(timedelta(milliseconds=bound)), BucketProgress()
    ).observe(times)

    assert watermarks == [max(times[: n + 1]) - bound for n in range(len(times))]


@given(latenesses=st.lists(st.integers(0, 10**12), min_size=1), share=st.floats(0, 0.9999))
def test_a_quantile_is_not_exceeded_by_its_share(latenesses: list[int], share: float) -> None:
    """At most so many lie above it as the share leaves, and it is no more than a sixty-fourth above one that was observed."""
    sketch = Lateness()
    sketch.add(latenesses)

    found = sketch.quantile(share)
    assert sum(lateness > found for lateness in latenesses) <= (1 - share) * (len(latenesses) + 1)
    assert any(lateness <= found <= lateness * 65 / 64 for lateness in latenesses)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
def test_as_many_events_come_late_as_the_confidence_leaves(share: float) -> None:
    """On a long stream whose events are held up by chance, some of them for long."""
    lots = random.Random(7)
    arrivals = sorted((n * 10 + lots.expovariate(1 / 500), n * 10) for n in range(100_000))
    times = [time for _, time in arrivals]

    watermarks = [NEVER_MS, *BucketTime(ps.watermarks.Confidence(share), BucketProgress()).observe(times)]
    late = sum(time < watermark for time, watermark in zip(times, watermarks, strict=False))
    assert late / len(times) == pytest.approx(1 - share, rel=0.1, abs=5e-4)


def _shuffled(how: str, events: int, lots: random.Random) -> list[int]:
    """Return the event times of a stream, one each second, as they come."""
    times = range(0, events * 1_000, 1_000)
    late: dict[str, Callable[[int], float]] = {
        "a little": lambda _: lots.expovariate(1 / 500),
        "some": lambda _: lots.expovariate(1 / 2_000),
        "much": lambda _: lots.expovariate(1 / 5_000),
        "in tens": lambda time: lots.uniform(0, 1) - time % 10_000,
        "seldom": lambda _: lots.uniform(0, 30_000) if lots.random() < 0.02 else 0,
        "without order": lambda time: lots.uniform(0, 1) - time,
    }
    return [time for _, time in sorted((time + late[how](time), time) for time in times)]


@pytest.mark.parametrize("events", [10, 30, 100, 1_000])
@pytest.mark.parametrize("how", ["a little", "some", "much", "in tens", "seldom", "without order"])
def test_few_events_are_seldom_late_though_little_is_known(how: str, events: int) -> None:
    """Ten of a bucket suffice for a watermark, and on small streams in disorder it leaves out no more than a few in a hundred."""
    lots, late, trials = random.Random(5), 0, max(3, 4_000 // events)
    for _ in range(trials):
        times = _shuffled(how, events, lots)
        watermarks = [NEVER_MS, *BucketTime(ps.watermarks.Confidence(), BucketProgress()).observe(times)]
        assert watermarks[10] != NEVER_MS
        late += sum(time < watermark for time, watermark in zip(times, watermarks, strict=False))

    assert late / (trials * events) <= 0.025


@pytest.mark.parametrize(
    ("way", "events", "told"),
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
def test_what_a_watermark_waits_for_is_told(way: Watermark, events: int, told: str) -> None:
    """As it is: when it is looked for the first time after so many."""
    time = BucketTime(way, BucketProgress())
    time.observe(range(events))

    assert time.waits_for == told
    time.observe(range(512))
    assert time.watermark_ms != NEVER_MS


def test_a_stream_that_changes_its_ways_is_followed() -> None:
    """What was seen long ago counts for less: the watermark comes closer once events are in order again."""
    time = BucketTime(ps.watermarks.Confidence(0.99), BucketProgress())
    time.observe([n - 5_000 * (n % 2) for n in range(200_000)])
    time.observe(range(200_000, 1_000_000))

    assert time.watermark_ms == 999_999


def test_a_shard_is_as_far_as_its_last_input() -> None:
    """One input far behind, or silent from the beginning, holds it back."""
    time = ShardTime(ps.watermarks.BoundedOutOfOrderness(), ["fast", "slow"], MemoryShardState())

    assert time.observe("fast", [1_000, 2_000]) == [NEVER_MS, NEVER_MS]
    assert time.observe("slow", [10, 1_500, 3_000]) == [10, 1_500, 2_000]


def test_ones_own_way_decides_by_what_was_seen() -> None:
    """It is asked for the bound, given the latenesses."""

    class Cautious:
        def bound_ms(self, seen: ps.watermarks.Lateness) -> int:
            return 10 + 2 * seen.quantile(0.99)

    assert BucketTime(Cautious(), BucketProgress()).observe([100, 150]) == [90, 140]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ps.watermarks.Confidence(1.0), "cannot prove"),
        (lambda: ps.watermarks.Confidence(warm_up=0), "at least 1 event"),
        (lambda: ps.watermarks.BoundedOutOfOrderness(timedelta(seconds=-1)), "must not be negative"),
    ],
)
def test_what_cannot_be_a_watermark_is_refused(make: object, told: str) -> None:
    """With the reason."""
    with pytest.raises(DeclarationError, match=told):
        make()  # type: ignore[operator]
