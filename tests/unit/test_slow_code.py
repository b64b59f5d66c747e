"""Code of a processor that runs for longer than a member of a group may go without a poll."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

import penstock as ps
from penstock.ops.kernel import Driver, Worker
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.testing import InlineExecutor
from penstock.processors.operators import merge_of
from penstock.state import MemoryStateFolder
from penstock.transport import Bucket, IdentityTaken, MembershipLost
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.memory.readers import MemoryReader


class Call(ps.Record, frozen=True):
    """A call of a slow service."""

    key: str
    at: ps.EventTime


calls = ps.Category("calls", Call, key="key", event_time="at", buckets=1)
answers = ps.Category("answers", Call, key="key", event_time="at", buckets=1)


class Slow(ps.Stateless):
    """Waits for a service."""

    reads, writes = calls, answers

    def process(self, event: Call) -> list[Call]:
        """Wait, while the thread beside the loop ticks."""
        workers[0].tick()
        return [event]


workers: list[Worker] = []
"""The worker of a test."""


def test_a_worker_keeps_its_membership_while_code_of_a_processor_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread beside the loop keeps it, once the worker has joined its group."""
    kept: list[bool] = []
    driver = Driver(Slow)
    place = WorkerConfig(driver.bus, MemoryStateFolder(merge_of(Slow())), "one")
    workers[:] = [worker] = [Worker(Slow(), place, InlineExecutor(), InlineExecutor(), clock=driver.clock)]
    monkeypatch.setattr(MemoryReader, "keep_alive", lambda _: kept.append(True))
    worker.tick()
    before = list(kept)
    driver._write(calls, [Call("k", 0), Call("k", 1)])
    for _ in range(3):
        worker.run_once()

    assert (before, kept) == ([], [True, True])


class Owner:
    """Accepts any bucket."""

    def assigned(self, buckets: object) -> None:
        """Accept assigned buckets."""

    def revoked(self, buckets: object) -> None:
        """Ignore revoked buckets."""

    def lost(self, buckets: object) -> None:
        """Ignore lost buckets."""


def test_a_reader_that_did_not_poll_blames_no_other_worker(caplog: pytest.LogCaptureFixture) -> None:
    """The client blames another process for its own new membership. The error names the setting, and does not report a taken identity."""
    settings = KafkaSettings("127.0.0.1:1", {"max.poll.interval.ms": "60000"})
    reader = KafkaBus(settings).reader("slow", ["calls"], Owner(), "one")
    reader._ended(KafkaError(KafkaError._MAX_POLL_EXCEEDED), Bucket("calls", 0), 0)
    with pytest.raises(MembershipLost, match="did not poll for more than 60 s") as lost, reader._naming_the_cause():
        raise IdentityTaken("Static consumer fenced by other consumer with same group.instance.id.")
    reader.close()

    assert not isinstance(lost.value, IdentityTaken)
    assert "max.poll.interval.ms" in caplog.text
