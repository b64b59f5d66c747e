"""Mutants: the simulation finds each repaired fault that a mutant brings back."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .running import simulate


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_finds_each_returning_fault(name: str) -> None:
    """At least one seed of the mutant's profile fails."""
    mutant = MUTANTS[name]
    found = simulate("--profile", mutant.profile, "--seeds", str(mutant.seeds), "--mutant", name, "--stop-at-failure")

    assert found.returncode == 1, found.stdout + found.stderr[-2_000:]
    assert found.stdout.lstrip().startswith("seed "), found.stderr[
        -2_000:
    ]  # a fault that is not found, not an error of the search
