"""Sketches: approximate aggregates in a few kilobytes, with a documented error.

Partials are sketches of Apache DataSketches in its own format, which its Java and C++ editions also read. Partials with different settings
combine; the coarser setting then determines the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from .base import Monoid

if TYPE_CHECKING:
    from datasketches import hll_sketch, hll_union, kll_doubles_sketch

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_to_bytes = msgspec.msgpack.Encoder().encode


@cache
def _library() -> Any:
    """Import the library at its first use: it imports NumPy, which is slow and which most processors do not need."""
    import datasketches  # noqa: PLC0415 - see above

    return datasketches


def _one_byte_per_register() -> Any:
    """Return the sketch type with the fastest updates; it uses 2**lg_k bytes."""
    return _library().tgt_hll_type.HLL_8


class Estimate(msgspec.Struct, frozen=True):
    """An estimate. The exact number is between `low` and `high` with 95% confidence (two standard errors)."""

    estimate: float
    low: float
    high: float


class Distinct(Monoid["hll_sketch"]):
    """The approximate number of distinct observations: a HyperLogLog sketch with 2**lg_k registers.

    The relative standard error is 1.04 / √(2**lg_k) for any count, and much smaller for counts below 2**lg_k / 10:

    ====  =======  =======
    lg_k  bytes    error
    ====  =======  =======
    10    1 KiB    3.2%
    12    4 KiB    1.6%
    14    16 KiB   0.81%
    16    64 KiB   0.41%
    ====  =======  =======

    An observation is any value that MessagePack can encode. Values of different types are distinct (1, 1.0, True and "1"), and so are
    tuples of them. The laws hold exactly, in any grouping and order: a union takes the maximum of each register, and `value` depends only on
    the registers. DataSketches has a sharper estimate for sketches that were never merged; it is not used, so that stream and batch agree.

    Args:
        lg_k: the base-2 logarithm of the number of registers, from 7 to 21.

    Raises:
        ValueError: lg_k is out of range.

    Source: Flajolet et al., "HyperLogLog", 2007; Apache DataSketches' HLL sketch.
    """

    commutative = True
    folds_in_place = True

    def __init__(self, lg_k: int = 12) -> None:
        if not 7 <= lg_k <= 21:
            raise ValueError(
                f"Distinct(lg_k={lg_k}) is out of range. Give lg_k from 7 (error 9%, 128 bytes per key and window) to 21 (error 0.07%, 2 MiB); "
                "12 (1.6%, 4 KiB) is enough for most uses."
            )
        self.lg_k = lg_k

    @property
    def relative_error(self) -> float:
        """The relative standard error: two of three estimates are within it."""
        return float(_library().hll_sketch.get_rel_err(False, True, self.lg_k, 1))

    def identity(self) -> hll_sketch:
        """Return a new empty sketch."""
        return _library().hll_sketch(self.lg_k, _one_byte_per_register())

    def lift(self, observation: Any) -> hll_sketch:
        """Return a new sketch of one observation."""
        return self.fold(self.identity(), observation)

    def combine(self, left: hll_sketch, right: hll_sketch) -> hll_sketch:
        """Return a new sketch of the union."""
        return self._union(left, right).get_result(_one_byte_per_register())

    def fold(self, accumulator: hll_sketch, observation: Any) -> hll_sketch:
        """Add the observation to the accumulator."""
        accumulator.update(observation if _is_hashed_exactly(observation) else _as_text(observation))
        return accumulator

    def value(self, partial: hll_sketch) -> Estimate:
        """Return the estimated number of distinct observations, with its bounds."""
        registers = self._union(partial, partial)  # the estimate of a union depends only on its registers
        return Estimate(registers.get_estimate(), registers.get_lower_bound(2), registers.get_upper_bound(2))

    def dump(self, value: hll_sketch) -> Any:
        """Return DataSketches' bytes."""
        return value.serialize_compact()

    def load(self, dumped: Any) -> hll_sketch:
        """Return the sketch."""
        return _library().hll_sketch.deserialize(dumped)

    def same(self, left: hll_sketch, right: hll_sketch) -> bool:
        """Return whether both sketches and their union have the same estimate."""
        return self.value(left) == self.value(right) == self.value(self.combine(left, right))

    def within_error(self, left: Any, right: Any) -> bool | None:
        """Return whether the bounds of two estimates overlap, at two standard errors below and above each."""
        bounds = self._bounds(left), self._bounds(right)
        if bounds[0] is None or bounds[1] is None:
            return None
        return max(bounds[0][0], bounds[1][0]) <= min(bounds[0][1], bounds[1][1])

    def _bounds(self, estimate: Any) -> tuple[float, float] | None:
        if isinstance(estimate, dict) and estimate.keys() >= {"low", "high"}:
            return estimate["low"], estimate["high"]
        if isinstance(estimate, (int, float)) and not isinstance(estimate, bool):
            return estimate * (1 - 2 * self.relative_error), estimate * (1 + 2 * self.relative_error)
        return None

    def _union(self, left: hll_sketch, right: hll_sketch) -> hll_union:
        union = _library().hll_union(self.lg_k)
        union.update(left)
        union.update(right)
        return union


def _is_hashed_exactly(observation: Any) -> bool:
    # DataSketches ignores "", and converts ints beyond 64 bits to floats, so that close numbers would be equal.
    kind = type(observation)
    if kind is str:
        return bool(observation)
    return kind is float or (kind is int and _INT64_MIN <= observation <= _INT64_MAX)


def _as_text(observation: Any) -> str:
    return "\0" + _to_bytes(observation).decode("latin-1")


