"""A reset: a processor's positions, and its states with them, are moved to another place in its input.

look --> a plan for each shard --> noted on the bus as begun --> states in place --> positions set --> noted as done

No worker starts between the two notes. A reset that died on the way is given again, and takes every step anew: each may be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import NamedTuple

import msgspec

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.processor import Processor
from ...processors.declare.stores import RemoteStore
from ...processors.shard.checkpoints import Step, is_remote, steps_of
from ...processors.shard.position import Offsets, StatePosition
from ...processors.shard.resume_point import is_committed
from ...state.local.folder import current
from ...state.protocols import ShardIdentity
from ...state.remote import remote_states
from ...state.remote.shard_state import RemoteShardState
from ...transport.messages import Bucket, Position
from ...transport.tables.maintenance_log import MaintenanceOperation, newest_maintenance, record_maintenance
from ...transport.tables.maintenance_start import expect_idle, record_begin
from ...transport.tables.registrations import register_positions, topic_ids_of
from ...transport.tables.upstream_watermarks import delete_watermarks
from ..worker.assembly import StoreMissing
from .environment import Around
from .errors import MaintenanceRefused
from .processor_positions import LocalStates, processor_positions
from .reset_plan import REPLACING, Candidate, Policy, ResetMethod, ShardFacts, ShardPlan, planned
from .reset_target import Edge, ResetTarget, offsets_at
from .rewrite_changelog import rewrite_changelog
from .state_installation import install_backup, install_empty, move_position, store_backup


class ResetStep(Enum):
    """One durable step of a reset; all of them may be repeated."""

    NOTE_BEGIN = "note that it begins"
    PLACE_STATE = "put a state in place"
    STORE_BACKUP = "store it as the newest backup"
    REWRITE_CHANGELOG = "tell the changelog"
    TAKE_BACK_PROMISES = "take promises back"
    SET_POSITIONS = "set positions"
    NOTE_END = "note that it is done"


class ResetGap(NamedTuple):
    """A place where a reset can die: before a step, of a bucket where it is about one."""

    before: ResetStep
    bucket: int | None = None


@dataclass(frozen=True)
class Reset:
    """What a reset is to do.

    Args:
        processor: whose.
        what: what it is, in words.
        policy: which states the shards go on with.
        shards: what it does to each.
    """

    processor: type[Processor]
    what: str
    policy: Policy
    shards: Sequence[ShardPlan]

    @property
    def again(self) -> int:
        """How many events are processed again, with outputs."""
        return sum(shard.again for shard in self.shards)

    @property
    def passed(self) -> int:
        """How many events are passed over."""
        return sum(shard.passed for shard in self.shards)

    def outputs(self) -> list[str]:
        """Return the categories to which what is processed again is written."""
        return [category.name for category in self.processor.outputs()]


def plan_reset(processor: type[Processor], around: Around, target: ResetTarget, policy: Policy | None) -> Reset:
    """Look what a reset would do; nothing is changed.

    Args:
        processor: whose.
        around: where it is.
        target: where it is to go.
        policy: which states it is to go on with; None for what the events before the target make.

    Raises:
        MaintenanceRefused: it cannot be done, or not so.
        StateInUse: a state is open in a worker.
        MissingCategory: an input is not on the bus.
    """
    if policy is not None and processor.state_shape() is None:
        raise MaintenanceRefused(
            f"{processor.__name__} keeps no state, so there is nothing to choose with --state. Leave it out."
        )
    policy = policy or Policy.AUTO
    wanted = offsets_at(target, around.bus.catalog, [category.name for category in processor.inputs()])
    earlier = newest_maintenance(around.bus, processor.name)
    facts, known = processor_positions(processor, around.bus, earlier), _known(processor, around, earlier)
    shards = [
        planned(processor, policy, known(facts.of(number)), _inputs_of(number, wanted)) for number in _numbers(wanted)
    ]
    reset = Reset(processor, f"reset to {_shown(target)}", policy, shards)
    _expect_continues(reset, earlier)
    return reset


def _numbers(wanted: Iterable[Bucket]) -> list[int]:
    return sorted({bucket.number for bucket in wanted})


def _inputs_of(number: int, wanted: dict[Bucket, int]) -> Offsets:
    return {bucket.category: offset for bucket, offset in wanted.items() if bucket.number == number}


def _shown(target: ResetTarget) -> str:
    if isinstance(target, Edge):
        return target.value
    return f"{target:%Y-%m-%d %H:%M:%S}" if isinstance(target, datetime) else "offsets"


def _known(
    processor: type[Processor], around: Around, earlier: MaintenanceOperation | None
) -> Callable[[ShardFacts], ShardFacts]:
    """Return what adds the states of a shard to where it stands."""
    if processor.state_shape() is None:
        return lambda facts: facts
    if is_remote(processor):
        return lambda facts: _with_remote(processor, around, facts)
    local = LocalStates(processor, around.states, around.backups)

    def with_local(facts: ShardFacts) -> ShardFacts:
        first_fitting = 0 if earlier is None else earlier.first_fitting(facts.bucket)
        return replace(facts, states=list(local.known(facts.bucket, facts.committed, first_fitting)))

    return with_local


def _with_remote(processor: type[Processor], around: Around, facts: ShardFacts) -> ShardFacts:
    """Ask the store. Who asks becomes the owner of the shard, so no worker may run."""
    expect_idle(processor, around.bus)
    with _remote(processor, around, facts.bucket) as state:
        if not _is_sent(processor, state, facts):
            raise MaintenanceRefused(
                f"{processor.__name__}, bucket {facts.bucket}: its last checkpoint was saved with outputs that are not sent yet. Nothing was "
                "changed. Start a worker, which sends them (`penstock run … --until-end`), and give this command again."
            )
        position = state.position()
    return replace(facts, states=[Candidate(position)])


def _is_sent(processor: type[Processor], state: RemoteShardState, facts: ShardFacts) -> bool:
    outbox = state.outbox() if Step.SAVE_WITH_OUTBOX in steps_of(processor) else None
    what = f"{processor.name}, bucket {facts.bucket}: a checkpoint"
    return outbox is None or is_committed(outbox.before, outbox.after, facts.committed, what)


@contextmanager
def _remote(processor: type[Processor], around: Around, bucket: int) -> Iterator[RemoteShardState]:
    """Give the state of a shard in its store."""
    if around.store is None:
        raise StoreMissing(
            f"{processor.__name__} keeps its state in a remote store, and none is named. Nothing was changed. Name it with --store "
            "postgresql://… or redis://…, or in the environment variable PENSTOCK_STORE."
        )
    if not (issubclass(processor, Aggregator) and isinstance(processor.store, RemoteStore)):
        raise TypeError(f"{processor.__name__} keeps no remote state")
    identity = ShardIdentity(processor.name, bucket, processor.state_shape())
    with closing(remote_states(around.store, processor, writing=processor.store.write_mode)) as states:
        yield states.open(identity)


def _expect_continues(reset: Reset, earlier: MaintenanceOperation | None) -> None:
    """Refuse what would leave a part of an earlier move that is half done as it is."""
    if earlier is None or earlier.done:
        return
    left = set(earlier.numbers) - {shard.bucket for shard in reset.shards}
    others = earlier.empties and reset.policy is not Policy.EMPTY, earlier.passes and reset.policy is Policy.AUTO
    if left or earlier.buckets or earlier.migrates or any(others):
        raise MaintenanceRefused(
            f"{reset.processor.name}: a {earlier.what} is half done; some of its buckets have moved and some have not. Nothing was changed. "
            "Give the same command again, which finishes it; then this one."
        )


def perform(reset: Reset, around: Around, at_gap: Callable[[ResetGap], None] = lambda _: None) -> None:
    """Do what was planned; durable on return, and may be repeated.

    Args:
        reset: the plan.
        around: where it is done.
        at_gap: called in each gap between two steps.

    Raises:
        GroupInUse: a worker runs. Nothing was changed, unless it was started meanwhile: then it refuses to work until this is repeated.
    """
    move = _Moving(reset, around)
    at_gap(ResetGap(ResetStep.NOTE_BEGIN))
    move.begin()
    for step in (ResetStep.PLACE_STATE, ResetStep.STORE_BACKUP, ResetStep.REWRITE_CHANGELOG):
        for shard in reset.shards:
            at_gap(ResetGap(step, shard.bucket))
            move.move_state(step, shard)
    at_gap(ResetGap(ResetStep.TAKE_BACK_PROMISES))
    move.take_back_promises()
    at_gap(ResetGap(ResetStep.SET_POSITIONS))
    move.set_positions()
    at_gap(ResetGap(ResetStep.NOTE_END))
    move.end()


class _Moving:
    """A reset under way."""

    def __init__(self, reset: Reset, around: Around) -> None:
        self._reset = reset
        self._processor = reset.processor
        self._around = around
        self._bus = around.bus
        self._facts = processor_positions(reset.processor, around.bus)
        self._local = LocalStates(reset.processor, around.states, around.backups)
        self._is_local = reset.processor.state_shape() is not None and not is_remote(reset.processor)
        self._topic_ids = topic_ids_of(around.bus, reset.processor)
        self._earlier = newest_maintenance(around.bus, reset.processor.name)
        self._move = self._noted()

    def _noted(self) -> MaintenanceOperation:
        earlier, reset = self._earlier, self._reset
        before: dict[int, int] = {} if earlier is None else dict(earlier.numbers)
        begins: dict[int, Offsets] = {} if earlier is None else dict(earlier.begins)
        number = 1 if earlier is None else earlier.next_number
        for shard in reset.shards:
            if self._is_local and self._stamps(shard):
                before[shard.bucket] = number
                begins.pop(shard.bucket, None)
                if shard.how is ResetMethod.EMPTY:
                    begins[shard.bucket] = shard.target
        return MaintenanceOperation(
            self._processor.name,
            reset.what,
            time.time_ns() // 1_000_000,
            done=False,
            numbers=before,
            begins=begins,
            rebuilds=earlier is None or earlier.rebuilds,
            borders={} if earlier is None else earlier.borders,
            empties=reset.policy is Policy.EMPTY,
            retyped=None if earlier is None else earlier.retyped,
            passes=reset.policy is Policy.KEEP,
        )

    def _stamps(self, shard: ShardPlan) -> bool:
        """Tell whether states of this shard that are elsewhere do not count any more."""
        is_half_done = self._earlier is not None and not self._earlier.done
        return shard.how in REPLACING or shard.how is ResetMethod.PASSED or shard.goes_back or is_half_done

    def begin(self) -> None:
        """Note that it begins, when no worker runs."""
        expect_idle(self._processor, self._bus)
        if self._is_local:
            for shard in self._reset.shards:
                self._local.expect_closed(shard.bucket)
        record_begin(self._processor, self._bus, self._move, self._earlier, self._expect_as_planned)

    def _expect_as_planned(self) -> None:
        facts = processor_positions(self._processor, self._bus)
        moved = [shard.bucket for shard in self._reset.shards if facts.of(shard.bucket).before != shard.before]
        if moved:
            raise MaintenanceRefused(
                f"{self._processor.name}: bucket {', '.join(map(str, moved))} has gone on since this reset was planned. Nothing was changed. "
                "Stop the workers, and give the command again."
            )

    def move_state(self, step: ResetStep, shard: ShardPlan) -> None:
        """Take a step that is about the state of one shard."""
        if is_remote(self._processor):
            if step is ResetStep.PLACE_STATE:
                self._move_remote(shard)
        elif self._is_local and self._stamps(shard):
            match step:
                case ResetStep.PLACE_STATE:
                    self._place(shard)
                case ResetStep.STORE_BACKUP:
                    self._store(shard)
                case ResetStep.REWRITE_CHANGELOG:
                    rewrite_changelog(self._bus, self._local, shard.bucket)

    def _place(self, shard: ShardPlan) -> None:
        number = self._move.number_of(shard.bucket)
        moved = StatePosition(maintenance_number=number)
        begun = StatePosition(shard.target, maintenance_number=number, topic_ids=self._topic_ids)
        if shard.how is ResetMethod.BACKUP and shard.backup is not None:
            install_backup(self._local, shard.bucket, shard.backup, number)
        elif shard.how is ResetMethod.EMPTY:
            install_empty(self._local, shard.bucket, begun)
        elif shard.how is ResetMethod.REBUILT:
            install_empty(self._local, shard.bucket, moved)
        elif current(self._local.folder(shard.bucket)) is not None:
            position = begun if shard.how is ResetMethod.PASSED else moved
            committed = self._facts.of(shard.bucket).committed
            move_position(self._local, shard.bucket, position, committed)

    def _store(self, shard: ShardPlan) -> None:
        if current(self._local.folder(shard.bucket)) is not None:
            store_backup(self._local, shard.bucket)

    def _move_remote(self, shard: ShardPlan) -> None:
        with _remote(self._processor, self._around, shard.bucket) as state:
            if Step.SAVE_WITH_OUTBOX in steps_of(self._processor):
                # It was sent. By the group's positions that could not be told any more when they are others.
                state.clear_outbox()
            if shard.how is ResetMethod.PASSED:
                state.save_position(StatePosition(shard.target, topic_ids=self._topic_ids))

    def take_back_promises(self) -> None:
        """Let consumers wait for what is written again, and not take it for complete."""
        delete_watermarks(
            self._bus, self._processor.name, {shard.bucket for shard in self._reset.shards if shard.goes_back}
        )

    def set_positions(self) -> None:
        """Let the group go on at the target; after the same checkpoint as before, where the state is still of that."""
        register_positions(self._bus, self._processor, [shard.bucket for shard in self._reset.shards])
        self._bus.catalog.set_committed(
            self._processor.name,
            [
                Position(Bucket(name, shard.bucket), offset, self._checkpoint_id(shard))
                for shard in self._reset.shards
                for name, offset in shard.target.items()
            ],
        )

    def _checkpoint_id(self, shard: ShardPlan) -> int:
        is_kept = shard.how in {ResetMethod.KEPT, ResetMethod.PASSED} and not shard.goes_back
        return self._facts.of(shard.bucket).committed.checkpoint_id if is_kept else 0

    def end(self) -> None:
        """Note that it is done."""
        record_maintenance(self._bus, msgspec.structs.replace(self._move, done=True))
