"""Preconditions for a shard to continue.

No maintenance operation is half done or newer than the state, and the bus still has the events and topics of its position.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...processors.declare.processor import Processor
from ...processors.declare.semantics import Semantics
from ...processors.errors import PenstockError
from ...processors.shard.checkpoints import have_ids, steps_of
from ...processors.shard.position import Offsets, StatePosition
from ...processors.shard.resume_point import is_committed
from ...state.errors import StateError
from ...state.protocols import LocalState, ShardState
from ...transport.bus import Bus
from ...transport.errors import CompactedInput, OffsetOutOfRange, TopicRecreated
from ...transport.messages import Bucket
from ...transport.tables.maintenance_log import MaintenanceOperation, newest_maintenance

_LOG = logging.getLogger("penstock.worker")


def settle_prepared(state: LocalState, committed: StatePosition, what: str) -> None:
    """Make what is prepared part of a state, or drop it, as the group's committed positions say; see `is_committed`."""
    delta = state.prepared()
    if delta is None:
        return
    if is_committed(delta.before, delta.after, committed, what):
        state.apply()
    else:
        state.discard()


def expect_same_topics(owner: str, topic_ids: Mapping[str, str], others: Collection[str], witness: str) -> None:
    """Refuse to go on in topics that are not those of which a position is.

    Args:
        owner: the processor's name.
        topic_ids: the bus's ids, by category.
        others: the categories whose topics are others now.
        witness: what says so, such as "its state".

    Raises:
        TopicRecreated: there are some, and a person must choose.
    """
    if not others:
        return
    names = ", ".join(f"{name} (topic id {topic_ids[name]})" for name in sorted(others))
    raise TopicRecreated(
        f"{owner} has read another topic of this name than the one that is on the bus now, says {witness}: {names} was deleted and created "
        "again, or this is another cluster. Its old offsets stand for other events there: to go on from them would skip events, and count "
        "what is gone together with what is new. The worker does not go on; its state is unchanged. Choose: begin with the first event of "
        f"the new topic and an empty state (`penstock reset APP:PROCESSOR --to earliest`, with `--state empty` where it keeps state); name the cluster that the state "
        "belongs to (`--kafka`), or the state that belongs to this one (`--dir`, or `--store` for remote state); or give the processor "
        "another name, under which it reads from the first event."
    )


class PositionsExpired(PenstockError):
    """A group's positions are gone from the bus, and what is left does not say how far it was: a person must choose."""


@dataclass(frozen=True)
class RetainedOffsets:
    """What is left of a shard that has run, where its group's positions have expired.

    Args:
        position: how far its state is, by input; empty where there is none.
        is_last: whether nobody can have gone on behind that: nobody else has had the shard, or the state is one that all share.
        starts: the first offset that the bus keeps, by input.
    """

    position: Offsets
    is_last: bool
    starts: Offsets


def expect_known(processor: type[Processor], number: int, left: RetainedOffsets, *, from_earliest: bool) -> None:
    """See that what is left of a shard says where to go on, without what its semantics rule out.

    Raises:
        PositionsExpired: it does not, and a person must choose.
    """
    may_repeat = processor.output_semantics is Semantics.AT_LEAST_ONCE
    whole = not any(left.starts.values())
    shard = f"{processor.name}, bucket {number}"
    at = ", ".join(f"{name} {left.position.get(name, start):,}" for name, start in sorted(left.starts.items()))
    if from_earliest or (left.position and left.is_last) or (may_repeat and (left.position or whole)):
        _LOG.warning(
            "%s: its group's committed positions are gone from the bus, as they are after a week without workers. It goes on at %s%s.",
            shard,
            at,
            "" if left.position and left.is_last else "; outputs that it had written behind that come again",
        )
        return
    if left.position:
        what = (
            f"A state of it is left that is at {at}, but others may have gone on behind that, so that their outputs would come again; it "
            f"promises them {processor.output_semantics.value.replace('_', ' ')}"
        )
    else:
        again = "" if may_repeat else ", and write outputs again that are on the bus already"
        gone = "" if whole else ", and leave out those that the bus has dropped, read or not"
        what = (
            f"No state of it is left here or in a backup that says how far it was: it would begin with the first events that are kept ({at})"
            f"{again}{gone}"
        )
    raise PositionsExpired(
        f"{shard}: it has run before, but its group's committed positions are gone from the bus (Kafka drops them a week after the last "
        f"worker has left: `offsets.retention.minutes`). {what}. Nothing was read or changed. Choose: start it on the machine where it ran "
        "last, or with the place of its backups (`--backup`); say where it goes on, with `penstock reset APP:PROCESSOR --to earliest`, "
        "`latest` or a time; accept what is said above with `penstock run … --from-earliest`; or give the processor another name, to begin anew."
    )


