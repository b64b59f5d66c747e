"""Folding columns in several batches equals folding one observation after the other, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.processors.monoids import DistinctValues, Earliest, Latest, Max, Mean, Min, Monoid, Sum
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
        (Earliest(), some.tuples(some.integers(0, 2), FLOATS)),
        (Latest(), some.tuples(some.integers(0, 2), some.sampled_from(["", "a", "b"]))),
        (Latest(), some.tuples(WHOLE, some.sampled_from([0.5, float("nan")]))),
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
        column = as_column(batch)
        found = fold_groups(monoid, column, np.zeros(len(batch), np.int64), partials)
        assert found is not None
        partials = found
        for value in batch:
            expected = monoid.lift(value) if expected is MISSING else monoid.fold(expected, value)

    assert repr(partials) == repr([expected])


def as_column(batch: list[Any]) -> pa.Array[Any]:
    """Return values as columns contain them: pairs are structs."""
    if isinstance(batch[0], tuple):
        return pa.StructArray.from_arrays([pa.array(part) for part in zip(*batch, strict=True)], ["0", "1"])
    return pa.array(batch, pa.string() if batch == [None] * len(batch) else None)


def test_large_partials_of_distinct_values_are_not_copied_for_few_observations() -> None:
    """Those are added one after the other, in place."""
    partial = dict.fromkeys(range(1000), 1)

    assert fold_groups(DistinctValues(), pa.array([1]), np.zeros(1, np.int64), [partial]) is None
