"""The sample of a category: which events are kept follows from their positions alone.

So the sample is the same in each run and on each machine, and two samples with rates 0.1 and 0.2 share all events of the first.

Source: the hash is the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
"""

from __future__ import annotations

from typing import NewType

import numpy as np
import numpy.typing as npt

SampleRate = NewType("SampleRate", float)
"""The probability that an event is kept: above 0, at most 1."""
ALL = SampleRate(1.0)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BUCKET_SHIFT = np.uint64(48)
_MANTISSA_BITS = np.uint64(11)


def sampled(bucket: int, offsets: npt.NDArray[np.int64], rate: SampleRate) -> npt.NDArray[np.bool_]:
    """Return which events of a bucket are in the sample.

    Args:
        bucket: the number of the bucket.
        offsets: their offsets.
        rate: the share of events to keep.
    """
    if rate >= ALL:
        return np.ones(len(offsets), np.bool_)
    position = offsets.astype(np.uint64) ^ (np.uint64(bucket) << _BUCKET_SHIFT)
    mixed = (position + np.uint64(1)) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> _MANTISSA_BITS).astype(np.float64) * 2.0**-53 < rate, np.bool_)
