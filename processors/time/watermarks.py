"""Watermarks: estimates of how far the event time of a bucket has advanced.

    event times --lateness behind the newest--> histogram --declared strategy--> bound
    watermark = newest event time - bound; it never decreases

The watermark depends only on the events of the bucket and their order, never on the wall clock or on batches. Reading the bucket again
produces the same watermark at the same event.

Source: Akidau et al., "MillWheel", 2013, sections 4.5 and 6; Chen et al., "Realtime Data Processing at Facebook", 2016, section 2.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import DeclarationError
from ..validation import expect_types
from ..wording import counted

NEVER_MS = -(2**63)
"""The watermark before the first estimate."""
FOREVER_MS = 2**63 - 1
"""The watermark after the last event."""

Times = npt.NDArray[np.int64]
"""Event times or watermarks (milliseconds since 1970, UTC)."""

UPDATE_INTERVAL = 256
"""The number of events between two updates of a bound; for the first events, updates follow after 1, 2, 4, 8, …"""
MEMORY = 65_536
"""The number of observations at which a histogram halves its weights, to adapt to changes of the stream."""

MAX_BOUND_MS = 2**64 - 1
"""The distance between the first and the last event time: with this bound, or a larger one that could not be saved, no watermark advances."""
CAUTION = 32
"""The number of events at which the bound is twice the observed lateness; see docs/decisions/0007."""

_EXACT_BITS = 7  # latenesses below 2**7 ms have a bin of their own; above, 64 bins divide each power of two
_FLOAT_BITS = 53  # whole numbers of this many bits are exact as floats
_BINS = ((64 - _EXACT_BITS) << (_EXACT_BITS - 1)) + (1 << _EXACT_BITS)
"""The number of bins of latenesses up to 64 bits."""


class Lateness:
    """A histogram of lateness: how far events lie behind the newest event before them, in milliseconds.

    The width of a bin is at most 1/64 of its values. Counts are exact and identical on every machine.

    Args:
        counts: observations by bin.
    """

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts = np.zeros(_BINS, np.int64)
        for bin_, count in (counts or {}).items():
            self._counts[bin_] = count
        self._total = int(self._counts.sum())
        self._used = _used(self._counts)
        """The bins from this one on are empty."""

    @property
    def counts(self) -> Mapping[int, int]:
        """Observations by bin."""
        bins = np.flatnonzero(self._counts)
        return dict(zip(bins.tolist(), self._counts[bins].tolist(), strict=True))

    @property
    def observed(self) -> int:
        """The number of observations; `fade` halves it in long streams."""
        return self._total

    def add(self, latenesses: Iterable[int]) -> None:
        """Observe latenesses, none below zero."""
        self.add_bins(_bins_of(np.fromiter(latenesses, np.uint64)))

    def add_bins(self, bins: npt.NDArray[np.int64]) -> None:
        """Observe latenesses by their bins."""
        per_bin = np.bincount(bins)
        self._counts[: len(per_bin)] += per_bin
        self._used = max(self._used, len(per_bin))
        self._total += len(bins)

    def fade(self) -> None:
        """Halve the counts of a large histogram. Separate from `add`, so that the result does not depend on batches."""
        if self._total >= 2 * MEMORY:
            self._counts //= 2
            self._total = int(self._counts.sum())
            self._used = _used(self._counts)

    def quantile(self, share: float) -> int:
        """Return the lateness in milliseconds that a share of the observations does not exceed.

        With few observations, it is the maximum; with none, 0.
        """
        if not self._total:
            return 0
        # The number of observations above the quantile.
        above = min(int((1 - share) * (self._total + 1)), self._total - 1)
        from_greatest = self._counts[: self._used][::-1].cumsum().searchsorted(above, side="right")
        return _greatest_in(self._used - 1 - int(from_greatest))


def _used(counts: npt.NDArray[np.int64]) -> int:
    """Return the number of bins up to the last one with an observation."""
    used = np.flatnonzero(counts)
    return int(used[-1]) + 1 if len(used) else 0


def _bins_of(latenesses: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the bin of each lateness."""
    bits = int(latenesses.max(initial=0)).bit_length()
    if bits <= _EXACT_BITS:
        return latenesses.astype(np.int64)
    if bits > _FLOAT_BITS:
        return np.fromiter(map(_bin_of, latenesses.tolist()), np.int64, len(latenesses))
    lengths = np.frexp(latenesses.astype(np.float64))[1]
    shifts = np.maximum(lengths - _EXACT_BITS, 0).astype(np.int64)
    bins: npt.NDArray[np.int64] = (shifts << (_EXACT_BITS - 1)) + (latenesses.astype(np.int64) >> shifts)
    return bins


