"""Stopping in good order when the system or a person asks for it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from .output import note


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
