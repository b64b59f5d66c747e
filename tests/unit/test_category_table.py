"""Categories as lookup tables: every worker reads all rows, whatever bucket they are in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import penstock as ps
from penstock.backfill import BackfillRefused
from penstock.backfill.run.plans import order_of
from penstock.ops.kernel import Driver, prepare
from penstock.processors import DeclarationError
from penstock.processors.lookups import LookupRefused, TableSize
from penstock.transport import CategorySpec, MissingCategory, Outgoing
from penstock.transport.category_rows import CHECK_EVERY_S, CategoryRows
from penstock.transport.codecs import Codecs, encoded_messages
from penstock.transport.memory import MemoryBus


class Rate(ps.Record, frozen=True):
    """The price of a currency in euros."""

    currency: str
    at: int
    euros: float


class Payment(ps.Record, frozen=True):
    """A payment, keyed by its number."""

    number: str
    at: int
    currency: str
    amount: float


class Converted(ps.Record, frozen=True):
    """A payment in euros."""

    number: str
    at: int
    euros: float | None


rates = ps.Category("rates", Rate, key="currency", event_time="at", buckets=3, compacted=True)
payments = ps.Category("payments", Payment, key="number", event_time="at", buckets=8)
converted = ps.Category("converted", Converted, key="number", event_time="at", buckets=8)
SECOND = 1_000


class Convert(ps.LookupJoin):
    """Converts payments with the current rates."""

    reads, writes = payments, converted
    source = ps.lookups.CategoryTable(rates)

    def key_of(self, event: Payment) -> str:
        return event.currency

    def join(self, event: Payment, row: Rate | None) -> Iterable[Converted]:
        yield Converted(event.number, event.at, event.amount * row.euros if row else None)


def paid(first: int, currencies: Iterable[str]) -> list[Payment]:
    return [Payment(f"p{number}", number * SECOND, currency, 10.0) for number, currency in enumerate(currencies, first)]


def test_events_of_all_buckets_are_joined_with_the_last_row_of_any_bucket() -> None:
    """Rows change while the worker runs, and tombstones delete them."""
    driver = Driver(Convert)
    driver.send(rates, [Rate("USD", 0, 0.5), Rate("CHF", 0, 1.5), Rate("USD", 1, 0.75), Rate("SEK", 1, 0.125)])
    driver.send(payments, paid(0, ["USD", "CHF", "SEK", "JPY"] * 10))
    driver.send(rates, [Rate("USD", 2, 2.0), Rate("JPY", 2, 0.25), ps.Tombstone("CHF")])
    driver.send(payments, paid(40, ["USD", "CHF", "SEK", "JPY"] * 10))

    first = {"USD": 7.5, "CHF": 15.0, "SEK": 1.25, "JPY": None}
    second = {"USD": 20.0, "CHF": None, "SEK": 1.25, "JPY": 2.5}
    currencies = ["USD", "CHF", "SEK", "JPY"] * 10
    expected = {f"p{number}": first[currency] for number, currency in enumerate(currencies)}
    expected |= {f"p{number}": second[currency] for number, currency in enumerate(currencies, 40)}
    assert {event.number: event.euros for event in driver.read(converted)} == expected


def test_the_rows_of_a_test_replace_the_category() -> None:
    """Every lookup source can be replaced like this."""
    driver = Driver(Convert, sources={Convert: ps.lookups.MemoryTable({"USD": Rate("USD", 0, 3.0)})})
    driver.send(payments, paid(0, ["USD"]))

    assert [event.euros for event in driver.read(converted)] == [30.0]


class World:
    """A memory bus with the category of rates, and a table of it."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.now_s = 0.0
        self.bus = MemoryBus(lambda: self.now_ms)
        self.bus.create(CategorySpec.of(rates))
        self.table = CategoryRows(rates, self.bus, lambda: self.now_s)

    def write(self, *outputs: Rate | ps.Tombstone, buckets: int = 3) -> None:
        """Write records and tombstones a millisecond later than the previous ones."""
        self.now_ms += 1
        writer = self.bus.writer()
        declared = ps.Category("rates", Rate, key="currency", event_time="at", buckets=buckets)
        writer.send("rates", encoded_messages(declared, Codecs(self.bus).of(declared), outputs))
        writer.flush()

    def euros(self, *currencies: str) -> dict[str, float]:
        return {key: row.euros for key, row in self.table.fetch(currencies).items()}


def test_a_row_that_moved_to_another_bucket_is_the_later_one() -> None:
    """Its older bucket may be read last, and a tombstone may have deleted it in its later bucket."""
    world, keys = World(), [f"c{number}" for number in range(60)]
    world.write(*(Rate(key, 0, 1.0) for key in keys))
    assert world.euros(*keys) == dict.fromkeys(keys, 1.0)
    world.bus.catalog.resize("rates", 7)
    world.write(*(Rate(key, 1, 2.0) for key in keys[:40]), *map(ps.Tombstone, keys[40:]), buckets=7)
    world.now_s += CHECK_EVERY_S

    assert world.euros(*keys) == dict.fromkeys(keys[:40], 2.0)
    assert CategoryRows(rates, world.bus, lambda: 0.0).fetch(keys).keys() == set(keys[:40])


