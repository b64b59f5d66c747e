"""Folding columns in several batches equals folding one observation after the other, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from penstock.processors.monoids import (
    Count,
    DistinctValues,
    Earliest,
    FirstArrived,
    KLargest,
    Latest,
    MapOf,
    Max,
    Mean,
    Min,
    Monoid,
    OfValues,
    Sum,
    TopKeys,
    TupleOf,
)
from penstock.processors.operators.column_folds import MISSING, fold_groups

FLOATS = some.sampled_from([0.1, 0.2, 0.3, -0.0, 0.0, 1e16, 1.0, -1e16])
PLUS_FLOATS = some.sampled_from([0.1, 0.2, 0.0, 1e16, -1e16])
NAN_OR_FLOATS = FLOATS | some.just(float("nan"))
WHOLE = some.integers(-(2**40), 2**40)
LARGE = some.integers(-(2**63), 2**63 - 1)
SMALL = some.integers(-100, 100)
NAMES = some.sampled_from(["", "a", "b", "é", "\U0001f600", "\uffff"])
INT64, INT32, DOUBLE, FLOAT, TEXT, BOOL = pa.int64(), pa.int32(), pa.float64(), pa.float32(), pa.string(), pa.bool_()


def pair(*kinds: pa.DataType) -> pa.DataType:
    """Return the type of a tuple in a column."""
    return pa.struct([(str(at), kind) for at, kind in enumerate(kinds)])


COLUMNS: list[tuple[Monoid[Any], some.SearchStrategy[Any], pa.DataType]] = [
    (Count(), NAMES | some.none(), TEXT),
    (Sum(), FLOATS, DOUBLE),
    (Sum(), some.sampled_from([0.5, -2.0, 0.0]), FLOAT),
    (Sum(), WHOLE, INT64),
    (Sum(), LARGE, INT64),
    (Sum(), SMALL, INT32),
    (Mean(), FLOATS, DOUBLE),
    (Mean(), SMALL, INT32),
    (Min(), LARGE, INT64),
    (Max(), LARGE, INT64),
    (Min(), NAN_OR_FLOATS, DOUBLE),
    (Max(), NAN_OR_FLOATS, DOUBLE),
    (Min(), NAMES, TEXT),
    (Max(), NAMES, TEXT),
    (Max(), some.booleans(), BOOL),
    (FirstArrived(), NAMES, TEXT),
    (Earliest(), some.tuples(some.integers(0, 2), FLOATS), pair(INT64, DOUBLE)),
    (Latest(), some.tuples(some.integers(0, 2), NAMES), pair(INT64, TEXT)),
    (Latest(), some.tuples(WHOLE, some.sampled_from([0.5, float("nan")])), pair(INT64, DOUBLE)),
    (OfValues(Sum()), FLOATS | some.none(), DOUBLE),
    (OfValues(Max()), NAMES | some.none(), TEXT),
    (DistinctValues(), PLUS_FLOATS, DOUBLE),
    (DistinctValues(), NAMES | some.none(), TEXT),
    (MapOf(Sum()), some.dictionaries(NAMES, FLOATS, max_size=3), pa.map_(TEXT, DOUBLE)),
    (MapOf(OfValues(Min())), some.dictionaries(SMALL, NAMES | some.none(), max_size=3), pa.map_(INT64, TEXT)),
    (
        MapOf(MapOf(Max())),
        some.dictionaries(NAMES, some.dictionaries(SMALL, NAN_OR_FLOATS, max_size=2), max_size=3),
        pa.map_(TEXT, pa.map_(INT64, DOUBLE)),
    ),
    (TopKeys(2), some.dictionaries(NAMES, WHOLE, max_size=3), pa.map_(TEXT, INT64)),
    (TupleOf(Count(), Max()), some.tuples(NAMES | some.none(), SMALL), pair(TEXT, INT64)),
    (
        TupleOf(Mean(), MapOf(Count()), DistinctValues(), Latest()),
        some.tuples(
            FLOATS, some.dictionaries(NAMES, SMALL, max_size=2), SMALL | some.none(), some.tuples(SMALL, NAMES)
        ),
        pair(DOUBLE, pa.map_(TEXT, INT64), INT64, pair(INT64, TEXT)),
    ),
]
"""Monoids that fold columns, with the types that workers and backfills may have."""
IN_PLACE: list[tuple[Monoid[Any], some.SearchStrategy[Any], pa.DataType]] = [
    (KLargest(2), SMALL, INT64),
    (DistinctValues(), FLOATS, DOUBLE),
    (TupleOf(Count(), KLargest(2)), some.tuples(NAMES, SMALL), pair(TEXT, INT64)),
    (MapOf(KLargest(1)), some.dictionaries(NAMES, SMALL, max_size=2), pa.map_(TEXT, INT64)),
]
"""Monoids and values whose earlier partials may have to change: then they are folded one by one."""


def as_column(batch: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Return observations as a user's method returns them; inside of a larger array, as a slice is."""
    return pa.array([None, *(as_arrow(kind, one) for one in batch), None], kind)[1:-1]


