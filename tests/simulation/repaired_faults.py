"""Repaired faults of the library: each function replaces a part of the library and returns the fault within a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from math import inf
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from support.subjects import MOST
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.archive import bucket_opener
from penstock.ops.change.maintenance.reset import _LocalReset
from penstock.ops.change.maintenance.reset_plan import ShardPlan
from penstock.ops.kernel import Worker
from penstock.ops.kernel.checkpoint import checkpoint_executor, output_writer
from penstock.ops.kernel.checkpoint.checkpoint_executor import CheckpointExecutor
from penstock.ops.kernel.checkpoint.checkpoint_scheduler import CheckpointScheduler, Hold
from penstock.ops.kernel.checkpoint.output_pace import OutputPace
from penstock.ops.kernel.checkpoint.snapshot_participant import SnapshotParticipant, _Cut
from penstock.ops.kernel.checkpoint.transaction_sweeper import TransactionSweeper
from penstock.ops.kernel.event_time.loop_watermark import LoopWatermark, _Statements
from penstock.ops.kernel.event_time.upstream_shards import Reached, ShardProgress, Summary, UpstreamShards, _slowness
from penstock.ops.kernel.event_time.watermark_subscriber import BucketWatermarks, InputWatermark
from penstock.ops.kernel.event_time.watermark_tracker import WatermarkTracker
from penstock.ops.kernel.loop.batch_intake import BatchIntake
from penstock.ops.kernel.loop.ownership import Ownership
from penstock.ops.kernel.shards import changelog_replay, open_shards, resume_checks, shard_opener, topic_watch
from penstock.ops.kernel.shards.bus_snapshot import BusSnapshot
from penstock.ops.kernel.shards.open_shard import OpenShard
from penstock.ops.kernel.shards.sink_writers import SinkWriters
from penstock.ops.kernel.telemetry import reports
from penstock.ops.serve.latest import served_pairs
from penstock.ops.serve.latest.served_pairs import ServedPairs
from penstock.ops.serve.latest.table import Pair
from penstock.ops.shell.process.clock import WallClock
from penstock.processors.declare import (
    AnyCategory,
    BufferedEvent,
    BufferedSide,
    Category,
    Message,
    RetryChain,
    RowDeletion,
    SinkBatch,
)
from penstock.processors.operators import SessionOperator, sessions, stateful
from penstock.processors.operators.closing_windows import WindowSchedule
from penstock.processors.operators.early_results import EarlyResults
from penstock.processors.operators.panes import PaneValues
from penstock.processors.operators.sliding_history import SlidingHistory
from penstock.processors.shard import Offsets, StatePosition, checkpoints, is_committed
from penstock.processors.shard import Shard as RunningShard
from penstock.processors.time import FOREVER_MS, IdleDetector, InFlight, ShardTime
from penstock.state.backups import Manifest, restore
from penstock.state.backups.manifest import FORMAT
from penstock.state.backups.shard_backup import AdoptedShard
from penstock.state.backups.writer import BackupWriter
from penstock.state.local import folder
from penstock.state.remote import ShardVersion, StoredShard
from penstock.state.remote.protocols import Write
from penstock.state.sinks import MemoryRows
from penstock.transport import (
    Bucket,
    BucketFollower,
    Outgoing,
    RawBatch,
    Returned,
    category_rows,
    create_missing_categories,
    origin_in,
    returned,
)
from penstock.transport.clusters import _ClustersWriter
from penstock.transport.codecs.avro import AvroCodec, fingerprint_with_logical_types, schema_of
from penstock.transport.memory.writers import MemoryTransactionalWriter
from penstock.transport.tables import SCHEMAS, Schema, Schemas, SnapshotRequest

from . import archiving
from .restoring import install_backup
from .scheduler import START_MS
from .stores import Row


def backups_that_the_store_has_lost_are_not_missed() -> AbstractContextManager[object]:
    """Make no backup of a state that has not changed since the last one, whatever the store contains."""
    return patch.object(AdoptedShard, "_is_stored", lambda _: True)


def manifests_come_before_their_files() -> AbstractContextManager[object]:
    """Store the manifest of a backup before the files that it names."""

    def faulty(self: BackupWriter, snapshot: Path, position: StatePosition) -> Manifest:
        files = {path: self._named(path, {}) for path in sorted(snapshot.iterdir())}
        self._sequence += 1
        number = self._epoch, self._sequence
        manifest = Manifest(FORMAT, self._identity, position, *number, 0, tuple(files.values()))
        self._store.write(self._backups.manifest_path(manifest.id), [manifest.encode()])
        for path, file in files.items():
            self._stored(path, file, self._backups.files())
        self.newest = manifest
        return manifest

    return patch.object(BackupWriter, "save", faulty)


def databases_are_restored_in_place() -> AbstractContextManager[object]:
    """Make the folder of a database current before it is complete."""

    def faulty(shard: Path, make: Callable[[Path], None]) -> Path:
        database = shard / folder._next_number(shard)
        make(database)
        return database

    return patch.object(restore, "add_database", faulty)


def silence_is_idleness() -> AbstractContextManager[object]:
    """Treat a bucket without events as idle, even if the bus does not answer."""

    def is_idle(self: IdleDetector, now_s: float) -> bool:
        return now_s - self._heard_s >= self._timeout.idle_after_s and self._heard_s > -inf

    return patch.object(IdleDetector, "is_idle", is_idle)


def sessions_end_before_their_last_event() -> AbstractContextManager[object]:
    """Before an event, write all sessions that its own watermark ends."""
    return patch.object(sessions, "due_before", lambda _, low_ms, __: low_ms)


def sessions_that_touch_merge() -> AbstractContextManager[object]:
    """Combine an event with a session that ends exactly a gap before it."""
    add = SessionOperator._add

    def faulty_add(self: SessionOperator, key: str, time: int, event: object, low_ms: int) -> bool:
        touches = any(time == session.last + self._gap_ms for session in self._open[key])
        return add(self, key, time - touches, event, low_ms)

    return patch.object(SessionOperator, "_add", faulty_add)


def windows_accept_events_at_their_close() -> AbstractContextManager[object]:
    """Accept an event at the very end of the allowed lateness."""
    is_closed = WindowSchedule.is_closed
    return patch.object(WindowSchedule, "is_closed", lambda self, start, low_ms: is_closed(self, start, low_ms - 1))


def joins_forget_a_moment_early() -> AbstractContextManager[object]:
    """Drop a right event when the watermark reaches the time of its last match."""
    wait_ms = ps.Join._wait_ms
    return patch.object(ps.Join, "_wait_ms", lambda self, *, is_left: wait_ms(self, is_left=is_left) - (not is_left))


def outputs_that_time_out_come_again_as_many() -> AbstractContextManager[object]:
    """After outputs were not accepted in time, write as many in the same time."""
    return patch.object(OutputPace, "note_time_out", lambda *_: None)


def outputs_without_a_transaction_wait_only_at_checkpoints() -> AbstractContextManager[object]:
    """Send all outputs of an event or a watermark at once, also after they have timed out."""
    note_time_out = OutputPace.note_time_out

    def faulty(self: OutputPace, events: int, accepted: float, now_s: float) -> None:
        note_time_out(self, events, accepted, now_s)
        self.portion = None

    return patch.object(OutputPace, "note_time_out", faulty)


def positions_go_back_while_a_state_catches_up() -> AbstractContextManager[object]:
    """Let the group's positions follow a state that is behind its outputs."""
    return patch.object(RunningShard, "_reached", lambda self: dict(self.position))