def test_the_rows_of_a_recreated_category_replace_the_earlier_ones() -> None:
    """Rows that the new category lacks are removed."""
    world = World()
    world.write(Rate("USD", 0, 1.0), Rate("CHF", 0, 2.0))
    assert world.euros("USD", "CHF") == {"USD": 1.0, "CHF": 2.0}
    world.bus.catalog.delete("rates")
    world.bus.create(CategorySpec.of(rates))
    world.write(Rate("CHF", 1, 3.0))
    world.now_s += CHECK_EVERY_S

    assert world.euros("USD", "CHF") == {"CHF": 3.0}


def test_messages_that_do_not_decode_are_counted_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """The row before stays in use; the log has the offset and the reason."""
    world = World()
    world.write(Rate("USD", 0, 1.0))
    bucket = rates.bucket_of("USD")
    for value in (b"\xff{", b'{"currency": "USD", "at": 1}'):
        writer = world.bus.writer()
        writer.send("rates", [Outgoing(b"USD", value, bucket)])
        writer.flush()

    assert world.euros("USD") == {"USD": 1.0}
    assert world.table.failed_loads == 2
    assert "skipped 2 messages of a table, which cannot be decoded. The first is at offset 1" in caplog.text


def test_a_worker_refuses_a_missing_table_before_the_first_event() -> None:
    """The message has the command that creates it."""
    bus = MemoryBus()
    for category in (payments, converted):
        bus.create(CategorySpec.of(category))

    with pytest.raises(MissingCategory, match=r"Convert needs category rates, .*penstock category create"):
        prepare(Convert, bus)


def test_a_backfill_refuses_the_table_and_names_the_alternatives() -> None:
    """Its rows would be those at the time of the run."""
    with pytest.raises(BackfillRefused, match=r"table of category rates.*Nothing was started.*TableJoin"):
        order_of(Convert, None)


@pytest.mark.parametrize("argument", ["rates", None, Rate])
def test_only_a_category_is_a_table(argument: Any) -> None:
    """The error names the argument."""
    with pytest.raises(DeclarationError, match="the argument is no category"):
        ps.lookups.CategoryTable(argument)


def test_a_process_without_a_bus_cannot_open_the_table() -> None:
    """The error says that the process is not connected to the bus."""
    with pytest.raises(LookupRefused, match="this process is not connected to it"):
        ps.lookups.CategoryTable(rates).open()


def row_size(currency: str, euros: float) -> int:
    """Return the size of the message of a row."""
    return len(currency) + len(f'{{"currency":"{currency}","at":0,"euros":{euros}}}')


def test_a_table_beyond_its_limit_is_refused_with_its_rows_and_bytes() -> None:
    """The first read and later ones check the limit. Replaced and deleted rows do not count."""
    size = row_size("c000", 1.0)
    world = World()
    world.table = CategoryRows(rates, world.bus, lambda: world.now_s, max_bytes=10 * size)
    for _ in range(5):  # replaced rows
        world.write(*(Rate(f"c{number:03}", 0, 1.0) for number in range(10)))
        assert len(world.euros(*(f"c{number:03}" for number in range(10)))) == 10
    for number in range(100, 200):  # deleted rows
        world.write(ps.Tombstone(f"c{number - 1:03}" if number > 100 else "c000"), Rate(f"c{number:03}", 0, 1.0))
        assert world.euros(f"c{number:03}") == {f"c{number:03}": 1.0}
    assert world.table.size.rows == 10
    world.write(Rate("c300", 0, 1.0))

    for table in (world.table, CategoryRows(rates, world.bus, lambda: world.now_s, max_bytes=10 * size)):
        with pytest.raises(
            LookupRefused, match=rf"has 11 rows of {11 * size} bytes or more.*limit is {10 * size}.*TableJoin"
        ):
            table.fetch(["c300"])


def test_the_size_of_a_table_and_its_unread_messages_are_reported() -> None:
    """Messages are unread while a transaction of their writer keeps them back, or the bus has not sent them."""
    driver = Driver(Convert)
    driver.send(rates, [Rate("USD", 0, 0.5), Rate("CHF", 0, 1.5), Rate("USD", 0, 2.5), ps.Tombstone("CHF")])
    driver.send(payments, paid(0, ["USD"]))
    lookups = driver.metrics(Convert).lookups

    assert lookups is not None
    assert lookups.table == TableSize(1, row_size("USD", 2.5) + len("CHF"), 0)
    assert "a table of 1 row, 0 messages behind" in str(lookups)


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1 GB", True, None])
def test_a_limit_is_a_positive_number_of_bytes(limit: Any) -> None:
    """The error has an example."""
    with pytest.raises(DeclarationError, match=r"no positive int.*such as 512"):
        ps.lookups.CategoryTable(rates, max_bytes=limit)


def test_a_missing_category_is_reported_with_a_similar_one() -> None:
    """The name may be misspelled."""
    bus = MemoryBus()
    for name in ("rate", "payments", "converted"):
        bus.create(CategorySpec(name, 8))

    with pytest.raises(MissingCategory, match=r"needs category rates, which is not on the bus\. Did you mean `rate`\?"):
        prepare(Convert, bus)
