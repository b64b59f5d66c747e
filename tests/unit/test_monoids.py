"""The results of each built-in monoid and their accuracy."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from functools import reduce
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.processors.monoids import (
    Count,
    Distinct,
    Earliest,
    Estimate,
    FirstArrived,
    KLargest,
    LastArrived,
    Latest,
    MapOf,
    Max,
    Mean,
    Min,
    Monoid,
    Quantiles,
    Sum,
    TopKeys,
    TupleOf,
    Variance,
    alike,
)


def of_all(monoid: Monoid[Any], *observations: object) -> Any:
    """Return the partial of all observations."""
    return reduce(monoid.fold, observations, monoid.identity())


def result(monoid: Monoid[Any], *observations: object) -> Any:
    """Return the result of all observations."""
    return monoid.value(of_all(monoid, *observations))


@pytest.mark.parametrize(
    ("monoid", "observations", "expected"),
    [
        (Count(), ["x", None, 0], 3),
        (Sum(), [1, 2, 2**70], 2**70 + 3),
        (Sum(), [], 0),
        (Mean(), [1, 2, 6], 3.0),
        (Mean(), [], None),
        (Variance(), [1, 2, 6], 7.0),
        (Variance(), [4], None),
        (Variance(population=True), [1, 3], 1.0),
        (Variance(population=True), [], None),
        (Min(), [3, nan, 1.5, 2], 1.5),
        (Min(), [nan], None),
        (Max(), [nan, 3, nan, 5, -inf], 5),
        (Max(), [("b", 1), ("b", 2), ("a", 9)], ("b", 2)),
        (Min(), [("b", 1), ("b", 2), ("a", 9)], ("a", 9)),
        (FirstArrived(), ["b", "a", "c"], "b"),
        (LastArrived(), ["b", "a", "c"], "c"),
        (Earliest(), [(5, "b"), (3, "a"), (4, "c"), (3, "b")], "a"),
        (Latest(), [(3, "b"), (5, "a"), (4, "c"), (5, "b")], "b"),
        (Latest(), [], None),
        (Latest(), [(3, 1.5), (2, nan), (3, 2.5)], 2.5),
        (Earliest(), [(3, nan), (3, 1.5), (3, 2.5)], 1.5),
        (KLargest(3), [5, 1, nan, 5, 9, nan, 2], [9, 5, 5]),
        (KLargest(3), [5], [5]),
        (MapOf(Mean()), [{"a": 1, "b": 2}, {"a": 3}], {"a": 2.0, "b": 2.0}),
        (TupleOf(Count(), Max()), [("x", 2), ("y", 7)], (2, 7)),
        (TupleOf(KLargest(1), Sum()), [(3, 2), (4, 7)], ([4], 9)),
    ],
    ids=repr,
)
def test_results_are_exact(monoid: Monoid[Any], observations: list[object], expected: object) -> None:
    """All monoids except sketches are exact, also for numbers beyond 64 bits."""
    partial = of_all(monoid, *observations)

    assert monoid.value(partial) == expected
    assert monoid.decode(monoid.encode(partial)) == partial


def test_top_k_orders_by_weight_and_then_by_item() -> None:
    """Equal weights come by item ascending, whatever the order of arrival, and the cut at k keeps that order."""
    weights = {"d": 2, "a": 2, "c": 5, "b": 2, "e": 1}

    assert result(TopKeys(3), weights) == [("c", 5), ("a", 2), ("b", 2)]
    assert result(TopKeys(3), *({item: weights[item]} for item in "badce")) == [("c", 5), ("a", 2), ("b", 2)]
    assert result(TopKeys(9), weights) == [("c", 5), ("a", 2), ("b", 2), ("d", 2), ("e", 1)]
    assert result(TopKeys(2, of=Mean()), {"a": 1, "b": 4}, {"a": 9}) == [("a", 5.0), ("b", 4.0)]


@given(st.lists(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-2, 2)), max_size=6), max_size=4))
def test_top_k_of_merged_partials_is_the_top_k_of_all(parts: list[list[tuple[str, int]]]) -> None:
    """An item that is light in every partial is found if it is heavy in all of them together."""
    monoid, truth = TopKeys[str, float](2), Counter[str]()
    for part in parts:
        for item, weight in part:
            truth[item] += weight
    merged = reduce(
        monoid.combine,
        (of_all(monoid, *({item: weight} for item, weight in part)) for part in parts),
        monoid.identity(),
    )

    assert monoid.value(merged) == sorted(truth.items(), key=lambda pair: (-pair[1], pair[0]))[:2]


@pytest.mark.parametrize("key", ["1", 1, -(2**63), b"1", ("a", 1, ("b", 2))])
def test_keys_of_maps_keep_their_types(key: object) -> None:
    """MessagePack, unlike JSON, decodes an int key as an int."""
    monoid = MapOf[Any, int](Count())

    (decoded,) = monoid.decode(monoid.encode({key: 1}))
    assert decoded == key
    assert type(decoded) is type(key)


@pytest.mark.parametrize("actual", [1, 30, 1_000, 100_000])
@pytest.mark.parametrize("lg_k", [8, 12])
def test_distinct_is_within_its_stated_error(actual: int, lg_k: int) -> None:
    """Merged from overlapping halves, the estimate is within three standard errors and its bounds enclose the truth."""
    monoid, chance = Distinct(lg_k), random.Random(11)
    names = [f"flight {chance.random()}" for _ in range(actual)]
    one, other = of_all(monoid, *names[: actual * 2 // 3]), of_all(monoid, *names[actual // 3 :])
    estimate: Estimate = monoid.value(monoid.combine(one, other))

    assert abs(estimate.estimate - actual) <= 3 * monoid.relative_error * actual
    assert estimate.low <= actual <= estimate.high
    assert len(monoid.encode(one)) <= 2**lg_k + 60


@pytest.mark.parametrize(("lg_k", "stated"), [(10, 0.032), (12, 0.016), (14, 0.0081), (16, 0.0041)])
def test_distinct_has_the_documented_error(lg_k: int, stated: float) -> None:
    """The table in the docstring equals the library's figures."""
    assert Distinct(lg_k).relative_error == pytest.approx(stated, rel=0.03)
    assert Distinct(lg_k).relative_error == pytest.approx(1.04 / 2 ** (lg_k / 2), rel=0.01)


