"""The scaling policy, in a simulation of a processor."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from support.statuses import NOW_MS, processor_status, shard_status, worker_status

from penstock.ops.status.autoscaling.load_sample import ScalingDecision, ScalingLimits
from penstock.ops.status.autoscaling.policy import ScalingPolicy
from penstock.ops.status.status import ShardStatus
from penstock.processors import Counts

INTERVAL_S = 10
CAPACITY = 1_000.0
LIMITS = ScalingLimits(
    min_workers=1, max_workers=8, max_lag_s=30, catch_up_s=120, scale_up_after_s=30, scale_down_after_s=120
)


@dataclass
class SimulatedProcessor:
    """A processor of eight buckets. Each worker reads 1,000 events/s, and all together at most the rate of a store."""

    policy: ScalingPolicy = field(default_factory=lambda: ScalingPolicy(LIMITS))
    workers: int = 1
    backlog: float = 0.0
    at_s: int = 0
    capacity: float = CAPACITY
    cpu: float = 0.95
    store_rate: float = float("inf")
    overloaded: int = 8

    def step(self, input_rate: float) -> ScalingDecision:
        """Let ten seconds pass, and apply the decision."""
        self.at_s += INTERVAL_S
        read = min(self.backlog / INTERVAL_S + input_rate, self.workers * self.capacity, self.store_rate)
        self.backlog += (input_rate - read) * INTERVAL_S
        oldest_s = self.backlog / read if read else 0.0
        busy = self.cpu * read / (self.workers * self.capacity)
        workers = [
            worker_status(str(n), per_s=Counts(events_in=read / self.workers), cpu_cores=busy)
            for n in range(self.workers)
        ]
        status = processor_status(
            *(self._shard(n, oldest_s) for n in range(8)),
            workers=tuple(workers),
            at_ms=NOW_MS + self.at_s * 1000,
        )
        decision = self.policy.decide(status, self.workers)
        self.workers = decision.workers
        return decision

    def _shard(self, number: int, oldest_s: float) -> ShardStatus:
        is_overloaded = number < self.overloaded
        return shard_status(
            number,
            owner=str(number % self.workers),
            backlog_events=int(self.backlog / self.overloaded) if is_overloaded else 0,
            lag_s=oldest_s if is_overloaded else 0.0,
        )

    def run(self, input_rate: float, seconds: int) -> list[int]:
        """Simulate an input rate for a while, and return the number of workers at each step."""
        return [self.step(input_rate).workers for _ in range(seconds // INTERVAL_S)]


def test_an_overload_adds_the_required_workers() -> None:
    """The backlog is processed."""
    processor = SimulatedProcessor()
    numbers = processor.run(3_500, 1_800)

    assert max(numbers) <= 8
    assert processor.workers >= 4
    assert processor.backlog == 0


def test_a_shrinking_backlog_adds_no_workers() -> None:
    """A large backlog alone adds no worker if the workers catch up in time."""
    processor = SimulatedProcessor(backlog=300_000, workers=4)
    numbers = processor.run(1_000, 80)

    assert processor.backlog > 0
    assert set(numbers) == {4}


def test_a_short_peak_changes_nothing() -> None:
    """Its events are read a little later."""
    processor = SimulatedProcessor()
    processor.run(500, 120)

    assert set(processor.run(2_500, 10) + processor.run(500, 300)) == {1}


def test_an_underload_removes_workers_one_by_one() -> None:
    """Two minutes pass between two removals."""
    processor = SimulatedProcessor()
    processor.run(3_500, 1_800)
    before = processor.workers
    numbers = processor.run(200, 1_800)
    steps = [number for number, (workers, next_workers) in enumerate(pairwise(numbers)) if next_workers < workers]

    assert numbers[-1] == 1
    assert len(steps) == before - 1
    assert min(later - earlier for earlier, later in pairwise(steps)) >= LIMITS.scale_down_after_s / INTERVAL_S


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 7_000))
def test_a_steady_input_leads_to_a_steady_number(input_rate: float) -> None:
    """The number does not oscillate at any input rate."""
    processor = SimulatedProcessor()
    processor.run(input_rate, 3_600)

    assert len(set(processor.run(input_rate, 3_600))) == 1
    assert processor.backlog <= input_rate * LIMITS.max_lag_s


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20_000), st.integers(10, 600)), max_size=12))
def test_the_number_stays_within_the_limits(phases: list[tuple[float, int]]) -> None:
    """The input rate and the time do not matter."""
    processor = SimulatedProcessor()

    assert {number for input_rate, seconds in phases for number in processor.run(input_rate, seconds)} <= set(
        range(1, 9)
    )


def test_a_trial_that_helps_adds_the_required_workers() -> None:
    """Each worker waits for its own requests, so one more worker adds throughput."""
    processor = SimulatedProcessor(cpu=0.1)
    decisions = [processor.step(3_500) for _ in range(60)]

    assert [decision.workers for decision in decisions if decision.change][:2] == [2, 6]
    assert any("one more worker shows whether more help" in decision.reason for decision in decisions)
    assert any("More workers help: To catch up within" in decision.reason for decision in decisions)
    processor.run(3_500, 3_600)
    assert processor.backlog == 0


def test_a_trial_that_does_not_help_removes_the_worker() -> None:
    """All workers wait for a saturated store. The next trial is an hour later."""
    processor = SimulatedProcessor(cpu=0.1, store_rate=CAPACITY)
    decisions = [processor.step(3_500) for _ in range(300)]
    again = [processor.step(3_500).workers for _ in range(150)]

    assert [decision.workers for decision in decisions if decision.change] == [2, 1]
    assert "one more did not help: another resource limits them" in decisions[-1].reason
    assert 2 in again


def test_a_single_overloaded_bucket_adds_no_workers() -> None:
    """Only one worker can read a bucket. The reason says so."""
    processor = SimulatedProcessor(cpu=0.1, overloaded=1)
    decisions = [processor.step(3_500) for _ in range(60)]

    assert processor.workers == 1
    assert "more workers would be idle" in decisions[-1].reason


def test_a_trial_with_empty_buckets_does_not_fail() -> None:
    """Workers without waiting events cannot add throughput."""
    processor = SimulatedProcessor(cpu=0.1, backlog=100_000)
    while processor.workers == 1:
        processor.step(0)
    processor.overloaded, processor.store_rate = 1, CAPACITY
    changes = [decision for decision in (processor.step(0) for _ in range(8)) if decision.change]

    assert changes == []


def test_a_trial_lasts_as_long_as_rates_are_measured() -> None:
    """Rates are means over a minute, so a shorter trial would include the time before the trial."""
    processor = SimulatedProcessor(cpu=0.1, store_rate=CAPACITY)
    numbers = [processor.step(3_500).workers for _ in range(60)]

    assert numbers.count(2) * INTERVAL_S >= processor.policy.rate_window_s


def test_a_decision_contains_its_figures() -> None:
    """A pending decision is announced with its time."""
    processor = SimulatedProcessor()
    reasons = [processor.step(3_500).reason for _ in range(12)]

    assert any("3,500 events/s arrive, 1,000 are read" in reason and "if this lasts" in reason for reason in reasons)
    assert any("To catch up within 2 min, it needs" in reason for reason in reasons)


def test_a_number_outside_of_the_limits_is_corrected() -> None:
    """The limits are the minimum, the maximum and the number of buckets."""
    assert SimulatedProcessor(workers=20).step(10).workers == 8
    assert SimulatedProcessor(ScalingPolicy(ScalingLimits(min_workers=3))).step(10).workers == 3


def test_nothing_is_decided_while_workers_start() -> None:
    """The rates of two workers do not predict the rates of four."""
    policy, status = (
        ScalingPolicy(LIMITS),
        processor_status(shard_status(backlog_events=10, lag_s=500.0), shard_status(1), shard_status(2)),
    )
    policy.decide(status, 2)

    assert policy.decide(status, 2) == ScalingDecision(
        2, change=False, reason="Running: 1 of 2 workers; waiting for the others."
    )
