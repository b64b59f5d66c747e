"""Repaired faults of the library: each function replaces a part of the library and returns the fault within a block."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from math import inf
from typing import Any
from unittest.mock import patch

import msgspec
from support.subjects import MOST
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.archive import bucket_opener
from penstock.ops.laser import served_pairs
from penstock.ops.laser.served_pairs import ServedPairs
from penstock.ops.laser.table import Pair
from penstock.ops.maintenance.reset import _LocalReset
from penstock.ops.maintenance.reset_plan import ShardPlan
from penstock.ops.worker import changelog_replay, open_shards, shard_opener, topic_watch
from penstock.ops.worker.batch_processor import BatchProcessor
from penstock.ops.worker.bus_snapshot import BusSnapshot
from penstock.ops.worker.checkpoint_executor import CheckpointExecutor
from penstock.ops.worker.checkpoint_scheduler import CheckpointScheduler, Hold
from penstock.ops.worker.loop_watermark import LoopWatermark, _Statements
from penstock.ops.worker.ownership import Ownership
from penstock.ops.worker.sink_writers import SinkWriters
from penstock.ops.worker.snapshot_participant import SnapshotParticipant, _Cut
from penstock.ops.worker.transaction_sweeper import TransactionSweeper
from penstock.ops.worker.watermark_subscriber import BucketWatermarks, InputWatermark, _UpstreamShard
from penstock.ops.worker.worker import Worker
from penstock.processors.declare.categories import AnyCategory, Category
from penstock.processors.declare.sinks import SinkBatch
from penstock.processors.declare.tombstones import RowDeletion
from penstock.processors.operators.early_results import EarlyResults
from penstock.processors.operators.sliding_history import SlidingHistory
from penstock.processors.shard import checkpoints
from penstock.processors.shard.position import StatePosition
from penstock.processors.shard.shard import Shard as RunningShard
from penstock.processors.time.idleness import IdleDetector
from penstock.processors.time.shard_time import ShardTime
from penstock.state.remote.protocols import Shard, ShardVersion, Write
from penstock.state.sinks.memory_table import MemoryRows
from penstock.transport import category_rows
from penstock.transport.clusters import _ClustersWriter
from penstock.transport.codecs.avro import AvroCodec, fingerprint_with_logical_types, schema_of
from penstock.transport.internal_topics import create_missing_categories
from penstock.transport.memory.writers import MemoryTransactionalWriter
from penstock.transport.messages import Outgoing
from penstock.transport.tables.schemas import SCHEMAS, Schema, Schemas
from penstock.transport.tables.snapshot_requests import SnapshotRequest

from . import archiving
from .restoring import install_backup
from .scheduler import START_MS
from .stores import Row


def silence_is_idleness() -> AbstractContextManager[object]:
    """Treat a bucket without events as idle, even if the bus does not answer."""

    def is_idle(self: IdleDetector, now_s: float) -> bool:
        return now_s - self._heard_s >= self._timeout.idle_after_s and self._heard_s > -inf

    return patch.object(IdleDetector, "is_idle", is_idle)


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

    def is_blocking(self: _UpstreamShard, _: object) -> bool:
        return not self.newest.idle

    return patch.object(_UpstreamShard, "is_blocking", is_blocking)


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
    stack.enter_context(patch.object(BatchProcessor, "_misplaced", lambda *_: []))
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


def tables_are_used_before_they_are_read() -> AbstractContextManager[object]:
    """Join events before the table's category is read to its end."""
    return patch.object(category_rows, "_to_end", lambda *_: ())


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

    def reach(self: _UpstreamShard, *_: object) -> None:
        while self._unread:
            self.watermark_ms = max(self.watermark_ms, self._unread.popleft().watermark_ms)

    return patch.object(_UpstreamShard, "reach", reach)


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

    def least(self: BucketWatermarks) -> InputWatermark:
        last = max(self._upstream.values(), key=lambda shard: shard.watermark_ms)
        return InputWatermark(last.watermark_ms, str(last))

    return patch.object(BucketWatermarks, "_minimum", least)


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

    def faulty_commit(self: MemoryRows, shard: Shard, version: ShardVersion, batch: SinkBatch) -> ShardVersion:
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
