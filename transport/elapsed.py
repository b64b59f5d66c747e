"""A clock for how long something took, or lasts: it counts on while the machine sleeps, and nobody sets it."""

import time

# Linux's other clocks stand still while the machine sleeps; elsewhere this one does not.
_COUNTS_ON: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_s() -> float:
    """Return seconds that never go back, from an arbitrary start."""
    return time.clock_gettime(_COUNTS_ON)
