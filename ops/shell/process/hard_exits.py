"""Calls of `os._exit` by user code, which would end a worker without a message, and with 0 as if it had reached its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from ....processors import user_line
from ..terminal import print_error


@contextmanager
def hard_exits_reported(processor: str, effect: str) -> Iterator[None]:
    """Report calls of `os._exit` by user code in the context, and exit with an error. A process that user code forks exits as it asks.

    Args:
        processor: the name of the processor.
        effect: the effect on the data, for the message.
    """
    exit_at_once, worker = os._exit, os.getpid()

    def reporting_exit(status: int) -> NoReturn:
        line = user_line(sys._getframe(1)) if os.getpid() == worker else None  # noqa: SLF001 - the documented way to the stack
        if line is None:
            exit_at_once(status)
        print_error(
            f"{processor} called `os._exit({status})` in {line}. It ended the worker at once, without a last checkpoint. {effect} "
            "Raise an exception instead."
        )
        exit_at_once(status or 1)

    os._exit = reporting_exit
    try:
        yield
    finally:
        os._exit = exit_at_once
