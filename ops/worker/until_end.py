"""When a worker that is to stop at the end of its input is done."""

from __future__ import annotations

import time

from ...transport.bus import Bus
from ...transport.errors import BusUnreachable
from .preflight import Targets
from .worker import Worker

ASK_GROUP_EVERY_S = 0.5


class UntilEnd:
    """Whether all of a group's input is done, whoever of its members did it.

    A worker's own share is not enough: buckets may still be with a member that has died, and come to this one when the
    group has noticed. Nor is the group's position: a window may wait for a promise that was made since, or a timer for the time of day,
    which only who has opened the bucket finds out.

    Args:
        targets: where each bucket is to be read to.
        group: the processor's name.
        bus: where its input is.
    """

    def __init__(self, targets: Targets, group: str, bus: Bus) -> None:
        self._targets = targets
        self._group = group
        self._bus = bus
        self._asked_s = 0.0

    def __call__(self, worker: Worker) -> bool:
        """Look; the group is asked only now and then, when this worker's share is read and saved, or when it is known to have none."""
        if not (worker.owns_nothing or worker.has_reached(self._targets)):
            return False
        if time.monotonic() - self._asked_s < ASK_GROUP_EVERY_S:
            return False
        self._asked_s = time.monotonic()
        worker.save()
        return self._group_has_reached()

    def _group_has_reached(self) -> bool:
        try:
            committed = {
                name: self._bus.catalog.committed(self._group, name)
                for name in {bucket.category for bucket in self._targets}
            }
        except BusUnreachable:
            return False
        return all(committed[bucket.category].get(bucket.number, 0) >= end for bucket, end in self._targets.items())
