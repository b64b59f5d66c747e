"""Orderly stops after SIGTERM, SIGINT and SIGUSR1."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from .output import note, print_error

NOT_SAVED = 75
"""The exit code of a process that stopped and could not save its last checkpoint (EX_TEMPFAIL of sysexits.h)."""
MESSAGE_LIMIT_S = 2.0
"""The time for the last error message."""


def interrupt() -> None:
    """Raise KeyboardInterrupt, so that child processes are stopped in order."""
    raise KeyboardInterrupt


@contextmanager
def stop_on_signals(stop: Callable[[], None], pause: Callable[[], None] | None = None) -> Iterator[None]:
    """Call `stop` at SIGTERM and SIGINT, and `pause`, if given, at SIGUSR1."""

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
    """SIGTERM was received."""


@contextmanager
def interruptible(effect: str) -> Iterator[None]:
    """Interrupt the context at SIGINT and SIGTERM, and exit with 128 plus the signal's number, as shells do.

    Args:
        effect: the effect on the data, for the message.
    """

    def terminate(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except KeyboardInterrupt as interruption:
        note(f"Interrupted. {effect}")
        number = signal.SIGTERM if isinstance(interruption, _Terminated) else signal.SIGINT
        raise typer.Exit(128 + number) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def exit_within(limit_s: float, effect: str) -> Iterator[None]:
    """Exit without cleanup if the context has not ended some time after a signal.

    A client call may block for minutes while its broker is away, and Python handles no signal meanwhile. So the system writes
    signals to a socket, which a thread reads. Use it with handlers, such as those of `stop_on_signals`.

    Args:
        limit_s: the time for the context after SIGTERM, SIGINT or SIGUSR1.
        effect: the effect on the data, for the message.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    ended = threading.Event()

    def watch() -> None:
        with receiver:
            if receiver.recv(1) and not ended.wait(limit_s):
                _print_without_blocking(
                    f"The process did not end within {limit_s:g} s after a signal and exits now. {effect}"
                )
                os._exit(NOT_SAVED)

    threading.Thread(target=watch, name="end", daemon=True).start()
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(before)
        sender.close()


def _print_without_blocking(text: str) -> None:
    """Print an error, but do not wait for a terminal that blocks."""
    printing = threading.Thread(target=print_error, args=(text,), daemon=True)
    printing.start()
    printing.join(MESSAGE_LIMIT_S)
