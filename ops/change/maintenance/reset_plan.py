"""Decisions of a reset for each shard, made from values alone.

positions, target, stored states --> the state that the shard continues from, and the events that it processes again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ....processors.declare import Processor, Semantics, plan_of
from ....processors.shard import Offsets, StatePosition, Step, is_remote, steps_of
from ....state.backups import BackupId
from ....transport.tables import MaintenanceRefused


class StatePolicy(Enum):
    """The state that a shard continues from."""

    AUTO = "auto"
    """The state at the target: the current one, a backup, or one rebuilt from the bus."""
    EMPTY = "empty"
    """An empty state: it contains only events from the target on."""
    KEEP = "keep"
    """The current state; it does not contain the skipped events."""


class ResetMethod(Enum):
    """How a shard gets its state."""

    NONE = "no state"
    KEPT = "kept"
    BACKUP = "backup"
    REBUILT = "rebuilt from the first event"
    EMPTY = "empty"
    SKIPPED = "kept, without the skipped events"


REPLACING = frozenset({ResetMethod.BACKUP, ResetMethod.REBUILT, ResetMethod.EMPTY})


@dataclass(frozen=True)
class Candidate:
    """A state that a shard can continue from.

    Args:
        position: the events that it contains.
        backup: the backup; None for the local state, or the state in the store.
    """

    position: StatePosition
    backup: BackupId | None = None


@dataclass(frozen=True)
class ShardFacts:
    """The positions and states of a shard.

    Args:
        bucket: its number.
        starts: the first retained offset of each input.
        committed: the group's positions; empty without any.
        states: the usable states; the local one, or the one in the store, comes first.
        resize_offsets: by input, the first offset that was written with the current number of buckets; 0 if missing.
        is_rebuildable: whether the events of the bucket are enough to rebuild its state.
    """

    bucket: int
    starts: Offsets
    committed: StatePosition
    states: Sequence[Candidate] = ()
    resize_offsets: Offsets = field(default_factory=dict)
    is_rebuildable: bool = True

    @property
    def before(self) -> Offsets:
        """The next unprocessed offset of each input."""
        return {name: self.committed.offsets.get(name, start) for name, start in self.starts.items()}

    @property
    def current(self) -> Candidate | None:
        """The local state, or the one in the store."""
        return self.states[0] if self.states and self.states[0].backup is None else None


@dataclass(frozen=True)
class ShardPlan:
    """The change of one shard.

    Args:
        bucket: its number.
        before: its positions so far.
        target: its new positions, by input.
        method: how it gets its state.
        reflects: the position of that state, by input; empty for an empty state.
        backup: the backup that it comes from.
        repeated: the number of events that are processed again, with outputs.
        skipped: the number of events without outputs.
        caught_up: the number of events that are read for the state alone.
        missing: the number of events before the target that at-most-once state does not contain.
    """

    bucket: int
    before: Offsets
    target: Offsets
    method: ResetMethod
    reflects: Offsets
    backup: BackupId | None = None
    repeated: int = 0
    skipped: int = 0
    caught_up: int = 0
    missing: int = 0

    @property
    def is_rewound(self) -> bool:
        """Whether some outputs are written again."""
        return self.repeated > 0


def plan_shard(
    processor: type[Processor], policy: StatePolicy, facts: ShardFacts, target: Mapping[str, int]
) -> ShardPlan:
    """Return the change of one shard.

    Args:
        processor: whose shard.
        policy: the state that it continues from.
        facts: its positions and states.
        target: its new positions, by input; a missing input stays where it is.

    Raises:
        MaintenanceRefused: there is no such state.
    """
    wanted = {**facts.before, **target}
    if plan_of(processor).state_shape is None:
        return count_events(processor, facts, wanted, ResetMethod.NONE, {})
    _require_same_buckets(processor, facts, wanted)
    match policy:
        case StatePolicy.EMPTY:
            return _plan_empty(processor, facts, wanted)
        case StatePolicy.KEEP:
            return _plan_skip(processor, facts, wanted)
    if is_remote(processor):
        return _plan_remote(processor, facts, wanted)
    if Step.LOG_CHANGES in steps_of(processor):
        return _plan_logged(processor, facts, wanted)
    return _plan_local(processor, facts, wanted)


def plan_state_of_cut(processor: type[Processor], facts: ShardFacts, cut: Candidate) -> ShardPlan:
    """Return the change of one shard whose positions stay, and whose state returns to a cut and reads the events since.

    Args:
        processor: whose shard.
        facts: its positions.
        cut: the state of the cut.

    Raises:
        MaintenanceRefused: the events since are not on the bus, or do not lead to the state that belongs to the outputs.
    """
    _require_same_buckets(processor, facts, cut.position.offsets)
    if Step.LOG_CHANGES in steps_of(processor):
        raise MaintenanceRefused(
            f"{processor.__name__} cannot go back alone: reading the events since the snapshot again could produce another state than its outputs "
            "came from, because it depends on the order of several inputs, the clock, an upstream watermark, or at-most-once state with timers or "
            "windows. Nothing was changed. Restore the whole app; or, if only the state on this machine is wrong, delete its folder in `--dir`: the "
            "worker restores the state from the changelog."
        )
    if _is_before(facts.before, cut.position.offsets):
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: the snapshot is at {_describe(cut.position.offsets)}, and the processor has gone back to "
            f"{_describe(facts.before)} since. With that state, it would count the events between twice. Nothing was changed. Use an earlier snapshot, or "
            "let the processor read up to the snapshot's offsets first."
        )
    if _newest_before([cut], facts.before, facts.starts) is None:
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: its state of the snapshot needs the events from {_describe(cut.position.offsets)} to "
            f"{_describe(facts.before)}, and Kafka keeps them only from {_describe(facts.starts)}. Nothing was changed. Use a later snapshot, or "
            "build the state from the archive (`penstock bootstrap`)."
        )
    position = cut.position.offsets
    return count_events(processor, facts, facts.before, ResetMethod.BACKUP, position, backup=cut.backup)


def _require_same_buckets(processor: type[Processor], facts: ShardFacts, target: Offsets) -> None:
    if _is_before(target, facts.resize_offsets):
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: {_describe(target)} is before the last change of the number of buckets "
            f"({_describe(facts.resize_offsets)}). Keys were in other buckets then, and their states would be split. Nothing was changed. "
            "Choose a later target, or process the archive with `penstock backfill` or `penstock bootstrap`."
        )


def _plan_local(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    # At-most-once state continues at the target itself: no earlier event is read.
    starts = {} if processor.state_semantics is Semantics.AT_MOST_ONCE else facts.starts
    newest = _newest_before(facts.states, target, starts)
    if newest is not None:
        method = ResetMethod.KEPT if newest.backup is None else ResetMethod.BACKUP
        return count_events(processor, facts, target, method, newest.position.offsets, backup=newest.backup)
    if facts.is_rebuildable and target == facts.starts:
        return count_events(processor, facts, target, ResetMethod.EMPTY, target)
    reason = _why_not_rebuildable(processor, facts)
    if reason is not None:
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: there is no local state or backup from before {_describe(target)}, and {reason}. "
            "Nothing was changed. Name the backup store (`--backup`; `penstock state show` shows its backups), start from the first retained "
            "event (`--to earliest`) or with an empty state (`--state empty`), or use the archive (`penstock bootstrap`)."
        )
    return count_events(processor, facts, target, ResetMethod.REBUILT, {})


def _why_not_rebuildable(processor: type[Processor], facts: ShardFacts) -> str | None:
    if processor.state_semantics is Semantics.AT_MOST_ONCE:
        return "at-most-once state is not rebuilt from the bus"
    if not facts.is_rebuildable:
        return "its events were written when there were fewer buckets, so they do not rebuild it"
    if any(facts.starts.values()):
        return f"Kafka retains its events only from {_describe(facts.starts)}"
    return None


def _plan_logged(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    """Plan for state with a changelog: reading the events again could produce another state, so it returns to an exact backup."""
    if not _is_before(target, facts.before):
        position = facts.current.position.offsets if facts.current else facts.before
        return count_events(processor, facts, target, ResetMethod.KEPT, {**facts.before, **position})
    newest = _newest_before(facts.states, target, facts.starts)
    if newest is not None:
        exact = {name: newest.position.offsets.get(name, start) for name, start in facts.starts.items()}
        method = ResetMethod.KEPT if newest.backup is None else ResetMethod.BACKUP
        return count_events(processor, facts, exact, method, newest.position.offsets, backup=newest.backup)
    if facts.is_rebuildable and target == facts.starts:
        return count_events(processor, facts, target, ResetMethod.EMPTY, target)
    raise MaintenanceRefused(
        f"{processor.__name__}, bucket {facts.bucket}: there is no backup from before {_describe(target)}. Reading the events again could "
        "produce another state, because it depends on the order of several inputs, the clock, an upstream watermark, or at-most-once state with "
        "timers or windows. Nothing was changed. Name the backup store (`--backup`; `penstock state show` shows "
        "its backups), or choose `--to earliest` or `--state empty`."
    )


def _plan_remote(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    position = facts.current.position.offsets if facts.current else {}
    if _is_before(target, {name: max(position.get(name, 0), before) for name, before in facts.before.items()}):
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: remote state cannot go back from {_describe(facts.before)} to "
            f"{_describe(target)}, because counted events cannot be removed from the store. Nothing was changed. Rebuild the store from the "
            "archive (`penstock bootstrap --store … --overwrite`), replace some days (`penstock backfill --output store`), or rename the "
            "processor, which then counts from the first event."
        )
    return count_events(processor, facts, target, ResetMethod.KEPT, {**dict.fromkeys(facts.starts, 0), **position})


def _plan_empty(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    if is_remote(processor):
        raise MaintenanceRefused(
            f"{processor.__name__} keeps its state in a remote store, which a reset does not empty. Nothing was changed. Rename the "
            "processor, which then counts from the first event, or rebuild the store from the archive "
            "(`penstock bootstrap --store … --overwrite`)."
        )
    return count_events(processor, facts, target, ResetMethod.EMPTY, target)


def _plan_skip(processor: type[Processor], facts: ShardFacts, target: Offsets) -> ShardPlan:
    position = facts.current.position.offsets if facts.current else None
    if position is None or _is_before({name: position.get(name, 0) for name in target}, facts.before):
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: `--state keep` needs the state at {_describe(facts.before)}, and it is not on this "
            "machine. Nothing was changed. Run the command on the machine with that state, and name its folder with `--dir`."
        )
    if _is_before(target, position):
        raise MaintenanceRefused(
            f"{processor.__name__}, bucket {facts.bucket}: `--state keep` from {_describe(position)} back to {_describe(target)} would count "
            "events twice. Nothing was changed. Omit the option, so that the state goes back too, or use `--state empty`."
        )
    return count_events(processor, facts, target, ResetMethod.SKIPPED, position)


def count_events(
    processor: type[Processor],
    facts: ShardFacts,
    target: Offsets,
    method: ResetMethod,
    reflects: Offsets,
    *,
    backup: BackupId | None = None,
) -> ShardPlan:
    """Return the plan of a shard with its numbers of events.

    Args:
        processor: whose shard.
        facts: its positions and states.
        target: its new positions, by input.
        method: how it gets its state.
        reflects: the position of that state.
        backup: the backup that it comes from.
    """
    before, position = facts.before, {name: reflects.get(name, 0) for name in target}
    repeated, skipped = _distance(target, before), _distance(before, target)
    caught_up = _distance(position, target) if method in _CATCHING_UP else 0
    missing = 0
    if processor.state_semantics is Semantics.AT_MOST_ONCE and method is not ResetMethod.NONE:
        missing, caught_up = caught_up, 0
    if caught_up and _repeats_outputs(processor):
        repeated, caught_up = _distance(position, before), 0
    reflected = position if reflects else {}
    return ShardPlan(
        facts.bucket, before, dict(target), method, reflected, backup, repeated, skipped, caught_up, missing
    )


_CATCHING_UP = frozenset({ResetMethod.KEPT, ResetMethod.BACKUP, ResetMethod.REBUILT})


def _repeats_outputs(processor: type[Processor]) -> bool:
    """Return whether outputs are written again while a state catches up; see the worker."""
    return len(plan_of(processor).inputs) > 1 and processor.output_semantics is Semantics.AT_LEAST_ONCE


def _newest_before(states: Iterable[Candidate], target: Offsets, starts: Offsets) -> Candidate | None:
    """Return the newest state that is not after a target and can catch up from the bus; of equal ones the first.

    A state of a lower generation is used only if there is none of a higher one, which may have started empty.
    """
    usable = [
        state
        for state in states
        if not _is_before(target, state.position.offsets)
        and not _is_before({name: state.position.offsets.get(name, 0) for name in target}, starts)
    ]
    return max(
        usable,
        key=lambda state: (
            state.position.generation,
            sum(state.position.offsets.get(name, 0) for name in target),
        ),
        default=None,
    )


def _is_before(position: Offsets, other: Mapping[str, int]) -> bool:
    """Return whether a position is before another one in any input."""
    return any(offset < other.get(name, 0) for name, offset in position.items())


def _distance(start: Offsets, end: Offsets) -> int:
    return sum(max(end[name] - offset, 0) for name, offset in start.items())


def _describe(position: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {offset:,}" for name, offset in sorted(position.items()))
