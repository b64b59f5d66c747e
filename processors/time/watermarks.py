"""Watermarks: up to which event time the events of a bucket have come, as far as can be told from those that came.

    event times --lateness behind the newest--> a sketch --the declared way--> bound
    newest event time - bound = watermark, which never goes back

All of it follows from the events of the bucket and their order alone, never from the time of day or from how they were batched:
whoever reads the bucket again comes to the same watermark at the same event.

Source: Akidau et al., "MillWheel", 2013, sections 4.5 and 6; Chen et al., "Realtime Data Processing at Facebook", 2016, section 2.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from operator import sub
from typing import Protocol

import msgspec

from ..errors import DeclarationError
from ..validation import expect_types

NEVER_MS = -(2**63)
"""The watermark of a bucket of which nothing can be told yet."""
FOREVER_MS = 2**63 - 1
"""A watermark that nothing comes after."""

STRETCH = 256
"""After how many events of a bucket its bound is looked at again; of its first ones, after 1, 2, 4, 8, …"""
MEMORY = 65_536
"""Once it holds twice as many observations, a sketch halves their weights: a stream may change its ways."""

CAUTION = 32
"""After how many events a bucket's bound is twice what was seen; see docs/decisions/0007."""

_EXACT_BITS = 7  # latenesses below 2**7 ms have a bin of their own; above, 64 bins divide each power of two


