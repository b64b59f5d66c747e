"""Monoids that select observations by value (smallest, largest, k largest), by event time (earliest, latest) or by arrival (first, last).

An observation is a number, str, bytes, or a tuple of these: with `(delay, flight)`, `Max` also returns the flight of the largest delay.
Monoids that select by value ignore NaN.
"""

from __future__ import annotations

from bisect import insort
from typing import Any, TypeVar

from .base import Monoid
from .equality import is_nan, tupled

T = TypeVar("T")


class _Chosen(Monoid[T | None]):
    """At most one observation. The partial is None without observations, so None is not a valid observation."""

    def identity(self) -> T | None:
        """Return None."""
        return None

    def load(self, dumped: Any) -> T | None:
        """Return the observation."""
        chosen: T | None = tupled(dumped)
        return chosen


class Min(_Chosen[T]):
    """The smallest observation; None without observations. Of equal observations (1 and 1.0), the first. Ignores NaN.

    Examples:
        >>> Min[int]().combine(3, None)
        3
    """

    commutative = True

    def lift(self, observation: Any) -> T | None:
        """Return the observation; None for NaN."""
        return None if is_nan(observation) else observation

    def combine(self, left: T | None, right: T | None) -> T | None:
        """Return the smaller."""
        smaller: Any = right
        return right if left is None or (right is not None and smaller < left) else left

    def fold(self, accumulator: T | None, observation: Any) -> T | None:
        """Return the smaller."""
        if accumulator is None:
            return self.lift(observation)
        if observation < accumulator:  # False for NaN
            chosen: T = observation
            return chosen
        return accumulator


class Max(_Chosen[T]):
    """The largest observation; None without observations. Of equal observations (1 and 1.0), the first. Ignores NaN.

    Examples:
        >>> Max[tuple[float, str]]().combine((12.5, "AA 12"), (40.0, "UA 7"))
        (40.0, 'UA 7')
    """

    commutative = True

    def lift(self, observation: Any) -> T | None:
        """Return the observation; None for NaN."""
        return None if is_nan(observation) else observation

    def combine(self, left: T | None, right: T | None) -> T | None:
        """Return the larger."""
        larger: Any = right
        return right if left is None or (right is not None and larger > left) else left

    def fold(self, accumulator: T | None, observation: Any) -> T | None:
        """Return the larger."""
        if accumulator is None:
            return self.lift(observation)
        if observation > accumulator:  # False for NaN
            chosen: T = observation
            return chosen
        return accumulator


class FirstArrived(_Chosen[T]):
    """The first observation in the order of arrival; None without observations.

    Events can arrive in another order than their event times: `Earliest` follows these. Not commutative: partials are combined in the
    order of their events.
    """

    def combine(self, left: T | None, right: T | None) -> T | None:
        """Return the earlier."""
        return right if left is None else left


class LastArrived(_Chosen[T]):
    """The last observation in the order of arrival; None without observations.

    Events can arrive in another order than their event times: `Latest` follows these. Not commutative: partials are combined in the
    order of their events.
    """

    def combine(self, left: T | None, right: T | None) -> T | None:
        """Return the later."""
        return left if right is None else right


class _ChosenByTime(Monoid[tuple[Any, T] | None]):
    """At most one observation `(event time, value)`."""

    commutative = True

    def identity(self) -> tuple[Any, T] | None:
        """Return None."""
        return None

    def lift(self, observation: Any) -> tuple[Any, T] | None:
        """Return the observation.

        Raises:
            TypeError: it is no pair, or its value has no order.
        """
        if not isinstance(observation, tuple) or len(observation) != 2:
            raise TypeError(f"{self!r} needs pairs (event time, value), and the observation is {observation!r}")
        try:
            observation[1] < observation[1]  # noqa: B015 - of equal times, the order of values decides
        except TypeError as error:
            raise TypeError(
                f"{self!r} needs values with an order, such as numbers, texts or tuples of these: {error}"
            ) from error
        return observation

    def value(self, partial: tuple[Any, T] | None) -> T | None:
        """Return the value of the chosen observation; None without observations."""
        return None if partial is None else partial[1]

    def load(self, dumped: Any) -> tuple[Any, T] | None:
        """Return the observation."""
        chosen: tuple[Any, T] | None = tupled(dumped)
        return chosen


class Earliest(_ChosenByTime[T]):
    """The value of the earliest event; None without observations. An observation is `(event time, value)`.

    Of events with equal times, the one with the least value is chosen, so the result does not depend on the order of arrival. NaN is
    greater than other numbers.

    Examples:
        >>> earliest = Earliest[str]()
        >>> earliest.value(earliest.combine((2_000, "/cart"), (1_000, "/")))
        '/'
    """

    def combine(self, left: tuple[Any, T] | None, right: tuple[Any, T] | None) -> tuple[Any, T] | None:
        """Return the earlier."""
        if left is None or right is None:
            return right if left is None else left
        return right if _is_before(right, left) else left


class Latest(_ChosenByTime[T]):
    """The value of the latest event; None without observations. An observation is `(event time, value)`.

    Of events with equal times, the one with the greatest value is chosen, so the result does not depend on the order of arrival. NaN is
    greater than other numbers.

    Examples:
        >>> latest = Latest[str]()
        >>> latest.value(latest.combine((2_000, "/cart"), (1_000, "/")))
        '/cart'
    """

    def combine(self, left: tuple[Any, T] | None, right: tuple[Any, T] | None) -> tuple[Any, T] | None:
        """Return the later."""
        if left is None or right is None:
            return right if left is None else left
        return right if _is_before(left, right) else left


def _is_before(left: tuple[Any, Any], right: tuple[Any, Any]) -> bool:
    """Return whether an observation is earlier than another one, or as early and of a lesser value."""
    if left[0] != right[0]:
        return bool(left[0] < right[0])
    return not is_nan(left[1]) and (is_nan(right[1]) or bool(left[1] < right[1]))


class KLargest(Monoid[list[T]]):
    """The k largest observations, including duplicates, largest first. Ignores NaN. The partial contains at most k observations.

    `TopKeys` instead returns the k items with the largest total weights.

    Args:
        k: the number of observations to keep, at least 1.

    Raises:
        ValueError: k is less than 1.

    Examples:
        >>> largest = KLargest[int](2)
        >>> largest.value(largest.combine([3, 9], [5, 9]))
        [9, 9]
    """

    commutative = True
    folds_in_place = True

    def __init__(self, k: int) -> None:
        if k < 1:
            raise ValueError(
                f"KLargest(k={k}) would keep no observations. Give k, the number of observations to keep, as 1 or more."
            )
        self.k = k

    def identity(self) -> list[T]:
        """Return a new empty list."""
        return []

    def lift(self, observation: Any) -> list[T]:
        """Return a list of the observation; an empty list for NaN."""
        return [] if is_nan(observation) else [observation]

    def combine(self, left: list[T], right: list[T]) -> list[T]:
        """Return the k largest observations of both, in ascending order."""
        both: list[Any] = [*left, *right]
        both.sort()  # two ascending runs: Timsort merges them in one pass
        return both[-self.k :]

    def fold(self, accumulator: list[T], observation: Any) -> list[T]:
        """Insert the observation if it is among the k largest."""
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
