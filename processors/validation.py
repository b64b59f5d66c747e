"""Validation of declarations before the first event: wrong types and misspelled names."""

from __future__ import annotations

import inspect
import types
from collections.abc import Collection
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from typing import Any, ClassVar, TypeGuard, Union, get_args, get_origin, get_type_hints

from .errors import DeclarationError
from .wording import as_code, with_article

_SIMILARITY = 0.8
"""The similarity from which an unknown name counts as a misspelling."""
_MIN_LENGTH = 6
"""The minimum length of a method name to compare with: short names resemble too many others."""


def validate_declaration(cls: type, root: type) -> None:
    """Raise DeclarationError for a class attribute of the wrong type or with a misspelled name.

    Args:
        cls: the declared class.
        root: the base class. The annotations of it and of the library classes derived from it define the attributes.
    """
    library = [base for base in cls.__mro__ if issubclass(base, root) and is_library_class(base)]
    known: dict[str, Any] = {}
    for base in reversed(library):
        known |= _hints(base)
    for name, kind in known.items():
        value = getattr(cls, name, _MISSING)
        if name not in _CHECKED_ELSEWHERE and value is not _MISSING and not fits(value, kind):
            raise DeclarationError(
                f"{library[0].__name__} {cls.__name__}: `{name} = {as_code(value)}` has the wrong type. Nothing was read. Declare "
                f"{type_in_words(kind)}.{suggestion(kind, value)}"
            )
    ours = {name for base in library for name in vars(base)} | known.keys()
    for base in cls.__mro__:
        if issubclass(base, root) and not is_library_class(base):
            _expect_no_misspelling(
                cls, {name: value for name, value in vars(base).items() if name not in ours}, known, ours
            )


def _expect_no_misspelling(cls: type, own: dict[str, Any], known: Collection[str], ours: Collection[str]) -> None:
    """Raise DeclarationError for a user's own name that resembles a name of the library."""
    for name, value in own.items():
        targets = (
            [one for one in ours if one not in known and len(one) >= _MIN_LENGTH]
            if isinstance(value, _METHODS)
            else known
        )
        near = [] if name.startswith("_") else get_close_matches(name, targets, 1, _SIMILARITY)
        if near:
            raise DeclarationError(
                f"{cls.__name__} declares `{name}`, which is not an option; did you mean `{near[0]}`? Nothing was read. If `{name}` is your own "
                "attribute, choose a less similar name."
            )


def expect_types(owner: str, value: Any) -> None:
    """Raise DeclarationError for a dataclass field whose value does not match its annotation.

    Args:
        owner: the name of the value in the error.
        value: a dataclass.
    """
    for name, kind in get_type_hints(type(value)).items():
        argument = getattr(value, name, _MISSING)
        if argument is not _MISSING and not fits(argument, kind):
            raise DeclarationError(
                f"{owner}: `{name}={as_code(argument)}` has the wrong type. Declare {type_in_words(kind)}."
            )


_MISSING = object()


_LIBRARY = __name__.rpartition(".")[0] + "."
_METHODS = (types.FunctionType, classmethod, staticmethod, property)
_CHECKED_ELSEWHERE = frozenset(
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
        "watermark",
    }
)


def is_library_class(base: type) -> bool:
    """Return whether a class is Penstock's own."""
    return base.__module__.startswith(_LIBRARY)


def _hints(base: type) -> dict[str, Any]:
    return {
        name: get_args(kind)[0] if get_origin(kind) is ClassVar and get_args(kind) else kind
        for name, kind in get_type_hints(base).items()
    }


def fits(value: Any, kind: Any) -> bool:  # noqa: PLR0911 - one return per sort of type
    """Return whether a value has a type. The elements of containers are not checked."""
    if kind is Any:
        return True
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, member) for member in get_args(kind))
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
    if _is_protocol(kind):
        methods = [name for name in vars(kind) if not name.startswith("_")]
        return not is_class(value) and all(hasattr(value, name) for name in methods)
    return isinstance(value, kind)


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


_EXAMPLES = {
    "WindowAssigner": "windows, such as penstock.windows.Tumbling(timedelta(hours=1))",
    "Mapping": "a dict, such as {'daily': penstock.Cron('0 6 * * *')}",
    "Watermark": "a watermark, such as penstock.watermarks.BoundedOutOfOrderness(timedelta(seconds=5))",
    "CheckpointInterval": "a penstock.CheckpointInterval, such as penstock.CheckpointInterval(events=10_000)",
}
"""Descriptions of types whose names say too little."""


def type_in_words(kind: Any) -> str:
    """Return what to declare for a type, for errors: `a timedelta or None`."""
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(type_in_words(member) for member in get_args(kind))
    if kind is type(None):
        return "None"
    if is_class(kind) and issubclass(kind, Enum):
        return " or ".join(f"penstock.{member}" for member in kind)
    if kind is bool:
        return "True or False"
    if getattr(kind, "__name__", "") in _EXAMPLES:
        return _EXAMPLES[kind.__name__]
    return with_article(str(getattr(get_origin(kind) or kind, "__name__", kind)))


def did_you_mean(name: str, options: Collection[str]) -> str:
    """Return a sentence with the most similar option, to append to an error; empty without a similar one.

    Examples:
        >>> did_you_mean("ariport", ["airport", "at"])
        ' Did you mean `airport`?'
        >>> did_you_mean("TOTALS", ["Totals"])
        ' Did you mean `Totals`?'
    """
    spellings = {option.lower(): option for option in reversed(list(options))}
    similar = get_close_matches(name.lower(), spellings, 1)
    return f" Did you mean `{spellings[similar[0]]}`?" if similar else ""


def similar_member(kind: type[Enum], text: object) -> str:
    """Return a sentence with the member of an enumeration that a text resembles, to append to an error; empty without one."""
    if not isinstance(text, str):
        return ""
    similar = get_close_matches(text.upper().replace(" ", "_"), [one.name for one in kind], 1, 0.5)
    return f" Did you mean `penstock.{kind.__name__}.{similar[0]}`?" if similar else ""


def suggestion(kind: Any, value: Any) -> str:
    """Return a sentence with the value that the user probably intended, to append to an error; empty if unknown."""
    members = get_args(kind) or (kind,)
    if is_class(value):
        fits = any(is_class(member) and (_is_protocol(member) or issubclass(value, member)) for member in members)
        return f" Did you mean an object, `{value.__name__}(…)`, instead of the class?" if fits else ""
    for member in members:
        if is_class(member) and issubclass(member, Enum):
            similar = similar_member(member, value)
            if similar:
                return similar
        if member is timedelta and isinstance(value, (int, float)) and not isinstance(value, bool):
            return f" Did you mean `timedelta(seconds={value})`?"
    return ""


def is_function_of(candidate: object, *arguments: str) -> bool:
    """Return whether an object can be called with some arguments by position. Types are no functions here."""
    if not callable(candidate) or isinstance(candidate, type) or get_origin(candidate) is not None:
        return False
    try:
        inspect.signature(candidate).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        return True  # a callable without a known signature
    return True


def is_class(candidate: object) -> TypeGuard[type]:
    """Return whether an object is a class."""
    return isinstance(candidate, type)
