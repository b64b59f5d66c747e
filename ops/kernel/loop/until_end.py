"""The end condition of a worker that stops at the end of its input."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from ....processors.apps import Loop
from ....processors.declare import plan_of
from ....transport import BLOCKED_AFTER_S, Bucket, Bus, BusError, BusUnreachable, old_transactions
from ....transport.tables import WATERMARKS
from ...shell import MachineClock, SystemClock
from ..shards import Targets, ends_of
from ..telemetry import runs_to_end
from .worker import Worker

_LOG = logging.getLogger("penstock.worker")
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
            member.name: [category for category in plan_of(member).sources if category.name not in loop.categories]
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
        upstream: the names of the processors whose outputs reach it. While one of them runs to its end, this one waits for it.
        clock: the worker's clock. Default: the system's.
    """

    def __init__(
        self,
        targets: Targets,
        group: str,
        bus: Bus,
        retries: Sequence[str] = (),
        *,
        loop: LoopEnd | None = None,
        upstream: Collection[str] = (),
        clock: MachineClock | None = None,
    ) -> None:
        self._targets = targets
        self._clock = clock or SystemClock()
        self._upstream = upstream
        self._group = group
        self._retries = retries
        self._loop = loop
        self._bus = bus
        self._watermarks_end = 0
        self._started = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        self._asked_s = -ASK_GROUP_EVERY_S
        self._checked_s = self._clock.monotonic_s()
        self._reported: set[Bucket] = set()

    def _report_blocked(self) -> None:
        """Log which buckets an open transaction blocks, once each: the end is not reached before it has ended."""
        if self._clock.monotonic_s() - self._checked_s < BLOCKED_AFTER_S:
            return
        self._checked_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        with suppress(BusError):
            for transaction in old_transactions(self._bus, {bucket.category for bucket in self._targets}, now_ms):
                if transaction.bucket not in self._reported:
                    self._reported.add(transaction.bucket)
                    _LOG.warning("The end of the input is not reached: %s", transaction.report(now_ms))

    def __call__(self, worker: Worker) -> bool:
        """Return whether the input is processed and its results are saved. The group's positions are requested rarely, after the worker's share is saved."""
        if not (worker.owns_nothing or (worker.has_reached(self._targets) and not worker.has_retries)):
            self._report_blocked()
            return False
        if self._upstream and not self._upstream_has_ended():
            return False
        if not worker.has_read_watermarks(self._watermarks_end):
            return False
        if not worker.assume_silence():
            return False  # the next turn writes what becomes due
        if not self._may_ask():
            return False
        # What is not saved is processed again, although the group's positions may be at the end: results of time have no position.
        return worker.save() and self._group_has_reached() and self._nothing_waits() and self._nothing_circulates()

    def _may_ask(self) -> bool:
        if self._clock.monotonic_s() - self._asked_s < ASK_GROUP_EVERY_S:
            return False
        self._asked_s = self._clock.monotonic_s()
        return True

    def _upstream_has_ended(self) -> bool:
        """Return False while a processor before this one runs to its end, and once more after that: then the end includes what it has written.

        So does the end of the watermarks, of which it publishes the last ones before it reports its end.
        """
        with suppress(BusUnreachable):
            if self._may_ask() and not runs_to_end(self._bus, self._upstream, self._started):
                self._targets = dict(self._bus.catalog.ends_of(self._targets))
                [self._watermarks_end] = self._bus.catalog.ends(WATERMARKS.name).values()
                self._upstream = ()
        return False

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
