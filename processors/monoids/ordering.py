"""Observations chosen by order: by size (smallest, largest, the k largest) or by arrival (first, last).

An observation is a number, str, bytes, or a tuple of these: `(delay, flight)` under `Max` carries along which flight it was. They
come back from bytes as they went, tuples included. NaN has no place in an order and is passed over by those that order by size.
"""

from __future__ import annotations

from bisect import insort
from typing import Any, TypeVar

from .base import Monoid
from .equality import is_nan, tupled

T = TypeVar("T")


class _Chosen(Monoid[T | None]):
    """At most one observation; None stands for none, hence is not itself an observation."""

    def identity(self) -> T | None:
        """Return None."""
        return None

    def load(self, dumped: Any) -> T | None:
        """Return the observation."""
        chosen: T | None = tupled(dumped)
        return chosen


class Min(_Chosen[T]):
    """The smallest observation; of no observations, None. Of equal ones (1 and 1.0) the first.

    Examples:
        >>> Min[int]().combine(3, None)
        3
    """

    commutative = True

    def lift(self, observation: Any) -> T | None:
        """Return the observation; NaN counts as none."""
        return None if is_nan(observation) else observation

    def combine(self, left: T | None, right: T | None) -> T | None:
        """Return the smaller."""
        smaller: Any = right
        return right if left is None or (right is not None and smaller < left) else left

    def fold(self, accumulator: T | None, observation: Any) -> T | None:
        """Return the smaller."""
        if accumulator is None:
            return self.lift(observation)
        if observation < accumulator:  # NaN never is
            chosen: T = observation
            return chosen
        return accumulator


class Max(_Chosen[T]):
    """The largest observation; of no observations, None. Of equal ones (1 and 1.0) the first.

    Examples:
        >>> Max[tuple[float, str]]().combine((12.5, "AA 12"), (40.0, "UA 7"))
        (40.0, 'UA 7')
    """

    commutative = True

    def lift(self, observation: Any) -> T | None:
        """Return the observation; NaN counts as none."""
        return None if is_nan(observation) else observation

    def combine(self, left: T | None, right: T | None) -> T | None:
        """Return the larger."""
        larger: Any = right
        return right if left is None or (right is not None and larger > left) else left

    def fold(self, accumulator: T | None, observation: Any) -> T | None:
        """Return the larger."""
        if accumulator is None:
            return self.lift(observation)
        if observation > accumulator:  # NaN never is
            chosen: T = observation
            return chosen
        return accumulator


class First(_Chosen[T]):
    """The observation that came first. Not commutative: partials must be combined in the order of their events."""

    def combine(self, left: T | None, right: T | None) -> T | None:
        """Return the earlier."""
        return right if left is None else left


class Last(_Chosen[T]):
    """The observation that came last. Not commutative: partials must be combined in the order of their events."""

    def combine(self, left: T | None, right: T | None) -> T | None:
        """Return the later."""
        return left if right is None else right


class KLargest(Monoid[list[T]]):
    """The k largest observations, repeats included: at most k are kept, in ascending order.

    Examples:
        >>> largest = KLargest[int](2)
        >>> largest.value(largest.combine([3, 9], [5, 9]))
        [9, 9]
    """

    commutative = True
    folds_in_place = True

    def __init__(self, k: int) -> None:
        if k < 1:
            raise ValueError(f"Largest(k={k}) would keep nothing: k is how many observations to keep, at least 1.")
        self.k = k

    def identity(self) -> list[T]:
        """Return a new empty list."""
        return []

    def lift(self, observation: Any) -> list[T]:
        """Return a list of the observation; NaN counts as none."""
        return [] if is_nan(observation) else [observation]

    def combine(self, left: list[T], right: list[T]) -> list[T]:
        """Return the k largest of both."""
        both: list[Any] = [*left, *right]
        both.sort()  # two ascending runs: Timsort merges them in one pass
        return both[-self.k :]

    def fold(self, accumulator: list[T], observation: Any) -> list[T]:
        """Put the observation in its place, if it has one among the k."""
        kept: list[Any] = accumulator
        if len(kept) < self.k:
            if not is_nan(observation):
                insort(kept, observation)
        elif observation > kept[0]:
            insort(kept, observation)
            del kept[0]
        return accumulator

    def value(self, partial: list[T]) -> list[T]:
        """Return the observations, largest first."""
        return partial[::-1]

    def load(self, dumped: Any) -> list[T]:
        """Return the observations, ascending."""
        return list(map(tupled, dumped))
