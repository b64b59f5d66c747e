"""Two records of one key and event time, taken apart: which fields differ, by how much, and whether that is within a stated error."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.categories import AnyCategory
from ...processors.monoids import Monoid
from ...processors.monoids.equality import alike

Same = Callable[[Any, Any], bool]
_ABSENT = object()
_encode = msgspec.msgpack.Encoder(order="sorted").encode
_text = msgspec.json.Encoder().encode


class FieldDifference(NamedTuple):
    """One value within two records.

    Args:
        field: where it is, such as ``visits``, ``ranking[0].score`` or ``estimate.low``.
        stream: the stream's value as JSON; None where it has none.
        batch: the batch's value as JSON; None where it has none.
        absolute: how far apart two numbers are; None for what has no distance.
        relative: the same as a share of the larger of both, from 0 to 2.
        within_error: whether both lie within the error that the processor's monoid states; None where it states none, or where these
            values alone do not tell.
    """

    field: str
    stream: str | None
    batch: str | None
    absolute: float | None
    relative: float | None
    within_error: bool | None


class RecordComparer(NamedTuple):
    """How the records of a category are compared.

    Args:
        same: whether two values are taken to be equal.
        estimates: the monoid whose error rules, by field.
    """

    same: Same
    estimates: Mapping[str, Monoid[Any]]

    @staticmethod
    def of(category: AnyCategory, aggregator: type[Aggregator] | None) -> RecordComparer:
        """Return how to judge what an aggregator writes, or, without one, records that are equal to the last bit or differ."""
        if aggregator is None:
            return RecordComparer(identical, {})
        return RecordComparer(alike, estimates_of(category, aggregator))

    def differences(self, stream: Mapping[str, Any], batch: Mapping[str, Any]) -> list[FieldDifference]:
        """Return where two records differ, as plain values; nothing where they are the same."""
        found = []
        for name in {**stream, **batch}:
            left, right = stream.get(name, _ABSENT), batch.get(name, _ABSENT)
            apart = list(_apart(name, left, right, self.same))
            within = self.estimates[name].within_error(left, right) if apart and name in self.estimates else None
            found += [FieldDifference(*difference, within) for difference in apart]
        return found


def estimates_of(category: AnyCategory, aggregator: type[Aggregator]) -> Mapping[str, Monoid[Any]]:
    """Return which monoid each field of an aggregator's records is the value of, or a part of.

    Without a declaration that is the aggregator's own, for all fields but key and event time.
    """
    if aggregator.estimates:
        return aggregator.estimates
    own = {category.key, category.event_time}
    names = [field.encode_name for field in msgspec.structs.fields(category.record) if field.encode_name not in own]
    return dict.fromkeys(names, aggregator.monoid)


def identical(left: Any, right: Any) -> bool:
    """Whether two plain values are the same, floats to the last bit."""
    return bool(_encode(left) == _encode(right))


def distance(left: Any, right: Any) -> tuple[float | None, float | None]:
    """Return how far two numbers lie apart, and the same as a share of the larger; None for what has no distance."""
    if not (_is_number(left) and _is_number(right)):
        return None, None
    apart = float(abs(left - right))
    if not math.isfinite(apart):
        return None, None
    return apart, apart / max(abs(left), abs(right)) if apart else 0.0


def _apart(
    path: str, left: Any, right: Any, same: Same
) -> Iterator[tuple[str, str | None, str | None, float | None, float | None]]:
    """Give the innermost values that differ."""
    if left is not _ABSENT and right is not _ABSENT and same(left, right):
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for name in {**left, **right}:
            yield from _apart(f"{path}.{name}", left.get(name, _ABSENT), right.get(name, _ABSENT), same)
    elif isinstance(left, list) and isinstance(right, list):
        for place in range(max(len(left), len(right))):
            yield from _apart(f"{path}[{place}]", _at(left, place), _at(right, place), same)
    else:
        yield path, as_text(left), as_text(right), *distance(left, right)


def _at(values: list[Any], place: int) -> Any:
    return values[place] if place < len(values) else _ABSENT


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_text(value: Any) -> str | None:
    """Return a plain value as JSON; None for none at all. What JSON has no number for (NaN, infinities) is written as Python has it."""
    if value is _ABSENT:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return _text(value).decode()
