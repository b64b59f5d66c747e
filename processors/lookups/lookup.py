"""Batched lookups: cache, request, and outages.

keys of a batch --cache--> cached rows
                --request--> fetched rows --> cache
                         --> no answer --> Deferred or Halted: no event of the batch is processed
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
from ..wording import counted
from .cache import Cache, Cached, NoCache
from .protocols import InvalidRow, LookupClient, LookupSource, LookupUnreachable, PreloadedTable, TableSize

_LOG = logging.getLogger("penstock.lookups")


class OnUnreachable(Enum):
    """What a worker does when a lookup source does not answer."""

    STOP = "stop"
    """Save everything before the batch, then stop."""
    WAIT = "wait"
    """Save everything before the batch, then retry with exponential backoff until the source answers."""


@dataclass(frozen=True)
class LookupEnvironment:
    """Replaceable surroundings of a lookup.

    Args:
        source: a source to use instead of the declared one; None for the declared one.
        now_s: a monotonic clock, in seconds.
        pause: sleeps for a number of seconds.
    """

    source: LookupSource | None = None
    now_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


@dataclass
class LookupMetrics:
    """Counters of the lookups of one process.

    Args:
        keys: keys looked up; a key counts once per batch.
        cached: keys found in the cache.
        missing: keys without a row.
        requests: successful requests.
        failed_requests: requests without an answer.
        failed_loads: failed reloads of a preloaded table.
        table: the size of a preloaded table; None for other sources.
    """

    keys: int = 0
    cached: int = 0
    missing: int = 0
    requests: int = 0
    failed_requests: int = 0
    failed_loads: int = 0
    table: TableSize | None = None

    def __str__(self) -> str:
        table = (
            ""
            if self.table is None
            else f"; a table of {counted(self.table.rows, 'row')}, {counted(self.table.unread, 'message')} behind"
        )
        return f"{self._requests()}{table}"

    def _requests(self) -> str:
        return (
            f"{counted(self.keys, 'key')} looked up ({self.cached:,} cached, {self.missing:,} without a row), {counted(self.requests, 'request')}, "
            f"{counted(self.failed_requests, 'failed request')}, {counted(self.failed_loads, 'failed table load')}"
        )


class Lookup:
    """Looks up rows for one process. Not thread-safe.

    Args:
        source: the source, for messages.
        client: an open client of the source.
        cached: the limits of the cache; None for no cache.
        on_unreachable: what to do when the source does not answer.
        environment: the clock.
    """

    def __init__(
        self,
        source: LookupSource,
        client: LookupClient,
        cached: Cached | None,
        on_unreachable: OnUnreachable,
        environment: LookupEnvironment,
    ) -> None:
        self.metrics = LookupMetrics()
        self._source = source
        self._client = client
        self._on_unreachable = on_unreachable
        uses_cache = cached is not None and not isinstance(client, PreloadedTable)
        self._cache = Cache(cached or Cached(), environment.now_s) if uses_cache else NoCache()
        self._environment = environment
        self._outage = OutageLog(clock=environment.now_s)
        self._pauses: Iterator[float] | None = None

    def check_source(self) -> None:
        """Check that the source is readable. With `OnUnreachable.WAIT`, an outage is not an error.

        Raises:
            Halted: the source is not readable.
        """
        try:
            self._fetch([])
        except Deferred:
            return

    def rows(self, keys: Collection[str]) -> Mapping[str, Any]:
        """Return the row of each key. Keys without a row are missing or map to None.

        Raises:
            Deferred: the source does not answer; retry the batch.
            Halted: the rows cannot be fetched.
        """
        if not keys:
            return {}
        cached = self._cache.get(keys)
        fetched = self._fetch(cached.missing) if cached.missing else {}
        self._cache.put(cached.missing, fetched)
        rows = {**cached.rows, **fetched}
        self.metrics.keys += len(keys)
        self.metrics.cached += len(cached.rows)
        self.metrics.missing += sum(rows.get(key) is None for key in keys)
        return rows

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    def _fetch(self, keys: Sequence[str]) -> Mapping[str, Any]:
        if self._pauses is not None:
            self._environment.pause(next(self._pauses))
        try:
            rows = self._client.fetch(keys)
        except LookupUnreachable as error:
            raise self._on_failed_request(error) from error
        except PenstockError as error:
            raise Halted(str(error)) from error
        except Exception as error:
            raise Halted(
                f"The lookup in {self._source} raised {type(error).__name__}: {error}. No event of the batch was processed. Correct the source "
                "and start again."
            ) from error
        self._on_answer()
        return rows

    def _on_failed_request(self, error: LookupUnreachable) -> PenstockError:
        self.metrics.failed_requests += 1
        if self._on_unreachable is OnUnreachable.STOP:
            return Halted(
                f"{error} Start again when the source answers, or declare `on_unreachable = OnUnreachable.WAIT` to wait for it."
            )
        if self._pauses is None:
            self._pauses = backoff()
            self._outage.begin()
            _LOG.warning("%s The worker retries until the source answers.", error)
        return Deferred(str(error))

    def _on_answer(self) -> None:
        self.metrics.requests += 1
        if isinstance(self._client, PreloadedTable):
            self.metrics.failed_loads, self.metrics.table = self._client.failed_loads, self._client.size
        self._pauses = None
        outage_s = self._outage.end()
        if outage_s is not None:
            _LOG.info("%s answers again after %.1f s.", self._source, outage_s)


def valid_row(row: Any) -> Any:
    """Return the row, or None.

    Raises:
        InvalidRow: the row does not match its type.
    """
    if isinstance(row, InvalidRow):
        raise InvalidRow(str(row))  # a new error each time: the cached one would accumulate tracebacks
    return row
