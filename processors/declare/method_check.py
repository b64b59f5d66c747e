"""Validation of the methods of processors before the first event."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from ..errors import DeclarationError
from ..validation import is_library_class

F = TypeVar("F", bound=Callable[..., Any])
_STATELESS_FIRST = (
    "For calls to a service, write a penstock.Stateless with `async def process`, and read its output; or derive from penstock.LookupJoin, "
    "which sends one request per batch."
)


class Method(NamedTuple):
    """How the engine calls a method of a processor.

    Args:
        parameters: the names of its arguments.
        returns: what it returns, as code for errors.
        may_yield: whether it may yield outputs instead of returning them.
        may_be_async: whether it may be `async def`.
        instead: how to call services if it must not be `async def`, as a sentence for errors.
    """

    parameters: tuple[str, ...]
    returns: str
    may_yield: bool = False
    may_be_async: bool = False
    instead: str = _STATELESS_FIRST


def check_methods(cls: type, methods: Mapping[str, Method]) -> None:
    """Raise DeclarationError for a method that the engine cannot call, or that never returns a value.

    Args:
        cls: the declared class. Methods that it inherits from the library are not checked.
        methods: the methods by name.
    """
    for name, method in methods.items():
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if is_library_class(owner):
            continue
        declared = vars(owner)[name]
        if not method.may_be_async:
            _expect_synchronous(cls, name, method)
        _expect_parameters(cls, name, method, declared)
        if isinstance(declared, FunctionType):
            _expect_result(cls, name, method, declared)


def is_async(method: object) -> bool:
    """Return whether a method is `async def`, with or without `yield`."""
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def expect_synchronous_resources(cls: type) -> None:
    """Raise DeclarationError if `open` or `close` of a processor is `async def`, but nothing awaits it."""
    for name in ("open", "close"):
        if is_async(getattr(cls, name)):
            raise DeclarationError(
                f"{cls.__name__}.{name} is `async def`, but the engine does not await it. Nothing was read. Write `def {name}(self):`. Only "
                "methods of a penstock.Stateless may be `async def`."
            )


def engine_method(method: F) -> F:
    """Mark a method that the engine calls and users do not define: a helper of this name is refused where it is declared."""
    method.__engine_method__ = True  # type: ignore[attr-defined]  # a mark of ours
    return method


def expect_library_methods(cls: type) -> None:
    """Raise DeclarationError if a class of a user hides a method that the engine calls: one that is not the user's, or with something else, such as a dict."""
    if is_library_class(cls):
        return
    for name, own in vars(cls).items():
        hidden = next(
            (vars(base)[name] for base in cls.__mro__[1:] if is_library_class(base) and name in vars(base)), None
        )
        is_other = isinstance(hidden, classmethod) and not isinstance(own, classmethod)
        is_no_method = isinstance(hidden, FunctionType) and not callable(own)
        if _is_engines(hidden) or is_other or (is_no_method and not isinstance(own, (classmethod, staticmethod))):
            raise DeclarationError(
                f"{cls.__name__}.{name} hides a method that Penstock calls itself. Nothing was read. Choose another name, such as `own_{name}`."
            )


def _is_engines(hidden: object) -> bool:
    method = hidden.__func__ if isinstance(hidden, classmethod) else hidden
    return getattr(method, "__engine_method__", False) or getattr(method, "__final__", False)


def expect_own_attribute(cls: type, name: str) -> None:
    """Raise DeclarationError if an attribute of an instance would hide a method or a declaration of the library."""
    if _is_used(cls, name):
        raise DeclarationError(
            f"Processor {cls.__name__} sets `self.{name}`, which Penstock uses itself. It keeps its value. Choose another name, such as `self.own_{name}`; "
            "declarations belong in the class."
        )


@lru_cache(maxsize=1024)  # user code may set an attribute with each event
def _is_used(cls: type, name: str) -> bool:
    """Return whether the library gives an attribute of this name to instances of a class."""
    bases = [vars(base) for base in cls.__mro__ if is_library_class(base)]
    return not name.startswith("_") and any(
        name in names or name in names.get("__annotations__", ()) for names in bases
    )


def misspelled_methods(cls: type) -> str:
    """Return the missing methods of an abstract class and the similar names that it defines, as sentences; empty without similar names.

    A class from which others derive is abstract on purpose.
    """
    if cls.__subclasses__():
        return ""
    missing: Collection[str] = sorted(getattr(cls, "__abstractmethods__", ()))
    own = [name for name, value in vars(cls).items() if isinstance(value, FunctionType)]
    near = {name: get_close_matches(name, own, 1) for name in missing}
    return " ".join(f"It defines `{similar[0]}`; did you mean `{name}`?" for name, similar in near.items() if similar)


def _code_of(name: str, method: Method) -> str:
    return f"`def {name}({', '.join(('self', *method.parameters))}):`"


def _expect_synchronous(cls: type, name: str, method: Method) -> None:
    if is_async(getattr(cls, name)):
        raise DeclarationError(
            f"{cls.__name__}.{name} is `async def`, but the engine calls it for one event after the other and does not await it. Nothing was read. "
            f"Write {_code_of(name, method)}. {method.instead}"
        )


def _expect_parameters(cls: type, name: str, method: Method, declared: object) -> None:
    function = getattr(cls, name)
    is_bound = isinstance(declared, (staticmethod, classmethod))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a callable without a known signature
    try:
        signature.bind(*(() if is_bound else ("self",)), *method.parameters)
    except TypeError as error:
        raise DeclarationError(
            f"{cls.__name__}.{name}{signature} does not accept the arguments {', '.join(method.parameters)}: {error}. Nothing was read. "
            f"Write {_code_of(name, method)}."
        ) from error


def _expect_result(cls: type, name: str, method: Method, function: FunctionType) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        if not method.may_yield:
            raise DeclarationError(
                f"{cls.__name__}.{name} contains `yield`, but must return one value. Nothing was read. Collect the outputs in a list, and write "
                f"`return {method.returns}`."
            )
    elif _returns_only_none(function):
        raise DeclarationError(
            f"{cls.__name__}.{name} never returns a value. Nothing was read. Write `return {method.returns}`"
            f"{', or yield the outputs' if method.may_yield else ''}."
        )


def _returns_only_none(function: FunctionType) -> bool:
    """Return whether a function returns None wherever it returns. A function that always raises does not return."""
    instructions = list(dis.get_instructions(function))
    returned = [
        _returned(previous, instruction)
        for previous, instruction in pairwise(instructions)
        if instruction.opname in {"RETURN_VALUE", "RETURN_CONST"}
    ]
    return bool(returned) and all(value is None for value in returned)


def _returned(previous: dis.Instruction, instruction: dis.Instruction) -> object:
    """Return the constant that an instruction returns, or another object for any other value."""
    if instruction.opname == "RETURN_CONST":
        return instruction.argval
    # A conditional expression jumps to the return with another value than the previous instruction's.
    is_constant = previous.opname == "LOAD_CONST" and not instruction.is_jump_target
    return previous.argval if is_constant else instruction
