"""Crash tests for each processor kind and each guarantee: workers die up to three times, at any operation and during recovery, on any disk."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
from support.disks import Disk
from support.kinds import KINDS
from support.mortal import Crash
from support.mortals import Trial, can_lose_disk, moments_of
from support.subjects import PAIRS, REMOTE, SINKS, STATELESS, Subject

from penstock.ops.kernel.loop import batch_intake

SOON = 12
"""The next death follows within this many operations; opening a shard and recovering it takes as many."""
WAYS = int(os.environ.get("PENSTOCK_WAYS_TO_DIE", "2"))
"""The number of crash plans for each subject and disk; all subjects together cover each sort of operation many times."""
PASSING = ("stateless", "pipe", "repartition", "lookup")
ALONE = ("downstream",)
"""Kinds that need an upstream processor."""


def subjects() -> Iterator[Subject]:
    """Yield each processor kind with each guarantee that it supports."""
    for kind in KINDS:
        if kind in PASSING:
            yield from (Subject(kind, subject.state, subject.output) for subject in STATELESS)
        elif kind not in ALONE:
            yield from (Subject(kind, *pair) for pair in PAIRS)
    yield from REMOTE
    yield from SINKS


@cache
def moments(subject: Subject) -> Sequence[str]:
    """Return the operations of a subject that does not die."""
    return moments_of(subject)


def deaths(subject: Subject, disk: Disk) -> Iterator[list[Crash]]:
    """Yield crash plans: a death before each sort of operation, and up to two more soon after, on this disk or on the same one."""
    lots = random.Random(f"{subject} {disk}")
    happened = moments(subject)
    labels = sorted(set(happened))
    for label in lots.sample(labels, min(WAYS, len(labels))):
        places = [at for at, name in enumerate(happened) if name == label]
        found = [Crash(lots.choice(places), disk)]
        for _ in range(lots.randrange(3)):
            found.append(Crash(found[-1].at + lots.randint(1, SOON), lots.choice((disk, Disk.SAME))))
        yield found


def cases() -> list[object]:
    """Yield each subject with each state of its disk."""
    return [
        pytest.param(subject, disk, id=f"{subject}-{disk.value}".replace(" ", "_"))
        for subject in subjects()
        for disk in (Disk if can_lose_disk(subject) else [Disk.SAME])
    ]


@pytest.fixture(autouse=True)
def _columns_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_intake, "LEAST_COLUMNS", 2)


@pytest.mark.parametrize(("subject", "disk"), cases())
def test_guarantees_hold_whenever_workers_die(subject: Subject, disk: Disk) -> None:
    """State and outputs are exact, at least the exact result, or at most it, as declared."""
    for way in deaths(subject, disk):
        trial = Trial(subject, way)
        trial.run()

        assert trial.driver.died
        try:
            trial.expect_kept()
        except AssertionError as error:
            raise AssertionError(f"{subject} died {'; '.join(trial.driver.died)}: {error}") from error
