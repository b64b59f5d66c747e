"""What is declared on a class, looked at before the first event: values of the wrong type, and names that are nearly right."""

from __future__ import annotations

import types
from collections.abc import Collection
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from typing import Any, ClassVar, TypeGuard, Union, get_args, get_origin, get_type_hints

from .errors import DeclarationError

_NEAR = 0.8
"""How alike a name must be to one that is known to be taken for a mistake."""
_LONG = 6
"""How long a method's name must be: too many names are like a short one."""


def validate_declaration(cls: type, root: type) -> None:
    """Raise DeclarationError for an attribute of a wrong type, or one that nobody looks at and that is nearly one that is looked at.

    Args:
        cls: the class.
        root: where its kinds begin: what it and the classes between declare as class attributes is what can be declared.
    """
    library = [base for base in cls.__mro__ if issubclass(base, root) and _is_ours(base)]
    known: dict[str, Any] = {}
    for base in reversed(library):
        known |= _hints(base)
    for name, kind in known.items():
        value = getattr(cls, name, _MISSING)
        if name not in _LOOKED_AT_ELSEWHERE and value is not _MISSING and not _fits(value, kind):
            raise DeclarationError(
                f"{library[0].__name__} {cls.__name__}: `{name} = {value!r}` is not what it takes: {_said(kind)}.{_meant(kind, value)} "
                "Nothing was read."
            )
    ours = {name for base in library for name in vars(base)} | known.keys()
    for base in cls.__mro__:
        if issubclass(base, root) and not _is_ours(base):
            _expect_no_slips(cls, {name: value for name, value in vars(base).items() if name not in ours}, known, ours)


def _expect_no_slips(cls: type, own: dict[str, Any], known: Collection[str], ours: Collection[str]) -> None:
    """Raise DeclarationError for a name of the user's own that is nearly one that means something."""
    for name, value in own.items():
        targets = (
            [one for one in ours if one not in known and len(one) >= _LONG] if isinstance(value, _METHODS) else known
        )
        near = [] if name.startswith("_") else get_close_matches(name, targets, 1, _NEAR)
        if near:
            raise DeclarationError(
                f"{cls.__name__} declares `{name}`, which means nothing; did you mean `{near[0]}`? Nothing was read. If it is of your own, give it "
                "a name that is less like that."
            )


def expect_types(owner: str, value: Any) -> None:
    """Raise DeclarationError for a field of a frozen value that is of another type than its annotation says.

    Args:
        owner: what the value is called in the error.
        value: a dataclass.
    """
    for name, kind in get_type_hints(type(value)).items():
        given = getattr(value, name, _MISSING)
        if given is not _MISSING and not _fits(given, kind):
            raise DeclarationError(f"{owner}: `{name}={given!r}` is not what it takes: {_said(kind)}.")


_MISSING = object()


_LIBRARY = __name__.rpartition(".")[0] + "."
_METHODS = (types.FunctionType, classmethod, staticmethod, property)
_LOOKED_AT_ELSEWHERE = frozenset(
    {
        "reads",
        "writes",
        "left",
        "right",
        "stream",
        "table",
        "monoid",
        "source",
        "state",
        "cache",
        "on_miss",
        "on_unreachable",
    }
)


def _is_ours(base: type) -> bool:
    return base.__module__.startswith(_LIBRARY)


def _hints(base: type) -> dict[str, Any]:
    try:
        hints = get_type_hints(base)
    except NameError:
        return {}  # a name that only a type checker imports: what it is cannot be told
    return {
        name: get_args(kind)[0] if get_origin(kind) is ClassVar and get_args(kind) else kind
        for name, kind in hints.items()
    }


def _fits(value: Any, kind: Any) -> bool:  # noqa: PLR0911 - one for each sort of type
    """Tell whether a value is of a type, as far as that can be told cheaply: what is inside of containers is not looked at."""
    if kind is Any:
        return True
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, member) for member in get_args(kind))
    if origin is not None:
        return not is_class(origin) or isinstance(value, origin)
    if kind is None or kind is type(None):
        return value is None
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if not is_class(kind):
        return True
    if getattr(kind, "_is_protocol", False):
        asked = [name for name in vars(kind) if not name.startswith("_")]
        return not is_class(value) and all(hasattr(value, name) for name in asked)
    return isinstance(value, kind)


def _said(kind: Any) -> str:
    """Say what a type is, for people."""
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(_said(member) for member in get_args(kind))
    if kind is type(None):
        return "None"
    if is_class(kind) and issubclass(kind, Enum):
        return " or ".join(f"penstock.{member}" for member in kind)
    if kind is bool:
        return "True or False"
    return "a " + str(getattr(get_origin(kind) or kind, "__name__", kind))


def _meant(kind: Any, value: Any) -> str:
    """Say what was probably meant; nothing where that cannot be told."""
    for member in get_args(kind) or (kind,):
        if is_class(member) and issubclass(member, Enum) and isinstance(value, str):
            near = get_close_matches(value.upper().replace(" ", "_"), [one.name for one in member], 1, 0.5)
            if near:
                return f" Declare penstock.{member.__name__}.{near[0]}."
        if member is timedelta and isinstance(value, (int, float)) and not isinstance(value, bool):
            return f" Declare timedelta(seconds={value})."
    return ""


def is_class(candidate: object) -> TypeGuard[type]:
    """Tell whether something is a class; Python 3.10 takes ``list[int]`` for one, which `issubclass` then refuses."""
    return isinstance(candidate, type) and get_origin(candidate) is None
