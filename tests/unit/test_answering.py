"""Calls of the Kafka client that may never return."""

from __future__ import annotations

import threading

import pytest

from penstock.transport.bounded_calls import NoAnswer, call_with_limit


def test_a_call_has_completed_when_the_caller_continues() -> None:
    """The caller waits until the call has returned."""
    done: list[int] = []
    call_with_limit(lambda: done.append(1), 60)
    assert done == [1]


def test_the_caller_receives_the_error_of_a_call() -> None:
    """The caller receives the error of the call."""

    def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        call_with_limit(fail, 60)


def test_a_call_that_never_returns_is_abandoned() -> None:
    """The caller continues, and the process can exit."""
    never = threading.Event()
    try:
        with pytest.raises(NoAnswer):
            call_with_limit(never.wait, 0.05)
        [left] = [thread for thread in threading.enumerate() if thread.name == "a call to Kafka"]
        assert left.daemon
    finally:
        never.set()