def test_merged_distinct_estimates_equal_the_estimate_of_one_stream() -> None:
    """One worker and many workers produce the same number, also beyond the size at which a sketch counts exactly."""
    monoid, observations = Distinct(lg_k=8), range(5_000)
    parts = [of_all(monoid, *observations[start::7]) for start in range(7)]

    assert monoid.value(reduce(monoid.combine, parts)) == result(monoid, *observations)


def test_distinct_distinguishes_similar_values() -> None:
    """Empty text counts, neighbours beyond 64 bits differ, and so do types; repeats do not."""
    different = [
        "",
        "1",
        1,
        1.0,
        True,
        None,
        b"1",
        b"",
        2**63,
        2**63 + 1,
        2**64 - 1,
        -(2**63),
        ("a", 1),
        ("a", 2),
        nan,
        inf,
    ]

    assert round(result(Distinct(), *different, *different).estimate) == len(different)


@pytest.mark.parametrize(("k", "stated"), [(200, 0.0133), (1000, 0.0028), (5000, 0.0006)])
def test_quantiles_are_within_their_stated_rank_error(k: int, stated: float) -> None:
    """After merging, the rank of each quantile is within twice the 99% error; the minimum and maximum are exact."""
    monoid, size = Quantiles(k=k), 20_000
    observations = random.Random(11).sample(range(size), size)
    ranks = [step / 10 for step in range(11)]
    parts = [of_all(monoid, *observations[start::4]) for start in range(4)]
    found = monoid.value(reduce(monoid.combine, parts), ranks)

    assert monoid.rank_error == pytest.approx(stated, rel=0.05)
    assert (found[0], found[-1]) == (0, size - 1)
    assert all(abs(quantile / size - rank) <= 2 * stated for quantile, rank in zip(found, ranks, strict=True))


