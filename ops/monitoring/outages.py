"""A bus that does not answer whoever watches: said once, and once more when that is over."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...transport.errors import BusError
from ...transport.kafka.client_log import OUTAGE_LOG
from ..humanize import human_duration

_LOG = logging.getLogger("penstock.watching")


class Outage(NamedTuple):
    """A time in which the bus does not answer.

    Args:
        since_ms: since when that is known (milliseconds since 1970, UTC).
        why: what it said, or why it said nothing.
    """

    since_ms: int
    why: str


class Outages:
    """Notes when the bus is lost and found, and logs it."""

    def __init__(self) -> None:
        self.now: Outage | None = None

    def note(self, error: BusError, at_ms: int) -> Outage:
        """Note that the bus did not answer; return the outage, which may have begun before."""
        if self.now is None:
            self.now = Outage(at_ms, str(error))
            _LOG.warning(
                "The bus cannot be asked, so nothing is known of processors; asking again until it answers. %s", error
            )
        return self.now

    def end(self, at_ms: int) -> None:
        """Note that it answered."""
        if self.now is not None:
            _LOG.warning("The bus answers again, after %s.", human_duration((at_ms - self.now.since_ms) / 1000))
            self.now = None


@contextmanager
def said_once() -> Iterator[None]:
    """Keep back, in the block, what each client of the bus says about an outage, time and again; not where more than warnings is asked for."""
    level = OUTAGE_LOG.level
    if not OUTAGE_LOG.isEnabledFor(logging.INFO):
        OUTAGE_LOG.setLevel(logging.ERROR)
    try:
        yield
    finally:
        OUTAGE_LOG.setLevel(level)
