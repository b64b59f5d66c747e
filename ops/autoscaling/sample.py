"""What one look says about the number of a processor's workers, in figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from ..humanize import human_duration
from ..monitoring.status import ProcessorStatus, ShardStatus

ENOUGH_S = 5.0
"""How long events wait in a bucket whose worker has more than enough to do."""


def laden(it: ProcessorStatus) -> set[str]:
    """Return the names of the workers that have more than enough to do."""
    return {shard.owner for shard in it.shards if shard.owner and _is_laden(shard)}


def _is_laden(shard: ShardStatus) -> bool:
    return (shard.behind_s or 0.0) >= ENOUGH_S


@dataclass(frozen=True)
class Bounds:
    """Within what the number of workers may change.

    Args:
        least: never fewer.
        most: never more; more than there are buckets would have nothing to do.
        lag_s: how long events may wait before there is need of more workers.
        catch_up_s: within what time those that wait are to be processed; more than nothing.
        more_after_s: how long the need has to last before there are more.
        fewer_after_s: how long there has to be none before there are fewer.
        spare: which share of its workers' power has to be left over when there are fewer.
        busy: how many processors a worker uses, on average, that waits for nothing.
    """

    least: int = 1
    most: int = 1_000
    lag_s: float = 60.0
    catch_up_s: float = 300.0
    more_after_s: float = 60.0
    fewer_after_s: float = 600.0
    spare: float = 0.3
    busy: float = 0.5

    def most_of(self, it: ProcessorStatus) -> int:
        """Return how many workers a processor may have."""
        return max(self.least, min(self.most, len(it.shards)))


class ScalingDecision(NamedTuple):
    """What is to be done.

    Args:
        workers: how many there should be.
        change: whether that is another number than there are.
        why: the figures that it follows from, in words.
    """

    workers: int
    change: bool
    why: str


class LoadSample(NamedTuple):
    """How a processor stands whose workers all run.

    Args:
        it: how it stands.
        waiting: how many events wait.
        waiting_s: for how long the first of them has waited.
        workers: how many it has.
        arriving: how many events come in a second.
        capacity: how many a worker reads in a second that has enough to do; 0 where nobody knows yet.
        bounds: within what the number may change.
    """

    it: ProcessorStatus
    waiting: int
    waiting_s: float
    workers: int
    arriving: float
    capacity: float
    bounds: Bounds

    @property
    def rate_in(self) -> float:
        """How many events its workers read in a second, together."""
        return self.it.total("rate_in")

    @property
    def cpu(self) -> float:
        """How many processors each of them uses, on average."""
        return self.it.total("cpu") / self.workers

    @property
    def waits(self) -> bool:
        """Whether they wait for something, and do not compute all the time."""
        return self.cpu < self.bounds.busy

    @property
    def is_full(self) -> bool:
        """Whether it has as many as it may have."""
        return self.workers >= self.bounds.most_of(self.it)

    @property
    def laden(self) -> int:
        """How many of them have more than enough to do."""
        return len(laden(self.it))

    @property
    def can_share(self) -> bool:
        """Whether one that has more than enough to do could give a bucket away to another."""
        busy = Counter(shard.owner for shard in self.it.shards if shard.rate_in or _is_laden(shard))
        return any(busy[name] > 1 for name in laden(self.it)) or not laden(self.it)

    @property
    def needed(self) -> int:
        """How many read what comes, and catch up in time."""
        if not self.capacity:
            return self.workers + 1
        needed = ceil((self.arriving + self.waiting / self.bounds.catch_up_s) / self.capacity)
        return min(self.bounds.most_of(self.it), needed)

    @property
    def spared(self) -> bool:
        """Whether one of them could go, and the others would have to spare."""
        fewer = self.workers - 1
        return fewer >= self.bounds.least and self.arriving <= fewer * self.capacity * (1 - self.bounds.spare)

    @property
    def says_needed(self) -> str:
        """What is needed, in words."""
        return f"{self.needed} workers are needed to catch up within {human_duration(self.bounds.catch_up_s)}"

    def stays(self, why: str) -> ScalingDecision:
        """Return the decision that there are to be as many as there are."""
        return ScalingDecision(self.workers, change=False, why=f"{self._figures}{why}.")

    def becomes(self, workers: int, why: str) -> ScalingDecision:
        """Return the decision that there are to be more, or fewer."""
        return ScalingDecision(workers, change=True, why=f"{self._figures}{why}.")

    @property
    def _figures(self) -> str:
        return (
            f"{self.arriving:,.0f} events/s come, {self.rate_in:,.0f} are read, {self.waiting:,} wait, the oldest for "
            f"{human_duration(self.waiting_s)}; a worker reads up to {self.capacity:,.0f}. "
        )
