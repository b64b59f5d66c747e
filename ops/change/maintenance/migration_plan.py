"""Plan of a migration, and its dry run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from ....processors.declare import Aggregator, Processor, Semantics, Stateful, plan_of
from ....processors.shard import Offsets, StatePosition, Step, steps_of
from ....state.backups import no_progress, opened_backup, read_database
from ....state.local import RocksShardState
from ....transport.tables import MaintenanceOperation, MaintenanceRefused, Migration, lineage_of, operation_to_replace
from ...kernel import expect_categories
from .environment import MaintenanceEnvironment
from .processor_positions import LocalStates, StoredState, processor_positions
from .reset_plan import ResetMethod, ShardFacts, ShardPlan, count_events
from .state_conversion import ConversionCounts, Example, StateConversion, StateFunction, fits, own_entries

_T = TypeVar("_T")
ReportProgress = Callable[[int], None]
"""Called with the number of entries that were processed since the last call."""


def no_report(_: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class ShardMigration:
    """The migration of one shard.

    Args:
        plan: its positions, and the state to migrate.
        shape: the content of that state.
        is_done: whether an earlier attempt has installed the new state.
        keys: its approximate number of entries; 0 if unknown.
    """

    plan: ShardPlan
    shape: str
    is_done: bool
    keys: int = field(default=0, compare=False)

    @property
    def bucket(self) -> int:
        """Its number."""
        return self.plan.bucket


@dataclass(frozen=True)
class MigrationPlan:
    """A planned migration.

    Args:
        processor: the processor, as it is declared now.
        shards: the shards whose states do not fit; empty if all fit.
        is_continued: whether it continues an unfinished migration.
    """

    processor: type[Stateful]
    shards: Sequence[ShardMigration]
    is_continued: bool

    @property
    def keys(self) -> int:
        """The approximate number of entries."""
        return sum(shard.keys for shard in self.shards)

    @property
    def kind(self) -> Migration:
        """The operation."""
        return Migration(plan_of(self.processor).state_shape)

    @property
    def remaining(self) -> list[ShardMigration]:
        """The shards without a new state."""
        return [shard for shard in self.shards if not shard.is_done]


def plan_migration(
    processor: type[Processor], environment: MaintenanceEnvironment, *, force: bool = False
) -> MigrationPlan:
    """Plan a migration; nothing is changed.

    Args:
        processor: the processor, as it is declared now.
        environment: its bus, states and backups.
        force: include states that fit the declaration.

    Raises:
        MaintenanceRefused: the states cannot be migrated, or one is missing.
        BucketMismatch: an input has another number of buckets than declared.
        MissingCategory: an input is not on the bus.
    """
    stateful = _require_stateful(processor)
    expect_categories(stateful, plan_of(stateful).inputs, environment.bus)
    finder = _ShardFinder(stateful, environment)
    if finder.unfinished is not None:
        members = finder.unfinished.lineage.newest_buckets
        return MigrationPlan(stateful, finder.shards(sorted(members)), is_continued=True)
    shards = finder.shards(range(plan_of(stateful).inputs[0].buckets))
    misfits = [shard for shard in shards if shard.shape != plan_of(stateful).state_shape]
    if not misfits and (
        force
        or not all(_read_state(shard, stateful, environment, lambda state: fits(stateful, state)) for shard in shards)
    ):
        misfits = shards
    return MigrationPlan(stateful, misfits, is_continued=False)


def _require_stateful(processor: type[Processor]) -> type[Stateful]:
    if issubclass(processor, Stateful):
        return processor
    if issubclass(processor, Aggregator):
        raise MaintenanceRefused(
            f"{processor.__name__} keeps partials of {processor.monoid!r}. These do not contain the events, so no function can convert them to "
            "another monoid or window. Nothing was changed. Set another `name`, which counts from the first retained event, or start from "
            "the archive: `penstock bootstrap`."
        )
    raise MaintenanceRefused(
        f"{processor.__name__} has no state, so there is nothing to migrate. Nothing was changed. Deploy it or run it."
    )


class _ShardFinder:
    """Finds the newest state of each shard."""

    def __init__(self, processor: type[Stateful], environment: MaintenanceEnvironment) -> None:
        self._processor = processor
        self._local = LocalStates(processor, environment.states, environment.backups)
        newest = operation_to_replace(processor, environment.bus, Migration(plan_of(processor).state_shape))
        self.unfinished: MaintenanceOperation | None = None
        if newest is not None and not newest.is_done:
            self.unfinished, newest = newest, newest.previous
        self._lineage = lineage_of(newest)
        self._positions = processor_positions(processor, environment.bus, self._lineage)

    def shards(self, buckets: Sequence[int]) -> list[ShardMigration]:
        """Return the migrations of some shards, without the shards that have no state."""
        shards = (self._shard(bucket) for bucket in buckets)
        return [shard for shard in shards if shard is not None]

    def _shard(self, bucket: int) -> ShardMigration | None:
        facts = self._positions.of(bucket)
        oldest = self._lineage.generation(bucket)
        states = [state for state in self._local.stored(bucket) if state.saved.generation >= oldest]
        if not states:
            self._require_unread(facts)
            return None
        newest = max(states, key=lambda state: self._progress(state.completed(facts.committed)))
        position = newest.completed(facts.committed)
        self._require_same_keys(bucket, newest)
        is_done = self.unfinished is not None and position.generation == self.unfinished.lineage.generations.get(bucket)
        return ShardMigration(self._plan(facts, newest, position.offsets), newest.identity.shape, is_done, newest.keys)

    def _progress(self, position: StatePosition) -> tuple[int, int]:
        """Return a number that grows with a state's progress."""
        return position.generation, sum(
            position.offsets.get(category.name, 0) for category in plan_of(self._processor).inputs
        )

    def _plan(self, facts: ShardFacts, newest: StoredState, position: Offsets) -> ShardPlan:
        processor, method = self._processor, ResetMethod.KEPT if newest.backup is None else ResetMethod.BACKUP
        if Step.LOG_CHANGES in steps_of(processor):
            # Replaying the changelog brings it to the group's positions.
            position = {name: max(offset, position.get(name, 0)) for name, offset in facts.before.items()}
        plan = count_events(processor, facts, facts.before, method, position, backup=newest.backup)
        is_expired = StatePosition(plan.reflects).is_behind(StatePosition(facts.starts)) and (
            plan.repeated or plan.caught_up
        )
        if is_expired and processor.state_semantics is not Semantics.AT_MOST_ONCE:
            raise MaintenanceRefused(
                f"{shard_name(processor, facts.bucket)}: its newest known state is at {StatePosition(position)} and its group at "
                f"{StatePosition(facts.before)}, and Kafka retains the events between them only from {StatePosition(facts.starts)}. Nothing was "
                f"changed. {_FIND_STATE}"
            )
        return plan

    def _require_unread(self, facts: ShardFacts) -> None:
        """Refuse if a shard without a state has read events."""
        if any(facts.committed.offsets.values()):
            raise MaintenanceRefused(
                f"{shard_name(self._processor, facts.bucket)}: it has read up to {StatePosition(facts.before)}, and its state is neither on this "
                f"machine nor in the backups. Nothing was changed. {_FIND_STATE}"
            )

    def _require_same_keys(self, bucket: int, state: StoredState) -> None:
        """Refuse if more than the type of a key's state has changed."""
        processor, shape = self._processor, state.identity.shape
        others = sorted(state.saved.offsets.keys() - {category.name for category in plan_of(processor).inputs})
        if others:
            raise MaintenanceRefused(
                f"{shard_name(processor, bucket)}: its state contains events of {', '.join(others)}, which {processor.__name__} no longer reads. "
                f"A migration changes only the type of a state. Nothing was changed. {_START_ANEW}"
            )
        if shape != plan_of(processor).state_shape and not plan_of(processor).differs_only_in_state_type(shape):
            raise MaintenanceRefused(
                f"{shard_name(processor, bucket)}: its state contains {shape}, and {processor.__name__} now declares "
                f"{plan_of(processor).state_shape}. More than the type of a state has changed: its keys or windows differ. Nothing was changed. "
                f"{_START_ANEW}"
            )


