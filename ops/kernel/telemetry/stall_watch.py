"""A watch over a worker's loop: it logs what each thread does when the loop stalls.

A stalled loop can log nothing itself: it is in the user's code, in a store, or in a call of the Kafka client.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ....processors import BackgroundThread, human_duration, user_line
from .health import LoopMonitor

_LOG = logging.getLogger("penstock.worker")

STALLED_S = 30.0
"""How long one turn of the loop may take before its stacks are logged. Kafka excludes a member that does not poll for five minutes."""
CHECK_EVERY_S = 1.0


@contextmanager
def stalls_logged(
    monitor: LoopMonitor, limit_s: float = STALLED_S, check_every_s: float = CHECK_EVERY_S
) -> Iterator[None]:
    """Log the stacks of all threads when the loop of this thread stalls, once for each stall; log its end, too.

    Args:
        monitor: records the turns of the loop.
        limit_s: the greatest time of one turn.
        check_every_s: the time between two checks.
    """
    watch = _StallWatch(monitor, threading.get_ident(), limit_s)

    def check() -> None:
        while not thread.wait(check_every_s):
            watch.check()

    thread = BackgroundThread("stalls", check)
    thread.start()
    try:
        yield
    finally:
        thread.close()


class _StallWatch:
    def __init__(self, monitor: LoopMonitor, thread: int, limit_s: float) -> None:
        self._monitor = monitor
        self._thread = thread
        self._limit_s = limit_s
        self._stalled_s = 0.0

    def check(self) -> None:
        """Log the begin or the end of a stall."""
        since_s = self._monitor.health().since_turn_s or 0.0
        if since_s >= self._limit_s:
            if not self._stalled_s:
                _LOG.warning("%s", _report(self._thread, since_s))
            self._stalled_s = since_s
        elif self._stalled_s:
            _LOG.warning("The worker's loop continues after %s.", human_duration(self._stalled_s))
            self._stalled_s = 0.0


def _report(thread: int, since_s: float) -> str:
    """Return what the threads do: the worker's loop first, and before its stack the innermost line of user code."""
    frames = sys._current_frames()  # noqa: SLF001 - the documented way to the stacks of other threads
    names = {each.ident: each.name for each in threading.enumerate()}
    line = user_line(frames.get(thread))
    place = f"It is in {line}. " if line else ""
    stacks = [_stack("the worker's loop", frames[thread])] if thread in frames else []
    others = {each: frame for each, frame in frames.items() if each not in {thread, threading.get_ident()}}
    in_order = sorted(others.items(), key=lambda other: user_line(other[1]) is None)  # user code first
    stacks += [_stack(f"thread {names.get(each, each)}", frame) for each, frame in in_order]
    return (
        f"The worker's loop has not turned for {human_duration(since_s)}. {place}No event is lost: events after the last checkpoint are processed "
        f"again if the worker is stopped or excluded from its group. Stacks, innermost line last:\n{''.join(stacks)}"
    )


def _stack(name: str, frame: FrameType) -> str:
    return f"{name}:\n{''.join(traceback.format_stack(frame))}"
