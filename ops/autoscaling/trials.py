"""Whether more workers help those that wait for something: seen by giving some, on trial.

Workers that use little of their processors wait: each for its own, as for a request of every event, where more workers help; or all for
the same, as for a store that has enough to do, where they do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .sample import LoadSample

VAIN_FOR_S = 3_600.0
"""For how long nothing is tried again that did not help, while events wait all the time."""
GAIN = 0.5
"""Which share of what it would bring if it had all to itself a worker has to bring that is there on trial."""


class Before(NamedTuple):
    """How it was before there were more.

    Args:
        workers: how many there were.
        rate_in: how many events they read in a second, together.
    """

    workers: int
    rate_in: float

    def is_bettered(self, look: LoadSample) -> bool:
        """Tell whether those that there are now bring enough; only those that have enough to do can."""
        return look.rate_in >= self.rate_in * (1 + GAIN * (look.laden / self.workers - 1))


@dataclass
class ScalingTrials:
    """Remembers what is tried, and what did not help."""

    _before: Before | None = None
    _vain_since_ms: int | None = None

    def begin(self, look: LoadSample) -> None:
        """Note how it is before there are more."""
        self._before = Before(look.workers, look.rate_in)

    def under_way(self, look: LoadSample) -> Before | None:
        """Return how it was before those that are there on trial; None where none are."""
        return self._before if self._before is not None and look.workers > self._before.workers else None

    def end(self, look: LoadSample, *, helped: bool) -> None:
        """Note what has come of it."""
        self._before = None
        if not helped:
            self._vain_since_ms = look.it.at_ms

    def is_in_vain(self, look: LoadSample) -> bool:
        """Tell whether it is known, and not for too long, that more do not help."""
        return self._vain_since_ms is not None and look.it.at_ms - self._vain_since_ms < VAIN_FOR_S * 1000

    def forget(self) -> None:
        """Forget all: events wait no more."""
        self._before = self._vain_since_ms = None
