"""Splitting of a monoid's partials into parts that a store can merge, and combining of these parts.

Counts, sums and means are numbers that every database can add. Of minima and maxima, the store keeps the value with the larger rank. All other
partials are appended, and combined by readers or the compactor, without which their number grows with every save. The store's additions must
equal `combine`: integers are exact, so they are added separately from floats.

Distinct is appended, too, and does not use PFADD: its partials are HLL sketches of DataSketches, whose registers use another hash function
than Redis. Redis could build its own HyperLogLog only from the raw observations, which a checkpoint no longer has; PFMERGE accepts only
Redis's sketches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from ...processors import ProcessorFailed
from ...processors.keyed_state import Changes
from ...processors.monoids import Count, Max, Mean, Min, Monoid, Sum
from .protocols import ExtremeRow, Parts, SlotChanges, Total, TotalRow
from .sort_keys import order_key, reverse_order_key

_LARGEST_FRACTION = 1e290
"""Larger floats, infinities and NaN are appended. Sums of smaller ones would take 10¹⁸ saves to overflow, which databases refuse."""


class _Addition(NamedTuple):
    """Conversions of a partial to a total, if possible, and back."""

    total: Callable[[Any], Total | None]
    partial: Callable[[Total], Any]


def _total_of_number(number: float, observed: int = 0) -> Total | None:
    if isinstance(number, int):
        return Total(number, None, observed)
    return Total(0, number, observed) if abs(number) <= _LARGEST_FRACTION else None


def _number_of_total(total: Total) -> float:
    return total.whole if total.fraction is None else total.whole + total.fraction


def _total_of_mean(partial: tuple[float, int]) -> Total | None:
    return _total_of_number(*partial)


def _mean_of_total(total: Total) -> tuple[float, int]:
    return (_number_of_total(total), total.observed)


# By the exact class: a subclass may combine differently.
_ADDITIONS: dict[type[Monoid[Any]], _Addition] = {
    Count: _Addition(_total_of_number, _number_of_total),
    Sum: _Addition(_total_of_number, _number_of_total),
    Mean: _Addition(_total_of_mean, _mean_of_total),
}
_RANKS: dict[type[Monoid[Any]], Callable[[Any], bytes | None]] = {Max: order_key, Min: reverse_order_key}


class PartialMerger:
    """Splits a monoid's partials into parts that the store merges, and combines the parts."""

    def __init__(self, monoid: Monoid[Any]) -> None:
        self._monoid = monoid
        self._addition = _ADDITIONS.get(type(monoid))
        self._rank_of = _RANKS.get(type(monoid))

    def replacements(self, changes: Changes) -> SlotChanges:
        """Return the changes as replacements of values."""
        return SlotChanges(
            removed=_removed(changes), wholes=[(slot, value) for slot, value in changes.items() if value is not None]
        )

    def additions(self, changes: Changes) -> SlotChanges:
        """Return the changes as partials to add."""
        totals, extremes, partials = [], [], []
        for slot, encoded in changes.items():
            if encoded is None:
                continue
            if (total := self._total(encoded)) is not None:
                totals.append(TotalRow(slot, total, encoded))
            elif (rank := self._rank(encoded)) is not None:
                extremes.append(ExtremeRow(slot, rank, encoded))
            else:
                partials.append((slot, encoded))
        return SlotChanges(removed=_removed(changes), totals=totals, extremes=extremes, partials=partials)

    def value(self, parts: Parts) -> bytes | None:
        """Return the encoded combination of the parts of a window key; None without parts."""
        encoded = [part for part in (parts.whole, self._encoded(parts.total), parts.extreme) if part is not None]
        encoded.extend(parts.partials)
        return self.combined(encoded) if encoded else None

    def combined(self, partials: list[bytes]) -> bytes:
        """Combine at least one partial, in order.

        Raises:
            ProcessorFailed: the monoid's methods raise on these partials.
        """
        if len(partials) == 1:
            return partials[0]
        try:
            return self._monoid.encode(reduce(self._monoid.combine, map(self._monoid.decode, partials)))
        except Exception as error:
            raise ProcessorFailed(
                f"{len(partials)} partials of {type(self._monoid).__name__} in the store cannot be combined: {type(error).__name__}: {error}. The "
                "store keeps them, and nothing is lost. Fix `combine` or `encode` of the monoid, then start the worker again."
            ) from error

    def _total(self, encoded: bytes) -> Total | None:
        return self._addition.total(self._monoid.decode(encoded)) if self._addition else None

    def _rank(self, encoded: bytes) -> bytes | None:
        return self._rank_of(self._monoid.decode(encoded)) if self._rank_of else None

    def _encoded(self, total: Total | None) -> bytes | None:
        if total is None or self._addition is None:
            return None
        return self._monoid.encode(self._addition.partial(total))


def _removed(changes: Changes) -> list[bytes]:
    return [slot for slot, value in changes.items() if value is None]
