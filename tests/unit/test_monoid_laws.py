"""Every monoid keeps the laws, and `check_laws` finds each way to break one."""

from __future__ import annotations

import operator
import random
from collections.abc import Sequence
from functools import reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.processors.monoids import (
    BrokenLaw,
    Count,
    Distinct,
    Earliest,
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
    check_laws,
)

INTS = st.integers(-(2**70), 2**70)
# Float sums are exact to nine digits, but not for numbers that differ widely in size or cancel each other out.
FLOATS = st.floats(-1e4, 1e4).map(lambda number: round(number, 6))
ANY_FLOATS = st.floats()
NAMES = st.text(max_size=3)
ROUTES = st.tuples(st.integers(0, 9), st.text(max_size=2))
ANYTHING = st.one_of(NAMES, st.integers(-(2**63), 2**64 - 1), ANY_FLOATS, st.binary(max_size=3), st.none(), ROUTES)
FEW_KEYS = st.sampled_from(["AA", "UA", "DL"])

EVERY_MONOID: list[tuple[Monoid[Any], st.SearchStrategy[Any]]] = [
    (Count(), ANYTHING),
    (Sum(), INTS),
    (Sum(), FLOATS),
    (Mean(), INTS),
    (Mean(), FLOATS),
    (Variance(), FLOATS),
    (Variance(population=True), st.integers(-99, 99)),
    (Min(), ANY_FLOATS),
    (Min(), ROUTES),
    (Max(), ANY_FLOATS),
    (Max(), NAMES),
    (FirstArrived(), ANYTHING),
    (LastArrived(), ROUTES),
    (Earliest(), st.tuples(st.integers(0, 3), ANY_FLOATS)),
    (Latest(), st.tuples(st.integers(0, 3), ROUTES)),
    (KLargest(1), ANY_FLOATS),
    (KLargest(3), ROUTES),
    (TopKeys(2), st.dictionaries(FEW_KEYS, st.integers(-3, 3))),
    (TopKeys(2, of=Count()), st.dictionaries(ROUTES, st.none())),
    (Distinct(), ANYTHING),
    (Distinct(lg_k=7), st.integers(0, 50)),
    (Quantiles(), ANY_FLOATS),
    (MapOf(TupleOf(Count(), Sum())), st.dictionaries(FEW_KEYS, st.tuples(st.none(), INTS.map(lambda n: n % 2**60)))),
    (MapOf(LastArrived()), st.dictionaries(st.integers(0, 3), NAMES)),
    (MapOf(MapOf(KLargest(2))), st.dictionaries(FEW_KEYS, st.dictionaries(FEW_KEYS, st.integers(-9, 9)), max_size=2)),
    (TupleOf(), st.just(())),
    (TupleOf(Max(), Mean(), Distinct(), Quantiles()), st.tuples(FLOATS, FLOATS, NAMES, FLOATS)),
    (TupleOf(FirstArrived(), MapOf(Min())), st.tuples(NAMES, st.dictionaries(FEW_KEYS, FLOATS))),
]


