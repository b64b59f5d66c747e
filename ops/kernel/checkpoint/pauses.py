"""Detection of pauses of the whole process: SIGSTOP, a suspended machine, a virtual machine that moves, swapping.

Meanwhile, another worker may have taken the buckets and written newer outputs. Outputs that no transaction and no store fences must not follow
them, since the last record of a key is the valid one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ....processors import BackgroundThread
from ...shell import MachineClock

SESSION_SHARE = 2 / 3
"""The share of a session in which no other worker can take the buckets, however late the last heartbeat was."""
TICK_EVERY_S = 1.0


class PauseDetector:
    """Notices that nothing in the process ran for a while. Any thread.

    Args:
        clock: includes the time while the machine is suspended.
    """

    def __init__(self, clock: MachineClock) -> None:
        self._clock = clock
        self._ticked_s = clock.monotonic_s()
        self._pauses = self._confirmed = 0
        self.limit_s = math.inf
        """How long a pause must last to count."""

    def tick(self) -> None:
        """Record that the process runs."""
        now_s = self._clock.monotonic_s()
        self._pauses += now_s - self._ticked_s > self.limit_s
        self._ticked_s = now_s

    @property
    def has_paused(self) -> bool:
        """Whether the process has paused since the group last confirmed its membership."""
        self.tick()
        return self._pauses > self._confirmed

    @contextmanager
    def confirming(self) -> Iterator[None]:
        """Forget earlier pauses if the block ends without an error: in it, the group confirms the membership. A pause meanwhile counts."""
        self.tick()
        before = self._pauses
        yield
        self._confirmed = before


@contextmanager
def ticking(tick: Callable[[], None]) -> Iterator[None]:
    """Call `tick` every second in a thread during the block, also while user code runs."""

    def tick_until_closed() -> None:
        while not thread.wait(TICK_EVERY_S):
            tick()

    thread = BackgroundThread("ticking", tick_until_closed)
    thread.start()
    try:
        yield
    finally:
        thread.close(0.0)
