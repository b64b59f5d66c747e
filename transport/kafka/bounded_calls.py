"""Calls of the client that come back, or are left behind.

The client's transactional calls take a time limit and yet have been seen to wait for ever after their broker was restarted
(confluentinc/librdkafka issue 4420): a worker that waits with them can neither go on nor be stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Thread

_CALLING = "a call to Kafka"


def calls_left_behind() -> bool:
    """Tell whether a call is still under way, with somebody waiting for it or not."""
    return any(thread.name == _CALLING for thread in threading.enumerate())


class NoAnswer(Exception):
    """A call did not come back in time. It may still do what it was to do, and its object must not be used any more."""


def answered(call: Callable[[], object], within_s: float) -> None:
    """Make a call on a thread of its own and wait for it; the process can end while one that was left behind still waits.

    Args:
        call: what to do; what it raises is raised here.
        within_s: how long to wait, in seconds.

    Raises:
        NoAnswer: it did not come back.
    """
    answers: list[BaseException | None] = []

    def make() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised by the one who waits
            answers.append(error)
        else:
            answers.append(None)

    thread = Thread(target=make, name=_CALLING, daemon=True)
    thread.start()
    thread.join(within_s)
    if not answers:
        raise NoAnswer
    if answers[0] is not None:
        raise answers[0]
