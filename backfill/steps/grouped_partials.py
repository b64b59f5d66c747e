"""Partials of many groups at once: what a monoid's `fold` gives event by event, for columns of observations.

The ready-made monoids that Arrow can compute are computed by it; every other folds one observation after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...processors.monoids import Count, MapOf, Max, Mean, Min, Monoid, Sum, TopKeys, TupleOf

Groups = npt.NDArray[np.int64]
"""The number of each observation's group, from 0."""
_INT64_MAX = 2**63 - 1


class _NotByArrow(Exception):
    """These observations are folded one by one: Arrow would not give the same."""


def partials_of(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:
    """Return the partial of each group.

    Args:
        monoid: whose.
        observations: as `lift` takes them: maps as dicts, structs as tuples; none is null.
        groups: to which group each belongs.
        count: how many groups there are; each has an observation.
    """
    by_arrow = _BY_ARROW.get(type(monoid))
    if by_arrow is not None:
        with suppress(_NotByArrow):
            return by_arrow(monoid, observations, groups, count)
    return _folded(monoid, plain(observations), groups, count)


def plain(observations: pa.Array[Any]) -> list[Any]:
    """Return observations as a user's `observe` gives them."""
    return [_plain(observations.type, value) for value in observations.to_pylist()]


def _plain(kind: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return tuple(_plain(field.type, value[field.name]) for field in kind)
    if pa.types.is_map(kind):
        return {key: _plain(kind.item_type, item) for key, item in value}
    return value


def _folded(monoid: Monoid[Any], observations: list[Any], groups: Groups, count: int) -> list[Any]:
    partials: list[Any] = [None] * count
    begun = [False] * count
    lift, fold = monoid.lift, monoid.fold
    for group, observation in zip(groups.tolist(), observations, strict=True):
        partials[group] = fold(partials[group], observation) if begun[group] else lift(observation)
        begun[group] = True
    return partials


def _count(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - they have one form
    return list(np.bincount(groups, minlength=count).tolist())


def _sum(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - as above
    return _aggregated(_summable(observations), groups, count, "sum")


def _mean(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - as above
    sums = _aggregated(_summable(observations), groups, count, "sum")
    return list(zip(sums, np.bincount(groups, minlength=count).tolist(), strict=True))


def _least(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - as above
    return _extreme(observations, groups, count, "min")


def _largest(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - as above
    return _extreme(observations, groups, count, "max")


def _extreme(observations: pa.Array[Any], groups: Groups, count: int, which: Literal["min", "max"]) -> list[Any]:
    kind = observations.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)):
        raise _NotByArrow
    if pa.types.is_floating(kind):
        ordered = pc.invert(pc.is_nan(observations))  # NaN has no place in an order
        observations, groups = observations.filter(ordered), groups[ordered.to_numpy(zero_copy_only=False)]
    return _aggregated(observations, groups, count, which)


def _tuple(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:
    inner = cast("TupleOf", monoid).monoids
    if not pa.types.is_struct(observations.type) or observations.type.num_fields != len(inner):
        raise _NotByArrow
    fields = cast("pa.StructArray", observations).flatten()
    if any(field.null_count for field in fields):
        raise _NotByArrow
    found = [partials_of(one, field, groups, count) for one, field in zip(inner, fields, strict=True)]
    return list(zip(*found, strict=True))


def _map(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:
    if not pa.types.is_map(observations.type):
        raise _NotByArrow
    maps = cast("pa.MapArray[Any, Any]", observations)
    offsets = maps.offsets.to_numpy()  # into all keys and items, also where the array is a slice of another
    keys, items = maps.keys[offsets[0] : offsets[-1]], maps.items[offsets[0] : offsets[-1]]
    if items.null_count:
        raise _NotByArrow
    of_entry = np.repeat(groups, np.diff(offsets))
    encoded = keys.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    pairs, pair = np.unique(of_entry * max(len(names), 1) + encoded.indices.to_numpy(), return_inverse=True)
    inner = partials_of(cast("MapOf[Any, Any]", monoid).inner, items, pair.astype(np.int64), len(pairs))
    found: list[dict[Any, Any]] = [{} for _ in range(count)]
    for place, partial in zip(pairs.tolist(), inner, strict=True):
        group, name = divmod(place, len(names))
        found[group][names[name]] = partial
    return found


def _summable(observations: pa.Array[Any]) -> pa.Array[Any]:
    """Return numbers whose sums cannot overflow."""
    if pa.types.is_floating(observations.type):
        return observations
    if not pa.types.is_integer(observations.type):
        raise _NotByArrow
    bounds = cast("Mapping[str, int]", pc.min_max(observations).as_py())
    if len(observations) and max(abs(bounds["min"]), abs(bounds["max"])) * len(observations) > _INT64_MAX:
        raise _NotByArrow
    return observations


def _aggregated(
    observations: pa.Array[Any], groups: Groups, count: int, how: Literal["sum", "min", "max"]
) -> list[Any]:
    """Return what Arrow gives for each group, None for one without observations."""
    table = pa.table({"group": groups, "it": observations})
    done = table.group_by("group", use_threads=False).aggregate([("it", how)])
    values: list[Any] = [None] * count
    for group, value in zip(
        done.column("group").to_numpy().tolist(), done.column(f"it_{how}").to_pylist(), strict=True
    ):
        values[group] = value
    return values


_BY_ARROW: dict[type, Callable[[Any, pa.Array[Any], Groups, int], list[Any]]] = {
    Count: _count,
    Sum: _sum,
    Mean: _mean,
    Min: _least,
    Max: _largest,
    TupleOf: _tuple,
    MapOf: _map,
    TopKeys: _map,
}
