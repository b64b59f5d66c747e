"""How the partials of a monoid are split into what a store can merge by itself, and put together again when they are read.

Counts, sums and means are numbers that every database adds up; of minima and maxima it keeps the one of larger rank. All other
partials are appended and merged by whoever reads them, or by the compactor, without which they grow in number with every save. What a store adds up must come out as `combine` would
have it: exact for whole numbers, which are therefore added apart from floats.

Distinct is appended too, and not handed to PFADD: its partials are DataSketches' HLL sketches, and those registers are filled by another
hash function than Redis's are. Redis could only build its own HyperLogLog from the raw observations, which a checkpoint no longer has;
and PFMERGE takes Redis's sketches alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

from ...processors.keyed_state.changes import Changes
from ...processors.monoids import Count, Max, Mean, Min, Monoid, Sum
from .protocols import ExtremeRow, Parts, SlotChanges, Total, TotalRow
from .sort_keys import order_key, reverse_order_key

_LARGEST_FRACTION = 1e290
"""Larger floats, infinities and NaN are appended: a sum of smaller ones would take 10¹⁸ saves to overflow, which databases refuse."""


class _Adding(NamedTuple):
    """How a partial becomes a total, if it can, and a total a partial again."""

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


# By the exact class: a subclass may combine in its own way.
_ADDING: dict[type[Monoid[Any]], _Adding] = {
    Count: _Adding(_total_of_number, _number_of_total),
    Sum: _Adding(_total_of_number, _number_of_total),
    Mean: _Adding(_total_of_mean, _mean_of_total),
}
_RANKING: dict[type[Monoid[Any]], Callable[[Any], bytes | None]] = {Max: order_key, Min: reverse_order_key}


class Merging:
    """Splits and joins the partials of one monoid."""

    def __init__(self, monoid: Monoid[Any]) -> None:
        self._monoid = monoid
        self._adding = _ADDING.get(type(monoid))
        self._ranking = _RANKING.get(type(monoid))

    def overwriting(self, changes: Changes) -> SlotChanges:
        """Return the changes as values that replace what there is."""
        return SlotChanges(
            removed=_removed(changes), wholes=[(slot, value) for slot, value in changes.items() if value is not None]
        )

    def appending(self, changes: Changes) -> SlotChanges:
        """Return the changes as partials that the store adds to what there is."""
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
        """Return the combination of what is kept at a slot, encoded; None where nothing is."""
        encoded = [part for part in (parts.whole, self._encoded(parts.total), parts.extreme) if part is not None]
        encoded.extend(parts.partials)
        return self.combined(encoded) if encoded else None

    def combined(self, partials: list[bytes]) -> bytes:
        """Return one partial for several, in their order; at least one."""
        if len(partials) == 1:
            return partials[0]
        return self._monoid.encode(reduce(self._monoid.combine, map(self._monoid.decode, partials)))

    def _total(self, encoded: bytes) -> Total | None:
        return self._adding.total(self._monoid.decode(encoded)) if self._adding else None

    def _rank(self, encoded: bytes) -> bytes | None:
        return self._ranking(self._monoid.decode(encoded)) if self._ranking else None

    def _encoded(self, total: Total | None) -> bytes | None:
        if total is None or self._adding is None:
            return None
        return self._monoid.encode(self._adding.partial(total))


def _removed(changes: Changes) -> list[bytes]:
    return [slot for slot, value in changes.items() if value is None]
