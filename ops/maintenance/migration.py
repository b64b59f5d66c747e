"""A migration: the states that are saved become, by a function of the user's, of the type that is declared now.

look --> noted on the bus as begun --> new states made aside --> put in place --> noted as done

Until all new states are whole it is taken back where the function fails, or somebody breaks it off. From then on it only goes forward: one
that died is given again, and takes every step anew. Timers, held events, event time and positions go along as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.processor import Processor
from ...processors.declare.semantics import Semantics
from ...processors.declare.stateful import Stateful
from ...processors.shard.checkpoints import Step, steps_of
from ...processors.shard.position import StatePosition
from ...state.backups.fetch import fetch, no_progress
from ...state.backups.inventory import read_database
from ...state.backups.restore import opened_backup
from ...state.local.folder import current
from ...state.local.rocksdb import RocksShardState, drop_folder
from ...transport.changelog import changelog_spec
from ...transport.tables.maintenance_log import (
    MaintenanceOperation,
    Retyped,
    newest_maintenance,
    record_maintenance,
)
from ...transport.tables.maintenance_start import cancel_maintenance, expect_idle, record_begin
from ..worker.changelog_replay import changelog_of, replay
from ..worker.preflight import expect_categories
from ..worker.resume_checks import settle_prepared
from .environment import Around
from .errors import MaintenanceRefused
from .processor_positions import FoundState, LocalStates, processor_positions
from .reset_plan import ResetMethod, ShardFacts, ShardPlan, counted
from .rewrite_changelog import rewrite_changelog
from .staging import Staging, linked, opened, write_all
from .state_conversion import ConversionCounts, Example, StateConversion, fits, own_entries
from .state_installation import store_backup
from .user_function import StateFunction

_T = TypeVar("_T")
MigrationReport = Callable[[int], None]
"""Is told of so many entries more that were looked at."""


class MigrationStep(Enum):
    """One durable step of a migration; all of them may be repeated."""

    NOTE_BEGIN = "note that it begins"
    MAKE_STATE = "make a state aside"
    PLACE_STATE = "put it in place"
    STORE_BACKUP = "store it as the newest backup"
    REWRITE_CHANGELOG = "tell the changelog"
    NOTE_END = "note that it is done"


class MigrationGap(NamedTuple):
    """A place where a migration can die: before a step, of a bucket where it is about one."""

    before: MigrationStep
    bucket: int | None = None


@dataclass(frozen=True)
class ShardMigration:
    """What is migrated of one shard.

    Args:
        plan: where it stands, and which of its states goes on.
        shape: what that holds.
        is_done: whether an earlier try has put the new one in place.
        keys: about how many entries it has; 0 where that is not known.
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
class Migration:
    """What a migration is to do.

    Args:
        processor: whose states.
        shards: those whose states do not fit; none where all do.
        goes_on: whether it was begun earlier and has not come to its end.
    """

    processor: type[Stateful]
    shards: Sequence[ShardMigration]
    goes_on: bool

    @property
    def keys(self) -> int:
        """About how many entries are looked at."""
        return sum(shard.keys for shard in self.shards)


def plan_migration(processor: type[Processor], around: Around, *, anyway: bool = False) -> Migration:
    """Look what is to be migrated; nothing is changed.

    Args:
        processor: whose states, as it is declared now.
        around: where it is.
        anyway: take states that are as declared already, too.

    Raises:
        MaintenanceRefused: they cannot be migrated, or there is one that is not to be found.
        BucketMismatch: an input has another number of buckets than declared.
        MissingCategory: an input is not on the bus.
    """
    kind = _migratable(processor)
    expect_categories(kind, kind.inputs(), around.bus)
    looking = _Looking(kind, around)
    begun = looking.begun
    if begun is not None:
        number = max(begun.numbers.values())
        members = [bucket for bucket, its in begun.numbers.items() if its == number]
        return Migration(kind, looking.shards(members), goes_on=True)
    found = looking.shards(range(kind.inputs()[0].buckets))
    others = [shard for shard in found if shard.shape != kind.state_shape()]
    if not others and (anyway or not all(_seen(shard, kind, around, lambda it: fits(kind, it)) for shard in found)):
        others = found
    return Migration(kind, others, goes_on=False)


def _migratable(processor: type[Processor]) -> type[Stateful]:
    if issubclass(processor, Stateful):
        return processor
    if issubclass(processor, Aggregator):
        raise MaintenanceRefused(
            f"{processor.__name__} keeps partials of {processor.monoid!r}: what they were made of is not in them, so no function makes those "
            "of another monoid or window of them. Nothing was changed. Give it another `name`, under which it counts from the first event "
            "that the bus keeps, or begins with what the archive gives: `penstock bootstrap`."
        )
    raise MaintenanceRefused(
        f"{processor.__name__} keeps no state, so there is nothing to migrate. Deploy or run it as it is."
    )


