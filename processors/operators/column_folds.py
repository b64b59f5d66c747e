"""Folds columns of observations into partials, a group at a time: the same partials as a monoid's `fold`, event by event.

Sums of floats are added in the order of events, because they round. Monoids, and types of columns, that numpy would compute otherwise are
folded one observation after the other. Workers and Spark's tasks fold here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from ..declare import KeyGroups, flags_of, numbered, numbers_of
from ..errors import USER_CODE_ERRORS
from ..monoids import (
    Count,
    DistinctValues,
    Earliest,
    Latest,
    MapOf,
    Max,
    Mean,
    Min,
    Monoid,
    OfValues,
    Sum,
    TopKeys,
    TupleOf,
)
from ..time import Run, WindowAssignment
from .column_steps import plain

if TYPE_CHECKING:
    import pyarrow as pa

Groups = npt.NDArray[np.int64]
"""The index of each observation's group."""
Partials = list[Any] | None
"""The partial of each group; None where the columns cannot be folded."""
MISSING: Any = object()
"""In place of the partial of a group without earlier observations."""
_INT64_MAX = 2**63 - 1
_WHOLE = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
_FLOATING = frozenset({"halffloat", "float", "double"})
_ORDERED = frozenset({"int64", "double", "string", "bool"})
"""Types of columns whose values all have an order, save NaN."""
_MOST_COPIED = 20
"""How many values of partials are copied for each group and each of its new entries."""


class SlotGroups(NamedTuple):
    """The distinct keys and windows of a batch: its slots.

    Args:
        keys: the key of each slot. The slots of a window are adjacent, in the order of their first observations.
        windows: the slots of each window, in the same order.
        rows: the event of each observation; None if they are the events.
        groups: the index of each observation's slot.
    """

    keys: list[str]
    windows: list[Run]
    rows: npt.NDArray[np.int64] | None
    groups: Groups


