"""Partials of many groups at once, for columns of observations: the same values as a monoid's `fold` event by event.

Arrow computes the built-in monoids that it supports; other monoids fold one observation after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...processors.monoids import Count, MapOf, Max, Mean, Min, Monoid, OfValues, Sum, TopKeys, TupleOf

Groups = npt.NDArray[np.int64]
"""The number of each observation's group, from 0."""
_INT64_MAX = 2**63 - 1


class _NotByArrow(Exception):
    """Arrow would compute another result; fold these observations one by one."""


def partials_of(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:
    """Return the partial of each group.

    Args:
        monoid: the monoid.
        observations: arguments of `lift`, with maps as dicts and structs as tuples; none is null.
        groups: the group of each observation.
        count: the number of groups; each has an observation.
    """
    by_arrow = _BY_ARROW.get(type(monoid))
    if by_arrow is not None:
        with suppress(_NotByArrow):
            return by_arrow(monoid, observations, groups, count)
    return _folded(monoid, plain(observations), groups, count)


def plain(observations: pa.Array[Any]) -> list[Any]:
    """Return observations as the user's `observe` returns them."""
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
    has_value = [False] * count
    lift, fold = monoid.lift, monoid.fold
    for group, observation in zip(groups.tolist(), observations, strict=True):
        partials[group] = fold(partials[group], observation) if has_value[group] else lift(observation)
        has_value[group] = True
    return partials


def _count(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - the functions share a signature
    return list(np.bincount(groups, minlength=count).tolist())


def _sum(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - as above
    return _aggregated(_summable(observations), groups, count, "sum")


def _mean(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - as above
    sums = _aggregated(_summable(observations), groups, count, "sum")
    return list(zip(sums, np.bincount(groups, minlength=count).tolist(), strict=True))


def _min(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - as above
    return _extreme(observations, groups, count, "min")


def _max(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:  # noqa: ARG001 - as above
    return _extreme(observations, groups, count, "max")


def _extreme(observations: pa.Array[Any], groups: Groups, count: int, which: Literal["min", "max"]) -> list[Any]:
    kind = observations.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)):
        raise _NotByArrow
    if pa.types.is_floating(kind):
        ordered = pc.invert(pc.is_nan(observations))  # NaN has no order
        observations, groups = observations.filter(ordered), groups[ordered.to_numpy(zero_copy_only=False)]
    return _aggregated(observations, groups, count, which)


def _tuple(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:
    inner = cast("TupleOf", monoid).monoids
    if not pa.types.is_struct(observations.type) or observations.type.num_fields != len(inner):
        raise _NotByArrow
    fields = cast("pa.StructArray", observations).flatten()
    if any(field.null_count and type(of_field) is not OfValues for of_field, field in zip(inner, fields, strict=True)):
        raise _NotByArrow
    found = [partials_of(column, field, groups, count) for column, field in zip(inner, fields, strict=True)]
    return list(zip(*found, strict=True))


def _of_values(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:
    inner = cast("OfValues", monoid).inner
    if not observations.null_count:
        return partials_of(inner, observations, groups, count)
    present, own = np.unique(groups[observations.is_valid().to_numpy(zero_copy_only=False)], return_inverse=True)
    partials: list[Any] = [None] * count
    found = partials_of(inner, observations.drop_null(), own.astype(np.int64), len(present))
    for group, partial in zip(present.tolist(), found, strict=True):
        partials[group] = partial
    return partials


def _map(monoid: Monoid[Any], observations: pa.Array[Any], groups: Groups, count: int) -> list[Any]:
    if not pa.types.is_map(observations.type):
        raise _NotByArrow
    maps = cast("pa.MapArray[Any, Any]", observations)
    offsets = maps.offsets.to_numpy()  # relative to all keys and items, also if the array is a slice
    keys, items = maps.keys[offsets[0] : offsets[-1]], maps.items[offsets[0] : offsets[-1]]
    if items.null_count:
        raise _NotByArrow
    of_entry = np.repeat(groups, np.diff(offsets))
    encoded = keys.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    pairs, pair = np.unique(of_entry * max(len(names), 1) + encoded.indices.to_numpy(), return_inverse=True)
    inner = partials_of(cast("MapOf[Any, Any]", monoid).inner, items, pair.astype(np.int64), len(pairs))
    found: list[dict[Any, Any]] = [{} for _ in range(count)]
    for number, partial in zip(pairs.tolist(), inner, strict=True):
        group, name = divmod(number, len(names))
        found[group][names[name]] = partial
    return found


def _summable(observations: pa.Array[Any]) -> pa.Array[Any]:
    """Return the observations if their sums cannot overflow."""
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
    """Return Arrow's aggregate of each group; None for a group without observations."""
    table = pa.table({"group": groups, "value": observations})
    aggregated = table.group_by("group", use_threads=False).aggregate([("value", how)])
    values: list[Any] = [None] * count
    for group, value in zip(
        aggregated.column("group").to_numpy().tolist(), aggregated.column(f"value_{how}").to_pylist(), strict=True
    ):
        values[group] = value
    return values


_BY_ARROW: dict[type, Callable[[Any, pa.Array[Any], Groups, int], list[Any]]] = {
    Count: _count,
    Sum: _sum,
    Mean: _mean,
    Min: _min,
    Max: _max,
    TupleOf: _tuple,
    OfValues: _of_values,
    MapOf: _map,
    TopKeys: _map,
}