def first_kept(owner: str, bucket: Bucket, begin: int, start: int, *, from_earliest: bool) -> int:
    """Return where to read on in a bucket: at `begin`, or, where that is gone and it was agreed to, at the first event kept.

    Args:
        owner: the processor's name.
        bucket: the bucket.
        begin: the next unread offset.
        start: the first offset that the bus keeps.
        from_earliest: whether events that are gone may be left out.

    Raises:
        OffsetOutOfRange: events are gone, and a person must choose.
    """
    if begin >= start:
        return begin
    if from_earliest:
        _LOG.warning(
            "%s left out %s events of %s that are gone from the bus (offsets %s to %s), as it was told.",
            owner,
            f"{start - begin:,}",
            bucket,
            f"{begin:,}",
            f"{start - 1:,}",
        )
        return start
    raise OffsetOutOfRange(
        f"{owner} has to go on at offset {begin:,} of {bucket}, but the bus keeps that bucket only from offset {start:,} on: "
        f"{start - begin:,} events are gone, so it does not start. Nothing was changed and nothing was skipped. Choose: restore "
        "a backup of its state that is newer (`penstock state list`, `penstock state restore`); give it another name and fill it "
        "from the warehouse with `penstock backfill`; or leave the missing events out with `penstock run … --from-earliest`."
    )


def expect_rebuildable(
    processor: type[Processor], bucket: Bucket, begin: int, end: int, *, from_earliest: bool
) -> None:
    """Refuse to bring a state up to date from a compacted input, where that lacks events that the state needs; otherwise say so.

    Args:
        processor: whose state.
        bucket: the bucket.
        begin: the next offset that the state does not reflect.
        end: the offset up to which the state had come before.
        from_earliest: whether events that are gone may be left out.

    Raises:
        CompactedInput: a person must choose.
    """
    stretch = f"from offset {begin:,} to {end:,} of {bucket}"
    if processor.is_compaction_safe():
        _LOG.warning(
            "%s brings its state up to date %s, which is compacted: it reads the latest event of each key. Deletions that are older than the "
            "topic's `delete.retention.ms` are not there any more, so a key that an older state holds may stay in it.",
            processor.name,
            stretch,
        )
    elif from_earliest:
        _LOG.warning(
            "%s brings its state up to date %s, which is compacted, as it was told (`--from-earliest`): all but the latest event of each key may "
            "be missing from its state.",
            processor.name,
            stretch,
        )
    else:
        raise CompactedInput(
            f"{processor.name} has to bring its state up to date {stretch}, but that category is compacted: all but the latest event of each key may be "
            "gone, and would be missing from the state without a sign. Nothing was read or changed. Choose: restore a newer state; give the "
            "processor another name, under which it begins with what is there; or accept that events are missing with `penstock run … --from-earliest`."
        )


def expect_reached(owner: str, bucket: Bucket, offset: int, end: int, witness: str) -> None:
    """Refuse to go on in a bucket of which more was read than the bus has.

    Args:
        owner: the processor's name.
        bucket: the bucket.
        offset: the next unread offset.
        end: the offset after the last event on the bus.
        witness: what says so, such as "its state".

    Raises:
        OffsetOutOfRange: what was read is not what the bus has now, and a person must choose.
    """
    if offset <= end:
        return
    raise OffsetOutOfRange(
        f"{owner} has read {bucket} up to offset {offset:,}, says {witness}, but on this bus that bucket ends at offset {end:,}: "
        "this is the state of another cluster, or the category was deleted and created anew, or the bus has lost its last events. "
        "To go on would skip whatever comes up to that offset, so it does not start. Nothing was read and no state was changed. "
        "Choose: name the cluster that the state belongs to (`--kafka`), or the state that belongs to this one (`--dir`, or "
        "`--store` for remote state); restore a backup from before (`penstock state list`, `penstock state restore`); or give "
        "the processor another name, under which it reads from the first event. `penstock category list` shows what is here."
    )


class MoveUnfinished(PenstockError):
    """A maintenance operation on the processor is in progress, or died: finish it."""


class StateSuperseded(StateError):
    """A state is from before a maintenance operation: put it away."""


def finished_maintenance(bus: Bus, processor: str) -> MaintenanceOperation | None:
    """Return the newest maintenance operation of a processor.

    Raises:
        MoveUnfinished: it is unfinished.
    """
    operation = newest_maintenance(bus, processor)
    if operation is not None and not operation.is_done:
        raise MoveUnfinished(
            f"{processor}: a {operation.kind} was started at {operation.started} and is unfinished, so positions and states may not fit each "
            "other. Nothing was read or changed. Let it finish, or repeat that command, which finishes it; then start the worker."
        )
    return operation


def expect_current(state: ShardState, operation: MaintenanceOperation | None, processor: str, bucket: int) -> None:
    """Check that an opened state is not from before a maintenance operation. A new state gets its initial position.

    Raises:
        StateSuperseded: it is, or a lost state cannot be rebuilt from the events of its bucket.
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


def committed_by(processor: type[Processor], bus: Bus) -> dict[int, StatePosition]:
    """Return a group's committed positions by bucket, with the id of the last checkpoint where checkpoints have ids."""
    committed: dict[int, StatePosition] = {}
    has_ids = have_ids(steps_of(processor))
    for category in processor.inputs():
        for (name, number), offset, checkpoint_id in bus.catalog.positions(processor.name, category.name):
            before = committed.get(number, StatePosition())
            newest_id = max(checkpoint_id or 0, before.checkpoint_id) if has_ids else 0
            committed[number] = before.updated(StatePosition({name: offset or 0}, checkpoint_id=newest_id))
    return committed
