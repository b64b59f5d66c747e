"""When to speak of what is behind: at once, then seldom, and when it is made up."""

from __future__ import annotations

import time


class LagLog:
    """Since when something is behind, and when that was said last. Not for several threads.

    Args:
        every_s: it is not said more often than that.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._since_s: float | None = None
        self._said_s: float | None = None

    def begin(self) -> None:
        """Note that it is behind, since now if it was not before."""
        if self._since_s is None:
            self._since_s = time.monotonic()

    def lasted_s(self) -> float:
        """Return for how long it has been behind; 0 where it is not."""
        return 0.0 if self._since_s is None else time.monotonic() - self._since_s

    def is_to_be_said(self) -> bool:
        """Note that it is behind; return whether to say so now. What comes again soon is not said again at once."""
        now_s = time.monotonic()
        if self._said_s is not None and now_s - self._said_s < self._every_s:
            return False
        self._said_s = now_s
        self.begin()
        return True

    def end(self) -> float | None:
        """Note that it is behind no more; return for how long it was, None where nobody was told that it is."""
        lasted_s, was_behind = self.lasted_s(), self._since_s is not None
        self._since_s = None
        return lasted_s if was_behind else None
