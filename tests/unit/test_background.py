"""Work in a thread of its own, which ends with its owner."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from threading import Event

import pytest

from penstock.processors import BackgroundThread, PenstockError, RetryingThread


def test_closing_wakes_work_that_pauses() -> None:
    """The owner waits for the work that is left, and not for the pause."""
    done: list[str] = []

    def work() -> None:
        while not thread.wait(3600.0):
            done.append("round")
        done.append("last")

    thread = BackgroundThread("test", work)
    thread.start()
    thread.close()

    assert done == ["last"]
    assert thread.is_closed
    assert not thread.is_alive


def test_work_that_hangs_is_abandoned_after_the_limit() -> None:
    """A call to a service that does not answer is such work."""
    answer = Event()
    thread = BackgroundThread("test", answer.wait)
    thread.start()
    thread.close(0.0)
    assert thread.is_alive
    answer.set()
    thread.close()

    assert not thread.is_alive


def test_an_owner_that_never_started_can_be_closed() -> None:
    """The start of another part may have failed before."""
    thread = BackgroundThread("test", Event().wait)
    thread.close()

    assert thread.is_closed


def test_work_is_repeated_after_any_error(
    caplog: pytest.LogCaptureFixture, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """The owner gets each reason. Expected errors are logged once in a while, and others always."""
    errors = [PenstockError("No broker answers."), PenstockError("No leader."), KeyError("x"), None]
    left, problems = list(errors), list[str]()

    def work() -> None:
        error = left.pop(0) if left else None
        if error is not None:
            raise error

    thread = RetryingThread(
        "test", work, log=logging.getLogger("test"), consequence="It is old.", failed=problems.append, every_s=0.0
    )
    with closing(thread):
        thread.start()
        wait_until(lambda: not left)

    assert problems == ["No broker answers.", "No leader.", "The server itself failed: KeyError: 'x'."]
    assert [record.getMessage() for record in caplog.records] == [
        "It is old. No broker answers.",
        "It is old. The server itself failed, and tries again.",
    ]
