"""Reset of a processor: its positions, and its states with them, move to another place in its inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from ....processors.apps import Loop
from ....processors.declare import Aggregator, Processor, RemoteStore, plan_of
from ....processors.shard import Offsets, StatePosition, Step, is_committed, is_remote, steps_of
from ....state import ShardIdentity
from ....state.local import current
from ....state.remote import RemoteShardState, remote_states
from ....transport import Bucket, Position
from ....transport.tables import (
    AtGap,
    MaintenanceOperation,
    MaintenanceRefused,
    MaintenanceStep,
    MaintenanceTask,
    Reset,
    StateLineage,
    StateRestore,
    lineage_of,
    newest_maintenance,
    no_gap,
    operation_to_replace,
    perform_maintenance,
    register_positions,
    require_idle,
    start_operation,
    topic_ids_of,
)
from ...dead_letters import Repeats, drop_repeated
from ...kernel import StoreMissing
from .environment import MaintenanceEnvironment
from .processor_positions import LocalStates, processor_positions
from .reset_plan import (
    REPLACING,
    Candidate,
    ResetMethod,
    ShardFacts,
    ShardPlan,
    StatePolicy,
    plan_shard,
    plan_state_of_cut,
)
from .reset_target import ResetTarget, describe_target, offsets_at
from .state_installation import install_backup, install_empty, move_position, rewrite_changelog, store_backup


@dataclass(frozen=True)
class ResetPlan:
    """A planned reset.

    Args:
        processor: the processor.
        kind: the target and the state policy; or the snapshot, if only states go back.
        shards: the change of each shard.
    """

    processor: type[Processor]
    kind: Reset | StateRestore
    shards: Sequence[ShardPlan]

    @property
    def repeated(self) -> int:
        """The number of events that are processed again, with outputs."""
        return sum(shard.repeated for shard in self.shards)

    @property
    def skipped(self) -> int:
        """The number of events that are skipped."""
        return sum(shard.skipped for shard in self.shards)

    @property
    def caught_up(self) -> int:
        """The number of events that are read for the state alone."""
        return sum(shard.caught_up for shard in self.shards)

    @property
    def missing(self) -> int:
        """The number of events before the target that at-most-once state does not contain."""
        return sum(shard.missing for shard in self.shards)

    @property
    def repeats(self) -> Repeats:
        """The messages that are processed again: from the positions that go back."""
        return Repeats(
            {
                Bucket(name, shard.bucket): offset
                for shard in self.shards
                for name, offset in shard.target.items()
                if offset < shard.before[name]
            }
        )

    def outputs(self) -> list[str]:
        """Return the categories and sinks that get the repeated outputs."""
        return [destination.name for destination in plan_of(self.processor).destinations]


def expect_no_loop(loop: Loop | None) -> None:
    """Raise MaintenanceRefused for a member of a loop."""
    if loop is not None:
        raise MaintenanceRefused(
            f"The processors form a loop: {loop}. What one of them writes again returns to it, beside what it wrote before, and what circulated at the new "
            "position is unknown. Nothing was changed. Restore a snapshot of the app, which contains what circulated (`penstock snapshot restore`). To begin "
            "with the first event, declare other names for the processors and for the categories of the loop."
        )


def plan_reset(
    processor: type[Processor], environment: MaintenanceEnvironment, target: ResetTarget, policy: StatePolicy | None
) -> ResetPlan:
    """Plan a reset; nothing is changed.

    Args:
        processor: the processor.
        environment: its bus, states and backups.
        target: where its positions move to.
        policy: the state that it continues from; None for the state at the target.

    Raises:
        MaintenanceRefused: the reset is not possible, or not with these options.
        StateInUse: a worker has a state open.
        MissingCategory: an input is not on the bus.
    """
    plan = plan_of(processor)
    if policy is not None and plan.state_shape is None:
        raise MaintenanceRefused(
            f"{processor.__name__} has no state, so --state does not apply. Nothing was changed. Omit the option."
        )
    policy = policy or StatePolicy.AUTO
    catalog = environment.bus.catalog
    wanted = offsets_at(target, catalog, [category.name for category in plan.sources])
    numbers = sorted({bucket.number for bucket in wanted})
    # Events that wait for a retry are read again from the source, or are skipped like it.
    for category in plan.retry_categories:
        ends = catalog.stable_ends(category.name)
        wanted |= {Bucket(category.name, number): ends[number] for number in numbers}
    kind = Reset(describe_target(target), policy.value)
    lineage = lineage_of(newest_maintenance(environment.bus, processor.name))
    positions = processor_positions(processor, environment.bus, lineage)
    with_states = _state_finder(processor, environment, lineage)
    shards = [
        plan_shard(processor, policy, with_states(positions.of(number)), _inputs_of(number, wanted))
        for number in numbers
    ]
    operation_to_replace(processor, environment.bus, kind, numbers)
    return ResetPlan(processor, kind, shards)


def plan_state_restore(
    processor: type[Processor], environment: MaintenanceEnvironment, snapshot: str, cut: Mapping[int, Candidate]
) -> ResetPlan:
    """Plan that one processor gets its states of a snapshot, and keeps its positions; nothing is changed.

    Args:
        processor: the processor.
        environment: its bus, states and backups.
        snapshot: the id of the snapshot.
        cut: by bucket, the state of the snapshot.

    Raises:
        MaintenanceRefused: the processor has no local state, or the state cannot catch up from the bus.
    """
    if plan_of(processor).state_shape is None or is_remote(processor):
        where = (
            "keeps its state in a remote store, of which a snapshot has no copy"
            if is_remote(processor)
            else "has no state"
        )
        raise MaintenanceRefused(
            f"{processor.__name__} {where}, so nothing of it can go back alone. Nothing was changed. Restore the whole app, or move its positions with "
            "`penstock reset`."
        )
    kind = StateRestore(snapshot)
    positions = processor_positions(
        processor, environment.bus, lineage_of(newest_maintenance(environment.bus, processor.name))
    )
    shards = [plan_state_of_cut(processor, positions.of(number), state) for number, state in sorted(cut.items())]
    operation_to_replace(processor, environment.bus, kind, list(cut))
    return ResetPlan(processor, kind, shards)


def _inputs_of(number: int, wanted: dict[Bucket, int]) -> Offsets:
    return {bucket.category: offset for bucket, offset in wanted.items() if bucket.number == number}


def _state_finder(
    processor: type[Processor], environment: MaintenanceEnvironment, lineage: StateLineage
) -> Callable[[ShardFacts], ShardFacts]:
    """Return a function that adds the states of a shard to its facts."""
    if plan_of(processor).state_shape is None:
        return lambda facts: facts
    if is_remote(processor):
        return lambda facts: _with_remote(processor, environment, facts)
    local = LocalStates(processor, environment.states, environment.backups)
    return lambda facts: replace(facts, states=list(local.candidates(facts.bucket, facts.committed, lineage)))


def _with_remote(processor: type[Processor], environment: MaintenanceEnvironment, facts: ShardFacts) -> ShardFacts:
    """Read the state's position from the store. Opening a shard there takes its ownership, so no worker may run."""
    require_idle(processor, environment.bus)
    with _remote_state(processor, environment, facts.bucket) as state:
        if not _is_sent(processor, state, facts):
            raise MaintenanceRefused(
                f"{processor.__name__}, bucket {facts.bucket}: its last checkpoint contains outputs that are not sent yet. Nothing was changed. "
                "Run `penstock run … --until-end`, which sends them, and repeat this command."
            )
        position = state.position()
    return replace(facts, states=[Candidate(position)])


