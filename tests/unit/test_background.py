"""Work in a thread of its own, which ends with its owner."""

from __future__ import annotations

from threading import Event

from penstock.processors import BackgroundThread


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
