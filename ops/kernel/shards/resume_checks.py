"""Preconditions for resuming a shard.

No maintenance operation is unfinished or newer than the state, and the bus still has the events and topics of the shard's position.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ....processors import PenstockError, counted
from ....processors.declare import Processor, Semantics, plan_of
from ....processors.shard import Offsets, StatePosition, have_ids, is_committed, steps_of
from ....processors.time import NO_TIMES, SavedTimes
from ....state import LocalState, ShardState, StateError
from ....transport import Bucket, Bus, CompactedInput, OffsetOutOfRange, Position, TopicRecreated
from ....transport.tables import MaintenanceOperation, newest_maintenance

_LOG = logging.getLogger("penstock.worker")


def resolve_prepared(state: LocalState, committed: StatePosition, checkpoint: str) -> None:
    """Apply or discard the prepared changes of a state, depending on the group's committed positions; see `is_committed`."""
    delta = state.prepared()
    if delta is None:
        return
    if is_committed(delta.before, delta.after, committed, checkpoint):
        state.apply()
    else:
        state.discard()


def expect_same_topics(owner: str, topic_ids: Mapping[str, str], recreated: Collection[str], witness: str) -> None:
    """Refuse to resume a position in a topic that it does not belong to.

    Args:
        owner: the processor's name.
        topic_ids: the topic id of each category on the bus.
        recreated: the categories with another topic than the position's.
        witness: the source of the position, such as "its state".

    Raises:
        TopicRecreated: there are such categories; the user must choose how to continue.
    """
    if not recreated:
        return
    names = ", ".join(f"{name} (topic id {topic_ids[name]})" for name in sorted(recreated))
    raise TopicRecreated(
        f"{owner} has read another topic of this name, according to {witness}: {names} was deleted and created again, or this is another "
        "cluster. The old offsets belong to other events, so resuming would skip events and mix old results with new ones. The worker stops; "
        "its state is unchanged. Choose one: start at the first event of the new topic with an empty state (`penstock reset APP:PROCESSOR --to "
        "earliest`, with `--state empty` if it keeps state); connect to the cluster of the state (`--kafka`); use the state of this cluster "
        "(`--dir`, or `--store` for remote state); or rename the processor, which then reads from the first event."
    )


class PositionsExpired(PenstockError):
    """A group's positions have expired, and no other evidence shows where to resume: the user must choose."""


@dataclass(frozen=True)
class ResumeEvidence:
    """Evidence of a shard's position after its group's positions have expired.

    Args:
        position: the position of its state, by input; empty without a state.
        is_newest: whether no worker can be ahead of that: no other worker has owned the shard, or all share the state.
        starts: the first offset that the bus still has, by input.
    """

    position: Offsets
    is_newest: bool
    starts: Offsets

    @property
    def is_conclusive(self) -> bool:
        """Whether the evidence shows the exact position."""
        return bool(self.position) and self.is_newest

    @property
    def has_all_events(self) -> bool:
        """Whether the bus still has all events."""
        return not any(self.starts.values())

    def __str__(self) -> str:
        """Return where the shard would resume, by input."""
        offsets = {name: self.position.get(name, start) for name, start in self.starts.items()}
        return ", ".join(f"{name} {offset:,}" for name, offset in sorted(offsets.items()))


def expect_resumable(processor: type[Processor], number: int, evidence: ResumeEvidence, *, from_earliest: bool) -> None:
    """Check that the evidence of a shard's position is sufficient for its semantics.

    Raises:
        PositionsExpired: it is not; the user must choose how to continue.
    """
    may_repeat = processor.output_semantics is Semantics.AT_LEAST_ONCE
    shard = f"{processor.name}, bucket {number}"
    if from_earliest or evidence.is_conclusive or (may_repeat and (evidence.position or evidence.has_all_events)):
        _LOG.warning(
            "%s: its group's committed positions have expired on the bus, as they do after a week without workers. It resumes at %s%s.",
            shard,
            evidence,
            "" if evidence.is_conclusive else "; it writes later outputs again",
        )
        return
    raise PositionsExpired(
        f"{shard}: it has run before, but its group's committed positions have expired on the bus (Kafka deletes them a week after the last "
        f"worker has left: `offsets.retention.minutes`). {_insufficient(processor, evidence)} Nothing was read or changed. Choose one: start it "
        "on the machine where it ran last, or with its backup store (`--backup`); set its position with `penstock reset APP:PROCESSOR --to "
        "earliest`, `latest` or a time; accept the consequence with `penstock run … --from-earliest`; or rename the processor to start anew."
    )


