"""Contract of a table on the bus, in memory and on Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta

import msgspec
import pytest
from support.outages import SilentBus

from penstock.transport import Bus, BusUnreachable, CategorySpec, ForeignMessage, Outgoing, Polled, Position
from penstock.transport.bus import Scanner
from penstock.transport.kafka import KafkaBus
from penstock.transport.memory import MemoryBus
from penstock.transport.tables import TEXT_KEY, BusTable, TableKeys, TableReader
from penstock.transport.tables.bus_table import BYTES_KEY, NUMBERED_KEY, Change

LIMIT_POLLS = 100


class Price(msgspec.Struct, frozen=True):
    """A value of the table."""

    amount: int


Prices = BusTable[str, Price]


@pytest.fixture(params=["memory", "kafka"])
def bus(request: pytest.FixtureRequest) -> Bus:
    """Each implementation."""
    if request.param == "memory":
        return MemoryBus()
    bus: KafkaBus = request.getfixturevalue("kafka_bus")
    return bus


@pytest.fixture
def prices(unique: str) -> Prices:
    """A table in a category of its own."""
    return BusTable(CategorySpec(unique, 1, compacted=True), TEXT_KEY, msgspec.json.Decoder(Price).decode)


def read_changes(reader: TableReader[str, Price], count: int) -> list[Change[str, Price]]:
    """Read the given number of changes."""
    changes: list[Change[str, Price]] = []
    for _ in range(LIMIT_POLLS):
        changes += reader.read(0.1)
        if len(changes) >= count:
            break
    return changes


def test_a_missing_category_is_an_empty_table(bus: Bus, prices: Prices) -> None:
    """Reading creates nothing."""
    found = prices.read(bus)

    assert found == {}
    assert prices.spec.name not in bus.catalog.names()


def test_the_first_write_creates_the_category(bus: Bus, prices: Prices) -> None:
    """It is compacted, as the table declares it."""
    prices.write(bus, [prices.put("a", Price(1))])

    assert bus.catalog.describe(prices.spec.name).spec.compacted


def test_the_latest_value_of_each_key_counts(bus: Bus, prices: Prices) -> None:
    """A deleted key is absent, and present again after another put."""
    prices.write(bus, [prices.put("a", Price(1)), prices.put("b", Price(2)), prices.put("c", Price(3))])
    prices.write(bus, [prices.put("a", Price(4)), prices.delete("b"), prices.delete("c"), prices.delete("absent")])
    prices.write(bus, [prices.put("c", Price(5))])

    assert prices.read(bus) == {"a": Price(4), "c": Price(5)}


def test_a_reader_returns_each_change_once(bus: Bus, prices: Prices) -> None:
    """It returns all changes so far in order with their offsets, and then only later ones."""
    prices.write(bus, [prices.put("a", Price(1)), prices.put("a", Price(2)), prices.delete("a")])
    with closing(prices.follow(bus)) as reader:
        before = reader.complete
        first = list(reader.read_to_end())
        complete = reader.complete
        again = list(reader.read_to_end())
        prices.write(bus, [prices.put("b", Price(3))])
        later = read_changes(reader, 1)

    assert (before, complete) == (False, True)
    assert [change[:3] for change in first] == [("a", Price(1), 0), ("a", Price(2), 1), ("a", None, 2)]
    assert again == []
    assert [change[:3] for change in later] == [("b", Price(3), 3)]


def test_a_reader_starts_at_an_offset(bus: Bus, prices: Prices) -> None:
    """Earlier changes are skipped."""
    prices.write(bus, [prices.put("a", Price(number)) for number in range(5)])
    with closing(prices.follow(bus, 3)) as reader:
        found = list(reader.read_to_end())

    assert [change[:3] for change in found] == [("a", Price(3), 3), ("a", Price(4), 4)]


def test_a_reader_of_an_empty_category_is_complete(bus: Bus, prices: Prices) -> None:
    """It does not wait for a first message."""
    bus.catalog.create(prices.spec)
    with closing(prices.follow(bus)) as reader:
        found = list(reader.read_to_end())
        complete = reader.complete

    assert found == []
    assert complete


def test_a_table_ends_before_an_open_transaction_or_waits_for_it(bus: Bus, prices: Prices) -> None:
    """A reader is incomplete before its end offset, and has the values of the transaction afterwards."""
    prices.write(bus, [prices.put("a", Price(1))])
    name = prices.spec.name
    with closing(bus.transactional_writer(f"{name}.t", None, 60.0, [name])) as writer:
        writer.send(name, [prices.put("a", Price(2)), prices.put("b", Price(2))])
        writer.flush()
        during = prices.read(bus)
        with closing(prices.follow(bus, end=bus.catalog.ends(name)[0])) as reader:
            before = [change for _ in range(20) for change in reader.read(0.1)]
            complete_before = reader.complete
            writer.commit([])
            after = list(reader.read_to_end())

    assert during == {"a": Price(1)}
    assert [change[:3] for change in before] == [("a", Price(1), 0)]
    assert not complete_before
    assert [(change.key, change.value) for change in after] == [("a", Price(2)), ("b", Price(2))]
    assert prices.read(bus, wait_for_transactions=True) == {"a": Price(2), "b": Price(2)}


class UnendingScanner:
    """A scanner that never reports an end."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner

    def poll(self, timeout_s: float) -> Polled:
        return self._scanner.poll(timeout_s)._replace(ended=[])

    def close(self) -> None:
        self._scanner.close()


