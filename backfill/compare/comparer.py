"""Comparison of two results of one category: records matched by key and event time.

records of a key and event time --RecordComparer--> RecordPair --> ComparisonSummary

`penstock compare` runs this code in Spark's Python workers, `penstock replay --compare` in its own process.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec

from ...processors.declare import Aggregator, AnyCategory, Processor, as_tuple, fields_of
from ...processors.monoids import Monoid, alike

_ABSENT = object()
_encode = msgspec.msgpack.Encoder(order="sorted").encode
_encode_json = msgspec.json.Encoder().encode


class Kind(Enum):
    """How the two records of a pair relate."""

    EQUAL = "equal"
    ONLY_LEFT = "only left"
    ONLY_RIGHT = "only right"
    DIFFERENT = "different"


class Sides(NamedTuple):
    """Names of the two results, such as stream and batch."""

    left: str
    right: str

    def kind_name(self, kind: Kind) -> str:
        """Return the kind with the name of the side, such as "only in stream"."""
        return {Kind.ONLY_LEFT: f"only in {self.left}", Kind.ONLY_RIGHT: f"only in {self.right}"}.get(kind, kind.value)


STREAM_AND_BATCH = Sides("stream", "batch")
"""The sides of `penstock compare`."""


class FieldDifference(NamedTuple):
    """One value that differs between two records.

    Args:
        field: its path, such as ``visits``, ``ranking[0].score`` or ``estimate.low``.
        left: the left value as JSON; None where the left record has none.
        right: the right value as JSON; None where the right record has none.
        absolute: the absolute difference of two numbers; None for other values.
        relative: the difference as a share of the larger number, from 0 to 2.
        within_error: whether the difference lies within the error that the processor's monoid states; None where the monoid states no
            error, or where these two values are not enough to decide.
    """

    field: str
    left: str | None
    right: str | None
    absolute: float | None = None
    relative: float | None = None
    within_error: bool | None = None


class RecordPair(msgspec.Struct, frozen=True, array_like=True):
    """Two records with the same key and event time, or one record without a counterpart.

    Args:
        key: the key of both.
        event_time: the event time of both (milliseconds since 1970, UTC); None for tombstones.
        left: the left record as plain values; None where there is none.
        right: the right record as plain values; None where there is none.
        fields: the values that differ; empty for equal records and for single ones.
    """

    key: str | None
    event_time: int | None
    left: Any
    right: Any
    fields: list[FieldDifference]

    @property
    def kind(self) -> Kind:
        """How the two relate."""
        if self.left is None:
            return Kind.ONLY_RIGHT
        if self.right is None:
            return Kind.ONLY_LEFT
        return Kind.DIFFERENT if self.fields else Kind.EQUAL

    @property
    def within_error(self) -> bool:
        """Whether every differing value lies within its stated error."""
        return bool(self.fields) and all(field.within_error for field in self.fields)

    def described(self, sides: Sides) -> dict[str, object]:
        """Return the pair as JSON values, with the names of the sides as keys."""
        fields = [
            {sides.left if name == "left" else sides.right if name == "right" else name: value for name, value in pairs}
            for pairs in (field._asdict().items() for field in self.fields)
        ]
        place = {"kind": sides.kind_name(self.kind), "key": self.key, "event_time": self.event_time}
        return {**place, sides.left: self.left, sides.right: self.right, "fields": fields}


class RecordComparer(NamedTuple):
    """The rules for comparing the records of one category.

    Args:
        same: whether two plain values are equal.
        estimates: the monoid whose stated error applies, by field.
    """

    same: Callable[[Any, Any], bool]
    estimates: Mapping[str, Monoid[Any]]

    @staticmethod
    def of(category: AnyCategory, processors: Iterable[type[Processor]]) -> RecordComparer:
        """Return the rules for a category.

        An aggregator's results are compared with a tolerance for rounding, since the grouping of partials decides the last digits of a
        float. All other records are compared exactly.

        Args:
            category: the category.
            processors: the processors that write it.
        """
        for processor in processors:
            if issubclass(processor, Aggregator) and writes_updates(processor, category.name):
                return RecordComparer(alike, estimates_of(category, processor))
        return EXACT

    def differences(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> list[FieldDifference]:
        """Return the values that differ between two records; empty if the records are equal."""
        found = []
        for name in {**left, **right}:
            values = left.get(name, _ABSENT), right.get(name, _ABSENT)
            fields = list(_differences(name, *values, self.same))
            if fields and name in self.estimates:
                within = self.estimates[name].within_error(*values)
                fields = [field._replace(within_error=within) for field in fields]
            found += fields
        return found

    def pair(self, key: str | None, event_time: int | None, left: Any, right: Any) -> RecordPair:
        """Compare two records, of which one may be None."""
        fields = [] if left is None or right is None else self.differences(left, right)
        return RecordPair(key, event_time, left, right, fields)

    def pairs(
        self, key: str | None, event_time: int | None, left: Sequence[Any], right: Sequence[Any]
    ) -> Iterator[RecordPair]:
        """Match the records of one key and event time: equal records first, the remaining ones in their order."""
        equal, left_rest, right_rest = _match_identical(left, right)
        for record in equal:
            yield RecordPair(key, event_time, record, record, [])
        if self.same is identical:
            unmatched = left_rest
        else:
            unmatched = []
            for record in left_rest:
                index = next((n for n, other in enumerate(right_rest) if not self.differences(record, other)), None)
                if index is None:
                    unmatched.append(record)
                else:
                    yield RecordPair(key, event_time, record, right_rest.pop(index), [])
        for unpaired, other in zip_longest(unmatched, right_rest):
            yield self.pair(key, event_time, unpaired, other)


def writes_updates(processor: type[Processor], category: str) -> bool:
    """Return whether the last record of a key and event time replaces the earlier ones.

    This holds for the results of an aggregator, unless the aggregator writes differences. Late events that an aggregator forwards are
    ordinary events.
    """
    if not issubclass(processor, Aggregator) or processor.emit.differences:
        return False
    return category in {written.name for written in as_tuple(processor.writes)}


def estimates_of(category: AnyCategory, aggregator: type[Aggregator]) -> Mapping[str, Monoid[Any]]:
    """Return the monoid that computes each field of an aggregator's records.

    If the aggregator declares no estimates, its own monoid applies to all fields except key and event time.
    """
    if aggregator.estimates:
        return aggregator.estimates
    own = {*category.key_fields, category.times.column}
    names = [name for name in fields_of(category.record) if name not in own]
    return dict.fromkeys(names, aggregator.monoid)


def identical(left: Any, right: Any) -> bool:
    """Return whether two plain values are equal, floats to the last bit."""
    return bool(_encode(left) == _encode(right))


EXACT = RecordComparer(identical, {})
"""Compares records exactly."""


def _match_identical(left: Sequence[Any], right: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the records that both sides have, then the rest of each side."""
    unmatched = Counter(map(_encode, right))
    equal: list[Any] = []
    left_rest: list[Any] = []
    right_rest: list[Any] = []
    for record in left:
        encoded = _encode(record)
        (equal if unmatched[encoded] else left_rest).append(record)
        unmatched[encoded] = max(unmatched[encoded] - 1, 0)
    for record in right:
        encoded = _encode(record)
        if unmatched[encoded]:
            unmatched[encoded] -= 1
            right_rest.append(record)
    return equal, left_rest, right_rest


