"""Retries of interrupted requests to a remote store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from ...processors import CallRetry, LogRateLimiter
from .errors import StoreInterrupted, StoreUnreachable

T = TypeVar("T")

RETRY_LIMIT_S = 15.0
"""The time limit of one call to an unreachable store. It covers a restart. After a longer outage (a failover takes 10 to 40 s), the worker
returns to its last checkpoint, waits without a limit, and keeps polling to stay in its group."""

_LOG = logging.getLogger("penstock.state")


class StoreRetry:
    """Repeats interrupted requests up to a time limit.

    Args:
        limit_s: seconds from the first failure on.
        clock: monotonic seconds.
        pause: sleeps for some seconds.
        waiting: entered for each call, to note that the caller waits for the store.
    """

    def __init__(
        self,
        limit_s: float = RETRY_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        *,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._waiting = waiting
        self._retry = CallRetry(limit_s, clock=clock, pause=pause)
        self._log_limiter = LogRateLimiter(clock=clock)

    def call(self, attempt: Callable[[], T]) -> T:
        """Return the result of an attempt, which must be repeatable after an unknown outcome.

        Raises:
            StoreUnreachable: every attempt up to the limit was interrupted.
        """
        with self._waiting():
            return self._repeated(attempt)

    def _repeated(self, attempt: Callable[[], T]) -> T:
        try:
            return self._retry.call(attempt, StoreInterrupted, self._log_outage)
        except StoreInterrupted as error:
            raise StoreUnreachable(
                f"{error} {self._retry.summary} The save either took effect as a whole, with its position, or not at all, so every checkpoint "
                "is consistent. A worker waits for the store and resumes by itself; start other commands again when the store is back."
            ) from error

    def _log_outage(self, error: Exception) -> None:
        if self._log_limiter.is_due():
            _LOG.warning("%s The request is repeated for up to %.0f s.", error, self._retry.limit_s)
