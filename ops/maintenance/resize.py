"""Another number of buckets for categories, with the states of those who read them.

all is read --> noted as begun --> states split by key, aside --> buckets added --> states in place --> positions set --> noted as done

Events written before lie in the old buckets up to a border, and are in the states that were split. Events written after lie where their
keys belong now, in the old buckets behind the border and in the new ones from 0 on: there the split states go on. Who writes meanwhile
by the old number of buckets would put keys where their state is no more: writers have to stand still, and whether they did is looked at.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

from ...processors.declare.partitioner import bucket_of
from ...processors.declare.processor import Processor
from ...processors.errors import PenstockError
from ...processors.shard.checkpoints import is_remote
from ...transport.bus import Bus
from ...transport.errors import BucketMismatch
from ...transport.messages import Bucket, Position
from ...transport.tables.maintenance_log import MaintenanceOperation, Retyped, newest_maintenance, record_maintenance
from ...transport.tables.maintenance_start import cancel_maintenance, expect_idle, record_begin
from ...transport.tables.registrations import register_inputs
from ..worker.changelog_replay import changelog_of
from .environment import Around
from .errors import MaintenanceRefused
from .processor_positions import LocalStates, processor_positions
from .rewrite_changelog import rewrite_changelog
from .staging import Staging
from .state_installation import store_backup
from .state_split import Split, StateSplit

READ_WAIT_S = 1.0


class MisplacedKeys(PenstockError):
    """Events were written by the old number of buckets when there were more already: a person must choose."""


class ResizeStep(Enum):
    """One durable step of a change of the number of buckets; all of them may be repeated."""

    NOTE_BEGIN = "note that it begins"
    SPLIT_STATES = "split states aside"
    ADD_BUCKETS = "add buckets"
    PLACE_STATE = "put a state in place"
    STORE_BACKUP = "store it as the newest backup"
    REWRITE_CHANGELOG = "tell the changelog"
    SET_POSITIONS = "set positions"
    NOTE_END = "note that it is done"


class ResizeGap(NamedTuple):
    """A place where it can die: before a step, of a processor and a bucket where it is about these."""

    before: ResizeStep
    processor: str | None = None
    bucket: int | None = None


@dataclass(frozen=True)
class Resize:
    """What is to be done.

    Args:
        categories: those that get more buckets, since they are read together.
        before: how many they have.
        after: how many they will have.
        readers: who reads them.
        writers: who of the app writes them.
        borders: where each old bucket of each category ends.
    """

    categories: Sequence[str]
    before: int
    after: int
    readers: Sequence[type[Processor]]
    writers: Sequence[type[Processor]]
    borders: Mapping[str, Mapping[int, int]]

    @property
    def what(self) -> str:
        """What it is, in words."""
        return f"resize to {self.after} buckets"

    @property
    def keeps_time(self) -> bool:
        """Whether each new bucket has the keys of one old one, so that its event time goes on exactly."""
        return self.after % self.before == 0


def plan_resize(processors: Iterable[type[Processor]], around: Around, category: str, after: int) -> Resize:
    """Look what is to be done; nothing is changed.

    Args:
        processors: all who read or write the category, and who read with it what they read.
        around: where they are.
        category: its name.
        after: its new number of buckets.

    Raises:
        MaintenanceRefused: it cannot be done, or not yet.
        MissingCategory: there is no such category.
    """
    known, catalog = list(processors), around.bus.catalog
    names = _read_together(known, category)
    readers = [one for one in known if names.intersection(it.name for it in one.inputs())]
    writers = [one for one in known if names.intersection(it.name for it in one.outputs())]
    buckets = {name: catalog.describe(name).spec.buckets for name in sorted(names)}
    earlier = _half_done(readers, around.bus)
    if earlier is not None:
        borders = {name: earlier.borders[name] for name in sorted(names)}
        before = len(borders[category])
        if earlier.buckets != after:
            raise MaintenanceRefused(
                f"{earlier.processor}: a {earlier.what} is half done. Nothing was changed. Give that command again, which finishes it; then "
                "this one."
            )
    else:
        before = _one_number(buckets)
        borders = {name: dict(catalog.ends(name)) for name in sorted(names)}
    if after < before or (after == before and earlier is None):
        raise MaintenanceRefused(
            f"{category} has {before} buckets, and Kafka can only add some, not go to {after}. Nothing was changed. For fewer, "
            f"declare another category with {after} buckets, and a penstock.Repartition that writes {category} to it; then let its readers "
            "read that."
        )
    resize = Resize(sorted(names), before, after, readers, writers, borders)
    for processor in readers:
        _expect_movable(processor, resize)
        if earlier is None:
            _expect_drained(processor, resize, around)
    return resize


def _read_together(processors: Sequence[type[Processor]], category: str) -> set[str]:
    """Return a category with all that are read together with it, whose buckets have to be as many."""
    names, grew = {category}, True
    while grew:
        more = {it.name for one in processors for it in one.inputs() if names & {other.name for other in one.inputs()}}
        grew = not more <= names
        names |= more
    return names


def _half_done(readers: Iterable[type[Processor]], bus: Bus) -> MaintenanceOperation | None:
    """Return the first of the readers' moves that has begun and is not done."""
    for processor in readers:
        move = newest_maintenance(bus, processor.name)
        if move is not None and not move.done:
            if not move.buckets:
                raise MaintenanceRefused(
                    f"{processor.name}: a {move.what} is half done. Nothing was changed. Give that command again, which finishes it; then this "
                    "one."
                )
            return move
    return None


