"""A heartbeat of the alert process, for a service outside that notices when it stops."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from ...processors.errors import PenstockError
from ...processors.retry import LogRateLimiter

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
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PenstockError("The heartbeat is not an http:// or https:// address. No rule was evaluated.")
        self._url = url
        self._host = parts.hostname
        self._now_s = now_s
        self._due_s = now_s()
        self._log_limiter = LogRateLimiter()

    def beat_if_due(self) -> None:
        """Request the address if the last request is long ago. A failure is logged, and stops nothing."""
        if self._now_s() < self._due_s:
            return
        self._due_s = self._now_s() + BEAT_EVERY_S
        try:
            with urllib.request.urlopen(self._url, timeout=ANSWER_LIMIT_S):  # noqa: S310 - http and https alone
                return
        except (OSError, ValueError) as error:
            if self._log_limiter.is_due():
                _LOG.warning(
                    "The receiver of the heartbeat at %s does not accept it (%s). Alerts are evaluated and sent meanwhile; the receiver may report "
                    "that this process is down.",
                    self._host,
                    type(error).__name__,
                )
