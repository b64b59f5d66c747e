"""A worker's part in snapshots of its app: a checkpoint, a copy of each state, and outputs that wait meanwhile.

PREPARE -> all shards open? -> READY
HOLD -> checkpoint, copies -> HELD, later outputs wait -> RELEASE -> still a member? -> RELEASED, outputs go on -> copies stored -> STORED
CHECK -> the newest answer again, or FAILED by a worker that has started since

A hold that does not last until RELEASE ends the snapshot, never the work: a rebalance, a failure, or a coordinator that has died.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import msgspec

from ....processors import PenstockError
from ....processors.shard import StatePosition
from ....state import StateError
from ....state.backups import BackupId
from ....transport import Bus, BusError
from ....transport.tables import (
    ShardCut,
    SnapshotAnswer,
    SnapshotChannel,
    SnapshotOrder,
    SnapshotRequest,
    SnapshotStage,
)
from ...shell import MachineClock
from ..shards import OpenShard, OpenShards
from .checkpoint_scheduler import CheckpointScheduler, Hold

_LOG = logging.getLogger("penstock.worker")
HOLD_LIMIT_S = 10.0
"""How long outputs wait for the other workers of a snapshot. Then the snapshot fails, and the outputs go on."""
ASK_EVERY_S = 0.05
"""The time between two looks for requests, without a snapshot in progress."""
NO_SHARDS: Mapping[int, ShardCut] = MappingProxyType({})
_OPENING = "it is still opening its shards, or bringing their states up to date"


@dataclass
class _Cut:
    """A snapshot in progress, as one worker sees it."""

    request: SnapshotRequest
    hold: Hold
    stage: SnapshotStage | None = None
    held_s: float = 0.0
    copies: dict[int, Future[BackupId]] = field(default_factory=dict)
    shards: dict[int, ShardCut] = field(default_factory=dict)


class SnapshotParticipant:
    """Takes part in the snapshots of one worker's app. One thread; close it.

    Args:
        bus: contains the category of requests.
        processor: the processor's name.
        worker: the worker's name.
        shards: the worker's open shards.
        checkpoints: saves them, and holds their outputs.
        confirm: commits the positions of the open shards once more, which fails if the worker is no member of its group any more.
        clock: measures how long outputs wait.
    """

    def __init__(
        self,
        bus: Bus,
        processor: str,
        worker: str,
        *,
        shards: OpenShards,
        checkpoints: CheckpointScheduler,
        confirm: Callable[[], None],
        clock: MachineClock,
    ) -> None:
        self._channel = SnapshotChannel(bus)
        self._processor = processor
        self._worker = worker
        self._shards = shards
        self._checkpoints = checkpoints
        self._confirm = confirm
        self._clock = clock
        self._cut: _Cut | None = None
        self._stored = ""
        self._asked_s = 0.0

    def advance(self, *, is_settled: bool) -> None:
        """Receive requests, and take the next step of the snapshot in progress; return at once.

        Args:
            is_settled: whether the worker reads all of its buckets.

        Raises:
            BusError: the membership or the bus was lost, which also ended the snapshot.
        """
        now_s = self._clock.monotonic_s()
        if self._cut is None and now_s - self._asked_s < ASK_EVERY_S:
            return
        self._asked_s = now_s
        for message in self._channel.receive():
            if isinstance(message, SnapshotRequest) and self._processor in message.processors:
                self._receive(message, is_settled=is_settled)
        if self._cut is not None:
            self._advance(self._cut, now_s, is_settled=is_settled)

    def _receive(self, request: SnapshotRequest, *, is_settled: bool) -> None:
        if request.request is SnapshotOrder.PREPARE:
            self._prepare(request, is_settled=is_settled)
        elif request.request is SnapshotOrder.HOLD:
            self._abort()
            self._begin(request, is_settled=is_settled)
        elif self._cut is None or self._cut.request.snapshot != request.snapshot:
            self._receive_unknown(request, is_settled=is_settled)
        elif request.request is SnapshotOrder.ABORT:
            self._abort()
        elif request.request is SnapshotOrder.RELEASE:
            self._release(self._cut)
        elif self._cut.stage is not None:
            self._report(self._cut, self._cut.stage)

    def _receive_unknown(self, request: SnapshotRequest, *, is_settled: bool) -> None:
        """Answer a request about a snapshot that is not in progress here, except without shards, or after it was stored here."""
        if request.request is SnapshotOrder.ABORT:  # it may be stored here, and have failed elsewhere
            self._shards.give_up(request.snapshot)
        elif request.snapshot != self._stored and (self._shards.numbers or not is_settled):
            self._answer(request, SnapshotStage.FAILED, reason="it takes no part, because it has started since")

    def _prepare(self, request: SnapshotRequest, *, is_settled: bool) -> None:
        """Answer whether this worker could take part now."""
        if self._is_ready(is_settled=is_settled):
            self._answer(request, SnapshotStage.READY, {shard.number: _cut_of(shard) for shard in self._shards})
        else:
            self._answer(request, SnapshotStage.OPENING, reason=_OPENING)

    def _is_ready(self, *, is_settled: bool) -> bool:
        return is_settled and not any(shard.catching_up for shard in self._shards)

    def _begin(self, request: SnapshotRequest, *, is_settled: bool) -> None:
        """Save a checkpoint, and hold later outputs. Without open shards there is no writer, and nothing to save or hold."""
        if not is_settled:
            self._fail(_Cut(request, Hold()), _OPENING)
        elif self._shards.numbers:
            self._cut = _Cut(request, self._checkpoints.hold())

    def _abort(self) -> None:
        """Give up the snapshot in progress, if there is one."""
        if self._cut is not None:
            if not self._cut.hold.has_ended:
                self._checkpoints.release()
            self._shards.give_up(self._cut.request.snapshot)
        self._cut = None

    def _advance(self, cut: _Cut, now_s: float, *, is_settled: bool) -> None:
        match cut.stage:
            case None:
                if cut.hold.has_ended:
                    self._fail(cut, "its buckets moved, or it started over")
                elif cut.hold.is_complete:
                    self._hold(cut, now_s, is_settled=is_settled)
            case SnapshotStage.HELD if cut.hold.has_ended:
                self._fail(cut, "its buckets moved, or it started over")
            case SnapshotStage.HELD if now_s - cut.held_s > HOLD_LIMIT_S:
                self._fail(cut, f"its outputs had waited for {HOLD_LIMIT_S:.0f} s")
            case SnapshotStage.RELEASED if all(copy.done() for copy in cut.copies.values()):
                self._report_stored(cut)
            case _:
                pass

    def _hold(self, cut: _Cut, now_s: float, *, is_settled: bool) -> None:
        """Copy the states as of the checkpoint that is now complete, and report it."""
        if not self._is_ready(is_settled=is_settled):
            self._fail(cut, _OPENING)
            return
        try:
            cut.copies = {
                shard.number: copy
                for shard in self._shards
                if (copy := self._shards.copy(shard, cut.request.snapshot)) is not None
            }
        except StateError as error:
            self._fail(cut, str(error))
            return
        cut.shards = {shard.number: _cut_of(shard) for shard in self._shards}
        cut.held_s = now_s
        self._report(cut, SnapshotStage.HELD)

    def _release(self, cut: _Cut) -> None:
        """Let the outputs go on, if they have waited until now, and if no other worker can have taken a bucket meanwhile."""
        if cut.stage is not SnapshotStage.HELD or cut.hold.has_ended:
            return  # it has failed, or the next turn reports that
        try:
            self._confirm()
        except BusError as error:
            self._fail(cut, str(error))
            raise
        self._checkpoints.release()
        self._report(cut, SnapshotStage.RELEASED)

    def _report_stored(self, cut: _Cut) -> None:
        try:
            backups = {number: str(copy.result()) for number, copy in cut.copies.items()}
        except PenstockError as error:
            self._fail(cut, str(error))
            return
        cut.shards = {
            number: msgspec.structs.replace(shard, backup=backups.get(number, ""))
            for number, shard in cut.shards.items()
        }
        self._report(cut, SnapshotStage.STORED)
        self._stored = cut.request.snapshot
        self._cut = None

    def _fail(self, cut: _Cut, reason: str) -> None:
        _LOG.info("Snapshot %s of %s failed here: %s.", cut.request.snapshot, cut.request.app, reason.rstrip("."))
        self._report(replace(cut, shards={}), SnapshotStage.FAILED, reason)
        self._abort()

    def _report(self, cut: _Cut, stage: SnapshotStage, reason: str = "") -> None:
        cut.stage = stage
        if not self._answer(cut.request, stage, cut.shards, reason):
            self._abort()

    def _answer(
        self,
        request: SnapshotRequest,
        stage: SnapshotStage,
        shards: Mapping[int, ShardCut] = NO_SHARDS,
        reason: str = "",
    ) -> bool:
        """Answer a request; return whether the answer is on the bus."""
        answer = SnapshotAnswer(
            request.app, request.snapshot, self._processor, self._worker, stage, dict(shards), reason
        )
        try:
            self._channel.send(answer)
        except BusError as error:
            _LOG.info("Snapshot %s of %s fails: this worker cannot answer. %s", request.snapshot, request.app, error)
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        self._channel.close()


def _cut_of(shard: OpenShard) -> ShardCut:
    """Return the part of a shard as of its last checkpoint; its backup is not stored yet."""
    if shard.state is not None:
        return ShardCut(shard.state.position())
    position = StatePosition(
        dict(shard.saved_position), checkpoint_id=shard.checkpoint_id or 0, topic_ids=dict(shard.topic_ids)
    )
    times = shard.saved_times
    return ShardCut(position, low_ms=times.low_ms, event_times=dict(times.inputs))
