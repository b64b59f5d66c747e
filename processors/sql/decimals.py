"""Monoids over numeric values. Sums are exact; partials are saved as texts."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from ..monoids import Monoid
from .values import EXACT, divide_numeric


class DecimalSum(Monoid[Decimal]):
    """The exact sum of decimals.

    Examples:
        >>> total = DecimalSum()
        >>> total.decode(total.encode(total.combine(Decimal("1e30"), Decimal("0.01"))))
        Decimal('1000000000000000000000000000000.01')
    """

    commutative = True

    def identity(self) -> Decimal:
        """Return 0."""
        return Decimal(0)

    def combine(self, left: Decimal, right: Decimal) -> Decimal:
        """Return the sum."""
        return EXACT.add(left, right)

    def dump(self, value: Decimal) -> str:
        """Return the digits."""
        return str(value)

    def load(self, dumped: Any) -> Decimal:
        """Return the sum."""
        return Decimal(dumped)


class DecimalMean(Monoid[tuple[Decimal, int]]):
    """The mean of decimals, with at most 18 digits after the point. The partial is their exact sum and their number.

    Examples:
        >>> mean = DecimalMean()
        >>> mean.value(mean.combine(mean.lift(Decimal("0.1")), mean.lift(Decimal("0.3"))))
        Decimal('0.2')
    """

    commutative = True

    def identity(self) -> tuple[Decimal, int]:
        """Return 0 and 0."""
        return Decimal(0), 0

    def lift(self, observation: Any) -> tuple[Decimal, int]:
        """Return the observation and 1."""
        return observation, 1

    def combine(self, left: tuple[Decimal, int], right: tuple[Decimal, int]) -> tuple[Decimal, int]:
        """Return the sums."""
        return EXACT.add(left[0], right[0]), left[1] + right[1]

    def value(self, partial: tuple[Decimal, int]) -> Decimal | None:
        """Return the mean; None without observations."""
        total, count = partial
        return divide_numeric(total, Decimal(count)) if count else None

    def dump(self, value: tuple[Decimal, int]) -> Any:
        """Return the digits of the sum, and the number."""
        return str(value[0]), value[1]

    def load(self, dumped: Any) -> tuple[Decimal, int]:
        """Return the sum and the number."""
        return Decimal(dumped[0]), dumped[1]


class _Choice(Monoid[Any]):
    """A monoid that chooses one of the observations.

    Args:
        inner: the monoid.
    """

    def __init__(self, inner: Monoid[Any]) -> None:
        self.inner = inner
        self.commutative = inner.commutative

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def identity(self) -> Any:
        """Return None."""
        return self.inner.identity()

    def combine(self, left: Any, right: Any) -> Any:
        """Return the chosen observation."""
        return self.inner.combine(left, right)


class DecimalByTime(_Choice):
    """A monoid that chooses one of pairs of a time and a decimal, such as `Latest`."""

    def value(self, partial: Any) -> Any:
        """Return the decimal of the chosen pair."""
        return self.inner.value(partial)

    def dump(self, value: Any) -> tuple[Any, str] | None:
        """Return the time and the digits."""
        return None if value is None else (value[0], str(value[1]))

    def load(self, dumped: Any) -> tuple[Any, Decimal] | None:
        """Return the pair."""
        return None if dumped is None else (dumped[0], Decimal(dumped[1]))


class ChosenDecimal(_Choice):
    """A monoid that chooses one of the observations, such as `Max`, over decimals."""

    def dump(self, value: Decimal | None) -> str | None:
        """Return the digits."""
        return None if value is None else str(value)

    def load(self, dumped: Any) -> Decimal | None:
        """Return the number."""
        return None if dumped is None else Decimal(dumped)