def transactions_of_lost_buckets_go_on() -> AbstractContextManager[object]:
    """Commit what was written for lost buckets with the next checkpoint."""

    def lost(self: Ownership, buckets: Sequence[Bucket]) -> None:
        with self._recovering():
            self._checkpoints.complete()
        self._release(buckets)

    return patch.object(Ownership, "lost", lost)


def retries_of_a_former_owner_hold_nothing() -> AbstractContextManager[object]:
    """Let the watermark of a new owner pass the events that its predecessor sent to its retry categories."""
    return patch.object(InFlight, "expect", lambda *_: None)


def watermarks_are_published_when_a_checkpoint_begins() -> AbstractContextManager[object]:
    """Publish the watermark of a checkpoint before its outputs are durable."""
    checkpoint_begun = WatermarkTracker.checkpoint_begun

    def faulty(self: WatermarkTracker, shards: Sequence[OpenShard]) -> None:
        checkpoint_begun(self, shards)
        self.publish({shard.number: shard.operator.time.low_ms for shard in shards})

    return patch.object(WatermarkTracker, "checkpoint_begun", faulty)


def statements_apply_one_event_early() -> AbstractContextManager[object]:
    """Apply an upstream watermark before the last event in front of it is read."""

    def faulty(self: UpstreamShards, reached: Reached, bucket: int, position: int) -> Reached:
        return advance(self, reached, bucket, position + 1)

    advance = UpstreamShards.advance
    return patch.object(UpstreamShards, "advance", faulty)


