"""The memory bus with lost transaction markers, as after a broker's crash, and recovery by the next writer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import penstock as ps
from penstock.ops.kernel import Driver, Worker
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.testing import InlineExecutor
from penstock.processors.operators import merge_of
from penstock.state import MemoryStateFolder
from penstock.transport import Bucket, CategorySpec, Fenced, Outgoing, Position
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.writers import MemoryTransactionalWriter

OUT, IN = Bucket("out", 0), Bucket("in", 0)
LIMIT_S = 10.0


class Owner:
    """A group member that accepts any bucket."""

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Accept assigned buckets."""

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Ignore revoked buckets."""

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Ignore lost buckets."""


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
        """Open a writer with the same transactional ID as before."""
        return self.bus.transactional_writer("writer", self.reader, LIMIT_S, ["out"])

    def committed_messages(self) -> list[bytes | None]:
        """Return the messages that readers of committed data receive."""
        return [message.value() for message in self.bus.slice(OUT, 0, 100)]


def _leave_open(brokers: Brokers) -> None:
    """Commit a message and a position, but lose the marker."""
    writer = brokers.writer()
    writer.send("out", [Outgoing(b"k", b"left open")])
    brokers.lose = True
    with pytest.raises(Fenced, match="the group's positions do not show it"):
        writer.commit([Position(IN, 7)])
    brokers.lose = False


class Number(ps.Record, frozen=True):
    """A number."""

    key: str
    at: ps.EventTime
    number: int


numbers = ps.Category("numbers", Number, key="key", event_time="at", buckets=1)
results = ps.Category("results", Number, key="key", event_time="at", buckets=1)


class Totals(ps.Stateful):
    """Sums up exactly once."""

    name, reads, writes, state = "subject", numbers, results, int
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event: Number, state: int | None, context: ps.Context) -> tuple[int, list[Number]]:
        """Add a number."""
        total = (state or 0) + event.number
        return total, [Number(event.key, event.at, total)]


class Unsure(Totals):
    """Totals with a changelog."""

    name = "subject"
    deterministic = False


class Sums(ps.Aggregator):
    """Totals in a remote store."""

    name, reads, writes, monoid, store = "subject", numbers, results, ps.monoids.Sum(), ps.RemoteStore()
    output_semantics = ps.Semantics.EXACTLY_ONCE
    checkpoint = ps.CheckpointInterval(events=1)

    def observe(self, event: Number) -> int:
        """Add a number."""
        return event.number

    def result(self, key: str, window: ps.windows.Window, value: int) -> Number:
        """Return the sum."""
        return Number(key, 0, value)


class Copies(ps.Stateless):
    """Copies exactly once."""

    name, reads, writes = "subject", numbers, results
    output_semantics = ps.Semantics.EXACTLY_ONCE

    def process(self, event: Number) -> list[Number]:
        """Copy a number."""
        return [event]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("kind", "expected"), [(Totals, [1, 3, 6]), (Sums, [1, 3, 6]), (Unsure, [1, 3, 6]), (Copies, [1, 2, 3])]
)
def test_the_outputs_of_a_commit_without_markers_are_written_again(
    kind: type[ps.Processor], expected: list[int], restarts: bool
) -> None:
    """The brokers confirm a commit without writing its markers: its state does not count as saved, and each output appears once."""
    driver, states = Driver(kind), MemoryStateFolder(merge_of(kind()))

    def start() -> Worker:
        place = WorkerConfig(driver.bus, states, "one")
        return Worker(kind(), place, InlineExecutor(), InlineExecutor(), clock=driver.clock)

    worker = start()
    driver._write(numbers, [Number("k", 0, 1)])
    run_until(worker, driver, {0: 1})
    driver.bus.cluster.transactions.skips_marker = lambda _: True
    driver._write(numbers, [Number("k", 0, 2)])
    while driver.bus.cluster.group("subject").undecided == {}:
        turn(worker, driver)
    driver.bus.cluster.transactions.skips_marker = lambda _: False
    driver._write(numbers, [Number("k", 0, 3)])
    run_until(start() if restarts else worker, driver, {0: 3})

    assert [record.number for record in driver.read(results)] == expected


def turn(worker: Worker, driver: Driver) -> None:
    """Run one turn, and let time pass."""
    worker.run_once()
    driver.clock.advance(1.0)


def run_until(worker: Worker, driver: Driver, committed: dict[int, int]) -> None:
    """Run a worker until its group has committed positions."""
    for _ in range(100):
        turn(worker, driver)
        if (
            all(group.undecided == {} for group in driver.bus.cluster.groups.values())
            and driver.bus.committed("subject", "numbers") == committed
        ):
            return
    raise AssertionError(driver.bus.committed("subject", "numbers"))


def test_readers_wait_at_a_transaction_without_a_marker() -> None:
    """They receive neither its messages nor later messages of other writers."""
    brokers = Brokers()
    _leave_open(brokers)
    brokers.bus.append("out", Outgoing(b"k", b"behind"))

    assert brokers.committed_messages() == []
    assert brokers.bus.stable_ends("out") == {0: 0}


def test_the_next_marker_of_a_writer_commits_its_open_transaction() -> None:
    """A Kafka broker does the same, so a new writer must first abort the open transaction."""
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

    assert brokers.committed_messages() == [b"left open", b"again"]


def test_a_new_writer_aborts_the_open_transaction_of_its_predecessor() -> None:
    """The abort includes messages and positions; readers continue, and no message appears twice."""
    brokers = Brokers()
    _leave_open(brokers)
    writer = brokers.writer()
    writer.send("out", [Outgoing(b"k", b"again")])
    writer.commit([Position(IN, 8)])

    assert brokers.committed_messages() == [b"again"]
    assert brokers.bus.committed("group", "in") == {0: 8}


def test_a_writer_does_not_abort_transactions_of_another_id() -> None:
    """Only a writer with the same transactional ID aborts an open transaction."""
    brokers = Brokers()
    _leave_open(brokers)
    brokers.bus.transactional_writer("other", None, LIMIT_S, ["out"]).close()
    before = brokers.bus.stable_ends("out")
    brokers.writer().close()

    assert before == {0: 0}
    assert brokers.bus.stable_ends("out") == brokers.bus.ends("out")


@pytest.mark.parametrize(("uses_arrival_time", "stamp"), [(True, (2, 5_000)), (False, (1, 1_000))])
def test_a_message_has_the_timestamp_type_of_its_category(uses_arrival_time: bool, stamp: tuple[int, int]) -> None:
    """`LogAppendTime` is the bus's time of arrival; `CreateTime` is the writer's time."""
    brokers = Brokers()
    brokers.now_ms = 5_000
    brokers.bus.cluster.topic("out").uses_arrival_time = uses_arrival_time
    brokers.bus.cluster.append("out", Outgoing(b"k", b"v"), sent_ms=1_000)

    assert brokers.bus.slice(OUT, 0, 1)[0].timestamp() == stamp
    assert brokers.bus.durability("out").uses_arrival_time is uses_arrival_time
