"""The worker: one process's share of a processor's buckets, from the bus through the processor and back.

    poll -> decode -> feed -> encode -> send or hold    for each batch
    the steps of the processor's row, one by one        at each checkpoint, while the loop goes on

It performs what the cores and the step table say, and chooses nothing itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from ...processors.declare.categories import AnyCategory
from ...processors.declare.dead_letters import dead_letters_of
from ...processors.declare.processor import ErrorPolicy, Processor
from ...processors.declare.semantics import Semantics
from ...processors.errors import Deferred, Halted, PenstockError
from ...processors.lookups import LookupJoin
from ...state.checkpoints import Gap, steps_of
from ...state.protocols import StateFolder
from ...state.remote.errors import StoreFenced, StoreUnreachable
from ...transport.bus import Bucket, Bus, Polled, Position, RawBatch, Reader
from ...transport.codecs.by_category import Codecs
from ...transport.codecs.codec import Decoded
from ...transport.errors import (
    Aborted,
    BusUnreachable,
    CommitUnconfirmed,
    DeliveryFailed,
    Fenced,
    MembershipLost,
    MissingCategory,
    OffsetOutOfRange,
)
from ..clock import Clock, SystemClock
from .batch_sizer import BatchSizer
from .checkpoint_coordinator import CheckpointCoordinator
from .checkpoint_executor import CheckpointExecutor
from .cleanup import attempt_all, do_all
from .dead_letter_guard import DeadLetterGuard
from .input_merger import InputMerger
from .key_check import KeyCheck
from .metrics import Metrics, Uncommitted
from .output_writer import OutputWriter
from .rejected_events import EventRejected, RejectedEvent, expect_unit, misplaced, refusals, taken, with_deletions
from .revocation_note import NoRevocationNotes, RevocationNotes
from .shard import Shard
from .shard_loader import Backups, NoBackups, ShardLoader
from .topic_watch import TopicWatch
from .transaction_sweeper import TransactionSweeper
from .watermark_tracker import WatermarkTracker

_LOG = logging.getLogger("penstock.worker")
POLL_WAIT_S = 0.1
SAVING_POLL_WAIT_S = 0.005
"""How long a poll may take while outputs wait for the end of a checkpoint."""
FENCED_PAUSE_S = 5.0
"""How long a worker that was refused waits before it opens its shards again: by then it knows whether they are still its own."""
OUTAGE_PAUSE_S = 1.0
"""How long it waits where nobody answered."""
REJOIN_PAUSES_S = (0.0, 1.0, 5.0, 15.0, 30.0)
"""How long a worker that lost its membership waits before it opens shards again: the first time, the second time, and so on."""
QUIET_S = 600.0
"""How long a membership must last for the next loss to count as the first one."""

_TAKEN_BACK = (Aborted, Fenced, StoreFenced, StoreUnreachable, BusUnreachable, DeliveryFailed, CommitUnconfirmed)
"""What leaves open how far a checkpoint came, or ends with an outage: the shards are opened again, which finds out, and waits."""


@dataclass(frozen=True)
class WorkerConfig:
    """Where a worker runs.

    Args:
        bus: where its processor's categories are; all of them exist.
        states: where the states of its shards are.
        identity: by which it is known when it comes back; used by one process at a time.
        backups: what keeps copies of the states.
        letting_go: where it notes that it lets go of buckets.
    """

    bus: Bus
    states: StateFolder
    identity: str
    backups: Backups = field(default_factory=NoBackups)
    letting_go: RevocationNotes = field(default_factory=NoRevocationNotes)


class Worker:
    """Runs a processor on the buckets that its consumer group gives it.

    Args:
        processor: opened.
        place: where it runs.
        threads: open shards.
        saver: saves checkpoints, one at a time.
        clock: tells when a checkpoint is due.
        at_gap: called in each gap of a checkpoint; a test may raise there.
        at_turn: called after each turn.
        from_earliest: whether events that are gone from the bus may be left out.
        asker: asks the bus how far event time is, and tells it, one call at a time; by default the saver.
    """

    def __init__(
        self,
        processor: Processor,
        place: WorkerConfig,
        threads: Executor,
        saver: Executor,
        *,
        clock: Clock | None = None,
        at_gap: Callable[[Gap], None] = lambda _: None,
        at_turn: Callable[[Worker], None] = lambda _: None,
        from_earliest: bool = False,
        asker: Executor | None = None,
    ) -> None:
        self._processor = processor
        self._name = type(processor).__name__
        self._steps = steps_of(type(processor))
        self._inputs = {category.name: category for category in processor.inputs()}
        self._place = place
        self._clock = clock or SystemClock()
        self.at_gap = at_gap
        self._at_turn = at_turn
        self._codecs = Codecs(place.bus)
        self._placement = KeyCheck(type(processor))
        self._rejecting = DeadLetterGuard(type(processor), place.bus, self._codecs)
        self._openings = ShardLoader(
            processor,
            place.bus,
            place.states,
            place.backups,
            threads,
            worker=place.identity,
            from_earliest=from_earliest,
            now_ms=self._clock.now_ms,
        )
        self._owned: set[Bucket] = set()
        self._is_told = False
        self._shards: dict[int, Shard] = {}
        self._unopened: set[int] = set()
        self._open_at_s = 0.0
        self._pending = Uncommitted(self._clock.monotonic_s())
        self._being_saved = self._pending
        self._began_saving_s = 0.0
        self._dismissals = 0
        self._dismissed_s = 0.0
        self._has_failed = False
        self._has_started_over = False
        self.is_saved = False
        self._stopping = False
        self._keeps_place = False
        self.tally = Metrics(lookups=processor.counts() if isinstance(processor, LookupJoin) else None)
        self._reader = self._joined()
        self._pace = BatchSizer(self._reader.at_most)
        self._executing = CheckpointExecutor(processor, place.bus, self._reader, place.identity, threads)
        self._sending = OutputWriter(processor, self._codecs, self._executing, self._clock, self.tally)
        self._saving = CheckpointCoordinator(self._steps, self._executing, saver, self._pass_gap)
        self._topics = TopicWatch(type(processor), place.bus, threads, self._clock)
        self._time = WatermarkTracker(processor, place.bus, asker or saver, self._clock)
        self._meeting = InputMerger(list(self._inputs), self._clock)

    def _pass_gap(self, gap: Gap) -> None:
        self.at_gap(gap)

    def _joined(self) -> Reader:
        return self._place.bus.reader(self._processor.name, list(self._inputs), self, self._place.identity)

    def run(self, finished: Callable[[Worker], bool] = lambda _: False, *, keep_place: bool = False) -> None:
        """Work until `stop` is called or `finished` says so, save a last checkpoint, and end.

        Args:
            finished: asked after each turn.
            keep_place: stay a member of the group, whose buckets wait for this worker's return, and not leave it.
        """
        try:
            while not (self._stopping or finished(self)):
                self.turn()
            self.save()
            if not (keep_place or self._keeps_place):
                self._reader.leave()
        except BaseException:
            self._abandon()  # what is not saved is done again by whoever owns the buckets next
            raise
        finally:
            self._close()

    def _abandon(self) -> None:
        """Save, send and commit nothing any more, whoever asks for it: a state that could not be saved must not be taken for saved."""
        self._has_failed = True
        self._executing.abandon()
        attempt_all([self._saving.abandon, lambda: self._let_go(list(self._owned)), self._executing.close])

    def turn(self) -> None:
        """Take over what was opened, poll once, process what came, and begin a checkpoint if one is due."""
        try:
            self._topics.look()
            self._take_over()
            polled = self._poll()
            self._topics.expect_declared(self._owned)
            self._time.wake({batch.bucket for batch in polled.batches})
            deferred = self._process_all(polled.batches)
            for bucket, end in polled.ended:
                if bucket not in deferred:
                    self._note_end(bucket, end)
            self._pass_time()
            self._save_if_due()
        except MembershipLost as error:
            self._join_anew(error)
        except _TAKEN_BACK as error:
            self._start_over(error)
        self._at_turn(self)

    def _poll(self) -> Polled:
        self._reader.at_most = self._pace.at_most
        try:
            polled = self._reader.poll(SAVING_POLL_WAIT_S if self._saving.under_way else POLL_WAIT_S)
        except (OffsetOutOfRange, MissingCategory):
            self._topics.expect_same()  # which says more, where that is why
            raise
        if len(self._inputs) == 1:
            return polled
        met = self._meeting.after(polled)
        self._meeting.hold_back(self._reader)
        return met

    def stop(self, *, keep_place: bool = False) -> None:
        """Ask `run` to end after the turn it is in; may be called from a signal handler.

        Args:
            keep_place: as for `run`.
        """
        self._stopping, self._keeps_place = True, keep_place

    @property
    def owned(self) -> tuple[int, ...]:
        """The numbers of the buckets that are its own, in order, whether or not it reads them yet."""
        return tuple(sorted({bucket.number for bucket in self._owned}))

    @property
    def is_settled(self) -> bool:
        """Whether it reads all the buckets that are its own."""
        return self._shards.keys() == set(self.owned)

    @property
    def shards(self) -> Collection[Shard]:
        """Those that are open."""
        return self._shards.values()

    @property
    def owns_nothing(self) -> bool:
        """Whether other workers have all the buckets; False while it is not known yet who has them."""
        return self._is_told and not self._owned

    def has_reached(self, targets: Mapping[Bucket, int]) -> bool:
        """Tell whether every bucket that it owns is read up to its target, with what was promised; False while it owns none."""
        return (
            bool(self._owned)
            and self._time.is_read
            and all(self._has_reached(bucket, targets.get(bucket, 0)) for bucket in self._owned)
        )

    def _has_reached(self, bucket: Bucket, target: int) -> bool:
        shard = self._shards.get(bucket.number)
        return shard is not None and shard.position.get(bucket.category, -1) >= target

    def sweeper(self) -> TransactionSweeper | None:
        """Return what ends transactions that workers of the processor left open which are gone; None where it has no transactions."""
        executing = self._executing
        if not executing.takes_back:
            return None
        return TransactionSweeper(
            type(self._processor),
            self._place.bus,
            self._place.identity,
            executing.written,
            limit_s=executing.timeout_s,
            end_left_open=executing.end_left_open,
            clock=self._clock,
        )

    def _take_over(self) -> None:
        """Begin to read the buckets whose shards have been opened."""
        self._open_wanted()
        for opened in self._openings.finished():
            shard = opened.shard
            self._topics.expect(opened.topic_ids)
            self._shards[shard.number] = shard
            if opened.unsent is not None:
                self._settle()
                self._executing.send_outbox(shard, opened.unsent)
            if opened.is_unlogged:
                self._settle()
                self._executing.log_state(shard)
            self._adopt(shard)
            self._pending.add(
                int(shard.has_news), 0
            )  # its state may be ahead of the group, which is told although no event comes
            self._time.begin(shard)
            self._meeting.drop([position.bucket for position in opened.begins])
            if self._is_state_only(shard) and len(self._inputs) > 1:
                self._meeting.catch_up(opened.begins, shard.state_only_until)
            self._reader.start(opened.begins)

    def _open_wanted(self) -> None:
        """Begin to open shards, each once; not before outputs of an earlier life are ended, so that the positions are final."""
        if self._unopened and self._clock.monotonic_s() >= self._open_at_s and self._executing.is_ready():
            numbers, self._unopened, self._has_started_over = sorted(self._unopened), set(), False
            self._openings.begin(numbers)

    def _adopt(self, shard: Shard) -> None:
        identity = self._openings.identity(shard.number)
        if identity is not None and shard.state is not None:
            self._place.backups.adopt(identity, shard.state)

    def _process_all(self, batches: Sequence[RawBatch]) -> set[Bucket]:
        """Take batches through the processor; those from the first on that it cannot take just now are read again.

        All of them, since each would have the worker wait in turn, and a worker has to go on polling.

        Returns:
            The buckets of those that are read again.
        """
        for at, batch in enumerate(batches):
            try:
                self._process(batch)
            except Deferred:
                self._read_again(batches[at:])
                return {batch.bucket for batch in batches[at:]}
            self._save_if_due()
        return set()

    def _read_again(self, batches: Sequence[RawBatch]) -> None:
        begins = {batch.bucket: batch.messages[0].offset() for batch in reversed(batches)}
        self._meeting.drop(begins.keys())
        self._reader.start([Position(*begin) for begin in begins.items()])
        for bucket in begins:
            self._time.heard(bucket)  # what waits here must not be taken for silence

    def _process(self, batch: RawBatch) -> None:
        """Take one batch through the processor, and note how far the bucket is read."""
        shard = self._shards.get(batch.bucket.number)
        if shard is None:
            return  # handed out before the bucket moved away; its new owner reads it
        for part, read_before in shard.parts(batch):
            if not read_before and self._is_state_only(shard):
                self._reach(shard, part.bucket.category, part.messages[0].offset())
            self._feed(shard, part, state_only=read_before and not self._repeats)

    def _feed(self, shard: Shard, batch: RawBatch, *, state_only: bool) -> None:
        category = self._inputs[batch.bucket.category]
        values = batch.values()
        decoded = self._codecs.of(category).decode(values)
        decoded = with_deletions(decoded, batch.messages, category, self._processor)
        if category.name not in shard.position:
            expect_unit(type(self._processor), batch.bucket, category, decoded.events, self._clock.now_ms())
        given = taken(
            decoded, category, batch.arrivals_ms(), self._processor, self._misplaced(batch, category, decoded)
        )
        stops = self._processor.on_error is ErrorPolicy.STOP
        if not state_only:
            given = self._rejecting.cut(batch, given)
        began_s = self._clock.monotonic_s()
        try:
            fed = shard.core.feed(category, given.events, stop_at_error=stops)
        except Halted as error:
            # At the first message: of those before the first event, nothing was set aside yet.
            raise self._stopped_at(shard, batch, 0, str(error)) from error
        self._pace.note(len(given.events), self._clock.monotonic_s() - began_s)
        if not state_only:
            self._sending.send(shard, fed.outputs)
        refused = list(refusals(given, fed, self._processor))
        for refusal in refused:
            if refusal.stops:
                self._stop_at(shard, batch, refusal)
            if not state_only:
                self._sending.set_aside(shard, batch, refusal)
        too_many = None if state_only else self._rejecting.note(batch, refused)
        self._reach(shard, batch.bucket.category, batch.next_offset)
        self._time.heard(batch.bucket)
        size_bytes = sum(map(len, filter(None, values)))
        self._pending.add(len(values), size_bytes)
        shard.events_in += len(values)
        self.tally.events_in += len(values)
        self.tally.bytes_in += size_bytes
        self.tally.late += fed.late
        self.tally.dropped += fed.dropped
        self.tally.unmatched += fed.unmatched
        if too_many is not None:
            raise self._stopped_behind(batch, too_many)

    def _reach(self, shard: Shard, category: str, offset: int) -> None:
        """Note that all before an offset was read; where the state has caught up with that, what came of it is on the bus already."""
        was_state_only = self._is_state_only(shard)
        shard.position[category] = offset
        if was_state_only and not shard.catching_up:
            self._drain(shard, state_only=True)

    def _misplaced(self, batch: RawBatch, category: AnyCategory, decoded: Decoded) -> list[RejectedEvent]:
        found = self._placement.misplaced(category, batch.bucket.number, decoded.events)
        return [] if found is None else [misplaced(found, decoded.at[found.at], batch, category, type(self._processor))]

    def _pass_time(self) -> None:
        """Do what is due by what is known of the inputs beside their events, and at this time of day."""
        self._time.read()
        for shard in self._shards.values():
            if not shard.catching_up:
                low_ms = shard.core.time.low_ms
                known = self._time.known(shard)
                for fed in (shard.core.advance(*known), shard.core.tick(self._clock.now_ms())):
                    self._sending.send(shard, fed.outputs)
                    self._note_due(shard, len(fed.outputs))
                self._note_due(shard, int(shard.core.time.low_ms > low_ms))
        self._time.go_on()

    def _note_due(self, shard: Shard, times: int) -> None:
        """Note that something was due without an event, which is to be saved."""
        if times:
            self._pending.add(times, 0)
            self._time.moved(shard.number)

    def _drain(self, shard: Shard, *, state_only: bool) -> None:
        """Take out of a core what a checkpoint has to send and save."""
        drained = shard.core.drain()
        shard.overlay.add(drained.changes)
        if not state_only:
            self._sending.send(shard, drained.outputs)

    def _stop_at(self, shard: Shard, batch: RawBatch, refusal: RejectedEvent) -> None:
        """Save what came before an event, then stop there."""
        remedy = refusal.remedy or (
            f"Mend {self._name} or what produces such events, or let them go to {dead_letters_of(type(self._processor)).name} "
            f"(`{refusal.otherwise}`)."
        )
        raise self._stopped_at(shard, batch, refusal.at, f"{refusal.reason}.", remedy) from refusal.cause

    def _stopped_at(self, shard: Shard, batch: RawBatch, at: int, reason: str, remedy: str = "") -> EventRejected:
        """Save what came before an event; return what says that the worker stops there."""
        offset = batch.messages[at].offset()
        shard.position[batch.bucket.category] = offset
        self.save()
        saved = shard.saved_position == shard.position
        before = "is saved" if saved else "will be read again, since it could not be saved just now,"
        told = (
            f"{batch.bucket} at offset {offset}: {reason} All before this event {before} and nothing was skipped: the worker stops here, "
            f"and comes to it again when it is started again. {remedy}"
        )
        return EventRejected(told.rstrip())

    def _stopped_behind(self, batch: RawBatch, refusal: RejectedEvent) -> EventRejected:
        """Save a batch that was processed; return what says that the worker stops behind it."""
        self.save()
        return EventRejected(
            f"{batch.bucket} at offset {batch.messages[refusal.at].offset()}: {refusal.reason}. The events up to offset {batch.next_offset - 1} are "
            f"processed or set aside, and nothing was skipped: the worker stops here, and goes on behind them when it is started again. "
            f"{refusal.remedy}"
        )

    def _note_end(self, bucket: Bucket, end: int) -> None:
        """Move past what only the bus itself has written at the end of a bucket."""
        shard = self._shards.get(bucket.number)
        if shard is not None and end > shard.position.get(bucket.category, -1):
            self._reach(shard, bucket.category, end)

    def _save_if_due(self) -> None:
        """Note a checkpoint that was saved meanwhile, and begin one that is due; two are never under way."""
        self._note_saved()
        if self._pending.due(self._processor, self._clock.monotonic_s()):
            self._settle()
            self._begin()
            self._note_saved()

    def _note_saved(self) -> None:
        while self._saving.ready:
            self._advance()

    def save(self) -> bool:
        """Save a checkpoint and wait for it; where that cannot be now, what is left is saved with the next one, or done again.

        Returns:
            Whether all that was done is saved.
        """
        saved = False
        with self._starting_over():
            self._settle()
            self._begin()
            self._settle()
            saved = not any(shard.has_news for shard in self._shards.values())
        self.is_saved = saved and not self._has_started_over
        return self.is_saved

    @contextmanager
    def _starting_over(self) -> Iterator[None]:
        """Start over where the checkpoint that the block is about is taken back."""
        try:
            yield
        except (MembershipLost, *_TAKEN_BACK) as error:
            self._start_over(error)  # where the membership has ended, the next poll says so, too, and joins anew

    def _begin(self) -> None:
        """Begin to save everything that was read so far."""
        for shard in self._shards.values():
            self._drain(shard, state_only=self._is_state_only(shard))
        shards = [shard for shard in self._shards.values() if shard.has_news]
        self._time.sealed(shards)
        self._being_saved, self._pending = self._pending, Uncommitted(self._clock.monotonic_s())
        if shards:
            self._began_saving_s = self._clock.monotonic_s()
            self._saving.begin(shards)

    def _settle(self) -> None:
        """Wait for the checkpoint under way, if there is one."""
        while self._saving.under_way:
            self._advance()

    def _advance(self) -> None:
        """Bring the checkpoint under way nearer to its end; what it leaves is saved with the next one."""
        try:
            if self._saving.advance():
                self.tally.checkpoints += 1
                self.tally.saved_ms = self._clock.now_ms()
                self.tally.saving_s = self._clock.monotonic_s() - self._began_saving_s
                self._time.saved(self._saving.saved)
                self._openings.note_committed([sealed.number for sealed in self._saving.saved if sealed.reached])
        except CommitUnconfirmed as error:
            _LOG.info("%s", error)
            self._pending.put_back(self._being_saved)
            self._time.put_back()

    def _is_state_only(self, shard: Shard) -> bool:
        """Tell whether what a core gives at a checkpoint is on the bus already."""
        return shard.catching_up and not self._repeats

    @property
    def _repeats(self) -> bool:
        """Whether outputs are sent again while a state catches up.

        Of several inputs one may have caught up before another, so that what their events give together is old and new at once: it
        is repeated where outputs may come again, and left out where they may be missing.
        """
        return len(self._inputs) > 1 and self._processor.output_semantics is Semantics.AT_LEAST_ONCE

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Note buckets that are ours now; the next turn begins to open their shards."""
        self._is_told = True
        self._place.letting_go.end()
        if not buckets or self._has_failed:
            return
        before = {bucket.number for bucket in self._owned}
        self._owned.update(buckets)
        self._tell_owned()
        self._unopened |= {bucket.number for bucket in buckets} - before

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Save everything, then close the shards that go to another owner; after a failure, nothing is saved."""
        if not self._has_failed:
            self._place.letting_go.begin()
            self.save()
            self._let_go(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Close shards without saving."""
        if self._has_failed:
            return
        with self._starting_over():
            self._settle()
        self._let_go(buckets)
        if self._executing.takes_back:
            self._start_over(None)  # what those buckets gave is in one transaction with whatever comes next

    def _let_go(self, buckets: Sequence[Bucket]) -> None:
        self._is_told = False  # until it is said who has what then
        numbers = {bucket.number for bucket in buckets}
        self._owned = {bucket for bucket in self._owned if bucket.number not in numbers}
        self._tell_owned()
        self._unopened -= numbers
        do_all([lambda: self._close_shards(numbers), lambda: self._openings.drop(sorted(numbers))])

    def _tell_owned(self) -> None:
        numbers = sorted({bucket.number for bucket in self._owned})
        _LOG.info("Owns %d buckets.", len(numbers), extra={"buckets": numbers})

    def _start_over(self, error: PenstockError | None) -> None:
        """Drop what is not saved, and go on from the last checkpoint with whatever is still ours."""
        if error is not None:
            _LOG.warning("%s", error)
        self._has_started_over = True
        self._saving.abandon()
        do_all([lambda: self._close_shards(set(self._shards)), self._openings.stop])
        self._executing.start_over(self._reader)
        self._unopened = {bucket.number for bucket in self._owned}
        self._open_at_s = self._clock.monotonic_s() + _pause_s(error)

    def _join_anew(self, error: MembershipLost) -> None:
        """Become a member again; the bus ends a membership, for one, when it sees two of one identity.

        As often as that happens: an outage may end one membership after the other. Two that use one identity take turns, with longer
        and longer pauses; neither does harm, since each is fenced.
        """
        now_s = self._clock.monotonic_s()
        lately = now_s - self._dismissed_s < QUIET_S
        self._dismissals, self._dismissed_s = self._dismissals + 1 if lately else 1, now_s
        _LOG.warning("%s It joins again (the %s time in a row).", error, _ordinal(self._dismissals))
        self._saving.abandon()
        self._let_go(list(self._owned))
        self._reader.close()
        self._reader = self._joined()
        self._start_over(None)
        self._open_at_s = now_s + REJOIN_PAUSES_S[min(self._dismissals, len(REJOIN_PAUSES_S)) - 1]

    def _close_shards(self, numbers: set[int]) -> None:
        closing = [partial(self._close_shard, number) for number in numbers & set(self._shards)]
        dropped = [Bucket(name, number) for name in self._inputs for number in numbers]
        do_all(
            [
                *closing,
                lambda: self._time.drop(numbers),
                lambda: self._rejecting.drop(dropped),
                lambda: self._meeting.drop(dropped),
            ]
        )

    def _close_shard(self, number: int) -> None:
        shard, identity = self._shards.pop(number), self._openings.identity(number)
        release = [] if identity is None else [lambda: self._place.backups.release(identity)]
        do_all([*release, shard.close])

    def _close(self) -> None:
        ends = (
            self._openings.close,
            self._place.backups.close,
            self._time.close,
            self._reader.close,
            self._executing.close,
            *([] if self._has_failed else [self._place.letting_go.end]),
        )
        error = attempt_all(ends)
        if error is not None and not self._has_failed:
            raise error


def _pause_s(error: PenstockError | None) -> float:
    if isinstance(error, Fenced | StoreFenced):
        return FENCED_PAUSE_S
    return OUTAGE_PAUSE_S if isinstance(error, BusUnreachable | DeliveryFailed | CommitUnconfirmed) else 0.0


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
