"""Cloning an app: a second app under names of its own, which continues from a snapshot of the first one.

categories of the clone: created    <--appended-- messages in flight at the cut
states of the clone's processors    <--copied---- states of the cut
positions of the clone's groups     <--set------- those of the cut; in the clone's categories, the appended messages

The original app is not changed and runs on. Names of the clone follow from its own name; see `processors/apps/clones.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from ....processors import PenstockError
from ....processors.apps import App, renamed_categories
from ....processors.declare import AnyCategory, Processor, Semantics, plan_of
from ....processors.pipes import Pipe
from ....processors.shard import StatePosition
from ....state.backups import BackupId, ShardBackups
from ....transport import Bucket, Bus, CategorySpec, OffsetRange, create_missing_categories
from ....transport.tables import (
    MAINTENANCE,
    AtGap,
    Clone,
    MaintenanceOperation,
    newest_maintenance,
    no_gap,
    operation_to_replace,
    perform_maintenance,
    registration_of,
)
from ...kernel import changelog_of
from ..maintenance import LocalStates, MaintenanceEnvironment, install_clone
from ..snapshots import (
    Appended,
    CutTask,
    Snapshot,
    expect_retained,
    expect_same_processors,
    expect_states,
    to_reprocess,
)


class CloneRefused(PenstockError):
    """The clone cannot be made, or does not exist. Nothing was changed."""


@dataclass(frozen=True)
class ClonePlan:
    """A planned clone.

    Args:
        snapshot: the snapshot of the original app.
        app: the clone.
        names: the clone's names of its own categories, by the original names.
        flights: the messages that are copied to the clone's categories.
        reprocessed: by external input, the number of events after the cut, which the clone processes.
    """

    snapshot: Snapshot
    app: App
    names: Mapping[str, str]
    flights: Sequence[OffsetRange]
    reprocessed: Mapping[str, int]


def original_of(processor: type[Processor]) -> type[Processor]:
    """Return the processor that a processor of a clone was made from."""
    return cast("type[Processor]", processor.cloned_from)


def plan_clone(
    snapshot: Snapshot, clone: App, environment: MaintenanceEnvironment, *, runs_programs: bool = False
) -> ClonePlan:
    """Plan a clone; nothing is changed.

    Args:
        snapshot: the snapshot of the original app.
        clone: the app under the clone's names.
        environment: the app's bus, states and backups.
        runs_programs: whether the clone may run the external programs of pipes.

    Raises:
        CloneRefused: a clone or another app has one of the names, or a pipe would run its program a second time.
        SnapshotError: the app has changed, the bus does not have the messages of the cut any more, or a state is damaged.
    """
    bus = environment.bus
    expect_same_processors(snapshot, [original_of(processor) for processor in clone.processors])
    if not runs_programs:
        _expect_no_programs(clone)
    _expect_no_deciding_sinks(clone)
    _expect_free(snapshot, clone, bus)
    expect_states(snapshot, environment)
    names = {old: new for processor in clone.processors for old, new in renamed_categories(processor).items()}
    flights = _flights(snapshot, clone, bus)
    expect_retained(snapshot, flights, bus)
    return ClonePlan(snapshot, clone, names, flights, to_reprocess(snapshot, bus))


def _expect_no_programs(clone: App) -> None:
    pipes = [processor.__name__ for processor in clone.processors if issubclass(processor, Pipe)]
    if pipes:
        raise CloneRefused(
            f"{', '.join(pipes)} runs an external program, which the clone would run a second time for the same events. Nothing was changed. If the "
            "program has no effects but its output, repeat the command with --with-programs."
        )


def _expect_no_deciding_sinks(clone: App) -> None:
    """Raise CloneRefused for exactly-once sinks: they contain the positions of their processors, and a clone writes none."""
    for processor in clone.processors:
        if plan_of(processor).sinks and processor.output_semantics is Semantics.EXACTLY_ONCE:
            raise CloneRefused(
                f"{processor.__name__} writes {plan_of(processor).sinks[0].name} exactly once, so its positions are there, and a clone must not write there. "
                "Nothing was changed. Let it write to a category, and a processor in an app of its own copy that category to the sink."
            )


def _expect_free(snapshot: Snapshot, clone: App, bus: Bus) -> None:
    """Raise CloneRefused if something else has a name of the clone. An interrupted clone of the same snapshot is finished."""
    newest = {processor.name: newest_maintenance(bus, processor.name) for processor in clone.processors}
    if _is_done(newest):
        raise CloneRefused(
            f"{clone.name} exists already. Nothing was changed. Remove it with `penstock clone --remove`, or choose another name with --as."
        )
    for processor in clone.processors:
        operation_to_replace(processor, bus, clone_kind(snapshot, clone, processor))
    if any(newest.values()):
        return
    taken = {name for processor in clone.processors for name in renamed_categories(processor).values()}
    taken &= set(bus.catalog.names())
    taken |= {processor.name for processor in clone.processors if registration_of(bus, processor.name).inputs}
    if taken:
        raise CloneRefused(
            f"{', '.join(sorted(taken))} exists already and does not belong to a clone. Nothing was changed. Choose another name with --as."
        )


def _is_done(newest: Mapping[str, MaintenanceOperation | None]) -> bool:
    return all(operation is not None and operation.is_done for operation in newest.values())


def clone_kind(snapshot: Snapshot, clone: App, processor: type[Processor]) -> Clone:
    """Return the operation that makes a processor of a clone."""
    in_flight, tables = snapshot.in_flight(), {table.name for table in _own_tables(clone)}

    def begin(name: str, number: int, end: int) -> int:
        return 0 if name in tables else in_flight.get((name, number), (end, end))[0]

    return Clone(
        snapshot.id,
        {
            category.name: {
                number: begin(category.name, number, end) for number, end in snapshot.ends[category.name].items()
            }
            for category in plan_of(original_of(processor)).written_categories
        },
    )


def _flights(snapshot: Snapshot, clone: App, bus: Bus) -> list[OffsetRange]:
    """Return what the clone's processors must find in its categories: messages in flight, and tables from their beginning."""
    found = {Bucket(*where): span for where, span in snapshot.in_flight().items()}
    for table in _own_tables(clone):
        for number, begin in bus.catalog.describe(table.name).starts.items():
            found[Bucket(table.name, number)] = begin, snapshot.ends[table.name][number]
    return [OffsetRange(bucket, begin, end) for bucket, (begin, end) in sorted(found.items())]