def _is_sent(processor: type[Processor], state: RemoteShardState, facts: ShardFacts) -> bool:
    outbox = state.outbox() if Step.SAVE_WITH_OUTBOX in steps_of(processor) else None
    checkpoint = f"{processor.name}, bucket {facts.bucket}: a checkpoint"
    return outbox is None or is_committed(outbox.before, outbox.after, facts.committed, checkpoint)


@contextmanager
def _remote_state(
    processor: type[Processor], environment: MaintenanceEnvironment, bucket: int
) -> Iterator[RemoteShardState]:
    """Open the state of a shard in its store."""
    if environment.store is None:
        raise StoreMissing(
            f"{processor.__name__} keeps its state in a remote store, and no store is named. Nothing was changed. Name it with --store "
            "postgresql://… or redis://…, or with the environment variable PENSTOCK_STORE."
        )
    if not (issubclass(processor, Aggregator) and isinstance(processor.store, RemoteStore)):
        raise TypeError(f"{processor.__name__} has no remote state")
    identity = ShardIdentity(processor.name, bucket, plan_of(processor).state_shape)
    with closing(remote_states(environment.store, processor, write_mode=processor.store.write_mode)) as states:
        yield states.open(identity)


def perform_reset(plan: ResetPlan, environment: MaintenanceEnvironment, at_gap: AtGap = no_gap) -> None:
    """Perform a planned reset. Durable on return; may be repeated.

    Args:
        plan: the plan.
        environment: its bus, states and backups.
        at_gap: called before each step.

    Raises:
        GroupInUse: a worker runs. Nothing was changed.
        MaintenanceRefused: the processor has read more events since it was planned. Nothing was changed.
    """
    newest = newest_maintenance(environment.bus, plan.processor.name)
    perform_maintenance([_task_type(plan.processor)(plan, environment, newest)], environment.bus, at_gap)


def _task_type(processor: type[Processor]) -> type[_ResetTask]:
    if plan_of(processor).state_shape is None:
        return _ResetTask
    return _RemoteReset if is_remote(processor) else _LocalReset


