"""Monoids of monoids: one inner partial per key of a dict, or per position of a tuple.

A nested observation has the shape of the partial: `{key: inner observation}`, or a tuple with one observation per position.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from typing import Any, TypeVar

from .base import Monoid
from .counting import Sum

K = TypeVar("K")
V = TypeVar("V")


class MapOf(Monoid[dict[K, V]]):
    """One partial of `inner` per key; the partials of a key are combined, and a new key is added.

    Keys are str, int, bytes or tuples of these: MessagePack keeps their types, whereas JSON would make str of them all. Keys that
    Python holds for equal (1, 1.0 and True) are one. Every key that was ever observed is kept: bound their number by the choice of
    windows, or by putting the key into the processor's own key.

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
        """Return a dict of both, combined where they share a key."""
        combine = self.inner.combine
        both = left.copy()
        for key, partial in right.items():
            both[key] = combine(both[key], partial) if key in both else partial
        return both

    def fold(self, accumulator: dict[K, V], observation: Mapping[K, Any]) -> dict[K, V]:
        """Fold each value into the partial of its key, in place."""
        if len(observation) > 1 and self.inner.folds_in_place:
            self.lift(observation)  # fails where a later key would, before an earlier one has changed
        fold, lift = self.inner.fold, self.inner.lift
        changed = {}
        for key, of_key in observation.items():
            changed[key] = fold(accumulator[key], of_key) if key in accumulator else lift(of_key)
        accumulator.update(changed)  # only now, when none has failed
        return accumulator

    def value(self, partial: dict[K, V]) -> Any:
        """Return `{key: inner value}`, in no particular order of keys."""
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
        """Whether both have the same keys with the same partials."""
        same = self.inner.same
        return left.keys() == right.keys() and all(same(of_key, right[key]) for key, of_key in left.items())


class TopKeys(MapOf[K, V]):
    """The k items of largest weight, a weight being the `value` of the `of` partial of its item: a number.

    An observation is `{item: observation of its weight}`; `of` defaults to `Sum()`. All items must be kept, for one that is light in
    every partial may be heavy in their union: memory grows with the number of distinct items (about 100 bytes each and the item
    itself), and only the result is cut to k. `KLargest` is bounded, where single observations are wanted and not summed weights.

    Examples:
        >>> top = TopKeys[str, float](2)
        >>> top.value({"JFK": 3, "EWR": 7, "BOS": 3, "LGA": 1})
        [('EWR', 7), ('BOS', 3)]
    """

    def __init__(self, k: int, of: Monoid[V] | None = None) -> None:
        if k < 1:
            raise ValueError(f"TopKeys(k={k}) would show nothing: k is how many items to return, at least 1.")
        weight: Monoid[Any] = Sum()
        super().__init__(weight if of is None else of)
        self.k = k

    def __repr__(self) -> str:
        return f"TopKeys(k={self.k}, of={self.inner!r})"

    def value(self, partial: dict[K, V]) -> list[tuple[K, Any]]:
        """Return up to k pairs (item, weight), largest weight first, and equal weights by item ascending."""
        weight = self.inner.value
        weighted: list[tuple[Any, Any]] = [(item, weight(of_item)) for item, of_item in partial.items()]
        return nsmallest(self.k, weighted, key=lambda pair: (-pair[1], pair[0]))


class TupleOf(Monoid[tuple[Any, ...]]):
    """Several monoids side by side: a partial of each, and an observation for each, in a tuple.

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
        # Those that fold in place come last: where one before them fails, nothing has changed.
        order = sorted(range(len(monoids)), key=in_place.__contains__)
        self._folds = [(at, monoids[at].fold) for at in order]

    def __repr__(self) -> str:
        return f"TupleOf({', '.join(map(repr, self.monoids))})"

    def identity(self) -> tuple[Any, ...]:
        """Return an identity of each."""
        return tuple([monoid.identity() for monoid in self.monoids])

    def lift(self, observation: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a partial of each.

        Raises:
            ValueError: not one observation per monoid.
        """
        self._expect_one_each(observation)
        return tuple([monoid.lift(own) for monoid, own in zip(self.monoids, observation, strict=True)])

    def combine(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return them combined position by position."""
        return tuple([monoid.combine(one, other) for monoid, one, other in zip(self.monoids, left, right, strict=True)])

    def fold(self, accumulator: tuple[Any, ...], observation: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return them folded position by position; those that fold in place are changed.

        Raises:
            ValueError: not one observation per monoid.
        """
        self._expect_one_each(observation)
        for at in self._lifted_first:
            self.monoids[at].lift(observation[at])  # fails where a later one would, before an earlier one has changed
        partials = list(accumulator)
        for at, fold in self._folds:
            partials[at] = fold(partials[at], observation[at])
        return tuple(partials)

    def value(self, partial: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the value of each."""
        return tuple([monoid.value(own) for monoid, own in zip(self.monoids, partial, strict=True)])

    def dump(self, value: tuple[Any, ...]) -> Any:
        """Return a list with each dumped."""
        return [monoid.dump(own) for monoid, own in zip(self.monoids, value, strict=True)]

    def load(self, dumped: Any) -> tuple[Any, ...]:
        """Return the tuple with each loaded."""
        return tuple([monoid.load(own) for monoid, own in zip(self.monoids, dumped, strict=True)])

    def same(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
        """Whether they are the same position by position."""
        return all(monoid.same(one, other) for monoid, one, other in zip(self.monoids, left, right, strict=True))

    def _expect_one_each(self, observation: tuple[Any, ...]) -> None:
        if len(observation) != len(self.monoids):
            raise ValueError(
                f"{self!r} takes {len(self.monoids)} observations in a tuple; it was given {observation!r}."
            )
