"""Buckets that move between workers, and buckets that must not move."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from support.subjects import EXACT, Subject, events
from support.trials import Source, create_job, expect_guarantees
from support.verdicts import send
from support.victims import LIMIT_S, Job, Kill, exit_code_of

import penstock as ps
from penstock.ops.kernel import REPORTS, ReportReader
from penstock.processors.shard import Gap, steps_of
from penstock.transport import create_missing_categories
from penstock.transport.kafka import KafkaBus

EVENTS = events(200)
EXACTLY = Subject("stateful", EXACT, EXACT)
LONG_SESSION = {"session.timeout.ms": "1200000", "max.poll.interval.ms": "1200000"}
"""A session that outlasts every wait: a test that waited for its end would fail."""


def owners(kafka: str, group: str) -> dict[str, set[int]]:
    """Return the buckets of each member of a group, by the member's static id."""
    admin = AdminClient({"bootstrap.servers": kafka})  # its futures resolve only while it exists
    try:
        members = admin.describe_consumer_groups([group])[group].result(timeout=30).members
    except KafkaException:
        return {}  # the group does not exist yet
    return {
        member.group_instance_id: {p.partition for p in member.assignment.topic_partitions}
        for member in members
        if member.assignment.topic_partitions
    }


def test_a_bucket_whose_owner_died_while_giving_it_up_gets_a_new_owner(
    kafka_bus: KafkaBus, tmp_path: Path, prefix: str, wait_until: Callable[..., None]
) -> None:
    """The worker restarts within its session, in which Kafka does not rebalance; it leaves the group first."""
    never = ps.CheckpointInterval(events=10**9, time=timedelta(minutes=10))
    job = replace(create_job(EXACTLY, EVENTS, prefix, kafka_bus, tmp_path), settings=LONG_SESSION)
    create_missing_categories(kafka_bus, REPORTS)
    dies = replace(job, endless=True, checkpoint=never)
    first = dies.start(Kill(Gap(steps_of(EXACTLY.make(prefix))[0]), checkpoint=1))
    wait_until(lambda: events_in(kafka_bus, f"{prefix}.subject") == len(EVENTS))
    second = job.start()
    died = exit_code_of(first, LIMIT_S)
    ends = [exit_code_of(worker, LIMIT_S) for worker in (job.start(), second)]

    assert (died, ends) == (-signal.SIGKILL, [0, 0])
    expect_guarantees(job, EVENTS)


def events_in(bus: KafkaBus, processor: str) -> int:
    """Return the number of events that the workers of a processor report as read."""
    with closing(ReportReader.open(bus, datetime.now(UTC) - timedelta(minutes=10))) as reports:
        reports.read()
        intervals = reports.intervals(time.time_ns() // 1_000_000)
    return int(sum(interval.last.counts.events_in for (name, _), interval in intervals.items() if name == processor))


def test_a_quick_restart_moves_nothing(
    kafka_bus: KafkaBus, tmp_path: Path, prefix: str, wait_until: Callable[..., None]
) -> None:
    """A killed worker that restarts within its session continues with its own buckets; the other keeps its own."""
    job = replace(create_job(EXACTLY, EVENTS, prefix, kafka_bus, tmp_path), endless=True, settings=LONG_SESSION)
    group = f"{prefix}.subject"
    workers = [job.start(), job.start()]
    wait_until(lambda: sorted(map(len, owners(job.kafka, group).values())) == [1, 1])
    before = owners(job.kafka, group)
    workers[0].kill()
    workers[0].join()
    workers[0] = job.start()
    more = events(100, start=len(EVENTS))
    send(job.kafka, f"{prefix}.events", more)
    wait_until(lambda: sum(kafka_bus.catalog.committed(group, f"{prefix}.events").values()) >= len(EVENTS + more))
    after = owners(job.kafka, group)
    for worker in workers:
        os.kill(worker.pid or 0, signal.SIGTERM)
        worker.join(LIMIT_S)

    assert after == before
    expect_guarantees(job, EVENTS + more)


MOVING = [Subject(kind, EXACT, EXACT) for kind in ("stateful", "timers", "joining", "injected")]
"""Kinds that move differently: state with timers, which is replayed; two co-partitioned inputs with a changelog; and
watermarks, which the next owner of a bucket needs. "sessions", "closing" and "ordered" have state like "timers".
"""


def stop(workers: Sequence[ForkServerProcess]) -> None:
    """Stop workers cleanly, also if they have just started."""
    for worker in workers:
        os.kill(worker.pid or 0, signal.SIGTERM)
    for worker in workers:
        worker.join(LIMIT_S)
        assert worker.exitcode in {0, -signal.SIGTERM}


def test_buckets_move_while_they_are_opened(kafka_bus: KafkaBus, tmp_path: Path, prefix: str) -> None:
    """Workers start and stop faster than shards can be opened, each with its own disk, and every event counts once."""
    trials: list[tuple[Job, Source]] = []
    for subject in MOVING:
        of_its_own = f"{prefix}.{subject.kind}"
        job = replace(create_job(subject, [], of_its_own, kafka_bus, tmp_path / "0"), endless=True)
        trials.append((job, Source(subject, of_its_own, kafka_bus)))
        trials[-1][1].send(EVENTS)
    for turn in range(4):
        coming = [replace(job, folder=tmp_path / disk) for job, _ in trials for disk in (str(turn % 2), "2")]
        workers = [each.start() for each in coming]
        time.sleep(0.3 * (turn + 1))  # while they join, open, catch up, or work
        stop(workers[::2])  # while the others take over their buckets
        stop(workers[1::2])
    for job, source in trials:
        source.send(events(100, start=len(EVENTS)))  # so that the last worker reads events, and needs the whole state
        assert replace(job, endless=False).run() == 0
        expect_guarantees(job, source.sent)
