"""Trials of one more worker, for processors whose workers mostly wait.

If each worker waits on its own, such as for one request per event, more workers help. If all workers wait for the same
resource, such as a saturated store, more workers do not help. A trial finds out which is the case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .load_sample import LoadSample

RETRY_AFTER_S = 3_600.0
"""The time after a failed trial before the next one, while events wait."""
MIN_GAIN = 0.5
"""The share of a worker's throughput that an added worker must contribute."""


class Baseline(NamedTuple):
    """The state before a trial.

    Args:
        workers: the number of workers.
        read_rate: events per second that they read together.
    """

    workers: int
    read_rate: float

    def is_exceeded(self, sample: LoadSample) -> bool:
        """Return whether the added workers contribute enough. Only overloaded workers can."""
        return sample.read_rate >= self.read_rate * (1 + MIN_GAIN * (sample.overloaded / self.workers - 1))


@dataclass
class ScalingTrials:
    """The current trial, and the last failed one."""

    _baseline: Baseline | None = None
    _failed_at_ms: int | None = None

    def begin(self, sample: LoadSample) -> None:
        """Begin a trial: record the state before workers are added."""
        self._baseline = Baseline(sample.workers, sample.read_rate)

    def baseline(self, sample: LoadSample) -> Baseline | None:
        """Return the state before the current trial; None without a trial, or before its worker has started."""
        is_running = self._baseline is not None and sample.workers > self._baseline.workers
        return self._baseline if is_running else None

    def end(self, sample: LoadSample, *, helped: bool) -> None:
        """End a trial, and record its result."""
        self._baseline = None
        if not helped:
            self._failed_at_ms = sample.status.at_ms

    def failed_recently(self, sample: LoadSample) -> bool:
        """Return whether the last trial failed, and the next one is not due."""
        return self._failed_at_ms is not None and sample.status.at_ms - self._failed_at_ms < RETRY_AFTER_S * 1000

    def reset(self) -> None:
        """Forget all trials, because no events wait."""
        self._baseline = self._failed_at_ms = None