def _insufficient(processor: type[Processor], evidence: ResumeEvidence) -> str:
    """Describe why the evidence is insufficient, and what resuming would do."""
    semantics = processor.output_semantics.value.replace("_", " ")
    if evidence.position:
        return (
            f"Its state here is at {evidence}, but another worker may have been ahead of it. Resuming would repeat outputs, which are declared "
            f"{semantics}."
        )
    repeated = "" if processor.output_semantics is Semantics.AT_LEAST_ONCE else ", and write existing outputs again"
    skipped = "" if evidence.has_all_events else ", and skip expired events, processed or not"
    return f"There is no state, here or in a backup. It would start at the first retained events ({evidence}){repeated}{skipped}."


def first_available(owner: str, bucket: Bucket, begin: int, start: int, *, from_earliest: bool) -> int:
    """Return the offset at which to resume a bucket: `begin`, or the first retained event if the user allows the gap.

    Args:
        owner: the processor's name.
        bucket: the bucket.
        begin: the next unread offset.
        start: the first offset that the bus still has.
        from_earliest: whether expired events may be skipped.

    Raises:
        OffsetOutOfRange: events have expired; the user must choose how to continue.
    """
    if begin >= start:
        return begin
    if from_earliest:
        _LOG.warning(
            "%s skipped %s of %s that expired on the bus (offsets %s to %s), as requested (`--from-earliest`).",
            owner,
            counted(start - begin, "event"),
            bucket,
            f"{begin:,}",
            f"{start - 1:,}",
        )
        return start
    raise OffsetOutOfRange(
        f"{owner} must resume at offset {begin:,} of {bucket}, but the bus keeps that bucket only from offset {start:,} on: "
        f"{counted(start - begin, 'event')} expired. Nothing was changed and nothing was skipped. Choose one: restore a newer backup of its state "
        "(`penstock state show`, `penstock state restore`); rename the processor and build its state from the warehouse with `penstock "
        "backfill`; or skip the missing events with `penstock run … --from-earliest`."
    )


def expect_rebuildable(
    processor: type[Processor], bucket: Bucket, begin: int, end: int, *, from_earliest: bool
) -> None:
    """Refuse to bring a state up to date from a compacted input that may lack events; log a warning if that is acceptable.

    Args:
        processor: the processor.
        bucket: the bucket.
        begin: the first offset that the state does not reflect.
        end: the offset up to which it must catch up.
        from_earliest: whether missing events may be skipped.

    Raises:
        CompactedInput: events may be missing; the user must choose how to continue.
    """
    offsets = f"from offset {begin:,} to {end:,} of {bucket}"
    if plan_of(processor).is_compaction_safe:
        _LOG.warning(
            "%s brings its state up to date %s, which is compacted: it reads the latest event of each key. Deletions older than the topic's "
            "`delete.retention.ms` have expired, so a deleted key may remain in an older state.",
            processor.name,
            offsets,
        )
    elif from_earliest:
        _LOG.warning(
            "%s brings its state up to date %s, which is compacted, as requested (`--from-earliest`): its state may lack all but the latest event "
            "of each key.",
            processor.name,
            offsets,
        )
    else:
        raise CompactedInput(
            f"{processor.name} must bring its state up to date {offsets}, but that category is compacted: all but the latest event of each key "
            "may be missing, and the state would lack them without an error. Nothing was read or changed. Choose one: restore a newer state; "
            "rename the processor, which then starts with the existing events; or accept missing events with `penstock run … --from-earliest`."
        )


def expect_existing(owner: str, bucket: Bucket, offset: int, end: int, witness: str) -> None:
    """Refuse to resume beyond the end of a bucket.

    Args:
        owner: the processor's name.
        bucket: the bucket.
        offset: the next unread offset.
        end: the offset after the last event on the bus.
        witness: the source of the offset, such as "its state".

    Raises:
        OffsetOutOfRange: the bucket ends before; the user must choose how to continue.
    """
    if offset <= end:
        return
    raise OffsetOutOfRange(
        f"{owner} has read {bucket} up to offset {offset:,}, according to {witness}, but on this bus that bucket ends at offset {end:,}: "
        "this is the state of another cluster, or the category was deleted and created again, or the bus has lost its last events. "
        "Resuming would skip all events up to that offset, so it does not start. Nothing was read and no state was changed. Choose one: connect "
        "to the cluster of the state (`--kafka`); use the state of this cluster (`--dir`, or `--store` for remote state); restore an earlier "
        "backup (`penstock state show`, `penstock state restore`); or rename the processor, which then reads from the first event. `penstock "
        "category show` shows the categories of this cluster."
    )


