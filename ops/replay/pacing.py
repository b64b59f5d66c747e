"""The pace of a replay: as fast as it can, or as the events had arrived, or at a multiple of that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from .replay import Plays


def paced(
    played: Plays,
    speed: float,
    *,
    monotonic_s: Callable[[], float],
    sleep: Callable[[float], None],
) -> Plays:
    """Give what was played when its time has come; what lies before the span at once.

    Args:
        played: in order of time.
        speed: how many seconds of the past pass in one.
        monotonic_s: tells the time.
        sleep: lets so many seconds pass.
    """
    began: tuple[float, int] | None = None
    with closing(played):
        for one in played:
            if not one.state_only:
                now_s = monotonic_s()
                began = began or (now_s, one.at_ms)
                begun_s, begun_ms = began
                wait_s = begun_s + (one.at_ms - begun_ms) / 1000 / speed - now_s
                if wait_s > 0:
                    sleep(wait_s)
            yield one
