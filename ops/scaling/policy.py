"""How many workers a processor needs, from what comes, what waits and how busy its workers are. Pure.

needed = (arriving + waiting / time to catch up) / what one worker can do

What one worker can do is learned: the most that one has read, on average, while events waited. More are given when that has been so for a
while; fewer only after a longer while, one at a time, and only where the fewer would still have room to spare: so it does not swing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from ..spans import span
from ..watching.standing import Standing

ENOUGH_S = 5.0
"""How long events wait where workers have more than enough to do: only then does what they read say what they can."""


@dataclass(frozen=True)
class Bounds:
    """Within what the number of workers may change.

    Args:
        least: never fewer.
        most: never more; more than there are buckets would have nothing to do.
        lag_s: how long events may wait before there is need of more workers.
        catch_up_s: within what time those that wait are to be processed.
        more_after_s: how long the need has to last before there are more.
        fewer_after_s: how long there has to be none before there are fewer.
        spare: which share of its workers' power has to be left over when there are fewer.
        busy: how many processors a worker uses, on average, that has enough to do.
    """

    least: int = 1
    most: int = 1_000
    lag_s: float = 60.0
    catch_up_s: float = 300.0
    more_after_s: float = 60.0
    fewer_after_s: float = 600.0
    spare: float = 0.3
    busy: float = 0.5


class Decision(NamedTuple):
    """What is to be done.

    Args:
        workers: how many there should be.
        change: whether that is another number than there are.
        why: the figures that it follows from, in words.
    """

    workers: int
    change: bool
    why: str


@dataclass
class Scaler:
    """Decides for one processor, look by look.

    Args:
        bounds: within what.
    """

    bounds: Bounds
    _capacity: float = 0.0
    _before: Standing | None = None
    _short_since_ms: int | None = None
    _ample_since_ms: int | None = None

    def decide(self, it: Standing, workers: int) -> Decision:
        """Return what is to be done now.

        Args:
            it: how the processor stands.
            workers: how many it is given; others may be starting or ending.
        """
        arriving, before = self._arriving(it), self._before
        self._before = it
        outside = self._outside(it, workers)
        if outside is not None:
            return outside
        if before is None:
            return Decision(workers, change=False, why="The first look: what comes is not known yet.")
        if len(it.running) != workers:
            self._forget()
            return Decision(
                workers, change=False, why=f"{len(it.running)} of {workers} workers run; waiting for the others."
            )
        self._learn(it)
        return self._weighed(it, workers, arriving)

    def _outside(self, it: Standing, workers: int) -> Decision | None:
        """Return what is to be done where the number is out of bounds."""
        most = self._most(it)
        if workers < self.bounds.least:
            return Decision(self.bounds.least, change=True, why=f"There are to be at least {self.bounds.least}.")
        if workers > most:
            return Decision(most, change=True, why=f"There are to be at most {most}; it has {len(it.shards)} buckets.")
        return None

    def _most(self, it: Standing) -> int:
        return max(self.bounds.least, min(self.bounds.most, len(it.shards)))

    def _arriving(self, it: Standing) -> float:
        """Return how many events have come in a second since the last look."""
        before = self._before
        if before is None or it.at_ms == before.at_ms:
            return it.total("rate_in")
        grown = (it.behind - before.behind) / ((it.at_ms - before.at_ms) / 1000)
        return max(0.0, it.total("rate_in") + grown)

    def _learn(self, it: Standing) -> None:
        """Note what one worker can do, where it had enough to do; what it did before fades, for events change."""
        if it.running and it.behind_s >= ENOUGH_S:
            self._capacity = max(self._capacity * 0.99, it.total("rate_in") / len(it.running))

    def _weighed(self, it: Standing, workers: int, arriving: float) -> Decision:
        figures = (
            f"{arriving:,.0f} events/s come, {it.total('rate_in'):,.0f} are read, {it.behind:,} wait, the oldest for {span(it.behind_s)}; "
            f"a worker reads up to {self._capacity:,.0f}"
        )
        if it.behind_s > self.bounds.lag_s:
            self._ample_since_ms = None
            return self._short(it, workers, arriving, figures)
        self._short_since_ms = None
        return self._ample(it, workers, arriving, figures)

    def _short(self, it: Standing, workers: int, arriving: float, figures: str) -> Decision:
        most = self._most(it)
        if workers >= most:
            return Decision(
                workers, change=False, why=f"{figures}. More are needed, but {most} are the most that it may have."
            )
        cpu = it.total("cpu") / max(1, len(it.running))
        if cpu < self.bounds.busy:
            return Decision(
                workers,
                change=False,
                why=f"{figures}. Its workers use {cpu:.2f} processors each, so something else holds them up: more would wait as well.",
            )
        since_ms = self._short_since_ms = it.at_ms if self._short_since_ms is None else self._short_since_ms
        lasted_s = (it.at_ms - since_ms) / 1000
        needed = self._needed(it, workers, arriving, most)
        if lasted_s < self.bounds.more_after_s:
            left = span(self.bounds.more_after_s - lasted_s)
            return Decision(
                workers, change=False, why=f"{figures}. If it stays so for {left} more, there will be {needed}."
            )
        self._forget()
        return Decision(
            needed,
            change=True,
            why=f"{figures}: {needed} workers are needed to catch up within {span(self.bounds.catch_up_s)}.",
        )

    def _needed(self, it: Standing, workers: int, arriving: float, most: int) -> int:
        if not self._capacity:
            return workers + 1
        needed = ceil((arriving + it.behind / self.bounds.catch_up_s) / self._capacity)
        return min(most, max(workers + 1, needed))

    def _ample(self, it: Standing, workers: int, arriving: float, figures: str) -> Decision:
        fewer = workers - 1
        room = fewer * self._capacity * (1 - self.bounds.spare)
        if fewer < self.bounds.least or arriving > room:
            self._ample_since_ms = None
            return Decision(workers, change=False, why=f"{figures}. That is as many workers as it needs.")
        since_ms = self._ample_since_ms = it.at_ms if self._ample_since_ms is None else self._ample_since_ms
        lasted_s = (it.at_ms - since_ms) / 1000
        if lasted_s < self.bounds.fewer_after_s:
            left = span(self.bounds.fewer_after_s - lasted_s)
            return Decision(
                workers, change=False, why=f"{figures}. If it stays so for {left} more, there will be {fewer}."
            )
        self._forget()
        return Decision(fewer, change=True, why=f"{figures}: {fewer} would have {self.bounds.spare:.0%} to spare.")

    def _forget(self) -> None:
        """Begin to wait anew."""
        self._short_since_ms = self._ample_since_ms = None
