"""A sample of a processor's load, and the figures that decide about its number of workers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from ....processors import counted, human_duration
from ..status import ProcessorStatus, ShardStatus

OVERLOADED_S = 5.0
"""The lag of a bucket from which its worker is overloaded."""


def overloaded_workers(status: ProcessorStatus) -> set[str]:
    """Return the names of the workers that have an overloaded bucket."""
    return {shard.owner for shard in status.shards if shard.owner and _is_overloaded(shard)}


def _is_overloaded(shard: ShardStatus) -> bool:
    return (shard.lag_s or 0.0) >= OVERLOADED_S


@dataclass(frozen=True)
class ScalingLimits:
    """The limits of a scaling policy.

    Args:
        min_workers: the smallest number of workers.
        max_workers: the largest number of workers; the number of buckets limits it further.
        max_lag_s: the longest time that events may wait.
        catch_up_s: the time within which a backlog must be processed; greater than zero.
        scale_up_after_s: the time of overload before workers are added.
        scale_down_after_s: the time of underload before a worker is removed.
        headroom: the share of spare capacity that must remain after a worker is removed.
        busy_cpu: the mean CPU usage, in cores, from which a worker is CPU-bound.
    """

    min_workers: int = 1
    max_workers: int = 1_000
    max_lag_s: float = 60.0
    catch_up_s: float = 300.0
    scale_up_after_s: float = 60.0
    scale_down_after_s: float = 600.0
    headroom: float = 0.3
    busy_cpu: float = 0.5

    def max_workers_of(self, status: ProcessorStatus) -> int:
        """Return the largest number of workers for a processor."""
        return max(self.min_workers, min(self.max_workers, len(status.shards)))


class ScalingDecision(NamedTuple):
    """A decision about the number of workers.

    Args:
        workers: the number of workers.
        change: whether this differs from the current number.
        reason: the figures and the conclusion, in words.
    """

    workers: int
    change: bool
    reason: str


class LoadSample(NamedTuple):
    """The load of a processor whose workers all run.

    Args:
        status: the processor's status.
        backlog: the number of waiting events.
        lag_s: the age of the oldest waiting event, in seconds.
        workers: the number of workers.
        input_rate: arriving events per second.
        worker_capacity: the measured capacity of a worker, in events per second; 0 before a measurement.
        limits: the limits of the policy.
    """

    status: ProcessorStatus
    backlog: int
    lag_s: float
    workers: int
    input_rate: float
    worker_capacity: float
    limits: ScalingLimits

    @property
    def read_rate(self) -> float:
        """Events per second that all workers read."""
        return self.status.per_s.events_in

    @property
    def cpu_per_worker(self) -> float:
        """The mean CPU usage of a worker, in cores."""
        return self.status.worker_figures.cpu_cores / self.workers

    @property
    def is_io_bound(self) -> bool:
        """Whether the workers mostly wait for something, such as a store."""
        return self.cpu_per_worker < self.limits.busy_cpu

    @property
    def is_at_maximum(self) -> bool:
        """Whether the processor has the largest number of workers."""
        return self.workers >= self.limits.max_workers_of(self.status)

    @property
    def overloaded(self) -> int:
        """The number of overloaded workers."""
        return len(overloaded_workers(self.status))

    @property
    def can_redistribute(self) -> bool:
        """Whether another worker could take a bucket from an overloaded one."""
        overloaded = overloaded_workers(self.status)
        active = Counter(shard.owner for shard in self.status.shards if shard.events_in_per_s or _is_overloaded(shard))
        return any(active[name] > 1 for name in overloaded) or not overloaded

    @property
    def required_workers(self) -> int:
        """The number of workers that process the input and catch up in time."""
        if not self.worker_capacity:
            return self.workers + 1
        required = ceil((self.input_rate + self.backlog / self.limits.catch_up_s) / self.worker_capacity)
        return min(self.limits.max_workers_of(self.status), required)

    @property
    def can_remove_worker(self) -> bool:
        """Whether the other workers would keep their headroom."""
        fewer = self.workers - 1
        usable = fewer * self.worker_capacity * (1 - self.limits.headroom)
        return fewer >= self.limits.min_workers and self.input_rate <= usable

    @property
    def requirement(self) -> str:
        """The required number of workers in words."""
        duration = human_duration(self.limits.catch_up_s)
        return f"To catch up within {duration}, it needs {counted(self.required_workers, 'worker')}"

    def keep_workers(self, reason: str) -> ScalingDecision:
        """Return the decision to keep the number of workers."""
        return ScalingDecision(self.workers, change=False, reason=f"{self._figures}{reason}.")

    def change_workers(self, workers: int, reason: str) -> ScalingDecision:
        """Return the decision to change the number of workers."""
        return ScalingDecision(workers, change=True, reason=f"{self._figures}{reason}.")

    @property
    def _figures(self) -> str:
        return (
            f"{self.input_rate:,.0f} events/s arrive, {self.read_rate:,.0f} are read, {self.backlog:,} wait, the oldest for "
            f"{human_duration(self.lag_s)}; a worker reads up to {self.worker_capacity:,.0f}. "
        )
