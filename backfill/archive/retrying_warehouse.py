"""A warehouse that may be away for a while: what it refuses is asked again, until it has been away for too long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from ..errors import NotStored, WarehouseError
from ..warehouse.layout import Stored
from ..warehouse.protocols import Warehouse

OUTAGE_LIMIT = timedelta(minutes=4)
"""Less than what Kafka allows between two polls, so that the buckets stay where they are."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 10.0

_LOG = logging.getLogger("penstock.archiver")
T = TypeVar("T")


class RetryingWarehouse:
    """Asks another warehouse, and waits where it does not do what was asked. Nothing is read from the bus meanwhile.

    Args:
        warehouse: which.
        limit: how long is waited.
        is_over: tells that nobody wants to wait any more.
        monotonic_s: tells how long it has been.
        pause: waits for some seconds.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        limit: timedelta,
        is_over: Callable[[], bool],
        monotonic_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._warehouse = warehouse
        self._limit_s = limit.total_seconds()
        self._is_over = is_over
        self._monotonic_s = monotonic_s
        self._pause = pause

    @property
    def location(self) -> str:
        """Where Spark finds the root."""
        return self._warehouse.location

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file durably."""
        self._lasting(lambda: self._warehouse.write(file, content))

    def create(self, file: Stored, content: bytes) -> bool:
        """Store a file durably where there is none; False also where an attempt that went unanswered has stored it."""
        return self._lasting(lambda: self._warehouse.create(file, content))

    def read(self, file: Stored, start: int = 0) -> bytes:
        """Return what is stored, from a byte on."""
        return self._lasting(lambda: self._warehouse.read(file, start))

    def remove(self, file: Stored) -> None:
        """Remove a file."""
        self._lasting(lambda: self._warehouse.remove(file))

    def contents(self, folder: str) -> dict[str, int | None]:
        """Return the sizes of what is in a folder."""
        return self._lasting(lambda: self._warehouse.contents(folder))

    def _lasting(self, ask: Callable[[], T]) -> T:
        began_s, pause_s = self._monotonic_s(), _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except NotStored:
                raise
            except WarehouseError as error:
                waited_s = self._monotonic_s() - began_s
                if waited_s >= self._limit_s or self._is_over():
                    raise WarehouseError(
                        f"{error} It was asked again for {waited_s:.0f} s. No position was committed for what is not in the warehouse: start "
                        "the archiver again, and it goes on there, with every event once."
                    ) from error
                if pause_s == _FIRST_PAUSE_S:
                    _LOG.warning(
                        "%s It is asked again for up to %.0f s; nothing is read meanwhile.", error, self._limit_s
                    )
                self._pause(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
