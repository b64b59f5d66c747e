"""How many workers a processor is given, by a simulation of one that reads as fast as its workers can."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from support.pictures import NOW_MS, shard, standing, worker

from penstock.ops.autoscaling.policy import ScalingPolicy
from penstock.ops.autoscaling.sample import Bounds, ScalingDecision
from penstock.ops.monitoring.status import ShardStatus

LOOK_S = 10
CAPACITY = 1_000.0
BOUNDS = Bounds(least=1, most=8, lag_s=30, catch_up_s=120, more_after_s=30, fewer_after_s=120)


@dataclass
class Simulated:
    """A processor of eight buckets; each worker reads a thousand events a second, and all together what a store can take."""

    scaler: ScalingPolicy = field(default_factory=lambda: ScalingPolicy(BOUNDS))
    workers: int = 1
    waiting: float = 0.0
    at_s: int = 0
    capacity: float = CAPACITY
    cpu: float = 0.95
    store: float = float("inf")
    laden: int = 8

    def look(self, arriving: float) -> ScalingDecision:
        """Let ten seconds pass; do what is decided."""
        self.at_s += LOOK_S
        read = min(self.waiting / LOOK_S + arriving, self.workers * self.capacity, self.store)
        self.waiting += (arriving - read) * LOOK_S
        oldest_s = self.waiting / read if read else 0.0
        busy = self.cpu * read / (self.workers * self.capacity)
        each = [worker(str(n), rate_in=read / self.workers, cpu=busy) for n in range(self.workers)]
        seen = standing(
            *(self._shard(n, oldest_s) for n in range(8)),
            workers=tuple(each),
            at_ms=NOW_MS + self.at_s * 1000,
        )
        decision = self.scaler.decide(seen, self.workers)
        self.workers = decision.workers
        return decision

    def _shard(self, number: int, oldest_s: float) -> ShardStatus:
        laden = number < self.laden
        return shard(
            number,
            owner=str(number % self.workers),
            behind=int(self.waiting / self.laden) if laden else 0,
            behind_s=oldest_s if laden else 0.0,
        )

    def run(self, arriving: float, seconds: int) -> list[int]:
        """Let so much come for so long; the numbers of workers at each look."""
        return [self.look(arriving).workers for _ in range(seconds // LOOK_S)]


def test_what_is_too_much_for_one_gets_as_many_as_it_needs() -> None:
    """And they catch up."""
    it = Simulated()
    numbers = it.run(3_500, 1_800)

    assert max(numbers) <= 8
    assert it.workers >= 4
    assert it.waiting == 0


def test_those_who_will_have_caught_up_in_time_get_no_company() -> None:
    """However much still waits for them."""
    it = Simulated(waiting=300_000, workers=4)
    numbers = it.run(1_000, 80)

    assert it.waiting > 0
    assert set(numbers) == {4}


def test_a_short_peak_changes_nothing() -> None:
    """It is read a little later."""
    it = Simulated()
    it.run(500, 120)

    assert set(it.run(2_500, 10) + it.run(500, 300)) == {1}


def test_when_less_comes_there_are_fewer_one_by_one_after_a_while() -> None:
    """Each after two minutes."""
    it = Simulated()
    it.run(3_500, 1_800)
    before = it.workers
    numbers = it.run(200, 1_800)
    steps = [number for number, (one, next_) in enumerate(pairwise(numbers)) if next_ < one]

    assert numbers[-1] == 1
    assert len(steps) == before - 1
    assert min(later - earlier for earlier, later in pairwise(steps)) >= BOUNDS.fewer_after_s / LOOK_S


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 7_000))
def test_a_steady_stream_comes_to_a_steady_number(arriving: float) -> None:
    """It does not swing, whatever comes."""
    it = Simulated()
    it.run(arriving, 3_600)

    assert len(set(it.run(arriving, 3_600))) == 1
    assert it.waiting <= arriving * BOUNDS.lag_s


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20_000), st.integers(10, 600)), max_size=12))
def test_it_stays_within_its_bounds(stretches: list[tuple[float, int]]) -> None:
    """Whatever comes, and for however long."""
    it = Simulated()

    assert {number for arriving, seconds in stretches for number in it.run(arriving, seconds)} <= set(range(1, 9))


def test_workers_that_wait_each_for_its_own_are_given_company() -> None:
    """A request for each event takes as long whoever else asks: one more shows it, and then there are as many as are needed."""
    it = Simulated(cpu=0.1)
    decisions = [it.look(3_500) for _ in range(60)]

    assert [one.workers for one in decisions if one.change][:2] == [2, 6]
    assert any("one more shows whether more help" in one.why for one in decisions)
    assert any("More help: 6 workers are needed" in one.why for one in decisions)
    it.run(3_500, 3_600)
    assert it.waiting == 0


def test_workers_that_wait_for_the_same_are_not_given_company() -> None:
    """A store that has enough to do is not made faster by more who ask it: one shows that, leaves, and comes back for another try in an hour."""
    it = Simulated(cpu=0.1, store=CAPACITY)
    decisions = [it.look(3_500) for _ in range(300)]
    again = [it.look(3_500).workers for _ in range(150)]

    assert [one.workers for one in decisions if one.change] == [2, 1]
    assert "one more did not help: something else holds them up" in decisions[-1].why
    assert 2 in again


def test_where_each_bucket_that_waits_has_a_worker_there_is_no_need_of_more() -> None:
    """A bucket is read by one worker; that is said."""
    it = Simulated(cpu=0.1, laden=1)
    decisions = [it.look(3_500) for _ in range(60)]

    assert it.workers == 1
    assert "more would have nothing to do" in decisions[-1].why


def test_what_is_read_when_most_is_done_says_nothing_of_more() -> None:
    """Those whose buckets are empty bring nothing, and are not blamed for it."""
    it = Simulated(cpu=0.1, waiting=100_000)
    while it.workers == 1:
        it.look(0)
    it.laden, it.store = 1, CAPACITY
    changes = [one for one in (it.look(0) for _ in range(8)) if one.change]

    assert changes == []


def test_one_that_is_there_on_trial_is_judged_by_what_is_read_since_then() -> None:
    """Rates are taken over a minute: for so long nothing is decided."""
    it = Simulated(cpu=0.1, store=CAPACITY)
    numbers = [it.look(3_500).workers for _ in range(60)]

    assert numbers.count(2) * LOOK_S >= it.scaler.rates_over_s


def test_a_decision_says_its_figures() -> None:
    """Before it is made, what it will be, and when."""
    it = Simulated()
    said = [it.look(3_500).why for _ in range(12)]

    assert any("3,500 events/s come, 1,000 are read" in why and "more, there will be" in why for why in said)
    assert any("workers are needed to catch up within 2 min" in why for why in said)


def test_a_number_that_is_out_of_bounds_is_brought_back() -> None:
    """Fewer than the least, or more than there are buckets."""
    assert Simulated(workers=20).look(10).workers == 8
    assert Simulated(ScalingPolicy(Bounds(least=3))).look(10).workers == 3


def test_nothing_is_decided_while_workers_start() -> None:
    """What two do says nothing of four."""
    scaler, seen = ScalingPolicy(BOUNDS), standing(shard(behind=10, behind_s=500.0), shard(1), shard(2))
    scaler.decide(seen, 2)

    assert scaler.decide(seen, 2) == ScalingDecision(2, change=False, why="1 of 2 workers run; waiting for the others.")
