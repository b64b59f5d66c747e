"""When a bucket may be called idle, so that nobody waits for it: silence that the bus has confirmed, and nothing else.

A bucket is silent as long as one question after another finds its end where this worker has read to. A gap between two answers (an
outage, a stopped process, a sleeping machine) breaks that chain: who knows what would have come meanwhile. Silence begins anew then.

What others say of themselves is dated by the same questions: how far `penstock.watermarks` went when it was said is compared with how far
it went when this worker asked. So no two clocks are compared, and a message that was held up for long shows its age.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

ASK_EVERY_S = 1.0
"""How often the bus is asked for ends; more often where `idle_after` is short."""
LONGEST_GAP_S = 15.0
"""How far two answers may lie apart at most; less where `idle_after` is short."""
BEAT_EVERY_S = 2.0
"""How often an idle shard repeats that it is."""
BELIEVED_S = 8.0
"""How long it is believed without: its repetitions are dated by each other, so that they look up to two intervals old."""


@dataclass(frozen=True)
class Patience:
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


class Silence:
    """The silence of one bucket, as far as it is confirmed. Times are seconds of any clock that counts on while nothing runs.

    Args:
        patience: how long it has to last.
    """

    def __init__(self, patience: Patience) -> None:
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


class Dating:
    """Dates what others say on the bus by how far their category went when this worker asked.

    Args:
        patience: that of the one who asks: after a gap between two answers nothing is known to be fresh.
    """

    def __init__(self, patience: Patience) -> None:
        self._gap_s = patience.gap_s
        self._asked: deque[tuple[float, int]] = deque()

    def note(self, asked_s: float, end: int) -> None:
        """Note how far the category went, as of a question that was asked then."""
        if self._asked and not 0 <= asked_s - self._asked[-1][0] <= self._gap_s:
            self._asked.clear()
        self._asked.append((asked_s, end))
        while self._asked[0][0] < asked_s - BELIEVED_S:
            self._asked.popleft()

    def is_fresh(self, as_of: int, now_s: float) -> bool:
        """Tell whether something was true a moment ago that was true when the category went up to `as_of`.

        It was true after this worker asked, if the category went less far then: where it went as far, nobody can tell.
        """
        if not self._asked or now_s - self._asked[-1][0] > self._gap_s:
            return False
        return any(end < as_of and now_s - asked_s <= BELIEVED_S for asked_s, end in self._asked)
