"""How often Python looks for circles among a worker's objects."""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 200_000


def tune_gc() -> None:
    """Let the cycle collector run seldom, in a process that does nothing but run a worker.

    A batch makes tens of thousands of objects that are all still needed a moment later; looking at them over and over took a
    sixth of the time of a counting worker. Circles are still found, later.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 50, 100)
