"""Folds columns of observations into partials, a group at a time: the same partials as a monoid's `fold`, event by event.

Sums of floats are added in the order of events, because they round. Where numpy would compute another value, nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from ..declare import KeyGroups, flags_of, numbers_of
from ..errors import USER_CODE_ERRORS
from ..monoids import Count, DistinctValues, Earliest, Latest, Max, Mean, Min, Monoid, OfValues, Sum, TupleOf
from ..time import WindowAssignment

if TYPE_CHECKING:
    import pyarrow as pa

Groups = npt.NDArray[np.int64]
"""The index of each observation's group."""
MISSING: Any = object()
"""In place of the partial of a group without earlier observations."""
_INT64_MAX = 2**63 - 1


class SlotGroups(NamedTuple):
    """The distinct keys and windows of a batch.

    Args:
        slots: the key and the start of each window, in order of their first observations.
        rows: the event of each observation; None if they are the events.
        groups: the index of each observation's slot.
    """

    slots: list[tuple[str, int]]
    rows: npt.NDArray[np.int64] | None
    groups: Groups


def slot_groups(keys: KeyGroups, assignment: WindowAssignment, observed: npt.NDArray[np.bool_] | None) -> SlotGroups:
    """Group events by key and window.

    Args:
        keys: the keys.
        assignment: the windows.
        observed: whether each event has an observation; None if all have one.
    """
    same = assignment.starts[0] if assignment.starts else None
    if observed is None and isinstance(assignment.rows, range) and assignment.starts.count(same) == len(keys.groups):
        return SlotGroups([(name, int(same or 0)) for name in keys.names], None, keys.groups)
    starts, rows = np.asarray(assignment.starts, np.int64), None
    if observed is not None or not isinstance(assignment.rows, range):
        rows = np.asarray(assignment.rows, np.int64)
        if observed is not None:
            starts, rows = starts[observed[rows]], rows[observed[rows]]
    of_key = keys.groups if rows is None else keys.groups[rows]
    begins, begin = np.unique(starts, return_inverse=True)
    pairs, first, group = np.unique(of_key * max(len(begins), 1) + begin, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    slots = [
        (keys.names[key], start)
        for key, start in zip(
            (pairs[order] // max(len(begins), 1)).tolist(),
            begins[pairs[order] % max(len(begins), 1)].tolist(),
            strict=True,
        )
    ]
    return SlotGroups(slots, rows, rank[group])


def fold_groups(
    monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]
) -> list[Any] | None:
    """Return the partial of each group; None where it must be folded one observation after the other.

    Args:
        monoid: the monoid.
        observations: its observations, in the order of events; none is null.
        groups: the group of each observation.
        before: the partial of each group before them, or `MISSING`; each group has an observation.
    """
    fold = _FOLDS.get(type(monoid))
    return None if fold is None else fold(monoid, observations, groups, before)


def count_groups(groups: Groups, before: Sequence[Any]) -> list[Any]:
    """Return the number of observations of each group, added to the number before them, or `MISSING`."""
    counts = np.bincount(groups, minlength=len(before)).tolist()
    return [count if earlier is MISSING else earlier + count for earlier, count in zip(before, counts, strict=True)]


def _count(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> list[Any]:  # noqa: ARG001 - the functions share a signature
    return count_groups(groups, before)


def _sum(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> list[Any] | None:  # noqa: ARG001 - as above
    kind = str(observations.type)
    if kind not in {"int64", "double"} or not _have_type(before, int if kind == "int64" else float):
        return None
    values = numbers_of(observations)
    if kind == "double":
        sums = np.array([0.0 if earlier is MISSING else earlier for earlier in before])
        with np.errstate(all="ignore"):
            np.add.at(sums, groups, values)  # one after the other
        return list(sums.tolist())
    if len(values) and max(abs(int(values.min())), abs(int(values.max()))) * len(values) > _INT64_MAX:
        return None
    whole = np.zeros(len(before), np.int64)
    np.add.at(whole, groups, values)
    return [
        of_group if earlier is MISSING else earlier + of_group
        for earlier, of_group in zip(before, whole.tolist(), strict=True)
    ]


def _mean(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> list[Any] | None:
    sums = _sum(monoid, observations, groups, _parts(before, 0))
    return None if sums is None else list(zip(sums, count_groups(groups, _parts(before, 1)), strict=True))


def _min(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> list[Any] | None:  # noqa: ARG001 - as above
    return _extreme(observations, groups, before, np.minimum, _INT64_MAX)


def _max(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> list[Any] | None:  # noqa: ARG001 - as above
    return _extreme(observations, groups, before, np.maximum, -_INT64_MAX - 1)


def _extreme(
    observations: pa.Array[Any], groups: Groups, before: Sequence[Any], choose: np.ufunc, identity: int
) -> list[Any] | None:
    if str(observations.type) != "int64" or not _have_type(before, int):
        return None  # of floats, 0.0 equals -0.0, and NaN has no order
    chosen = np.array([identity if earlier is MISSING else earlier for earlier in before], np.int64)
    choose.at(chosen, groups, numbers_of(observations))
    return list(chosen.tolist())


def _tuple(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> list[Any] | None:
    inner = cast("TupleOf", monoid).monoids
    if not str(observations.type).startswith("struct<") or observations.type.num_fields != len(inner):
        return None
    fields = cast("pa.StructArray", observations).flatten()
    found = [
        _folded(of_field, field, groups, _parts(before, at))
        for at, (of_field, field) in enumerate(zip(inner, fields, strict=True))
    ]
    complete = [column for column in found if column is not None]
    return list(zip(*complete, strict=True)) if len(complete) == len(found) else None


def _folded(
    monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]
) -> list[Any] | None:
    """Return the partial of each group, if need be one observation after the other; None if one of them is not valid."""
    if observations.null_count and type(monoid) is not OfValues:
        return None
    found = fold_groups(monoid, observations, groups, before)
    return _one_by_one(monoid, observations, groups, before) if found is None else found


def _one_by_one(
    monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]
) -> list[Any] | None:
    if monoid.folds_in_place or str(observations.type) not in _PLAIN:
        return None  # a partial would keep the observations before an invalid one
    partials, fold, lift = list(before), monoid.fold, monoid.lift
    try:
        for group, observation in zip(groups.tolist(), observations.to_pylist(), strict=True):
            earlier = partials[group]
            partials[group] = lift(observation) if earlier is MISSING else fold(earlier, observation)
    except USER_CODE_ERRORS:
        return None
    return partials


def _by_time(
    monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]
) -> list[Any] | None:
    """Choose the earliest or latest observation of each group: of most of them, the time alone decides."""
    if not str(observations.type).startswith("struct<") or observations.type.num_fields != 2:
        return None
    times, values = cast("pa.StructArray", observations).flatten()
    if times.null_count or values.null_count or str(times.type) != "int64" or str(values.type) not in _PLAIN:
        return None
    choose, limit = (np.minimum, _INT64_MAX) if isinstance(monoid, Earliest) else (np.maximum, -_INT64_MAX - 1)
    chosen, moments = np.full(len(before), limit, np.int64), numbers_of(times)
    choose.at(chosen, groups, moments)
    rows = np.flatnonzero(moments == chosen[groups])
    pairs = zip(moments[rows].tolist(), values.take(rows).to_pylist(), strict=True)
    partials, fold = list(before), monoid.fold
    for group, pair in zip(groups[rows].tolist(), pairs, strict=True):
        earlier = partials[group]
        partials[group] = pair if earlier is MISSING else fold(earlier, pair)
    return partials


def _of_values(
    monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]
) -> list[Any] | None:
    """Fold the values that are not null: the partial of a group without one is None."""
    inner = cast("OfValues", monoid).inner
    earlier = [MISSING if one is None else one for one in before]
    if not observations.null_count:
        return fold_groups(inner, observations, groups, earlier)
    present, own = np.unique(groups[flags_of(observations.is_valid())], return_inverse=True)
    found = fold_groups(inner, observations.drop_null(), own, [earlier[group] for group in present.tolist()])
    if found is None:
        return None
    partials = [None if one is MISSING else one for one in earlier]
    for group, partial in zip(present.tolist(), found, strict=True):
        partials[group] = partial
    return partials


def _distinct(
    monoid: Monoid[Any],  # noqa: ARG001 - as above
    observations: pa.Array[Any],
    groups: Groups,
    before: Sequence[Any],
) -> list[Any] | None:
    """Count the distinct values of each group, in the order of their first observations."""
    if sum(len(earlier) for earlier in before if isinstance(earlier, dict)) > _MOST_COPIED * len(observations):
        return None  # a copy of the partials would take longer than the observations
    if observations.null_count:
        groups, observations = groups[flags_of(observations.is_valid())], observations.drop_null()
    encoded = observations.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if any(value != value for value in values):  # noqa: PLR0124 - NaN, which equals no key of a dict
        return None
    pairs, first, counts = np.unique(
        groups * len(values) + numbers_of(encoded.indices), return_index=True, return_counts=True
    )
    partials = [dict(earlier) if isinstance(earlier, dict) else None for earlier in before]
    order = np.argsort(first)
    for pair, count in zip(pairs[order].tolist(), counts[order].tolist(), strict=True):
        group, code = divmod(pair, len(values))
        partial = partials[group] = {} if partials[group] is None else partials[group]
        partial[values[code]] = partial.get(values[code], 0) + count
    return partials


_PLAIN = frozenset({"int64", "double", "string", "bool"})
_MOST_COPIED = 20
"""How many values of partials are copied for each observation."""


def _parts(before: Sequence[Any], at: int) -> list[Any]:
    return [MISSING if earlier is MISSING else earlier[at] for earlier in before]


def _have_type(before: Sequence[Any], kind: type) -> bool:
    return all(earlier is MISSING or type(earlier) is kind for earlier in before)


_FOLDS: dict[type, Callable[[Any, Any, Groups, Sequence[Any]], list[Any] | None]] = {
    Count: _count,
    Sum: _sum,
    Mean: _mean,
    Min: _min,
    Max: _max,
    Earliest: _by_time,
    Latest: _by_time,
    TupleOf: _tuple,
    OfValues: _of_values,
    DistinctValues: _distinct,
}
