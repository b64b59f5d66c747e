"""Conversion and comparison of plain values that passed through MessagePack."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..models import encode_shown

RELATIVE_ROUNDING = 1e-9
ABSOLUTE_ROUNDING = 1e-9


def tupled(loaded: Any) -> Any:
    """Return a decoded value with tuples instead of lists, at every depth. MessagePack does not distinguish them."""
    return tuple(map(tupled, loaded)) if type(loaded) is list else loaded


def to_json_value(value: Any) -> Any:
    """Return a state or a monoid's value in JSON types, for display. A value without a JSON form becomes its `repr`."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=encode_shown)
    except TypeError:
        return repr(value)  # such as a dict with tuples for keys


def is_nan(observation: Any) -> bool:
    """Return whether an observation is NaN, which has no order."""
    return type(observation) is float and math.isnan(observation)


def alike(left: Any, right: Any) -> bool:
    """Return whether two values are equal. Floats may differ by `RELATIVE_ROUNDING`, near zero by `ABSOLUTE_ROUNDING`.

    Float addition rounds, so its last digits depend on the grouping. Lists, tuples and the values of dicts are compared element by
    element; a list does not equal a tuple.
    """
    if isinstance(left, float) and isinstance(right, (float, int)):
        return _close(left, right)
    if isinstance(right, float) and isinstance(left, int):
        return _close(left, right)
    if type(left) is type(right):
        if isinstance(left, dict):
            return left.keys() == right.keys() and all(alike(value, right[key]) for key, value in left.items())
        if isinstance(left, (list, tuple)):
            return len(left) == len(right) and all(map(alike, left, right))
    return bool(left == right)


def _close(left: float, right: float) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return math.isclose(left, right, rel_tol=RELATIVE_ROUNDING, abs_tol=ABSOLUTE_ROUNDING)