def new_readers_take_the_newest_watermarks() -> AbstractContextManager[object]:
    """Apply the newest watermark of an upstream shard until the first one applies whose end offsets are read."""
    summary = UpstreamShards.summary

    def faulty(self: UpstreamShards, reached: Reached, *, with_outside: bool) -> Summary:
        newest_ms = {owner: statement.watermark_ms for owner, statement in self._newest.items()}
        return summary(self, Reached(reached.number, {**newest_ms, **reached.watermarks_ms}), with_outside=with_outside)

    return patch.object(UpstreamShards, "summary", faulty)


def closed_windows_stay_in_the_state() -> AbstractContextManager[object]:
    """Forget only the values of closed windows that are not saved yet."""
    return patch.object(PaneValues, "remove_all", lambda self, start: self._merged.pop(start, None))


def headers_of_producers_count() -> AbstractContextManager[object]:
    """Take the place of an event from its headers, as if only Penstock wrote them."""

    def faulty(message: Message, bucket: Bucket, chain: RetryChain | None) -> Returned:
        origin = origin_in(message.headers() or ())
        return returned(message, bucket, chain) if origin is None else Returned(message, origin)

    return patch.object(output_writer, "returned", faulty)


def prepared_states_count_without_their_id() -> AbstractContextManager[object]:
    """Take a prepared checkpoint for committed if the group has its positions, whatever checkpoint committed them."""

    def faulty(before: Offsets, after: StatePosition, committed: StatePosition, what: str) -> bool:
        return is_committed(
            before, msgspec.structs.replace(after, checkpoint_id=committed.checkpoint_id), committed, what
        )

    return patch.object(resume_checks, "is_committed", faulty)


def timers_fire_before_events_on_time() -> AbstractContextManager[object]:
    """Before an event, fire all timers that are due by its own watermark."""
    return patch.object(stateful, "due_before", lambda _, low_ms, __: low_ms)


def jumps_of_a_clock_count_at_once() -> AbstractContextManager[object]:
    """Follow the wall clock of the machine, whatever it shows."""
    return patch.object(WallClock, "_has_lasted", lambda *_: True)


def idleness_is_older_than_the_events() -> AbstractContextManager[object]:
    """Let event time pass an idle input as long as its silence was confirmed within the last seconds."""
    return patch.object(WatermarkTracker, "_passed_by", lambda _, __: FOREVER_MS)


def tables_are_served_before_they_are_read() -> AbstractContextManager[object]:
    """Serve the shards of a Laser table as soon as they are open."""

    def publish(self: ServedPairs, worker: Worker) -> None:
        self._shards = {shard.number: shard.state for shard in worker.shards if shard.state is not None}

    return patch.object(ServedPairs, "publish", publish)


def expired_pairs_are_served() -> AbstractContextManager[object]:
    """Serve the pairs of a Laser table until their timers fire, at the watermark."""

    def live(saved: Sequence[bytes | None], _: float) -> list[Pair | None]:
        return [None if each is None else msgspec.msgpack.decode(each, type=Pair) for each in saved]

    return patch.object(served_pairs, "_live", live)


def idle_before_it_is_read() -> AbstractContextManager[object]:
    """Ignore an idle upstream shard before its earlier outputs are read."""

    def blocking(self: Summary, _: object) -> ShardProgress | None:
        return min((shard for shard in self.shards if not shard.newest.idle), key=_slowness, default=None)

    return patch.object(Summary, "blocking", blocking)


