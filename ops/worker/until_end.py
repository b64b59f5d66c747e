"""The end condition of a worker that stops at the end of its input."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ...processors.apps.loops import Loop
from ...transport.bus import Bus
from ...transport.errors import BusUnreachable
from .preflight import Targets, ends_of
from .worker import Worker

ASK_GROUP_EVERY_S = 0.5


class LoopEnd:
    """Determines whether the members of a loop have processed their input, and whatever circulates because of it.

    Args:
        loop: the loop.
        bus: contains its categories.
        targets: for each member, the offset at which each bucket of its inputs from outside of the loop ends.
    """

    def __init__(self, loop: Loop, bus: Bus, targets: Mapping[str, Targets]) -> None:
        self._loop = loop
        self._bus = bus
        self._targets = targets

    @staticmethod
    def of(loop: Loop, bus: Bus) -> LoopEnd:
        """Return the end of a loop over the events that its inputs contain now.

        Raises:
            BusError: the bus does not return the ends.
        """
        outside = {
            member.name: [category for category in member.sources() if category.name not in loop.categories]
            for member in loop.members
        }
        return LoopEnd(loop, bus, {name: ends_of(categories, bus) for name, categories in outside.items()})

    def is_reached(self) -> bool:
        """Return whether the groups of all members have reached the ends.

        The positions are read before the ends of the loop's categories: if they are equal, nothing circulated at the time of the ends.

        Raises:
            BusUnreachable: the bus does not answer.
        """
        inputs = {member.name: self._loop.inputs_of(member) for member in self._loop.members}
        committed = {
            (member, name): self._bus.catalog.committed(member, name)
            for member, names in inputs.items()
            for name in {*names, *(bucket.category for bucket in self._targets[member])}
        }
        ends = {name: self._bus.catalog.ends(name) for name in self._loop.categories}
        return all(
            committed[member, bucket.category].get(bucket.number, 0) >= end
            for member, targets in self._targets.items()
            for bucket, end in targets.items()
        ) and all(
            committed[member, name].get(number, 0) >= end
            for member, names in inputs.items()
            for name in names
            for number, end in ends[name].items()
        )


class UntilEnd:
    """Determines whether a group has processed all of its input, by any of its members.

    A worker's own share is not enough: buckets of a dead member may still move to this worker. The group's position alone is not enough
    either: a window may wait for a newer upstream watermark, or a timer for the time of day, which only the bucket's owner can determine.

    Args:
        targets: the offset at which each bucket ends.
        group: the processor's name.
        bus: contains its input.
        retries: its retry categories, by attempt. It has ended when no event waits in them either.
        loop: the end of its loop; None without one.
    """

    def __init__(
        self, targets: Targets, group: str, bus: Bus, retries: Sequence[str] = (), loop: LoopEnd | None = None
    ) -> None:
        self._targets = targets
        self._group = group
        self._retries = retries
        self._loop = loop
        self._bus = bus
        self._asked_s = 0.0

    def __call__(self, worker: Worker) -> bool:
        """Return whether the input is processed and its results are saved. The group's positions are requested rarely, after the worker's share is saved."""
        if not (worker.owns_nothing or (worker.has_reached(self._targets) and not worker.has_retries)):
            return False
        if time.monotonic() - self._asked_s < ASK_GROUP_EVERY_S:
            return False
        self._asked_s = time.monotonic()
        # What is not saved is processed again, although the group's positions may be at the end: results of time have no position.
        return worker.save() and self._group_has_reached() and self._nothing_waits() and self._nothing_circulates()

    def _nothing_circulates(self) -> bool:
        try:
            return self._loop is None or self._loop.is_reached()
        except BusUnreachable:
            return False

    def _group_has_reached(self) -> bool:
        try:
            committed = {
                name: self._bus.catalog.committed(self._group, name)
                for name in {bucket.category for bucket in self._targets}
            }
        except BusUnreachable:
            return False
        return all(committed[bucket.category].get(bucket.number, 0) >= end for bucket, end in self._targets.items())

    def _nothing_waits(self) -> bool:
        """Return whether the group has processed all retry categories; in the order in which an event passes through them."""
        try:
            return all(map(self._is_processed, self._retries))
        except BusUnreachable:
            return False

    def _is_processed(self, category: str) -> bool:
        ends = self._bus.catalog.ends(category)
        committed = self._bus.catalog.committed(self._group, category)
        return all(committed.get(number, 0) >= end for number, end in ends.items())
