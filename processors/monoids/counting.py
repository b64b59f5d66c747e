"""Numbers that add up: each observation adds to one or two running numbers.

Whole numbers are exact at any size. Floats round at every addition, so that the grouping of partials, which differs between a
stream, its restart and a batch run, shows in the last digits: about one part in 10¹⁶ of the largest intermediate sum per addition.
Where sums must agree to the digit, observe whole numbers (cents, milliseconds).
"""

from __future__ import annotations

import operator
from typing import Any

from .base import Monoid

_MSGPACK_MIN = -(2**63)
_MSGPACK_MAX = 2**64 - 1


class Count(Monoid[int]):
    """How many observations; what they are does not matter."""

    commutative = True
    combine = staticmethod(operator.add)

    def identity(self) -> int:
        """Return 0."""
        return 0

    def lift(self, observation: Any) -> int:  # noqa: ARG002 - counted, not looked at
        """Return 1."""
        return 1

    def fold(self, accumulator: int, observation: Any) -> int:  # noqa: ARG002 - counted, not looked at
        """Return one more."""
        return accumulator + 1


class Sum(Monoid[float]):
    """The sum of the observations: int, or float with the rounding that the module describes. Of no observations, 0.

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
        """Return the number; what is none must fail here and not in a later sum."""
        number: float = 0 + observation
        return number

    def dump(self, value: float) -> Any:
        """Return the sum; digits where it is an int beyond MessagePack's 64 bits."""
        return _dump_number(value)

    def load(self, dumped: Any) -> float:
        """Return the sum."""
        return _load_number(dumped)


class Mean(Monoid[tuple[float, int]]):
    """The mean of the observations, kept as (sum, count); sums round as in `Sum`.

    Examples:
        >>> mean = Mean()
        >>> mean.value(mean.combine(mean.lift(1), mean.combine(mean.lift(2), mean.lift(6))))
        3.0
    """

    commutative = True

    def identity(self) -> tuple[float, int]:
        """Return the sum and the count of nothing."""
        return (0, 0)

    def combine(self, left: tuple[float, int], right: tuple[float, int]) -> tuple[float, int]:
        """Return both sums and both counts added up."""
        return (left[0] + right[0], left[1] + right[1])

    def lift(self, observation: Any) -> tuple[float, int]:
        """Return the number and 1."""
        return (0 + observation, 1)  # what is no number fails here and not in a later sum

    def fold(self, accumulator: tuple[float, int], observation: Any) -> tuple[float, int]:
        """Return the sum grown by the number, the count by one."""
        return (accumulator[0] + observation, accumulator[1] + 1)

    def value(self, partial: tuple[float, int]) -> float | None:
        """Return the mean, or None where nothing was observed."""
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


def _dump_number(number: float) -> float | str:
    # A sum of 64-bit numbers may outgrow 64 bits long after the job started: too late to refuse.
    return number if type(number) is not int or _MSGPACK_MIN <= number <= _MSGPACK_MAX else str(number)


def _load_number(dumped: float | str) -> float:
    return int(dumped) if isinstance(dumped, str) else dumped
