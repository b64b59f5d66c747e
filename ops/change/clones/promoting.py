"""Promotion of a clone: an app continues with the states of its clone, and with the clone's code, under its own names.

    workers of both stopped --> both read their external inputs up to the same offsets, and everything between processors, up to the same event times
    --> equal positions, equal event times --> states of the clone become the app's; positions and categories of the app stay

Up to these offsets, readers have the app's outputs; the clone's went to its own categories. From there on, the app writes what the clone would have written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

from ....processors import PenstockError, counted
from ....processors.apps import App, renamed_categories
from ....processors.declare import Aggregator, AtWatermark, Processor, Semantics, Stateful, plan_of
from ....processors.keyed_state import EVENT_TIMES, WALL_TIMERS, decode_time
from ....processors.shard import Offsets, StatePosition
from ....processors.time import NEVER_MS
from ....state.local import current, opened_read_only
from ....transport import Bucket, Bus, create_missing_categories
from ....transport.tables import (
    AtGap,
    Clone,
    MaintenanceOperation,
    MaintenanceRefused,
    MaintenanceStep,
    MaintenanceTask,
    Promotion,
    TopicChange,
    lineage_of,
    newest_maintenance,
    no_gap,
    operation_to_replace,
    perform_maintenance,
    registration_of,
    start_operation,
)
from ...kernel import RunLimits, Targets, changelog_of, committed_positions, ends_of, levels_of
from ..maintenance import LocalStates, MaintenanceEnvironment, install_promoted, rewrite_changelog, store_backup
from .cloning import original_of


class PromotionRefused(PenstockError):
    """The clone cannot be promoted, or not without an option. Nothing was changed, and the app continues."""


class PromotionProgress(Enum):
    """How far a promotion is, according to the bus."""

    NOT_BEGUN = "not begun"
    SWAPPING = "swapping"
    SWAPPED = "swapped"


@dataclass(frozen=True)
class ProcessorPair:
    """A processor, and its counterpart in the clone.

    Args:
        original: the processor of the app, with the code of the clone.
        clone: the processor of the clone.
        kind: the operation on both.
    """

    original: type[Processor]
    clone: type[Processor]
    kind: Promotion

    @property
    def external(self) -> list[str]:
        """The inputs that both read."""
        return [name for name in self._inputs if name not in self.renamed]

    @property
    def internal(self) -> list[tuple[str, str]]:
        """The other inputs: those of the app, and those of the clone."""
        return [(name, self.renamed[name]) for name in self._inputs if name in self.renamed]

    @property
    def renamed(self) -> dict[str, str]:
        """The clone's names of its own categories by those of the app."""
        return renamed_categories(self.clone)

    @property
    def _inputs(self) -> list[str]:
        return [category.name for category in plan_of(self.original).inputs]

    @property
    def buckets(self) -> range:
        """The numbers of the shards."""
        return range(plan_of(self.original).inputs[0].buckets)


@dataclass(frozen=True)
class PromotionPlan:
    """A planned promotion.

    Args:
        clone: the clone.
        pairs: the processors, upstream ones first.
        progress: how far an earlier command came.
    """

    clone: App
    pairs: Sequence[ProcessorPair]
    progress: PromotionProgress

    @property
    def levels(self) -> list[list[ProcessorPair]]:
        """The processors by level: each level reads only outputs of earlier levels."""
        by_clone = {pair.clone: pair for pair in self.pairs}
        return [[by_clone[processor] for processor in level] for level in levels_of(self.clone)]


def plan_promotion(clone: App, bus: Bus, *, best_effort: bool = False) -> PromotionPlan:
    """Plan the promotion of a clone; nothing is changed.

    Args:
        clone: the app under the clone's names.
        bus: the bus of both.
        best_effort: whether outputs may repeat or be missing, where the declarations allow it.

    Raises:
        PromotionRefused: the clone does not exist, or cannot take over.
        MaintenanceRefused: another operation on a processor is unfinished.
    """
    _expect_no_loop(clone)
    pairs = [_pair(processor, clone, bus) for processor in clone.processors]
    progress = _progress(pairs, bus)
    if progress is PromotionProgress.NOT_BEGUN:
        if not best_effort:
            _expect_exact(pairs)
        for pair in pairs:
            _expect_equal_topics(pair, bus)
            operation_to_replace(pair.original, bus, pair.kind)
    return PromotionPlan(clone, pairs, progress)


