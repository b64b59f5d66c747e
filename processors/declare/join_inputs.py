"""The two inputs of a join."""

from __future__ import annotations

from ..errors import DeclarationError
from .plan import plan_of
from .processor import Processor, expect_category


def declares(join: type[Processor], first: str, second: str) -> bool:
    """Return whether a join declares both inputs.

    Raises:
        DeclarationError: an input is not a category.
    """
    if not (hasattr(join, first) and hasattr(join, second)):
        return False
    for name in (first, second):
        expect_category(join, getattr(join, name))
    return True


def expect_declared(join: type[Processor], first: str, second: str) -> None:
    """Raise DeclarationError if an input of the join is missing."""
    if not declares(join, first, second):
        raise DeclarationError(
            f"Join {join.__name__} has no inputs. Declare `{first} = …` and `{second} = …`, the categories to join."
        )


def expect_distinct_records(join: type[Processor]) -> None:
    """Raise DeclarationError if both inputs of the join have the same record type."""
    first, second = plan_of(join).sources
    if set(first.record_types) & set(second.record_types):
        raise DeclarationError(
            f"Join {join.__name__}: {first.name} and {second.name} have the same record type, which must distinguish them. Derive a "
            "record type for one of them."
        )
