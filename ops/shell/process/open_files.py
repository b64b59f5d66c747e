"""The limit of open files of a process: raised at its start, and reported before it is reached."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable
from contextlib import suppress

_LOG = logging.getLogger("penstock.worker")
WARNED_SHARE = 0.8
"""The share of the limit from which on a process warns."""
CHECK_EVERY_S = 10.0
ADVICE = (
    "Raise the limit of open files before the start: `ulimit -n 65536`, or LimitNOFILE=65536 in a systemd unit. Or run more workers, which share the "
    "buckets. A worker needs 25 for each bucket with a local state."
)


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard one. Many systems set 1,024 and 524,288, for programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # a system may accept less than the hard limit that it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class OpenFiles:
    """Warns when a process has used most of its limit. One thread.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        import psutil  # noqa: PLC0415 - only workers warn, and every command raises its limit

        self._process = psutil.Process()
        self._clock = clock
        self._due_s = clock()
        self._has_warned = False

    def warn_if_short(self) -> None:
        """Log once that few files are left; look at most every 10 s."""
        now_s = self._clock()
        if now_s < self._due_s or self._has_warned:
            return
        self._due_s = now_s + CHECK_EVERY_S
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            used = self._process.num_fds()
        except OSError:
            used = limit  # to count them takes another one
        if limit != resource.RLIM_INFINITY and used >= WARNED_SHARE * limit:
            self._has_warned = True
            _LOG.warning(
                "This process has %s open files and connections; its limit is %s. At the limit, it stops, or waits for Kafka without a connection. "
                "No event is lost. %s",
                f"{used:,}",
                f"{limit:,}",
                ADVICE,
            )
