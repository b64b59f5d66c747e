"""What a reset does to each shard, decided from values alone.

where it stands, where it is to go, the states that there are --> the state that it goes on with, and what of its input is processed again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ...processors.declare.processor import Processor
from ...processors.declare.semantics import Semantics
from ...processors.shard.checkpoints import Step, is_remote, steps_of
from ...processors.shard.position import Offsets, StatePosition
from ...state.backups.manifest import BackupId
from .errors import MaintenanceRefused


class Policy(Enum):
    """Which state a reset shard goes on with."""

    AUTO = "auto"
    """What the events before the target make: as it is, from a backup, or built again from the bus."""
    EMPTY = "empty"
    """None: only events from the target on are in it."""
    KEEP = "keep"
    """As it is; events that are passed over are not in it."""


class ResetMethod(Enum):
    """What becomes of a shard's state."""

    NONE = "no state"
    KEPT = "kept"
    BACKUP = "backup"
    REBUILT = "built again from the first event"
    EMPTY = "empty"
    PASSED = "kept, without the events passed over"


REPLACING = frozenset({ResetMethod.BACKUP, ResetMethod.REBUILT, ResetMethod.EMPTY})


@dataclass(frozen=True)
class Candidate:
    """A state that there is.

    Args:
        position: what it reflects.
        backup: which backup it is; None for the state on this machine, or in the store.
    """

    position: StatePosition
    backup: BackupId | None = None


@dataclass(frozen=True)
class ShardFacts:
    """Where a shard stands.

    Args:
        bucket: its number.
        starts: the first offset that the bus keeps of each input.
        committed: the group's positions; empty where it has none.
        states: those that fit the processor as it is declared, the one on this machine or in the store first.
        borders: the first offset of each input from which on keys lie in buckets as they do now; from 0 where it is missing.
        rebuilds: whether the events of the bucket alone make its state.
    """

    bucket: int
    starts: Offsets
    committed: StatePosition
    states: Sequence[Candidate] = ()
    borders: Offsets = field(default_factory=dict)
    rebuilds: bool = True

    @property
    def before(self) -> Offsets:
        """The next event of each input whose outputs were not written yet."""
        return {name: self.committed.offsets.get(name, start) for name, start in self.starts.items()}

    @property
    def current(self) -> Candidate | None:
        """The state on this machine, or in the store."""
        return self.states[0] if self.states and self.states[0].backup is None else None


@dataclass(frozen=True)
class ShardPlan:
    """What a reset does to a shard.

    Args:
        bucket: its number.
        before: where it stands.
        target: where it goes on, by input.
        how: what becomes of its state.
        reflects: what the state is made of then, by input; empty for nothing.
        backup: the backup that it comes from.
        again: how many events are processed again, with outputs.
        passed: how many events are passed over: nothing is written for them.
        caught_up: how many events are read for the state alone.
        missing: how many events before the target are not in the state, since the processor asks for state at most once.
    """

    bucket: int
    before: Offsets
    target: Offsets
    how: ResetMethod
    reflects: Offsets
    backup: BackupId | None = None
    again: int = 0
    passed: int = 0
    caught_up: int = 0
    missing: int = 0

    @property
    def goes_back(self) -> bool:
        """Whether something is written again."""
        return self.again > 0


def planned(processor: type[Processor], policy: Policy, facts: ShardFacts, target: Mapping[str, int]) -> ShardPlan:
    """Return what a reset does to a shard.

    Args:
        processor: whose.
        policy: which state it is to go on with.
        facts: where it stands.
        target: where it is to go, by input; inputs that are missing stay where they are.

    Raises:
        MaintenanceRefused: there is no such state, or it cannot be had.
    """
    wanted = {**facts.before, **target}
    if processor.state_shape() is None:
        return counted(processor, facts, wanted, ResetMethod.NONE, {})
    _expect_keyed_alike(processor, facts, wanted)
    match policy:
        case Policy.EMPTY:
            return _emptied(processor, facts, wanted)
        case Policy.KEEP:
            return _passed(processor, facts, wanted)
    if is_remote(processor):
        return _remote(processor, facts, wanted)
    if Step.LOG_CHANGES in steps_of(processor):
        return _logged(processor, facts, wanted)
    return _fitting(processor, facts, wanted)


def _expect_keyed_alike(processor: type[Processor], facts: ShardFacts, target: Offsets) -> None:
    if _is_before(target, facts.borders):
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: {_shown(target)} lies before the number of buckets was changed (at "
            f"{_shown(facts.borders)}), when keys lay in other buckets: their states would be split. Nothing was changed. Choose a later "
            "target, or fill another processor from the archive (`penstock backfill`, `penstock bootstrap`)."
        )


def _fitting(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    # State at most once goes on at the target itself: nothing before it is read.
    begins = {} if processor.state_semantics is Semantics.AT_MOST_ONCE else facts.starts
    found = _newest_before(facts.states, target, begins)
    if found is not None:
        how = ResetMethod.KEPT if found.backup is None else ResetMethod.BACKUP
        return counted(processor, facts, target, how, found.position.offsets, backup=found.backup)
    if facts.rebuilds and target == facts.starts:
        return counted(processor, facts, target, ResetMethod.EMPTY, target)
    if not facts.rebuilds or any(facts.starts.values()) or processor.state_semantics is Semantics.AT_MOST_ONCE:
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: no state is known that is not after {_shown(target)}, neither here nor among "
            f"the backups, and it cannot be built again from the bus, {_why_not(processor, facts)}. Nothing was changed. Choose: name the "
            "place of backups (`--backup`; `penstock state list` shows what there is); `--to earliest`, which begins with the first event "
            "that is kept; `--state empty`, which begins at the target with nothing; or `penstock bootstrap` from the archive."
        )
    return counted(processor, facts, target, ResetMethod.REBUILT, {})


