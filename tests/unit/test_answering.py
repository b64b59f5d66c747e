"""Calls of client libraries that may never return."""

from __future__ import annotations

import threading

import pytest

from penstock.transport import NoAnswer, call_with_limit


def test_a_call_has_completed_when_the_caller_continues() -> None:
    """The caller waits until the call has returned."""
    done: list[int] = []
    call_with_limit(lambda: done.append(1), 60)

    assert done == [1]
    assert call_with_limit(lambda: 7, 60) == 7


def test_the_caller_receives_the_error_of_a_call() -> None:
    def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        call_with_limit(fail, 60)


def test_a_call_that_never_returns_is_abandoned() -> None:
    """The caller continues, and the process can exit."""
    never, others = threading.Event(), set(threading.enumerate())
    try:
        with pytest.raises(NoAnswer):
            call_with_limit(never.wait, 0.05)
        [left] = set(threading.enumerate()) - others
        assert left.daemon
    finally:
        never.set()
