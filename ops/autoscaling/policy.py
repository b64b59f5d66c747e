"""How many workers a processor needs, from what comes, what waits and how busy its workers are. Pure.

needed = (arriving + waiting / time to catch up) / what one worker can do

What one worker can do is learned: the most that those have read, on average, in whose buckets events waited. More are given when that has been so for a
while; fewer only after a longer while, one at a time, and only where the fewer would still have room to spare: so it does not swing.

    busy ---------------------------------------------> as many as are needed
    waiting -> one more, on trial --it helped---------> as many as are needed
                                  --it did not help---> it is taken away again, and for a long while not tried again
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp

from ..humanize import human_duration
from ..monitoring.reports import RATES_OVER_S
from ..monitoring.status import ProcessorStatus
from .sample import Bounds, LoadSample, ScalingDecision, laden
from .trials import ScalingTrials

FADES_S = 1_000.0
"""In what time, while events wait, what a worker once did comes to count for little more than a third of it: events change."""


@dataclass
class ScalingPolicy:
    """Decides for one processor, look by look.

    Args:
        bounds: within what.
        rates_over_s: over which time the rates that it is given are taken: a trial takes as long at least.
    """

    bounds: Bounds
    rates_over_s: float = RATES_OVER_S
    _capacity: float = 0.0
    _trials: ScalingTrials = field(default_factory=ScalingTrials)
    _before: ProcessorStatus | None = None
    _short_since_ms: int | None = None
    _ample_since_ms: int | None = None

    def decide(self, it: ProcessorStatus, workers: int) -> ScalingDecision:
        """Return what is to be done now.

        Args:
            it: how the processor stands.
            workers: how many it is given; others may be starting or ending.
        """
        if it.behind is None or it.behind_s is None:
            return ScalingDecision(
                workers, change=False, why="How many events wait cannot be read now, so nothing changes."
            )
        arriving, before = self._arriving(it, it.behind), self._before
        self._learn(it)
        self._before = it
        outside = self._outside(it, workers)
        if outside is not None:
            return outside
        if before is None:
            return ScalingDecision(workers, change=False, why="The first look: what comes is not known yet.")
        if len(it.running) != workers:
            self._begin_anew()
            return ScalingDecision(
                workers, change=False, why=f"{len(it.running)} of {workers} workers run; waiting for the others."
            )
        return self._weighed(LoadSample(it, it.behind, it.behind_s, workers, arriving, self._capacity, self.bounds))

    def _outside(self, it: ProcessorStatus, workers: int) -> ScalingDecision | None:
        """Return what is to be done where the number is out of bounds."""
        most = self.bounds.most_of(it)
        if workers < self.bounds.least:
            return ScalingDecision(self.bounds.least, change=True, why=f"There are to be at least {self.bounds.least}.")
        if workers > most:
            return ScalingDecision(
                most, change=True, why=f"There are to be at most {most}; it has {len(it.shards)} buckets."
            )
        return None

    def _arriving(self, it: ProcessorStatus, waiting: int) -> float:
        """Return how many events have come in a second since the last look at which it was known how many wait."""
        before = self._before
        if before is None or before.behind is None or it.at_ms == before.at_ms:
            return it.total("rate_in")
        grown = (waiting - before.behind) / ((it.at_ms - before.at_ms) / 1000)
        return max(0.0, it.total("rate_in") + grown)

    def _learn(self, it: ProcessorStatus) -> None:
        """Note what one worker can do, where it had enough to do."""
        names = laden(it)
        rates = [worker.rate_in for worker in it.running if worker.worker in names]
        if rates:
            since_ms = it.at_ms if self._before is None else self._before.at_ms
            faded = self._capacity * exp((since_ms - it.at_ms) / 1000 / FADES_S)
            self._capacity = max(faded, sum(rates) / len(rates))

    def _weighed(self, look: LoadSample) -> ScalingDecision:
        if look.waiting_s > self.bounds.lag_s:
            self._ample_since_ms = None
            return self._short(look)
        self._short_since_ms = None
        self._trials.forget()
        return self._ample(look)

    def _short(self, look: LoadSample) -> ScalingDecision:
        since_ms = self._short_since_ms = self._short_since_ms or look.it.at_ms
        lasted_s = (look.it.at_ms - since_ms) / 1000
        if self._trials.under_way(look):
            return self._tried(look, max(self.bounds.more_after_s, self.rates_over_s) - lasted_s)
        if look.is_full:
            return _full(look)
        if not look.can_share:
            return look.stays(
                "Each bucket in which events wait has a worker to itself, so more would have nothing to do"
            )
        if look.waits and self._trials.is_in_vain(look):
            return look.stays(
                f"Its workers use {look.cpu:.2f} processors each, and one more did not help: something else holds them up"
            )
        return self._more(look, self.bounds.more_after_s - lasted_s)

    def _more(self, look: LoadSample, left_s: float) -> ScalingDecision:
        """Return what is to be done where more may have, and would help or may be tried."""
        wanted = look.workers + 1 if look.waits else look.needed
        if wanted <= look.workers:
            return _enough(look)
        if left_s > 0:
            return look.stays(f"If that lasts {human_duration(left_s)} more, there will be {wanted}")
        self._begin_anew()
        if not look.waits:
            return look.becomes(wanted, look.says_needed)
        self._trials.begin(look)
        return look.becomes(
            wanted,
            f"Its workers use {look.cpu:.2f} processors each, so they wait for something: one more shows whether more help",
        )

    def _tried(self, look: LoadSample, left_s: float) -> ScalingDecision:
        """Return what is to be done while some are there on trial, and when they have been for long enough."""
        before = self._trials.under_way(look)
        if before is None or left_s > 0:
            return look.stays(f"In {human_duration(left_s)} it will show whether more help")
        self._begin_anew()
        helped = before.is_bettered(look) or look.laden <= before.workers  # what they read now says nothing of more
        self._trials.end(look, helped=helped)
        if not helped:
            says = f"{before.workers} read {before.rate_in:,.0f}, so more do not help: something else holds them up"
            return look.becomes(before.workers, says)
        if look.is_full or look.needed <= look.workers:
            return _full(look) if look.is_full else _enough(look)
        if look.waits:
            self._trials.begin(look)
        return look.becomes(look.needed, f"More help: {look.says_needed}")

    def _ample(self, look: LoadSample) -> ScalingDecision:
        if not look.spared:
            self._ample_since_ms = None
            return look.stays("That is as many workers as it needs")
        fewer = look.workers - 1
        since_ms = self._ample_since_ms = self._ample_since_ms or look.it.at_ms
        left_s = self.bounds.fewer_after_s - (look.it.at_ms - since_ms) / 1000
        if left_s > 0:
            return look.stays(f"If that lasts {human_duration(left_s)} more, there will be {fewer}")
        self._begin_anew()
        return look.becomes(fewer, f"{fewer} would have {self.bounds.spare:.0%} to spare")

    def _begin_anew(self) -> None:
        """Begin to wait anew."""
        self._short_since_ms = self._ample_since_ms = None


def _full(look: LoadSample) -> ScalingDecision:
    return look.stays(f"More are needed, but {look.workers} are the most that it may have")


def _enough(look: LoadSample) -> ScalingDecision:
    return look.stays(f"As many as there are catch up within {human_duration(look.bounds.catch_up_s)}")
