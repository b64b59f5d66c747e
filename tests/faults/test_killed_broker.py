"""A broker that is killed while transactions are open: what it forgets when it starts again is ended by who writes next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from support.verdicts import committed

from penstock.ops.local import LocalServices
from penstock.transport.bus import Bucket, CategorySpec, Outgoing, Position, Reader
from penstock.transport.kafka import KafkaBus, KafkaSettings

LIMIT_S = 60.0
OPEN_S = 1.0


class Broker:
    """A broker of its own, that is killed and started again on what it stored."""

    def __init__(self, folder: Path) -> None:
        self._services = LocalServices(folder)
        self.bus = KafkaBus(KafkaSettings(self.start()))

    def start(self) -> str:
        return self._services.up(["kafka"], lambda _: None)["kafka"].endpoints["bootstrap"]

    def kill(self) -> None:
        [status] = [one for one in self._services.status() if one.name == "kafka"]
        process = psutil.Process(status.pid)
        process.kill()
        process.wait(LIMIT_S)

    def stop(self) -> None:
        self._services.down(["kafka"], lambda _: None)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """One for this test alone."""
    broker = Broker(tmp_path)
    yield broker
    broker.stop()


class Owner:
    """Takes what it is given."""

    def __init__(self) -> None:
        self.owned: set[Bucket] = set()

    def gained(self, buckets: Sequence[Bucket]) -> None:
        self.owned.update(buckets)

    def given_up(self, buckets: Sequence[Bucket]) -> None:
        self.owned.difference_update(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        self.given_up(buckets)


def joined(bus: KafkaBus, owner: Owner) -> Reader:
    reader = bus.reader("reader", ["in"], owner, "one")
    deadline = time.monotonic() + LIMIT_S
    while not owner.owned:
        assert time.monotonic() < deadline
        reader.poll(0.1)
    return reader


def test_what_a_killed_broker_left_open_neither_counts_nor_blocks(
    broker: Broker, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """A transaction whose time ran out while the broker was away is aborted, with its positions, though the broker leaves its markers out."""
    bus, kafka = broker.bus, broker.bus.settings.bootstrap
    for name in ("in", "out"):
        bus.catalog.create(CategorySpec(name, 2))
    reader = joined(bus, Owner())
    abandoned = bus.transactional_writer("worker", reader, OPEN_S, ["out"])
    abandoned.send("out", [Outgoing(b"k", b'{"said": "before"}', 0), Outgoing(b"k", b'{"said": "before"}', 1)])
    abandoned.commit([Position(Bucket("in", 0), 1), Position(Bucket("in", 1), 1)])
    abandoned.send("out", [Outgoing(b"k", b'{"said": "lost"}', 0), Outgoing(b"k", b'{"said": "lost"}', 1)])
    abandoned.flush()
    broker.kill()
    time.sleep(OPEN_S + 1.0)  # what it is about: the time runs out while nobody is there
    broker.start()
    wait_until(lambda: "out" in bus.catalog.names())
    stable, ends = bus.catalog.stable_ends("out"), bus.catalog.ends("out")
    with closing(bus.transactional_writer("worker", reader, 60.0, ["out"])) as writer:
        writer.send("out", [Outgoing(b"k", b'{"said": "after"}', 0)])
        writer.flush()
        writer.enlist()
        writer.commit([])

    assert stable != ends, "the broker has forgotten nothing, so there was nothing to be tried here"
    assert sorted(event["said"] for event in committed(kafka, "out")) == ["after", "before", "before"]
    assert bus.catalog.stable_ends("out") == bus.catalog.ends("out")
    assert bus.catalog.committed("reader", "in") == {0: 1, 1: 1}
