"""The end condition of a worker that stops at the end of its input."""

from __future__ import annotations

import time

from ...transport.bus import Bus
from ...transport.errors import BusUnreachable
from .preflight import Targets
from .worker import Worker

ASK_GROUP_EVERY_S = 0.5


class UntilEnd:
    """Determines whether a group has processed all of its input, by any of its members.

    A worker's own share is not enough: buckets of a dead member may still move to this worker. The group's position alone is not enough
    either: a window may wait for a newer upstream watermark, or a timer for the time of day, which only the bucket's owner can determine.

    Args:
        targets: the offset at which each bucket ends.
        group: the processor's name.
        bus: contains its input.
    """

    def __init__(self, targets: Targets, group: str, bus: Bus) -> None:
        self._targets = targets
        self._group = group
        self._bus = bus
        self._asked_s = 0.0

    def __call__(self, worker: Worker) -> bool:
        """Return whether the input is processed and its results are saved. The group's positions are requested rarely, after the worker's share is saved."""
        if not (worker.owns_nothing or worker.has_reached(self._targets)):
            return False
        if time.monotonic() - self._asked_s < ASK_GROUP_EVERY_S:
            return False
        self._asked_s = time.monotonic()
        # What is not saved is processed again, although the group's positions may be at the end: results of time have no position.
        return worker.save() and self._group_has_reached()

    def _group_has_reached(self) -> bool:
        try:
            committed = {
                name: self._bus.catalog.committed(self._group, name)
                for name in {bucket.category for bucket in self._targets}
            }
        except BusUnreachable:
            return False
        return all(committed[bucket.category].get(bucket.number, 0) >= end for bucket, end in self._targets.items())