class _ResetTask(MaintenanceTask):
    """A reset in progress; here of a processor without state."""

    def __init__(
        self, plan: ResetPlan, environment: MaintenanceEnvironment, replaces: MaintenanceOperation | None
    ) -> None:
        self._plan = plan
        self._environment = environment
        self._shards = {shard.bucket: shard for shard in plan.shards}
        self._committed = processor_positions(plan.processor, environment.bus)
        self._topic_ids = topic_ids_of(environment.bus, plan.processor)
        self._is_repeated = replaces is not None and not replaces.is_done
        operation = start_operation(plan.processor, plan.kind, self._lineage(lineage_of(replaces)))
        super().__init__(plan.processor, environment.bus, operation, replaces)

    @property
    def buckets(self) -> Sequence[int]:
        """The shards whose positions move."""
        return list(self._shards)

    def _lineage(self, lineage: StateLineage) -> StateLineage:
        return lineage

    def check(self) -> None:
        """Raise MaintenanceRefused if the processor has read more events since it was planned."""
        positions = processor_positions(self.processor, self.bus)
        changed = [number for number, shard in self._shards.items() if positions.of(number).before != shard.before]
        if changed:
            raise MaintenanceRefused(
                f"{self.processor.name}: bucket {', '.join(map(str, changed))} has been read further since this reset was planned. Nothing was "
                "changed. Stop the workers, and repeat the command."
            )

    def rewound(self) -> Collection[int]:
        """Return the buckets that write some outputs again."""
        return {shard.bucket for shard in self._plan.shards if shard.is_rewound}

    def move_positions(self) -> None:
        """Set the group's positions to the target, with the id of the last checkpoint if the state still reflects it. Drop the letters of repeated messages."""
        drop_repeated(self.bus, self.processor.name, self._plan.repeats, str(self.operation.kind))
        register_positions(self.bus, self.processor, self.buckets)
        self.bus.catalog.set_committed(
            self.processor.name,
            [
                Position(Bucket(name, shard.bucket), offset, self._checkpoint_id(shard))
                for shard in self._plan.shards
                for name, offset in shard.target.items()
            ],
        )

    def _checkpoint_id(self, shard: ShardPlan) -> int:
        is_kept = shard.method in {ResetMethod.KEPT, ResetMethod.SKIPPED} and not shard.is_rewound
        return self._committed.of(shard.bucket).committed.checkpoint_id if is_kept else 0


class _RemoteReset(_ResetTask):
    """A reset of a processor with remote state, which stays in its store."""

    def change_shard(self, step: MaintenanceStep, bucket: int) -> None:
        """Move the position beside the shard's state."""
        if step is not MaintenanceStep.INSTALL_STATE:
            return
        shard = self._shards[bucket]
        with _remote_state(self.processor, self._environment, bucket) as state:
            if Step.SAVE_WITH_OUTBOX in steps_of(self.processor):
                # Its outputs are sent. The new positions would no longer show that.
                state.clear_outbox()
            if shard.method is ResetMethod.SKIPPED:
                state.save_position(StatePosition(shard.target, topic_ids=self._topic_ids))


class _LocalReset(_ResetTask):
    """A reset of a processor with local state."""

    def __init__(
        self, plan: ResetPlan, environment: MaintenanceEnvironment, replaces: MaintenanceOperation | None
    ) -> None:
        self._local = LocalStates(plan.processor, environment.states, environment.backups)
        super().__init__(plan, environment, replaces)

    def _lineage(self, lineage: StateLineage) -> StateLineage:
        replaced = [shard for shard in self._plan.shards if self._installs(shard)]
        generations = dict.fromkeys((shard.bucket for shard in replaced), lineage.newest_generation + 1)
        empty = {shard.bucket: shard.target for shard in replaced if shard.method is ResetMethod.EMPTY}
        return lineage.installed(generations, empty)

    def _installs(self, shard: ShardPlan) -> bool:
        """Return whether states of this shard on other machines become invalid."""
        is_changed = shard.method in REPLACING or shard.method is ResetMethod.SKIPPED
        return is_changed or shard.is_rewound or self._is_repeated

    def check_states(self) -> None:
        """Raise StateInUse if a process has one of the states open."""
        for bucket in self.buckets:
            self._local.require_closed(bucket)

    def change_shard(self, step: MaintenanceStep, bucket: int) -> None:
        """Install the shard's state, store it, or rewrite its changelog."""
        shard = self._shards[bucket]
        if not self._installs(shard):
            return
        match step:
            case MaintenanceStep.INSTALL_STATE:
                self._install(shard)
            case MaintenanceStep.STORE_BACKUP:
                store_backup(self._local, bucket)
            case MaintenanceStep.REWRITE_CHANGELOG:
                rewrite_changelog(self.bus, self._local, bucket)

    def _install(self, shard: ShardPlan) -> None:
        generation = self.operation.lineage.generation(shard.bucket)
        installed = StatePosition(generation=generation)
        at_target = StatePosition(shard.target, generation=generation, topic_ids=self._topic_ids)
        if shard.method is ResetMethod.BACKUP and shard.backup is not None:
            install_backup(self._local, shard.bucket, shard.backup, installed)
        elif shard.method is ResetMethod.EMPTY:
            install_empty(self._local, shard.bucket, at_target)
        elif shard.method is ResetMethod.REBUILT:
            install_empty(self._local, shard.bucket, installed)
        elif current(self._local.folder(shard.bucket)) is not None:
            position = at_target if shard.method is ResetMethod.SKIPPED else installed
            move_position(self._local, shard.bucket, position, self._committed.of(shard.bucket).committed)
