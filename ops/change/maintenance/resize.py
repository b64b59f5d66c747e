"""Resize of categories: more buckets, with the states of their readers repartitioned.

Old events stay in the old buckets, up to the resize offsets, and the repartitioned states contain them. New events are in the buckets
of the new partitioning: in old buckets from the resize offsets on, in new buckets from 0 on. A writer that still uses the old number of
buckets would write keys to buckets without their state. Writers must stop, and the resize checks that nothing was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ....processors import PenstockError, counted
from ....processors.declare import AnyCategory, Processor, plan_of
from ....processors.shard import is_remote
from ....transport import Bucket, BucketMismatch, Bus, OffsetRange, Position, read_offset_ranges
from ....transport.tables import (
    AtGap,
    ConvertedType,
    MaintenanceRefused,
    MaintenanceStep,
    MaintenanceTask,
    Resize,
    StateLineage,
    TopicChange,
    lineage_of,
    newest_maintenance,
    no_gap,
    operation_to_replace,
    perform_maintenance,
    register_inputs,
    require_idle,
    start_operation,
)
from ...kernel import changelog_of
from .environment import MaintenanceEnvironment
from .processor_positions import LocalStates, processor_positions
from .staging import Staging
from .state_installation import rewrite_changelog, store_backup
from .state_split import SplitPlan, StateSplit


class MisplacedKeys(PenstockError):
    """Events were written with the old number of buckets after the resize: a person must decide."""


@dataclass(frozen=True)
class ResizePlan:
    """A planned resize.

    Args:
        categories: the categories that get more buckets; they are read together.
        before: their number of buckets.
        after: their new number of buckets.
        readers: the processors that read them.
        writers: the app's processors that write them.
        resize_offsets: the end of each old bucket of each category.
    """

    categories: Sequence[str]
    before: int
    after: int
    readers: Sequence[type[Processor]]
    writers: Sequence[type[Processor]]
    resize_offsets: Mapping[str, Mapping[int, int]]

    @property
    def kind(self) -> Resize:
        """The operation."""
        return Resize(self.after)

    @property
    def keeps_time(self) -> bool:
        """Whether each new bucket has the keys of one old bucket, so that its event time continues exactly."""
        return self.after % self.before == 0

    def category(self, name: str) -> AnyCategory | None:
        """Return the declaration of one of the categories; None if the app neither reads nor writes it."""
        declared = (
            category
            for processor in (*self.readers, *self.writers)
            for category in (*plan_of(processor).inputs, *plan_of(processor).outputs)
        )
        return next((category for category in declared if category.name == name), None)

    def is_new(self, bus: Bus) -> bool:
        """Return whether no category has more buckets yet."""
        return all(bus.catalog.describe(name).spec.buckets == self.before for name in self.categories)


def plan_resize(
    processors: Iterable[type[Processor]], environment: MaintenanceEnvironment, category: str, after: int
) -> ResizePlan:
    """Plan a resize; nothing is changed.

    Args:
        processors: all processors that read or write the category, or one that is read together with it.
        environment: their bus, states and backups.
        category: its name.
        after: its new number of buckets.

    Raises:
        MaintenanceRefused: the resize is not possible, or not yet.
        MissingCategory: the category does not exist.
    """
    every, catalog = list(processors), environment.bus.catalog
    names = _read_together(every, category)
    readers = [
        processor for processor in every if names.intersection(category.name for category in plan_of(processor).inputs)
    ]
    writers = [
        processor for processor in every if names.intersection(category.name for category in plan_of(processor).outputs)
    ]
    buckets = {name: catalog.describe(name).spec.buckets for name in sorted(names)}
    replaced = [operation_to_replace(processor, environment.bus, Resize(after)) for processor in readers]
    unfinished = next((operation for operation in replaced if operation is not None and not operation.is_done), None)
    if unfinished is not None:
        offsets = {name: unfinished.lineage.resize_offsets[name] for name in sorted(names)}
        before = len(offsets[category])
    else:
        before = _common_number(buckets)
        offsets = {name: dict(catalog.ends(name)) for name in sorted(names)}
    if after < before or (after == before and unfinished is None):
        raise MaintenanceRefused(
            f"{category} has {counted(before, 'bucket')}, and Kafka cannot reduce that to {after}. Nothing was changed. For fewer buckets, declare "
            f"another category with {counted(after, 'bucket')} and a penstock.Repartition that writes {category} to it, and let the readers read that "
            "category."
        )
    plan = ResizePlan(sorted(names), before, after, readers, writers, offsets)
    for processor in readers:
        _require_local(processor, plan)
        _require_partitioner(processor)
        if unfinished is None:
            _require_drained(processor, plan, environment)
    return plan


def _read_together(processors: Sequence[type[Processor]], category: str) -> set[str]:
    """Return a category and all categories that are read together with it; these need the same number of buckets."""
    names, grew = {category}, True
    while grew:
        more = {
            category.name
            for processor in processors
            for category in plan_of(processor).inputs
            if names & {other.name for other in plan_of(processor).inputs}
        }
        grew = not more <= names
        names |= more
    return names


def _common_number(buckets: Mapping[str, int]) -> int:
    if len(set(buckets.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in buckets.items())
        raise BucketMismatch(
            f"Categories that are read together have different numbers of buckets: {counts}. Nothing was changed. First resize those with "
            "fewer buckets one by one, without their readers: `penstock category resize NAME N`."
        )
    return next(iter(buckets.values()))


def _require_local(processor: type[Processor], plan: ResizePlan) -> None:
    if is_remote(processor):
        names = ", ".join(plan.categories)
        raise MaintenanceRefused(
            f"{processor.__name__} keeps its state in a remote store by bucket, and a resize does not split that state. Nothing was changed. "
            f"Leave {names} as it is. Declare another category with {counted(plan.after, 'bucket')} and a penstock.Repartition that writes {names} to "
            f"it, and let {processor.__name__}, renamed, read that category from the first event."
        )


def _require_partitioner(processor: type[Processor]) -> None:
    plan = plan_of(processor)
    unknown = next((category.name for category in plan.inputs if category.partitioner is None), None)
    if unknown is not None and plan.state_shape is not None:
        raise MaintenanceRefused(
            f"The partitioner of {unknown} is unknown (`partitioner=None`), so the new bucket of a key in the state of {processor.__name__} is "
            f"unknown, too. Nothing was changed. Declare the partitioner of the writers of {unknown}, or copy it to a new category "
            "(penstock.Repartition)."
        )


def _require_drained(processor: type[Processor], plan: ResizePlan, environment: MaintenanceEnvironment) -> None:
    """Refuse unless a processor has read all events; the split checks that its states contain them."""
    positions = processor_positions(processor, environment.bus)
    unread = sum(
        end - positions.of(bucket).before[category.name]
        for category in plan_of(processor).inputs
        for bucket, end in plan.resize_offsets[category.name].items()
    )
    if unread:
        raise MaintenanceRefused(
            f"{processor.__name__} has {counted(unread, 'unread event')}, which must be read with the old number of buckets. Nothing was changed. Stop "
            f"all writers of {', '.join(plan.categories)}, run `penstock run … --until-end` (with buckets={plan.before} still declared), and "
            "repeat this command."
        )


def perform_resize(
    plan: ResizePlan, environment: MaintenanceEnvironment, at_gap: AtGap = no_gap, *, accept_misplaced: bool = False
) -> None:
    """Perform a planned resize. Durable on return; may be repeated.

    Args:
        plan: the plan.
        environment: its bus, states and backups.
        at_gap: called before each step.
        accept_misplaced: continue although events were written with the old number of buckets meanwhile.

    Raises:
        GroupInUse: a worker runs. Nothing was changed.
        MaintenanceRefused: events were written meanwhile, or a state is missing. Nothing was changed.
        MisplacedKeys: events were written with the old number of buckets after the resize. No reader starts until a person decides.
    """
    tasks = [_ReaderResize(processor, plan, environment) for processor in plan.readers]
    topics = _BucketIncrease(plan, environment.bus, accept_misplaced=accept_misplaced)
    perform_maintenance(tasks, environment.bus, at_gap, topics)


class _BucketIncrease(TopicChange):
    """The new buckets of the categories."""

    def __init__(self, plan: ResizePlan, bus: Bus, *, accept_misplaced: bool) -> None:
        self._plan = plan
        self._bus = bus
        self._accept_misplaced = accept_misplaced
        self._is_new = plan.is_new(bus)

    def prepare(self) -> None:
        """Raise GroupInUse if a writer runs."""
        for writer in self._plan.writers:
            require_idle(writer, self._bus)

    def check(self) -> None:
        """Raise MaintenanceRefused if a category was written to since it was planned."""
        if not self._is_new:
            return
        for name in self._plan.categories:
            if dict(self._bus.catalog.ends(name)) != dict(self._plan.resize_offsets[name]):
                raise MaintenanceRefused(
                    f"{name} was written to during the resize. Nothing was changed. Stop all of its writers: they would write keys to buckets "
                    f"without their state. Let the readers read the new events with {counted(self._plan.before, 'bucket')}, and repeat this command."
                )

    def apply(self) -> None:
        """Add the buckets, and raise MisplacedKeys if events were written with the old number."""
        for name in self._plan.categories:
            if self._bus.catalog.describe(name).spec.buckets < self._plan.after:
                self._bus.catalog.resize(name, self._plan.after)
        if not self._accept_misplaced:
            for name in self._plan.categories:
                self._require_placed(name)

    def _require_placed(self, name: str) -> None:
        misplaced, plan = self._misplaced(name), self._plan
        if misplaced:
            keys = ", ".join(repr(key.decode(errors="backslashreplace")) for key in list(misplaced)[:3])
            raise MisplacedKeys(
                f"{name}: a writer placed {counted(misplaced.total(), 'event')} of {counted(len(misplaced), 'key')} ({keys}, …) for {counted(plan.before, 'bucket')}, after "
                f"it had {plan.after}. These are in buckets without the states of their keys, and no reader starts. Stop or restart the writer, "
                "which then uses the new number. Write the events again if you can, and repeat this command with --accept-misplaced: "
                "misplaced events are then processed with separate states."
            )

    def _misplaced(self, name: str) -> Counter[bytes]:
        """Return the keys after the resize offsets in wrong buckets, with their numbers of events; none if the partitioner is unknown."""
        declared = self._plan.category(name)
        if declared is None or declared.partitioner is None:
            return Counter()
        category = replace(declared, buckets=self._plan.after)
        starts, ends = (
            self._plan.resize_offsets[name],
            self._bus.catalog.ends(name),
        )  # with open transactions: their events count
        ranges = [OffsetRange(Bucket(name, number), start, ends[number]) for number, start in starts.items()]
        misplaced: Counter[bytes] = Counter()
        for batch in read_offset_ranges(self._bus, ranges):
            keys = [key for key in (message.key() for message in batch.messages) if key]
            buckets = category.buckets_of_message_keys(keys)
            misplaced.update(key for key, bucket in zip(keys, buckets, strict=True) if bucket != batch.bucket.number)
        return misplaced


class _ReaderResize(MaintenanceTask):
    """A resize in progress, for one reader."""

    def __init__(self, processor: type[Processor], plan: ResizePlan, environment: MaintenanceEnvironment) -> None:
        bus = environment.bus
        replaces = newest_maintenance(bus, processor.name)
        self._plan = plan
        self._offsets = {
            category.name: dict(plan.resize_offsets[category.name]) for category in plan_of(processor).inputs
        }
        self._has_state = plan_of(processor).state_shape is not None
        self._local = LocalStates(processor, environment.states, environment.backups)
        if replaces is not None and replaces.kind == plan.kind:
            operation = replaces
        else:
            operation = start_operation(processor, plan.kind, self._lineage(lineage_of(replaces)), replaces)
        super().__init__(processor, bus, operation, replaces)
        self._staging = Staging(self._local, operation)

    @property
    def buckets(self) -> Sequence[int]:
        """All buckets, old and new."""
        return range(self._plan.after)

    @property
    def can_roll_back(self) -> bool:
        """Whether no bucket was added yet."""
        return self._plan.is_new(self.bus)

    def _lineage(self, lineage: StateLineage) -> StateLineage:
        generation = lineage.newest_generation + 1
        generations = dict.fromkeys(range(self._plan.after), generation) if self._has_state else {}
        converted = lineage.converted and ConvertedType(lineage.converted.shape, generations)
        return StateLineage(
            generations, is_rebuildable=not self._has_state, resize_offsets=self._offsets, converted=converted
        )

    def staging(self) -> Generator[int, None, None]:
        """Split the states."""
        if self._has_state:
            positions = processor_positions(self.processor, self.bus)
            split = StateSplit(self._local, self._split_plan(), self._staging)
            yield from split.build(lambda bucket: positions.of(bucket).committed)

    def _split_plan(self) -> SplitPlan:
        previous = {} if self.operation.previous is None else self.operation.previous.lineage.generations
        return SplitPlan(
            self.processor,
            self._plan.before,
            self._plan.after,
            self._offsets,
            self.operation.lineage.newest_generation,
            previous,
        )

    def change_shard(self, step: MaintenanceStep, bucket: int) -> None:
        """Install a new state, store it, or rewrite its changelog."""
        if not self._has_state:
            return
        match step:
            case MaintenanceStep.INSTALL_STATE:
                self._staging.install(bucket)
            case MaintenanceStep.STORE_BACKUP:
                store_backup(self._local, bucket)
            case MaintenanceStep.REWRITE_CHANGELOG:
                self._rewrite_changelog(bucket)

    def _rewrite_changelog(self, bucket: int) -> None:
        changelog, catalog = changelog_of(self.processor), self.bus.catalog
        if changelog is None or changelog.name not in catalog.names():
            return
        if catalog.describe(changelog.name).spec.buckets < self._plan.after:
            catalog.resize(changelog.name, self._plan.after)
        rewrite_changelog(self.bus, self._local, bucket)

    def move_positions(self) -> None:
        """Set the group's positions to the resize offsets; to 0 in new buckets."""
        positions = [
            Position(Bucket(name, number), offsets.get(number, 0))
            for name, offsets in self._offsets.items()
            for number in range(self._plan.after)
        ]
        register_inputs(self.bus, self.processor.name, dict.fromkeys(self._offsets, self._plan.after))
        self.bus.catalog.set_committed(self.processor.name, positions)

    def discard_staged(self) -> None:
        """Remove the states that were built aside."""
        if self._has_state:
            self._staging.discard()
