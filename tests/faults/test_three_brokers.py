"""Three brokers are killed in turn while workers write: no acknowledged event is lost, and none counts twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.kafka_cluster import NODES, KafkaCluster, running_cluster
from support.subjects import EXACT, Subject, events
from support.trials import Source, create_job, expect_guarantees
from support.victims import LIMIT_S, Job, exit_code_of

from penstock.ops.kernel import prepare
from penstock.transport import BusUnreachable, CategorySpec
from penstock.transport.category_spec import Durability
from penstock.transport.kafka import KafkaBus, KafkaSettings

PORTION = 300
"""Number of events before a broker is killed, while it is down, and when it is back."""
DONE_LIMIT_S = 400.0
SUBJECTS = [Subject("stateful", EXACT, EXACT), Subject("stateless", EXACT, EXACT)]

Wait = Callable[..., None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers for all tests of this file."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def bus(cluster: KafkaCluster) -> KafkaBus:
    """A client of the three brokers."""
    return KafkaBus(KafkaSettings(cluster.bootstrap))


class Run:
    """A worker that runs until it is stopped, and the events of its processor so far."""

    def __init__(self, subject: Subject, prefix: str, bus: KafkaBus, folder: Path) -> None:
        folder.mkdir()
        made = create_job(subject, [], prefix, bus, folder)
        prepare(subject.make(prefix), bus).close()
        self._bus = bus
        self.job = Job(subject, prefix, made.kafka, folder, batch=20, endless=True)
        self.source = Source(subject, prefix, bus)
        self.worker = self.job.start()

    def send(self) -> None:
        """Write the next events."""
        self.source.send(events(PORTION, start=len(self.source.sent)))

    def done(self) -> int:
        """Return the number of events that the group has processed, or 0 if it is unknown."""
        try:
            return sum(self._bus.catalog.committed(f"{self.job.prefix}.subject", f"{self.job.prefix}.events").values())
        except BusUnreachable:
            return 0


@pytest.fixture
def runs(bus: KafkaBus, tmp_path: Path, prefix: str) -> Iterator[list[Run]]:
    """A worker per subject."""
    runs = [Run(subject, f"{prefix}.{subject.kind}", bus, tmp_path / subject.kind) for subject in SUBJECTS]
    yield runs
    for run in runs:
        run.worker.kill()


def test_a_category_survives_the_loss_of_any_broker(cluster: KafkaCluster, bus: KafkaBus, prefix: str) -> None:
    """It has three replicas and two in-sync ones, and no replica that lacks messages becomes leader."""
    bus.catalog.create(CategorySpec(prefix, 2))

    assert bus.catalog.durability(prefix) == Durability(3, 2, unclean_election=False, uses_arrival_time=True)
    assert [cluster.partitions()[prefix, number].replicas for number in range(2)] == [frozenset(NODES)] * 2


def test_a_new_category_is_known_to_each_broker(cluster: KafkaCluster, bus: KafkaBus, prefix: str) -> None:
    """A worker that starts now may ask any of them, and a broker without the metadata would deny the category."""
    asked = [KafkaBus(KafkaSettings(cluster.address_of(node))).catalog for node in NODES]
    denied = []
    for number in range(10):
        name = f"{prefix}.{number}"
        for each in asked:
            each.names()  # connected before the creation, so that the first request follows it at once
        bus.catalog.create(CategorySpec(name, 2))
        denied += [name for each in asked if name not in each.names()]

    assert denied == []


def test_each_event_counts_once_while_one_broker_after_another_is_killed(
    cluster: KafkaCluster, runs: list[Run], wait_until: Wait
) -> None:
    """The broker leads an input, or coordinates groups or transactions: work continues with two brokers, and no worker ends."""
    led = [(f"{runs[0].job.prefix}.events", 0), ("__consumer_offsets", 0), ("__transaction_state", 0)]
    for partition in led:
        cluster.await_brokers(NODES)
        before = [run.done() for run in runs]
        for run in runs:
            run.send()
        wait_until(lambda: all(run.done() > done for run, done in zip(runs, before, strict=True)), DONE_LIMIT_S)  # noqa: B023 - called within the iteration
        dead = cluster.partitions()[partition].leader
        cluster.kill(dead)
        cluster.await_leaders(dead)
        for run in runs:
            run.send()
        wait_until(lambda: all(run.done() >= len(run.source.sent) for run in runs), DONE_LIMIT_S)
        cluster.launch(dead)
        for run in runs:
            run.send()
    cluster.await_brokers(NODES)
    wait_until(lambda: all(run.done() >= len(run.source.sent) for run in runs), DONE_LIMIT_S)
    assert [run.worker.exitcode for run in runs] == [None] * len(runs)
    for run in runs:
        os.kill(run.worker.pid or 0, signal.SIGTERM)

    assert [exit_code_of(run.worker, LIMIT_S) for run in runs] == [0] * len(runs)
    for run in runs:
        expect_guarantees(run.job, run.source.sent)
