"""Random apps under random faults: every guarantee holds for every seed, and a seed repeats its run exactly."""

from __future__ import annotations

import re

import pytest

from .profiles import PROFILES
from .running import simulate

SEEDS = {"calm": 10, "mixed": 20, "prompt": 20}
"""Seeds per profile; `DEFAULT_SEEDS` for the others. Together they take about a minute on two cores; `make simulate` runs thousands."""
DEFAULT_SEEDS = 5


@pytest.mark.parametrize("profile", PROFILES)
def test_every_guarantee_holds_despite_random_faults(profile: str) -> None:
    """Outputs and states agree with each processor's guarantees, and all work ends."""
    found = simulate("--profile", profile, "--seeds", str(SEEDS.get(profile, DEFAULT_SEEDS)))

    assert found.returncode == 0, found.stdout + found.stderr[-2_000:]


@pytest.mark.parametrize("profile", ["mixed", "markers", "deletions", "archive", "clusters"])
def test_a_seed_repeats_its_run_exactly(profile: str) -> None:
    """All messages and times are equal, also in another process with other hashes."""
    runs = [simulate("--profile", profile, "--seed", "3", "--no-shrink", hash_seed=seed) for seed in ("1", "2")]
    digests = [re.findall(r"digest (\w{16})", run.stdout) for run in runs]

    assert len(digests[0]) == 1, runs[0].stdout + runs[0].stderr
    assert digests[0] == digests[1]
