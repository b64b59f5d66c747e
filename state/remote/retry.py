"""Repeating what was interrupted, up to a limit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ...processors.backoff import pauses
from .errors import StoreInterrupted, StoreUnreachable

T = TypeVar("T")

RETRY_LIMIT_S = 15.0
"""How long one call waits for an unreachable store. A restart is over by then; what takes longer (a failover takes 10 to 40 s) finds
the worker back at its last checkpoint, where it waits without a limit and goes on polling meanwhile, so that it stays in its group."""

REPEAT_LINE_S = 30.0
"""How long a log line that would say the same again is left out."""

_LOG = logging.getLogger("penstock.state")


class LogRateLimiter:
    """Tells whether a line that says the same each time is due: the first time, then at most every 30 s. Any thread may ask.

    Args:
        clock: seconds, steadily growing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_s: float | None = None
        self._asking = threading.Lock()

    def due(self) -> bool:
        """Tell whether to say it now; who is told so says it."""
        with self._asking:
            now_s = self._clock()
            if self._said_s is not None and now_s - self._said_s < REPEAT_LINE_S:
                return False
            self._said_s = now_s
            return True


class Retrying:
    """Repeats an attempt until it succeeds or the limit is reached.

    Args:
        limit_s: seconds from the first failure.
        clock: seconds, steadily growing.
        pause: waits for so many seconds.
    """

    def __init__(
        self,
        limit_s: float = RETRY_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._pause = pause
        self._seldom = LogRateLimiter(clock)

    def call(self, attempt: Callable[[], T]) -> T:
        """Return what the attempt returns. It must be fit for being repeated after an outcome that nobody knows.

        Raises:
            StoreUnreachable: it was interrupted again and again, up to the limit.
        """
        try:
            return attempt()
        except StoreInterrupted as error:
            if self._seldom.due():
                _LOG.warning("%s It is tried again for up to %.0f s.", error, self._limit_s)
            return self._again(attempt, error)

    def _again(self, attempt: Callable[[], T], error: StoreInterrupted) -> T:
        deadline = self._clock() + self._limit_s
        waits = pauses()
        while self._clock() < deadline:
            self._pause(min(next(waits), max(deadline - self._clock(), 0)))
            try:
                return attempt()
            except StoreInterrupted as again:
                error = again
        raise StoreUnreachable(
            f"{error} It was tried again for {self._limit_s:.0f} s. The store holds either all or nothing of what was being "
            "saved, with the position that goes with it, so no checkpoint is torn: a worker waits for the store and goes on by itself; "
            "anything else, start again when the store is back."
        ) from error
