"""Histograms of durations, as Prometheus counts them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

FAST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper bounds for durations of milliseconds to seconds."""
SLOW_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0, 86_400.0)
"""The upper bounds for durations of seconds to days."""


class Histogram:
    """Numbers of durations by upper bounds, and their sum. One thread writes; another may read a slightly older state.

    Args:
        bounds_s: the upper bounds in seconds, in ascending order. Longer durations are counted, too.
    """

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = np.array(bounds_s)
        self._counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def record(self, durations_s: npt.NDArray[np.float64]) -> None:
        """Count durations in seconds."""
        found = np.bincount(np.searchsorted(self._bounds_s, durations_s), minlength=len(self._counts))
        self._counts = [before + more for before, more in zip(self._counts, found.tolist(), strict=True)]
        self.sum_s += float(durations_s.sum())

    def record_one(self, duration_s: float) -> None:
        """Count one duration in seconds."""
        self.record(np.array([duration_s]))

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield each upper bound, and the number of durations up to it; the last bound is infinite."""
        total = 0
        for bound_s, count in zip([*self._bounds_s.tolist(), float("inf")], self._counts, strict=True):
            total += count
            yield bound_s, total
