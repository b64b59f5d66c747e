"""The Kafka clients of a process while no broker answers: those that are not used any more are closed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.transport import CLIENT_COUNTS, Bucket, BusError, Outgoing, Position, Writer
from penstock.transport.kafka import KafkaBus, KafkaSettings, transaction_check, transactions
from penstock.transport.kafka import bus as kafka_bus
from penstock.transport.kafka.peek import arrivals_ms

NOWHERE = KafkaSettings("127.0.0.1:1")
ATTEMPTS = 4


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A waiting worker creates too few objects for the cyclic collector to run. Attempts are short here."""
    monkeypatch.setattr(transactions, "STEP_LIMIT_S", 0.05)
    monkeypatch.setattr(transactions, "ASK_LIMIT_S", 0.05)
    monkeypatch.setattr(kafka_bus, "OPENING_LIMIT_S", 0.05)
    monkeypatch.setattr(transaction_check, "COORDINATOR_LIMIT_S", 0.05)
    monkeypatch.setattr(transaction_check, "METADATA_LIMIT_S", 0.05)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def client_threads() -> int:
    """Return the number of the client library's threads in this process."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            names.append((task / "comm").read_text())
    return sum(name.startswith("rdk:") for name in names)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def open_transactional(bus: KafkaBus) -> None:
    with pytest.raises(BusError):
        bus.transactional_writer("demo", None, 11.0, ["out"])


def open_beside(bus: KafkaBus) -> None:
    """Open a transactional writer in a thread, as a worker does, and let its error pass a frame that refers to the future."""
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(bus.transactional_writer, "demo", None, 11.0, ["out"])
        with pytest.raises(BusError):
            opening.result()


def expect_transactions(bus: KafkaBus) -> None:
    with pytest.raises(BusError):
        bus.expect_transactions("demo.start")


def write(bus: KafkaBus) -> None:
    writer: Writer = bus.writer()
    writer.send("out", [Outgoing(b"k", b"v", 0)])
    writer.close()


def scan(bus: KafkaBus) -> None:
    scanner = bus.scanner([Position(Bucket("in", 0), 0)])
    scanner.poll(0)
    scanner.close()


def connect(bus: KafkaBus) -> None:
    KafkaBus(bus.settings).catalog  # noqa: B018 - opens the client


def peek(bus: KafkaBus) -> None:
    arrivals_ms(bus.settings, [], 0.0)


def assign_wrongly(bus: KafkaBus) -> None:
    with pytest.raises((BusError, TypeError, OverflowError)):
        bus.scanner([Position(Bucket("in", 0), 2**64)])


@pytest.mark.parametrize(
    "attempt", [open_transactional, open_beside, expect_transactions, write, scan, connect, peek, assign_wrongly]
)
def test_an_outage_leaves_no_client_behind(
    attempt: Callable[[KafkaBus], None],
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    """However often a client is opened without a broker, the process has as many threads and descriptors as after the first time."""
    monkeypatch.setattr("penstock.transport.kafka.writer.CONNECT_LIMIT_S", 0.05)
    monkeypatch.setattr("penstock.transport.kafka.reader.LEADER_LIMIT_S", 0.05)
    bus = KafkaBus(NOWHERE)
    attempt(bus)
    before, kept = (client_threads(), descriptors()), CLIENT_COUNTS.open
    for _ in range(ATTEMPTS):
        attempt(bus)

    # A client that tries to connect has a socket for an instant.
    wait_until(lambda: client_threads() <= before[0] and descriptors() <= before[1])
    assert CLIENT_COUNTS.open == kept
