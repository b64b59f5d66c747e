"""Runs many seeds in parallel, or repeats one seed.

make simulate SEEDS=10000       runs seeds of all profiles; exits with 1 if a seed fails
SEED=417 make simulate          repeats one seed, prints its history, and reduces a failing scenario
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from .draw import draw_scenario
from .mutants import MUTANTS, faulty
from .profiles import PROFILES
from .scenario import Scenario
from .shrinking import shrink
from .world import Outcome, run

MAX_REPORTED = 10
"""The maximum number of failed seeds in the summary."""


class SeedResult(NamedTuple):
    """The result of a seed."""

    profile: str
    seed: int
    failure: str | None
    digest: str


def profile_of(seed: int) -> str:
    """Return the profile of a seed in a run of all profiles."""
    return list(PROFILES)[seed % len(PROFILES)]


def run_seed(profile: str, seed: int) -> SeedResult:
    """Run a seed."""
    outcome = run(draw_scenario(seed, PROFILES[profile]))
    return SeedResult(profile, seed, outcome.failure, outcome.digest)


def initialize(mutant: str | None) -> None:
    """Disable the library's logs, which repeat the history, and bring a repaired fault back if `mutant` names one."""
    logging.disable(logging.CRITICAL)
    faulty(mutant).__enter__()  # for the rest of the process


def run_seeds(profile: str | None, seeds: range, processes: int, mutant: str | None) -> Iterator[SeedResult]:
    """Run seeds in several processes, and yield their results in order."""
    pool = ProcessPoolExecutor(processes, initializer=initialize, initargs=(mutant,))
    try:
        yield from pool.map(run_seed, [profile or profile_of(seed) for seed in seeds], seeds, chunksize=4)
    finally:
        pool.shutdown(cancel_futures=True)


def format_run(scenario: Scenario, outcome: Outcome) -> str:
    """Return a readable history of a run."""
    return "\n".join([str(scenario), *(f"  {fault}" for fault in scenario.faults), "", *outcome.history])


def print_line(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def repeat_seed(profile: str, seed: int, *, reduces: bool) -> int:
    """Run one seed and print its history; reduce a failing scenario and print that, too. Return the exit code."""
    scenario = draw_scenario(seed, PROFILES[profile])
    outcome = run(scenario)
    print_line(f"{format_run(scenario, outcome)}\ndigest {outcome.digest}")
    if outcome.failure is None:
        return 0
    if not reduces:
        return 1
    small = shrink(scenario, lambda candidate: run(candidate).failure is not None)
    print_line("\n--- reduced ---\n" + format_run(small, run(small)))
    return 1


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000, help="the number of seeds")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="repeat one seed")
    parser.add_argument("--profile", choices=PROFILES, help="the profile; by default all profiles in turn")
    parser.add_argument("--no-shrink", action="store_true", help="do not reduce a failing scenario")
    parser.add_argument("--stop-at-failure", action="store_true", help="stop at the first failing seed")
    parser.add_argument("--mutant", choices=MUTANTS, help="bring a repaired fault back")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets depends on hashes, which a seed must determine, too.
        os.execve(  # noqa: S606 - this program itself
            sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    if options.seed is not None:
        initialize(options.mutant)
        return repeat_seed(options.profile or profile_of(options.seed), options.seed, reduces=not options.no_shrink)
    seeds = range(options.first, options.first + options.seeds)
    began_s, failed = time.monotonic(), list[SeedResult]()
    for done, result in enumerate(run_seeds(options.profile, seeds, options.processes, options.mutant), 1):
        if result.failure is not None:
            failed.append(result)
            print_line(f"\rseed {result.seed} ({result.profile}): {result.failure[:200]}")
            if options.stop_at_failure:
                return 1
        each_s = (time.monotonic() - began_s) / done
        if sys.stderr.isatty():
            sys.stderr.write(
                f"\r{done:,} of {options.seeds:,} seeds, {1 / each_s:.1f} per second, {len(failed)} failed "
            )
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    by_profile = Counter(result.profile for result in failed)
    print_line(f"{options.seeds:,} seeds, {len(failed)} failed {dict(by_profile) or ''}")
    for result in failed[:MAX_REPORTED]:
        print_line(f"SEED={result.seed} PROFILE={result.profile} make simulate")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
