"""Opening shards beside the loop: what is slow about taking a bucket over happens here, in threads.

wait until the group's positions are decided -> refresh the state from a backup where it is behind -> open it
-> refuse what was never on this bus -> settle what was prepared -> find where to go on

A bus or a store that does not answer is asked again, for as long as the shard is wanted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, NamedTuple, Protocol

import msgspec

from ...processors.declare.processor import Processor
from ...processors.retry import LogRateLimiter, backoff
from ...processors.shard.checkpoints import Step, Steps, have_ids, is_remote, steps_of
from ...processors.shard.position import Offsets, StatePosition
from ...processors.shard.resume_point import ResumePoint, is_committed, resume
from ...processors.shard.shard import new_shard
from ...state.protocols import Outbox, RemoteState, ShardIdentity, ShardState, StateFolder
from ...state.remote.errors import StoreUnreachable
from ...transport.bus import Bus
from ...transport.category_spec import Topic
from ...transport.changelog import changelog_position
from ...transport.errors import BusError, BusUnreachable, CommitUnconfirmed
from ...transport.messages import Bucket, Position
from ...transport.tables.maintenance_log import MaintenanceOperation
from ...transport.tables.registrations import Registration, ShardRecord, record_shards, registration_of
from .changelog_replay import changelog_of, replay
from .open_shard import OpenShard, close_shard
from .resume_checks import (
    RetainedOffsets,
    committed_by,
    expect_current,
    expect_known,
    expect_reached,
    expect_rebuildable,
    expect_same_topics,
    finished_maintenance,
    first_kept,
    settle_prepared,
)
from .topic_watch import expect_shapes

_LOG = logging.getLogger("penstock.worker")
REPLAYS = 8
"""How often a changelog is looked at again that lacks what the group has committed, before the shard is opened anew."""
LOOK_AGAIN_S = 0.5
"""How long to wait before a bus that did not answer is asked again."""


class Backups(Protocol):
    """What keeps copies of shards' states elsewhere. Any thread may call."""

    def refresh(
        self, identity: ShardIdentity, committed: StatePosition, dropped: Event, *, expired: bool = False
    ) -> bool:
        """Where the local state is missing or behind, put a newer one from a backup in its place; return whether that was done.

        Whoever waits for that waits no longer than until nobody wants the shard any more, which `dropped` says. Where the group's
        positions have expired, any newer backup is taken.
        """
        ...

    def adopt(self, identity: ShardIdentity, state: ShardState) -> None:
        """Back an open state up from now on."""
        ...

    def release(self, identity: ShardIdentity) -> None:
        """Touch a state no more; returns at once."""
        ...

    def close(self) -> None:
        """Stop."""
        ...


class NoBackups:
    """Nothing is kept elsewhere."""

    def refresh(
        self,
        identity: ShardIdentity,  # noqa: ARG002 - no backups
        committed: StatePosition,  # noqa: ARG002 - no backups
        dropped: Event,  # noqa: ARG002 - no backups
        *,
        expired: bool = False,  # noqa: ARG002 - no backups
    ) -> bool:
        """Do nothing."""
        return False

    def adopt(self, identity: ShardIdentity, state: ShardState) -> None:
        """Do nothing."""

    def release(self, identity: ShardIdentity) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class LoadedShard:
    """A shard, and what its last checkpoint still has to send.

    Args:
        shard: ready to read on.
        begins: where to read on in each input; where nothing was ever read, at the first event that is kept.
        topic_ids: of which topics that is.
        unsent: outputs that were saved with the state and are not on the bus.
        is_unlogged: whether its changelog is to be told the whole state, which was saved while the processor kept none.
    """

    shard: OpenShard
    begins: Sequence[Position]
    topic_ids: Mapping[str, str]
    unsent: Outbox | None = None
    is_unlogged: bool = False


@dataclass(frozen=True)
class _Facts:
    """What the bus says about the inputs, by category and bucket number.

    Args:
        committed: positions of the group, by bucket.
        starts: first offsets that are kept.
        ends: offsets after the last event; looked at after the positions, which therefore do not lie beyond.
        compacted: the inputs that keep the latest event of each key only.
        topic_ids: the ids of the inputs' topics, and of the changelog's.
        registration: what was noted of the processor when it ran before.
        move: what was last done to positions and states from outside; None for nothing.
    """

    committed: dict[int, StatePosition]
    starts: dict[str, dict[int, int]]
    ends: dict[str, dict[int, int]]
    compacted: frozenset[str]
    topic_ids: dict[str, str]
    registration: Registration
    move: MaintenanceOperation | None

    def committed_at(self, number: int) -> StatePosition:
        return self.committed.get(number, StatePosition())

    def have_expired(self, number: int) -> bool:
        """Tell whether the group had positions in a bucket that are gone."""
        record = self.registration.shards.get(number)
        return record is not None and record.has_committed and not self.committed_at(number).offsets

    def wanted_at(self, number: int) -> StatePosition:
        """Return what the position of a state has that is not behind."""
        generation = 0 if self.move is None else self.move.lineage.generation(number)
        return self.committed_at(number).updated(StatePosition(generation=generation))


