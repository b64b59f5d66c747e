"""Random apps under random faults: every guarantee holds for every seed, and a seed repeats its run exactly."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from .mutants import MUTANTS
from .profiles import PROFILES
from .running import simulate
from .scheduler import ForeignThread, Scheduler

SEEDS = {"calm": 10, "estimates": 20, "mixed": 20, "prompt": 20}
"""Seeds per profile; `DEFAULT_SEEDS` for the others. Together they take about a minute on two cores; `make simulate` runs thousands."""
DEFAULT_SEEDS = 5


@pytest.mark.parametrize("profile", PROFILES)
def test_every_guarantee_holds_despite_random_faults(profile: str) -> None:
    """Outputs and states agree with each processor's guarantees, and all work ends."""
    found = simulate("--profile", profile, "--seeds", str(SEEDS.get(profile, DEFAULT_SEEDS)))

    assert found.returncode == 0, found.stdout + found.stderr[-2_000:]


@pytest.mark.parametrize(
    "profile", ["mixed", "markers", "deletions", "archive", "clusters", "compacted", "leaders", "backups"]
)
def test_a_seed_repeats_its_run_exactly(profile: str) -> None:
    """All messages and times are equal, also in another process with other hashes."""
    runs = [simulate("--profile", profile, "--seed", "3", "--no-shrink", hash_seed=seed) for seed in ("1", "2")]
    digests = [re.findall(r"digest (\w{16})", run.stdout) for run in runs]

    assert len(digests[0]) == 1, runs[0].stdout + runs[0].stderr
    assert digests[0] == digests[1]


def test_a_thread_that_is_no_task_fails_the_run() -> None:
    """A thread that the library starts by itself is named, even if the library catches the error: with it, no seed would repeat its run."""
    scheduler = Scheduler(0)
    with ThreadPoolExecutor(1) as pool:
        errors = [
            pool.submit(call).exception() for call in (lambda: scheduler.point("save"), lambda: scheduler.sleep(1))
        ]

    assert [type(error) for error in errors] == [ForeignThread, ForeignThread]
    assert scheduler.failures == errors


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_replaces_what_the_library_contains(name: str) -> None:
    """A fault can be brought back as long as no part of the library that it replaces has another name; finding it takes longer."""
    with MUTANTS[name].faulty():
        pass