def test_quantiles_of_few_observations_are_exact() -> None:
    """Up to k observations, a quantile is the smallest observation with at least that share at or below it."""
    monoid = Quantiles(ranks=(0, 0.5, 0.9, 1))

    assert result(monoid, 4, nan, 1, 3, 2) == [1, 2, 4, 4]
    assert result(monoid, *range(1, 201)) == [1, 100, 180, 200]
    assert result(monoid, nan) == []
    assert monoid.value(of_all(monoid, 1, 2, 3), [0.1]) == [1]


def test_small_quantile_sketches_are_the_same_only_for_the_same_observations() -> None:
    """Below k, the comparison is exact: it includes the number and each observation."""
    monoid = Quantiles()

    assert monoid.same(of_all(monoid, 1, 2, 3), of_all(monoid, 3, 2, 1))
    assert not monoid.same(of_all(monoid, 1, 2, 3), of_all(monoid, 1, 2, 2, 3))
    assert not monoid.same(of_all(monoid, 1, 2, 3), of_all(monoid, 1, 2.5, 3))
    assert not monoid.same(of_all(monoid), of_all(monoid, 1))


@pytest.mark.parametrize(("old", "new"), [(Distinct(8), Distinct(12)), (Quantiles(k=20), Quantiles(k=200))], ids=repr)
def test_sketches_merge_with_those_of_other_settings(old: Monoid[Any], new: Monoid[Any]) -> None:
    """A processor that restarts with another accuracy continues from its saved partials."""
    saved = new.decode(old.encode(of_all(old, *range(1_000))))
    merged = new.combine(saved, of_all(new, *range(1_000, 2_000)))
    count = merged.n if isinstance(new, Quantiles) else new.value(merged).estimate

    assert count == pytest.approx(2_000, rel=0.2)


@pytest.mark.parametrize(
    ("monoid", "good", "bad"),
    [
        (Sum(), 1, "1"),
        (Sum(), 1, None),
        (Mean(), 1, None),
        (Quantiles(), 1, None),
        (KLargest(1), 1, "1"),
        (MapOf(Sum()), {"a": 1, "b": 1}, {"a": 1, "b": "1"}),
        (MapOf(Quantiles()), {"a": 1, "b": 1}, {"a": 1, "b": None}),
        (TupleOf(Distinct(), Sum()), ("a", 1), ("b", None)),
        (TupleOf(Distinct(), Quantiles()), ("a", 1), ("b", None)),
        (TupleOf(MapOf(Sum()), KLargest(9)), ({"a": 1}, 1), ({"b": 1},)),
        (TupleOf(MapOf(Sum()), Count()), ({"a": 1}, 1), ({"b": 1}, 1, 1)),
    ],
    ids=repr,
)
def test_a_failed_fold_changes_nothing(monoid: Monoid[Any], good: object, bad: object) -> None:
    """A worker can reject the event and continue; no part of the observation is counted."""
    accumulator = of_all(monoid, good, good)
    before = monoid.encode(accumulator)
    with pytest.raises((TypeError, ValueError)):
        monoid.fold(accumulator, bad)

    assert monoid.same(accumulator, monoid.decode(before))


