"""Migration of saved states: a user's function converts them to the type that is declared now.

Timers, held events, event time and positions stay as they are.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from ....processors.operators import whole_states
from ....processors.shard import StatePosition
from ....state.backups import fetch
from ....state.local import RocksShardState, current, drop_folder
from ....transport import changelog_spec
from ....transport.tables import (
    AtGap,
    ConvertedType,
    MaintenanceOperation,
    MaintenanceRefused,
    MaintenanceStep,
    MaintenanceTask,
    lineage_of,
    no_gap,
    operation_to_replace,
    perform_maintenance,
    start_operation,
)
from ...kernel import changelog_of, replay, resolve_prepared
from .environment import MaintenanceEnvironment
from .migration_plan import MigrationPlan, ReportProgress, ShardMigration, no_report, plan_migration, shard_name
from .processor_positions import LocalStates, processor_positions
from .staging import Staging, link_state, open_state, write_entries
from .state_conversion import ConversionCounts, StateConversion, StateFunction
from .state_installation import rewrite_changelog, store_backup


def perform_migration(
    plan: MigrationPlan,
    environment: MaintenanceEnvironment,
    function: StateFunction,
    at_gap: AtGap = no_gap,
    report: ReportProgress = no_report,
) -> ConversionCounts:
    """Perform a planned migration. Durable on return; may be repeated. Return the number of states that this call converted.

    Args:
        plan: the plan.
        environment: its bus, states and backups.
        function: converts one state.
        at_gap: called before each step.
        report: called with the progress.

    Raises:
        GroupInUse: a worker runs. Nothing was changed.
        UserFunctionFailed: the function raised, or returned a value of another type. Nothing was changed.
    """
    task = _MigrationTask(plan, environment, function, report)
    perform_maintenance([task], environment.bus, at_gap)
    return task.counts


class _MigrationTask(MaintenanceTask):
    """A migration in progress."""

    def __init__(
        self,
        plan: MigrationPlan,
        environment: MaintenanceEnvironment,
        function: StateFunction,
        report: ReportProgress,
    ) -> None:
        self._plan = plan
        self._environment = environment
        self._function = function
        self._report = report
        self._local = LocalStates(plan.processor, environment.states, environment.backups)
        self._committed = processor_positions(plan.processor, environment.bus)
        self.counts = ConversionCounts()
        replaces = operation_to_replace(plan.processor, environment.bus, plan.kind)
        operation = self._new_operation(replaces) if replaces is None or replaces.is_done else replaces
        super().__init__(plan.processor, environment.bus, operation, replaces)
        self._staging = Staging(self._local, operation)

    def _new_operation(self, previous: MaintenanceOperation | None) -> MaintenanceOperation:
        lineage = lineage_of(previous)
        generations = dict.fromkeys(self.buckets, lineage.newest_generation + 1)
        earlier = {} if lineage.converted is None else lineage.converted.generations
        converted = ConvertedType(self._plan.kind.shape, {**earlier, **generations})
        migrated = msgspec.structs.replace(
            lineage, generations={**lineage.generations, **generations}, converted=converted
        )
        return start_operation(self._plan.processor, self._plan.kind, migrated, previous)

    @property
    def buckets(self) -> Sequence[int]:
        """The shards whose states are migrated."""
        return [shard.bucket for shard in self._plan.shards]

    @property
    def can_roll_back(self) -> bool:
        """Whether no new state is installed yet."""
        return not any(shard.is_done for shard in self._plan.shards)

    def check(self) -> None:
        """Raise MaintenanceRefused if the processor has read more events since it was planned."""
        if plan_migration(self._plan.processor, self._environment).shards != self._plan.shards:
            raise MaintenanceRefused(
                f"{self.processor.name} has read more events since this migration was planned. Nothing was changed. Stop the workers, and "
                "repeat the command."
            )

    def check_states(self) -> None:
        """Raise StateInUse if a process has one of the states open."""
        for bucket in self.buckets:
            self._local.require_closed(bucket)

    def staging(self) -> Generator[int, None, None]:
        """Convert the states."""
        if self._staging.is_complete:
            return
        with self._staging.building():
            for shard in self._plan.shards:
                yield shard.bucket
                self._convert(shard)

    def _convert(self, shard: ShardMigration) -> None:
        conversion = StateConversion(self._plan.processor, self._function)
        generation = self.operation.lineage.generation(shard.bucket)
        with self._source(shard) as source, closing(open_state(self._staging.staged(shard.bucket))) as state:
            state.claim(self._local.identity(shard.bucket))
            is_done = source.position().generation == generation
            entries = whole_states(self._plan.processor, source, source.items())
            write_entries(state, entries if is_done else conversion.convert(entries), self._report)
            state.save_position(source.position().updated(StatePosition(generation=generation)))
        self.counts.add(conversion.counts)

    @contextmanager
    def _source(self, shard: ShardMigration) -> Iterator[RocksShardState]:
        """Open a copy of a shard's state, at the position from which a worker would continue."""
        copy, committed = self._staging.source(shard.bucket), self._committed.of(shard.bucket).committed
        self._copy_state(shard, copy)
        state = open_state(copy)
        try:
            resolve_prepared(state, committed, f"{shard_name(self.processor, shard.bucket)}: a checkpoint")
            changelog = changelog_of(self.processor)
            is_logged = changelog is not None and changelog.name in self.bus.catalog.names()
            if is_logged and state.position().is_behind(committed):
                replay(self.bus, changelog_spec(self.processor).name, shard.bucket, state, time.time_ns() // 10**6)
            yield state
        finally:
            state.close()
            drop_folder(copy)

    def _copy_state(self, shard: ShardMigration, target: Path) -> None:
        backups, local = self._local.backups(shard.bucket), current(self._local.folder(shard.bucket))
        if shard.plan.backup is not None and backups is not None:
            fetch(backups, backups.read(shard.plan.backup), target)
        elif local is not None:
            link_state(local, target)

    def change_shard(self, step: MaintenanceStep, bucket: int) -> None:
        """Install a new state, store it, or rewrite its changelog."""
        match step:
            case MaintenanceStep.INSTALL_STATE:
                self._staging.install(bucket)
            case MaintenanceStep.STORE_BACKUP:
                store_backup(self._local, bucket)
            case MaintenanceStep.REWRITE_CHANGELOG:
                rewrite_changelog(self.bus, self._local, bucket)

    def discard_staged(self) -> None:
        """Remove the states that were built aside."""
        self._staging.discard()