def _one_number(buckets: Mapping[str, int]) -> int:
    if len(set(buckets.values())) > 1:
        counts = ", ".join(f"{name} has {count}" for name, count in buckets.items())
        raise BucketMismatch(
            f"What is read together has different numbers of buckets already: {counts}. Nothing was changed. Nobody can read these together; "
            "bring those with fewer to the number of the others first, one by one, without their readers (`penstock category resize NAME N`)."
        )
    return next(iter(buckets.values()))


def _expect_movable(processor: type[Processor], resize: Resize) -> None:
    if is_remote(processor):
        names = ", ".join(resize.categories)
        raise MaintenanceRefused(
            f"{processor.__name__} keeps its state in a remote store, by bucket, and that is not split: half of a key's results would be where "
            f"nobody asks for them. Nothing was changed. Leave {names} as it is, and declare another category with {resize.after} buckets, to "
            f"which a penstock.Repartition writes it; let {processor.__name__} read that, under another name, from the first event. Filling a "
            "store from the archive does not help: there, too, events lie in the buckets in which they were written."
        )


def _expect_drained(processor: type[Processor], resize: Resize, around: Around) -> None:
    """See that a processor has read, and saved, all that is there; of its states that is seen when they are split."""
    facts, left = processor_positions(processor, around.bus), 0
    for category in processor.inputs():
        for bucket, end in resize.borders[category.name].items():
            left += end - facts.of(bucket).before[category.name]
    if left:
        raise MaintenanceRefused(
            f"{processor.__name__} has {left:,} events still to read, and they would have to be read by the buckets as they are. Nothing was "
            f"changed. Stop what writes {', '.join(resize.categories)}, let `penstock run … --until-end` read the rest (with "
            f"buckets={resize.before} declared, as it is now), and give this command again."
        )


def perform_resize(
    resize: Resize,
    around: Around,
    at_gap: Callable[[ResizeGap], None] = lambda _: None,
    *,
    accept_misplaced: bool = False,
) -> None:
    """Do what was planned; durable on return, and may be repeated.

    Args:
        resize: the plan.
        around: where it is done.
        at_gap: called in each gap between two steps.
        accept_misplaced: go on where events were written by the old number of buckets meanwhile.

    Raises:
        GroupInUse: a worker runs; nothing was changed.
        MaintenanceRefused: something is written meanwhile, or states are not as they have to be; nothing was changed.
        Misplaced: something was written when the buckets had been added; no reader starts until that is decided.
    """
    readers = [_Reader(processor, resize, around, at_gap) for processor in resize.readers]
    _prepare(resize, around.bus, readers)
    at_gap(ResizeGap(ResizeStep.ADD_BUCKETS))
    _add_buckets(resize, around.bus)
    if not accept_misplaced:
        expect_placed(resize, around.bus)
    for step in (ResizeStep.PLACE_STATE, ResizeStep.STORE_BACKUP, ResizeStep.REWRITE_CHANGELOG):
        for reader in readers:
            reader.move_states(step)
    for reader in readers:
        reader.set_positions()
    # All positions are set before the first is done: from then on it could not be told any more where the border was.
    for reader in readers:
        reader.end()


