"""How old a statement on the bus is, by what the bus had when this worker asked.

How far `penstock.watermarks` went when something was said is compared with how far it went when this worker asked. So no two clocks are
compared, and a message that was held up for long shows its age.
"""

from __future__ import annotations

from collections import deque

from ...processors.time.idleness import IdleTimeout

BEAT_EVERY_S = 2.0
"""How often an idle shard repeats that it is."""
BELIEVED_S = 8.0
"""How long it is believed without: its repetitions are dated by each other, so that they look up to two intervals old."""


class WatermarkAge:
    """Dates what others say on the bus by how far their category went when this worker asked.

    Args:
        patience: that of the one who asks: after a gap between two answers nothing is known to be fresh.
    """

    def __init__(self, patience: IdleTimeout) -> None:
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
