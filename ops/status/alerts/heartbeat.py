"""A heartbeat of the alert process, for a service outside that notices when it stops."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

from ....processors import LogRateLimiter, PenstockError
from ....state import exchange, http_host

_LOG = logging.getLogger("penstock.alerts")
BEAT_EVERY_S = 30.0
ANSWER_LIMIT_S = 5.0


class Heartbeat:
    """Requests an address at intervals, for as long as rules are evaluated. Healthchecks, Dead Man's Snitch and others wait for such requests.

    Args:
        url: the address. It may contain a secret, so messages name its host only.
        now_s: a monotonic clock in seconds.

    Raises:
        PenstockError: it is not an http or https address.
    """

    def __init__(self, url: str, now_s: Callable[[], float]) -> None:
        host = http_host(url)
        if host is None:
            raise PenstockError("The heartbeat is not a valid http:// or https:// address. No rule was evaluated.")
        self._url = url
        self._host = host
        self._now_s = now_s
        self._due_s = now_s()
        self._log_limiter = LogRateLimiter()

    def beat_if_due(self) -> None:
        """Request the address if the last request is long ago. A failure is logged, and stops nothing."""
        if self._now_s() < self._due_s:
            return
        self._due_s = self._now_s() + BEAT_EVERY_S
        try:
            answer = exchange(urllib.request.Request(self._url), ANSWER_LIMIT_S)  # noqa: S310 - http and https alone
            problem = "" if answer.is_accepted else str(answer)
        except (OSError, ValueError, HTTPException) as error:
            problem = type(error).__name__
        if problem and self._log_limiter.is_due():
            _LOG.warning(
                "The receiver of the heartbeat at %s does not accept it (%s). Alerts are evaluated and sent meanwhile; the receiver may report "
                "that this process is down.",
                self._host,
                problem,
            )