def _bin_of(lateness: int) -> int:
    shift = max(lateness.bit_length() - _EXACT_BITS, 0)
    return (shift << (_EXACT_BITS - 1)) + (lateness >> shift)


def _greatest_in(bin_: int) -> int:
    shift = max((bin_ >> (_EXACT_BITS - 1)) - 1, 0)
    return (((bin_ - (shift << (_EXACT_BITS - 1))) + 1) << shift) - 1


class Watermark(Protocol):
    """A strategy for the watermark of a bucket. Implement `bound_ms` to define your own."""

    def bound_ms(self, lateness: Lateness) -> int | None:
        """Return how far the watermark lies behind the newest event time, in milliseconds; None while there are too few observations.

        Called at intervals. The result must depend on the argument alone.
        """
        ...


@dataclass(frozen=True)
class Confidence:
    """A watermark such that a share of the events arrives on time, estimated from the lateness of past events.

    After few events, the bound is larger than the observed lateness, because the next event may be later.

    Args:
        share: the share of events on time, from 0 up to but not including 1.
        warm_up: the number of events of a bucket before its first watermark. The check happens after 1, 2, 4, 8, … events.

    Raises:
        DeclarationError: the share is outside this range, or the warm-up is below 1.

    Examples:
        >>> Confidence(0.999).warm_up
        8
    """

    share: float = 0.99
    warm_up: int = 8

    def __post_init__(self) -> None:
        expect_types("Confidence(…)", self)
        if not 0 <= self.share < 1:
            raise DeclarationError(
                f"Confidence(share={self.share}): the share must be at least 0 and less than 1, such as 0.99. Past events cannot prove that no event "
                "is ever late. For a known bound, declare `watermark = penstock.watermarks.BoundedOutOfOrderness(…)`."
            )
        if self.warm_up < 1:
            raise DeclarationError(f"Confidence(warm_up={self.warm_up}): the warm-up must be at least 1 event.")

    def bound_ms(self, lateness: Lateness) -> int | None:
        """Return the quantile of the lateness, with a margin that shrinks from fivefold after 8 events to almost none after some hundreds."""
        if lateness.observed < self.warm_up:
            return None
        bound_ms = lateness.quantile(self.share)
        return min(bound_ms + bound_ms * CAUTION // lateness.observed, MAX_BOUND_MS)


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """A watermark at a fixed distance behind the newest event.

    Args:
        bound: how far an event may lie behind the newest event before it and still be on time.

    Raises:
        DeclarationError: the bound is negative.
    """

    bound: timedelta = timedelta()

    def __post_init__(self) -> None:
        expect_types("BoundedOutOfOrderness(…)", self)
        if self.bound < timedelta():
            raise DeclarationError(f"BoundedOutOfOrderness(bound={self.bound}): the bound must not be negative.")

    def bound_ms(self, lateness: Lateness) -> int:  # noqa: ARG002 - does not depend on it
        """Return the bound in milliseconds."""
        return self.bound // timedelta(milliseconds=1)


@dataclass(frozen=True)
class UpstreamWatermark:
    """The watermark of the writers of the category: upstream processors or a `WatermarkWriter`.

    It also advances without events: a silent bucket has the watermark of its writers.
    """

    def bound_ms(self, lateness: Lateness) -> None:  # noqa: ARG002 - does not depend on it
        """Return None: events do not determine the watermark."""
        return


class BucketProgress(msgspec.Struct, frozen=True):
    """The saved event time of a bucket.

    Args:
        events: the number of events.
        newest_ms: the newest event time.
        bound_ms: how far the watermark lies behind it; None before the first estimate.
        watermark_ms: the watermark.
        counts: the histogram of `Lateness`.
    """

    events: int = 0
    newest_ms: int = NEVER_MS
    bound_ms: int | None = None
    watermark_ms: int = NEVER_MS
    counts: dict[int, int] = {}


class BucketTime:
    """The event time of one bucket.

    Args:
        strategy: estimates the watermark.
        progress: the saved event time.
    """

    def __init__(self, strategy: Watermark, progress: BucketProgress) -> None:
        self._strategy = strategy
        self._lateness = Lateness(progress.counts)
        self._events = progress.events
        self.newest_ms = progress.newest_ms
        self._bound_ms = progress.bound_ms
        self.watermark_ms = progress.watermark_ms

    @property
    def progress(self) -> BucketProgress:
        """The event time to save."""
        counts = dict(self._lateness.counts)
        return BucketProgress(self._events, self.newest_ms, self._bound_ms, self.watermark_ms, counts)

    @property
    def waits_for(self) -> str:
        """The condition for the first watermark, in words; empty once there is one."""
        if self.watermark_ms != NEVER_MS:
            return ""
        had = f"has had {self._events:,}" if self._events else "has had none"
        if isinstance(self._strategy, Confidence):
            return f"{had} of the {counted(_first_update(self._strategy.warm_up), 'event')} after which its watermark begins"
        return f"{had} of the events from which its watermark follows"

    def observe(self, times: Sequence[int] | Times) -> Times:
        """Add the event times of the next events, in order, and return the watermark after each."""
        observed = np.asarray(times, np.int64)
        newest = np.maximum(np.maximum.accumulate(observed), self.newest_ms)
        # The difference may need 64 bits, and is not negative.
        bins = _bins_of(newest.astype(np.uint64) - observed.astype(np.uint64))
        watermarks = np.empty_like(newest)
        if not len(newest):
            return watermarks
        begin = counted = 0  # the first event with the present bound, and the first that is not in the histogram
        while counted < len(newest):
            update = counted + _next_update(self._events) - self._events - 1  # this event has the next bound
            if begin < update:
                _subtract(newest[begin:update], self._bound_ms, watermarks[begin:update])
            next_bins = bins[counted : update + 1]
            self._lateness.add_bins(next_bins)
            self._events += len(next_bins)
            begin, counted = update, update + 1
            if counted <= len(newest):
                self._lateness.fade()
                self._bound_ms = self._strategy.bound_ms(self._lateness)
        if begin < len(newest):
            _subtract(newest[begin:], self._bound_ms, watermarks[begin:])
        watermarks[0] = max(int(watermarks[0]), self.watermark_ms)
        np.maximum.accumulate(watermarks, out=watermarks)
        self.newest_ms, self.watermark_ms = int(newest[-1]), int(watermarks[-1])
        return watermarks


def _subtract(newest: Times, bound: int | None, watermarks: Times) -> None:
    """Set each watermark to its newest event time minus a bound; times before the first possible one are that."""
    if bound is None:
        watermarks[:] = NEVER_MS
    elif bound <= FOREVER_MS and int(newest[0]) - bound >= NEVER_MS:
        np.subtract(newest, bound, out=watermarks)
    else:  # the bound or the difference may need more than 64 bits
        watermarks[:] = [max(time - bound, NEVER_MS) for time in newest.tolist()]


def _next_update(events: int) -> int:
    """Return the number of events at the next update of the bound."""
    return 1 << events.bit_length() if events < UPDATE_INTERVAL else events + UPDATE_INTERVAL - events % UPDATE_INTERVAL


def _first_update(events: int) -> int:
    """Return the number of events at the first update with at least `events` events."""
    update = 1
    while update < events:
        update = _next_update(update)
    return update
