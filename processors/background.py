"""Work beside the main thread, until its owner is closed."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread


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
