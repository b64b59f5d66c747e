"""Count, sum, mean and variance.

Integers are exact at any size. Floats round at every addition, so the last digits depend on the grouping of partials, which differs
between a stream, its restart and a batch run: by about one part in 10¹⁶ of the largest intermediate sum per addition. If sums must be
equal to the last digit, observe integers (cents, milliseconds).
"""

from __future__ import annotations

import operator
from typing import Any

from .base import Monoid

_MSGPACK_MIN = -(2**63)
_MSGPACK_MAX = 2**64 - 1


class Count(Monoid[int]):
    """The number of observations, of any type."""

    commutative = True
    combine = staticmethod(operator.add)

    def identity(self) -> int:
        """Return 0."""
        return 0

    def lift(self, observation: Any) -> int:  # noqa: ARG002 - every observation counts
        """Return 1."""
        return 1

    def fold(self, accumulator: int, observation: Any) -> int:  # noqa: ARG002 - every observation counts
        """Return the accumulator plus 1."""
        return accumulator + 1


class Sum(Monoid[float]):
    """The sum of the observations: an int of any size, or a float. Without observations, 0.

    Float additions round, so the last digits depend on the grouping of partials. For exact sums, observe integers.

    Examples:
        >>> total = Sum()
        >>> total.decode(total.encode(total.combine(2**80, 1))) - 2**80
        1
    """

    commutative = True
    combine = staticmethod(operator.add)
    fold = staticmethod(operator.add)

    def identity(self) -> float:
        """Return 0."""
        return 0

    def lift(self, observation: Any) -> float:
        """Return the observation.

        Raises:
            TypeError: the observation is not a number.
        """
        number: float = 0 + observation
        return number

    def dump(self, value: float) -> Any:
        """Return the sum, as a string of digits if it is an int beyond 64 bits."""
        return _dump_number(value)

    def load(self, dumped: Any) -> float:
        """Return the sum."""
        return _load_number(dumped)


class Mean(Monoid[tuple[float, int]]):
    """The mean of the observations; None without observations. The partial is (sum, count); sums round as in `Sum`.

    Examples:
        >>> mean = Mean()
        >>> mean.value(mean.combine(mean.lift(1), mean.combine(mean.lift(2), mean.lift(6))))
        3.0
    """

    commutative = True

    def identity(self) -> tuple[float, int]:
        """Return (0, 0)."""
        return (0, 0)

    def combine(self, left: tuple[float, int], right: tuple[float, int]) -> tuple[float, int]:
        """Return the total sum and the total count."""
        return (left[0] + right[0], left[1] + right[1])

    def lift(self, observation: Any) -> tuple[float, int]:
        """Return the observation and 1.

        Raises:
            TypeError: the observation is not a number.
        """
        return (0 + observation, 1)

    def fold(self, accumulator: tuple[float, int], observation: Any) -> tuple[float, int]:
        """Return the sum plus the observation, and the count plus 1."""
        return (accumulator[0] + observation, accumulator[1] + 1)

    def value(self, partial: tuple[float, int]) -> float | None:
        """Return the mean; None without observations."""
        total, count = partial
        return total / count if count else None

    def dump(self, value: tuple[float, int]) -> Any:
        """Return sum and count."""
        total, count = value
        return (_dump_number(total), count)

    def load(self, dumped: Any) -> tuple[float, int]:
        """Return sum and count."""
        total, count = dumped
        return (_load_number(total), count)


class Variance(Monoid[tuple[int, float, float]]):
    """The variance of the observations; None if there are too few.

    The partial is (count, mean, sum of squared differences from the mean), combined as in Chan, Golub and LeVeque, "Updating Formulae and a
    Pairwise Algorithm for Computing Sample Variances" (1979): it does not cancel as sums of squares do. The last digits depend on the grouping.

    Args:
        population: divide by the number of observations, not by one less. A sample needs two observations, a population one.

    Examples:
        >>> variance = Variance()
        >>> variance.value(variance.combine(variance.lift(1), variance.combine(variance.lift(2), variance.lift(6))))
        7.0
    """

    commutative = True

    def __init__(self, *, population: bool = False) -> None:
        self.population = population

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'population=True' if self.population else ''})"

    def identity(self) -> tuple[int, float, float]:
        """Return (0, 0.0, 0.0)."""
        return (0, 0.0, 0.0)

    def lift(self, observation: Any) -> tuple[int, float, float]:
        """Return the partial of one observation.

        Raises:
            TypeError: the observation is not a number.
        """
        return (1, 0.0 + observation, 0.0)

    def combine(self, left: tuple[int, float, float], right: tuple[int, float, float]) -> tuple[int, float, float]:
        """Return the partial of both."""
        (count, mean, squares), (other_count, other_mean, other_squares) = left, right
        if not count or not other_count:
            return left if count else right
        total, apart = count + other_count, other_mean - mean
        return (
            total,
            mean + apart * other_count / total,
            squares + other_squares + apart * apart * count * other_count / total,
        )

    def value(self, partial: tuple[int, float, float]) -> float | None:
        """Return the variance; None if there are too few observations."""
        count, _, squares = partial
        divisor = count if self.population else count - 1
        return squares / divisor if divisor > 0 else None

    def load(self, dumped: Any) -> tuple[int, float, float]:
        """Return the partial."""
        count, mean, squares = dumped
        return (count, mean, squares)


def _dump_number(number: float) -> float | str:
    # A sum may exceed 64 bits long after the job started, when an error would come too late.
    return number if type(number) is not int or _MSGPACK_MIN <= number <= _MSGPACK_MAX else str(number)


def _load_number(dumped: float | str) -> float:
    return int(dumped) if isinstance(dumped, str) else dumped
