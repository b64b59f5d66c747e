"""Faults that were mended, brought back: what finds them has to find them again.

A mutant puts the faulty behaviour in the place of a function of the library. With it are the profile that makes the fault likely and seeds that
find it. It says nothing of how the fault was mended, but where.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault that was mended.

    Args:
        says: what goes wrong with it.
        profile: the profile that makes it likely.
        seeds: those that find it.
        faulty: brings it back, in a block.
    """

    says: str
    profile: str
    seeds: tuple[int, ...]
    faulty: Callable[[], AbstractContextManager[object]]


MUTANTS: dict[str, Mutant] = {}


def faulty(name: str | None) -> AbstractContextManager[object]:
    """Bring a fault back, in a block; none where none is named."""
    return nullcontext() if name is None else MUTANTS[name].faulty()
