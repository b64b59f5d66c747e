"""Opening of one shard: its state is checked, brought up to the committed checkpoint, and given its positions.

refresh the state from a backup if it is behind -> open it -> check that it belongs to this bus
-> complete or roll back a prepared checkpoint -> replay the changelog -> determine the positions to resume from
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from ....processors import PenstockError, backoff
from ....processors.declare import Processor, plan_of
from ....processors.shard import (
    Offsets,
    ResumePoint,
    StatePosition,
    Step,
    Steps,
    have_ids,
    is_committed,
    is_remote,
    new_shard,
    resume,
    steps_of,
)
from ....processors.time import NO_TIMES
from ....state import Outbox, RemoteState, ShardIdentity, ShardState, StateFolder
from ....transport import Bucket, Bus, BusUnreachable, Position, changelog_position
from .backup_protocol import Backups
from .bus_snapshot import BusSnapshot
from .changelog_replay import changelog_of, replay
from .open_shard import OpenShard
from .resume_checks import (
    ResumeEvidence,
    expect_current,
    expect_existing,
    expect_rebuildable,
    expect_resumable,
    expect_same_topics,
    first_available,
    resolve_prepared,
)
from .shard_records import ShardRecords
from .sink_writers import SinkWriters

REPLAYS = 8
"""How often a changelog is replayed that does not contain the committed checkpoint yet, before the opening is tried again."""


class OpeningCanceled(PenstockError):
    """A shard is not opened, because it is not wanted any more, or is being opened again. Its state was not opened."""


@dataclass(frozen=True)
class LoadedShard:
    """An open shard, and the remaining work of its last checkpoint.

    Args:
        shard: ready to read.
        start_positions: where to start reading each input; the first retained event if nothing was read before.
        topic_ids: the topics of these positions.
        outbox: outputs that were saved with the state and are not on the bus.
        needs_changelog: whether the state must be written to the changelog, because it was saved without one.
    """

    shard: OpenShard
    start_positions: Sequence[Position]
    topic_ids: Mapping[str, str]
    outbox: Outbox | None = None
    needs_changelog: bool = False


class ShardOpener:
    """Opens the shards of one worker. Several threads may call, each for another shard.

    Args:
        processor: the processor of the shards.
        bus: contains its inputs.
        states: contains its states.
        backups: restore newer states.
        records: records opened shards on the bus.
        worker: the worker's name, the same after a restart.
        from_earliest: resume at the first retained event if earlier ones have expired.
        now_ms: returns the time of day (milliseconds since 1970, UTC).
        read_snapshot: reads a new snapshot of the bus; waits until the bus answers.
        sinks: claimed for each shard.
    """

    def __init__(
        self,
        processor: Processor,
        bus: Bus,
        states: StateFolder,
        backups: Backups,
        records: ShardRecords,
        *,
        worker: str,
        from_earliest: bool,
        now_ms: Callable[[], int],
        read_snapshot: Callable[[], BusSnapshot],
        sinks: SinkWriters,
    ) -> None:
        self._processor = processor
        self._worker = worker
        self._steps: Steps = steps_of(type(processor))
        self._changelog = changelog_of(type(processor))
        self._bus = bus
        self._states = states
        self._backups = backups
        self._records = records
        self._from_earliest = from_earliest
        self._now_ms = now_ms
        self._read_snapshot = read_snapshot
        self._sinks = sinks

    def identity(self, number: int) -> ShardIdentity | None:
        """Return the identity of a shard's state; None for a stateless processor."""
        shape = plan_of(self._processor).state_shape
        return None if shape is None else ShardIdentity(self._processor.name, number, shape)

    def open(self, number: int, snapshot: BusSnapshot, canceled: Event) -> LoadedShard:
        """Open a shard.

        Args:
            number: its bucket number.
            snapshot: the bus's description of the processor.
            canceled: set when the shard is not wanted any more.

        Raises:
            OpeningCanceled: the shard is not wanted any more. Its state was not opened.
            StoreUnreachable: the store of the state does not answer.
            SinkUnreachable: a sink does not answer.
            PenstockError: the shard cannot resume from its state or positions; the user must choose how to continue.
        """
        self._expect_wanted(number, canceled)
        snapshot = self._sinks.claim(number, snapshot)
        committed, identity = snapshot.committed_at(number), self.identity(number)
        expired = snapshot.have_expired(number)
        self._expect_recorded_topics(number, snapshot)
        self._expect_existing(number, committed.offsets, snapshot, "its group's committed position")
        if identity is None:
            if expired:
                self._expect_resumable(number, {}, snapshot, is_newest=False)
            self._records.record_opening(number, committed, snapshot)
            return self._loaded(number, None, committed, snapshot)
        restored = self._backups.refresh(identity, snapshot.required_at(number), canceled, expired=expired)
        self._expect_wanted(number, canceled)
        state: Any = self._states.open(identity)  # of the kind that the checkpoint's steps need
        try:
            outbox, needs_changelog = self._bring_up_to_date(number, state, snapshot, canceled)
            if expired:
                is_newest = not restored and snapshot.registration.shards[number].worker == self._worker
                offsets = state.position().offsets
                self._expect_resumable(number, offsets, snapshot, is_newest=is_newest or self._is_shared)
            self._records.record_opening(number, committed, snapshot)
            loaded = self._loaded(number, state, committed, snapshot)
            return replace(loaded, outbox=outbox, needs_changelog=needs_changelog)
        except BaseException:
            state.close()
            raise

    def _expect_wanted(self, number: int, canceled: Event) -> None:
        """Expect that the shard is still wanted after a wait.

        The worker may have opened it again meanwhile. Then its state is locked, and would be copied: the older copy would be the current state.
        """
        if canceled.is_set():
            raise OpeningCanceled(
                f"{self._processor.name}, bucket {number}: its opening was canceled. Its state was not opened."
            )

    def _bring_up_to_date(
        self, number: int, state: Any, snapshot: BusSnapshot, canceled: Event
    ) -> tuple[Outbox | None, bool]:
        """Bring a state up to the committed checkpoint. Return its unsent outputs, and whether its changelog lacks it."""
        name, committed = self._processor.name, snapshot.committed_at(number)
        expect_current(state, snapshot.maintenance, name, number)
        # Before any change: a state of another bus stays as it is.
        recreated = state.position().recreated(snapshot.topic_ids)
        expect_same_topics(name, snapshot.topic_ids, recreated, f"its state (bucket {number})")
        self._expect_existing(number, state.position().offsets, snapshot, "its state")
        if self._changelog is not None and snapshot.have_expired(number):
            state.discard()  # if it was committed, the changelog contains it
        outbox = self._resolve(state, committed, f"{name}, bucket {number}: a checkpoint")
        needs_changelog = self._needs_changelog(number, state, committed)
        if self._changelog is not None and not needs_changelog and not _is_as_committed(state, committed):
            self._replay(self._changelog.name, number, state, committed, canceled)
        return outbox, needs_changelog

    def _replay(self, changelog: str, number: int, state: Any, committed: StatePosition, canceled: Event) -> None:
        """Replay the changelog up to the last checkpoint that the group has committed.

        The bus ends a transaction bucket by bucket, so the group's positions may show a checkpoint before the changelog does.

        Raises:
            BusUnreachable: the changelog does not contain it.
        """
        waits = backoff()
        for _ in range(REPLAYS):
            replay(self._bus, changelog, number, state, self._now_ms())
            if state.position().checkpoint_id >= committed.checkpoint_id or canceled.wait(next(waits)):
                return
        raise BusUnreachable(
            f"{self._processor.name}, bucket {number}: the group has committed a checkpoint that {changelog} does not contain yet, for example "
            "because a transaction is still open. Nothing was read, since events and timers would produce their outputs twice. The worker tries "
            "again."
        )

    def _needs_changelog(self, number: int, state: ShardState, committed: StatePosition) -> bool:
        """Return whether the state is ahead of its changelog, because the processor was declared without one."""
        offsets = state.position().offsets
        reflected = {name: offsets.get(name, 0) for name in committed.offsets}
        if self._changelog is None or committed.checkpoint_id or not any(reflected.values()):
            return False
        return changelog_position(self._bus, Bucket(self._changelog.name, number)).is_behind(StatePosition(reflected))

    def _expect_resumable(self, number: int, position: Offsets, snapshot: BusSnapshot, *, is_newest: bool) -> None:
        of_inputs = {name: offset for name, offset in position.items() if name in snapshot.starts}
        starts = {name: offsets[number] for name, offsets in snapshot.starts.items()}
        evidence = ResumeEvidence(of_inputs, is_newest, starts)
        expect_resumable(type(self._processor), number, evidence, from_earliest=self._from_earliest)

    @property
    def _is_shared(self) -> bool:
        """Whether all workers see the position of a state: in a remote store, or by its changelog."""
        return self._changelog is not None or is_remote(type(self._processor))

    def _expect_recorded_topics(self, number: int, snapshot: BusSnapshot) -> None:
        """Refuse a topic other than the one that the group's positions belong to, or belonged to before they expired."""
        record = snapshot.registration.shards.get(number)
        before = {} if record is None else record.topic_ids
        recreated = [name for name, topic_id in snapshot.topic_ids.items() if before.get(name, topic_id) != topic_id]
        witness = f"its record on the bus (bucket {number})"
        expect_same_topics(self._processor.name, snapshot.topic_ids, recreated, witness)

    def _expect_existing(self, number: int, position: Offsets, snapshot: BusSnapshot, witness: str) -> None:
        """Refuse a position beyond the end of a bucket."""
        for name, offset in position.items():
            if name not in snapshot.ends:
                continue  # an input that the processor does not read any more
            end = snapshot.ends[name][number]
            if offset > end:
                # The bucket's previous owner may have read and saved more events since the snapshot.
                end = self._read_snapshot().ends[name][number]
            expect_existing(self._processor.name, Bucket(name, number), offset, end, witness)

    def _resolve(self, state: Any, committed: StatePosition, checkpoint: str) -> Outbox | None:
        """Complete or roll back a checkpoint that a worker's death interrupted; return the unsent outputs."""
        if Step.PREPARE_STATE in self._steps:
            resolve_prepared(state, committed, checkpoint)
        if Step.SAVE_WITH_OUTBOX in self._steps:
            return _unsent(state, committed, checkpoint)
        return None

    def _loaded(
        self, number: int, state: ShardState | None, committed: StatePosition, snapshot: BusSnapshot
    ) -> LoadedShard:
        saved = None if state is None else state.position()
        resumed = resume(self._processor, saved, committed)
        self._expect_rebuildable(number, resumed, snapshot)
        position = {
            name: offset
            for name in snapshot.starts
            if (offset := self._next_offset(Bucket(name, number), resumed.position, committed.offsets, snapshot))
            is not None
        }
        start_positions = [
            Position(Bucket(name, number), position.get(name, starts[number]))
            for name, starts in snapshot.starts.items()
        ]
        checkpoint_id = None
        if have_ids(self._steps):
            checkpoint_id = max(committed.checkpoint_id, 0 if saved is None else saved.checkpoint_id)
        times = snapshot.times.get(number, NO_TIMES)
        resume_point = ResumePoint(position, resumed.state_only_until, checkpoint_id, snapshot.topic_ids, times)
        shard = new_shard(self._processor, number, state, resume_point, committed.offsets)
        for category in plan_of(self._processor).retry_categories:
            start = position.get(category.name, snapshot.starts[category.name][number])
            shard.in_flight.expect(category.name, start, snapshot.ends[category.name][number])
        return LoadedShard(shard, start_positions, snapshot.topic_ids)

    def _expect_rebuildable(self, number: int, resumed: ResumePoint, snapshot: BusSnapshot) -> None:
        for name in snapshot.compacted & resumed.state_only_until.keys():
            expect_rebuildable(
                type(self._processor),
                Bucket(name, number),
                resumed.position.get(name, 0),
                resumed.state_only_until[name],
                from_earliest=self._from_earliest,
            )

    def _next_offset(self, bucket: Bucket, position: Offsets, committed: Offsets, snapshot: BusSnapshot) -> int | None:
        """Return the offset at which to resume a bucket; None for the first event, if none was ever read."""
        name = bucket.category
        if name not in position and name not in committed:
            return None
        start = snapshot.starts[name][bucket.number]
        # A lost state whose group has committed positions is rebuilt from the very first event.
        begin = position.get(name, 0)
        return first_available(self._processor.name, bucket, begin, start, from_earliest=self._from_earliest)


def _is_as_committed(state: ShardState, committed: StatePosition) -> bool:
    """Return whether a state has reached the group's positions. If they have expired, only the changelog can show it."""
    return any(committed.offsets.values()) and not state.position().is_behind(committed)


def _unsent(state: RemoteState, committed: StatePosition, checkpoint: str) -> Outbox | None:
    outbox = state.outbox()
    if outbox is not None and is_committed(outbox.before, outbox.after, committed, checkpoint):
        state.clear_outbox()
        return None
    return outbox
