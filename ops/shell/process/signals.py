"""Orderly stops after SIGTERM, SIGINT, SIGHUP, and signals of Penstock's own (SIGUSR1, SIGUSR2)."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

import typer

from ....processors import busy_line, interruption_behind
from ..terminal import note, note_after_interruption, print_error

NOT_SAVED = 75
"""The exit code of a process that stopped and could not save its last checkpoint (EX_TEMPFAIL of sysexits.h)."""
MESSAGE_LIMIT_S = 2.0
"""The time for the last error message."""
PATIENCE_S = 5.0
"""The time to stop after which a note says what the process is doing."""
SAME_SIGNAL_S = 0.5
"""The time in which a repeated SIGINT is the same one: `timeout` and terminals may send it to a process and to its group."""


def interrupt() -> None:
    """Raise KeyboardInterrupt, so that child processes are stopped in order."""
    raise KeyboardInterrupt


@contextmanager
def stop_on_signals(
    stop: Callable[[], None], others: Mapping[signal.Signals, Callable[[], None]] | None = None
) -> Iterator[None]:
    """Call `stop` at SIGTERM, SIGINT and SIGHUP, and other functions at other signals. With `nohup`, SIGHUP remains ignored."""
    calls = {} if others is None else dict(others)

    def handle(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        calls.get(signal.Signals(signum), stop)()

    numbers = [signal.SIGTERM, signal.SIGINT, *calls]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
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
        raise _exit_after(interruption, effect) from None
    except Exception as error:
        # A signal often ends child processes, too, so that the cleanup fails.
        behind = interruption_behind(error)
        if behind is None:
            raise
        raise _exit_after(behind, effect) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit_after(interruption: KeyboardInterrupt, effect: str) -> typer.Exit:
    note_after_interruption(" ".join(["Interrupted.", *map(str, interruption.args), effect]))
    return typer.Exit(128 + (signal.SIGTERM if isinstance(interruption, _Terminated) else signal.SIGINT))


@contextmanager
def exit_within(limit_s: float, effect: str) -> Iterator[None]:
    """Exit without cleanup if the context has not ended some time after a signal, or at a second Ctrl-C.

    A client call may block for minutes while its broker is away, and Python handles no signal meanwhile. So the system writes
    signals to a socket, which a thread reads. Use it with handlers, such as those of `stop_on_signals`, in the main thread.

    Args:
        limit_s: the time for the context after a signal that has a handler.
        effect: the effect on the data, for the message.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    threading.Thread(target=_watch, args=(receiver, limit_s, effect), name="end", daemon=True).start()
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        sender.close()


def _watch(receiver: socket.socket, limit_s: float, effect: str) -> None:
    """Exit some time after the first signal, or at a later SIGINT, unless the sender's end of the socket is closed before."""
    with receiver:
        if not receiver.recv(1):
            return
        signalled_s = time.monotonic()
        steps: list[tuple[float, Callable[[], None]]] = [
            (min(PATIENCE_S, limit_s / 2), lambda: _tell(f"Stopping …{_busy_line()} Press Ctrl-C to exit at once.")),
            (
                limit_s,
                lambda: _exit(f"The process did not end within {limit_s:g} s after a signal and exits now.", effect),
            ),
        ]
        for after_s, step in steps:
            while (left_s := signalled_s + after_s - time.monotonic()) > 0:
                receiver.settimeout(left_s)
                try:
                    number = receiver.recv(1)
                except TimeoutError:
                    break
                if not number:
                    return
                if number[0] == signal.SIGINT and time.monotonic() > signalled_s + SAME_SIGNAL_S:
                    _exit("The process exits at once, because of a second Ctrl-C.", effect)
            step()


def _exit(reason: str, effect: str) -> None:
    _tell(f"{reason}{_busy_line()} {effect}", print_error)
    os._exit(NOT_SAVED)


def _busy_line() -> str:
    """Return a sentence with the line of user code that the main thread runs or awaits; empty if there is none."""
    line = busy_line(threading.main_thread().ident or 0)
    return f" It is still in {line}." if line else ""


def _tell(text: str, output: Callable[[str], None] = note) -> None:
    """Print a message, but do not wait for a terminal that blocks."""
    printing = threading.Thread(target=output, args=(text,), daemon=True)
    printing.start()
    printing.join(MESSAGE_LIMIT_S)
