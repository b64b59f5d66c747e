"""Starting without a broker: long-running commands wait for one, and report it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from ...processors.retry import OutageLog
from ...transport.errors import BusRefuses, BusUnreachable
from .signals import breaking_off

T = TypeVar("T")

_LOG = logging.getLogger("penstock.waiting")
SAY_EVERY_S = 30.0
"""How often a waiting command reports that it waits."""
ASK_AGAIN_S = 1.0
FailFast = Annotated[
    bool,
    typer.Option("--fail-fast", help="Where no broker answers at the start, end with an error and do not wait."),
]


class Waiting:
    """Calls Kafka at the start of a command until a broker answers.

    Args:
        fail_fast: raise the first error instead.
    """

    def __init__(self, *, fail_fast: bool) -> None:
        self._fail_fast = fail_fast

    def __call__(self, ask: Callable[[], T]) -> T:
        """Call `ask` until it returns; SIGINT and SIGTERM end the command meanwhile.

        Raises:
            BusUnreachable: no broker answers, and the command does not wait.
            BusRefuses: a broker answers and rejects this client; waiting would not help.
        """
        waited = OutageLog(SAY_EVERY_S)
        with breaking_off("No broker has answered, so nothing was read."):
            while True:
                try:
                    answer = ask()
                except BusUnreachable as error:
                    if self._fail_fast or isinstance(error, BusRefuses):
                        raise
                    if waited.is_due():
                        _LOG.warning(
                            "Waiting for Kafka, for %.0f s so far (--fail-fast ends instead). %s",
                            waited.duration_s(),
                            error,
                        )
                    time.sleep(ASK_AGAIN_S)
                else:
                    waited_s = waited.end()
                    if waited_s is not None:
                        _LOG.warning("Kafka answers, after %.0f s.", waited_s)
                    return answer