_FIND_STATE = (
    "Run this command on the machine with the state (`--dir`), or name the backup store (`--backup`; `penstock state show` shows its backups). "
    "If the state is lost, set another `name`, which reads from the first retained event."
)
_START_ANEW = (
    "Restore the old declaration, or set another `name`, which reads from the first retained event or starts from the archive: "
    "`penstock bootstrap`."
)


def try_migration(
    plan: MigrationPlan,
    environment: MaintenanceEnvironment,
    function: StateFunction,
    report: ReportProgress = no_report,
) -> ConversionCounts:
    """Convert all states and discard the results. Workers may run; the last saved states are used.

    Args:
        plan: the plan.
        environment: its bus, states and backups.
        function: converts one state.
        report: called with the progress.

    Raises:
        UserFunctionFailed: the function raised, or returned a value of another type.
    """
    counts = ConversionCounts()

    def convert(state: RocksShardState) -> ConversionCounts:
        conversion, entries = StateConversion(plan.processor, function), own_entries(plan.processor, state)
        while batch := list(islice(entries, _BATCH_ENTRIES)):
            for _ in conversion.convert(batch):
                pass
            report(len(batch))
        return conversion.counts

    for shard in plan.remaining:
        counts.add(_read_state(shard, plan.processor, environment, convert))
    return counts


_BATCH_ENTRIES = 10_000


def migration_examples(
    plan: MigrationPlan, environment: MaintenanceEnvironment, function: StateFunction, limit: int = 3
) -> list[Example]:
    """Return the old and new states of some keys.

    Args:
        plan: the plan.
        environment: its bus, states and backups.
        function: converts one state.
        limit: the number of keys.

    Raises:
        UserFunctionFailed: the function raised, or returned a value of another type.
    """
    conversion, examples = StateConversion(plan.processor, function), list[Example]()

    def convert(state: RocksShardState) -> list[Example]:
        return [
            conversion.example(*entry) for entry in islice(own_entries(plan.processor, state), limit - len(examples))
        ]

    for shard in plan.remaining:
        if len(examples) < limit:
            examples += _read_state(shard, plan.processor, environment, convert)
    return examples


def _read_state(
    shard: ShardMigration,
    processor: type[Stateful],
    environment: MaintenanceEnvironment,
    read: Callable[[RocksShardState], _T],
) -> _T:
    """Return what a function reads from the state to migrate."""
    local = LocalStates(processor, environment.states, environment.backups)
    backups, backup = local.backups(shard.bucket), shard.plan.backup
    if backup is not None and backups is not None:
        with opened_backup(backups, backups.read(backup), no_progress) as state:
            return read(state)
    result = read_database(local.folder(shard.bucket), read)
    if result is None:
        raise MaintenanceRefused(
            f"{shard_name(processor, shard.bucket)}: its state was removed during this command. Nothing was changed. Repeat the command."
        )
    return result


def shard_name(processor: type[Processor], bucket: int) -> str:
    """Return the name of a shard, for messages."""
    return f"{processor.__name__}, bucket {bucket}"