def slot_groups(keys: KeyGroups, assignment: WindowAssignment, observed: npt.NDArray[np.bool_] | None) -> SlotGroups:
    """Group events by key and window.

    Args:
        keys: the keys.
        assignment: the windows.
        observed: whether each event has an observation; None if all have one.
    """
    if observed is None and isinstance(assignment.rows, range) and assignment.have_one_window:
        return SlotGroups(keys.names, [Run(0, len(keys.names), assignment.starts[0])], None, keys.groups)
    starts, rows = np.asarray(assignment.starts, np.int64), None
    if observed is not None or not isinstance(assignment.rows, range):
        rows = np.asarray(assignment.rows, np.int64)
        if observed is not None:
            starts, rows = starts[observed[rows]], rows[observed[rows]]
    begins, window = numbered(starts)
    count = max(len(begins), 1)
    pairs, pair = numbered((keys.groups if rows is None else keys.groups[rows]) * count + window)
    order = np.argsort(pairs % count, kind="stable")
    slot = np.empty(len(order), np.int64)
    slot[order] = np.arange(len(order))
    names = [keys.names[key] for key in (pairs[order] // count).tolist()]
    ends = np.cumsum(np.bincount(pairs % count, minlength=len(begins))).tolist()
    return SlotGroups(names, list(map(Run, [0, *ends], ends, begins.tolist())), rows, slot[pair])


def fold_groups(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:
    """Return the partial of each group.

    None if an observation is invalid, or if the partials before would have to change: fold the observations one by one, then. The
    partials before are unchanged.

    Args:
        monoid: the monoid.
        observations: its observations, in the order of events, with maps as dicts and structs as tuples; null as None.
        groups: the group of each observation.
        before: the partial of each group before them, or `MISSING`; each group has an observation.
    """
    fold = _FOLDS.get(type(monoid))
    takes_null = isinstance(monoid, (Count, OfValues))
    found = (
        None
        if fold is None or (observations.null_count and not takes_null)
        else fold(monoid, observations, groups, before)
    )
    return _one_by_one(monoid, observations, groups, before) if found is None else found


def _one_by_one(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:
    if not (_are_new(before) or _keeps_accumulators(monoid)):
        return None  # a partial would keep the observations before an invalid one
    partials, fold, lift = list(before), monoid.fold, monoid.lift
    try:
        for group, observation in zip(groups.tolist(), plain(observations), strict=True):
            earlier = partials[group]
            partials[group] = lift(observation) if earlier is MISSING else fold(earlier, observation)
    except USER_CODE_ERRORS:
        return None
    return partials


def _keeps_accumulators(monoid: Monoid[Any]) -> bool:
    """Return whether `fold` certainly leaves its accumulator as it is."""
    if type(monoid) is TupleOf:
        return all(map(_keeps_accumulators, monoid.monoids))
    if type(monoid) is OfValues:
        return _keeps_accumulators(monoid.inner)
    return not monoid.folds_in_place and (type(monoid) in _FOLDS or type(monoid).fold is Monoid.fold)


def count_groups(groups: Groups, before: Sequence[Any]) -> list[Any]:
    """Return the number of observations of each group, added to the number before them, or `MISSING`."""
    return _combined(Count(), before, np.bincount(groups, minlength=len(before)).tolist())


def _combined(monoid: Monoid[Any], before: Sequence[Any], partials: list[Any]) -> list[Any]:
    """Return partials with those before them, of a monoid for which the grouping makes no difference."""
    if _are_new(before):
        return partials
    combine = monoid.combine
    return [
        found if earlier is MISSING else combine(earlier, found)
        for earlier, found in zip(before, partials, strict=True)
    ]


def _are_new(before: Sequence[Any]) -> bool:
    return all(map(is_, before, repeat(MISSING)))


def _count(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:  # noqa: ARG001 - the functions share a signature
    return count_groups(groups, before)


def _sum(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:  # noqa: ARG001 - as above
    values = _numbers(observations)
    if values is None or not _have_type(before, type(values.dtype.type(0).item())):
        return None
    if values.dtype == np.float64:
        sums = (
            np.zeros(len(before)) if _are_new(before) else np.array([0.0 if one is MISSING else one for one in before])
        )
        with np.errstate(all="ignore"):
            np.add.at(sums, groups, values)  # one after the other
        return list(sums.tolist())
    if len(values) and max(abs(int(values.min())), abs(int(values.max()))) * len(values) > _INT64_MAX:
        return None
    whole = np.zeros(len(before), np.int64)
    np.add.at(whole, groups, values)
    return _combined(Sum(), before, whole.tolist())


def _mean(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:
    sums = _sum(monoid, observations, groups, _parts(before, 0))
    return None if sums is None else list(zip(sums, count_groups(groups, _parts(before, 1)), strict=True))


def _extreme(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:
    is_min = isinstance(monoid, Min)
    values = _numbers(observations)
    if values is not None:
        found = _extreme_numbers(values, groups, len(before), is_min=is_min)
    elif str(observations.type) == "string":
        found = _extreme_texts(observations, groups, len(before), is_min=is_min)
    else:
        return None
    return _combined(monoid, before, found)


def _extreme_texts(observations: pa.Array[Any], groups: Groups, count: int, *, is_min: bool) -> list[Any]:
    encoded = observations.dictionary_encode()
    texts = cast("list[str]", encoded.dictionary.to_pylist())
    order = sorted(range(len(texts)), key=lambda code: texts[code])
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    chosen = _extreme_numbers(ranks[numbers_of(encoded.indices)], groups, count, is_min=is_min)
    return [texts[order[rank]] for rank in chosen]


def _extreme_numbers(values: npt.NDArray[Any], groups: Groups, count: int, *, is_min: bool) -> list[Any]:
    """Return the smallest or largest value of each group; None if all are NaN."""
    choose, limit = (np.minimum, _INT64_MAX) if is_min else (np.maximum, -_INT64_MAX - 1)
    if values.dtype != np.float64:
        chosen = np.full(count, limit, np.int64)
        choose.at(chosen, groups, values)
        return list(chosen.tolist())
    ordered = ~np.isnan(values)
    values, groups = values[ordered], groups[ordered]
    floats = np.full(count, np.inf if is_min else -np.inf)
    choose.at(floats, groups, values)
    rows = np.flatnonzero(values == floats[groups])[::-1]
    floats[groups[rows]] = values[rows]  # of equal ones, 0.0 and -0.0, the first
    if ordered.all():
        return list(floats.tolist())
    counts = np.bincount(groups, minlength=count).tolist()
    return [value if number else None for value, number in zip(floats.tolist(), counts, strict=True)]


def _tuple(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:
    inner = cast("TupleOf", monoid).monoids
    if not str(observations.type).startswith("struct<") or observations.type.num_fields != len(inner):
        return None
    found = []
    for at, (of_field, field) in enumerate(zip(inner, cast("pa.StructArray", observations).flatten(), strict=True)):
        partials = fold_groups(of_field, field, groups, _parts(before, at))
        if partials is None:
            return None
        found.append(partials)
    return list(zip(*found, strict=True))


def _by_time(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:
    """Choose the earliest or latest observation of each group: of most of them, the time alone decides."""
    if not str(observations.type).startswith("struct<") or observations.type.num_fields != 2:
        return None
    times, values = cast("pa.StructArray", observations).flatten()
    if times.null_count or values.null_count or str(times.type) != "int64" or str(values.type) not in _ORDERED:
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


def _map(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:
    if not str(observations.type).startswith("map<"):
        return None
    maps = cast("pa.MapArray[Any, Any]", observations)
    offsets = numbers_of(maps.offsets)  # relative to all keys and items, also if the array is a slice
    keys, items = maps.keys[offsets[0] : offsets[-1]], maps.items[offsets[0] : offsets[-1]]
    of_entry = np.repeat(groups, np.diff(offsets))
    return _by_key(partial(fold_groups, cast("MapOf[Any, Any]", monoid).inner, items), keys, of_entry, before)


def _of_values(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:
    return _of_present(partial(fold_groups, cast("OfValues", monoid).inner), observations, groups, before)


def _distinct(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, before: Sequence[Any]) -> Partials:  # noqa: ARG001 - as above
    return _of_present(partial(_by_key, count_groups), observations, groups, before)


def _of_present(
    fold: Callable[[pa.Array[Any], Groups, Sequence[Any]], Partials],
    observations: pa.Array[Any],
    groups: Groups,
    before: Sequence[Any],
) -> Partials:
    """Fold the values that are not null: the partial of a group without one is None."""
    earlier = [MISSING if one is None else one for one in before]
    if not observations.null_count:
        return fold(observations, groups, earlier)
    present, own = numbered(groups[flags_of(observations.is_valid())])
    found = fold(observations.drop_null(), own, [earlier[group] for group in present.tolist()])
    if found is None:
        return None
    partials = [None if one is MISSING else one for one in earlier]
    for group, of_group in zip(present.tolist(), found, strict=True):
        partials[group] = of_group
    return partials


def _by_key(
    fold: Callable[[Groups, Sequence[Any]], Partials], keys: pa.Array[Any], groups: Groups, before: Sequence[Any]
) -> Partials:
    """Return a dict for each group: the partial of each key, in the order of their first entries.

    Args:
        fold: returns the partials of the entries, from the group of each, which is a pair of a group and a key.
        keys: the keys of the entries.
        groups: the groups of the entries.
        before: the dict of each group before them, or `MISSING`.
    """
    if sum(len(earlier) for earlier in before if earlier is not MISSING) > _MOST_COPIED * (len(keys) + len(before)):
        return None  # a copy of the partials would take longer than the observations
    encoded = keys.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len({name for name in names if name == name}) < len(names):  # noqa: PLR0124 - NaN, which equals no key of a dict
        return None  # or 0.0 and -0.0, which are one key
    pairs, pair = numbered(groups * max(len(names), 1) + numbers_of(encoded.indices))
    owners, own = (
        (pairs // max(len(names), 1)).tolist(),
        [names[code] for code in (pairs % max(len(names), 1)).tolist()],
    )
    partials: list[dict[Any, Any]] = [{} if earlier is MISSING else dict(earlier) for earlier in before]
    earlier_of_key = (
        [MISSING] * len(own)
        if _are_new(before)
        else [partials[group].get(name, MISSING) for group, name in zip(owners, own, strict=True)]
    )
    found = fold(pair, earlier_of_key)
    if found is None:
        return None
    for group, name, of_key in zip(owners, own, found, strict=True):
        partials[group][name] = of_key
    return partials


def _numbers(observations: pa.Array[Any]) -> npt.NDArray[Any] | None:
    """Return whole numbers with 64 bits, or floats with 64 bits; None for values of other types."""
    kind = str(observations.type)
    wide = "int64" if kind in _WHOLE else "double" if kind in _FLOATING else None
    if wide is None:
        return None
    return numbers_of(observations if kind == wide else observations.cast(wide))


def _parts(before: Sequence[Any], at: int) -> list[Any]:
    return [MISSING if earlier is MISSING else earlier[at] for earlier in before]


def _have_type(before: Sequence[Any], kind: type) -> bool:
    return set(map(type, before)) <= {kind, type(MISSING)}


_FOLDS: dict[type, Callable[[Any, Any, Groups, Sequence[Any]], Partials]] = {
    Count: _count,
    Sum: _sum,
    Mean: _mean,
    Min: _extreme,
    Max: _extreme,
    Earliest: _by_time,
    Latest: _by_time,
    TupleOf: _tuple,
    OfValues: _of_values,
    DistinctValues: _distinct,
    MapOf: _map,
    TopKeys: _map,
}