def _prepare(resize: Resize, bus: Bus, readers: Sequence[_Reader]) -> None:
    """Do what can be taken back: it is, where something stands against it before the first bucket is added."""
    is_new = _is_new(resize, bus)
    try:
        for writer in resize.writers:
            expect_idle(writer, bus)
        for reader in readers:
            reader.begin()
        for reader in readers:
            reader.split()
        if is_new:
            _expect_quiet(resize, bus)
    except PenstockError:
        if is_new:
            for reader in readers:
                reader.take_back()
        raise


def _is_new(resize: Resize, bus: Bus) -> bool:
    """Tell whether no bucket was added yet."""
    return all(bus.catalog.describe(name).spec.buckets == resize.before for name in resize.categories)


def _add_buckets(resize: Resize, bus: Bus) -> None:
    for name in resize.categories:
        if bus.catalog.describe(name).spec.buckets < resize.after:
            bus.catalog.resize(name, resize.after)


def _expect_quiet(resize: Resize, bus: Bus) -> None:
    """Refuse while somebody writes: the border would not be one."""
    for name in resize.categories:
        if dict(bus.catalog.ends(name)) != dict(resize.borders[name]):
            raise MaintenanceRefused(
                f"{name} was written to meanwhile. Nothing was changed. Stop whatever writes it, for as long as this takes: who knows only of "
                f"{resize.before} buckets would put keys where their state is no more. Then let its readers read the rest, and give this "
                "command again."
            )


def expect_placed(resize: Resize, bus: Bus) -> None:
    """See that what was written since the border lies where its key belongs now.

    Raises:
        Misplaced: with how many events do not.
    """
    for name in resize.categories:
        wrong = _misplaced(resize, bus, name)
        if wrong:
            keys = ", ".join(repr(key.decode(errors="backslashreplace")) for key in list(wrong)[:3])
            raise MisplacedKeys(
                f"{name}: {wrong.total():,} events of {len(wrong):,} keys ({keys}, …) were written by {resize.before} buckets after it had "
                f"{resize.after}: they lie where the states of their keys are no more. The buckets are added, nothing else is done, and "
                "its readers do not start. Stop what still writes so (restarted, it sees the new number). Then write these events again, "
                "if you can, and give this command again with --accept-misplaced: it goes on, and those that are misplaced are processed "
                "as those of keys of their own, beside the states that they belong to."
            )


def _misplaced(resize: Resize, bus: Bus, name: str) -> Counter[bytes]:
    """Return the keys, and how often each, that lie behind the border in a bucket that is not theirs."""
    ends = bus.catalog.stable_ends(name)
    begins = {Bucket(name, number): border for number, border in resize.borders[name].items() if ends[number] > border}
    found: Counter[bytes] = Counter()
    left = set(begins)
    if not left:
        return found
    with closing(bus.scanner([Position(bucket, begin) for bucket, begin in begins.items()])) as scanner:
        while left:
            polled = scanner.poll(READ_WAIT_S)
            for batch in polled.batches:
                keys = (message.key() for message in batch.messages)
                found.update(key for key in keys if key and bucket_of(key, resize.after) != batch.bucket.number)
            left -= {end.bucket for end in polled.ended}
    return found


