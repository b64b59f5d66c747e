"""The scaling policy: the number of workers from the input rate, the backlog and the CPU usage. Pure.

required workers = (input rate + backlog / time to catch up) / capacity of a worker

The policy learns the capacity of a worker as the highest mean rate of overloaded workers. It adds workers after a while of
overload. It removes one worker at a time, after a longer while, and only if the others keep some headroom. So the number
does not oscillate.

    CPU-bound --------------------------------------------> the required number of workers
    waiting   --> one more worker on trial --> it helps --> the required number of workers
                                           --> it does not help --> the worker is removed; no trial for a while
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp

from ....processors import counted, human_duration
from ...kernel import RATE_WINDOW_S
from ..status import ProcessorStatus
from .load_sample import LoadSample, ScalingDecision, ScalingLimits, overloaded_workers
from .scaling_trial import ScalingTrials

CAPACITY_DECAY_S = 1_000.0
"""The time constant with which a measured capacity decays while events wait, because events change."""


@dataclass
class ScalingPolicy:
    """Decides about the number of one processor's workers. Call `decide` with each new status.

    Args:
        limits: the limits of the decisions.
        rate_window_s: the time over which the rates in the status are measured; the shortest duration of a trial.
    """

    limits: ScalingLimits
    rate_window_s: float = RATE_WINDOW_S
    _capacity: float = 0.0
    _trials: ScalingTrials = field(default_factory=ScalingTrials)
    _previous: ProcessorStatus | None = None
    _overload_since_ms: int | None = None
    _underload_since_ms: int | None = None

    def decide(self, status: ProcessorStatus, workers: int) -> ScalingDecision:
        """Return the decision for a status.

        Args:
            status: the processor's current status.
            workers: the number of workers in its deployment; some may be starting or stopping.
        """
        if status.backlog_events is None or status.lag_s is None:
            return ScalingDecision(workers, change=False, reason="The backlog is unknown, so nothing changes.")
        previous, input_rate = self._previous, self._input_rate(status, status.backlog_events)
        self._measure_capacity(status)
        self._previous = status
        correction = self._within_limits(status, workers)
        if correction is not None:
            return correction
        if previous is None:
            return ScalingDecision(workers, change=False, reason="First status: the input rate is still unknown.")
        if len(status.running_workers) != workers:
            self._restart_waits()
            reason = f"Running: {len(status.running_workers)} of {counted(workers, 'worker')}; waiting for the others."
            return ScalingDecision(workers, change=False, reason=reason)
        return self._decide_by_load(
            LoadSample(status, status.backlog_events, status.lag_s, workers, input_rate, self._capacity, self.limits)
        )

    def _within_limits(self, status: ProcessorStatus, workers: int) -> ScalingDecision | None:
        """Return the decision for a number of workers outside of the limits; None within them."""
        fewest, most = self.limits.min_workers, self.limits.max_workers_of(status)
        if workers < fewest:
            return ScalingDecision(fewest, change=True, reason=f"The minimum is {fewest}.")
        if workers > most:
            return ScalingDecision(
                most, change=True, reason=f"The maximum is {most}, for {counted(len(status.shards), 'bucket')}."
            )
        return None

    def _input_rate(self, status: ProcessorStatus, backlog: int) -> float:
        """Return the arriving events per second since the previous status with a backlog."""
        previous = self._previous
        if previous is None or previous.backlog_events is None or status.at_ms == previous.at_ms:
            return status.per_s.events_in
        growth = (backlog - previous.backlog_events) / ((status.at_ms - previous.at_ms) / 1000)
        return max(0.0, status.per_s.events_in + growth)

    def _measure_capacity(self, status: ProcessorStatus) -> None:
        """Update the capacity of a worker from the rates of overloaded workers."""
        overloaded = overloaded_workers(status)
        rates = [worker.per_s.events_in for worker in status.running_workers if worker.worker in overloaded]
        if rates:
            previous_ms = status.at_ms if self._previous is None else self._previous.at_ms
            decayed = self._capacity * exp((previous_ms - status.at_ms) / 1000 / CAPACITY_DECAY_S)
            self._capacity = max(decayed, sum(rates) / len(rates))

    def _decide_by_load(self, sample: LoadSample) -> ScalingDecision:
        if sample.lag_s > self.limits.max_lag_s:
            self._underload_since_ms = None
            return self._on_overload(sample)
        self._overload_since_ms = None
        self._trials.reset()
        return self._on_normal_load(sample)

    def _on_overload(self, sample: LoadSample) -> ScalingDecision:
        since_ms = self._overload_since_ms = self._overload_since_ms or sample.status.at_ms
        duration_s = (sample.status.at_ms - since_ms) / 1000
        if self._trials.baseline(sample):
            return self._on_trial(sample, max(self.limits.scale_up_after_s, self.rate_window_s) - duration_s)
        if sample.is_at_maximum:
            return _at_maximum(sample)
        if not sample.can_redistribute:
            return sample.keep_workers("Each overloaded worker has one active bucket, so more workers would be idle")
        if sample.is_io_bound and self._trials.failed_recently(sample):
            return sample.keep_workers(
                f"The workers use {sample.cpu_per_worker:.2f} cores each, and one more did not help: another resource limits them"
            )
        return self._scale_up(sample, self.limits.scale_up_after_s - duration_s)

    def _scale_up(self, sample: LoadSample, remaining_s: float) -> ScalingDecision:
        """Return the decision for an overload that more workers may reduce."""
        required = sample.workers + 1 if sample.is_io_bound else sample.required_workers
        if required <= sample.workers:
            return _sufficient(sample)
        if remaining_s > 0:
            return sample.keep_workers(
                f"Scales to {counted(required, 'worker')} if this lasts {human_duration(remaining_s)} more"
            )
        self._restart_waits()
        if not sample.is_io_bound:
            return sample.change_workers(required, sample.requirement)
        self._trials.begin(sample)
        return sample.change_workers(
            required,
            f"The workers use {sample.cpu_per_worker:.2f} cores each, so they mostly wait: one more worker shows whether more help",
        )

    def _on_trial(self, sample: LoadSample, remaining_s: float) -> ScalingDecision:
        """Return the decision during a trial, and at its end."""
        baseline = self._trials.baseline(sample)
        if baseline is None or remaining_s > 0:
            return sample.keep_workers(f"The trial of more workers ends in {human_duration(remaining_s)}")
        self._restart_waits()
        # With fewer overloaded workers than before the trial, the read rate does not show the effect of more.
        helped = baseline.is_exceeded(sample) or sample.overloaded <= baseline.workers
        self._trials.end(sample, helped=helped)
        if not helped:
            reason = f"With {counted(baseline.workers, 'worker')} it reads {baseline.read_rate:,.0f}, so more do not help: another resource limits them"
            return sample.change_workers(baseline.workers, reason)
        if sample.is_at_maximum:
            return _at_maximum(sample)
        if sample.required_workers <= sample.workers:
            return _sufficient(sample)
        if sample.is_io_bound:
            self._trials.begin(sample)
        return sample.change_workers(sample.required_workers, f"More workers help: {sample.requirement}")

    def _on_normal_load(self, sample: LoadSample) -> ScalingDecision:
        if not sample.can_remove_worker:
            self._underload_since_ms = None
            return sample.keep_workers("The number of workers is right")
        fewer = sample.workers - 1
        since_ms = self._underload_since_ms = self._underload_since_ms or sample.status.at_ms
        remaining_s = self.limits.scale_down_after_s - (sample.status.at_ms - since_ms) / 1000
        if remaining_s > 0:
            return sample.keep_workers(
                f"Scales to {counted(fewer, 'worker')} if this lasts {human_duration(remaining_s)} more"
            )
        self._restart_waits()
        return sample.change_workers(
            fewer, f"{counted(fewer, 'worker')} would keep {self.limits.headroom:.0%} of headroom"
        )

    def _restart_waits(self) -> None:
        """Restart the waits before the next change."""
        self._overload_since_ms = self._underload_since_ms = None


def _at_maximum(sample: LoadSample) -> ScalingDecision:
    return sample.keep_workers(f"More workers are needed, but {sample.workers} is the maximum")


def _sufficient(sample: LoadSample) -> ScalingDecision:
    return sample.keep_workers(f"The current workers catch up within {human_duration(sample.limits.catch_up_s)}")
