"""Type parameters of processors. A class without parameters accepts all types; with parameters, they must agree with its declaration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from typing_extensions import TypeVar, get_original_bases, is_protocol

from ..errors import DeclarationError
from ..validation import is_library_class
from ..wording import as_code
from .records import AnyRecord, is_union, type_name
from .tombstones import Tombstone

Event = TypeVar("Event", default=Any)
"""The record of the input; a union if there are several inputs."""
Output = TypeVar("Output", bound=AnyRecord | Tombstone, default=Any)
"""The record of the output; a union if there are several outputs, or with `Tombstone`."""
State = TypeVar("State", default=Any)
"""The state of a key."""
Value = TypeVar("Value", default=Any)
"""The value of a monoid."""
Row = TypeVar("Row", default=Any)
"""The row or the right event of a join; with `| None` if it may be missing."""
Parameter: TypeAlias = Literal["Event", "Row", "State", "Output"]
"""The name of one whose argument can be compared with a declaration."""


def expect_argument(cls: type, parameter: Parameter, declared: Any, source: str) -> None:
    """Raise DeclarationError if the argument of a type parameter does not accept a declared type.

    Args:
        cls: the declared class.
        parameter: the parameter; all others are ignored.
        declared: the type that a class attribute declares.
        source: where it is declared, as words for errors.
    """
    arguments = _arguments(cls)
    if parameter in arguments and not _accepts(arguments[parameter], declared):
        _refuse(cls, arguments[parameter], source, declared)


def expect_outputs(cls: type, declared: Iterable[Any]) -> None:
    """Raise DeclarationError if the argument of `Output` has a record that no destination accepts.

    Args:
        cls: the declared class.
        declared: the record types of its outputs.
    """
    argument, kinds = _arguments(cls).get("Output", Any), list(declared)
    for member in _members(argument):
        is_own = isinstance(member, type) and not is_library_class(member)
        if is_own and kinds and not any(_accepts(member, kind) or _accepts(kind, member) for kind in kinds):
            _refuse(cls, member, "its outputs", kinds[0] if len(kinds) == 1 else Union[tuple(kinds)])  # noqa: UP007


def _refuse(cls: type, argument: Any, source: str, declared: Any) -> None:
    kind = _kind_of(cls).__name__
    raise DeclarationError(
        f"{kind} {cls.__name__}: the type parameters of {kind}[…] contain {_named(argument)}, but the type of {source} is {_named(declared)}. Nothing was "
        "read. Write the same type in both places."
    )


def _named(kind: Any) -> str:
    return type_name(kind) if isinstance(kind, type) or get_origin(kind) else as_code(kind)


def _arguments(cls: type) -> Mapping[str, Any]:
    """Return the arguments of the parameters, by name, of the library class that a class is derived from, also through generic classes between them."""
    if is_library_class(cls):
        return {}
    kind = _kind_of(cls)
    base = next(one for one in get_original_bases(cls) if issubclass(get_origin(one) or one, kind))
    origin = get_origin(base) or base
    bound = dict(zip(getattr(origin, "__parameters__", ()), get_args(base), strict=False))
    if origin is kind:
        return {parameter.__name__: argument for parameter, argument in bound.items()}
    return {name: bound.get(argument, argument) for name, argument in _arguments(origin).items()}


def _kind_of(cls: type) -> type:
    return next(filter(is_library_class, cls.__mro__))


def _accepts(argument: Any, kind: Any) -> bool:
    """Return False if values of a type are certainly no values of the argument. Whatever is no class accepts all."""
    wanted = [member for member in _members(kind) if member is not NoneType]
    return all(any(_is_accepted(_class_of(member), _class_of(one)) for one in _members(argument)) for member in wanted)


def _is_accepted(kind: type | None, argument: type | None) -> bool:
    if kind is None or argument is None or is_protocol(argument):
        return True
    return issubclass(kind, argument) or (kind is int and argument is float)


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if is_union(kind) else (kind,)


def _class_of(kind: Any) -> type | None:
    found = get_origin(kind) or kind
    return found if isinstance(found, type) and found is not Any else None