def as_arrow(kind: Any, observation: Any) -> Any:
    """Return tuples and dicts as Arrow accepts them."""
    if isinstance(observation, tuple):
        return {field.name: as_arrow(field.type, one) for field, one in zip(kind, observation, strict=True)}
    if isinstance(observation, dict):
        return [(key, as_arrow(kind.item_type, item)) for key, item in observation.items()]
    return observation


def one_by_one(monoid: Monoid[Any], batch: Sequence[Any], groups: Sequence[int], before: Sequence[Any]) -> list[Any]:
    """Return the partials of a batch after earlier ones, by the monoid's own methods."""
    partials = deepcopy([None if one is MISSING else one for one in before])
    is_new = [one is MISSING for one in before]
    for group, observation in zip(groups, batch, strict=True):
        partials[group] = monoid.lift(observation) if is_new[group] else monoid.fold(partials[group], observation)
        is_new[group] = False
    return partials


def batches_of(
    data: some.DataObject, values: some.SearchStrategy[Any]
) -> list[tuple[list[Any], list[int], dict[int, int]]]:
    """Draw batches: observations, the group of each in its batch, and the key of each group."""
    found = []
    for batch in data.draw(some.lists(some.lists(values, min_size=1, max_size=8), min_size=1, max_size=3)):
        keys = [data.draw(some.integers(0, 3)) for _ in batch]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        found.append((batch, [numbers[key] for key in keys], {number: key for key, number in numbers.items()}))
    return found


@pytest.mark.parametrize(("monoid", "values", "kind"), COLUMNS, ids=[f"{each}-{kind}" for each, _, kind in COLUMNS])
@settings(max_examples=25)
@given(data=some.data())
def test_batches_of_columns_fold_as_single_observations(
    monoid: Monoid[Any], values: some.SearchStrategy[Any], kind: pa.DataType, data: some.DataObject
) -> None:
    """Sums of floats depend on their order; dicts contain keys in the order of their first ones; of equal values, one is chosen."""
    of_key: dict[int, Any] = {}
    for batch, groups, keys in batches_of(data, values):
        before = [of_key.get(key, MISSING) for key in keys.values()]
        found = fold_groups(monoid, as_column(batch, kind), np.array(groups, np.int64), before)
        expected = one_by_one(monoid, batch, groups, before)

        assert repr(found) == repr(expected)
        of_key |= dict(zip(keys.values(), expected, strict=True))
        for partial in found or ():
            monoid.encode(partial)  # numpy's own numbers have no bytes


@pytest.mark.parametrize(("monoid", "values", "kind"), IN_PLACE, ids=[f"{each}-{kind}" for each, _, kind in IN_PLACE])
@settings(max_examples=25)
@given(data=some.data())
def test_partials_before_are_unchanged_where_columns_do_not_fold(
    monoid: Monoid[Any], values: some.SearchStrategy[Any], kind: pa.DataType, data: some.DataObject
) -> None:
    """The first batch of each key folds in columns; a later one may need all observations one by one, which must not count twice."""
    [(batch, groups, keys), *later] = batches_of(data, values)
    before = one_by_one(monoid, batch, groups, [MISSING] * len(keys))
    new = fold_groups(monoid, as_column(batch, kind), np.array(groups, np.int64), [MISSING] * len(keys))
    of_key, shown = dict(zip(keys.values(), before, strict=True)), repr(before)

    assert repr(new) == shown
    for batch, groups, keys in later:
        earlier = [of_key.get(key, MISSING) for key in keys.values()]
        found = fold_groups(monoid, as_column(batch, kind), np.array(groups, np.int64), earlier)
        assert repr(before) == shown
        assert found is None or repr(found) == repr(one_by_one(monoid, batch, groups, earlier))


class Appending(Monoid[list[int]]):
    """A user's monoid that folds in place without declaring it, and refuses 0."""

    def identity(self) -> list[int]:
        """Return an empty list."""
        return []

    def combine(self, left: list[int], right: list[int]) -> list[int]:
        """Return both."""
        return left + right

    def lift(self, observation: int) -> list[int]:
        """Return the observation."""
        return [1 // observation]

    def fold(self, accumulator: list[int], observation: int) -> list[int]:
        """Append in place."""
        accumulator += self.lift(observation)
        return accumulator


@pytest.mark.parametrize("monoid", [Appending(), OfValues(Appending()), TupleOf(Appending())])
def test_an_invalid_observation_changes_no_partial(monoid: Monoid[Any]) -> None:
    """The caller folds the observations again, one by one, and rejects the invalid one."""
    values, kind = ([(1,), (0,)], pair(INT64)) if isinstance(monoid, TupleOf) else ([1, 0], INT64)
    before = [monoid.lift(values[0])]
    shown = repr(before)

    assert fold_groups(monoid, as_column(values, kind), np.zeros(2, np.int64), before) is None
    assert repr(before) == shown


def test_large_partials_of_distinct_values_are_not_copied_for_few_observations() -> None:
    """Those are added one after the other, in place."""
    partial = dict.fromkeys(range(1000), 1)

    assert fold_groups(DistinctValues(), pa.array([1]), np.zeros(1, np.int64), [partial]) is None
