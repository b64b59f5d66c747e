"""A failing scenario made small: what can be left out while it still fails is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from .scenario import Scenario

T = TypeVar("T")
TRIES = 150
"""How many runs shrinking may take."""


def shrunk(scenario: Scenario, fails: Callable[[Scenario], bool], tries: int = TRIES) -> Scenario:
    """Return the smallest scenario found that still fails: fewer faults, fewer and shorter rounds, fewer events, fewer workers.

    Args:
        scenario: one that fails.
        fails: tells whether another one does.
        tries: how many are tried.
    """
    smaller = _smaller(scenario)
    while tries > 0:
        candidate = next(smaller, None)
        if candidate is None:
            return scenario
        tries -= 1
        if fails(candidate):
            scenario, smaller = candidate, _smaller(candidate)
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Give scenarios with something left out, the boldest first."""
    for faults in _with_less(scenario.faults):
        yield replace(scenario, faults=faults)
    for rounds_s in _with_less(scenario.rounds_s):
        if rounds_s:
            yield replace(scenario, rounds_s=rounds_s)
    if scenario.events > 1:
        yield replace(scenario, events=scenario.events // 2)
    for at, node in enumerate(scenario.nodes):
        if node.workers > 1:
            fewer = replace(node, workers=node.workers - 1)
            yield replace(scenario, nodes=(*scenario.nodes[:at], fewer, *scenario.nodes[at + 1 :]))
    for at, fault in enumerate(scenario.faults):
        if fault.lasts_s > 1:
            shorter = replace(fault, lasts_s=round(fault.lasts_s / 2, 2))
            yield replace(scenario, faults=(*scenario.faults[:at], shorter, *scenario.faults[at + 1 :]))


def _with_less(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Give all but a half, all but a quarter, …, all but one."""
    size = len(items) // 2
    while size:
        for begin in range(0, len(items), size):
            yield (*items[:begin], *items[begin + size :])
        size //= 2
    if len(items) == 1:
        yield ()
