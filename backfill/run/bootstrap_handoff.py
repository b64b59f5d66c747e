"""Hand-over of states that were built in batch: the processor's workers continue from them.

This is a maintenance operation, as a reset is. Before its start is recorded, the new states have no effect. Afterwards no worker starts
until it is finished, and states on other machines, which have a lower generation, are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...processors.declare import Processor, plan_of
from ...processors.shard import Offsets, Step, steps_of
from ...state.backups import Manifest, ShardBackups, expect_owner, no_progress, opened_backup, publish
from ...state.files import FileStore
from ...transport import Bucket, Bus, Position, changelog_spec, create_missing_categories, rewrite_changelog_bucket
from ...transport.tables import (
    AtGap,
    Bootstrap,
    ConvertedType,
    MaintenanceOperation,
    MaintenanceStep,
    MaintenanceTask,
    StateLineage,
    lineage_of,
    newest_maintenance,
    no_gap,
    operation_to_replace,
    perform_maintenance,
    register_positions,
    require_idle,
    start_operation,
)
from ..errors import BackfillRefused


@dataclass(frozen=True)
class BootstrapHandoff:
    """A planned hand-over, with the processor's positions before its states were built.

    Args:
        processor: whose states are built.
        bus: where it runs.
        backup_store: where its workers look for backups.
        replaces: its newest maintenance operation; None without one.
        committed: its group's positions, by input and bucket.
    """

    processor: type[Processor]
    bus: Bus
    backup_store: FileStore
    replaces: MaintenanceOperation | None
    committed: Mapping[str, Mapping[int, int]]

    @property
    def number(self) -> int:
        """The generation of the new states."""
        return lineage_of(self.replaces).newest_generation + 1

    def untouched(self, built: Mapping[int, object]) -> list[int]:
        """Return the buckets that have positions and no new state."""
        started = {number for offsets in self.committed.values() for number, offset in offsets.items() if offset}
        return sorted(started.difference(built))

    def require_same_buckets(self, starts: Mapping[int, Offsets]) -> None:
        """Refuse to build a state of events from before a resize.

        Args:
            starts: the first offset of each input, by bucket.

        Raises:
            BackfillRefused: a bucket starts before the last resize.
        """
        resized = lineage_of(self.replaces).resize_offsets
        early = sorted(
            number
            for number, offsets in starts.items()
            if any(offset < resized.get(name, {}).get(number, 0) for name, offset in offsets.items())
        )
        if early:
            raise BackfillRefused(
                f"{self.processor.__name__}: the archive starts before the last resize of its inputs (bucket {', '.join(map(str, early))}). Keys "
                "were in other buckets then, and their states would be split. Nothing was changed. Start with a day after the resize "
                "(`--from DAY`), or let a penstock.Repartition write all events to another category, and archive and read that category."
            )

    def perform(self, built: Mapping[int, Manifest], at_gap: AtGap = no_gap) -> None:
        """Let the workers continue from the new states. Durable on return; may be repeated.

        Args:
            built: by bucket, the stored new states.
            at_gap: called before each step.

        Raises:
            GroupInUse: a worker runs. Nothing was changed.
            BackfillRefused, BackupFenced: the processor has run, or was changed, meanwhile. Nothing was changed.
            MaintenanceRefused: another operation is unfinished, or this one omits some buckets of an unfinished bootstrap. Nothing was changed.
            FileStoreUnreachable, BusError: no worker starts until the bootstrap is repeated.
        """
        if newest_maintenance(self.bus, self.processor.name) != self.replaces:
            raise self.changed("was changed by another operation")
        operation_to_replace(self.processor, self.bus, Bootstrap(), built)
        operation = start_operation(self.processor, Bootstrap(), self._lineage(built))
        perform_maintenance([_HandoffTask(self, operation, built)], self.bus, at_gap)

    def _lineage(self, built: Mapping[int, Manifest]) -> StateLineage:
        lineage, shape = lineage_of(self.replaces), plan_of(self.processor).state_shape
        generations = dict.fromkeys(built, self.number)
        installed = lineage.installed(generations)
        if lineage.converted is None or shape is None:
            return installed.with_type(None)
        return installed.with_type(ConvertedType(shape, {**lineage.converted.generations, **generations}))

    def backups(self, bucket: int) -> ShardBackups:
        """Return a shard's backups."""
        return ShardBackups(self.backup_store, self.processor.name, bucket)

    def changed(self, event: str) -> BackfillRefused:
        """Return the error for a processor that changed while its states were built."""
        return BackfillRefused(
            f"{self.processor.__name__} {event} while its states were built. Nothing was changed, and the processor continues as before. Stop "
            "its workers, and repeat the command."
        )


