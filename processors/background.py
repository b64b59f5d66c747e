"""Work beside the main thread, until its owner is closed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from .errors import PenstockError
from .retry import LogRateLimiter

RETRY_S = 1.0
"""The pause after which work that failed is repeated."""


class BackgroundThread:
    """A thread that does not keep its process alive. Start it once; close it, started or not.

    Args:
        name: the name of the thread, for stacks in logs.
        work: runs in the thread. It returns when `is_closed`, and pauses only with `wait`.
    """

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self._closed = Event()
        self._thread = Thread(target=work, name=name, daemon=True)

    def start(self) -> None:
        """Start the work; return at once."""
        self._thread.start()

    def close(self, limit_s: float | None = None) -> None:
        """Let the work end, and wait for it.

        Args:
            limit_s: the longest wait, after which work that hangs is abandoned; None to wait for its end.
        """
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def wait(self, seconds: float) -> bool:
        """Pause the work until the thread is closed, at most for some seconds; return whether it is closed."""
        return self._closed.wait(seconds)

    @property
    def is_closed(self) -> bool:
        """Whether the work should end."""
        return self._closed.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether the work has started and not ended."""
        return self._thread.is_alive()


class RetryingThread(BackgroundThread):
    """A background thread that repeats its work until it is closed, whatever errors it has.

    Args:
        name: the name of the thread.
        work: one round. It may take any time, and returns when the thread `is_closed`.
        log: the logger of errors.
        consequence: what an error means, in sentences for the log.
        failed: takes the reason why a round failed.
        every_s: the pause after each round.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], object],
        *,
        log: logging.Logger,
        consequence: str,
        failed: Callable[[str], object],
        every_s: float = RETRY_S,
    ) -> None:
        super().__init__(name, self._run)
        self._work = work
        self._log = log
        self._consequence = consequence
        self._failed = failed
        self._every_s = every_s

    def _run(self) -> None:
        limiter = LogRateLimiter()
        while not self.is_closed:
            try:
                self._work()
            except PenstockError as error:
                self._failed(str(error))
                if limiter.is_due():
                    self._log.warning("%s %s", self._consequence, error)
            except Exception as error:  # noqa: BLE001 - logged; the owner continues with what it has
                self._failed(f"The server itself failed: {type(error).__name__}: {error}.")
                self._log.exception("%s The server itself failed, and tries again.", self._consequence)
            self.wait(self._every_s)
