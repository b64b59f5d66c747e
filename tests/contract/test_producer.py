"""Contract of the producer on every bus: an application writes records as a processor does."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext, suppress
from typing import Annotated, Any

import pytest
from support import plain

import penstock as ps
from penstock.errors import BusError, DeclarationError
from penstock.processors.declare import InvalidRecord
from penstock.transport import Bucket, Bus, CategorySpec, Fenced, MissingCategory, OffsetRange, read_offset_range
from penstock.transport.codecs import Codecs
from penstock.transport.kafka import KafkaBus
from penstock.transport.memory import MemoryBus
from penstock.transport.producer import KAFKA_VARIABLE

LIMIT_S = 90.0


class Order(ps.Record, frozen=True):
    """An order."""

    customer: str
    at: ps.EventTime
    total: int = 0


class Payment(ps.Record, frozen=True):
    """A payment of an order."""

    customer: str
    at: ps.EventTime


class Note(ps.Record, frozen=True):
    """A note of an owner, who is only in the message key."""

    text: str
    at: ps.EventTime
    owner: Annotated[int, ps.metadata.Key] = 0


@pytest.fixture(params=["memory", "kafka"])
def bus(request: pytest.FixtureRequest) -> Bus:
    """Each implementation."""
    if request.param == "memory":
        return MemoryBus()
    bus: KafkaBus = request.getfixturevalue("kafka_bus")
    return bus


@pytest.fixture
def orders(bus: Bus, unique: str) -> ps.Category[Order]:
    """A category on the bus that is placed by CRC32."""
    category = ps.Category(
        f"{unique}.orders", Order, key="customer", event_time="at", buckets=4, partitioner=ps.Partitioner.CONSISTENT
    )
    bus.catalog.create(CategorySpec.of(category))
    return category


@pytest.fixture
def payments(bus: Bus, unique: str) -> ps.Category[Payment]:
    """Another category on the bus."""
    category = ps.Category(f"{unique}.payments", Payment, key="customer", event_time="at", buckets=1)
    bus.catalog.create(CategorySpec.of(category))
    return category


def read(bus: Bus, category: ps.Category[Any]) -> list[tuple[int, Any]]:
    """Return the committed records of a category, each with its bucket."""
    deadline = time.monotonic() + LIMIT_S
    while bus.catalog.stable_ends(category.name) != bus.catalog.ends(category.name):
        assert time.monotonic() < deadline  # until the brokers have written the markers of transactions
        time.sleep(0.01)
    codec, found = Codecs(bus).of(category), []
    for number, end in bus.catalog.stable_ends(category.name).items():
        if end:
            for batch in read_offset_range(
                bus, OffsetRange(Bucket(category.name, number), 0, end), silence_limit_s=LIMIT_S
            ):
                found += [(number, event) for event in codec.decode(batch.messages).events]
    return found


def test_records_are_written_to_the_buckets_of_their_keys(bus: Bus, orders: ps.Category[Order]) -> None:
    """The declared partitioner chooses the bucket, and each key keeps its order."""
    records = [Order(f"c{n % 10}", n, n) for n in range(100)]
    with ps.Producer(orders, bus=bus) as producer:
        producer.send(*records[:50])
        producer.send(*records[50:])

    found = read(bus, orders)
    assert sorted(event.at for _, event in found) == list(range(100))
    assert all(number == orders.bucket_of(event.customer) for number, event in found)
    for customer in {event.customer for event in records}:
        times = [event.at for _, event in found if event.customer == customer]
        assert times == sorted(times)


def messages_of(bus: Bus, category: ps.Category[Any]) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return the bucket, key and value of each message of a category: on Kafka by a plain client."""
    if isinstance(bus, KafkaBus):
        return plain.messages(bus.settings.bootstrap, category.name)
    return [
        (number, message.key(), message.value())
        for number, end in bus.catalog.stable_ends(category.name).items()
        if end
        for batch in read_offset_range(bus, OffsetRange(Bucket(category.name, number), 0, end))
        for message in batch.messages
    ]


@pytest.mark.parametrize("transactional", [False, True])
def test_a_tombstone_has_the_key_of_its_records_and_no_value(
    bus: Bus, orders: ps.Category[Order], payments: ps.Category[Payment], *, transactional: bool
) -> None:
    """It is in the bucket of the key, after the records that were sent before, with and without a transaction."""
    customers = [f"c{n}" for n in range(20)]
    producer: ps.Producer[Any]
    identity = f"{orders.name}.p" if transactional else None
    with (
        ps.Producer[Any](orders, payments, bus=bus, transactional_id=identity) as producer,
        producer.transaction() if transactional else nullcontext(),
    ):
        producer.send(*(Order(customer, 1) for customer in customers), Payment("ann", 1))
        producer.send(*(ps.To(orders, ps.Tombstone(customer)) for customer in customers))
        with pytest.raises(TypeError, match="Name the category of a tombstone"):
            producer.send(ps.Tombstone("ann"))
    if not transactional:
        with ps.Producer(payments, bus=bus) as alone:
            alone.send(Payment("bob", 2), ps.Tombstone("ann"))

    found = messages_of(bus, orders)
    for customer in customers:
        of_customer = [(number, value) for number, key, value in found if key == customer.encode()]
        assert [(number, value is None) for number, value in of_customer] == [
            (orders.bucket_of(customer), False),
            (orders.bucket_of(customer), True),
        ]
    assert len(found) == 2 * len(customers)
    if not transactional:
        assert [(key, value is None) for _, key, value in messages_of(bus, payments)] == [
            (b"ann", False),
            (b"bob", False),
            (b"ann", True),
        ]


