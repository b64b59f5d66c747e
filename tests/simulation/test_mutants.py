"""The simulation finds faults: each mutant brings a repaired fault back, and some seed fails."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS
from .running import simulate


@pytest.mark.parametrize("name", MUTANTS)
def test_a_repaired_fault_is_found_when_it_returns(name: str) -> None:
    """One of the seeds fails."""
    mutant = MUTANTS[name]
    found = simulate("--profile", mutant.profile, "--seeds", str(mutant.within), "--mutant", name, "--until-one-fails")

    assert found.returncode == 1, found.stdout + found.stderr[-2_000:]