class _HandoffTask(MaintenanceTask):
    """A hand-over in progress."""

    def __init__(
        self, handoff: BootstrapHandoff, operation: MaintenanceOperation, built: Mapping[int, Manifest]
    ) -> None:
        super().__init__(handoff.processor, handoff.bus, operation, handoff.replaces)
        self._handoff = handoff
        self._built = built

    @property
    def buckets(self) -> Sequence[int]:
        """The shards with new states."""
        return list(self._built)

    def check(self) -> None:
        """Raise if the processor has run, or another process owns its backups."""
        if committed_by(self.processor, self.bus) != self._handoff.committed:
            raise self._handoff.changed("has run")
        for bucket, manifest in self._built.items():
            expect_owner(self._handoff.backups(bucket), manifest.epoch)

    def change_shard(self, step: MaintenanceStep, bucket: int) -> None:
        """Publish a new state as the newest backup, or rewrite its changelog."""
        match step:
            case MaintenanceStep.STORE_BACKUP:
                publish(self._handoff.backups(bucket), self._built[bucket])
            case MaintenanceStep.REWRITE_CHANGELOG:
                self._rewrite_changelog(bucket, self._built[bucket])

    def _rewrite_changelog(self, bucket: int, manifest: Manifest) -> None:
        if Step.LOG_CHANGES in steps_of(self.processor):
            changelog = changelog_spec(self.processor)
            create_missing_categories(self.bus, changelog)
            with opened_backup(self._handoff.backups(bucket), manifest, no_progress) as state:
                rewrite_changelog_bucket(self.bus, changelog.name, bucket, state.items(), manifest.position)

    def rewound(self) -> Collection[int]:
        """Return the buckets that write some outputs again."""
        return {
            bucket
            for bucket, manifest in self._built.items()
            for name, offsets in self._handoff.committed.items()
            if manifest.position.offsets.get(name, 0) < offsets.get(bucket, 0)
        }

    def move_positions(self) -> None:
        """Set the group's positions to those of the new states; an input without archived events keeps its offset."""
        register_positions(self.bus, self.processor, self._built)
        offsets = {
            Bucket(name, bucket): manifest.position.offsets.get(name, committed.get(bucket))
            for bucket, manifest in self._built.items()
            for name, committed in self._handoff.committed.items()
        }
        positions = [Position(bucket, offset) for bucket, offset in offsets.items() if offset is not None]
        self.bus.catalog.set_committed(self.processor.name, positions)


def plan_handoff(processor: type[Processor], bus: Bus, backup_store: FileStore) -> BootstrapHandoff:
    """Read a processor's positions before its states are built; nothing is changed.

    Raises:
        MaintenanceRefused: another operation is unfinished.
        GroupInUse: a worker runs.
    """
    require_idle(processor, bus)
    replaces = operation_to_replace(processor, bus, Bootstrap())
    return BootstrapHandoff(processor, bus, backup_store, replaces, committed_by(processor, bus))


def committed_by(processor: type[Processor], bus: Bus) -> dict[str, dict[int, int]]:
    """Return the committed positions of a processor's group, by input and bucket."""
    return {
        category.name: dict(bus.catalog.committed(processor.name, category.name))
        for category in plan_of(processor).sources
    }