class UnendingBus(MemoryBus):
    """A bus whose scanners report no end."""

    def scanner(self, positions: Sequence[Position]) -> UnendingScanner:  # type: ignore[override]
        return UnendingScanner(super().scanner(positions))


def test_a_reader_is_complete_with_the_last_message() -> None:
    """Kafka reports the end of a category only after it has waited for more messages."""
    table: Prices = BusTable(CategorySpec("prices", 1), TEXT_KEY, msgspec.json.Decoder(Price).decode)
    bus = UnendingBus()
    table.write(bus, [table.put("a", Price(1)), table.put("b", Price(2))])
    with closing(table.follow(bus)) as reader:
        found = list(reader.read_to_end(silence_limit_s=0.0))

    assert [change.key for change in found] == ["a", "b"]


@pytest.mark.parametrize("value", [b"nonsense", b'{"price": 3}', b"\xff"])
def test_a_message_in_another_format_is_reported_with_its_offset(bus: Bus, prices: Prices, value: bytes) -> None:
    """Another version or another program wrote it. A command ends with the reason, not with a stack trace."""
    prices.write(bus, [prices.put("tea", Price(3))])
    with closing(bus.writer()) as writer:
        writer.send(prices.spec.name, [Outgoing(b"coffee", value)])
        writer.flush()

    with pytest.raises(
        ForeignMessage, match=f"The message at offset 1 of {prices.spec.name} is not in this version's format"
    ):
        prices.read(bus)


def test_a_silent_bus_fails_the_read() -> None:
    """The error names the category and the time limit."""
    table: Prices = BusTable(
        CategorySpec("silent", 1, retention=timedelta(days=1)), TEXT_KEY, msgspec.json.Decoder(Price).decode
    )
    bus = SilentBus(["silent"])
    table.write(bus, [table.put("a", Price(1))])
    with (
        closing(table.follow(bus)) as reader,
        pytest.raises(BusUnreachable, match=r"silent/0 is not read completely: .* for 1 s"),
    ):
        list(reader.read_to_end(silence_limit_s=0.0))


@pytest.mark.parametrize(
    ("format_", "key"), [(TEXT_KEY, "ö/1"), (BYTES_KEY, b"\xff\x00"), (NUMBERED_KEY, ("a/b.c", 12))]
)
def test_a_key_is_read_as_it_was_written(format_: TableKeys[object], key: object) -> None:
    """Each format decodes its own bytes."""
    assert format_.decode(format_.encode(key)) == key
