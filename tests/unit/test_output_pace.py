"""Checkpoints behind a bus that accepts few outputs at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pytest

import penstock as ps
from penstock.ops.kernel import Driver, Worker
from penstock.ops.kernel.checkpoint.output_pace import MOST_TIME_S, OutputPace
from penstock.ops.kernel.loop import WorkerConfig
from penstock.ops.kernel.testing import InlineExecutor
from penstock.processors.declare import bucket_of
from penstock.processors.operators import merge_of
from penstock.state import MemoryStateFolder
from penstock.transport import Outgoing, OutputsTimedOut, Position, Reader, SettingsRefused, TransactionalWriter, Writer
from penstock.transport.memory import MemoryBus
from penstock.transport.memory.writers import MemoryTransactionalWriter

EVENTS = 600


class Number(ps.Record, frozen=True):
    """A number."""

    key: str
    at: ps.EventTime
    number: int


numbers = ps.Category("numbers", Number, key="key", event_time="at", buckets=2)
copies = ps.Category("copies", Number, key="key", event_time="at", buckets=2)


class Copy(ps.Stateless):
    """Copies numbers."""

    reads, writes = numbers, copies

    def process(self, event: Number) -> list[Number]:
        """Copy a number."""
        return [event]


class SlowWriter:
    """Takes a number of messages each second. What is not taken within the time limit is dropped.

    Args:
        writer: the writer.
        a_second: the number of messages.
        limit_s: the time limit.
    """

    def __init__(self, writer: TransactionalWriter | Writer, a_second: float, limit_s: float) -> None:
        self._writer = writer
        self._most = a_second * limit_s
        self._sent: list[tuple[str, list[Outgoing]]] = []

    def send(self, category: str, messages: Iterable[Outgoing]) -> None:
        """Queue messages."""
        self._sent.append((category, list(messages)))

    def send_now(self) -> None:
        """Do nothing: messages leave with the flush."""

    def flush(self) -> None:
        """Deliver what is taken in time."""
        sent, self._sent = self._sent, []
        count = sum(len(messages) for _, messages in sent)
        if count > self._most:
            raise OutputsTimedOut("Messages were not delivered.", self._most / count)
        for category, messages in sent:
            self._writer.send(category, messages)
        self._writer.flush()

    def enlist(self) -> None:
        """Make the next commit depend on the present membership."""
        assert isinstance(self._writer, MemoryTransactionalWriter)
        self._writer.enlist()

    def commit(self, positions: Sequence[Position]) -> None:
        """Commit what was flushed."""
        assert isinstance(self._writer, MemoryTransactionalWriter)
        self._writer.commit(positions)

    def abort(self) -> None:
        """Drop what was not committed."""
        assert isinstance(self._writer, MemoryTransactionalWriter)
        self._writer.abort()

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


class SlowBus(MemoryBus):
    """Takes a number of messages each second.

    Args:
        driver: shares its cluster.
        a_second: the number of messages.
        most_s: the longest transactions that its brokers allow.
    """

    def __init__(self, driver: Driver, a_second: float, most_s: float) -> None:
        super().__init__(cluster=driver.bus.cluster)
        self._a_second, self._most_s = a_second, most_s
        self.limits_s: list[float] = []

    def writer(self, limit_s: float | None = None) -> SlowWriter:  # type: ignore[override]
        """Return a slow writer."""
        return SlowWriter(super().writer(limit_s), self._a_second, limit_s or 300.0)

    def transactional_writer(  # type: ignore[override]
        self, identity: str, member: Reader | None, timeout_s: float, writes: Collection[str]
    ) -> SlowWriter:
        """Return a slow writer, unless its transactions would be too long."""
        if timeout_s > self._most_s:
            raise SettingsRefused("The transaction timeout is larger than the brokers allow.")
        self.limits_s.append(timeout_s)
        return SlowWriter(super().transactional_writer(identity, member, timeout_s, writes), self._a_second, timeout_s)


@pytest.mark.parametrize("most_s", [20.0, 900.0])
@pytest.mark.parametrize("output", [ps.Semantics.EXACTLY_ONCE, ps.Semantics.AT_LEAST_ONCE])
def test_a_backlog_passes_a_bus_that_accepts_little(
    monkeypatch: pytest.MonkeyPatch, output: ps.Semantics, most_s: float
) -> None:
    """The outputs of one poll first exceed what the bus takes within the limit. Each event is copied, exactly once if declared."""
    monkeypatch.setattr(Copy, "output_semantics", output)
    driver = Driver(Copy)
    bus = SlowBus(driver, 2.0, most_s)
    driver._write(numbers, [Number(f"k{n % 7}", n, n) for n in range(EVENTS)])
    place = WorkerConfig(bus, MemoryStateFolder(merge_of(Copy())), "one")
    worker = Worker(Copy(), place, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    for _ in range(1_000):
        worker.run_once()
        driver.clock.advance(1.0)
        if sum(driver.bus.committed(Copy.name, "numbers").values()) == EVENTS:
            break
    written = sorted(record.number for record in driver.read(copies))

    assert written == list(range(EVENTS)) if output is ps.Semantics.EXACTLY_ONCE else set(written) == set(range(EVENTS))
    assert max(bus.limits_s, default=0.0) <= most_s


class Spread(ps.Stateless):
    """Writes as many numbers as its event says, as when a window with many keys ends."""

    reads, writes = numbers, copies

    def process(self, event: Number) -> list[Number]:
        """Write numbers."""
        return [Number(event.key, event.at, number) for number in range(event.number)]


@pytest.mark.parametrize(("large", "small"), [("k0", "k3"), ("k3", "k0")])
@pytest.mark.parametrize("output", [ps.Semantics.EXACTLY_ONCE, ps.Semantics.AT_LEAST_ONCE])
def test_the_outputs_of_one_event_take_as_long_as_they_need(
    monkeypatch: pytest.MonkeyPatch, output: ps.Semantics, large: str, small: str
) -> None:
    """They exceed the time limit of a checkpoint, and quick checkpoints of another bucket follow each time-out."""
    monkeypatch.setattr(Spread, "output_semantics", output)
    driver = Driver(Spread)
    place = WorkerConfig(SlowBus(driver, 10.0, 900.0), MemoryStateFolder(merge_of(Spread())), "one")
    worker = Worker(Spread(), place, InlineExecutor(), InlineExecutor(), clock=driver.clock)
    driver._write(numbers, [Number(large, 0, 1_000)])
    for turn in range(500):
        driver._write(numbers, [Number(small, turn, 1)])
        worker.run_once()
        driver.clock.advance(1.0)
        if bucket_of(large.encode(), 2) in driver.bus.committed(Spread.name, "numbers"):
            break
    written = [record.number for record in driver.read(copies) if record.key == large]

    assert written == list(range(1_000)) if output is ps.Semantics.EXACTLY_ONCE else set(written) == set(range(1_000))


def test_checkpoints_grow_again_where_they_are_saved_quickly() -> None:
    """A time-out halves the events and doubles the time. Quick checkpoints restore the events, and later the time."""
    pace = OutputPace(10.0)
    pace.note_time_out(1_000, 0.0, 100.0)
    found = [(pace.most_events, pace.limit_s)]
    for events, seconds, now_s in ((500, 6.0, 110.0), (10, 0.1, 120.0), (500, 4.0, 130.0), (1_000, 0.1, 200.0)):
        pace.note_saved(events, seconds, now_s)
        found.append((pace.most_events, pace.limit_s))

    assert found == [(500, 20.0), (500, 20.0), (500, 20.0), (1_000, 20.0), (2_000, 10.0)]


def test_the_time_of_outputs_follows_from_what_was_accepted() -> None:
    """Of a window with many keys, a twentieth was accepted in ten seconds: the next attempt has time for the rest, too, and is not one of five."""
    pace = OutputPace(10.0)
    pace.note_time_out(1, 0.05, 0.0)
    needed_s = 10.0 / 0.05

    assert needed_s < pace.limit_s < 2 * needed_s


def test_the_time_of_outputs_is_extended_up_to_what_the_brokers_allow() -> None:
    """The maximum is 15 minutes by default, or less if the brokers refuse it, but never less than the first limit."""
    pace = OutputPace(11.0)
    for _ in range(20):
        pace.note_time_out(1, 0.0, 0.0)
    longest_s = pace.limit_s
    refused = [(pace.shorten(), pace.limit_s) for _ in range(8)]
    pace.note_time_out(1, 0.0, 0.0)

    assert (longest_s, pace.most_events) == (MOST_TIME_S, 1)
    assert refused[-2:] == [(True, 11.0), (False, 11.0)]
    assert pace.limit_s == 11.0


@pytest.mark.parametrize(
    ("is_transaction", "setting"), [(True, "transaction.max.timeout.ms"), (False, "session.timeout.ms")]
)
def test_one_event_with_too_many_outputs_is_named_with_the_setting(
    caplog: pytest.LogCaptureFixture, *, is_transaction: bool, setting: str
) -> None:
    """An ending window writes its outputs at once. Fewer events, more time and smaller portions do not help any more."""
    pace = OutputPace(MOST_TIME_S)
    if not is_transaction:
        pace.fix(30.0)
    for events in (2, *[1] * (0 if is_transaction else 7)):
        pace.note_time_out(events, 0.0, 0.0)
    before = caplog.text
    pace.note_time_out(1, 0.0, 0.0)

    assert setting not in before
    assert "The outputs of a single event" in caplog.text
    assert setting in caplog.text
    assert pace.most_events == 1
