"""Restoring a snapshot in place: all processors of an app go back to the cut, while none of them runs; or the state of one, while the others run.

messages in flight at the cut --appended again--> internal categories <--readers continue at the appended messages
states of the cut --> workers' states, backups, changelogs            <--positions in external inputs go back to the cut

What was written to internal categories after the cut stays on the bus, before the appended messages, and is not read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import msgspec

from ....processors.apps import renamed_categories
from ....processors.declare import Processor, plan_of
from ....processors.shard import Offsets, StatePosition
from ....state.backups import BackupId
from ....transport import Bucket, Bus, OffsetRange, Outgoing, Position, origin_in, read_offset_range
from ....transport.tables import (
    AtGap,
    MaintenanceRefused,
    MaintenanceStep,
    MaintenanceTask,
    OperationKind,
    Restore,
    TopicChange,
    lineage_of,
    newest_maintenance,
    no_gap,
    operation_to_replace,
    perform_maintenance,
    register_positions,
    require_idle,
    start_operation,
)
from ...dead_letters import Repeats, drop_repeated
from ...kernel import changelog_of
from ..maintenance import (
    Candidate,
    LocalStates,
    MaintenanceEnvironment,
    ResetPlan,
    install_backup,
    plan_state_restore,
    rewrite_changelog,
    store_backup,
)
from .snapshot import ProcessorCut, Snapshot, SnapshotError, SnapshotStore


@dataclass(frozen=True)
class RestorePlan:
    """A planned restore.

    Args:
        snapshot: the snapshot.
        processors: the processors of the app.
        flights: of each internal bucket, the messages in flight at the cut, from the first one that some reader had not read. They are appended again.
        repeated: by output category that no processor of the app reads, the number of messages after the cut, whose readers may get them again.
        reprocessed: by external input, the number of events after the cut, which are processed again.
        repeats: by processor, the messages that it processes again.
    """

    snapshot: Snapshot
    processors: Sequence[type[Processor]]
    flights: Sequence[OffsetRange]
    repeated: Mapping[str, int]
    reprocessed: Mapping[str, int]
    repeats: Mapping[str, Repeats]


def plan_restore(
    snapshot: Snapshot, processors: Sequence[type[Processor]], environment: MaintenanceEnvironment
) -> RestorePlan:
    """Plan the restore of a snapshot; nothing is changed.

    Raises:
        SnapshotError: the app has changed, the bus does not have the messages of the cut any more, or a state is damaged.
        GroupInUse: a worker runs.
        MissingCategory: a category is not on the bus.
    """
    bus = environment.bus
    expect_same_processors(snapshot, processors)
    for processor in processors:
        require_idle(processor, bus)
        operation_to_replace(processor, bus, Restore(snapshot.id))
    expect_states(snapshot, environment)
    flights = [OffsetRange(Bucket(*where), begin, end) for where, (begin, end) in sorted(snapshot.in_flight().items())]
    expect_retained(snapshot, flights, bus)
    repeats = {
        processor.name: Repeats(
            snapshot.processors[processor.name].positions(), _waiting_for_retries(processor, flights, bus)
        )
        for processor in processors
    }
    return RestorePlan(snapshot, processors, flights, _after_cut(snapshot, bus), to_reprocess(snapshot, bus), repeats)


def _waiting_for_retries(
    processor: type[Processor], flights: Sequence[OffsetRange], bus: Bus
) -> frozenset[tuple[Bucket, int]]:
    """Return the first places of the events that wait for a retry at the cut."""
    own = {category.name for category in plan_of(processor).retry_categories}
    messages = (message for flight in flights if flight.bucket.category in own for _, message in _messages(bus, flight))
    origins = filter(None, (origin_in(message.headers or ()) for message in messages))
    return frozenset((Bucket(origin.category, origin.bucket), origin.offset) for origin in origins)


def plan_restore_alone(
    snapshot: Snapshot, processor: type[Processor], environment: MaintenanceEnvironment
) -> ResetPlan:
    """Plan that one processor gets its states of a snapshot, while the others run; nothing is changed.

    It keeps its positions, and reads the events since the cut for its states alone, so that no reader gets an output twice. An exception is
    at-least-once output of several inputs, which is written again.

    Raises:
        SnapshotError: the processor has changed, or a state is damaged.
        MaintenanceRefused: the state cannot catch up from the bus.
        GroupInUse: a worker of the processor runs.
    """
    _expect_same({processor.name: processor}, {processor.name}, snapshot)
    require_idle(processor, environment.bus)
    expect_states(snapshot, environment)
    shards = snapshot.processors[processor.name].shards
    _expect_same_topics(snapshot, [processor.name], environment.bus)
    cut = {
        number: Candidate(shard.position, BackupId.parse(shard.backup))
        for number, shard in shards.items()
        if shard.backup
    }
    return plan_state_restore(processor, environment, snapshot.id, cut)


def expect_same_processors(snapshot: Snapshot, processors: Sequence[type[Processor]]) -> None:
    """Raise SnapshotError if an app has changed since a snapshot."""
    declared = {processor.name: processor for processor in processors}
    _expect_same(declared, declared.keys() | snapshot.processors.keys(), snapshot)


def _expect_same(declared: Mapping[str, type[Processor]], names: Iterable[str], snapshot: Snapshot) -> None:
    """Raise SnapshotError if one of some processors has changed since a snapshot."""
    now = {
        name: (
            {category.name for category in plan_of(processor).inputs},
            {category.name for category in plan_of(processor).written_categories},
            plan_of(processor).state_shape,
        )
        for name, processor in declared.items()
    }
    then = {name: (set(cut.inputs), set(cut.outputs), cut.shape) for name, cut in snapshot.processors.items()}
    changed = sorted(name for name in names if now.get(name) != then.get(name))
    if changed:
        raise SnapshotError(
            f"Since snapshot {snapshot.id} the app has changed: {', '.join(changed)} did not exist, or had other inputs, outputs or state. Nothing "
            "was changed. Restore with the version of the app that ran then (`penstock rollback` deploys it), and deploy the new one afterwards."
        )


def expect_states(snapshot: Snapshot, environment: MaintenanceEnvironment) -> None:
    """Raise SnapshotError if the states of a snapshot are missing or damaged."""
    if environment.backups is None:
        raise SnapshotError(
            "Snapshots are in a backup store, and none is named. Nothing was changed. Name it with --backup LOCATION."
        )
    damages = SnapshotStore(environment.backups).damages(snapshot)
    if damages:
        raise SnapshotError(
            f"Snapshot {snapshot.id} is damaged: {damages[0]}{f', and {len(damages) - 1} more' if len(damages) > 1 else ''}. Nothing was changed. "
            "Use another snapshot: see `penstock snapshot show`."
        )


def expect_retained(snapshot: Snapshot, flights: Sequence[OffsetRange], bus: Bus) -> None:
    """Raise SnapshotError if the bus has deleted a message that a processor would have to read."""
    needed = {flight.bucket: flight.start for flight in flights if flight.start < flight.end}
    for bucket, offset in _external(snapshot):
        needed[bucket] = min(offset, needed.get(bucket, offset))
    for name in sorted({bucket.category for bucket in needed}):
        state = bus.catalog.describe(name)
        for bucket, offset in sorted(needed.items()):
            if bucket.category == name and not state.starts[bucket.number] <= offset <= state.ends[bucket.number]:
                raise SnapshotError(
                    f"{bucket} has no offset {offset:,} of the cut of {snapshot.taken} any more: Kafka keeps {state.starts[bucket.number]:,} to "
                    f"{state.ends[bucket.number]:,}. Nothing was changed. Restore a later snapshot, or process the archive with `penstock "
                    f"bootstrap`. A longer retention of {name} keeps later snapshots restorable."
                )
    _expect_same_topics(snapshot, snapshot.processors, bus)


def _expect_same_topics(snapshot: Snapshot, names: Iterable[str], bus: Bus) -> None:
    """Raise SnapshotError if an input of one of some processors is not the category of the cut any more."""
    recreated = [
        name
        for cut in (snapshot.processors[name] for name in names)
        for shard in cut.shards.values()
        for name in shard.position.recreated({name: topic.id for name, topic in bus.catalog.topics(cut.inputs).items()})
    ]
    if recreated:
        raise SnapshotError(
            f"{', '.join(sorted(set(recreated)))} was deleted and created again since snapshot {snapshot.id}, so its offsets belong to other "
            "messages. Nothing was changed. Use a later snapshot."
        )


def _external(snapshot: Snapshot) -> Iterator[tuple[Bucket, int]]:
    """Yield the positions in external inputs."""
    for cut in snapshot.processors.values():
        for bucket, offset in cut.positions().items():
            if bucket.category not in snapshot.internal:
                yield bucket, offset


def _after_cut(snapshot: Snapshot, bus: Bus) -> dict[str, int]:
    outputs = sorted(snapshot.ends.keys() - snapshot.internal)
    return {
        name: sum(max(end - snapshot.ends[name].get(number, end), 0) for number, end in bus.catalog.ends(name).items())
        for name in outputs
    }


def to_reprocess(snapshot: Snapshot, bus: Bus) -> dict[str, int]:
    """Return the number of events after the cut, by external input."""
    first: dict[Bucket, int] = {}
    for bucket, offset in _external(snapshot):
        first[bucket] = min(offset, first.get(bucket, offset))
    ends = bus.catalog.ends_of(first)
    found: dict[str, int] = {}
    for bucket, offset in sorted(first.items()):
        found[bucket.category] = found.get(bucket.category, 0) + ends[bucket] - offset
    return found


def perform_restore(plan: RestorePlan, environment: MaintenanceEnvironment, at_gap: AtGap = no_gap) -> None:
    """Perform a planned restore. Durable on return; may be repeated.

    Args:
        plan: the plan.
        environment: the app's bus, states and backups.
        at_gap: called before each step.

    Raises:
        GroupInUse: a worker runs. Nothing was changed.
        MaintenanceRefused: another program wrote to an internal category meanwhile; repeat the restore.
    """
    appended = Appended(plan.flights, environment.bus)
    tasks = [_RestoreTask(processor, plan, appended, environment) for processor in plan.processors]
    perform_maintenance(tasks, environment.bus, at_gap, appended)


@dataclass
class Appended(TopicChange):
    """Appends the messages in flight again, to their buckets or to those of a clone. An interrupted attempt is repeated behind what it has appended.

    Args:
        flights: the messages.
        bus: the bus.
        names: the categories to append to, by the categories of the messages; a missing one is its own.
    """

    flights: Sequence[OffsetRange]
    bus: Bus
    names: Mapping[str, str] = field(default_factory=dict)
    _offsets: dict[Bucket, list[int]] = field(default_factory=dict)
    _begins: dict[Bucket, int] = field(default_factory=dict)

    @property
    def categories(self) -> set[str]:
        """The categories of the messages."""
        return {flight.bucket.category for flight in self.flights}

    def apply(self) -> None:
        """Append the messages."""
        with closing(self.bus.writer()) as writer:
            for flight in self.flights:
                self._begins[flight.bucket] = self._end(flight.bucket)
                self._offsets[flight.bucket] = []
                for offset, message in _messages(self.bus, flight):
                    writer.send(self._target(flight.bucket).category, [message])
                    self._offsets[flight.bucket].append(offset)
            writer.flush()
        for bucket, offsets in self._offsets.items():
            if self._end(bucket) != self._begins[bucket] + len(offsets):
                raise MaintenanceRefused(
                    f"Another program wrote to {self._target(bucket)} meanwhile, so the positions of its readers are unknown. No position has moved, "
                    "and no worker starts. Stop that program, and repeat this command, which finishes the operation."
                )

    def _target(self, bucket: Bucket) -> Bucket:
        return Bucket(self.names.get(bucket.category, bucket.category), bucket.number)

    def _end(self, bucket: Bucket) -> int:
        return self.bus.catalog.ends(self._target(bucket).category)[bucket.number]

    def start_of(self, bucket: Bucket, position: int) -> int:
        """Return where a reader continues whose position at the cut is known: in an internal bucket, at the appended messages."""
        if bucket not in self._offsets:
            return position
        read = sum(offset < position for offset in self._offsets[bucket])
        return self._begins[bucket] + read


def _messages(bus: Bus, flight: OffsetRange) -> Iterator[tuple[int, Outgoing]]:
    """Yield the committed messages of a flight with their offsets."""
    for batch in read_offset_range(bus, flight):
        for message in batch.messages:
            headers = tuple(message.headers() or ()) or None
            yield message.offset(), Outgoing(message.key(), message.value(), flight.bucket.number, headers)


class CutTask(MaintenanceTask):
    """Gives a processor the states and positions of a cut: those of its own, or, for a clone, those of the original processor.

    Args:
        processor: the processor.
        cut: its part of the cut.
        kind: the operation to record.
        appended: the messages in flight.
        environment: the app's bus, states and backups.
    """

    def __init__(
        self,
        processor: type[Processor],
        cut: ProcessorCut,
        kind: OperationKind,
        appended: Appended,
        environment: MaintenanceEnvironment,
    ) -> None:
        replaces = operation_to_replace(processor, environment.bus, kind)
        self._cut = cut
        self._names = renamed_categories(processor)
        self._appended = appended
        self._local = None
        lineage = lineage_of(newest_maintenance(environment.bus, processor.name))
        if plan_of(processor).state_shape is not None:
            self._local = LocalStates(processor, environment.states, environment.backups)
            lineage = lineage.installed(dict.fromkeys(cut.shards, lineage.newest_generation + 1))
            # Appended messages are in no order with earlier ones: only a changelog, or external inputs alone, rebuild a lost state.
            is_lasting = changelog_of(processor) is not None or not appended.categories & set(cut.inputs)
            lineage = msgspec.structs.replace(lineage, is_rebuildable=lineage.is_rebuildable and is_lasting)
        super().__init__(processor, environment.bus, start_operation(processor, kind, lineage), replaces)

    @property
    def buckets(self) -> Sequence[int]:
        """All shards."""
        return list(self._cut.shards)

    def check_states(self) -> None:
        """Raise StateInUse if a process has one of the states open."""
        if self._local is not None:
            for bucket in self.buckets:
                self._local.require_closed(bucket)

    def change_shard(self, step: MaintenanceStep, bucket: int) -> None:
        """Install the shard's state, store it as the newest backup, or rewrite its changelog."""
        if self._local is None:
            return
        match step:
            case MaintenanceStep.INSTALL_STATE:
                self.install(self._local, bucket)
            case MaintenanceStep.STORE_BACKUP:
                store_backup(self._local, bucket)
            case MaintenanceStep.REWRITE_CHANGELOG:
                rewrite_changelog(self.bus, self._local, bucket)

    def install(self, local: LocalStates, bucket: int) -> None:
        """Install a shard's state."""
        position = StatePosition(self.offsets(bucket), generation=self.operation.lineage.generation(bucket))
        install_backup(local, bucket, BackupId.parse(self._cut.shards[bucket].backup), position)

    def rewound(self) -> Sequence[int]:
        """All shards write outputs again."""
        return self.buckets

    def move_positions(self) -> None:
        """Set the group's positions: those of the cut, and in internal categories the appended messages. Without state, they contain the event times."""
        register_positions(self.bus, self.processor, self.buckets)
        self.bus.catalog.set_committed(
            self.processor.name,
            [
                Position(
                    Bucket(self._names.get(name, name), bucket),
                    offset,
                    shard.position.checkpoint_id,
                    shard.low_ms,
                    shard.event_times.get(name, ""),
                )
                for bucket, shard in self._cut.shards.items()
                for name, offset in self._continued(bucket).items()
            ],
        )

    def offsets(self, bucket: int) -> Offsets:
        """Return the positions of a shard, by its input."""
        return {self._names.get(name, name): offset for name, offset in self._continued(bucket).items()}

    def _continued(self, bucket: int) -> Offsets:
        """Return the same by the input of the cut."""
        at_cut = self._cut.shards[bucket].position.offsets
        return {name: self._appended.start_of(Bucket(name, bucket), at_cut[name]) for name in self._cut.inputs}


class _RestoreTask(CutTask):
    """The part of one processor of an app that goes back."""

    def __init__(
        self,
        processor: type[Processor],
        plan: RestorePlan,
        appended: Appended,
        environment: MaintenanceEnvironment,
    ) -> None:
        cut = plan.snapshot.processors[processor.name]
        super().__init__(processor, cut, Restore(plan.snapshot.id), appended, environment)
        self._repeats = plan.repeats[processor.name]

    def move_positions(self) -> None:
        """Set the group's positions, and drop the letters of messages that are processed again."""
        drop_repeated(self.bus, self.processor.name, self._repeats, str(self.operation.kind))
        super().move_positions()