class _Opening(NamedTuple):
    """A shard that is being opened.

    Args:
        shard: comes when it is open.
        dropped: set when nobody wants it any more.
    """

    shard: Future[LoadedShard]
    dropped: Event


class ShardLoader:
    """The shards that are being opened.

    Args:
        processor: whose shards.
        bus: where its inputs are.
        states: where its state is.
        backups: where copies of it are.
        threads: do the work.
        worker: who opens them, as it is known when it comes back.
        from_earliest: go on with the first event that is kept where the right one is gone.
        now_ms: tells the time (milliseconds since 1970, UTC).
    """

    def __init__(
        self,
        processor: Processor,
        bus: Bus,
        states: StateFolder,
        backups: Backups,
        threads: Executor,
        *,
        worker: str,
        from_earliest: bool,
        now_ms: Callable[[], int],
    ) -> None:
        self._processor = processor
        self._worker = worker
        self._steps: Steps = steps_of(type(processor))
        self._changelog = changelog_of(type(processor))
        self._bus = bus
        self._states = states
        self._backups = backups
        self._threads = threads
        self._from_earliest = from_earliest
        self._now_ms = now_ms
        self._waiting: dict[int, _Opening] = {}
        self._records: dict[int, ShardRecord] = {}
        self._noting: Future[None] | None = None
        self._closed = Event()
        self._log_limiter = LogRateLimiter()

    def begin(self, numbers: Sequence[int]) -> None:
        """Begin to open shards; returns at once."""
        facts = self._threads.submit(self._look)
        for number in numbers:
            dropped = Event()
            self._waiting[number] = _Opening(self._threads.submit(self._open, number, facts, dropped), dropped)

    def drop(self, numbers: Sequence[int]) -> None:
        """Open these no further; what is open by then is closed."""
        for number in numbers:
            opening = self._waiting.pop(number, None)
            if opening is not None:
                opening.dropped.set()
                if not opening.shard.cancel():
                    opening.shard.add_done_callback(self._discard)

    def finished(self) -> Iterator[LoadedShard]:
        """Give the shards that are open now, each when it is asked for.

        Raises:
            PenstockError: one of them cannot be opened.
        """
        for number in [number for number, opening in self._waiting.items() if opening.shard.done()]:
            yield self._waiting.pop(number).shard.result()

    def stop(self) -> None:
        """Open none of those that are being opened any further."""
        self.drop(list(self._waiting))

    def close(self) -> None:
        """Open nothing any more."""
        self._closed.set()
        self.stop()

    def identity(self, number: int) -> ShardIdentity | None:
        """Return what a shard's state is known by; None where the processor keeps none."""
        shape = self._processor.state_shape()
        return None if shape is None else ShardIdentity(self._processor.name, number, shape)

    def _discard(self, opening: Future[LoadedShard]) -> None:
        if opening.exception() is None:
            close_shard(opening.result().shard)
        else:
            _LOG.info("A bucket that went elsewhere was not opened: %s", opening.exception())

    def _look(self) -> _Facts:
        """Ask the bus until it answers: a broker that is away for a while stops no worker."""
        while True:
            try:
                return self._ask()
            except (BusUnreachable, CommitUnconfirmed) as error:
                if self._closed.wait(LOOK_AGAIN_S):
                    raise
                _LOG.info("%s", error)

    def _ask(self) -> _Facts:
        # As a member of the group: whoever moves positions notes that, and then looks whether there is one.
        move = finished_maintenance(self._bus, self._processor.name)
        committed = committed_by(type(self._processor), self._bus)
        found = {category.name: self._bus.catalog.describe(category.name) for category in self._processor.inputs()}
        written = self._bus.catalog.topics([category.name for category in self._processor.outputs()])
        read = {name: Topic(state.topic_id, state.spec.buckets) for name, state in found.items()}
        expect_shapes(type(self._processor), {**written, **read})
        starts = {name: dict(category.starts) for name, category in found.items()}
        ends = {name: dict(category.ends) for name, category in found.items()}
        compacted = frozenset(name for name, category in found.items() if category.spec.compacted)
        topic_ids = {name: topic.id for name, topic in read.items()}
        if self._changelog is not None:
            logs = self._bus.catalog.topics([self._changelog.name])
            topic_ids.update((name, topic.id) for name, topic in logs.items())
        registration = registration_of(self._bus, self._processor.name)
        return _Facts(committed, starts, ends, compacted, topic_ids, registration, move)

    def _open(self, number: int, looked: Future[_Facts], dropped: Event) -> LoadedShard:
        """Try until the store answers: one that is away for long stops no worker."""
        facts, waits = looked.result(), backoff()
        while True:
            try:
                return self._attempt(number, facts, dropped)
            except StoreUnreachable as error:
                if dropped.wait(next(waits)):
                    raise
                self._tell_waiting(number, error)
                facts = self._look()  # by the time the store answers, the bus may have dropped events

    def _tell_waiting(self, number: int, error: StoreUnreachable) -> None:
        if self._log_limiter.is_due():
            _LOG.warning(
                "%s reads no further in its buckets (%d, and maybe others) until the store of its state answers, which it is asked "
                "to again and again. What is saved is safe, and what is not is read again: nothing is lost. %s",
                self._processor.name,
                number,
                error,
            )

    def _attempt(self, number: int, facts: _Facts, dropped: Event) -> LoadedShard:
        committed, identity = facts.committed_at(number), self.identity(number)
        expired = facts.have_expired(number)
        self._expect_recorded_topics(number, facts)
        self._expect_reached(number, committed.offsets, facts, "its group's committed position")
        if identity is None:
            if expired:
                self._expect_known(number, {}, facts, is_last=False)
            self._record(number, committed, facts)
            return self._opened(number, None, committed, facts)
        restored = self._backups.refresh(identity, facts.wanted_at(number), dropped, expired=expired)
        state: Any = self._states.open(identity)  # of the kind that the row's steps ask for
        try:
            expect_current(state, facts.move, identity.processor, number)
            # Before anything is settled: what belongs to another bus stays as it is.
            others = state.position().recreated(facts.topic_ids)
            expect_same_topics(identity.processor, facts.topic_ids, others, f"its state (bucket {number})")
            self._expect_reached(number, state.position().offsets, facts, "its state")
            if expired and self._changelog is not None:
                state.discard()  # where it was committed, it is in the changelog, which is replayed below
            unsent = self._settle(state, committed, f"{identity.processor}, bucket {number}: a checkpoint")
            is_unlogged = self._is_unlogged(number, state, committed)
            if self._changelog is not None and not is_unlogged and not self._is_as_committed(state, committed):
                self._replay(self._changelog.name, number, state, committed, dropped)
            if expired:
                is_last = not restored and facts.registration.shards[number].worker == self._worker
                self._expect_known(number, state.position().offsets, facts, is_last=is_last or self._is_shared)
            self._record(number, committed, facts)
            return replace(self._opened(number, state, committed, facts), unsent=unsent, is_unlogged=is_unlogged)
        except BaseException:
            state.close()
            raise

    def _replay(self, changelog: str, number: int, state: Any, committed: StatePosition, dropped: Event) -> None:
        """Replay the changelog up to the last checkpoint that the group has committed.

        The bus ends a transaction bucket by bucket, so the group's positions may show a checkpoint before the changelog does.

        Raises:
            BusUnreachable: the changelog does not show it.
        """
        waits = backoff()
        for _ in range(REPLAYS):
            replay(self._bus, changelog, number, state, self._now_ms())
            if state.position().checkpoint_id >= committed.checkpoint_id or dropped.wait(next(waits)):
                return
        raise BusUnreachable(
            f"{self._processor.name}, bucket {number}: the group has committed a checkpoint that {changelog} does not show yet, as when a "
            "transaction in it is still open. Nothing was read, since events and timers would be answered a second time. It is looked for "
            "again."
        )

    def _is_as_committed(self, state: ShardState, committed: StatePosition) -> bool:
        """Tell whether a state is what the group has committed; where its positions are gone, only the changelog can tell."""
        return any(committed.offsets.values()) and not state.position().is_behind(committed)

    def _is_unlogged(self, number: int, state: ShardState, committed: StatePosition) -> bool:
        """Tell whether the state is further than its changelog, because it was saved while the processor was declared to keep none."""
        offsets = state.position().offsets
        reflects = {name: offsets.get(name, 0) for name in committed.offsets}
        if self._changelog is None or committed.checkpoint_id or not any(reflects.values()):
            return False
        return changelog_position(self._bus, Bucket(self._changelog.name, number)).is_behind(StatePosition(reflects))

    def _expect_known(self, number: int, position: Offsets, facts: _Facts, *, is_last: bool) -> None:
        left = {name: offset for name, offset in position.items() if name in facts.starts}
        starts = {name: offsets[number] for name, offsets in facts.starts.items()}
        remnant = RetainedOffsets(left, is_last, starts)
        expect_known(type(self._processor), number, remnant, from_earliest=self._from_earliest)

    @property
    def _is_shared(self) -> bool:
        """Whether all workers see how far a state is: in a store, or by the changelog."""
        return self._changelog is not None or is_remote(type(self._processor))

    def _expect_recorded_topics(self, number: int, facts: _Facts) -> None:
        """Refuse a topic other than the one of which the group's positions are, or were before they expired."""
        record = facts.registration.shards.get(number)
        before = {} if record is None else record.topic_ids
        others = [name for name, topic_id in facts.topic_ids.items() if before.get(name, topic_id) != topic_id]
        expect_same_topics(self._processor.name, facts.topic_ids, others, f"its record on the bus (bucket {number})")

    def _record(self, number: int, committed: StatePosition, facts: _Facts) -> None:
        """Note on the bus of which topics the positions are that are committed from now on."""
        before = facts.registration.shards.get(number)
        has_committed = bool(committed.offsets) or (before is not None and before.has_committed)
        record = self._records[number] = ShardRecord(facts.topic_ids, self._worker, has_committed)
        if record != before:
            record_shards(self._bus, self._processor.name, {number: record})

    def note_committed(self, numbers: Sequence[int]) -> None:
        """Note on the bus that the group has committed positions of open shards, where that is not noted yet; returns at once."""
        first = [number for number in numbers if number in self._records and not self._records[number].has_committed]
        if first and (self._noting is None or self._noting.done()):
            records = {number: msgspec.structs.replace(self._records[number], has_committed=True) for number in first}
            self._noting = self._threads.submit(self._note, records)

    def _note(self, records: Mapping[int, ShardRecord]) -> None:
        try:
            record_shards(self._bus, self._processor.name, records)
        except BusError as error:
            _LOG.info("%s It is noted with the next checkpoint.", error)
        else:
            self._records.update(records)

    def _expect_reached(self, number: int, position: Offsets, facts: _Facts, witness: str) -> None:
        """Refuse a position that the bus has never come to."""
        for name, offset in position.items():
            if name not in facts.ends:
                continue  # an input that the processor does not read any more
            end = facts.ends[name][number]
            if offset > end:
                # Who had the bucket before us may have gone on, and saved, since we looked.
                end = self._look().ends[name][number]
            expect_reached(self._processor.name, Bucket(name, number), offset, end, witness)

    def _settle(self, state: Any, committed: StatePosition, what: str) -> Outbox | None:
        """Finish, or take back, what a checkpoint had begun when its worker died; return what is still to be sent."""
        if Step.PREPARE_STATE in self._steps:
            settle_prepared(state, committed, what)
        if Step.SAVE_WITH_OUTBOX in self._steps:
            return _unsent(state, committed, what)
        return None

    def _opened(self, number: int, state: ShardState | None, committed: StatePosition, facts: _Facts) -> LoadedShard:
        saved = None if state is None else state.position()
        going_on = resume(self._processor, saved, committed)
        for name in facts.compacted & going_on.state_only_until.keys():
            expect_rebuildable(
                type(self._processor),
                Bucket(name, number),
                going_on.position.get(name, 0),
                going_on.state_only_until[name],
                from_earliest=self._from_earliest,
            )
        position = {
            name: offset
            for name in facts.starts
            if (offset := self._next_offset(Bucket(name, number), going_on.position, committed.offsets, facts))
            is not None
        }
        begins = [
            Position(Bucket(name, number), position.get(name, starts[number])) for name, starts in facts.starts.items()
        ]
        checkpoint_id = None
        if have_ids(self._steps):
            checkpoint_id = max(committed.checkpoint_id, 0 if saved is None else saved.checkpoint_id)
        resumption = ResumePoint(position, going_on.state_only_until, checkpoint_id, facts.topic_ids)
        shard = new_shard(self._processor, number, state, resumption, committed.offsets)
        return LoadedShard(shard, begins, facts.topic_ids)

    def _next_offset(self, bucket: Bucket, position: Offsets, committed: Offsets, facts: _Facts) -> int | None:
        """Return where to read on in a bucket; None for the first event, where nothing was ever read."""
        name = bucket.category
        if name not in position and name not in committed:
            return None
        start = facts.starts[name][bucket.number]
        # State that is gone while its group had committed is to be built anew from the very first event.
        return first_kept(self._processor.name, bucket, position.get(name, 0), start, from_earliest=self._from_earliest)


def _unsent(state: RemoteState, committed: StatePosition, what: str) -> Outbox | None:
    outbox = state.outbox()
    if outbox is not None and is_committed(outbox.before, outbox.after, committed, what):
        state.clear_outbox()
        return None
    return outbox
