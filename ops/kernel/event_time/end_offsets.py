"""Requests for the end offsets of buckets, beside the loop: the bus may take long to answer, or fail."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor, Future
from math import inf
from typing import NamedTuple

from ....transport import Bucket, Bus, BusError
from ...shell import MachineClock

_LOG = logging.getLogger("penstock.worker")

PAUSE = 20
"""The pause after a request, in multiples of its duration, before events may cause another: under load, requests take a twentieth of the time."""
LONGEST_PAUSE_S = 1.0
"""The longest such pause, and the pause after a failure."""


class EndOffsets(NamedTuple):
    """The end offsets of buckets.

    Args:
        asked_s: when the request began; the buckets may have grown since.
        ends: the offset after the last event of each bucket, open transactions included.
    """

    asked_s: float
    ends: Mapping[Bucket, int]


class EndOffsetRequest:
    """Requests end offsets, one request at a time. One thread.

    Args:
        bus: contains the buckets.
        threads: wait for the answer.
        clock: dates the request.
    """

    def __init__(self, bus: Bus, threads: Executor, clock: MachineClock) -> None:
        self._bus = bus
        self._threads = threads
        self._clock = clock
        self._future: Future[EndOffsets | None] | None = None
        self._begun_s = self._may_hurry_s = -inf
        self.has_failed = False
        """Whether the last request failed."""

    @property
    def in_progress(self) -> bool:
        """Whether a request has no answer yet."""
        return self._future is not None

    @property
    def may_hurry(self) -> bool:
        """Whether a request that events cause may begin: the last one ended long ago, measured by its duration."""
        return not self.in_progress and self._clock.monotonic_s() >= self._may_hurry_s

    def begin(self, buckets: Collection[Bucket]) -> None:
        """Request the ends of buckets; return at once."""
        self._begun_s = self._clock.monotonic_s()
        self._future = self._threads.submit(self._request, frozenset(buckets))

    def answer(self) -> EndOffsets | None:
        """Return the answer once; None without a new one."""
        if self._future is None or not self._future.done():
            return None
        answer, self._future = self._future.result(), None
        self.has_failed = answer is None
        now_s = self._clock.monotonic_s()
        self._may_hurry_s = now_s + (
            LONGEST_PAUSE_S if self.has_failed else min((now_s - self._begun_s) * PAUSE, LONGEST_PAUSE_S)
        )
        return answer

    def _request(self, buckets: Collection[Bucket]) -> EndOffsets | None:
        asked_s = self._clock.monotonic_s()
        try:
            return EndOffsets(asked_s, self._bus.catalog.ends_of(buckets))
        except BusError as error:
            if not self.has_failed:
                _LOG.info("No bucket counts as idle until the bus returns end offsets again: %s", error)
            return None
