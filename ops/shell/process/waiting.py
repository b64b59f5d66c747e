"""Waiting at the start of long-running commands: for a broker, and for buckets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from ....processors import OutageLog
from ....transport import BusRefuses, BusUnreachable
from .signals import interruptible

T = TypeVar("T")

_LOG = logging.getLogger("penstock.waiting")
REPORT_EVERY_S = 30.0
"""How often a waiting command reports that it waits."""
RETRY_EVERY_S = 1.0
UNASSIGNED_S = 5.0
"""The time without buckets after which a worker says what it waits for."""
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


_OWNED_BY_OTHERS = (
    "This worker of %s has no buckets yet: other members of its group own them. If one of them ended without leaving the group (a crash, "
    "kill -9), its buckets move here within %.0f s. If all of them run, this worker waits until one ends."
)
_UNASSIGNED = (
    "This worker of %s has no buckets yet: Kafka has not assigned them. That takes longer if Kafka or this machine is busy, and up to %.0f s if a "
    "member ended without leaving the group. The worker waits."
)


class BucketWait:
    """Describes what a worker without buckets waits for.

    Args:
        processor: the name of the processor.
        session_timeout_s: after which time Kafka gives the buckets of a vanished member to others.
    """

    def __init__(self, processor: str, session_timeout_s: float) -> None:
        self._processor = processor
        self._session_timeout_s = session_timeout_s
        self._since_s: float | None = None
        self._is_reported = False

    def __call__(self, *, has_buckets: bool, is_assigned: bool) -> str:
        """Return the end of a progress line, empty with buckets. After some seconds without buckets, log the reason once.

        Args:
            has_buckets: whether the worker owns buckets.
            is_assigned: whether the group has assigned its buckets: the buckets that the worker lacks have other owners then.
        """
        if has_buckets:
            self._since_s, self._is_reported = None, False
            return ""
        now_s = time.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        waited_s = now_s - self._since_s
        if waited_s < UNASSIGNED_S:
            return ""
        if not self._is_reported:
            self._is_reported = True
            _LOG.warning(_OWNED_BY_OTHERS if is_assigned else _UNASSIGNED, self._processor, self._session_timeout_s)
        left_s = self._session_timeout_s - waited_s
        return f", waits for buckets ({left_s:.0f} s)" if left_s > 0 else ", waits for buckets"
