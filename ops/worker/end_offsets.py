"""Asking the bus how far its buckets go, beside the loop: it may take long to answer, or not answer at all."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor, Future
from typing import NamedTuple

from ...transport.bus import Bus
from ...transport.errors import BusError
from ...transport.messages import Bucket
from ..clock import Clock

_LOG = logging.getLogger("penstock.worker")


class Answer(NamedTuple):
    """Where buckets ended.

    Args:
        asked_s: when that was asked; they may have gone on since.
        ends: the offset after the last event of each, also of transactions that are still open.
    """

    asked_s: float
    ends: Mapping[Bucket, int]


class Asking:
    """Asks one question at a time. One thread calls.

    Args:
        bus: whom.
        threads: wait for the answer.
        clock: tells when it was asked.
    """

    def __init__(self, bus: Bus, threads: Executor, clock: Clock) -> None:
        self._bus = bus
        self._threads = threads
        self._clock = clock
        self._under_way: Future[Answer | None] | None = None
        self.fails = False
        """Whether the last question was not answered."""

    @property
    def under_way(self) -> bool:
        """Whether an answer is waited for."""
        return self._under_way is not None

    def ask(self, buckets: Collection[Bucket]) -> None:
        """Ask where these end; returns at once."""
        self._under_way = self._threads.submit(self._answer, frozenset(buckets))

    def answer(self) -> Answer | None:
        """Return the answer, if it has come since the last call."""
        if self._under_way is None or not self._under_way.done():
            return None
        answer, self._under_way = self._under_way.result(), None
        self.fails = answer is None
        return answer

    def _answer(self, buckets: Collection[Bucket]) -> Answer | None:
        asked_s = self._clock.monotonic_s()
        try:
            return Answer(asked_s, self._bus.catalog.ends_of(buckets))
        except BusError as error:
            if not self.fails:
                _LOG.info("No bucket is taken for idle until the bus says again where its buckets end: %s", error)
            return None
