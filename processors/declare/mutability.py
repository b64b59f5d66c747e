"""Values that user code may change in place: a list or a dict, and every record that contains one.

A value that the engine keeps, or gives to user code more than once, must not change in between. Where its type allows changes, user code gets a copy.
An output that code has yielded is such a value, too, because the code continues with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy, deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from operator import is_
from typing import Any
from uuid import UUID

from msgspec import inspect as shapes
from msgspec.structs import force_setattr

from ..models import is_model, shape_of
from .records import RECORD_SHAPES, parts_of

_IMMUTABLE = frozenset({type(None), bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta, UUID})
_IMMUTABLE_SHAPES = (
    shapes.NoneType,
    shapes.BoolType,
    shapes.IntType,
    shapes.FloatType,
    shapes.StrType,
    shapes.BytesType,
    shapes.DateTimeType,
    shapes.DateType,
    shapes.TimeType,
    shapes.TimeDeltaType,
    shapes.DecimalType,
    shapes.UUIDType,
    shapes.EnumType,
    shapes.LiteralType,
)
_CONTAINER_SHAPES = (
    shapes.Metadata,
    shapes.UnionType,
    shapes.TupleType,
    shapes.VarTupleType,
    shapes.FrozenSetType,
    shapes.NamedTupleType,
)
"""Shapes of values that change only if a part of them does."""
_LOOKALIKES = (list, dict, set, bytearray, memoryview)
"""Classes of values that can change, and are saved as values of other classes are that cannot."""


def is_mutable(kind: Any) -> bool:
    """Return whether a value of a type, or a part of it at any depth, can change."""
    return _may_change(shape_of(kind), set())


def _may_change(shape: Any, found: set[type]) -> bool:
    if isinstance(shape, _IMMUTABLE_SHAPES):
        return False
    if isinstance(shape, shapes.CustomType):
        if not is_model(shape.cls):
            return True
        shape = shape_of(shape.cls)
    if isinstance(shape, RECORD_SHAPES):
        cls = getattr(shape.cls, "model", shape.cls)
        if cls in found:
            return False
        found.add(cls)
        if not _is_frozen(cls):
            return True
    elif not isinstance(shape, _CONTAINER_SHAPES):
        return True
    return any(_may_change(part, found) for part in parts_of(shape))


def _is_frozen(record: Any) -> bool:
    """Return whether the fields of a struct, a dataclass or a model cannot be assigned."""
    if is_model(record):
        return bool(record.model_config.get("frozen"))
    if hasattr(record, "__struct_config__"):
        return bool(record.__struct_config__.frozen)
    return bool(record.__dataclass_params__.frozen)


def lookalike_finder(kind: Any) -> Callable[[Any], bool] | None:
    """Return the function that finds a value that can change in the place of one that cannot: a list for a tuple, a set for a frozenset, a dict for a record.

    Both are saved in the same way, so only the type of a value shows the difference until it is decoded.

    Args:
        kind: a type whose values cannot change.

    Returns:
        None if a value of the type has no place for such a value.
    """
    return _finder_of(shape_of(kind), {})


def _finder_of(shape: Any, known: dict[Any, Callable[[Any], bool]]) -> Callable[[Any], bool] | None:
    if isinstance(shape, shapes.CustomType):
        shape = shape_of(shape.cls)
    if isinstance(shape, (*RECORD_SHAPES, shapes.NamedTupleType)):
        return _finder_in_fields(shape, known)
    finders = [found for part in parts_of(shape) if (found := _finder_of(part, known)) is not None]
    if isinstance(shape, shapes.VarTupleType) and finders:
        return lambda value: any(map(finders[0], value)) if isinstance(value, tuple) else _is_lookalike(value)
    if isinstance(shape, shapes.TupleType) and finders:
        return _finder_in_tuple([_finder_of(part, known) for part in shape.item_types])
    if isinstance(shape, shapes.UnionType) and finders:
        return finders[0] if len(finders) == 1 else lambda value: any(finds(value) for finds in finders)
    if isinstance(shape, shapes.Metadata) and finders:
        return finders[0]
    has_lookalikes = (shapes.BytesType, shapes.TupleType, shapes.VarTupleType, shapes.FrozenSetType)
    return _is_lookalike if isinstance(shape, has_lookalikes) else None


def _finder_in_tuple(finders: Sequence[Callable[[Any], bool] | None]) -> Callable[[Any], bool]:
    at = [(index, finds) for index, finds in enumerate(finders) if finds is not None]

    def finds_in(value: Any) -> bool:
        if isinstance(value, tuple):
            return len(value) == len(finders) and any(finds(value[index]) for index, finds in at)
        return _is_lookalike(value)

    return finds_in


def _finder_in_fields(shape: Any, known: dict[Any, Callable[[Any], bool]]) -> Callable[[Any], bool]:
    cls = getattr(shape.cls, "model", shape.cls)
    if cls in known:
        return lambda value: known[cls](value)  # noqa: PLW0108 - its finder is known later
    known[cls] = _is_lookalike  # a record may contain records of its own type
    fields = [(field.name, finds) for field in shape.fields if (finds := _finder_of(field.type, known)) is not None]

    def finds_in(value: Any) -> bool:
        if isinstance(value, cls):
            return any(finds(getattr(value, name)) for name, finds in fields)
        return _is_lookalike(value)

    known[cls] = finds_in
    return finds_in


def _is_lookalike(value: Any) -> bool:
    return isinstance(value, _LOOKALIKES)


def unshared(value: Any) -> Any:
    """Return a value that user code may change: a copy if the value can change, else the value itself."""
    kind: type = type(value)
    if kind in _IMMUTABLE:
        return value
    copied = _COPIES.get(kind) or _copier_of(kind)
    return value if copied is None else copied(value)


def independent(outputs: Iterable[Any]) -> Iterable[Any]:
    """Return outputs that code which yields them cannot change when it continues. Code that returned a list has ended."""
    return outputs if type(outputs) in {list, tuple} else map(unshared, outputs)


def _unshared_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    parts = tuple(map(unshared, value))
    return value if all(map(is_, parts, value)) else parts


# These are several times as fast as `deepcopy`, which also preserves identities. Members of sets and keys of dicts are hashable, so they do not change.
_COPIES: dict[type, Callable[[Any], Any]] = {
    list: lambda value: list(map(unshared, value)),
    dict: lambda value: dict(zip(value, map(unshared, value.values()), strict=True)),
    set: set,
    frozenset: lambda value: value,
    tuple: _unshared_tuple,
}


@lru_cache(maxsize=1_000)
def _copier_of(kind: type) -> Callable[[Any], Any] | None:
    """Return the function that copies values of a class; None if they cannot change."""
    if issubclass(kind, Enum) or not is_mutable(kind):
        return None
    shape = shape_of(kind)
    if hasattr(kind, "__deepcopy__") or not isinstance(shape, shapes.StructType | shapes.DataclassType):
        return deepcopy
    names = [field.name for field in shape.fields if _may_change(field.type, set())]
    assign = force_setattr if isinstance(shape, shapes.StructType) else object.__setattr__

    def copied(record: Any) -> Any:
        own = copy(record)  # unlike a new record, without another call of `__post_init__`
        for name in names:
            assign(own, name, unshared(getattr(record, name)))
        return own

    return copied
