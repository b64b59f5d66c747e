"""One process's way to the rows of a source: what is remembered, one request for the rest, and what becomes of one without an answer.

keys of a batch --cache--> known
                --request--> found --> remembered
                         --> no answer --> Deferred or Halted: the batch is not begun
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..errors import Deferred, Halted, PenstockError
from ..retry import OutageLog, backoff
from .cache import Cache, Cached, NoCache
from .protocols import InvalidRow, LookupClient, LookupSource, LookupUnreachable, PreloadedTable

_LOG = logging.getLogger("penstock.lookups")


class OnUnreachable(Enum):
    """What becomes of a batch when whoever has the rows gives no answer."""

    STOP = "stop"
    """The worker saves what came before it and stops there."""
    WAIT = "wait"
    """The worker saves what came before it, and asks again at growing intervals until there is an answer."""


@dataclass(frozen=True)
class Outside:
    """What a lookup has around it.

    Args:
        source: where the rows are instead of where the processor declares; None for there.
        now_s: seconds, steadily growing.
        pause: waits for so many seconds.
    """

    source: LookupSource | None = None
    now_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


@dataclass
class LookedUp:
    """What the lookups of a process have counted.

    Args:
        keys: keys that were looked up, each once in a batch.
        remembered: those of them that the cache knew.
        missing: those of them without a row.
        requests: requests that were answered.
        unanswered: requests that were not.
        failed_loads: newer tables that could not be taken, so that an older one was kept.
    """

    keys: int = 0
    remembered: int = 0
    missing: int = 0
    requests: int = 0
    unanswered: int = 0
    failed_loads: int = 0

    def __str__(self) -> str:
        return (
            f"{self.keys:,} keys looked up ({self.remembered:,} of them from the cache, {self.missing:,} without a row), "
            f"{self.requests:,} requests, {self.unanswered:,} without an answer, {self.failed_loads:,} tables that did not load"
        )


class Lookup:
    """The rows of an opened source, for one process. One thread.

    Args:
        source: what was opened, for messages.
        rows: what can be asked.
        cached: what is remembered; None for nothing.
        unreachable: what becomes of a batch whose rows cannot be had.
        outside: tells the time.
    """

    def __init__(
        self,
        source: LookupSource,
        rows: LookupClient,
        cached: Cached | None,
        unreachable: OnUnreachable,
        outside: Outside,
    ) -> None:
        self.counts = LookedUp()
        self._source = source
        self._rows = rows
        self._unreachable = unreachable
        remembers = cached is not None and not isinstance(rows, PreloadedTable)
        self._cache = Cache(cached or Cached(), outside.now_s) if remembers else NoCache()
        self._outside = outside
        self._outage = OutageLog(clock=outside.now_s)
        self._pauses: Iterator[float] | None = None

    def look(self) -> None:
        """Find out what can be wrong before the first key is known; where an answer is waited for, it may come later.

        Raises:
            Halted: no row can be had.
        """
        try:
            self._ask([])
        except Deferred:
            return

    def rows(self, keys: Collection[str]) -> Mapping[str, Any]:
        """Return the row of each key; None, or nothing, for those without.

        Raises:
            Deferred: they cannot be had now, and are waited for.
            Halted: they cannot be had.
        """
        if not keys:
            return {}
        known = self._cache.known(keys)
        found = self._ask(known.lacking) if known.lacking else {}
        self._cache.remember(known.lacking, found)
        rows = {**known.rows, **found}
        self.counts.keys += len(keys)
        self.counts.remembered += len(known.rows)
        self.counts.missing += sum(rows.get(key) is None for key in keys)
        return rows

    def close(self) -> None:
        """Let go of the source."""
        self._rows.close()

    def _ask(self, keys: Sequence[str]) -> Mapping[str, Any]:
        if self._pauses is not None:
            self._outside.pause(next(self._pauses))
        try:
            found = self._rows.fetch(keys)
        except LookupUnreachable as error:
            raise self._unanswered(error) from error
        except PenstockError as error:
            raise Halted(str(error)) from error
        except Exception as error:
            raise Halted(
                f"Rows could not be looked up in {self._source}: it raised {type(error).__name__}: {error}. Mend it, and start again."
            ) from error
        self._answered()
        return found

    def _unanswered(self, error: LookupUnreachable) -> PenstockError:
        self.counts.unanswered += 1
        if self._unreachable is OnUnreachable.STOP:
            return Halted(
                f"{error} Start again when there is an answer, or let it be waited for (`unreachable = OnUnreachable.WAIT`)."
            )
        if self._pauses is None:
            self._pauses = backoff()
            self._outage.begin()
            _LOG.warning("%s Its rows are waited for: it is asked again until it answers.", error)
        return Deferred(str(error))

    def _answered(self) -> None:
        self.counts.requests += 1
        if isinstance(self._rows, PreloadedTable):
            self.counts.failed_loads = self._rows.failed_loads
        self._pauses = None
        outage_s = self._outage.end()
        if outage_s is not None:
            _LOG.info("%s answers again after %.1f s.", self._source, outage_s)


def fitting(row: Any) -> Any:
    """Return a row that is there, or None.

    Raises:
        InvalidRow: it does not fit its type.
    """
    if isinstance(row, InvalidRow):
        raise InvalidRow(str(row))  # anew each time: the one that is remembered would gather tracebacks
    return row
