"""Runs many seeds beside each other, or one again.

make simulate SEEDS=10000       all profiles in turn; ends with 1 where a seed fails
SEED=417 make simulate          one seed again, with its history, then made small
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

from .drawing import drawn
from .mutants import MUTANTS, faulty
from .profiles import PROFILES
from .scenario import Scenario
from .shrinking import shrunk
from .world import Outcome, run

SHOWN = 10
"""How many failures are shown in full."""


class Found(NamedTuple):
    """What came of a seed."""

    profile: str
    seed: int
    failure: str | None
    digest: str


def profile_of(seed: int) -> str:
    """Return the profile that a seed of the nightly run has: all in turn."""
    return list(PROFILES)[seed % len(PROFILES)]


def tried(profile: str, seed: int) -> Found:
    """Run a seed."""
    outcome = run(drawn(seed, PROFILES[profile]))
    return Found(profile, seed, outcome.failure, outcome.digest)


def begin(mutant: str | None) -> None:
    """Let the library log nothing, since the history says what happened; and have a fault back, if one is named."""
    logging.disable(logging.CRITICAL)
    faulty(mutant).__enter__()  # for the rest of the process


def all_of(profile: str | None, seeds: range, processes: int, mutant: str | None) -> Iterator[Found]:
    """Run seeds in several processes, and give what came of each in order."""
    pool = ProcessPoolExecutor(processes, initializer=begin, initargs=(mutant,))
    try:
        yield from pool.map(tried, [profile or profile_of(seed) for seed in seeds], seeds, chunksize=4)
    finally:
        pool.shutdown(cancel_futures=True)


def shown(scenario: Scenario, outcome: Outcome) -> str:
    """Return a run as a person reads it."""
    return "\n".join([str(scenario), *(f"  {fault}" for fault in scenario.faults), "", *outcome.history])


def say(text: str) -> None:
    """Tell a person."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def again(profile: str, seed: int, *, smaller: bool) -> int:
    """Run one seed, show it, and where it fails make it small and show that."""
    scenario = drawn(seed, PROFILES[profile])
    outcome = run(scenario)
    say(f"{shown(scenario, outcome)}\ndigest {outcome.digest}")
    if outcome.failure is None:
        return 0
    if not smaller:
        return 1
    small = shrunk(scenario, lambda candidate: run(candidate).failure is not None)
    say("\n--- made small ---\n" + shown(small, run(small)))
    return 1


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first")
    parser.add_argument("--seed", type=int, help="one alone, again")
    parser.add_argument("--profile", choices=PROFILES, help="of which kind; by default all in turn")
    parser.add_argument("--as-it-is", action="store_true", help="make the one that fails no smaller")
    parser.add_argument("--until-one-fails", action="store_true", help="end with the first that does")
    parser.add_argument("--mutant", choices=MUTANTS, help="bring a repaired fault back")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets come in the order of hashes, which a seed has to decide, too.
        os.execve(  # noqa: S606 - this same program
            sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    if given.seed is not None:
        begin(given.mutant)
        return again(given.profile or profile_of(given.seed), given.seed, smaller=not given.as_it_is)
    seeds = range(given.first, given.first + given.seeds)
    began_s, failed = time.monotonic(), list[Found]()
    for done, found in enumerate(all_of(given.profile, seeds, given.processes, given.mutant), 1):
        if found.failure is not None:
            failed.append(found)
            say(f"\rseed {found.seed} ({found.profile}): {found.failure[:200]}")
            if given.until_one_fails:
                return 1
        each_s = (time.monotonic() - began_s) / done
        sys.stderr.write(f"\r{done:,} of {given.seeds:,} seeds, {1 / each_s:.1f} a second, {len(failed)} failed ")
    sys.stderr.write("\n")
    by_profile = Counter(found.profile for found in failed)
    say(f"{given.seeds:,} seeds, {len(failed)} failed {dict(by_profile) or ''}")
    for found in failed[:SHOWN]:
        say(f"SEED={found.seed} PROFILE={found.profile} make simulate")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
