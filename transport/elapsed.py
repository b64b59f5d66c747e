"""A monotonic clock that includes the time while the machine sleeps."""

import time

# Linux's monotonic clock stops while the machine sleeps; on other systems it continues.
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_s() -> float:
    """Return seconds since an arbitrary start; never decreases."""
    return time.clock_gettime(_CLOCK)
