"""The bus in memory as a broker that was killed: markers of transactions are missing, and what the next writer does about it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.transport.category_spec import CategorySpec
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.writers import MemoryTransactionalWriter
from penstock.transport.messages import Bucket, Outgoing, Position

OUT, IN = Bucket("out", 0), Bucket("in", 0)
LIMIT_S = 10.0


class Owner:
    """A member of a group that owns whatever it is given."""

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Take buckets."""

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Let go of buckets."""

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Let go of buckets."""


class Brokers:
    """A bus whose brokers lose all markers while `lose` is set."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.bus = MemoryBus(lambda: self.now_ms)
        for bucket in (OUT, IN):
            self.bus.create(CategorySpec(bucket.category, 1))
        self.reader = self.bus.reader("group", ["in"], Owner())
        self.reader.poll(0.0)
        self.lose = False
        self.bus.cluster.transactions.skips_marker = lambda _: self.lose

    def writer(self) -> MemoryTransactionalWriter:
        """Open a writer of one identity."""
        return self.bus.transactional_writer("writer", self.reader, LIMIT_S, ["out"])

    def found(self) -> list[bytes | None]:
        """Return what readers of committed data find."""
        return [message.value() for message in self.bus.slice(OUT, 0, 100)]


def _leave_open(brokers: Brokers) -> None:
    """Commit a message and a position, of which no marker is written."""
    writer = brokers.writer()
    writer.send("out", [Outgoing(b"k", b"left open")])
    brokers.lose = True
    writer.commit([Position(IN, 7)])
    brokers.lose = False


def test_without_a_marker_readers_wait_in_front() -> None:
    """Of what the transaction wrote, and of what others write behind it."""
    brokers = Brokers()
    _leave_open(brokers)
    brokers.bus.append("out", Outgoing(b"k", b"behind"))

    assert brokers.found() == []
    assert brokers.bus.stable_ends("out") == {0: 0}


def test_the_next_marker_of_a_writer_commits_what_was_left_open() -> None:
    """As it is with a broker: this is what opening a writer has to prevent."""
    brokers = Brokers()
    writer = brokers.writer()
    writer.send("out", [Outgoing(b"k", b"left open")])
    writer.flush()
    brokers.lose = True
    brokers.now_ms += int(LIMIT_S * 1000)
    brokers.bus.cluster.tick()
    brokers.lose = False
    later = brokers.bus.transactional_writer("writer", None, LIMIT_S, [])
    later.send("out", [Outgoing(b"k", b"again")])
    later.commit([])

    assert brokers.found() == [b"left open", b"again"]


def test_the_next_writer_aborts_what_was_left_open() -> None:
    """Messages and positions: readers go on, and nothing comes twice."""
    brokers = Brokers()
    _leave_open(brokers)
    writer = brokers.writer()
    writer.send("out", [Outgoing(b"k", b"again")])
    writer.commit([Position(IN, 8)])

    assert brokers.found() == [b"again"]
    assert brokers.bus.committed("group", "in") == {0: 8}


def test_what_another_identity_left_open_is_not_touched() -> None:
    """Only its own next writer ends it, or whoever opens one in its name."""
    brokers = Brokers()
    _leave_open(brokers)
    brokers.bus.transactional_writer("other", None, LIMIT_S, ["out"]).close()
    before = brokers.bus.stable_ends("out")
    brokers.writer().close()

    assert before == {0: 0}
    assert brokers.bus.stable_ends("out") == brokers.bus.ends("out")


@pytest.mark.parametrize(("uses_arrival_time", "stamp"), [(True, (2, 5_000)), (False, (1, 1_000))])
def test_a_message_has_the_time_that_its_category_asks_for(uses_arrival_time: bool, stamp: tuple[int, int]) -> None:
    """The bus's, when it arrives, or its writer's, when it was sent."""
    brokers = Brokers()
    brokers.now_ms = 5_000
    brokers.bus.cluster.topic("out").uses_arrival_time = uses_arrival_time
    brokers.bus.cluster.append("out", Outgoing(b"k", b"v"), sent_ms=1_000)

    assert brokers.bus.slice(OUT, 0, 1)[0].timestamp() == stamp
    assert brokers.bus.durability("out").uses_arrival_time is uses_arrival_time
