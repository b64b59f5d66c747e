"""Counts and values in words, for messages."""

from __future__ import annotations

from types import FunctionType, MemberDescriptorType
from typing import get_origin


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 bucket`, `2 buckets`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article: `a timedelta`, `an int`."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def as_code(value: object) -> str:
    """Return a value as a declaration contains it: a class, a function or a field by its name, without its module or address.

    Examples:
        >>> as_code(FunctionType), as_code(as_code), as_code("json")
        ('function', 'as_code', "'json'")
    """
    if isinstance(value, MemberDescriptorType):
        return f"{value.__objclass__.__name__}.{value.__name__}"
    if isinstance(value, FunctionType):
        return "lambda …" if value.__name__ == "<lambda>" else value.__name__
    if isinstance(value, type) and get_origin(value) is None:
        return value.__name__
    return f"{type(value).__name__}(…)" if type(value).__repr__ is object.__repr__ else repr(value)