class _Reader:
    """One who reads the categories, being moved."""

    def __init__(
        self, processor: type[Processor], resize: Resize, around: Around, at_gap: Callable[[ResizeGap], None]
    ) -> None:
        self._processor = processor
        self._name = processor.name
        self._resize = resize
        self._bus = around.bus
        self._at_gap = at_gap
        self._earlier = newest_maintenance(around.bus, processor.name)
        self._borders = {it.name: dict(resize.borders[it.name]) for it in processor.inputs()}
        self._move = self._noted()
        self._states = LocalStates(processor, around.states, around.backups)
        self._staging = Staging(self._states, self._move) if processor.state_shape() is not None else None

    def _gap(self, step: ResizeStep, bucket: int | None = None) -> None:
        self._at_gap(ResizeGap(step, self._name, bucket))

    @property
    def _is_done(self) -> bool:
        """Whether an earlier try has come to this one's end, and died with another's."""
        return self._earlier is not None and self._earlier.done and self._earlier.buckets == self._resize.after

    def _noted(self) -> MaintenanceOperation:
        earlier = self._earlier
        if earlier is not None and earlier.buckets == self._resize.after:
            return earlier
        number = 1 if earlier is None else earlier.next_number
        has_state = self._processor.state_shape() is not None
        numbers = dict.fromkeys(range(self._resize.after), number) if has_state else {}
        retyped = None if earlier is None or earlier.retyped is None else Retyped(earlier.retyped.shape, numbers)
        return MaintenanceOperation(
            self._name,
            self._resize.what,
            time.time_ns() // 1_000_000,
            done=False,
            numbers=numbers,
            rebuilds=not has_state,
            borders=self._borders,
            buckets=self._resize.after,
            retyped=retyped,
            earlier=earlier,
        )

    def begin(self) -> None:
        """Note that it begins, when no worker runs."""
        self._gap(ResizeStep.NOTE_BEGIN)
        if not self._is_done:
            record_begin(self._processor, self._bus, self._move, self._earlier, lambda: None)

    def take_back(self) -> None:
        """Note that nothing was done."""
        if self._staging is not None:
            self._staging.drop()
        cancel_maintenance(self._bus, self._name)

    def split(self) -> None:
        """Make the new states aside."""
        self._gap(ResizeStep.SPLIT_STATES)
        if self._staging is not None and not self._is_done:
            facts = processor_positions(self._processor, self._bus)
            splitting = StateSplit(self._states, self._how(), self._staging)
            splitting.make(lambda bucket: facts.of(bucket).committed)

    def _how(self) -> Split:
        resize, number = self._resize, max(self._move.numbers.values(), default=0)
        since = {} if self._move.earlier is None else self._move.earlier.numbers
        return Split(self._processor, resize.before, resize.after, self._borders, number, since)

    def move_states(self, step: ResizeStep) -> None:
        """Take a step that is about the states of all new buckets."""
        for bucket in range(self._resize.after):
            self._gap(step, bucket)
            if self._staging is not None and not self._is_done:
                self._move_state(step, bucket, self._staging)

    def _move_state(self, step: ResizeStep, bucket: int, staging: Staging) -> None:
        match step:
            case ResizeStep.PLACE_STATE:
                staging.place(bucket)
            case ResizeStep.STORE_BACKUP:
                store_backup(self._states, bucket)
            case ResizeStep.REWRITE_CHANGELOG:
                self._tell_changelog(bucket)

    def _tell_changelog(self, bucket: int) -> None:
        changelog, catalog = changelog_of(self._processor), self._bus.catalog
        if changelog is None or changelog.name not in catalog.names():
            return
        if catalog.describe(changelog.name).spec.buckets < self._resize.after:
            catalog.resize(changelog.name, self._resize.after)
        rewrite_changelog(self._bus, self._states, bucket)

    def set_positions(self) -> None:
        """Let the group go on at the border, and in new buckets at their beginning."""
        self._gap(ResizeStep.SET_POSITIONS)
        if not self._is_done:
            positions = [
                Position(Bucket(name, number), ends.get(number, 0))
                for name, ends in self._borders.items()
                for number in range(self._resize.after)
            ]
            register_inputs(self._bus, self._name, dict.fromkeys(self._borders, self._resize.after))
            self._bus.catalog.set_committed(self._name, positions)

    def end(self) -> None:
        """Note that it is done."""
        self._gap(ResizeStep.NOTE_END)
        if not self._is_done:
            record_maintenance(self._bus, msgspec.structs.replace(self._move, done=True, earlier=None))
        if self._staging is not None:
            self._staging.drop()