def _pair(processor: type[Processor], clone: App, bus: Bus) -> ProcessorPair:
    original = original_of(processor)
    newest = newest_maintenance(bus, processor.name)
    if newest is not None and isinstance(newest.kind, Clone) and newest.is_done:
        return ProcessorPair(original, processor, Promotion(clone.name, newest.kind, newest.started_ms))
    if newest is None:  # an earlier command may have removed this part of the clone
        newest = newest_maintenance(bus, original.name)
    if newest is not None and isinstance(newest.kind, Promotion) and newest.kind.clone == clone.name:
        return ProcessorPair(original, processor, newest.kind)
    found = (
        "it does not exist"
        if newest is None
        else f"its processor {processor.name} has a {newest.kind} since it was made"
    )
    raise PromotionRefused(
        f"{clone.name} cannot be promoted: {found}. Nothing was changed. `penstock clone APP SNAPSHOT --as NAME` makes a clone, and finishes an "
        "interrupted one."
    )


def _expect_no_loop(clone: App) -> None:
    """Raise PromotionRefused for a loop: what circulates has no offset at which both apps could stop."""
    if clone.loops:
        raise PromotionRefused(
            f"{clone.name} contains a loop: {clone.loops[0]}. The app and its clone cannot be stopped at the same place in it. Nothing was changed. To change "
            "the code, deploy it; to return to the snapshot, use `penstock snapshot restore`."
        )


def _progress(pairs: Sequence[ProcessorPair], bus: Bus) -> PromotionProgress:
    """Return how far an earlier command came."""
    originals = [newest_maintenance(bus, pair.original.name) for pair in pairs]
    clones = [newest_maintenance(bus, pair.clone.name) for pair in pairs]
    kinds = [pair.kind for pair in pairs]
    if all(map(_is_done, originals, kinds)) and all(map(_is_done_or_removed, clones, kinds)):
        return PromotionProgress.SWAPPED
    recorded = [operation is not None and operation.kind in kinds for operation in (*originals, *clones)]
    return PromotionProgress.SWAPPING if any(recorded) else PromotionProgress.NOT_BEGUN


def _is_done(operation: MaintenanceOperation | None, kind: Promotion) -> bool:
    return operation is not None and operation.is_done and operation.kind == kind


def _is_done_or_removed(operation: MaintenanceOperation | None, kind: Promotion) -> bool:
    return operation is None or _is_done(operation, kind)


def _expect_exact(pairs: Sequence[ProcessorPair]) -> None:
    """Raise PromotionRefused for outputs that may repeat, or be missing, when the app changes over."""
    for pair in pairs:
        processor = pair.original
        written = ", ".join(destination.name for destination in plan_of(processor).destinations)
        if written and processor.output_semantics is not Semantics.EXACTLY_ONCE:
            effect = "repeat" if processor.output_semantics is Semantics.AT_LEAST_ONCE else "be missing"
            raise PromotionRefused(
                f"{processor.__name__} does not write {written} exactly once: if one of its workers dies during the promotion, outputs since its last "
                f"checkpoint {effect}. Nothing was changed. Accept that with --best-effort, or declare `output_semantics = EXACTLY_ONCE`."
            )
        if _fires_by_clock(processor):
            raise PromotionRefused(
                f"{processor.__name__} writes by the time of day (schedules or early results), and the two apps are not stopped at the same moment: such "
                "an output may repeat or be missing. Nothing was changed. Accept that with --best-effort."
            )


def _fires_by_clock(processor: type[Processor]) -> bool:
    if issubclass(processor, Stateful) and processor.schedules:
        return True
    return (
        issubclass(processor, Aggregator)
        and isinstance(processor.emit, AtWatermark)
        and processor.emit.early is not None
    )


def _expect_equal_topics(pair: ProcessorPair, bus: Bus) -> None:
    """Raise PromotionRefused if the app reads other categories than its clone, or categories with other numbers of buckets."""
    declared = {category.name: category.buckets for category in plan_of(pair.original).inputs}
    registered = registration_of(bus, pair.original.name).inputs
    sizes = bus.catalog.topics({*pair.renamed, *pair.renamed.values()})
    different = sorted(
        name
        for name, own in pair.renamed.items()
        if name in sizes and own in sizes and sizes[name].buckets != sizes[own].buckets
    )
    if registered != declared or different:
        raise PromotionRefused(
            f"{pair.original.__name__} of the clone cannot continue as {pair.original.name}: its inputs or the number of their buckets differ. "
            "Nothing was changed. Make a new clone from a snapshot of the app as it is now."
        )


