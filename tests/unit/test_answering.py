"""Calls of the Kafka client that may never come back."""

from __future__ import annotations

import threading

import pytest

from penstock.transport.kafka.bounded_calls import NoAnswer, call_with_limit


def test_what_comes_back_has_been_done() -> None:
    """A call is over when it has been waited for."""
    done: list[int] = []
    call_with_limit(lambda: done.append(1), 60)
    assert done == [1]


def test_what_a_call_raises_is_raised() -> None:
    """An error reaches the one who waits."""

    def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        call_with_limit(fail, 60)


def test_what_does_not_come_back_is_left_behind() -> None:
    """The one who waits goes on, and the process could end."""
    never = threading.Event()
    try:
        with pytest.raises(NoAnswer):
            call_with_limit(never.wait, 0.05)
        [left] = [thread for thread in threading.enumerate() if thread.name == "a call to Kafka"]
        assert left.daemon
    finally:
        never.set()