class MaintenanceUnfinished(PenstockError):
    """A maintenance operation on the processor is in progress or was interrupted: finish it."""


class StateSuperseded(StateError):
    """A maintenance operation has replaced a state: remove the old one."""


def finished_maintenance(bus: Bus, processor: str) -> MaintenanceOperation | None:
    """Return the newest maintenance operation of a processor.

    Raises:
        MaintenanceUnfinished: it is in progress or was interrupted.
    """
    operation = newest_maintenance(bus, processor)
    if operation is not None and not operation.is_done:
        raise MaintenanceUnfinished(
            f"{processor}: a {operation.kind} was started at {operation.started} and is unfinished, so positions and states may be inconsistent. "
            "Nothing was read or changed. Wait for it, or repeat that command, which finishes it. Then start the worker."
        )
    return operation


def expect_current(state: ShardState, operation: MaintenanceOperation | None, processor: str, bucket: int) -> None:
    """Check that no maintenance operation has replaced an opened state. A new state gets its initial position.

    Raises:
        StateSuperseded: an operation has replaced it, or a lost state cannot be rebuilt from the events of its bucket.
    """
    if operation is None or not (generation := operation.lineage.generation(bucket)):
        return
    position, lineage = state.position(), operation.lineage
    if not position:
        if not lineage.is_rebuildable and bucket not in lineage.initial_positions:
            raise StateSuperseded(
                f"{processor}, bucket {bucket}: its state is neither on this machine nor in a recent backup, and the events of this bucket do not "
                f"rebuild it, because it comes from a {operation.kind} ({operation.started}). Nothing was read. Name the backup store with "
                "--backup, start the worker with the state folder (`--dir`) of that operation, or rename the processor to start anew."
            )
        state.save_position(StatePosition(lineage.initial_positions.get(bucket, {}), generation=generation))
    elif position.generation < generation:
        raise StateSuperseded(
            f"{processor}, bucket {bucket}: the state on this machine is from before the {operation.kind} of {operation.started}, which replaced "
            "it. Using it would undo that operation. Nothing was read or changed. Start the worker with --backup, which restores the current "
            "state. Without backups, remove the processor's folder below `--dir`/state on this machine."
        )


def positions_of_group(processor: type[Processor], bus: Bus) -> list[Position]:
    """Return the committed positions of a processor's group in all of its inputs."""
    inputs = plan_of(processor).inputs
    return [position for category in inputs for position in bus.catalog.positions(processor.name, category.name)]


def committed_positions(processor: type[Processor], bus: Bus) -> dict[int, StatePosition]:
    """Return a group's committed positions by bucket; see `state_positions`."""
    return state_positions(processor, positions_of_group(processor, bus))


def state_positions(processor: type[Processor], positions: Iterable[Position]) -> dict[int, StatePosition]:
    """Return the committed positions of a group by bucket, with the id of the last checkpoint if the processor's checkpoints have ids."""
    committed: dict[int, StatePosition] = {}
    has_ids = have_ids(steps_of(processor))
    for position in positions:
        name, number = position.bucket
        before = committed.get(number, StatePosition())
        newest_id = max(position.checkpoint_id or 0, before.checkpoint_id) if has_ids else 0
        committed[number] = before.updated(StatePosition({name: position.offset or 0}, checkpoint_id=newest_id))
    return committed


def event_times(positions: Iterable[Position]) -> dict[int, SavedTimes]:
    """Return the event times at the last checkpoint of each shard, by bucket. Only a processor without state commits them."""
    committed: dict[int, SavedTimes] = {}
    for position in positions:
        name, number = position.bucket
        times = committed.get(number, NO_TIMES)
        of_input = {name: position.event_time} if position.event_time else {}
        committed[number] = SavedTimes(max(position.low_ms, times.low_ms), {**times.inputs, **of_input})
    return committed
