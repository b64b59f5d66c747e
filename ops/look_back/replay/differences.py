"""Comparison of a replay's outputs with those of the live processor or of another version.

other, replayed --by category, key and event time--> Comparison
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from ....backfill.compare import EXACT, Comparison, ComparisonSummary, RecordComparer, Sides, writes_updates
from ....processors.declare import Processor, plan_of
from .outputs import OutputRecord

_TOMBSTONE = {"tombstone": True}
"""The plain value of a tombstone in comparisons, where None is a missing record."""
OTHER_AND_REPLAY = Sides("other", "replay")
"""The sides of `penstock replay --compare`."""


class OutputSlot(NamedTuple):
    """The key of a comparison: outputs of both versions are matched by it."""

    category: str
    key: str
    event_time: int | None


def compare(
    processor: type[Processor],
    other: Iterable[OutputRecord],
    replayed: Iterable[OutputRecord],
    sides: Sides = OTHER_AND_REPLAY,
    examples: int | None = None,
) -> list[Comparison]:
    """Compare the outputs of two versions, by category of the replayed processor and of the other version.

    Args:
        processor: the replayed processor.
        other: the outputs of the other version.
        replayed: the outputs of the replay.
        sides: the names of the two versions.
        examples: how many differences of each kind to keep as examples; None for all.
    """
    ours, theirs = by_slot(processor, replayed), by_slot(processor, other)
    declared = {category.name: category for category in plan_of(processor).outputs}
    undeclared = sorted({slot.category for slot in (*ours, *theirs)} - declared.keys())
    comparers = {name: RecordComparer.of(category, [processor]) for name, category in declared.items()}
    summaries = {name: ComparisonSummary(examples_per_kind=examples) for name in (*declared, *undeclared)}
    for slot in {**ours, **theirs}:
        comparer = comparers.get(slot.category, EXACT)
        for pair in comparer.pairs(slot.key, slot.event_time, theirs.get(slot, []), ours.get(slot, [])):
            summaries[slot.category].add(pair)
    return [summary.comparison(category, (processor.__name__,), sides) for category, summary in summaries.items()]


def by_slot(processor: type[Processor], outputs: Iterable[OutputRecord]) -> dict[OutputSlot, list[Any]]:
    """Group the values of outputs by slot; of updates, keep the last."""
    slots: defaultdict[OutputSlot, list[Any]] = defaultdict(list)
    for output in outputs:
        values = slots[OutputSlot(output.category, output.key, output.event_time)]
        if writes_updates(processor, output.category):
            values.clear()
        values.append(_TOMBSTONE if output.value is None else output.value)
    return dict(slots)