def _why_not(processor: type[Processor], facts: ShardFacts) -> str:
    if processor.state_semantics is Semantics.AT_MOST_ONCE:
        return "since it asks for state at most once, which is not read again"
    if not facts.rebuilds:
        return "where its keys lay in other buckets before their number was changed"
    return f"which keeps it only from {_shown(facts.starts)} on"


def _logged(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    """Plan for state that is brought up from a changelog: reading again would give another, so it goes back to where it was exactly."""
    if not _is_before(target, facts.before):
        position = facts.current.position.offsets if facts.current else facts.before
        return counted(processor, facts, target, ResetMethod.KEPT, {**facts.before, **position})
    found = _newest_before(facts.states, target, facts.starts)
    if found is not None:
        there = {name: found.position.offsets.get(name, start) for name, start in facts.starts.items()}
        how = ResetMethod.KEPT if found.backup is None else ResetMethod.BACKUP
        return counted(processor, facts, there, how, found.position.offsets, backup=found.backup)
    if facts.rebuilds and target == facts.starts:
        return counted(processor, facts, target, ResetMethod.EMPTY, target)
    raise MaintenanceRefused(
        f"{processor.__name__}, bucket {facts.bucket}: no backup is known that is not after {_shown(target)}, and reading its events again "
        "would not give the state that it had (several inputs, the clock, a promised watermark, or state at most once with timers or windows). Nothing was changed. Choose: name the place of backups "
        "(`--backup`; `penstock state list` shows what there is); `--to earliest`; or `--state empty`, which begins at the target with nothing."
    )


def _remote(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    position = facts.current.position.offsets if facts.current else {}
    if _is_before(target, {name: max(position.get(name, 0), before) for name, before in facts.before.items()}):
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: its state is in a store that others read, where events are counted once and cannot "
            f"be taken out again: it cannot go back from {_shown(facts.before)} to {_shown(target)}. Nothing was changed. Choose: fill a store "
            "anew from the archive (`penstock bootstrap --store … --overwrite`); replace days of it (`penstock backfill --output store`); "
            "or give the processor another name, under which it counts from the first event."
        )
    return counted(processor, facts, target, ResetMethod.KEPT, {**dict.fromkeys(facts.starts, 0), **position})


def _emptied(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    if is_remote(processor):
        raise MaintenanceRefused(
            f"{processor.__name__} keeps its state in a store that others read, which a reset does not empty. Nothing was changed. Give the "
            "processor another name, under which it counts from the first event; or fill the store anew from the archive "
            "(`penstock bootstrap --store … --overwrite`)."
        )
    return counted(processor, facts, target, ResetMethod.EMPTY, target)


def _passed(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    position = facts.current.position.offsets if facts.current else None
    if position is None or _is_before({name: position.get(name, 0) for name in target}, facts.before):
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: `--state keep` keeps the state as it is, and there is none here that is as far as "
            f"its group ({_shown(facts.before)}): it lies on another machine. Nothing was changed. Do this where it lies (`--dir`)."
        )
    if _is_before(target, position):
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: with `--state keep`, going back from {_shown(position)} to {_shown(target)} would "
            "count events twice. Nothing was changed. Leave that option out, and the state goes back, too; or `--state empty`."
        )
    return counted(processor, facts, target, ResetMethod.PASSED, position)


def counted(
    processor: type[Processor],
    facts: ShardFacts,
    target: Offsets,
    how: ResetMethod,
    reflects: Offsets,
    *,
    backup: BackupId | None = None,
) -> ShardPlan:
    """Return what is done to a shard, with how many events that is about.

    Args:
        processor: whose.
        facts: where it stands.
        target: where it goes on, by input.
        how: what becomes of its state.
        reflects: what that reflects.
        backup: the backup that it comes from.
    """
    before, known = facts.before, {name: reflects.get(name, 0) for name in target}
    again, passed = _between(target, before), _between(before, target)
    read = _between(known, target) if how in {ResetMethod.KEPT, ResetMethod.BACKUP, ResetMethod.REBUILT} else 0
    missing = 0
    if processor.state_semantics is Semantics.AT_MOST_ONCE and how is not ResetMethod.NONE:
        missing, read = read, 0
    if read and _repeats(processor):
        again, read = _between(known, before), 0
    return ShardPlan(
        facts.bucket, before, dict(target), how, known if reflects else {}, backup, again, passed, read, missing
    )


def _repeats(processor: type[Processor]) -> bool:
    """Whether outputs are written again while a state catches up; see the worker."""
    return len(processor.inputs()) > 1 and processor.output_semantics is Semantics.AT_LEAST_ONCE


def _newest_before(states: Iterable[Candidate], target: Offsets, starts: Offsets) -> Candidate | None:
    """Return the state that is the furthest of those not after a target, and that the bus can take further; of equal ones the first.

    One of before a reset is taken only where there is none since: that may have begun with nothing.
    """
    fitting = [
        state
        for state in states
        if not _is_before(target, state.position.offsets)
        and not _is_before({name: state.position.offsets.get(name, 0) for name in target}, starts)
    ]
    return max(
        fitting,
        key=lambda state: (
            state.position.maintenance_number,
            sum(state.position.offsets.get(name, 0) for name in target),
        ),
        default=None,
    )


def _is_before(one: Offsets, other: Mapping[str, int]) -> bool:
    """Tell whether a position lies before another in any input."""
    return any(offset < other.get(name, 0) for name, offset in one.items())


def _between(one: Offsets, other: Offsets) -> int:
    return sum(max(other[name] - offset, 0) for name, offset in one.items())


def _shown(position: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {offset:,}" for name, offset in sorted(position.items()))
