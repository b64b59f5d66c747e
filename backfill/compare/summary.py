"""Summary of a comparison: counts, differences by field, and examples.

RecordPair --ComparisonSummary.add--> summary of a part --merge--> Comparison
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf

import msgspec

from .comparer import FieldDifference, Kind, RecordPair, Sides

EXAMPLES = 10
"""How many examples of each kind of difference a batch comparison keeps."""

_LIST_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class FieldSummary:
    """The differences of one field over all pairs of different records.

    Args:
        field: its path without list indexes, such as ``ranking[].score``.
        differing: the number of differing values.
        greatest: the greatest absolute difference; None if the values are not numbers.
        mean: the mean absolute difference.
        greatest_relative: the greatest relative difference, from 0 to 2.
        mean_relative: the mean relative difference.
        beyond_error: the number of values beyond the stated error; None if no error applies or none could be decided.
    """

    field: str
    differing: int
    greatest: float | None
    mean: float | None
    greatest_relative: float | None
    mean_relative: float | None
    beyond_error: int | None


@dataclass(frozen=True)
class Comparison:
    """The agreement of two results of one category.

    Args:
        category: its name.
        processors: the names of the classes that write it.
        sides: the names of the two results.
        equal: the number of records that both results have.
        only_left: the number of records that only the left result has.
        only_right: the number of records that only the right result has.
        different: the number of records with the same key and event time but another value.
        within_error: the number of different records whose differences all lie within the error that the processor's monoid states.
        fields: the differences by field, in order of the field's name.
        examples: differences in order of event time and key. A replay has all of them, a batch comparison the earliest of each kind.
        note: a remark for the reader; may be empty.
    """

    category: str
    processors: tuple[str, ...]
    sides: Sides
    equal: int = 0
    only_left: int = 0
    only_right: int = 0
    different: int = 0
    within_error: int = 0
    fields: tuple[FieldSummary, ...] = ()
    examples: tuple[RecordPair, ...] = ()
    note: str = ""

    @property
    def differing(self) -> int:
        """The number of records that differ by more than a stated error."""
        return self.only_left + self.only_right + self.different - self.within_error

    @property
    def share(self) -> float:
        """The share of records that differ by more than a stated error, from 0 to 1; 0 without records."""
        total = self.equal + self.only_left + self.only_right + self.different
        return self.differing / total if total else 0.0

    @property
    def agrees(self) -> bool:
        """Whether no record differs by more than a stated error."""
        return not self.differing

    def examples_by_key(self) -> Mapping[str | None, int]:
        """Return the number of examples per key, the most frequent key first."""
        return dict(Counter(pair.key for pair in self.examples).most_common())

    def described(self) -> dict[str, object]:
        """Return the comparison as JSON values, with the names of the sides in the keys."""
        return {
            "category": self.category,
            "processors": self.processors,
            "equal": self.equal,
            f"only_{self.sides.left}": self.only_left,
            f"only_{self.sides.right}": self.only_right,
            "different": self.different,
            "within_error": self.within_error,
            "share": self.share,
            "agrees": self.agrees,
            "fields": [asdict(field) for field in self.fields],
            "examples": [pair.described(self.sides) for pair in self.examples],
            "note": self.note,
        }


class _Measure(msgspec.Struct, array_like=True):
    """Sum and maximum of the differences of numbers."""

    count: int = 0
    total: float = 0.0
    greatest: float | None = None

    def add(self, value: float | None) -> None:
        if value is not None:
            self.merge(_Measure(1, value, value))

    def merge(self, other: _Measure) -> None:
        self.count += other.count
        self.total += other.total
        self.greatest = max((g for g in (self.greatest, other.greatest) if g is not None), default=None)

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


class _FieldTotals(msgspec.Struct, array_like=True):
    differing: int = 0
    absolute: _Measure = msgspec.field(default_factory=_Measure)
    relative: _Measure = msgspec.field(default_factory=_Measure)
    decided: int = 0
    beyond_error: int = 0

    def add(self, difference: FieldDifference) -> None:
        self.differing += 1
        self.absolute.add(difference.absolute)
        self.relative.add(difference.relative)
        self.decided += difference.within_error is not None
        self.beyond_error += difference.within_error is False

    def merge(self, other: _FieldTotals) -> None:
        self.differing += other.differing
        self.absolute.merge(other.absolute)
        self.relative.merge(other.relative)
        self.decided += other.decided
        self.beyond_error += other.beyond_error

    def summary(self, field: str) -> FieldSummary:
        return FieldSummary(
            field,
            self.differing,
            self.absolute.greatest,
            self.absolute.mean,
            self.relative.greatest,
            self.relative.mean,
            self.beyond_error if self.decided else None,
        )


class ComparisonSummary(msgspec.Struct, array_like=True):
    """Counts, field totals and examples of compared pairs; summaries of parts merge into the summary of the whole.

    Args:
        examples_per_kind: how many of the earliest examples of each kind to keep; None for all.
    """

    examples_per_kind: int | None = EXAMPLES
    equal: int = 0
    counts: dict[Kind, int] = {}
    within_error: int = 0
    fields: dict[str, _FieldTotals] = {}
    examples: dict[Kind, list[RecordPair]] = {}

    def add(self, pair: RecordPair) -> None:
        """Count one pair."""
        kind = pair.kind
        if kind is Kind.EQUAL:
            self.equal += 1
            return
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.within_error += pair.within_error
        for difference in pair.fields:
            self._totals(_LIST_INDEX.sub("[]", difference.field)).add(difference)
        self._keep(kind, [pair])

    def merge(self, other: ComparisonSummary) -> None:
        """Add the summary of another part."""
        self.equal += other.equal
        self.within_error += other.within_error
        for kind, count in other.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + count
        for field, totals in other.fields.items():
            self._totals(field).merge(totals)
        for kind, pairs in other.examples.items():
            self._keep(kind, pairs)

    def comparison(self, category: str, processors: tuple[str, ...], sides: Sides, note: str = "") -> Comparison:
        """Return the result for a category."""
        examples = [pair for kind in Kind if kind in self.examples for pair in self._earliest(kind)]
        return Comparison(
            category,
            processors,
            sides,
            equal=self.equal,
            only_left=self.counts.get(Kind.ONLY_LEFT, 0),
            only_right=self.counts.get(Kind.ONLY_RIGHT, 0),
            different=self.counts.get(Kind.DIFFERENT, 0),
            within_error=self.within_error,
            fields=tuple(totals.summary(field) for field, totals in sorted(self.fields.items())),
            examples=tuple(sorted(examples, key=by_time_and_key)),
            note=note,
        )

    def _totals(self, field: str) -> _FieldTotals:
        return self.fields.setdefault(field, _FieldTotals())

    def _keep(self, kind: Kind, pairs: Sequence[RecordPair]) -> None:
        kept = self.examples.setdefault(kind, [])
        kept += pairs
        # Sorting only now and then keeps the cost per pair constant.
        if self.examples_per_kind is not None and len(kept) > 100 * self.examples_per_kind:
            self.examples[kind] = self._earliest(kind)

    def _earliest(self, kind: Kind) -> list[RecordPair]:
        return sorted(self.examples[kind], key=by_time_and_key)[: self.examples_per_kind]


def by_time_and_key(pair: RecordPair) -> tuple[float, str]:
    """Return the sort key of examples: event time, then key. Tombstones are last."""
    return (inf if pair.event_time is None else pair.event_time), pair.key or ""