def _own_tables(clone: App) -> list[AnyCategory]:
    """Return the original categories that a processor of the app writes and another one looks up."""
    return [
        table
        for processor in clone.processors
        for table in plan_of(original_of(processor)).side_inputs
        if table.name in {name for each in clone.processors for name in renamed_categories(each)}
    ]


def perform_clone(plan: ClonePlan, environment: MaintenanceEnvironment, at_gap: AtGap = no_gap) -> None:
    """Make a planned clone. Durable on return; may be repeated.

    Args:
        plan: the plan.
        environment: the app's bus, states and backups.
        at_gap: called before each step.

    Raises:
        GroupInUse: a worker of the clone runs.
        MaintenanceRefused: another program wrote to a category of the clone meanwhile; repeat the command.
    """
    create_missing_categories(environment.bus, MAINTENANCE)
    categories = _CloneCategories(plan.flights, environment.bus, plan.names, app=plan.app)
    tasks = [
        _CloneTask(
            processor,
            plan.snapshot.processors[original_of(processor).name],
            clone_kind(plan.snapshot, plan.app, processor),
            categories,
            environment,
        )
        for processor in plan.app.processors
    ]
    perform_maintenance(tasks, environment.bus, at_gap, categories)


@dataclass(kw_only=True)
class _CloneCategories(Appended):
    """Creates the categories of a clone, with the messages in flight."""

    app: App

    def apply(self) -> None:
        """Create missing categories, and append the messages."""
        own = {
            category.name: category
            for processor in self.app.processors
            for category in plan_of(processor).written_categories
        }
        changelogs = [spec for processor in self.app.processors if (spec := changelog_of(processor)) is not None]
        create_missing_categories(self.bus, *map(CategorySpec.of, own.values()), *changelogs)
        super().apply()


class _CloneTask(CutTask):
    """The part of one processor."""

    def install(self, local: LocalStates, bucket: int) -> None:
        """Install a copy of the original shard's state."""
        at_cut = self._cut.shards[bucket]
        position = StatePosition(
            self.offsets(bucket),
            checkpoint_id=at_cut.position.checkpoint_id,
            generation=self.operation.lineage.generation(bucket),
            topic_ids={name: id_ for name, id_ in at_cut.position.topic_ids.items() if name not in self._names},
        )
        assert local.backup_store is not None  # noqa: S101 - `expect_states` has found the state there
        original = ShardBackups(local.backup_store, original_of(self.processor).name, bucket)
        install_clone(local, bucket, original, BackupId.parse(at_cut.backup), position)
