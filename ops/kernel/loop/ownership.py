"""The buckets that a worker owns: their assignment, revocation and loss, and the recovery after fencing or a lost membership."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ....processors import PenstockError, counted
from ....processors.declare import SinkFenced, SinkUnreachable
from ....state.remote import StoreFenced, StoreUnreachable
from ....transport import (
    Aborted,
    Bucket,
    Bus,
    BusUnreachable,
    CommitUnconfirmed,
    DeliveryFailed,
    Fenced,
    IdentityTaken,
    MembershipLost,
    OutputsTimedOut,
    Reader,
)
from ...shell import MachineClock
from ..checkpoint import CheckpointExecutor, CheckpointScheduler, RevocationNotes
from ..shards import OpenShards, attempt_all

_LOG = logging.getLogger("penstock.worker")
FENCED_PAUSE_S = 5.0
"""The pause before a fenced worker opens its shards again. By then, the group has reported whether it still owns them."""
OUTAGE_PAUSE_S = 1.0
"""The pause after an outage."""
REJOIN_PAUSES_S = (0.0, 1.0, 5.0, 15.0, 30.0)
"""The pause before a worker opens shards after it lost its membership: the first time, the second time, and so on."""
QUIET_S = 600.0
"""How long a membership must last for the next loss to count as the first one."""

MOST_FENCED = 10
"""How often in a row another process may take the worker's identity. A successor takes it once, and an outage can repeat it a few times."""

ROLLED_BACK = (
    Aborted,
    Fenced,
    StoreFenced,
    SinkFenced,
    StoreUnreachable,
    SinkUnreachable,
    BusUnreachable,
    DeliveryFailed,
    CommitUnconfirmed,
)
"""Errors after which the shards are opened again, at the last complete checkpoint."""


class IdentityShared(PenstockError):
    """Two processes use one identity of a worker: give the copy of the state folder another one."""


