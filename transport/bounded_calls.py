"""Calls of client libraries with a reliable time limit.

Kafka's transactional calls accept a time limit, but may wait forever after a broker restart (confluentinc/librdkafka issue 4420). The client of schema
registries limits each read of a socket, and waits for as long as a byte arrives now and then. A worker that waits for such a call can neither
continue nor stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

_THREAD_NAME = "a call with a limit"
T = TypeVar("T")


def has_pending_calls() -> bool:
    """Return whether a call is still running, with or without a waiting caller."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())


class NoAnswer(Exception):
    """A call did not return in time. It may still complete; do not use its object again."""


class RunningCall(Generic[T]):
    """A call on a daemon thread. A call that never returns does not prevent the process from ending.

    Args:
        call: the call.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self._thread = Thread(target=self._run, args=(call,), name=_THREAD_NAME, daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._results.append(call())
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            self._errors.append(error)

    def ends(self, within_s: float | None = None) -> bool:
        """Wait for the call for some seconds, or without a limit; return whether it has ended."""
        self._thread.join(within_s)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Return the result of a call that has ended, or raise its error."""
        if self._errors:
            raise self._errors.pop()  # not in a variable: its traceback holds this frame, and a cycle would keep the client of a failed call
        return self._results[0]


def call_with_limit(call: Callable[[], T], within_s: float) -> T:
    """Run a call and return its result.

    Args:
        call: the call; its errors are raised here.
        within_s: the time limit, in seconds.

    Raises:
        NoAnswer: the call did not return in time.
    """
    running = RunningCall(call)
    if not running.ends(within_s):
        raise NoAnswer
    return running.result()