class _Looking:
    """Finds the newest state of each shard."""

    def __init__(self, processor: type[Stateful], around: Around) -> None:
        self._processor = processor
        self._local = LocalStates(processor, around.states, around.backups)
        newest = newest_maintenance(around.bus, processor.name)
        _expect_continues(processor, newest)
        self.begun = None if newest is None or newest.done else newest
        self._before = newest if self.begun is None else self.begun.earlier
        self._facts = processor_positions(processor, around.bus, self._before)

    def shards(self, buckets: Sequence[int]) -> list[ShardMigration]:
        """Return what there is of some shards; those that keep nothing are left out."""
        found = (self._shard(bucket) for bucket in sorted(buckets))
        return [shard for shard in found if shard is not None]

    def _shard(self, bucket: int) -> ShardMigration | None:
        facts = self._facts.of(bucket)
        least = 0 if self._before is None else self._before.numbers.get(bucket, 0)
        states = [one for one in self._local.found(bucket) if one.saved.maintenance_number >= least]
        if not states:
            self._expect_unread(facts)
            return None
        newest = max(states, key=lambda one: self._reach(one.settled(facts.committed)))
        position = newest.settled(facts.committed)
        self._expect_alike(bucket, newest)
        is_done = self.begun is not None and position.maintenance_number == self.begun.numbers.get(bucket)
        return ShardMigration(self._plan(facts, newest, position), newest.identity.shape, is_done, newest.keys)

    def _reach(self, position: StatePosition) -> tuple[int, int]:
        """Return what grows with how far a state is."""
        return position.maintenance_number, sum(
            position.offsets.get(category.name, 0) for category in self._processor.inputs()
        )

    def _plan(self, facts: ShardFacts, newest: FoundState, position: StatePosition) -> ShardPlan:
        processor, how = self._processor, ResetMethod.KEPT if newest.backup is None else ResetMethod.BACKUP
        offsets = position.offsets
        if Step.LOG_CHANGES in steps_of(processor):
            # The changelog brings it up to where its group is.
            offsets = {name: max(offset, offsets.get(name, 0)) for name, offset in facts.before.items()}
        plan = counted(processor, facts, facts.before, how, offsets, backup=newest.backup)
        is_gone = StatePosition(plan.reflects).is_behind(StatePosition(facts.starts)) and (plan.again or plan.caught_up)
        if is_gone and processor.state_semantics is not Semantics.AT_MOST_ONCE:
            raise MaintenanceRefused(
                f"{_shard_name(processor, facts.bucket)}: its newest state that is known is at {StatePosition(offsets)}, its group at "
                f"{StatePosition(facts.before)}, and the bus keeps the events between only from {StatePosition(facts.starts)} on. Nothing was changed. "
                f"{_WHERE}"
            )
        return plan

    def _expect_unread(self, facts: ShardFacts) -> None:
        """Refuse where a shard that has no state has read something."""
        if any(facts.committed.offsets.values()):
            raise MaintenanceRefused(
                f"{_shard_name(self._processor, facts.bucket)}: it has read up to {StatePosition(facts.before)}, and its state is neither on this "
                f"machine nor among the backups. Nothing was changed. {_WHERE}"
            )

    def _expect_alike(self, bucket: int, found: FoundState) -> None:
        """Refuse where more has changed than the type of a key's state."""
        processor, shape = self._processor, found.identity.shape
        others = sorted(found.saved.offsets.keys() - {category.name for category in processor.inputs()})
        if others:
            raise MaintenanceRefused(
                f"{_shard_name(processor, bucket)}: its state counts what came in {', '.join(others)}, which {processor.__name__} does not read "
                f"as it is declared now. Nothing was changed. Only the type of a state can be migrated. {_INSTEAD}"
            )
        if shape != processor.state_shape() and not processor.differs_only_in_state_type(shape):
            raise MaintenanceRefused(
                f"{_shard_name(processor, bucket)}: its state holds {shape}, and {processor.__name__} is now declared to keep "
                f"{processor.state_shape()}: more has changed than the type of a state, so what is kept for one key, or window, is not that of "
                f"another. Nothing was changed. {_INSTEAD}"
            )


_WHERE = (
    "Do this where its state is (`--dir`), or name the place of backups (`--backup`; `penstock state list` shows what there is). If it is lost, "
    "give the processor another `name`, under which it reads its inputs from the first event that the bus keeps."
)
_INSTEAD = (
    "Go back to the declaration that fits; or give the processor another `name`, under which it reads its inputs from the first event that "
    "the bus keeps, or begins with what the archive gives: `penstock bootstrap`."
)


