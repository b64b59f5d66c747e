"""Folding columns in several batches equals folding one observation after the other, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.processors.monoids import Max, Mean, Min, Monoid, Sum
from penstock.processors.monoids.nesting import DistinctValues
from penstock.processors.operators.column_folds import MISSING, fold_groups

FLOATS = some.sampled_from([0.1, 0.2, 0.3, -0.0, 0.0, 1e16, 1.0, -1e16])
WHOLE = some.integers(-(2**40), 2**40)


@pytest.mark.parametrize(
    ("monoid", "values"),
    [
        (Sum(), FLOATS),
        (Sum(), WHOLE),
        (Mean(), FLOATS),
        (Min(), WHOLE),
        (Max(), WHOLE),
        (DistinctValues(), FLOATS),
        (DistinctValues(), some.sampled_from(["", "a", "\u00e9", None])),
    ],
)
@given(data=some.data())
def test_batches_of_columns_fold_as_single_observations(
    monoid: Monoid[Any], values: some.SearchStrategy[Any], data: some.DataObject
) -> None:
    """Sums of floats depend on their order and grouping; dicts contain distinct values in the order of their first ones."""
    batches = data.draw(some.lists(some.lists(values, min_size=1, max_size=4), min_size=1, max_size=3))
    partials, expected = [MISSING], MISSING
    for batch in batches:
        column = pa.array(batch, pa.string() if batch == [None] * len(batch) else None)
        found = fold_groups(monoid, column, np.zeros(len(batch), np.int64), partials)
        assert found is not None
        partials = found
        for value in batch:
            expected = monoid.lift(value) if expected is MISSING else monoid.fold(expected, value)

    assert repr(partials) == repr([expected])


def test_large_partials_of_distinct_values_are_not_copied_for_few_observations() -> None:
    """Those are added one after the other, in place."""
    partial = dict.fromkeys(range(1000), 1)

    assert fold_groups(DistinctValues(), pa.array([1]), np.zeros(1, np.int64), [partial]) is None
