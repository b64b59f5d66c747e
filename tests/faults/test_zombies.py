"""Workers that are paused until they lose their membership, and then continue, can write nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.databases import Postgres, Redis
from support.plain import values
from support.subjects import EXACT, MOST, Subject, events
from support.trials import create_job, expect_guarantees, expect_remote_guarantees
from support.victims import LIMIT_S, Kill

import penstock as ps
from penstock.processors.shard import Gap, Step, steps_of
from penstock.transport.kafka import KafkaBus

EVENTS = events(200)
# The successor continues from the paused worker's disk, past its lock, or from another machine's.
SUBJECTS = {
    Subject("stateful", EXACT, EXACT): "one",
    Subject("aggregator", EXACT, EXACT): "two",
    Subject("stateful", EXACT, MOST): "one",
}
LOGGED = Subject("unsure", EXACT, MOST)
AROUND_COMMIT = (Step.COMMIT_TRANSACTION, Step.APPLY_STATE, Step.SEND_OUTPUTS)


STATELESS = Subject("stateless", EXACT, EXACT)
REMOTE = Subject("aggregator", EXACT, EXACT, ps.RemoteStore())


def marks_of(subject: Subject, before: Step | None) -> tuple[pytest.MarkDecorator, ...]:
    """Return no mark for one subject and for the gaps around the commit; the other gaps of the other subjects repeat them."""
    return () if subject == next(iter(SUBJECTS)) or before in AROUND_COMMIT else (pytest.mark.exhaustive,)


def cases() -> list[Any]:
    """Return each subject with each gap of its checkpoints."""
    return (
        [
            pytest.param(
                subject,
                disk,
                Gap(before),
                id=f"{subject}-{Gap(before)}".replace(" ", "_"),
                marks=marks_of(subject, before),
            )
            for subject, disk in SUBJECTS.items()
            for before in (*steps_of(subject.make("any")), None)
        ]
        + [
            pytest.param(LOGGED, "two", Gap(before), id=f"{LOGGED}-{Gap(before)}".replace(" ", "_"))
            for before in AROUND_COMMIT
        ]
        + [
            pytest.param(STATELESS, "two", Gap(before), id=f"{STATELESS}-{Gap(before)}".replace(" ", "_"))
            for before in (Step.COMMIT_TRANSACTION, None)
        ]
    )


def is_paused(process: ForkServerProcess) -> bool:
    """Return whether a process was stopped by SIGSTOP."""
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


@pytest.mark.parametrize(("subject", "disk", "gap"), cases())
def test_a_zombie_writes_nothing(
    subject: Subject,
    disk: str,
    gap: Gap,
    kafka_bus: KafkaBus,
    tmp_path: Path,
    prefix: str,
    wait_until: Callable[..., None],
) -> None:
    """Another worker takes over and finishes; the first one's later writes are refused, and it ends cleanly."""
    job = create_job(subject, EVENTS, prefix, kafka_bus, tmp_path / "one")
    zombie = job.start(Kill(gap, by=signal.SIGSTOP))
    wait_until(lambda: is_paused(zombie))
    successor = replace(job, folder=tmp_path / disk)
    assert successor.run() == 0
    written = sorted(values(job.kafka, f"{prefix}.out"), key=str)

    os.kill(zombie.pid or 0, signal.SIGCONT)
    zombie.join(LIMIT_S)

    assert zombie.exitcode == 0
    if subject.output is EXACT:  # at-most-once outputs are sent after the checkpoint, and no other worker sends them
        assert sorted(values(job.kafka, f"{prefix}.out"), key=str) == written
    expect_guarantees(successor, EVENTS)


@pytest.fixture(params=["postgres", "redis_server"])
def store(request: pytest.FixtureRequest) -> Postgres | Redis:
    """Each store that can contain a processor's state."""
    server: Postgres | Redis = request.getfixturevalue(request.param)
    return server


@pytest.mark.parametrize(
    "before",
    [Step.SAVE_WITH_OUTBOX, Step.COMMIT_TRANSACTION, Step.CLEAR_OUTBOX],
    ids=lambda step: step.value,
)
def test_a_zombie_changes_nothing_in_its_store(
    before: Step,
    store: Postgres | Redis,
    kafka_bus: KafkaBus,
    tmp_path: Path,
    prefix: str,
    wait_until: Callable[..., None],
) -> None:
    """It saved state and outbox, and its successor has sent the outbox: the zombie neither sends nor clears anything."""
    job = replace(create_job(REMOTE, EVENTS, prefix, kafka_bus, tmp_path), store=store.url)
    zombie = job.start(Kill(Gap(before), by=signal.SIGSTOP))
    wait_until(lambda: is_paused(zombie))
    assert job.run() == 0
    written = sorted(values(job.kafka, f"{prefix}.out"), key=str)

    os.kill(zombie.pid or 0, signal.SIGCONT)
    zombie.join(LIMIT_S)

    assert zombie.exitcode == 0
    assert sorted(values(job.kafka, f"{prefix}.out"), key=str) == written
    expect_remote_guarantees(job, EVENTS)