def _expect_continues(processor: type[Stateful], move: MaintenanceOperation | None) -> None:
    """Refuse where another move is half done."""
    if move is None or move.done:
        return
    if not move.migrates or move.retyped is None or move.retyped.shape != processor.state_shape():
        raise MaintenanceRefused(
            f"{processor.name}: a {move.what} is half done. Nothing was changed. Give that command again, which finishes it; then this one."
        )


def try_out(
    migration: Migration, around: Around, function: StateFunction, told: MigrationReport = lambda _: None
) -> ConversionCounts:
    """Change all states, and keep nothing of it: also beside workers, on what they have saved so far.

    Args:
        migration: the plan.
        around: where the states are.
        function: says what a state becomes.
        told: is told how far it is.

    Raises:
        UserFunctionFailed: the function raised, or gave what does not fit.
    """
    total = ConversionCounts()
    for shard in _left(migration):
        total.add(_seen(shard, migration.processor, around, lambda it: _tried(it, migration, function, told)))
    return total


def _tried(
    state: RocksShardState, migration: Migration, function: StateFunction, told: MigrationReport
) -> ConversionCounts:
    retyping, entries = StateConversion(migration.processor, function), own_entries(state)
    while batch := list(islice(entries, _TRIED_AT_ONCE)):
        for _ in retyping.changed(batch):
            pass
        told(len(batch))
    return retyping.counts


_TRIED_AT_ONCE = 10_000


def examples(migration: Migration, around: Around, function: StateFunction, limit: int = 3) -> list[Example]:
    """Return what becomes of some keys.

    Args:
        migration: the plan.
        around: where the states are.
        function: says what a state becomes.
        limit: of how many.

    Raises:
        UserFunctionFailed: the function raised, or gave what does not fit.
    """
    retyping, found = StateConversion(migration.processor, function), list[Example]()

    def see(state: RocksShardState) -> list[Example]:
        return [retyping.example(*entry) for entry in islice(own_entries(state), limit - len(found))]

    for shard in _left(migration):
        if len(found) < limit:
            found += _seen(shard, migration.processor, around, see)
    return found


def _left(migration: Migration) -> list[ShardMigration]:
    return [shard for shard in migration.shards if not shard.is_done]


def _seen(shard: ShardMigration, processor: type[Stateful], around: Around, see: Callable[[RocksShardState], _T]) -> _T:
    """Return what is seen in the state that a shard goes on with, as it is now."""
    local = LocalStates(processor, around.states, around.backups)
    backups, backup = local.backups(shard.bucket), shard.plan.backup
    if backup is not None and backups is not None:
        with opened_backup(backups, backups.read(backup), no_progress) as state:
            return see(state)
    seen = read_database(local.folder(shard.bucket), see)
    if seen is None:
        raise MaintenanceRefused(
            f"{_shard_name(processor, shard.bucket)}: its state is not there any more. Nothing was changed."
        )
    return seen


def perform_migration(
    migration: Migration,
    around: Around,
    function: StateFunction,
    at_gap: Callable[[MigrationGap], None] = lambda _: None,
    told: MigrationReport = lambda _: None,
) -> ConversionCounts:
    """Do what was planned; durable on return, and may be repeated. Return how much this call has changed.

    Args:
        migration: the plan.
        around: where it is done.
        function: says what a state becomes.
        at_gap: called in each gap between two steps.
        told: is told how far it is.

    Raises:
        GroupInUse: a worker runs; nothing was changed.
        UserFunctionFailed: the function raised, or gave what does not fit; nothing was changed.
    """
    moving = _Moving(migration, around, function, at_gap, told)
    moving.begin()
    counts = moving.make()
    for step in (MigrationStep.PLACE_STATE, MigrationStep.STORE_BACKUP, MigrationStep.REWRITE_CHANGELOG):
        for shard in migration.shards:
            moving.move_state(step, shard.bucket)
    moving.end()
    return counts


