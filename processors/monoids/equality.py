"""Plain values on both sides of MessagePack: what comes back, and when two are taken to be the same."""

from __future__ import annotations

import math
from typing import Any

import msgspec

RELATIVE_ROUNDING = 1e-9
ABSOLUTE_ROUNDING = 1e-9


def tupled(loaded: Any) -> Any:
    """Return a loaded value with its lists as tuples again, at every depth: MessagePack has one kind of sequence."""
    return tuple(map(tupled, loaded)) if type(loaded) is list else loaded


def to_json_value(value: Any) -> Any:
    """Return a state, or a monoid's value, as JSON has it, for people to read; in words where JSON has nothing like it."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    except TypeError:
        return repr(value)  # such as a dict with tuples for keys


def is_nan(observation: Any) -> bool:
    """Whether an observation is the one float that has no place in any order."""
    return type(observation) is float and math.isnan(observation)


def alike(left: Any, right: Any) -> bool:
    """Whether two values are equal, comparing floats to `RELATIVE_ROUNDING` or, near zero, to `ABSOLUTE_ROUNDING`.

    Float addition rounds, so that its grouping shows in the last digits: no fault that a user could mend. Lists, tuples and the
    values of dicts are compared element by element; a list is not a tuple.
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
