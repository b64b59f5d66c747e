"""When a bucket may be called idle, so that nobody waits for it: silence that the bus has confirmed, and nothing else.

A bucket is silent as long as one question after another finds its end where it was read to. A gap between two answers (an outage, a stopped
process, a sleeping machine) breaks that chain: events may have been held up meanwhile. Silence begins anew then.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

ASK_EVERY_S = 1.0
"""How often the bus is asked for ends; more often where `idle_after` is short."""
LONGEST_GAP_S = 15.0
"""How far two answers may lie apart at most; less where `idle_after` is short."""


@dataclass(frozen=True)
class IdleTimeout:
    """What follows from how long a bucket has to be silent until it is idle.

    Args:
        idle_after_s: how long, in seconds.
    """

    idle_after_s: float

    @property
    def ask_every_s(self) -> float:
        """How often the bus is asked."""
        return min(max(self.idle_after_s / 4, ASK_EVERY_S / 10), ASK_EVERY_S)

    @property
    def gap_s(self) -> float:
        """How far two answers may lie apart in one silence: a fraction of it, and never so little that a slow answer breaks it."""
        return min(max(self.idle_after_s / 4, 3 * self.ask_every_s), LONGEST_GAP_S)


class IdleDetector:
    """The silence of one bucket, as far as it is confirmed. Times are seconds of any clock that counts on while nothing runs.

    Args:
        patience: how long it has to last.
    """

    def __init__(self, patience: IdleTimeout) -> None:
        self._patience = patience
        self._heard_s = -inf
        self._since_s = inf
        self._confirmed_s = -inf

    def interrupt(self, now_s: float) -> None:
        """Note that events came, or wait unread."""
        self._heard_s, self._since_s, self._confirmed_s = now_s, inf, -inf

    def confirm(self, asked_s: float) -> None:
        """Note that the bucket ended where it is read to, as of a question that was asked then."""
        if asked_s < self._heard_s:
            return
        if not 0 <= asked_s - self._confirmed_s <= self._patience.gap_s:
            self._since_s = asked_s
        self._confirmed_s = asked_s

    def is_quiet(self, now_s: float) -> bool:
        """Whether it is worth asking."""
        return now_s - self._heard_s >= self._patience.ask_every_s

    def is_idle(self, now_s: float) -> bool:
        """Whether it has lasted long enough, and was confirmed lately."""
        lasted_s = self._confirmed_s - self._since_s
        return now_s - self._confirmed_s <= self._patience.gap_s and lasted_s >= self._patience.idle_after_s