class _Moving:
    """A migration under way."""

    def __init__(
        self,
        migration: Migration,
        around: Around,
        function: StateFunction,
        at_gap: Callable[[MigrationGap], None],
        told: MigrationReport,
    ) -> None:
        self._migration = migration
        self._processor = migration.processor
        self._around = around
        self._bus = around.bus
        self._function = function
        self._at_gap = at_gap
        self._told = told
        self._local = LocalStates(migration.processor, around.states, around.backups)
        self._facts = processor_positions(migration.processor, around.bus)
        self._earlier = newest_maintenance(around.bus, migration.processor.name)
        self._move = self._noted()
        self._staging = Staging(self._local, self._move)

    def _noted(self) -> MaintenanceOperation:
        earlier, shape = self._earlier, self._processor.state_shape()
        _expect_continues(self._processor, earlier)
        if earlier is not None and not earlier.done:
            return earlier
        number = 1 if earlier is None else earlier.next_number
        changed = dict.fromkeys((shard.bucket for shard in self._migration.shards), number)
        retyped = {} if earlier is None or earlier.retyped is None else earlier.retyped.numbers
        return MaintenanceOperation(
            self._processor.name,
            f"migration to {shape}",
            time.time_ns() // 1_000_000,
            done=False,
            numbers=changed if earlier is None else {**earlier.numbers, **changed},
            begins={} if earlier is None else earlier.begins,
            rebuilds=earlier is None or earlier.rebuilds,
            borders={} if earlier is None else earlier.borders,
            migrates=True,
            retyped=Retyped(shape, {**retyped, **changed}),
            earlier=earlier,
        )

    def begin(self) -> None:
        """Note that it begins, when no worker runs."""
        self._at_gap(MigrationGap(MigrationStep.NOTE_BEGIN))
        expect_idle(self._processor, self._bus)
        for shard in self._migration.shards:
            self._local.expect_closed(shard.bucket)
        record_begin(self._processor, self._bus, self._move, self._earlier, self._expect_as_planned)

    def _expect_as_planned(self) -> None:
        if plan_migration(self._processor, self._around).shards != self._migration.shards:
            raise MaintenanceRefused(
                f"{self._processor.name} has gone on since this migration was planned. Nothing was changed. Stop the workers, and give the "
                "command again."
            )

    def make(self) -> ConversionCounts:
        """Make all new states aside; nothing where an earlier try has done so."""
        total = ConversionCounts()
        if self._staging.is_whole:
            return total
        try:
            with self._staging.making():
                for shard in self._migration.shards:
                    self._at_gap(MigrationGap(MigrationStep.MAKE_STATE, shard.bucket))
                    total.add(self._made(shard))
        except (Exception, KeyboardInterrupt):
            if not any(shard.is_done for shard in self._migration.shards):
                self._staging.drop()
                cancel_maintenance(self._bus, self._processor.name)
            raise
        return total

    def _made(self, shard: ShardMigration) -> ConversionCounts:
        retyping, number = StateConversion(self._processor, self._function), self._move.number_of(shard.bucket)
        with self._source(shard) as source, closing(opened(self._staging.staged(shard.bucket))) as state:
            state.claim(self._local.identity(shard.bucket))
            is_done = source.position().maintenance_number == number
            entries = source.items()
            write_all(state, entries if is_done else retyping.changed(entries), self._told)
            state.save_position(source.position().updated(StatePosition(maintenance_number=number)))
        return retyping.counts

    @contextmanager
    def _source(self, shard: ShardMigration) -> Iterator[RocksShardState]:
        """Give a shard's state as a worker would go on with it: a copy, so that nothing changes where it lies."""
        copy, committed = self._staging.source(shard.bucket), self._facts.of(shard.bucket).committed
        self._copy_state(shard, copy)
        state = opened(copy)
        try:
            settle_prepared(state, committed, f"{_shard_name(self._processor, shard.bucket)}: a checkpoint")
            changelog = changelog_of(self._processor)
            is_logged = changelog is not None and changelog.name in self._bus.catalog.names()
            if is_logged and state.position().is_behind(committed):
                replay(self._bus, changelog_spec(self._processor).name, shard.bucket, state, time.time_ns() // 10**6)
            yield state
        finally:
            state.close()
            drop_folder(copy)

    def _copy_state(self, shard: ShardMigration, target: Path) -> None:
        backups, here = self._local.backups(shard.bucket), current(self._local.folder(shard.bucket))
        if shard.plan.backup is not None and backups is not None:
            fetch(backups, backups.read(shard.plan.backup), target)
        elif here is not None:
            linked(here, target)

    def move_state(self, step: MigrationStep, bucket: int) -> None:
        """Take a step that is about one new state."""
        self._at_gap(MigrationGap(step, bucket))
        match step:
            case MigrationStep.PLACE_STATE:
                self._staging.place(bucket)
            case MigrationStep.STORE_BACKUP:
                store_backup(self._local, bucket)
            case MigrationStep.REWRITE_CHANGELOG:
                rewrite_changelog(self._bus, self._local, bucket)

    def end(self) -> None:
        """Note that it is done."""
        self._at_gap(MigrationGap(MigrationStep.NOTE_END))
        record_maintenance(self._bus, msgspec.structs.replace(self._move, done=True, earlier=None))
        self._staging.drop()


def _shard_name(processor: type[Processor], bucket: int) -> str:
    return f"{processor.__name__}, bucket {bucket}"
