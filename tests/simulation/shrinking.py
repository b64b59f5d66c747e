"""Reduction of a failing scenario: removes each part that the failure does not need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from .scenario import Scenario

T = TypeVar("T")
MAX_RUNS = 150
"""The maximum number of runs of a reduction."""


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], runs: int = MAX_RUNS) -> Scenario:
    """Return the smallest scenario found that still fails: fewer faults, fewer and shorter rounds, fewer events, fewer workers.

    Args:
        scenario: a failing scenario.
        fails: tells whether a scenario fails.
        runs: the maximum number of runs.
    """
    smaller = _smaller(scenario)
    while runs > 0:
        candidate = next(smaller, None)
        if candidate is None:
            return scenario
        runs -= 1
        if fails(candidate):
            scenario, smaller = candidate, _smaller(candidate)
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield smaller scenarios, the largest reductions first."""
    for faults in _reductions(scenario.faults):
        yield replace(scenario, faults=faults)
    for rounds_s in _reductions(scenario.rounds_s):
        if rounds_s:
            yield replace(scenario, rounds_s=rounds_s)
    if scenario.events > 1:
        yield replace(scenario, events=scenario.events // 2)
    for at, node in enumerate(scenario.nodes):
        if node.workers > 1:
            fewer = replace(node, workers=node.workers - 1)
            yield replace(scenario, nodes=(*scenario.nodes[:at], fewer, *scenario.nodes[at + 1 :]))
    for at, fault in enumerate(scenario.faults):
        if fault.duration_s > 1:
            shorter = replace(fault, duration_s=round(fault.duration_s / 2, 2))
            yield replace(scenario, faults=(*scenario.faults[:at], shorter, *scenario.faults[at + 1 :]))


def _reductions(items: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Yield the items without a half, without a quarter, …, without one."""
    size = len(items) // 2
    while size:
        for begin in range(0, len(items), size):
            yield (*items[:begin], *items[begin + size :])
        size //= 2
    if len(items) == 1:
        yield ()