def _differences(path: str, left: Any, right: Any, same: Callable[[Any, Any], bool]) -> Iterator[FieldDifference]:
    """Yield the innermost values that differ."""
    if left is not _ABSENT and right is not _ABSENT and same(left, right):
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for name in {**left, **right}:
            yield from _differences(f"{path}.{name}", left.get(name, _ABSENT), right.get(name, _ABSENT), same)
    elif isinstance(left, list) and isinstance(right, list):
        for index, values in enumerate(zip_longest(left, right, fillvalue=_ABSENT)):
            yield from _differences(f"{path}[{index}]", *values, same)
    else:
        yield FieldDifference(path, as_json_text(left), as_json_text(right), *distance(left, right))


def distance(left: Any, right: Any) -> tuple[float | None, float | None]:
    """Return the absolute difference of two numbers and its share of the larger number; None for other values."""
    if not (_is_number(left) and _is_number(right)):
        return None, None
    absolute = float(abs(left - right))
    if not math.isfinite(absolute):
        return None, None
    return absolute, absolute / max(abs(left), abs(right)) if absolute else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_json_text(value: Any) -> str | None:
    """Return a plain value as JSON; None if absent. NaN and infinities, which JSON lacks, are written as in Python."""
    if value is _ABSENT:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return _encode_json(value).decode()
