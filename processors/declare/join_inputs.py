"""The two categories that a join brings together."""

from __future__ import annotations

from ..errors import DeclarationError
from .processor import Processor, expect_category


def declares(join: type[Processor], first: str, second: str) -> bool:
    """Tell whether a join says what it joins.

    Raises:
        DeclarationError: what it says is no category.
    """
    if not (hasattr(join, first) and hasattr(join, second)):
        return False
    for name in (first, second):
        expect_category(join, getattr(join, name))
    return True


def expect_declared(join: type[Processor], first: str, second: str) -> None:
    """Raise DeclarationError where a join does not say what it joins."""
    if not declares(join, first, second):
        raise DeclarationError(
            f"Join {join.__name__}: declare `{first} = …` and `{second} = …`, the categories that it joins."
        )


def expect_told_apart(join: type[Processor]) -> None:
    """Raise DeclarationError where the events of a join's two inputs are of one type."""
    first, second = join.inputs()
    if first.record is second.record:
        raise DeclarationError(
            f"Join {join.__name__}: {first.name} and {second.name} hold the same record type, by which they are told apart. Derive a "
            "record type for one of them."
        )
