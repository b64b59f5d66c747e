"""How to go on while the place of backups does not answer."""

from __future__ import annotations

import random
import time

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class Outage:
    """Pauses that double from try to try, shortened by chance so that the workers of a cluster do not come back at once.

    Args:
        interval_s: no pause is longer than that.
    """

    def __init__(self, interval_s: float) -> None:
        self._first_s = min(FIRST_PAUSE_S, interval_s)
        self._longest_s = min(LONGEST_PAUSE_S, interval_s)
        self._pause_s = self._first_s
        self.lasting = False
        """Whether something is still behind because of it."""
        self.until_s = 0.0
        """When to try again, of the monotonic clock."""

    def failed(self) -> bool:
        """Plan the next try; return whether this was the first."""
        first, self.lasting = not self.lasting, True
        self.until_s = time.monotonic() + self._pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        return first

    def answered(self) -> None:
        """Pause no more; what is behind may still have to catch up."""
        self._pause_s, self.until_s = self._first_s, 0.0

    def over(self) -> None:
        """Note that nothing is behind any more."""
        self.lasting = False
