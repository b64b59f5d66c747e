"""Composite monoids: one inner partial per key of a dict, per position of a tuple, or of the values that are not None.

An observation has the shape of the partial: `{key: inner observation}`, or a tuple with one observation per position.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from typing import Any, TypeVar

from .base import Monoid
from .counting import Count, Sum

K = TypeVar("K")
V = TypeVar("V")


class MapOf(Monoid[dict[K, V]]):
    """One partial of `inner` per key of a dict.

    Keys are str, int, bytes or tuples of these. Keys that are equal in Python (1, 1.0 and True) are the same key. The partial contains every
    observed key: limit their number with windows, or make the key a part of the processor's key.

    Args:
        inner: the monoid of each key.

    Examples:
        >>> delays = MapOf[str, float](Sum())
        >>> delays.fold(delays.fold({}, {"UA": 5, "AA": 1}), {"UA": 2})
        {'UA': 7, 'AA': 1}
    """

    folds_in_place = True

    def __init__(self, inner: Monoid[V]) -> None:
        self.inner = inner
        self.commutative = inner.commutative

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def identity(self) -> dict[K, V]:
        """Return a new empty dict."""
        return {}

    def lift(self, observation: Mapping[K, Any]) -> dict[K, V]:
        """Return the dict with its values lifted."""
        lift = self.inner.lift
        return {key: lift(of_key) for key, of_key in observation.items()}

    def combine(self, left: dict[K, V], right: dict[K, V]) -> dict[K, V]:
        """Return the union of both dicts; the partials of a common key are combined."""
        combine = self.inner.combine
        both = left.copy()
        for key, partial in right.items():
            both[key] = combine(both[key], partial) if key in both else partial
        return both

    def fold(self, accumulator: dict[K, V], observation: Mapping[K, Any]) -> dict[K, V]:
        """Fold each value into the partial of its key, in place."""
        if len(observation) > 1 and self.inner.folds_in_place:
            self.lift(observation)  # raises before any key has changed
        fold, lift = self.inner.fold, self.inner.lift
        changed = {}
        for key, of_key in observation.items():
            changed[key] = fold(accumulator[key], of_key) if key in accumulator else lift(of_key)
        accumulator.update(changed)  # after all keys have succeeded
        return accumulator

    def value(self, partial: dict[K, V]) -> Any:
        """Return `{key: inner value}`, in arbitrary order of keys."""
        value = self.inner.value
        return {key: value(of_key) for key, of_key in partial.items()}

    def dump(self, value: dict[K, V]) -> Any:
        """Return the dict with its values dumped."""
        dump = self.inner.dump
        return {key: dump(of_key) for key, of_key in value.items()}

    def load(self, dumped: Any) -> dict[K, V]:
        """Return the dict with its values loaded."""
        load = self.inner.load
        return {key: load(of_key) for key, of_key in dumped.items()}

    def same(self, left: dict[K, V], right: dict[K, V]) -> bool:
        """Return whether both have the same keys with the same partials."""
        same = self.inner.same
        return left.keys() == right.keys() and all(same(of_key, right[key]) for key, of_key in left.items())


class TopKeys(MapOf[K, V]):
    """The k items with the largest weights. `KLargest` instead returns the k largest single observations, in bounded memory.

    An observation is `{item: observation of its weight}`. The partial contains all items, because an item with a small weight in each
    partial may have a large total. Memory grows with the number of distinct items: about 100 bytes each, plus the item.

    Args:
        k: the number of items to return, at least 1.
        of: the monoid of an item's weight; its value must be a number. Default: `Sum()`.

    Raises:
        ValueError: k is less than 1.

    Examples:
        >>> top = TopKeys[str, float](2)
        >>> top.value({"JFK": 3, "EWR": 7, "BOS": 3, "LGA": 1})
        [('EWR', 7), ('BOS', 3)]
    """

    def __init__(self, k: int, of: Monoid[V] | None = None) -> None:
        if k < 1:
            raise ValueError(
                f"TopKeys(k={k}) would return no items. Give k, the number of items to return, as 1 or more."
            )
        weight: Monoid[Any] = Sum()
        super().__init__(weight if of is None else of)
        self.k = k

    def __repr__(self) -> str:
        return f"TopKeys(k={self.k}, of={self.inner!r})"

    def value(self, partial: dict[K, V]) -> list[tuple[K, Any]]:
        """Return up to k pairs (item, weight), the largest weight first. Items with equal weights are in ascending order."""
        weight = self.inner.value
        weighted: list[tuple[Any, Any]] = [(item, weight(of_item)) for item, of_item in partial.items()]
        return nsmallest(self.k, weighted, key=lambda pair: (-pair[1], pair[0]))


class TupleOf(Monoid[tuple[Any, ...]]):
    """Several monoids in one. Observations, partials and values are tuples with one element per monoid.

    Args:
        monoids: the monoids, in the order of the elements.

    Examples:
        >>> from penstock.processors.monoids import Count, Mean
        >>> flights = TupleOf(Count(), Mean())
        >>> flights.value(flights.fold(flights.lift(("UA 7", 10)), ("UA 8", 20)))
        (2, 15.0)
    """

    def __init__(self, *monoids: Monoid[Any]) -> None:
        self.monoids = monoids
        self.commutative = all(monoid.commutative for monoid in monoids)
        in_place = [at for at, monoid in enumerate(monoids) if monoid.folds_in_place]
        self.folds_in_place = bool(in_place)
        self._lifted_first = in_place if len(in_place) > 1 else []
        # Monoids that fold in place come last, so that a failure of another monoid changes nothing.
        order = sorted(range(len(monoids)), key=in_place.__contains__)
        self._folds = [(at, monoids[at].fold) for at in order]
        self._keeps_values = all(monoid.keeps("value") for monoid in monoids)

    def __repr__(self) -> str:
        return f"TupleOf({', '.join(map(repr, self.monoids))})"

    def identity(self) -> tuple[Any, ...]:
        """Return the identity of each monoid."""
        return tuple([monoid.identity() for monoid in self.monoids])

    def lift(self, observation: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the partial of each observation.

        Raises:
            ValueError: the number of observations differs from the number of monoids.
        """
        self._expect_one_each(observation)
        return tuple([monoid.lift(own) for monoid, own in zip(self.monoids, observation, strict=True)])

    def combine(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the combined partials, position by position."""
        return tuple([monoid.combine(one, other) for monoid, one, other in zip(self.monoids, left, right, strict=True)])

    def fold(self, accumulator: tuple[Any, ...], observation: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the partials with one observation folded into each.

        Raises:
            ValueError: the number of observations differs from the number of monoids.
        """
        self._expect_one_each(observation)
        for at in self._lifted_first:
            self.monoids[at].lift(observation[at])  # raises before any partial has changed
        partials = list(accumulator)
        for at, fold in self._folds:
            partials[at] = fold(partials[at], observation[at])
        return tuple(partials)

    def value(self, partial: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the value of each partial."""
        return (
            partial
            if self._keeps_values
            else tuple([monoid.value(own) for monoid, own in zip(self.monoids, partial, strict=True)])
        )

    def keeps(self, method: str) -> bool:
        """Return whether all monoids do."""
        return getattr(type(self), method) is getattr(TupleOf, method) and all(
            monoid.keeps(method) for monoid in self.monoids
        )

    def dump(self, value: tuple[Any, ...]) -> Any:
        """Return a list of the dumped partials."""
        return [monoid.dump(own) for monoid, own in zip(self.monoids, value, strict=True)]

    def load(self, dumped: Any) -> tuple[Any, ...]:
        """Return a tuple of the loaded partials."""
        return tuple([monoid.load(own) for monoid, own in zip(self.monoids, dumped, strict=True)])

    def same(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
        """Return whether the partials are the same, position by position."""
        return all(monoid.same(one, other) for monoid, one, other in zip(self.monoids, left, right, strict=True))

    def _expect_one_each(self, observation: tuple[Any, ...]) -> None:
        if len(observation) != len(self.monoids):
            raise ValueError(
                f"{self!r} needs a tuple of {len(self.monoids)} observations, but the observation is {observation!r}. Return one element per "
                "monoid from `observe`."
            )


class OfValues(Monoid[Any]):
    """The partial of a monoid over the observations that are not None; None without one.

    Args:
        inner: the monoid. Its own partials are never None, except those without observations.

    Examples:
        >>> total = OfValues(Sum())
        >>> total.fold(total.fold(total.identity(), None), 3), total.value(total.identity())
        (3, None)
    """

    def __init__(self, inner: Monoid[Any]) -> None:
        self.inner = inner
        self.commutative = inner.commutative
        self.folds_in_place = inner.folds_in_place

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def identity(self) -> Any:
        """Return None."""
        return None

    def lift(self, observation: Any) -> Any:
        """Return the inner partial of a value; None of None."""
        return None if observation is None else self.inner.lift(observation)

    def combine(self, left: Any, right: Any) -> Any:
        """Return the combined inner partials; the other one if one is None."""
        if left is None or right is None:
            return right if left is None else left
        return self.inner.combine(left, right)

    def fold(self, accumulator: Any, observation: Any) -> Any:
        """Fold a value into the inner partial; None changes nothing."""
        if observation is None:
            return accumulator
        return self.inner.lift(observation) if accumulator is None else self.inner.fold(accumulator, observation)

    def value(self, partial: Any) -> Any:
        """Return the inner value; None without values."""
        return None if partial is None else self.inner.value(partial)

    def keeps(self, method: str) -> bool:
        """Return whether the inner monoid does."""
        return getattr(type(self), method) is getattr(OfValues, method) and self.inner.keeps(method)

    def dump(self, value: Any) -> Any:
        """Return the dumped inner partial."""
        return None if value is None else self.inner.dump(value)

    def load(self, dumped: Any) -> Any:
        """Return the loaded inner partial."""
        return None if dumped is None else self.inner.load(dumped)

    def same(self, left: Any, right: Any) -> bool:
        """Return whether both are None or the same to the inner monoid."""
        return left is right if left is None or right is None else self.inner.same(left, right)

    def within_error(self, left: Any, right: Any, /) -> bool | None:
        """Return the inner monoid's answer."""
        return self.inner.within_error(left, right)


class DistinctValues(OfValues):
    """The distinct observations that are not None, with the number of each."""

    def __init__(self) -> None:
        super().__init__(MapOf(Count()))

    def lift(self, observation: Any) -> Any:
        """Return the partial of one value."""
        return super().lift(None if observation is None else {observation: None})

    def fold(self, accumulator: Any, observation: Any) -> Any:
        """Add a value."""
        return super().fold(accumulator, None if observation is None else {observation: None})
