"""Repeating what was interrupted: exponential backoff with full jitter, up to a limit."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from .errors import StoreInterrupted, StoreUnreachable

T = TypeVar("T")

RETRY_LIMIT_S = 60.0
"""How long an unreachable store is waited for; a failover of managed PostgreSQL or Redis takes 10 to 40 s."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0
_LOG = logging.getLogger("penstock.state")


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

    def call(self, attempt: Callable[[], T]) -> T:
        """Return what the attempt returns. It must be fit for being repeated after an outcome that nobody knows.

        Raises:
            StoreUnreachable: it was interrupted again and again, up to the limit.
        """
        try:
            return attempt()
        except StoreInterrupted as error:
            _LOG.warning("%s It is tried again for up to %.0f s.", error, self._limit_s)
            return self._again(attempt, error)

    def _again(self, attempt: Callable[[], T], error: StoreInterrupted) -> T:
        deadline = self._clock() + self._limit_s
        longest = _FIRST_PAUSE_S
        while self._clock() < deadline:
            # Full jitter: the workers that lost a store at one moment do not come back to it at one moment.
            self._pause(min(random.uniform(0, longest), max(deadline - self._clock(), 0)))  # noqa: S311 - spread, not secret
            longest = min(2 * longest, _LONGEST_PAUSE_S)
            try:
                return attempt()
            except StoreInterrupted as again:
                error = again
        raise StoreUnreachable(
            f"{error} It was tried again for {self._limit_s:.0f} s. The store holds either all or nothing of what was being "
            "saved, with the position that goes with it, so no checkpoint is torn: start again when the store is back."
        ) from error