@pytest.mark.parametrize("monoid", [Sum(), Mean(), Quantiles(), MapOf(Sum()), TupleOf(Sum())], ids=repr)
def test_an_observation_of_the_wrong_type_is_not_lifted(monoid: Monoid[Any]) -> None:
    """The first observation of a window is checked like each later one."""
    with pytest.raises((TypeError, ValueError, AttributeError)):
        monoid.lift("1")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopKeys(0), "TopKeys(k=0)"),
        (lambda: KLargest(0), "KLargest(k=0)"),
        (lambda: Distinct(3), "Distinct(lg_k=3)"),
        (lambda: Quantiles([50]), "Quantiles(ranks=[50])"),
        (lambda: Quantiles(k=2), "Quantiles(k=2)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_impossible_settings_are_refused(make: Any, message: str) -> None:
    """The error names the setting and what it may be."""
    with pytest.raises(ValueError, match="^" + message.translate({ord(c): "\\" + c for c in "()[]"})):
        make()


def test_monoids_can_be_pickled() -> None:
    """Spark and worker processes receive pickled copies."""
    monoid = MapOf[str, Any](TupleOf(Count(), Sum(), Min(), Distinct(), Quantiles()))
    copied = pickle.loads(pickle.dumps(monoid))  # noqa: S301 - our own bytes
    partial = of_all(copied, {"a": (0, 1, 2, "b", 3)})

    assert repr(copied) == repr(monoid)
    assert repr(monoid).startswith("MapOf(TupleOf(Count(), Sum(), Min(), Distinct(lg_k=12), Quantiles(")
    assert monoid.value(monoid.decode(copied.encode(partial)))["a"][:3] == (1, 1, 2)


@pytest.mark.parametrize(
    ("monoid", "commutes"),
    [
        (Sum(), True),
        (FirstArrived(), False),
        (MapOf(Sum()), True),
        (MapOf(LastArrived()), False),
        (TupleOf(Sum(), LastArrived()), False),
    ],
    ids=repr,
)
def test_containers_commute_if_their_content_does(monoid: Monoid[Any], commutes: bool) -> None:
    """A container keeps the order if any part needs it."""
    assert monoid.commutative is commutes


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (0.1 + 0.2, 0.3, True),
        (1, 1.0, True),
        (1e-10, 0, True),
        (1.0, 1.00001, False),
        (nan, nan, True),
        (nan, 1.0, False),
        (1.0, "1.0", False),
        ({"a": [0.3]}, {"a": [0.1 + 0.2]}, True),
        ({"a": 1}, {"b": 1}, False),
        ([1], (1,), False),
        ([1.0], [1.0, 2.0], False),
        (2**70, 2**70 + 1, False),
    ],
)
def test_values_are_compared_with_a_rounding_margin(left: object, right: object, expected: bool) -> None:
    """Only floats have a margin, at any depth."""
    assert alike(left, right) is expected
    assert alike(right, left) is expected


def test_of_equal_observations_the_first_is_kept() -> None:
    """1 and 1.0 are equal but not indistinguishable: grouping must not decide which of them is shown."""
    for monoid in (Min[float](), Max[float]()):
        kept = [monoid.fold(1, 1.0), monoid.fold(1.0, 1), monoid.combine(1, 1.0), monoid.combine(1.0, 1)]

        assert list(map(type, kept)) == [int, float, int, float]


def test_sketches_of_other_observations_are_not_the_same() -> None:
    """Sketches with equal counts or with a part of the observations differ, in both directions."""
    monoid = MapOf[str, Any](Distinct())
    some, others, more = ({"a": of_all(Distinct(), *names)} for names in ("ab", "cd", "abc"))

    assert monoid.same(some, monoid.combine(some, some))
    for left, right in [(some, others), (some, more), (more, some), (some, {}), ({}, some)]:
        assert not monoid.same(left, right)


def test_full_sketches_of_other_distributions_are_not_the_same() -> None:
    """Equal numbers, minima and maxima do not suffice: the comparison includes the ranks between them."""
    monoid, size = Quantiles(), 10_000
    even = of_all(monoid, *range(size))
    bent = of_all(monoid, *(at * at / (size - 1) for at in range(size)))

    assert (even.n, monoid.value(even, [0, 1])) == (bent.n, monoid.value(bent, [0, 1]))
    assert not monoid.same(even, bent)