@pytest.mark.parametrize(("monoid", "observation"), EVERY_MONOID, ids=lambda value: repr(value)[:40])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_monoid_keeps_the_laws(monoid: Monoid[Any], observation: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """Identity, associativity, fold, round trip, unchanged arguments and claimed commutativity hold on any observations."""
    check_laws(monoid, data.draw(st.lists(observation, max_size=12)))


@pytest.mark.parametrize(("monoid", "observation"), EVERY_MONOID, ids=lambda value: repr(value)[:40])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_grouping_gives_one_result(
    monoid: Monoid[Any], observation: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    """Folding all observations equals folding parts of them, some through bytes, and combining the parts in order."""
    parts: list[list[Any]] = data.draw(st.lists(st.lists(observation, max_size=4), max_size=4))
    whole = reduce(monoid.fold, [observation for part in parts for observation in part], monoid.identity())
    folded = [monoid.decode(monoid.encode(reduce(monoid.fold, part, monoid.identity()))) for part in parts]
    from_right = monoid.identity()
    for partial in reversed(folded):
        from_right = monoid.combine(partial, from_right)

    assert monoid.same(whole, reduce(monoid.combine, folded, monoid.identity()))
    assert monoid.same(whole, from_right)


def test_full_sketches_of_distinct_keep_the_laws_exactly() -> None:
    """Estimates of unions do not depend on grouping or order, from a few observations to many more than registers."""
    monoid, chance = Distinct(lg_k=10), random.Random(7)
    sketches = [
        reduce(monoid.fold, (chance.randrange(50_000) for _ in range(size)), monoid.identity())
        for size in (3, 60, 200, 3_000, 40_000)
    ]
    for a in sketches:
        for b in sketches:
            assert monoid.value(monoid.combine(a, b)) == monoid.value(monoid.combine(b, a))
            for c in sketches:
                left, right = monoid.combine(monoid.combine(a, b), c), monoid.combine(a, monoid.combine(b, c))

                assert monoid.value(left) == monoid.value(right)


def test_full_sketches_of_quantiles_associate_within_their_error() -> None:
    """Merging is randomized; its results stay within the ranks that `same` allows, unlike another distribution."""
    monoid, chance = Quantiles(), random.Random(7)
    a, b, c = (
        reduce(monoid.fold, (chance.gauss(mean, 1) for _ in range(20_000)), monoid.identity()) for mean in (0, 1, 5)
    )
    left, right = monoid.combine(monoid.combine(a, b), c), monoid.combine(a, monoid.combine(b, c))

    assert monoid.same(left, right)
    assert not monoid.same(left, monoid.combine(monoid.combine(a, b), b))


class _MeanOfMeans(Monoid[float | None]):
    """Does not store the number of observations behind each mean."""

    def identity(self) -> float | None:
        return None

    def combine(self, left: float | None, right: float | None) -> float | None:
        return right if left is None else left if right is None else (left + right) / 2


class _Subtraction(Monoid[int]):
    """Has an identity on the right only."""

    def identity(self) -> int:
        return 0

    def combine(self, left: int, right: int) -> int:
        return left - right


class _Product(Monoid[int]):
    """With the identity of addition."""

    combine = staticmethod(operator.mul)

    def identity(self) -> int:
        return 0


class _Outgrows(Monoid[int]):
    """Keeps the laws, but soon exceeds 64 bits."""

    combine = staticmethod(operator.mul)

    def identity(self) -> int:
        return 1


class _BreaksWhenLarge(Monoid[int]):
    """Keeps the laws for single observations only."""

    def identity(self) -> int:
        return 0

    def combine(self, left: int, right: int) -> int:
        return left + right + (left + right >= 10)


class _RightOnly(Monoid[int]):
    """Treats a small left argument as the identity."""

    def identity(self) -> int:
        return 0

    def combine(self, left: int, right: int) -> int:
        return right if left == 0 else left + right + 1


class _Names(Monoid[list[str]]):
    """A correct list; its subclasses break laws."""

    def identity(self) -> list[str]:
        return []

    def lift(self, observation: Any) -> list[str]:
        return [observation]

    def combine(self, left: list[str], right: list[str]) -> list[str]:
        return [*left, *right]


class _ChangesLeft(_Names):
    def combine(self, left: list[str], right: list[str]) -> list[str]:
        left.extend(right)
        return left


class _AppendsToItsInput(_Names):
    def combine(self, left: list[str], right: list[str]) -> list[str]:
        for name in right:
            left.append(name)  # noqa: PERF402 - the mistake under test
        return left


class _ChangesRight(_Names):
    def combine(self, left: list[str], right: list[str]) -> list[str]:
        right[:0] = left
        return right


class _SharedIdentity(_Names):
    shared: list[str] = []  # noqa: RUF012 - the mistake under test

    def identity(self) -> list[str]:
        return self.shared

    def fold(self, accumulator: list[str], observation: Any) -> list[str]:
        accumulator.append(observation)
        return accumulator


class _KeepsObservation(_Names):
    """Folds in place into a list that is the observation itself."""

    def lift(self, observation: Any) -> list[str]:
        kept: list[str] = observation
        return kept

    def fold(self, accumulator: list[str], observation: Any) -> list[str]:
        accumulator.extend(observation)
        return accumulator


class _FoldsOtherwise(_Names):
    def fold(self, accumulator: list[str], observation: Any) -> list[str]:
        return [observation, *accumulator]


class _ClaimsCommutativity(_Names):
    commutative = True


class _TupleForgotten(Monoid[tuple[int, ...]]):
    """Its tuple is decoded as a list."""

    def identity(self) -> tuple[int, ...]:
        return ()

    def combine(self, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(left) + tuple(right)


class _Unserialisable(Monoid[complex]):
    combine = staticmethod(operator.add)

    def identity(self) -> complex:
        return 0j


@pytest.mark.parametrize(
    ("broken", "observations", "law"),
    [
        (_MeanOfMeans(), [1.0, 2.0, 6.0], "associativity"),
        (_Subtraction(), [1, 2, 3], "left identity"),
        (_Product(), [2, 3], "left identity"),
        (_RightOnly(), [2, 3], "right identity"),
        (_Outgrows(), [2**40, 2**41, 2**42, 2**43], "encoding"),
        (_BreaksWhenLarge(), [2, 2, 2, 2, 2, 2], "associativity"),
        (_ChangesLeft(), ["a", "b"], "unchanged arguments"),
        (_AppendsToItsInput(), ["a", "b"], "unchanged arguments"),
        (_ChangesRight(), ["a", "b"], "unchanged arguments"),
        (_SharedIdentity(), ["a", "b"], "fresh identity"),
        (_KeepsObservation(), [["a"], ["b"]], "unchanged observation"),
        (_FoldsOtherwise(), ["a", "b"], "fold"),
        (_ClaimsCommutativity(), ["a", "b"], "commutativity"),
        (_TupleForgotten(), [(1,), (2,)], "round trip"),
        (_Unserialisable(), [1j], "encoding"),
        (MapOf(_MeanOfMeans()), [{"a": 1.0}, {"a": 2.0}, {"a": 6.0}], "associativity"),
        (TupleOf(Count(), _Subtraction()), [(0, 1), (0, 2)], "left identity"),
    ],
    ids=repr,
)
def test_a_broken_monoid_is_named(broken: Monoid[Any], observations: list[Any], law: str) -> None:
    """The error says which monoid breaks which law, and what to change."""
    with pytest.raises(BrokenLaw) as caught:
        check_laws(broken, observations)

    assert caught.value.law.name == law
    assert str(caught.value).startswith(f"{broken!r} breaks the law of {law}: ")
    assert caught.value.law.change in str(caught.value)


def test_a_broken_law_shows_the_values() -> None:
    """The values in the message are enough to see the fault by hand."""
    with pytest.raises(
        BrokenLaw, match=r"(?s)a = 1\.0\n  b = 1\.0\n  c = 2\.0\n  ab_c = 1\.5\n  a_bc = 1\.25"
    ) as caught:
        check_laws(_MeanOfMeans(), [1.0, 2.0])

    assert "for a mean, store (sum, count)" in str(caught.value)


def test_long_values_are_cut_short() -> None:
    """A message stays readable with partials of any size."""
    with pytest.raises(BrokenLaw) as caught:
        check_laws(_ClaimsCommutativity(), ["a" * 10_000, "b"])

    assert len(str(caught.value)) < 3_000


@given(st.lists(st.integers(-9, 9), min_size=3, max_size=40, unique=True))
def test_no_sample_hides_a_mean_of_means(observations: Sequence[int]) -> None:
    """Three different observations at any positions of the sample suffice."""
    with pytest.raises(BrokenLaw):
        check_laws(_MeanOfMeans(), observations)


def test_a_sample_is_spread_over_all_observations() -> None:
    """The check also tries the last of many observations, and its work stays bounded."""
    tried: list[int] = []

    class Recording(Sum):
        def lift(self, observation: Any) -> float:
            tried.append(observation)
            return super().lift(observation)

    check_laws(Recording(), range(10_000), limit=5)

    assert set(tried) == {0, 2_000, 4_000, 6_000, 8_000}


def test_the_check_uses_a_monoids_own_same() -> None:
    """`same` can accept different partials with the same meaning."""
    check_laws(_ClaimsCommutativity(), ["a", "b"], same=lambda left, right: sorted(left) == sorted(right))


def test_rounding_of_floats_breaks_no_law() -> None:
    """The last digits of float sums depend on the grouping, also in a user's monoid."""

    class Total(Monoid[dict[str, list[float]]]):
        def identity(self) -> dict[str, list[float]]:
            return {"of": [0.0]}

        def combine(self, left: dict[str, list[float]], right: dict[str, list[float]]) -> dict[str, list[float]]:
            return {"of": [left["of"][0] + right["of"][0]]}

    assert (0.1 + 0.2) + 0.3 != 0.1 + (0.2 + 0.3)
    check_laws(Total(), [{"of": [number]} for number in (0.1, 0.2, 0.3, float("inf"))])
