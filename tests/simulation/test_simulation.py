"""Processors under the trouble of a simulation: whatever the seed, what was promised is kept; and the simulation finds what it has to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .mutants import MUTANTS
from .profiles import PROFILES

ROOT = Path(__file__).resolve().parents[2]
SEEDS = {"calm": 30, "mixed": 60}
"""How many seeds of a profile are tried; of others `USUAL`. All together take about three minutes on two slow cores."""
USUAL = 15
LIMIT_S = 900


def simulate(*arguments: str, hash_seed: str = "1") -> subprocess.CompletedProcess[str]:
    """Run the simulation as a person does."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
        text=True,
        timeout=LIMIT_S,
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_all_is_kept_whatever_goes_wrong(profile: str) -> None:
    """No event lost, none doubled, nothing wrong and nothing stuck, as the row of each processor says."""
    found = simulate("--profile", profile, "--seeds", str(SEEDS.get(profile, USUAL)))

    assert found.returncode == 0, found.stdout + found.stderr[-2_000:]


@pytest.mark.parametrize("profile", ["mixed", "markers", "deletions", "archive"])
def test_a_seed_gives_the_same_run_each_time(profile: str) -> None:
    """To the last message and the last moment, in another process with other hashes."""
    runs = [simulate("--profile", profile, "--seed", "3", "--as-it-is", hash_seed=seed) for seed in ("1", "2")]
    digests = [re.findall(r"digest (\w{16})", run.stdout) for run in runs]

    assert len(digests[0]) == 1, runs[0].stdout + runs[0].stderr
    assert digests[0] == digests[1]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_that_was_mended_is_found_again(name: str) -> None:
    """The simulation sees that it is back."""
    mutant = MUTANTS[name]
    found = simulate("--profile", mutant.profile, "--seeds", str(mutant.within), "--mutant", name, "--until-one-fails")

    assert found.returncode == 1, found.stdout + found.stderr[-2_000:]