def outputs_go_on_during_a_snapshot() -> AbstractContextManager[object]:
    """Let outputs and checkpoints go on before the ends of a snapshot are noted."""
    advance_hold = CheckpointScheduler._advance_hold

    def advance_and_go_on(self: CheckpointScheduler, hold: Hold) -> None:
        advance_hold(self, hold)
        if hold.is_complete:
            self._coordinator.release()
            self._hold = None

    return patch.object(CheckpointScheduler, "_advance_hold", advance_and_go_on)


def snapshots_begin_without_shards() -> AbstractContextManager[object]:
    """Hold the outputs of a worker that has no open shard, and so no writer."""

    def begin(self: SnapshotParticipant, request: SnapshotRequest, *, is_settled: bool) -> None:
        self._cut = _Cut(request, self._checkpoints.hold())

    return patch.object(SnapshotParticipant, "_begin", begin)


def a_restored_state_is_current() -> AbstractContextManager[object]:
    """Let a state of a snapshot have the positions of the group, as if it contained all events before them."""

    def install_as_current(self: _LocalReset, shard: ShardPlan) -> None:
        generation = self.operation.lineage.generation(shard.bucket)
        assert shard.backup is not None
        position = StatePosition(shard.target, generation=generation, topic_ids=self._topic_ids)
        install_backup(self._local, shard.bucket, shard.backup, position)

    return patch.object(_LocalReset, "_install", install_as_current)


def events_of_a_loop_hold_nothing() -> AbstractContextManager[object]:
    """Let the watermark of a loop pass what its shards have sent into it."""
    return patch.object(LoopWatermark, "record_sent", lambda *_: None)


def rounds_of_a_loop_wait_for_no_reader() -> AbstractContextManager[object]:
    """Let shards enter the next round before they have read what was sent before the previous one."""
    return patch.object(_Statements, "end_of", lambda *_: 0)


def watermarks_are_no_news() -> AbstractContextManager[object]:
    """Neither save nor publish a watermark if only event time has advanced."""

    def has_news(self: RunningShard[Any]) -> bool:
        moved = self.position != self.saved_position or self._reached() != self.committed
        return moved or bool(self.held) or bool(self.overlay.changes)

    return patch.object(RunningShard, "has_news", property(has_news))


def early_results_are_forgotten() -> AbstractContextManager[object]:
    """Store the list of pending early results only in memory."""
    return patch.object(EarlyResults, "_load", lambda *_: None)


def written_early_results_stay_pending() -> AbstractContextManager[object]:
    """Save the list of pending early results without the removal of results that were written."""
    return patch.object(EarlyResults, "drop", lambda self, start: self._pending.pop(start, None))


def told_again_by_a_lost_state() -> AbstractContextManager[object]:
    """Write no changelog for at-most-once outputs that no event causes."""
    is_logged = checkpoints._is_logged

    def faulty_is_logged(processor: type[ps.Processor]) -> bool:
        return processor.output_semantics is not MOST and is_logged(processor)

    return patch.object(checkpoints, "_is_logged", faulty_is_logged)


def saved_after_a_failure() -> AbstractContextManager[object]:
    """Save once more at the end of a worker whose state cannot be written."""

    def abandon(self: Ownership) -> None:
        self._checkpoints.abandon()
        self._release(list(self.owned))

    def begin(self: CheckpointExecutor, *, hold: bool = False) -> None:
        self._waiting, self._holding, self._is_flushed = [], hold, False
        if self._transactional:
            self._transactions.enlist()

    def do_in_order(calls: Iterable[Callable[[], object]]) -> None:
        for call in calls:
            call()

    stack = ExitStack()
    stack.enter_context(patch.object(Ownership, "abandon", abandon))
    stack.enter_context(patch.object(CheckpointExecutor, "begin", begin))
    stack.enter_context(patch.object(open_shards, "do_all", do_in_order))
    return stack


def archivers_share_an_epoch() -> AbstractContextManager[object]:
    """Allow an archiver that was paused to overwrite its successor's files."""
    return patch.object(bucket_opener, "claim", lambda *_: 1)


def expired_positions_make_it_new() -> AbstractContextManager[object]:
    """Treat a group without positions as a new group."""
    return patch.object(BusSnapshot, "have_expired", lambda *_: False)


def deletions_are_missed() -> AbstractContextManager[object]:
    """Replay a changelog from the state's position, however old it is."""
    return patch.object(changelog_replay, "_may_lack_deletions", lambda *_: False)


