"""Restoring a snapshot in place: all processors of an app go back to the cut, while none of them runs.

messages in flight at the cut --appended again--> internal categories <--readers continue at the appended messages
states of the cut --> workers' states, backups, changelogs            <--positions in external inputs go back to the cut

What was written to internal categories after the cut stays on the bus, before the appended messages, and is not read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from ...processors.declare.processor import Processor
from ...processors.shard.position import Offsets, StatePosition
from ...state.backups.manifest import BackupId
from ...transport.bus import Bus
from ...transport.messages import Bucket, Outgoing, Position
from ...transport.tables.maintenance_log import (
    MaintenanceOperation,
    Restore,
    lineage_of,
    newest_maintenance,
)
from ...transport.tables.maintenance_protocol import (
    AtGap,
    MaintenanceRefused,
    MaintenanceStep,
    MaintenanceTask,
    TopicChange,
    no_gap,
    operation_to_replace,
    perform_maintenance,
    require_idle,
    start_operation,
)
from ...transport.tables.registrations import register_positions
from ..maintenance.environment import MaintenanceEnvironment
from ..maintenance.processor_positions import LocalStates
from ..maintenance.state_installation import install_backup, rewrite_changelog, store_backup
from .snapshot import ProcessorCut, Snapshot, SnapshotError, SnapshotStore

READ_WAIT_S = 1.0


@dataclass(frozen=True)
class Flight:
    """Messages of an internal bucket that were in flight at the cut.

    Args:
        bucket: the bucket.
        begin: the first offset that some reader had not read.
        end: the first offset after the cut.
    """

    bucket: Bucket
    begin: int
    end: int


@dataclass(frozen=True)
class RestorePlan:
    """A planned restore.

    Args:
        snapshot: the snapshot.
        processors: the processors of the app.
        flights: what is appended again.
        repeated: by output category that no processor of the app reads, the number of messages after the cut, whose readers may get them again.
        reprocessed: by external input, the number of events after the cut, which are processed again.
    """

    snapshot: Snapshot
    processors: Sequence[type[Processor]]
    flights: Sequence[Flight]
    repeated: Mapping[str, int]
    reprocessed: Mapping[str, int]


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
    _expect_same_processors(snapshot, processors)
    for processor in processors:
        require_idle(processor, bus)
        operation_to_replace(processor, bus, Restore(snapshot.id))
    _expect_states(snapshot, environment)
    flights = [Flight(Bucket(*where), begin, end) for where, (begin, end) in sorted(snapshot.in_flight().items())]
    _expect_retained(snapshot, flights, bus)
    return RestorePlan(snapshot, processors, flights, _after_cut(snapshot, bus), _to_reprocess(snapshot, bus))


def _expect_same_processors(snapshot: Snapshot, processors: Sequence[type[Processor]]) -> None:
    declared = {
        processor.name: (
            {category.name for category in processor.inputs()},
            {category.name for category in processor.outputs()},
            processor.state_shape(),
        )
        for processor in processors
    }
    then = {name: (set(cut.inputs), set(cut.outputs), cut.shape) for name, cut in snapshot.processors.items()}
    changed = sorted(name for name in declared.keys() | then.keys() if declared.get(name) != then.get(name))
    if changed:
        raise SnapshotError(
            f"Since snapshot {snapshot.id} the app has changed: {', '.join(changed)} did not exist, or had other inputs, outputs or state. Nothing "
            "was changed. Restore with the version of the app that ran then (`penstock rollback` deploys it), and deploy the new one afterwards."
        )


def _expect_states(snapshot: Snapshot, environment: MaintenanceEnvironment) -> None:
    if environment.backups is None:
        raise SnapshotError(
            "Snapshots are in a backup store, and none is named. Nothing was changed. Name it with --backup LOCATION."
        )
    damages = SnapshotStore(environment.backups).damages(snapshot)
    if damages:
        raise SnapshotError(
            f"Snapshot {snapshot.id} is damaged: {damages[0]}{f', and {len(damages) - 1} more' if len(damages) > 1 else ''}. Nothing was changed. "
            "Use another snapshot: see `penstock snapshot list`."
        )


def _expect_retained(snapshot: Snapshot, flights: Sequence[Flight], bus: Bus) -> None:
    """Refuse if the bus has deleted a message that a processor would have to read."""
    needed = {flight.bucket: flight.begin for flight in flights if flight.begin < flight.end}
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
    recreated = [
        name
        for cut in snapshot.processors.values()
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
        for number, shard in cut.shards.items():
            for name, offset in shard.position.offsets.items():
                if name in cut.inputs and name not in snapshot.internal:
                    yield Bucket(name, number), offset


def _after_cut(snapshot: Snapshot, bus: Bus) -> dict[str, int]:
    outputs = sorted(snapshot.ends.keys() - snapshot.internal)
    return {
        name: sum(max(end - snapshot.ends[name].get(number, end), 0) for number, end in bus.catalog.ends(name).items())
        for name in outputs
    }


def _to_reprocess(snapshot: Snapshot, bus: Bus) -> dict[str, int]:
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
    appended = _Appended(plan.flights, environment.bus)
    tasks = [
        _RestoreTask(
            processor,
            plan.snapshot,
            appended,
            environment,
            operation_to_replace(processor, environment.bus, Restore(plan.snapshot.id)),
        )
        for processor in plan.processors
    ]
    perform_maintenance(tasks, environment.bus, at_gap, appended)


@dataclass
class _Appended(TopicChange):
    """Appends the messages in flight to their buckets again. An interrupted attempt is repeated behind what it has appended."""

    flights: Sequence[Flight]
    bus: Bus
    _offsets: dict[Bucket, list[int]] = field(default_factory=dict)
    _begins: dict[Bucket, int] = field(default_factory=dict)

    def apply(self) -> None:
        """Append the messages."""
        with closing(self.bus.writer()) as writer:
            for flight in self.flights:
                self._begins[flight.bucket] = self._end(flight.bucket)
                self._offsets[flight.bucket] = []
                for offset, message in _messages(self.bus, flight):
                    writer.send(flight.bucket.category, [message])
                    self._offsets[flight.bucket].append(offset)
            writer.flush()
        for bucket, offsets in self._offsets.items():
            if self._end(bucket) != self._begins[bucket] + len(offsets):
                raise MaintenanceRefused(
                    f"Another program wrote to {bucket} during the restore, so the positions of its readers are unknown. No position has moved, and no "
                    "worker starts. Stop that program, and repeat this command, which finishes the restore."
                )

    def _end(self, bucket: Bucket) -> int:
        return self.bus.catalog.ends(bucket.category)[bucket.number]

    def start_of(self, bucket: Bucket, position: int) -> int:
        """Return where a reader of an internal bucket continues, whose position at the cut is known."""
        read = sum(offset < position for offset in self._offsets[bucket])
        return self._begins[bucket] + read


def _messages(bus: Bus, flight: Flight) -> Iterator[tuple[int, Outgoing]]:
    """Yield the committed messages of a flight with their offsets."""
    if flight.begin >= flight.end:
        return
    with closing(bus.scanner([Position(flight.bucket, flight.begin)])) as scanner:
        while True:
            polled = scanner.poll(READ_WAIT_S)
            for batch in polled.batches:
                for message in batch.messages:
                    if message.offset() >= flight.end:
                        return
                    yield (
                        message.offset(),
                        Outgoing(
                            message.key(), message.value(), flight.bucket.number, tuple(message.headers() or ()) or None
                        ),
                    )
                if batch.next_offset >= flight.end:
                    return
            if polled.ended:
                return


class _RestoreTask(MaintenanceTask):
    """The restore of one processor."""

    def __init__(
        self,
        processor: type[Processor],
        snapshot: Snapshot,
        appended: _Appended,
        environment: MaintenanceEnvironment,
        replaces: MaintenanceOperation | None,
    ) -> None:
        self._cut: ProcessorCut = snapshot.processors[processor.name]
        self._internal = snapshot.internal
        self._appended = appended
        self._local = None
        lineage = lineage_of(newest_maintenance(environment.bus, processor.name))
        if processor.state_shape() is not None:
            self._local = LocalStates(processor, environment.states, environment.backups)
            lineage = lineage.installed(dict.fromkeys(self._cut.shards, lineage.newest_generation + 1))
        operation = start_operation(processor, Restore(snapshot.id), lineage)
        super().__init__(processor, environment.bus, operation, replaces)

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
                position = StatePosition(self._offsets(bucket), generation=self.operation.lineage.generation(bucket))
                install_backup(self._local, bucket, BackupId.parse(self._cut.shards[bucket].backup), position)
            case MaintenanceStep.STORE_BACKUP:
                store_backup(self._local, bucket)
            case MaintenanceStep.REWRITE_CHANGELOG:
                rewrite_changelog(self.bus, self._local, bucket)

    def rewound(self) -> Sequence[int]:
        """All shards write outputs again."""
        return self.buckets

    def move_positions(self) -> None:
        """Set the group's positions: those of the cut, and in internal categories the appended messages."""
        register_positions(self.bus, self.processor, self.buckets)
        self.bus.catalog.set_committed(
            self.processor.name,
            [
                Position(Bucket(name, bucket), offset, shard.position.checkpoint_id)
                for bucket, shard in self._cut.shards.items()
                for name, offset in self._offsets(bucket).items()
            ],
        )

    def _offsets(self, bucket: int) -> Offsets:
        at_cut = self._cut.shards[bucket].position.offsets
        return {
            name: self._appended.start_of(Bucket(name, bucket), at_cut[name])
            if name in self._internal
            else at_cut[name]
            for name in self._cut.inputs
        }