class Quantiles(Monoid["kll_doubles_sketch"]):
    """Approximate quantiles of numbers: a KLL sketch. Ignores NaN.

    The error is in rank: the estimated median is the exact quantile of a rank within `rank_error` of 0.5, with 99% confidence. The error
    is 1.33% for k = 200 (about 4 KiB), 0.28% for k = 1000 (about 20 KiB), 0.06% for k = 5000. The smallest and the largest observation are
    exact, and so is every quantile of up to k observations.

    A full sketch drops every other observation at random, so two runs over the same events may differ. The laws hold within the error: the
    count, the smallest and the largest observation are equal, and ranks differ by at most the errors of both. `same` allows three times
    `rank_error`.

    Args:
        ranks: the ranks of the quantiles to return, from 0 (smallest) to 1 (largest).
        k: the accuracy, from 8 to 65535.

    Raises:
        ValueError: a rank or k is out of range.

    Source: Karnin, Lang and Liberty, "Optimal Quantile Approximation in Streams", 2016; Apache DataSketches' KLL sketch.
    """

    commutative = True
    folds_in_place = True

    def __init__(self, ranks: Sequence[float] = (0.5, 0.9, 0.99), k: int = 200) -> None:
        if not all(0 <= rank <= 1 for rank in ranks):
            raise ValueError(
                f"Quantiles(ranks={ranks!r}): a rank is out of range. Give ranks from 0 (smallest) to 1 (largest); 0.5 is the median."
            )
        if not 8 <= k <= 65535:
            raise ValueError(
                f"Quantiles(k={k}) is out of range. Give k from 8 to 65535; the rank error is 1.33% for 200 and 0.28% for 1000."
            )
        self.ranks = tuple(ranks)
        self.k = k

    @property
    def rank_error(self) -> float:
        """The maximum difference between the rank of a returned quantile and the requested rank, with 99% confidence."""
        return float(_library().kll_doubles_sketch.get_normalized_rank_error(self.k, False))

    def identity(self) -> kll_doubles_sketch:
        """Return a new empty sketch."""
        return _library().kll_doubles_sketch(self.k)

    def lift(self, observation: float) -> kll_doubles_sketch:
        """Return a new sketch of one observation."""
        return self.fold(self.identity(), observation)

    def combine(self, left: kll_doubles_sketch, right: kll_doubles_sketch) -> kll_doubles_sketch:
        """Return a new sketch of the observations of both."""
        merged = copy(left)
        merged.merge(right)
        return merged

    def fold(self, accumulator: kll_doubles_sketch, observation: float) -> kll_doubles_sketch:
        """Add the number to the accumulator."""
        accumulator.update(observation)
        return accumulator

    def value(self, partial: kll_doubles_sketch, ranks: Sequence[float] | None = None) -> list[float]:
        """Return one quantile per rank; an empty list without observations.

        Args:
            partial: the sketch.
            ranks: the ranks. Default: `self.ranks`.
        """
        if partial.is_empty():
            return []
        requested = self.ranks if ranks is None else ranks
        # The library selects ranks 0 and 1 from the retained observations, which may not include the extremes.
        ends = {0.0: partial.get_min_value(), 1.0: partial.get_max_value()}
        found = partial.get_quantiles(requested, inclusive=True)
        return [ends.get(rank, quantile) for rank, quantile in zip(requested, found, strict=True)]

    def dump(self, value: kll_doubles_sketch) -> Any:
        """Return DataSketches' bytes."""
        return value.serialize()

    def load(self, dumped: Any) -> kll_doubles_sketch:
        """Return the sketch."""
        return _library().kll_doubles_sketch.deserialize(dumped)

    def same(self, left: kll_doubles_sketch, right: kll_doubles_sketch) -> bool:
        """Return whether both have the same number of observations and, within three times the rank error, the same quantiles."""
        if left.n != right.n or left.is_empty():
            return bool(left.n == right.n)
        ranks = [step / 20 for step in range(21)]
        if not (left.is_estimation_mode() or right.is_estimation_mode()):
            ranks = [(step + 0.5) / left.n for step in range(left.n)]
            return self.value(left, ranks) == self.value(right, ranks)
        error = 3 * max(left.normalized_rank_error(False), right.normalized_rank_error(False))
        return self.value(left, (0, 1)) == self.value(right, (0, 1)) and all(
            right.get_rank(quantile) - error <= rank <= right.get_rank(quantile, inclusive=True) + error
            for rank, quantile in zip(ranks, self.value(left, ranks), strict=True)
        )

    def within_error(self, left: Any, right: Any) -> bool | None:
        """Return whether each quantile of one side can have the same rank on the other side, within the errors of both.

        Only the quantiles at `ranks` are known, so the rank of a value on the other side is between the ranks of its neighbours there.
        The result is False if that whole range is further than twice `rank_error` from the value's own rank, True if no part of it
        is, and None otherwise.
        """
        if not (_are_numbers(left) and _are_numbers(right) and len(left) == len(right) == len(self.ranks)):
            return None
        verdicts = {*self._rank_matches(left, right), *self._rank_matches(right, left)}
        return False if False in verdicts else None if None in verdicts else True

    def _rank_matches(self, quantiles: Sequence[float], others: Sequence[float]) -> Iterator[bool | None]:
        known = sorted(zip(others, self.ranks, strict=True))
        allowed = 2 * self.rank_error
        for quantile, rank in zip(quantiles, self.ranks, strict=True):
            lowest = max((at for other, at in known if other < quantile), default=0.0)
            highest = min((at for other, at in known if other > quantile), default=1.0)
            same = [at for other, at in known if other == quantile]
            if same and same[0] - allowed <= rank <= same[-1] + allowed:
                yield True
            elif rank + allowed < lowest or rank - allowed > highest:
                yield False
            else:
                yield True if rank - allowed <= lowest and highest <= rank + allowed else None


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, (int, float)) for value in values)