def topics_go_by_their_names() -> AbstractContextManager[object]:
    """Continue in a recreated topic of the same name."""
    return patch.object(shard_opener, "expect_same_topics", lambda *_: None)


def new_buckets_are_read() -> AbstractContextManager[object]:
    """Read buckets that another tool has added to a topic."""
    stack = ExitStack()
    stack.enter_context(patch.object(topic_watch, "expect_bucket_count", lambda *_: None))
    stack.enter_context(patch.object(BatchIntake, "_misplaced", lambda *_: []))
    return stack


def bootstrap_by_the_last_file() -> AbstractContextManager[object]:
    """Treat the largest offset in the files of a bucket as the end of its archive."""

    def by_files(_: object, warehouse: MemoryWarehouse, category: str) -> dict[int, int]:
        ends: dict[int, int] = {}
        for number, offset in archiving.events_in(warehouse, category):
            ends[number] = max(offset + 1, ends.get(number, 0))
        return ends

    return patch.object(archiving, "bootstrap_ends", by_files)


def event_time_is_not_saved() -> AbstractContextManager[object]:
    """Treat the first event time after a restart as the newest event time."""
    return patch.object(ShardTime, "drain", lambda *_: {})


def chunks_are_dropped() -> AbstractContextManager[object]:
    """Store only the newest values of a key for sliding windows."""

    def drop_chunks(self: SlidingHistory, key: str, _: int) -> None:
        del self._histories[key].chunks[:]

    return patch.object(SlidingHistory, "_drop_chunks", drop_chunks)


def ended_events_come_back() -> AbstractContextManager[object]:
    """Save no chunk of a join's buffered events again of which some have ended."""
    remove_first = BufferedSide.remove_first

    def remove(self: BufferedSide, count: int) -> list[BufferedEvent]:
        saved = {chunk.number for chunk in self.chunks if chunk.is_saved}
        removed = remove_first(self, count)
        for chunk in self.chunks:
            chunk.is_saved = chunk.number in saved
        return removed

    return patch.object(BufferedSide, "remove_first", remove)


def watermarks_come_after_the_end() -> AbstractContextManager[object]:
    """End a run to the end of its input before the last watermarks of the runs before it are read."""
    return patch.object(Worker, "has_read_watermarks", lambda *_: True)


def an_outage_is_silence() -> AbstractContextManager[object]:
    """Count the time of an outage as silence of the runs before a run to the end of its input."""
    return patch.object(reports, "REPORT_INTERVAL_S", inf)


def rows_stay() -> AbstractContextManager[object]:
    """Ignore messages that delete rows of a table."""
    process = ps.TableJoin.process

    def faulty_process(self: ps.TableJoin, event: object, state: object, context: ps.Context) -> object:
        return (state, ()) if type(event) is RowDeletion else process(self, event, state, context)

    return patch.object(ps.TableJoin, "process", faulty_process)


def rows_go_when_they_are_read() -> AbstractContextManager[object]:
    """Apply a deletion at the brokers' time instead of its writer's time."""
    begin = RowDeletion.__init__

    def faulty_begin(self: RowDeletion, category: AnyCategory, key: str, _: int) -> None:
        begin(self, category, key, START_MS)

    return patch.object(RowDeletion, "__init__", faulty_begin)


def unanswered_batches_are_skipped() -> AbstractContextManager[object]:
    """Continue after a batch whose lookups fail."""
    return patch.object(Worker, "_read_again", lambda *_: None)


class _Hasty(BucketFollower):
    """A follower that takes everything for read."""

    def read_to_end(self, silence_limit_s: float = 0.0) -> Iterator[RawBatch]:
        return iter(())


def tables_are_used_before_they_are_read() -> AbstractContextManager[object]:
    """Join events before the table's category is read to its end."""
    return patch.object(category_rows, "BucketFollower", _Hasty)


def former_keys_stay() -> AbstractContextManager[object]:
    """Write repartitioned records under the key of their field."""
    keys_of = Category.keys_of

    def faulty_keys_of(self: AnyCategory, events: Sequence[Any]) -> list[str]:
        return keys_of(self, events) if isinstance(self.key, str) else [event.key for event in events]

    return patch.object(Category, "keys_of", faulty_keys_of)