class Ownership:
    """The membership of one worker in its group. The bus calls `assigned`, `revoked` and `lost` during a poll. One thread.

    Args:
        bus: contains the group.
        group: the processor's name.
        inputs: the names of its input categories.
        identity: the worker's name, used by one process at a time.
        shards: opened on assignment, closed on revocation.
        checkpoints: saved before a revocation.
        executor: drops uncommitted outputs after a failure.
        notes: records that buckets are being released.
        clock: measures how long a membership lasted.
    """

    def __init__(
        self,
        bus: Bus,
        group: str,
        inputs: Sequence[str],
        identity: str,
        *,
        shards: OpenShards,
        checkpoints: CheckpointScheduler,
        executor: CheckpointExecutor,
        notes: RevocationNotes,
        clock: MachineClock,
    ) -> None:
        self._bus = bus
        self._group = group
        self._inputs = inputs
        self._identity = identity
        self._shards = shards
        self._checkpoints = checkpoints
        self._executor = executor
        self._notes = notes
        self._clock = clock
        self._reader: Reader | None = None
        self._losses = 0
        self._fenced = 0
        self._lost_s = 0.0
        self._has_failed = False
        self.is_saved = False
        """Whether the last `save` saved everything."""
        self.owned: frozenset[Bucket] = frozenset()
        self.most_events = 0
        """The most events that one poll of the reader returns."""
        self.is_assigned = False
        """Whether the group has assigned buckets to the worker."""

    @property
    def reader(self) -> Reader:
        """The group's reader; the worker joins at the first call."""
        if self._reader is None:
            self._reader = self._bus.reader(self._group, self._inputs, self, self._identity)
            self._executor.start_over(self._reader)
            self.most_events = self._reader.poll_limit
        return self._reader

    def keep_alive(self) -> None:
        """Keep the membership, if there is one, without polling. Any thread."""
        reader = self._reader
        if reader is not None:
            reader.keep_alive()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the owned buckets, in order."""
        return tuple(sorted({bucket.number for bucket in self.owned}))

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Record assigned buckets. The next turn of the loop opens their shards."""
        self.is_assigned = True
        self._notes.end()
        if not buckets or self._has_failed:
            return
        before = set(self.numbers)
        self._own(self.owned.union(buckets))
        self._shards.want({bucket.number for bucket in buckets} - before)

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Save everything, then close the shards of revoked buckets. After a failure, nothing is saved."""
        if not self._has_failed:
            self._notes.begin()
            self.save()
            self._release(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Close shards without saving."""
        if self._has_failed:
            return
        with self._recovering():
            self._checkpoints.complete()
        self._release(buckets)
        if self._executor.is_transactional:
            self.start_over(None)  # the transaction contains outputs of the lost buckets beside those of the others

    def save(self) -> bool:
        """Save a checkpoint and wait for it; return whether everything is saved. Unsaved work is saved later or repeated."""
        is_saved = False
        with self._recovering():
            is_saved = self._checkpoints.save()
        self.is_saved = is_saved and not self._shards.is_reopening
        return self.is_saved

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        try:
            yield
        except (MembershipLost, *ROLLED_BACK) as error:
            self.start_over(error)  # after a lost membership, the next poll fails, too, and the worker rejoins

    def start_over(self, error: PenstockError | None) -> None:
        """Drop everything unsaved, and continue from the last checkpoint with the buckets that the worker still owns."""
        if error is not None:
            _LOG.warning("%s", error)
        if isinstance(error, OutputsTimedOut):
            self._checkpoints.note_time_out(error.accepted)
        self._reopen(_pause_s(error))

    def _reopen(self, pause_s: float) -> None:
        self._checkpoints.abandon()
        self._shards.reopen(self.numbers, pause_s)
        self._executor.start_over(self.reader)

    def rejoin(self, error: MembershipLost) -> None:
        """Join the group again after the bus has ended the membership, with growing pauses.

        The number of attempts is unlimited, since an outage may end several memberships.

        Raises:
            IdentityShared: another process with the same identity has ended it several times in a row.
        """
        now_s = self._clock.monotonic_s()
        is_recent = now_s - self._lost_s < QUIET_S
        self._losses, self._lost_s = self._losses + 1 if is_recent else 1, now_s
        self._fenced = (self._fenced if is_recent else 0) + isinstance(error, IdentityTaken)
        if self._fenced >= MOST_FENCED:
            raise IdentityShared(
                f"Another process is a worker of {self._group} with the same identity, {self._identity}, so each of the two ends the other's membership "
                "again and again. This one stops, and the other one continues; no event is lost. Probably the state folder is on a cloned disk: "
                f"remove the folder `{self._group}/workers` of the clone's state, and start this worker again."
            ) from error
        _LOG.warning("%s It joins again (the %s time in a row).", error, _ordinal(self._losses))
        self._checkpoints.abandon()
        self._release(list(self.owned))
        self.reader.close()
        self._reader = None
        _ = self.reader
        self._reopen(REJOIN_PAUSES_S[min(self._losses, len(REJOIN_PAUSES_S)) - 1])

    def abandon(self) -> None:
        """Refuse to save, send or commit from now on, in all threads: unsaved state must not count as saved."""
        self._has_failed = True
        self._executor.abandon()
        attempt_all([self._checkpoints.abandon, lambda: self._release(list(self.owned)), self._executor.close])

    def close(self) -> None:
        """Close the reader."""
        try:
            if self._reader is not None:
                self._reader.close()
        finally:
            if not self._has_failed:
                self._notes.end()

    @property
    def has_failed(self) -> bool:
        """Whether the worker was abandoned."""
        return self._has_failed

    def _release(self, buckets: Sequence[Bucket]) -> None:
        self.is_assigned = False  # until the group's next assignment
        numbers = {bucket.number for bucket in buckets}
        self._own(frozenset(bucket for bucket in self.owned if bucket.number not in numbers))
        self._shards.release(numbers)

    def _own(self, buckets: frozenset[Bucket]) -> None:
        self.owned = buckets
        _LOG.info("Owns %s.", counted(len(self.numbers), "bucket"), extra={"buckets": list(self.numbers)})


def _pause_s(error: PenstockError | None) -> float:
    if isinstance(error, Fenced | StoreFenced | SinkFenced):
        return FENCED_PAUSE_S
    # A sink without positions is claimed even if it does not answer.
    outages = BusUnreachable | DeliveryFailed | CommitUnconfirmed | SinkUnreachable
    return OUTAGE_PAUSE_S if isinstance(error, outages) else 0.0


_ORDINALS = {1: "first", 2: "second", 3: "third"}


def _ordinal(number: int) -> str:
    if number in _ORDINALS:
        return _ORDINALS[number]
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
