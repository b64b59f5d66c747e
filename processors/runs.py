"""Runs of equal values in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt


def runs_of(values: npt.NDArray[Any]) -> Sequence[tuple[int, int]]:
    """Return the begin and the end of each run of adjacent equal values, in order; nothing for an empty array."""
    changes = (np.flatnonzero(values[1:] != values[:-1]) + 1).tolist()
    return list(pairwise([0, *changes, len(values)])) if len(values) else []