def test_an_output_names_its_category_and_key(bus: Bus, unique: str) -> None:
    """The key replaces the key of a record that takes it from the message key. Other categories and keys are refused."""
    notes = ps.Category(f"{unique}.notes", Note, key="owner", event_time="at", buckets=4, key_codec=ps.KeyCodec.INT32)
    bus.catalog.create(CategorySpec.of(notes))
    with ps.Producer(notes, bus=bus) as producer:
        producer.send(ps.To(notes, Note("first", 1), key="7"), Note("second", 2, 8), ps.Tombstone("7"))
        for wrong, words in (
            (ps.To(notes, Note("third", 3), key="ann"), "'ann' does not fit its `key_codec`"),
            (ps.To(notes, Order("ann", 3)), "contains only Note records, not Order"),
            (ps.To(f"{unique}.orders", Note("third", 3)), "no category for a Note for"),
        ):
            with pytest.raises(TypeError, match=words):
                producer.send(wrong)

    found = messages_of(bus, notes)
    assert sorted(found, key=lambda message: message[1] or b"", reverse=True) == [
        (notes.bucket_of("8"), b"\0\0\0\x08", b'{"text":"second","at":2}'),
        (notes.bucket_of("7"), b"\0\0\0\x07", b'{"text":"first","at":1}'),
        (notes.bucket_of("7"), b"\0\0\0\x07", None),
    ]
    assert sorted(event.owner for _, event in read(bus, notes)) == [7, 8]


def test_records_of_a_transaction_become_visible_together(
    bus: Bus, orders: ps.Category[Order], payments: ps.Category[Payment]
) -> None:
    """All categories of the transaction show them. After an error, they stay invisible, and the next transaction works."""
    producer: ps.Producer[Any]
    with ps.Producer[Any](orders, payments, bus=bus, transactional_id=f"{orders.name}.p") as producer:
        with suppress(RuntimeError), producer.transaction():
            producer.send(Order("ann", 1), Payment("ann", 1))
            producer.flush()
            raise RuntimeError
        with producer.transaction():
            producer.send(Order("bob", 2), Payment("bob", 3))

    assert [event for _, event in read(bus, orders)] == [Order("bob", 2)]
    assert [event for _, event in read(bus, payments)] == [Payment("bob", 3)]


def test_a_newer_producer_fences_the_earlier_one(bus: Bus, orders: ps.Category[Order]) -> None:
    """Records of the earlier one do not become visible."""
    identity = f"{orders.name}.p"

    def write_while_another_starts() -> None:
        with ps.Producer(orders, bus=bus, transactional_id=identity) as earlier, earlier.transaction():
            earlier.send(Order("ann", 1))
            with ps.Producer(orders, bus=bus, transactional_id=identity) as newer, newer.transaction():
                newer.send(Order("bob", 2))

    with pytest.raises(Fenced):
        write_while_another_starts()

    assert [event for _, event in read(bus, orders)] == [Order("bob", 2)]


def test_an_invalid_record_is_refused_with_its_batch(bus: Bus, orders: ps.Category[Order]) -> None:
    """No record of the batch is written, and the producer remains usable."""
    with ps.Producer(orders, bus=bus) as producer:
        with pytest.raises(InvalidRecord, match="customer"):
            producer.send(Order("ann", 1), Order(5, 2))  # type: ignore[arg-type]  # the fault under test
        with pytest.raises(TypeError, match="no category for a Payment"):
            producer.send(Payment("ann", 1))  # type: ignore[arg-type]  # the fault under test
        producer.send(Order("bob", 3))

    assert [event.customer for _, event in read(bus, orders)] == ["bob"]


def test_misuse_is_refused_before_anything_is_written(bus: Bus, orders: ps.Category[Order], unique: str) -> None:
    """These are a send outside of a transaction, a transaction without an identity, and a category that is missing or declared twice."""
    with (
        ps.Producer(orders, bus=bus, transactional_id=unique) as producer,
        pytest.raises(DeclarationError, match="only in"),
    ):
        producer.send(Order("ann", 1))
    with ps.Producer(orders, bus=bus) as producer, pytest.raises(DeclarationError, match="no `transactional_id`"):
        producer.transaction().__enter__()
    with pytest.raises(DeclarationError, match="same record type"):
        ps.Producer(orders, orders, bus=bus)
    with pytest.raises(MissingCategory):
        ps.Producer(ps.Category(f"{unique}.none", Order, key="customer", event_time="at"), bus=bus)
    assert read(bus, orders) == []


def test_the_cluster_is_named_by_an_argument_or_the_environment(
    kafka: str, kafka_bus: KafkaBus, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without both, the error says what to set."""
    category = ps.Category(f"{unique}.orders", Order, key="customer", event_time="at", buckets=1)
    kafka_bus.catalog.create(CategorySpec.of(category))
    monkeypatch.delenv(KAFKA_VARIABLE, raising=False)
    with pytest.raises(BusError, match=KAFKA_VARIABLE):
        ps.Producer(category)
    with ps.Producer(category, kafka=kafka) as producer:
        producer.send(Order("ann", 1))
    monkeypatch.setenv(KAFKA_VARIABLE, kafka)
    with ps.Producer(category) as producer:
        producer.send(Order("bob", 2))

    [(_, first), (_, second)] = read(kafka_bus, category)
    assert json.loads(Codecs(kafka_bus).of(category).encode([first])[0])["customer"] == "ann"
    assert second == Order("bob", 2)
