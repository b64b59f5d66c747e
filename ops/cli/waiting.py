"""Waiting for a broker at the start of long-running commands."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from ...processors.retry import OutageLog
from ...transport.errors import BusRefuses, BusUnreachable
from .signals import interruptible

T = TypeVar("T")

_LOG = logging.getLogger("penstock.waiting")
REPORT_EVERY_S = 30.0
"""How often a waiting command reports that it waits."""
RETRY_EVERY_S = 1.0
FailFast = Annotated[
    bool,
    typer.Option("--fail-fast", help="If no broker answers at the start, fail instead of waiting."),
]


class BrokerWait:
    """Calls Kafka at the start of a command until a broker answers.

    Args:
        fail_fast: raise the first error instead.
    """

    def __init__(self, *, fail_fast: bool) -> None:
        self._fail_fast = fail_fast

    def __call__(self, request: Callable[[], T]) -> T:
        """Call `request` until it returns; SIGINT and SIGTERM end the command meanwhile.

        Raises:
            BusUnreachable: no broker answers, and the command does not wait.
            BusRefuses: a broker answers and rejects this client; waiting would not help.
        """
        outage = OutageLog(REPORT_EVERY_S)
        with interruptible("No broker has answered, so nothing was read."):
            while True:
                try:
                    answer = request()
                except BusUnreachable as error:
                    if self._fail_fast or isinstance(error, BusRefuses):
                        raise
                    if outage.is_due():
                        _LOG.warning(
                            "Waiting for Kafka, for %.0f s so far (--fail-fast ends instead). %s",
                            outage.duration_s(),
                            error,
                        )
                    time.sleep(RETRY_EVERY_S)
                else:
                    waited_s = outage.end()
                    if waited_s is not None:
                        _LOG.warning("Kafka answers, after %.0f s.", waited_s)
                    return answer
