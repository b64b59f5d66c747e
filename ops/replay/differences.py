"""What two versions gave for the same events, set against each other by category, key and event time.

theirs, ours --by category, key and event time--> equal, different (in which fields, by how much), or only one side's
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from ...backfill.compare.record_difference import FieldDifference, RecordComparer, identical
from ...processors.declare.aggregator import Aggregator
from ...processors.declare.categories import AnyCategory
from ...processors.declare.processor import Processor, as_tuple
from .outputs import OutputRecord

ONLY_THEIRS, ONLY_OURS, DIFFERENT = "only theirs", "only ours", "different"


class OutputSlot(NamedTuple):
    """What records of two versions are matched by."""

    category: str
    key: str
    event_time: int


class Differing(NamedTuple):
    """What is not the same in both.

    Args:
        slot: where.
        kind: "different", "only theirs" or "only ours".
        theirs: the record's fields; None where they have none.
        ours: likewise.
        fields: in what they differ, `stream` standing for theirs and `batch` for ours.
    """

    slot: OutputSlot
    kind: str
    theirs: Any
    ours: Any
    fields: Sequence[FieldDifference]

    def kind_to(self, theirs: str) -> str:
        """Return the kind in words, where they are called something."""
        return {ONLY_THEIRS: f"only in {theirs}", ONLY_OURS: "only in the replay"}.get(self.kind, self.kind)


@dataclass(frozen=True)
class ReplayComparison:
    """What came of a category in both versions.

    Args:
        category: its name.
        equal: how many records are the same.
        differing: the others, in order of key and event time.
    """

    category: str
    equal: int
    differing: Sequence[Differing]

    def count(self, kind: str) -> int:
        """Return how many of the others are of a kind."""
        return sum(one.kind == kind for one in self.differing)

    def fields(self) -> Mapping[str, int]:
        """Return in how many pairs each field differs, the most frequent first."""
        names = Counter(field.field for one in self.differing for field in one.fields)
        return dict(names.most_common())

    def keys(self) -> Mapping[str, int]:
        """Return how many records of each key are not the same, those with the most first."""
        return dict(Counter(one.slot.key for one in self.differing).most_common())


def compare(
    processor: type[Processor], theirs: Iterable[OutputRecord], ours: Iterable[OutputRecord]
) -> list[ReplayComparison]:
    """Compare what two versions gave, each category of the processor's outputs, and any that only the other version has."""
    mine, other = by_slot(processor, ours), by_slot(processor, theirs)
    declared = {category.name: category for category in processor.outputs()}
    names = [*declared, *sorted({slot.category for slot in (*mine, *other)} - declared.keys())]
    return [_compared(processor, name, declared.get(name), other, mine) for name in names]


def by_slot(processor: type[Processor], told: Iterable[OutputRecord]) -> dict[OutputSlot, list[Any]]:
    """Return what records say by where they belong: of updates, the last one alone."""
    slots: defaultdict[OutputSlot, list[Any]] = defaultdict(list)
    updated = updates_of(processor)
    for one in told:
        slot = OutputSlot(one.category, one.key, one.event_time)
        slots[slot] = [one.value] if one.category in updated else [*slots[slot], one.value]
    return dict(slots)


def updates_of(processor: type[Processor]) -> frozenset[str]:
    """Return the names of the categories in which the last record of a key and event time is the one that counts."""
    if not issubclass(processor, Aggregator) or processor.emit.differences:
        return frozenset()
    return frozenset(category.name for category in as_tuple(processor.writes))


def _compared(
    processor: type[Processor],
    name: str,
    category: AnyCategory | None,
    theirs: Mapping[OutputSlot, list[Any]],
    ours: Mapping[OutputSlot, list[Any]],
) -> ReplayComparison:
    aggregator = processor if issubclass(processor, Aggregator) and name in updates_of(processor) else None
    judge = RecordComparer(identical, {}) if category is None else RecordComparer.of(category, aggregator)
    equal, differing = 0, []
    for slot in sorted(slot for slot in {**theirs, **ours} if slot.category == name):
        same, rest = _paired(judge, slot, theirs.get(slot, []), ours.get(slot, []))
        equal += same
        differing += rest
    return ReplayComparison(name, equal, differing)


def _paired(judge: RecordComparer, slot: OutputSlot, theirs: list[Any], ours: list[Any]) -> tuple[int, list[Differing]]:
    """Match what both have in one place: what is the same first, then one by one."""
    left, unmatched = list(theirs), []
    for record in ours:
        twin = next((index for index, other in enumerate(left) if not judge.differences(other, record)), None)
        if twin is None:
            unmatched.append(record)
        else:
            del left[twin]
    return len(ours) - len(unmatched), list(_differing(judge, slot, left, unmatched))


def _differing(judge: RecordComparer, slot: OutputSlot, theirs: list[Any], ours: list[Any]) -> Iterator[Differing]:
    for their, our in zip_longest(theirs, ours):
        if our is None:
            yield Differing(slot, ONLY_THEIRS, their, None, ())
        elif their is None:
            yield Differing(slot, ONLY_OURS, None, our, ())
        else:
            yield Differing(slot, DIFFERENT, their, our, judge.differences(their, our))
