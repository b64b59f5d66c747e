"""A machine is lost with its disk, and Kafka no longer retains the events of its state: the backup restores it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from support.subjects import BUCKETS, EXACT, LOCAL, Subject, events
from support.trials import create_job, expect_guarantees
from support.verdicts import send
from support.victims import LIMIT_S, REFUSED, Job, Kill, exit_code_of

from penstock.processors.declare import plan_of
from penstock.processors.shard import Gap, StatePosition, steps_of
from penstock.state import ShardIdentity
from penstock.state.backups import newest_position
from penstock.state.files import LocalFileStore
from penstock.transport.kafka import KafkaBus

BEFORE, AFTER = events(200), events(150, start=200)


def backed_up(job: Job) -> list[StatePosition]:
    """Return the position of each bucket's newest backup."""
    place, shape = LocalFileStore(job.backups or Path()), plan_of(job.subject.make(job.prefix)).state_shape or ""
    identities = [ShardIdentity(f"{job.prefix}.subject", number, shape) for number in range(BUCKETS)]
    return [newest_position(place, identity) or StatePosition() for identity in identities]


def forget(kafka: str, category: str, before: list[int]) -> None:
    """Delete the events before these offsets from Kafka."""
    admin = AdminClient({"bootstrap.servers": kafka})
    positions = [TopicPartition(category, number, offset) for number, offset in enumerate(before)]
    for future in admin.delete_records(positions).values():
        future.result(timeout=30)


def lost(subject: Subject, prefix: str, bus: KafkaBus, folder: Path, wait_until: Callable[..., None]) -> Job:
    """Run with backups, kill the worker in a later checkpoint, lose the disk, and delete the early events from Kafka."""
    job = replace(create_job(subject, BEFORE, prefix, bus, folder / "state"), backups=folder / "backups")
    category = f"{prefix}.events"
    worker = replace(job, endless=True).start()
    ends = bus.catalog.describe(category).ends
    wait_until(
        lambda: [position.offsets.get(category) for position in backed_up(job)] == [ends[n] for n in range(BUCKETS)]
    )
    worker.kill()
    worker.join()
    send(job.kafka, category, AFTER)
    steps = steps_of(subject.make(prefix))
    assert job.run(Kill(Gap(steps[len(steps) // 2]))) == -signal.SIGKILL
    shutil.rmtree(folder / "state")
    forget(job.kafka, category, [position.offsets[category] for position in backed_up(job)])
    return job


@pytest.mark.parametrize(
    "subject",
    [
        *LOCAL[::2],
        Subject("random", EXACT, EXACT),
        *(pytest.param(subject, marks=pytest.mark.exhaustive) for subject in LOCAL[1::2]),
    ],
    ids=str,
)
def test_a_lost_machine_is_restored_from_its_backup(
    subject: Subject, kafka_bus: KafkaBus, tmp_path: Path, prefix: str, wait_until: Callable[..., None]
) -> None:
    """Another machine restores the state and catches up, and the guarantee holds."""
    job = lost(subject, prefix, kafka_bus, tmp_path, wait_until)

    assert job.run() == 0
    expect_guarantees(job, BEFORE + AFTER)


def test_a_standby_takes_over_from_its_copies(
    kafka_bus: KafkaBus, tmp_path: Path, prefix: str, wait_until: Callable[..., None]
) -> None:
    """It needs neither the disk of the lost machine, nor the backup store, nor the early events."""
    subject, category, store = Subject("stateful", EXACT, EXACT), f"{prefix}.events", tmp_path / "backups"
    created = create_job(subject, BEFORE, prefix, kafka_bus, tmp_path / "lost")
    job = replace(created, backups=store, endless=True)
    lost = job.start()
    ends = kafka_bus.catalog.describe(category).ends
    wait_until(lambda: [at.offsets.get(category) for at in backed_up(job)] == [ends[n] for n in range(BUCKETS)])
    other = replace(job, folder=tmp_path / "other", standby=True)
    standby = other.start()
    copies = replace(job, backups=other.folder / f"{prefix}.subject" / ".standby")
    kept = {other.folder / f"{prefix}.subject" / f"{number:05d}" for number in range(BUCKETS)}

    def stands_by() -> bool:
        """Return whether each bucket is here or copied, and at least one is copied: also after a slow machine has moved both here for a while."""
        positions = backed_up(copies)
        return any(positions) and all(at or folder.exists() for at, folder in zip(positions, sorted(kept), strict=True))

    wait_until(stands_by)
    forget(job.kafka, category, [at.offsets[category] for at in backed_up(job)])
    send(job.kafka, category, AFTER)
    lost.kill()
    lost.join()
    shutil.rmtree(job.folder)
    store.rename(tmp_path / "away")
    store.touch()  # a store that answers with errors
    catalog = kafka_bus.catalog
    wait_until(lambda: catalog.committed(f"{prefix}.subject", category) == dict(catalog.ends(category)))
    standby.terminate()
    assert exit_code_of(standby, LIMIT_S) == 0
    expect_guarantees(other, BEFORE + AFTER)


def test_a_worker_refuses_to_start_without_state_backup_or_events(
    kafka_bus: KafkaBus, tmp_path: Path, prefix: str, wait_until: Callable[..., None]
) -> None:
    """It does not count from an empty state if disk, backup and Kafka lack the early events."""
    job = lost(Subject("stateful", EXACT, EXACT), prefix, kafka_bus, tmp_path, wait_until)
    shutil.rmtree(tmp_path / "backups")

    assert job.run() == REFUSED