class Lateness:
    """How far the events of a bucket lay behind the newest one before them, in milliseconds, as a histogram.

    Its bins are as wide as a sixty-fourth of what lies in them. It is exact about how many, and the same on every machine.

    Args:
        counts: observations by bin.
    """

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts = Counter(counts or {})
        self._total = sum(self._counts.values())

    @property
    def counts(self) -> Mapping[int, int]:
        """Observations by bin."""
        return self._counts

    @property
    def observed(self) -> int:
        """How many observations it holds; long streams are halved now and then."""
        return self._total

    def add(self, latenesses: Iterable[int]) -> None:
        """Observe latenesses, none below zero."""
        for lateness, times in Counter(latenesses).items():
            self._counts[_bin_of(lateness)] += times
            self._total += times

    def fade(self) -> None:
        """Let what was observed count for half, if that is much. Not done by `add`: it would matter how events were batched."""
        if self._total >= 2 * MEMORY:
            self._counts = Counter({bin_: half for bin_, times in self._counts.items() if (half := times // 2)})
            self._total = sum(self._counts.values())

    def quantile(self, share: float) -> int:
        """Return a lateness that this share of the observations does not exceed: of few, the greatest; 0 of none."""
        above = min(int((1 - share) * (self._total + 1)), self._total - 1)  # how many may lie above it
        for bin_ in sorted(self._counts, reverse=True):
            above -= self._counts[bin_]
            if above < 0:
                return _greatest_in(bin_)
        return 0


def _bin_of(lateness: int) -> int:
    shift = max(lateness.bit_length() - _EXACT_BITS, 0)
    return (shift << (_EXACT_BITS - 1)) + (lateness >> shift)


def _greatest_in(bin_: int) -> int:
    shift = max((bin_ >> (_EXACT_BITS - 1)) - 1, 0)
    return (((bin_ - (shift << (_EXACT_BITS - 1))) + 1) << shift) - 1


class Watermark(Protocol):
    """How the watermark of a bucket follows from what came; one's own is any value with this method."""

    def bound_ms(self, seen: Lateness) -> int | None:
        """Return how far the watermark lies behind the newest event time, in milliseconds; None where it is too early to tell.

        Asked now and then. The same observations must give the same answer: nothing else may have a part in it.
        """
        ...


@dataclass(frozen=True)
class Confidence:
    """The watermark lies so far behind that a chosen share of the events has come before it passes them.

    While it has seen few, it keeps further away than those were late: the next one may well be later than all of them.

    Args:
        share: from 0 up to, not including, 1.
        warm_up: how many events of a bucket are watched before it has a watermark; it is looked after 1, 2, 4, 8, … of them.

    Raises:
        DeclarationError: another share, or a warm-up of no event.
    """

    share: float = 0.99
    warm_up: int = 8

    def __post_init__(self) -> None:
        expect_types("Confidence(…)", self)
        if not 0 <= self.share < 1:
            raise DeclarationError(
                f"A watermark with a confidence of {self.share}: give a share from 0 up to, not including, 1, such as 0.99. "
                "That nothing ever comes late cannot be seen from what has come; where you know it, declare "
                "`watermark = penstock.watermarks.BoundedOutOfOrderness(…)`."
            )
        if self.warm_up < 1:
            raise DeclarationError(f"A watermark after {self.warm_up} events: it needs at least one to begin with.")

    def bound_ms(self, seen: Lateness) -> int | None:
        """Return the quantile of the latenesses, five times as much after 8 events, and hardly more after some hundreds."""
        if seen.observed < self.warm_up:
            return None
        bound_ms = seen.quantile(self.share)
        return bound_ms + bound_ms * CAUTION // seen.observed


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """The watermark lies a fixed time behind the newest event.

    Args:
        bound: how far events may lie behind the newest one before them and still be in time.

    Raises:
        DeclarationError: a bound below zero.
    """

    bound: timedelta = timedelta()

    def __post_init__(self) -> None:
        expect_types("Behind(…)", self)
        if self.bound < timedelta():
            raise DeclarationError(f"A watermark of {self.bound} behind the newest event: that would be ahead of it.")

    def bound_ms(self, seen: Lateness) -> int:  # noqa: ARG002 - nothing is to be learned
        """Return the fixed bound."""
        return self.bound // timedelta(milliseconds=1)


@dataclass(frozen=True)
class UpstreamWatermark:
    """The watermark is what those promise that write the category: the processors before this one, or an injector.

    It is as good as theirs is, and comes with silence, too: a bucket into which they write nothing is as far as they are.
    """

    def bound_ms(self, seen: Lateness) -> None:  # noqa: ARG002 - nothing is to be learned
        """Return None: what came tells nothing."""
        return


class BucketProgress(msgspec.Struct, frozen=True):
    """How far the event time of a bucket has come, as it is saved.

    Args:
        events: how many were seen.
        newest_ms: the newest event time among them.
        bound_ms: how far the watermark lies behind it; None before the first.
        watermark_ms: the watermark.
        counts: the latenesses, as `Lateness` counts them.
    """

    events: int = 0
    newest_ms: int = NEVER_MS
    bound_ms: int | None = None
    watermark_ms: int = NEVER_MS
    counts: dict[int, int] = {}


class BucketTime:
    """Follows the event time of one bucket.

    Args:
        way: how its watermark follows from what came.
        progress: where it goes on.
    """

    def __init__(self, way: Watermark, progress: BucketProgress) -> None:
        self._way = way
        self._lateness = Lateness(progress.counts)
        self._events = progress.events
        self._newest_ms = progress.newest_ms
        self._bound_ms = progress.bound_ms
        self.watermark_ms = progress.watermark_ms

    @property
    def progress(self) -> BucketProgress:
        """How far it is."""
        counts = dict(self._lateness.counts)
        return BucketProgress(self._events, self._newest_ms, self._bound_ms, self.watermark_ms, counts)

    @property
    def waits_for(self) -> str:
        """What its watermark waits for before it begins, in words; empty where it has begun."""
        if self.watermark_ms != NEVER_MS:
            return ""
        had = f"has had {self._events:,}" if self._events else "has had none"
        if isinstance(self._way, Confidence):
            return f"{had} of the {_look_from(self._way.warm_up):,} events after which its watermark begins"
        return f"{had} of the events from which its watermark follows"

    def observe(self, times: Sequence[int]) -> list[int]:
        """Take the event times of the next events, in order; return the watermark after each."""
        watermarks: list[int] = []
        begin = 0
        while begin < len(times):
            end = begin + _next_look(self._events) - self._events
            watermarks += self._observe_stretch(times[begin:end])
            begin = end
        return watermarks

    def _observe_stretch(self, times: Sequence[int]) -> list[int]:
        newest = list(accumulate(times, max, initial=self._newest_ms))
        del newest[0]
        self._lateness.add(map(sub, newest, times))
        watermarks = self._behind(newest)
        self._newest_ms, self.watermark_ms = newest[-1], watermarks[-1]
        if _next_look(self._events) == self._events + len(times):
            self._lateness.fade()
            self._bound_ms = self._way.bound_ms(self._lateness)
            [self.watermark_ms] = watermarks[-1:] = self._behind(newest[-1:])
        self._events += len(times)
        return watermarks

    def _behind(self, newest: Sequence[int]) -> list[int]:
        bound, floor = self._bound_ms, self.watermark_ms
        if bound is None:
            return [floor] * len(newest)
        return [moved if (moved := time - bound) > floor else floor for time in newest]


def _next_look(events: int) -> int:
    """Return after which event the bound is looked at next, when there were so many."""
    return 1 << events.bit_length() if events < STRETCH else events + STRETCH - events % STRETCH


def _look_from(events: int) -> int:
    """Return after which event it is looked for the first time when there are so many."""
    look = 1
    while look < events:
        look = _next_look(look)
    return look
