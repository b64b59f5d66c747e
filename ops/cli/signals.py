"""Stopping in good order when the system or a person asks for it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from .output import complain, note

NOT_SAVED = 75
"""How a process ends that was told to stop and could not save what it had done (EX_TEMPFAIL of sysexits.h)."""
LAST_WORD_S = 2.0
"""How long such a process may take to say so."""


def interrupt() -> None:
    """Break off what is being done, to stop processes in an orderly way on the way out."""
    raise KeyboardInterrupt


@contextmanager
def stopping_on_signals(stop: Callable[[], None], pause: Callable[[], None] | None = None) -> Iterator[None]:
    """Call `stop` at SIGTERM and SIGINT, and `pause`, where there is one, at SIGUSR1."""

    def handle(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        if pause is not None and signum == signal.SIGUSR1:
            pause()
        else:
            stop()

    numbers = (signal.SIGTERM, signal.SIGINT, *([] if pause is None else [signal.SIGUSR1]))
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def breaking_off(says: str) -> Iterator[None]:
    """Break off what is being done at SIGINT and SIGTERM, in good order; end with 128 and the signal's number, as shells do.

    Args:
        says: what it means for the data that it was broken off.
    """

    def terminate(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt as broken_off:
        note(f"Interrupted. {says}")
        number = signal.SIGTERM if isinstance(broken_off, _Terminated) else signal.SIGINT
        raise typer.Exit(128 + number) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def ending_within(limit_s: float, says: str) -> Iterator[None]:
    """End the process a while after it was told to stop, if the block has not ended by then; nothing is tidied up.

    A call of a client whose broker is away may not come back for minutes, and Python handles no signal meanwhile: so the system notes
    signals in a socket, which a thread reads. To be used with handlers, as of `stopping_on_signals`.

    Args:
        limit_s: how long the block may take after SIGTERM, SIGINT or SIGUSR1.
        says: what it means for the data that it did not end.
    """
    noted, notes = socket.socketpair()
    notes.setblocking(False)
    ended = threading.Event()

    def watch() -> None:
        with noted:
            if noted.recv(1) and not ended.wait(limit_s):
                _say(f"Told to stop, it has not ended within {limit_s:g} s, and is ended now. {says}")
                os._exit(NOT_SAVED)

    threading.Thread(target=watch, name="end", daemon=True).start()
    before = signal.set_wakeup_fd(notes.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        notes.close()


def _say(text: str) -> None:
    """Say something, unless that takes long, too."""
    saying = threading.Thread(target=complain, args=(text,), daemon=True)
    saying.start()
    saying.join(LAST_WORD_S)