RunToLimits = Callable[[Mapping[type[Processor], RunLimits]], None]
"""Runs processors up to limits, and until no event waits for a retry. Returns when all is saved."""


def drain(plan: PromotionPlan, environment: MaintenanceEnvironment, run: RunToLimits) -> None:
    """Let both apps process the same events, and everything between their processors, up to the same event times. May be repeated.

    Estimates of event time depend on the order in which messages of several shards have arrived, which differs between the apps. The later
    estimate counts for both: the other app completes its windows, joins and timers up to there, too.

    Args:
        plan: the plan. No worker of either app runs.
        environment: the bus and the states of both.
        run: runs the processors of one level.
    """
    for level in plan.levels:
        limits: dict[type[Processor], RunLimits] = {}
        for pair in level:
            limits |= common_limits(pair, environment.bus)
        run(limits)
        behind = {
            processor: replace(limits[processor], times_ms=times_ms)
            for pair in level
            for processor, times_ms in _times_to_reach(pair, environment).items()
        }
        if behind:
            run(behind)


def common_limits(pair: ProcessorPair, bus: Bus) -> dict[type[Processor], RunLimits]:
    """Return where both processors stop: in external inputs at the further of their positions, and elsewhere at the end."""
    both = pair.original, pair.clone
    external: Targets = {}
    for name in pair.external:
        committed = [bus.catalog.committed(processor.name, name) for processor in both]
        external |= {Bucket(name, number): max(found.get(number, 0) for found in committed) for number in pair.buckets}
    return {processor: RunLimits(ends_of(plan_of(processor).sources, bus) | external) for processor in both}


def _times_to_reach(pair: ProcessorPair, environment: MaintenanceEnvironment) -> dict[type[Processor], dict[int, int]]:
    """Return the event times that a processor has not reached, and its counterpart has, by shard."""
    if not _follows_event_time(pair.original):
        return {}
    found: dict[type[Processor], dict[int, int]] = {}
    for bucket in pair.buckets:
        lows_ms = {one: _saved_time_ms(one, bucket, environment) for one in (pair.original, pair.clone)}
        latest_ms = max(lows_ms.values())
        for processor, low_ms in lows_ms.items():
            if low_ms < latest_ms:
                found.setdefault(processor, {})[bucket] = latest_ms
    return found


def _saved_time_ms(processor: type[Processor], bucket: int, environment: MaintenanceEnvironment) -> int:
    """Return the low watermark in the state of a shard."""
    with opened_read_only(_state_folder(processor, bucket, environment)) as state:
        [low] = state.fetch([EVENT_TIMES])
    return NEVER_MS if low is None else decode_time(low)


def _state_folder(processor: type[Processor], bucket: int, environment: MaintenanceEnvironment) -> Path:
    folder = current(LocalStates(processor, environment.states, None).folder(bucket))
    if folder is None:
        raise MaintenanceRefused(
            f"The state of {processor.name}, bucket {bucket}, is not in {environment.states}. Nothing was changed. Run the command on the "
            "machine of the deployments."
        )
    return folder


def swap(plan: PromotionPlan, environment: MaintenanceEnvironment, at_gap: AtGap = no_gap) -> None:
    """Give the states of the clone to the app. Durable on return; may be repeated after an interruption.

    Args:
        plan: the plan.
        environment: the bus, states and backups of both.
        at_gap: called before each step.

    Raises:
        GroupInUse: a worker runs.
        MaintenanceRefused: the two apps are not at the same place. Nothing was changed, unless an earlier command was interrupted.
    """
    has_begun = _has_begun(plan, environment)
    tasks: list[MaintenanceTask] = [_TakeOver(pair, environment, has_begun=has_begun) for pair in plan.pairs]
    tasks += [_Retirement(pair, environment, has_begun=has_begun) for pair in plan.pairs]
    perform_maintenance(tasks, environment.bus, at_gap, _EqualPlaces(plan.pairs, environment, is_certain=has_begun))


def _has_begun(plan: PromotionPlan, environment: MaintenanceEnvironment) -> bool:
    """Return whether an interrupted command has installed a state, or recorded an end. Before that, all can be rolled back."""
    for pair in plan.pairs:
        newest = newest_maintenance(environment.bus, pair.original.name)
        if newest is None or newest.kind != pair.kind:
            continue
        if newest.is_done or _is_installed(pair, newest.lineage.newest_generation, environment):
            return True
    return False


