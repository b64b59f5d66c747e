"""Random apps under random faults: every guarantee holds for every seed, and a seed repeats its run exactly."""

from __future__ import annotations

import re

import pytest

from .profiles import PROFILES
from .running import simulate

SEEDS = {"calm": 20, "mixed": 40}
"""Seeds per profile; `USUAL` for the others. Together they take about two minutes on two cores; `make simulate` runs thousands."""
USUAL = 10


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
