"""Runs of equal values in arrays."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.processors import runs_of


@given(st.lists(st.integers(0, 2)))
def test_runs_are_the_longest_stretches_of_one_value(values: list[int]) -> None:
    """They cover the array in order."""
    found = [values[begin:end] for begin, end in runs_of(np.array(values, np.int64))]

    assert found == [list(run) for _, run in groupby(values)]