def _is_installed(pair: ProcessorPair, generation: int, environment: MaintenanceEnvironment) -> bool:
    if plan_of(pair.original).state_shape is None:
        return False
    local = LocalStates(pair.original, environment.states, None)
    folders = [folder for bucket in pair.buckets if (folder := current(local.folder(bucket))) is not None]
    return any(_position_in(folder).generation >= generation for folder in folders)


def _position_in(folder: Path) -> StatePosition:
    with opened_read_only(folder) as state:
        return state.position()


class _PairTask(MaintenanceTask):
    """The part of one of the two processors of a pair."""

    def __init__(
        self, processor: type[Processor], pair: ProcessorPair, environment: MaintenanceEnvironment, *, has_begun: bool
    ) -> None:
        self._pair = pair
        self._has_begun = has_begun
        newest = newest_maintenance(environment.bus, processor.name)
        operation = newest
        if operation is None or operation.kind != pair.kind:
            operation_to_replace(processor, environment.bus, pair.kind)
            operation = self._begin(processor, newest)
        super().__init__(processor, environment.bus, operation, newest)

    def _begin(self, processor: type[Processor], previous: MaintenanceOperation | None) -> MaintenanceOperation:
        return start_operation(processor, self._pair.kind, lineage_of(previous), previous)

    @property
    def buckets(self) -> Sequence[int]:
        """All shards."""
        return self._pair.buckets

    @property
    def can_roll_back(self) -> bool:
        """Whether no state is installed yet."""
        return not self._has_begun


class _Retirement(_PairTask):
    """The processor of the clone, whose workers do not start any more."""

    def __init__(self, pair: ProcessorPair, environment: MaintenanceEnvironment, *, has_begun: bool) -> None:
        super().__init__(pair.clone, pair, environment, has_begun=has_begun)


class _TakeOver(_PairTask):
    """The processor of the app, which gets the states of the clone's."""

    def __init__(self, pair: ProcessorPair, environment: MaintenanceEnvironment, *, has_begun: bool) -> None:
        super().__init__(pair.original, pair, environment, has_begun=has_begun)
        self._local = self._of_clone = None
        if plan_of(pair.original).state_shape is not None:
            self._local = LocalStates(pair.original, environment.states, environment.backups)
            self._of_clone = LocalStates(pair.clone, environment.states, environment.backups)

    def _begin(self, processor: type[Processor], previous: MaintenanceOperation | None) -> MaintenanceOperation:
        lineage = lineage_of(previous)
        if plan_of(processor).state_shape is not None:
            lineage = lineage.installed(dict.fromkeys(self.buckets, lineage.newest_generation + 1))
        return start_operation(processor, self._pair.kind, lineage, previous)

    def check_states(self) -> None:
        """Raise StateInUse if a process has one of the states open."""
        for states in filter(None, (self._local, self._of_clone)):
            for bucket in self.buckets:
                states.require_closed(bucket)

    def change_shard(self, step: MaintenanceStep, bucket: int) -> None:
        """Install the state of the clone's shard, store it as the newest backup, or rewrite the changelog."""
        if self._local is None or self._of_clone is None:
            return
        match step:
            case MaintenanceStep.INSTALL_STATE:
                of_clone = committed_positions(self._pair.clone, self.bus).get(bucket, StatePosition())
                install_promoted(self._local, bucket, self._of_clone, of_clone, self._position(bucket))
            case MaintenanceStep.STORE_BACKUP:
                store_backup(self._local, bucket)
            case MaintenanceStep.REWRITE_CHANGELOG:
                rewrite_changelog(self.bus, self._local, bucket)

    def _position(self, bucket: int) -> StatePosition:
        """Return the position of a shard. The position of its group stays."""
        committed = committed_positions(self.processor, self.bus).get(bucket, StatePosition())
        return StatePosition(
            committed.offsets,
            checkpoint_id=committed.checkpoint_id,
            generation=self.operation.lineage.generation(bucket),
            topic_ids={name: topic.id for name, topic in self.bus.catalog.topics(committed.offsets).items()},
        )