def schemas_come_later() -> AbstractContextManager[object]:
    """Write messages while their schema is still in the client's buffer."""

    def add(self: Schemas, fingerprint: bytes, schema: Schema) -> None:
        if fingerprint not in self._cached:
            create_missing_categories(self._bus, SCHEMAS)
            self._bus.writer().send(SCHEMAS.name, [Outgoing(fingerprint, msgspec.json.encode(schema))])
            self._cached[fingerprint] = schema

    return patch.object(Schemas, "add", add)


def schemas_count_before_they_are_written() -> AbstractContextManager[object]:
    """Take a schema for published although the bus did not answer."""
    publish = AvroCodec._publish

    def faulty_publish(self: AvroCodec) -> bytes:
        self._fingerprint = fingerprint_with_logical_types(schema_of(self._record))
        return publish(self)

    return patch.object(AvroCodec, "_publish", faulty_publish)


def other_clusters_are_not_flushed() -> AbstractContextManager[object]:
    """Save positions before the outputs on another cluster are durable."""

    def flush(self: _ClustersWriter) -> None:
        self._home.flush()

    return patch.object(_ClustersWriter, "flush", flush)


def promises_before_their_events() -> AbstractContextManager[object]:
    """Apply an upstream watermark before the events below it are read."""

    def advance(self: UpstreamShards, reached: Reached, bucket: int, _: int) -> Reached:
        return original(self, reached, bucket, FOREVER_MS)

    original = UpstreamShards.advance
    return patch.object(UpstreamShards, "advance", advance)


def watermarks_pass_waiting_outputs() -> AbstractContextManager[object]:
    """After a flush between checkpoints, publish the watermark of later outputs, which waited for it."""

    def advance(self: CheckpointScheduler) -> None:
        if self._flushing is not None:
            self._flushing = self._time.unpublished()
        original(self)

    original = CheckpointScheduler._advance
    return patch.object(CheckpointScheduler, "_advance", advance)


def one_shard_speaks_for_all() -> AbstractContextManager[object]:
    """Use the maximum watermark of several upstream shards instead of the minimum."""

    def least(_: BucketWatermarks, summary: Summary) -> InputWatermark:
        return InputWatermark(summary.fastest.watermark_ms, str(summary.fastest))

    return patch.object(BucketWatermarks, "_minimum", least)


def confirmed_commits_count() -> AbstractContextManager[object]:
    """Apply the state of a commit that the brokers have confirmed, although the group's positions do not show it."""
    return patch.object(MemoryTransactionalWriter, "_is_decided", lambda _: True)


def old_outputs_are_sent() -> AbstractContextManager[object]:
    """Send outputs after a pause, however long it was."""
    return patch.object(checkpoint_executor, "SESSION_SHARE", 1_000.0)


def leftovers_stay() -> AbstractContextManager[object]:
    """Open a writer without aborting transactions of its predecessor."""
    return patch.object(MemoryTransactionalWriter, "_abort_left_open", lambda *_: None)


def no_sweeps() -> AbstractContextManager[object]:
    """Leave open transactions of vanished workers open."""
    return patch.object(TransactionSweeper, "sweep", lambda _: None)


def stores_take_any_write() -> AbstractContextManager[object]:
    """Accept writes of former owners and repeated writes in the store."""

    def commit(self: Row, version: ShardVersion, write: Write) -> ShardVersion:
        self._change(write)
        self.version = self.version._replace(saves=self.version.saves + 1)
        return version

    return patch.object(Row, "commit", commit)


def sinks_take_any_write() -> AbstractContextManager[object]:
    """Accept the rows of workers that do not own their shard any more."""
    commit = MemoryRows.commit

    def faulty_commit(self: MemoryRows, shard: StoredShard, version: ShardVersion, batch: SinkBatch) -> ShardVersion:
        commit(self, shard, self._shards[shard].version, batch)
        return version

    return patch.object(MemoryRows, "commit", faulty_commit)


def sinks_do_not_decide() -> AbstractContextManager[object]:
    """Continue from the group's positions, even if a sink has rows of later events."""

    def faulty_claim(self: SinkWriters, number: int, snapshot: BusSnapshot) -> BusSnapshot:
        claim(self, number, snapshot)
        return snapshot

    claim = SinkWriters.claim
    return patch.object(SinkWriters, "claim", faulty_claim)
