"""Client calls with a reliable time limit.

The client's transactional calls accept a time limit, but may wait forever after a broker restart (confluentinc/librdkafka issue 4420).
A worker that waits for such a call can neither continue nor stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Thread

_THREAD_NAME = "a call to Kafka"


def has_pending_calls() -> bool:
    """Return whether a call is still running, with or without a waiting caller."""
    return any(thread.name == _THREAD_NAME for thread in threading.enumerate())


class NoAnswer(Exception):
    """A call did not return in time. It may still complete; do not use its object again."""


def call_with_limit(call: Callable[[], object], within_s: float) -> None:
    """Run a call on a daemon thread and wait for it. A call without an answer does not prevent the process from ending.

    Args:
        call: the call; its errors are raised here.
        within_s: the time limit, in seconds.

    Raises:
        NoAnswer: the call did not return in time.
    """
    answers: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            answers.append(error)
        else:
            answers.append(None)

    thread = Thread(target=run, name=_THREAD_NAME, daemon=True)
    thread.start()
    thread.join(within_s)
    if not answers:
        raise NoAnswer
    if answers[0] is not None:
        raise answers[0]