class _EqualPlaces(TopicChange):
    """The last check before states change: both apps have processed the same events, and everything between their processors.

    Args:
        pairs: the processors.
        environment: their bus and states.
        is_certain: whether an earlier command has made this check, and changed states since.
    """

    def __init__(
        self, pairs: Sequence[ProcessorPair], environment: MaintenanceEnvironment, *, is_certain: bool
    ) -> None:
        self._pairs = pairs
        self._environment = environment
        self._is_certain = is_certain

    def check(self) -> None:
        """Raise MaintenanceRefused if the places differ."""
        if self._is_certain:
            return
        for pair in self._pairs:
            original, clone = (self._offsets(processor) for processor in (pair.original, pair.clone))
            for name in pair.external:
                if original[name] != clone[name]:
                    raise _different(pair, f"their positions in {name} differ: {original[name]} and {clone[name]}")
            for own, of_clone in pair.internal:
                self._expect_read(pair, own, original[own])
                self._expect_read(pair, of_clone, clone[of_clone])
            self._expect_equal_times(pair)

    def apply(self) -> None:
        """Create the changelogs that only the version of the clone has."""
        changelogs = [spec for pair in self._pairs if (spec := changelog_of(pair.original)) is not None]
        create_missing_categories(self._environment.bus, *changelogs)

    def _offsets(self, processor: type[Processor]) -> dict[str, dict[int, int]]:
        """Return the positions of a group, by input and bucket; the first retained offset where it has none."""
        catalog = self._environment.bus.catalog
        return {
            category.name: {
                **catalog.describe(category.name).starts,
                **catalog.committed(processor.name, category.name),
            }
            for category in plan_of(processor).inputs
        }

    def _expect_read(self, pair: ProcessorPair, name: str, positions: Mapping[int, int]) -> None:
        ends = self._environment.bus.catalog.ends(name)
        waiting = sum(end - positions[number] for number, end in ends.items())
        if waiting:
            raise _different(pair, f"{counted(waiting, 'message')} of {name} must be processed first")

    def _expect_equal_times(self, pair: ProcessorPair) -> None:
        """Raise MaintenanceRefused if one has written results of an event time that the other has not reached, or timers of the clock wait."""
        if plan_of(pair.original).state_shape is None:
            return
        both = pair.original, pair.clone
        for bucket in pair.buckets:
            for processor in both:
                self._expect_saved(processor, bucket)
            if _follows_event_time(pair.original):
                self._expect_same_low(pair, bucket)
            original_timers, clone_timers = (self._timers(processor, bucket) for processor in both)
            if original_timers != clone_timers:
                raise _different(pair, f"their timers of the clock in bucket {bucket} differ")

    def _expect_same_low(self, pair: ProcessorPair, bucket: int) -> None:
        """Raise MaintenanceRefused if the low watermarks of a shard differ."""
        original_ms, clone_ms = (
            _saved_time_ms(processor, bucket, self._environment) for processor in (pair.original, pair.clone)
        )
        if original_ms != clone_ms:
            raise _different(
                pair, f"their event times in bucket {bucket} differ, {_text(original_ms)} and {_text(clone_ms)}"
            )

    def _expect_saved(self, processor: type[Processor], bucket: int) -> None:
        """Raise MaintenanceRefused if a state is not at the position of its group."""
        committed = committed_positions(processor, self._environment.bus).get(bucket, StatePosition())
        stored = next(LocalStates(processor, self._environment.states, None).stored(bucket), None)
        position = StatePosition() if stored is None else stored.completed(committed)
        if _without_starts(position.offsets) != _without_starts(committed.offsets):
            raise MaintenanceRefused(
                f"The state of {processor.name}, bucket {bucket}, is at {position}, and its group at {committed}. Nothing was changed. Start its worker "
                "once, and repeat the command."
            )

    def _timers(self, processor: type[Processor], bucket: int) -> list[bytes]:
        with opened_read_only(_state_folder(processor, bucket, self._environment)) as state:
            return [key for key, _ in state.scan(WALL_TIMERS, WALL_TIMERS + b"\xff" * 9, _MOST_TIMERS)]


_MOST_TIMERS = 1_000
"""The number of timers of a shard that are compared."""


def _text(low_ms: int) -> str:
    """Return a low watermark as text."""
    if low_ms == NEVER_MS:
        return "none yet"
    return str(datetime.fromtimestamp(low_ms / 1000, UTC).replace(tzinfo=None))


def _follows_event_time(processor: type[Processor]) -> bool:
    """Return whether results become due as event time passes: not those of a stateful processor without timers, which writes at each event."""
    if plan_of(processor).state_shape is None:
        return False
    return not issubclass(processor, Stateful) or plan_of(processor).emits_without_input


def _without_starts(offsets: Offsets) -> Offsets:
    return {name: offset for name, offset in offsets.items() if offset}


def _different(pair: ProcessorPair, difference: str) -> MaintenanceRefused:
    return MaintenanceRefused(
        f"{pair.original.name} and {pair.clone.name} cannot change over here: {difference}. A result would be missing or repeat. Nothing was changed. "
        "Try again; if this remains, make a new clone."
    )
