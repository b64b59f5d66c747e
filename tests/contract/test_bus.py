"""Contract of every bus: memory and Kafka behave alike."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

import penstock as ps
from penstock.errors import DeclarationError
from penstock.processors.declare import MessageHeaders, bucket_of
from penstock.processors.time import BucketProgress
from penstock.processors.time.saved_times import text_of
from penstock.transport import (
    Aborted,
    Bucket,
    Bus,
    BusError,
    CategoryExists,
    CategorySpec,
    Fenced,
    GroupInUse,
    MessageRefused,
    MissingCategory,
    OffsetRange,
    Outgoing,
    OutputsTimedOut,
    Position,
    RawBatch,
    Reader,
    SettingsRefused,
    Topic,
    TransactionalWriter,
    old_transactions,
    read_offset_range,
)
from penstock.transport.bus import Scanner
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.kafka.client_handle import VARIABLE
from penstock.transport.kafka.open_transactions import OpenTransactions
from penstock.transport.kafka.transactions import KafkaTransactionalWriter
from penstock.transport.memory import MemoryBus

LIMIT_S = 90.0


class Row(ps.Record, frozen=True):
    """A row of a table."""

    name: str
    at: ps.EventTime


class Owner:
    """Records the buckets that it is assigned."""

    def __init__(self) -> None:
        self.owned: set[Bucket] = set()
        self.was_assigned = self.has_lost = False

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        self.owned.update(buckets)
        self.was_assigned = True

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        self.owned.difference_update(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        self.owned.difference_update(buckets)
        self.has_lost = True


@pytest.fixture(params=["memory", "kafka", "kafka_by_message"])
def bus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bus:
    """Each implementation; Kafka also without calls of librdkafka."""
    if request.param == "memory":
        return MemoryBus()
    if request.param == "kafka_by_message":
        monkeypatch.setenv(VARIABLE, "0")
    bus: KafkaBus = request.getfixturevalue("kafka_bus")
    return bus


def send(bus: Bus, category: str, messages: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    writer = bus.writer()
    writer.send(category, [Outgoing(*message) for message in messages])
    writer.flush()
    writer.close()


def read(
    reader: Scanner, messages: int, before_each_poll: Callable[[], None] = lambda: None
) -> dict[Bucket, list[tuple[int, bytes | None, bytes | None]]]:
    """Read the given number of messages: offset, key and value, by bucket."""
    found: dict[Bucket, list[tuple[int, bytes | None, bytes | None]]] = {}
    deadline = time.monotonic() + LIMIT_S
    while sum(map(len, found.values())) < messages:
        assert time.monotonic() < deadline, f"only {found} arrived"
        before_each_poll()
        for batch in reader.poll(0.1).batches:
            found.setdefault(batch.bucket, []).extend((m.offset(), m.key(), m.value()) for m in batch.messages)
    return found


def joined(bus: Bus, category: str, identity: str | None = None) -> Reader:
    """Join the category's group, and read all of its buckets from the group's positions."""
    owner = Owner()
    reader = bus.reader("group-" + category, [category], owner, identity)
    buckets = bus.catalog.describe(category).starts
    deadline = time.monotonic() + LIMIT_S
    while len(owner.owned) < len(buckets):
        assert time.monotonic() < deadline, f"only {owner.owned} came"
        assert not reader.poll(0.05).batches
    committed = bus.catalog.committed("group-" + category, category)
    reader.start(
        [Position(Bucket(category, number), committed.get(number, start)) for number, start in buckets.items()]
    )
    return reader


def scan(bus: Bus, category: str, messages: int) -> dict[Bucket, list[tuple[int, bytes | None, bytes | None]]]:
    reader = bus.scanner([Position(Bucket(category, n), 0) for n in bus.catalog.describe(category).ends])
    try:
        return read(reader, messages)
    finally:
        reader.close()


def scan_all(bus: Bus, category: str) -> dict[Bucket, list[tuple[int, bytes | None, bytes | None]]]:
    """Read all messages of a category without an open transaction."""
    settled_end(bus, category)
    return scan_committed(bus, category)


def scan_committed(bus: Bus, category: str) -> dict[Bucket, list[tuple[int, bytes | None, bytes | None]]]:
    """Read all committed messages up to the current ends for readers."""
    state = bus.catalog.describe(category)
    reader = bus.scanner([Position(Bucket(category, n), 0) for n in state.ends])
    found: dict[Bucket, list[tuple[int, bytes | None, bytes | None]]] = {}
    ended: set[Bucket] = set()
    deadline = time.monotonic() + LIMIT_S
    while len(ended) < len(state.ends):
        assert time.monotonic() < deadline
        polled = reader.poll(0.1)
        for batch in polled.batches:
            found.setdefault(batch.bucket, []).extend((m.offset(), m.key(), m.value()) for m in batch.messages)
        ended.update(end.bucket for end in polled.ended)
    reader.close()
    return found


def test_a_category_that_is_created_again_has_a_new_topic_id(bus: Bus, unique: str) -> None:
    """The id does not change while the category exists, and differs after deletion; the size is reported, too."""
    spec = CategorySpec(unique, 2)
    bus.catalog.create(spec)
    first = bus.catalog.describe(unique).topic_id
    send(bus, unique, [(b"k", b"v")])
    bus.catalog.resize(unique, 3)
    later = bus.catalog.topics([unique, "missing." + unique])
    bus.catalog.delete(unique)
    gone = bus.catalog.topics([unique])
    bus.catalog.create(spec)
    second = bus.catalog.topics([unique])[unique]

    assert later == {unique: Topic(first, 3)}
    assert gone == {}
    assert second.id not in {"", first}
    assert second.buckets == 2


def test_several_categories_are_described_together(bus: Bus, unique: str) -> None:
    """Each description equals the one of the category alone. Missing categories are left out."""
    specs = [CategorySpec(f"{unique}.{name}", buckets) for name, buckets in (("a", 2), ("b", 1), ("c", 3))]
    for spec in specs:
        bus.catalog.create(spec)
    send(bus, specs[0].name, [(b"k", b"v"), (b"l", b"w")])
    names = [spec.name for spec in specs]
    found = bus.catalog.describe_all([*names, "missing." + unique])
    bus.catalog.delete(names[2])

    assert found == {name: bus.catalog.describe(name) for name in names[:2]} | {names[2]: found[names[2]]}
    assert [found[spec.name].spec for spec in specs] == specs
    assert found[names[0]].events == len("kl")
    assert bus.catalog.describe_all(names).keys() == set(names[:2])
    assert bus.catalog.describe_all([]) == {}


def test_positions_of_several_groups_are_read_together(bus: Bus, unique: str) -> None:
    """Each group has the same positions as alone, even if it has committed nothing."""
    for name, buckets in (("a", 2), ("b", 1)):
        bus.catalog.create(CategorySpec(f"{unique}.{name}", buckets))
    first, second = f"{unique}.a", f"{unique}.b"
    for number in range(20):
        bus.catalog.set_committed(f"{unique}.{number}", [Position(Bucket(first, number % 2), number)])
    readers = [(f"{unique}.{number}", first) for number in range(21)] + [(f"{unique}.3", second)]
    found = bus.catalog.committed_of(readers)

    assert found == {(f"{unique}.{n}", first): {n % 2: n} for n in range(20)} | {reader: {} for reader in readers[20:]}
    assert bus.catalog.committed_of([]) == {}
    with pytest.raises(MissingCategory):
        bus.catalog.committed_of([(f"{unique}.3", first), (f"{unique}.3", "missing." + unique)])


def test_tombstones_are_retained_as_configured(bus: Bus, unique: str) -> None:
    """A compacted category keeps deletions for the configured time."""
    spec = CategorySpec(unique, 1, compacted=True, delete_retention=timedelta(days=30))
    bus.catalog.create(spec)

    assert bus.catalog.describe(unique).spec == spec


def test_a_category_has_the_settings_it_was_created_with(bus: Bus, unique: str) -> None:
    """Bucket count and retention are as requested, and the category starts empty."""
    spec = CategorySpec(unique, 3, timedelta(days=2))
    bus.catalog.create(spec)

    state = bus.catalog.describe(unique)

    assert state.spec == spec
    assert state.starts == state.ends == {0: 0, 1: 0, 2: 0}
    assert unique in bus.catalog.names()


def test_a_compacted_category_is_distinguished_from_one_that_retains_all(bus: Bus, unique: str) -> None:
    """The cleanup policy decides whether a state may be rebuilt from the category."""
    bus.catalog.create(CategorySpec(unique, 1, compacted=True))

    assert bus.catalog.describe(unique).spec.compacted


def test_a_declared_category_has_its_settings(kafka_bus: KafkaBus, kafka: str, unique: str) -> None:
    """Kafka reports them; a setting that Kafka does not know creates nothing."""
    settings = {"compression.type": "zstd", "message.timestamp.type": "CreateTime"}
    declared = ps.Category(
        unique, Row, key="name", event_time="at", buckets=3, compacted=True, replicas=1, settings=settings
    )
    wrong = ps.Category(f"{unique}.wrong", Row, key="name", event_time="at", settings={"compresion.type": "zstd"})

    kafka_bus.catalog.create(CategorySpec.of(declared))
    with pytest.raises(BusError, match=r"Nothing was created. Correct the `settings`"):
        kafka_bus.catalog.create(CategorySpec.of(wrong))

    assert kafka_bus.catalog.describe(unique).spec.compacted
    assert not kafka_bus.catalog.durability(unique).uses_arrival_time
    resource = ConfigResource(ResourceType.TOPIC, unique)
    admin = AdminClient({"bootstrap.servers": kafka})
    assert admin.describe_configs([resource])[resource].result(timeout=LIMIT_S)["compression.type"].value == "zstd"
    assert f"{unique}.wrong" not in kafka_bus.catalog.names()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"compacted": 1}, "Declare True or False"),
        ({"replicas": 0}, "positive int"),
        ({"replicas": True}, "positive int"),
        ({"settings": {"retention.bytes": 5}}, "both as str"),
        ({"settings": "zstd"}, "both as str"),
    ],
)
def test_settings_of_a_wrong_type_are_refused(wrong: dict[str, Any], words: str) -> None:
    """The declaration is refused."""
    with pytest.raises(DeclarationError, match=words):
        ps.Category("rows", Row, key="name", event_time="at", **wrong)


def test_an_existing_category_cannot_be_created(bus: Bus, unique: str) -> None:
    """The call fails and leaves the category unchanged."""
    bus.catalog.create(CategorySpec(unique, 2))

    with pytest.raises(CategoryExists, match=re.escape(unique)):
        bus.catalog.create(CategorySpec(unique, 5))

    assert bus.catalog.describe(unique).spec.buckets == 2


def test_a_deleted_category_does_not_exist(bus: Bus, unique: str) -> None:
    """After the deletion, it is neither listed nor described."""
    bus.catalog.create(CategorySpec(unique, 1))
    bus.catalog.delete(unique)

    assert unique not in bus.catalog.names()
    with pytest.raises(MissingCategory):
        bus.catalog.describe(unique)


def test_buckets_can_be_added_but_not_removed(bus: Bus, unique: str) -> None:
    """A request for fewer buckets is refused."""
    bus.catalog.create(CategorySpec(unique, 2))
    bus.catalog.resize(unique, 4)

    with pytest.raises(BusError):
        bus.catalog.resize(unique, 3)

    assert bus.catalog.describe(unique).spec.buckets == 4


def test_the_partitioner_assigns_each_key_to_one_bucket(bus: Bus, unique: str) -> None:
    """The events of a key are in one bucket, in the order in which they were sent, for any writer."""
    bus.catalog.create(CategorySpec(unique, 5))
    keys = [b"", b"a", b"EWR-IAH", "Zürich".encode(), *(b"k%d" % n for n in range(60))]
    send(bus, unique, [(key, b"%d" % n) for n in range(3) for key in keys])

    found = scan(bus, unique, 3 * len(keys))

    for key in keys:
        own = found[Bucket(unique, bucket_of(key, 5))]
        assert [value for _, k, value in own if k == key] == [b"0", b"1", b"2"]
    for messages in found.values():
        assert [offset for offset, _, _ in messages] == list(range(len(messages)))


def test_messages_may_lack_key_or_value(bus: Bus, unique: str) -> None:
    """A missing key or value is stored as null."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(None, b"v"), (b"k", None)])

    found = scan(bus, unique, 2)

    assert found == {Bucket(unique, 0): [(0, None, b"v"), (1, b"k", None)]}


@pytest.mark.parametrize("transactional", [False, True])
def test_messages_carry_headers(bus: Bus, unique: str, *, transactional: bool) -> None:
    """Repeated names, empty values and null values arrive in order; a message without headers has None. Each message names its bucket."""
    bus.catalog.create(CategorySpec(unique, 2))
    sent = [("source", b"web"), ("source", b""), ("trace", None), ("größe", b"\xff\x00")]
    writer = bus.transactional_writer(unique, None, 60, [unique]) if transactional else bus.writer()
    writer.send(unique, [Outgoing(b"k", b"v", 1, sent), Outgoing(b"k", b"v", 1)])
    writer.flush()
    if transactional:
        cast("TransactionalWriter", writer).commit([])
    writer.close()

    reader = bus.scanner([Position(Bucket(unique, 1), 0)])
    found: list[tuple[int, MessageHeaders | None]] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < 2:
        assert time.monotonic() < deadline, f"only {found} arrived"
        for batch in reader.poll(0.1).batches:
            found += [(message.partition(), message.headers()) for message in batch.messages]
    reader.close()

    assert found == [(1, sent), (1, None)]


def test_messages_need_not_wait_for_more(bus: Bus, unique: str) -> None:
    """Any `linger.ms` works if the request is repeated, as an idle worker does. A single request promises nothing."""
    bus.catalog.create(CategorySpec(unique, 1))
    if isinstance(bus, KafkaBus):
        bus = KafkaBus(KafkaSettings(bus.settings.bootstrap, {"linger.ms": "120000"}))
    reader = bus.scanner([Position(Bucket(unique, 0), 0)])
    writer = bus.writer()
    writer.send(unique, [Outgoing(None, b"v", 0)])
    assert list(read(reader, 1, writer.send_now).values()) == [[(0, None, b"v")]]
    writer.close()
    reader.close()


def test_messages_have_the_brokers_arrival_time(bus: Bus, unique: str) -> None:
    """A category that Penstock created ignores the writers' clocks."""
    bus.catalog.create(CategorySpec(unique, 1))
    if isinstance(bus, KafkaBus):
        stale = Producer({"bootstrap.servers": bus.settings.bootstrap})
        stale.produce(unique, b"v", timestamp=1_000)
        stale.flush()
    else:
        send(bus, unique, [(None, b"v")])
    reader = bus.scanner([Position(Bucket(unique, 0), 0)])
    batches: list[RawBatch] = []
    while not batches:
        batches.extend(reader.poll(1.0).batches)
    reader.close()

    assert bus.catalog.durability(unique).uses_arrival_time
    assert time.time() * 1000 - 60_000 < batches[0].arrivals_ms()[0] <= time.time() * 1000


def test_a_message_of_the_maximum_size_is_accepted_and_a_larger_one_refused(bus: Bus, unique: str) -> None:
    """A category accepts its reported maximum, measured with random bytes that do not compress."""
    bus.catalog.create(CategorySpec(unique, 1))
    largest = bus.catalog.message_limit(unique)
    send(bus, unique, [(b"key", os.urandom(largest - 3))])
    with pytest.raises(MessageRefused):
        send(bus, unique, [(b"key", os.urandom(largest + 1_000))])

    [message] = scan(bus, unique, 1)[Bucket(unique, 0)]
    assert len(message[2] or b"") == largest - 3


def test_a_group_resumes_at_its_committed_offsets(bus: Bus, unique: str) -> None:
    """The next member starts at the committed offset and reads no earlier event again."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"%d" % n) for n in range(10)])
    first = joined(bus, unique)
    read(first, 10)
    first.commit([Position(Bucket(unique, 0), 7)])
    first.close()

    second = joined(bus, unique)
    found = read(second, 3)
    second.close()

    assert bus.catalog.committed("group-" + unique, unique) == {0: 7}
    assert [value for _, _, value in found[Bucket(unique, 0)]] == [b"7", b"8", b"9"]


def test_offsets_of_a_group_without_members_can_be_set(bus: Bus, unique: str) -> None:
    """Any client can set them, also for a new group; this does not change the positions of an active member."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"%d" % n) for n in range(10)])
    bus.catalog.set_committed("group-" + unique, [Position(Bucket(unique, 0), 8)])
    member = joined(bus, unique)
    found = read(member, 2)
    member.commit([Position(Bucket(unique, 0), 9)])
    with pytest.raises(GroupInUse):
        bus.catalog.set_committed("group-" + unique, [Position(Bucket(unique, 0), 1)])
    member.close()

    assert [value for _, _, value in found[Bucket(unique, 0)]] == [b"8", b"9"]
    assert bus.catalog.committed("group-" + unique, unique) == {0: 9}


def test_a_group_without_members_can_be_deleted(bus: Bus, unique: str) -> None:
    """Its offsets are deleted with it. A group with members is not deleted, and a missing group is not an error."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"%d" % n) for n in range(3)])
    member = joined(bus, unique)
    read(member, 3)
    member.commit([Position(Bucket(unique, 0), 3)])
    with pytest.raises(GroupInUse):
        bus.catalog.forget_group("group-" + unique)
    member.leave()
    member.close()
    for _ in range(2):
        bus.catalog.forget_group("group-" + unique)

    assert bus.catalog.committed("group-" + unique, unique) == {}


def test_a_paused_bucket_delivers_nothing_until_it_is_resumed(bus: Bus, unique: str) -> None:
    """It resumes at the same offset; the other bucket continues meanwhile. A new start clears the pause."""
    bus.catalog.create(CategorySpec(unique, 2))
    writer = bus.writer()
    reader = joined(bus, unique)
    read(reader, 0)
    paused, other = Bucket(unique, 0), Bucket(unique, 1)
    reader.pause([paused])
    writer.send(unique, [Outgoing(b"k", b"%d" % n, n % 2) for n in range(6)])
    writer.flush()
    first = read(reader, 3)
    reader.resume([paused])
    second = read(reader, 3)
    reader.pause([paused])
    reader.start([Position(paused, 1)])
    third = read(reader, 2)
    reader.close()
    writer.close()

    assert {bucket: [value for _, _, value in found] for bucket, found in first.items()} == {other: [b"1", b"3", b"5"]}
    assert {bucket: [value for _, _, value in found] for bucket, found in second.items()} == {
        paused: [b"0", b"2", b"4"]
    }
    assert {bucket: [value for _, _, value in found] for bucket, found in third.items()} == {paused: [b"2", b"4"]}


def test_a_poll_returns_at_most_the_requested_number(bus: Bus, unique: str) -> None:
    """Later polls return the rest, in order."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"%d" % n) for n in range(10)])
    reader = joined(bus, unique)
    found, sizes = list[int](), list[int]()
    deadline = time.monotonic() + LIMIT_S
    while len(found) < 10:
        assert time.monotonic() < deadline
        reader.poll_limit = 1 if len(found) < 4 else 3
        for batch in reader.poll(0.1).batches:
            sizes.append(len(batch.messages))
            found += [message.offset() for message in batch.messages]
    reader.close()

    assert found == list(range(10))
    assert sizes[:4] == [1] * 4
    assert max(sizes[4:]) <= 3


def test_a_group_without_commits_starts_at_the_beginning(bus: Bus, unique: str) -> None:
    """It has no position, and reads from the first retained event."""
    bus.catalog.create(CategorySpec(unique, 2))
    send(bus, unique, [(b"k", b"0")])
    assert bus.catalog.committed("group-" + unique, unique) == {}
    reader = joined(bus, unique)
    found = read(reader, 1)
    reader.close()

    assert found == {Bucket(unique, bucket_of(b"k", 2)): [(0, b"k", b"0")]}


def test_a_reader_can_seek_to_any_offset(bus: Bus, unique: str) -> None:
    """A bucket can be read from another offset at any time, repeatedly."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"%d" % n) for n in range(10)])
    reader = joined(bus, unique)
    found = []
    for offset in (0, 4, 9, 0):
        reader.start([Position(Bucket(unique, 0), offset)])
        found.append([at for at, _, _ in read(reader, 10 - offset)[Bucket(unique, 0)]])
    reader.close()

    assert found == [list(range(offset, 10)) for offset in (0, 4, 9, 0)]


def test_a_bucket_is_read_only_from_the_given_offset(bus: Bus, unique: str) -> None:
    """A new member reads nothing else either, while the client may still look up the first offsets."""
    bus.catalog.create(CategorySpec(unique, 8))
    writer = bus.writer()
    writer.send(unique, [Outgoing(None, b"v", number) for number in range(8) for _ in range(100)])
    writer.flush()
    writer.close()
    owner = Owner()
    reader = bus.reader("group-" + unique, [unique], owner)
    begins = {Bucket(unique, number): 10 * number for number in range(8)}
    found: dict[Bucket, list[int]] = {bucket: [] for bucket in begins}
    started, deadline = False, time.monotonic() + LIMIT_S
    while sum(map(len, found.values())) < 800 - sum(begins.values()) and time.monotonic() < deadline:
        if not started and len(owner.owned) == len(begins):
            started = True
            reader.start([Position(bucket, begin) for bucket, begin in begins.items()])
        for batch in reader.poll(0.05).batches:
            found[batch.bucket] += [message.offset() for message in batch.messages]
    surplus = [batch for _ in range(20) for batch in reader.poll(0.05).batches]
    reader.close()

    assert found == {bucket: list(range(begin, 100)) for bucket, begin in begins.items()}
    assert not surplus


def test_a_transaction_counts_as_a_whole(bus: Bus, unique: str) -> None:
    """Readers see neither its messages nor its positions before the commit, and both after it."""
    bus.catalog.create(CategorySpec(unique, 1))
    bus.catalog.create(CategorySpec(unique + ".out", 2))
    send(bus, unique, [(b"k", b"0"), (b"k", b"1")])
    reader = joined(bus, unique)
    read(reader, 2)
    writer = bus.transactional_writer(unique, reader, 60, [unique])
    writer.send(unique + ".out", [Outgoing(b"k", b"v", 1)])
    writer.flush()

    assert scan_committed(bus, unique + ".out") == {}
    assert bus.catalog.committed("group-" + unique, unique) == {}

    writer.commit([Position(Bucket(unique, 0), 2)])

    assert [value for _, _, value in scan_all(bus, unique + ".out")[Bucket(unique + ".out", 1)]] == [b"v"]
    assert bus.catalog.committed("group-" + unique, unique) == {0: 2}
    writer.close()
    reader.close()


def checkpoint_ids(bus: Bus, group: str, category: str) -> dict[int, int]:
    """Return the id of the checkpoint that committed each bucket's position, where one is recorded."""
    return {at.bucket.number: at.checkpoint_id for at in bus.catalog.positions(group, category) if at.checkpoint_id}


def test_committed_offsets_contain_the_checkpoint_id(bus: Bus, unique: str) -> None:
    """A member or another client commits them, inside or outside a transaction. An id is optional."""
    group = "group-" + unique
    bus.catalog.create(CategorySpec(unique, 3))
    reader = joined(bus, unique)
    writer = bus.transactional_writer(unique, reader, 60, [unique])
    writer.send(unique, [Outgoing(b"k", b"0", 0)])
    writer.commit([Position(Bucket(unique, 0), 0, 7)])
    reader.commit([Position(Bucket(unique, 1), 0, 2**62), Position(Bucket(unique, 2), 0)])
    found_ids = checkpoint_ids(bus, group, unique)
    writer.close()
    reader.leave()
    reader.close()
    bus.catalog.set_committed(group, [Position(Bucket(unique, 0), 0, 8), Position(Bucket(unique, 1), 0)])

    assert found_ids == {0: 7, 1: 2**62}
    assert checkpoint_ids(bus, group, unique) == {0: 8}
    assert bus.catalog.committed(group, unique) == {0: 0, 1: 0, 2: 0}


def test_committed_offsets_contain_the_event_times_of_a_checkpoint_without_state(bus: Bus, unique: str) -> None:
    """An event time is optional, and may be before 1970."""
    group = "group-" + unique
    bus.catalog.create(CategorySpec(unique, 3))
    reader = joined(bus, unique)
    committed = [
        Position(Bucket(unique, 0), 0, low_ms=1_700_000_000_123),
        Position(Bucket(unique, 1), 0, low_ms=-5, event_time=text_of(BucketProgress(3, 2, 1, -5, {0: 3}))),
        Position(Bucket(unique, 2), 0),
    ]
    reader.commit(committed)
    found = list(bus.catalog.positions(group, unique))
    reader.leave()
    reader.close()

    assert sorted(found) == committed


def test_an_aborted_transaction_has_no_effect(bus: Bus, unique: str) -> None:
    """Readers do not see its messages, and the next transaction is unaffected."""
    bus.catalog.create(CategorySpec(unique, 1))
    reader = joined(bus, unique)
    writer = bus.transactional_writer(unique, reader, 60, [unique])
    writer.send(unique, [Outgoing(b"k", b"dropped")])
    writer.abort()
    writer.send(unique, [Outgoing(b"k", b"kept")])
    writer.commit([])
    writer.close()
    reader.close()

    assert [value for _, _, value in scan_all(bus, unique)[Bucket(unique, 0)]] == [b"kept"]


def test_transactions_without_positions_need_no_group(bus: Bus, unique: str) -> None:
    """A later writer with the same transactional id aborts the earlier open transaction, which can no longer commit."""
    bus.catalog.create(CategorySpec(unique, 1))
    earlier = bus.transactional_writer(unique, None, 60, [unique])
    earlier.send(unique, [Outgoing(b"k", b"dropped")])
    earlier.flush()
    later = bus.transactional_writer(unique, None, 60, [unique])
    with pytest.raises(Fenced):
        earlier.commit([])
    later.send(unique, [Outgoing(b"k", b"kept")])
    later.commit([])
    later.close()
    earlier.close()

    assert [value for _, _, value in scan_all(bus, unique)[Bucket(unique, 0)]] == [b"kept"]


def test_a_later_writer_with_the_same_id_fences_the_earlier(bus: Bus, unique: str) -> None:
    """The earlier writer's open transaction is aborted at once and can no longer commit."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"0")])
    reader = joined(bus, unique)
    read(reader, 1)
    earlier = bus.transactional_writer(unique, reader, 60, [unique])
    earlier.send(unique, [Outgoing(b"k", b"dropped")])
    earlier.flush()
    later = bus.transactional_writer(unique, reader, 60, [unique])
    later.send(unique, [Outgoing(b"k", b"kept")])
    later.commit([Position(Bucket(unique, 0), 1)])

    with pytest.raises(Fenced):
        earlier.commit([Position(Bucket(unique, 0), 0)])

    assert bus.catalog.committed("group-" + unique, unique) == {0: 1}
    assert [value for _, _, value in scan_all(bus, unique)[Bucket(unique, 0)]] == [b"0", b"kept"]
    earlier.close()
    later.close()
    reader.close()


def test_a_fenced_writer_raises_the_bus_error(bus: Bus, unique: str) -> None:
    """It does so also when the client reports the fencing in a callback during a send."""
    bus.catalog.create(CategorySpec(unique, 1))
    reader = joined(bus, unique)
    earlier = bus.transactional_writer(unique, reader, 60, [unique])
    earlier.send(unique, [Outgoing(b"k", b"dropped")])
    earlier.flush()
    later = bus.transactional_writer(unique, reader, 60, [unique])

    def go_on() -> None:
        for _ in range(3):
            earlier.send(unique, [Outgoing(b"k", b"dropped")] * 100)
            earlier.flush()
        earlier.commit([])

    with pytest.raises((Aborted, Fenced)):
        go_on()

    assert scan_all(bus, unique) == {}
    earlier.close()
    later.close()
    reader.close()


def test_a_former_member_commits_nothing(bus: Bus, unique: str) -> None:
    """A transaction with the positions of a former member is aborted as a whole."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"0")])
    gone = joined(bus, unique)
    writer = bus.transactional_writer(unique, gone, 10, [unique])
    writer.send(unique, [Outgoing(b"k", b"dropped")])
    gone.leave()

    with pytest.raises((Aborted, Fenced)):
        writer.commit([Position(Bucket(unique, 0), 1)])

    assert bus.catalog.committed("group-" + unique, unique) == {}
    assert [value for _, _, value in scan_all(bus, unique)[Bucket(unique, 0)]] == [b"0"]
    writer.close()
    gone.close()


def test_a_writer_that_was_idle_for_long_sends_at_once(kafka_bus: KafkaBus, unique: str) -> None:
    """It waits for acknowledgements from its next message on, and does not pause because of the earlier silence."""
    kafka_bus.catalog.create(CategorySpec(unique, 1))
    writer = kafka_bus.writer()
    for number in range(3):
        writer.send(unique, [Outgoing(b"k", b"%d" % number)])
        assert not writer._pause.is_paused
        writer.flush()
        writer._pause._since_s -= 100.0
    writer.close()


class ConfirmingProducer:
    """A client whose coordinator confirms commits, and carries out none."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def commit_transaction(self, _: float) -> None:
        """Confirm."""


def test_a_commit_that_kafka_confirms_and_does_not_carry_out_does_not_count(
    kafka_bus: KafkaBus, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's positions do not show it: the next writer aborts its messages and positions."""
    monkeypatch.setattr("penstock.transport.kafka.transactions.CONFIRMATION_LIMIT_S", 1.0)
    kafka_bus.catalog.create(CategorySpec(unique, 1))
    kafka_bus.catalog.create(CategorySpec(unique + ".out", 1))
    send(kafka_bus, unique, [(b"k", b"0")])
    reader = joined(kafka_bus, unique)
    read(reader, 1)
    writer = kafka_bus.transactional_writer(unique, reader, 60, [unique + ".out"])
    writer._kept._client = cast("Producer", ConfirmingProducer(writer._producer))
    writer.send(unique + ".out", [Outgoing(b"k", b"unmarked")])
    writer.flush()

    with pytest.raises(Fenced, match="the group's positions do not show it"):
        writer.commit([Position(Bucket(unique, 0), 1)])

    writer.close()
    kafka_bus.transactional_writer(unique, reader, 60, [unique + ".out"]).close()
    assert scan_all(kafka_bus, unique + ".out") == {}
    assert kafka_bus.catalog.committed("group-" + unique, unique) == {}
    reader.close()


def test_a_reader_that_is_kept_alive_keeps_its_buckets_without_polling(kafka_bus: KafkaBus, unique: str) -> None:
    """It keeps them longer than `max.poll.interval.ms`, as during a long batch. It loses nothing, and commits."""
    kafka_bus.catalog.create(CategorySpec(unique, 1))
    short = {"max.poll.interval.ms": "6000", "session.timeout.ms": "6000"}
    bus, owner = KafkaBus(KafkaSettings(kafka_bus.settings.bootstrap, short)), Owner()
    reader = bus.reader("group-" + unique, [unique], owner, "one")
    deadline = time.monotonic() + LIMIT_S
    while not owner.owned:
        assert time.monotonic() < deadline
        reader.poll(0.1)
    reader.start([Position(Bucket(unique, 0), 0)])
    reader.poll(0.1)
    begin = time.monotonic()
    while time.monotonic() < begin + 9.0:
        reader.keep_alive()
        time.sleep(0.5)
    for _ in range(10):
        reader.poll(0.1)
    reader.commit([Position(Bucket(unique, 0), 0)])

    assert not owner.has_lost
    reader.close()


def test_kafka_refuses_a_transaction_that_is_longer_than_it_allows(kafka_bus: KafkaBus, unique: str) -> None:
    """The error names the checkpoint interval and the setting of the brokers."""
    with pytest.raises(SettingsRefused, match=r"Shorten the processor's interval.*") as refused:
        kafka_bus.transactional_writer(unique, None, 16 * 60.0, [])

    assert "transaction.max.timeout.ms" in str(refused.value)


def test_the_bus_names_the_time_limit_of_a_transaction_that_it_has_aborted(
    bus: Bus, unique: str, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    """A transaction that stays open for longer is aborted, and the writer is fenced; the error names the time, and no other worker."""
    bus.catalog.create(CategorySpec(unique, 1))
    writer = bus.transactional_writer(unique, None, 5.0, [unique])  # a busy machine sends a message within it
    writer.send(unique, [Outgoing(b"k", b"late")])
    writer.flush()
    # The brokers look for expired transactions every ten seconds.
    wait_until(lambda: bus.catalog.stable_ends(unique)[0] > 1)

    with pytest.raises(OutputsTimedOut, match="was not committed within 5 s"):
        writer.commit([])

    writer.close()


def test_kafka_accepts_no_positions_without_a_generation(kafka_bus: KafkaBus, unique: str) -> None:
    """A member that does not yet know it was removed commits nothing; Kafka accepts offsets of any client for an empty group."""
    kafka_bus.catalog.create(CategorySpec(unique, 1))
    dismissed = Consumer(kafka_bus.settings.for_reader("group-" + unique, "one", co_partitioned=False))
    writer = KafkaTransactionalWriter(
        kafka_bus.settings,
        unique,
        dismissed.consumer_group_metadata,
        60,
        OpenTransactions(kafka_bus.settings, kafka_bus.catalog, [unique], None),
    )
    writer.enlist()
    writer.send(unique, [Outgoing(b"k", b"dropped")])

    with pytest.raises(Aborted, match="no member of its group"):
        writer.commit([Position(Bucket(unique, 0), 1)])

    assert kafka_bus.catalog.committed("group-" + unique, unique) == {}
    writer.close()
    dismissed.close()


def test_a_leaving_member_frees_its_buckets_at_once(bus: Bus, unique: str) -> None:
    """A static member id does not delay the next member until the session timeout."""
    bus.catalog.create(CategorySpec(unique, 2))
    first = joined(bus, unique, "one")
    first.leave()
    first.close()

    joined(bus, unique, "two").close()


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_member_leaves_whether_or_not_it_reads_its_buckets(bus: Bus, unique: str, inputs: int) -> None:
    """A worker that stops right after an assignment has opened no shard yet. Its buckets move without waiting for its session."""
    names = [f"{unique}.{number}" for number in range(inputs)]
    for name in names:
        bus.catalog.create(CategorySpec(name, 2))
    for identity in ("one", "two"):
        owner = Owner()
        reader = bus.reader("group-" + unique, names, owner, identity)
        deadline = time.monotonic() + LIMIT_S
        while len(owner.owned) < 2 * inputs:
            assert time.monotonic() < deadline, f"{identity} has only {owner.owned}"
            reader.poll(0.05)
        reader.leave()
        assert not owner.owned
        reader.close()


def test_members_share_the_buckets_and_none_is_read_twice(bus: Bus, unique: str) -> None:
    """A joining member continues at the others' committed offsets; after it leaves, the others continue at its offsets."""
    bus.catalog.create(CategorySpec(unique, 4))
    owners = [Owner(), Owner()]
    readers = [bus.reader("group-" + unique, [unique], owners[0])]
    everything = {Bucket(unique, n) for n in range(4)}

    def poll_until(expected: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            for reader in readers:
                reader.poll(0.05)
            one, two = (owner.owned for owner in owners)
            if (not one & two) and one | two == everything and (expected == "all" or (one and two)):
                return
            assert time.monotonic() < deadline, f"{one} and {two} are owned"

    poll_until("all")
    readers.append(bus.reader("group-" + unique, [unique], owners[1]))
    poll_until("shared")
    readers.pop(0).close()
    assert not owners[0].owned

    poll_until("all")
    readers.pop().close()

    assert not owners[1].owned


@pytest.mark.parametrize("inputs", [1, 2])
def test_a_member_without_buckets_receives_an_empty_assignment(bus: Bus, unique: str, inputs: int) -> None:
    """Before it, the member does not know the assignment."""
    names = [f"{unique}.{number}" for number in range(inputs)]
    for name in names:
        bus.catalog.create(CategorySpec(name, 1))
    owners = [Owner(), Owner(), Owner()]
    readers = [bus.reader("group-" + unique, names, owner) for owner in owners]
    knew = [owner.was_assigned for owner in owners]
    deadline = time.monotonic() + LIMIT_S
    while not all(owner.was_assigned for owner in owners) or sum(len(owner.owned) for owner in owners) < inputs:
        assert time.monotonic() < deadline
        for reader in readers:
            reader.poll(0.05)
    for reader in readers:
        reader.close()

    assert knew == [False] * 3


def test_co_partitioned_categories_are_assigned_together(bus: Bus, unique: str) -> None:
    """Bucket n of every category of a reader belongs to one member."""
    names = [f"{unique}.left", f"{unique}.right"]
    for name in names:
        bus.catalog.create(CategorySpec(name, 4))
    owners = [Owner(), Owner()]
    readers = [bus.reader("group-" + unique, names, owner) for owner in owners]
    deadline = time.monotonic() + LIMIT_S
    while not (owners[0].owned and owners[1].owned and len(owners[0].owned | owners[1].owned) == 8):
        assert time.monotonic() < deadline
        for reader in readers:
            reader.poll(0.05)
    numbers = [{bucket.number for bucket in owner.owned} for owner in owners]
    for reader in readers:
        reader.close()

    assert not numbers[0] & numbers[1]


def test_a_reader_reports_the_end_of_each_bucket(bus: Bus, unique: str) -> None:
    """It reports the buckets that it has read to the end, empty ones included."""
    bus.catalog.create(CategorySpec(unique, 2))
    send(bus, unique, [(b"k", b"0"), (b"k", b"1")])
    reader = bus.scanner([Position(Bucket(unique, n), None) for n in range(2)])
    ends: dict[Bucket, int] = {}
    deadline = time.monotonic() + LIMIT_S
    while len(ends) < 2:
        assert time.monotonic() < deadline
        ends.update({end.bucket: end.offset for end in reader.poll(0.1).ended})
    reader.close()

    full = bucket_of(b"k", 2)
    assert ends == {Bucket(unique, full): 2, Bucket(unique, 1 - full): 0}


def test_offsets_are_found_by_arrival_time(bus: Bus, unique: str) -> None:
    """An earlier time finds the first event, and a later time finds no event."""
    bus.catalog.create(CategorySpec(unique, 1))
    now = datetime.now(tz=UTC)
    send(bus, unique, [(b"k", b"0"), (b"k", b"1")])

    assert bus.catalog.at_time(unique, now - timedelta(minutes=1)) == {0: 0}
    assert bus.catalog.at_time(unique, now + timedelta(minutes=1)) == {0: 2}


def test_first_arrivals_are_found_for_several_positions_in_one_bucket(bus: Bus, unique: str) -> None:
    """One request covers two groups that lag in one bucket at different offsets."""
    bus.catalog.create(CategorySpec(unique, 2))
    since_ms = int(time.time() * 1000) - 1_000
    send(bus, unique, [(b"k", b"1"), (b"k", b"2"), (b"k", b"3")])
    full = bucket_of(b"k", 2)
    waiting = [Position(Bucket(unique, full), offset) for offset in (0, 2)]
    ended = [Position(Bucket(unique, full), 3), Position(Bucket(unique, 1 - full), 0)]
    found = bus.catalog.waiting_since([*waiting, *ended])

    assert found.keys() == set(waiting)
    assert all(since_ms <= arrived_ms <= since_ms + 30_000 for arrived_ms in found.values())


def test_the_end_offset_excludes_an_open_transaction(bus: Bus, unique: str) -> None:
    """The end does not wait for an open transaction, and includes its messages after the decision."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"0"), (b"k", b"1")])
    reader = joined(bus, unique)
    writer = bus.transactional_writer(unique, reader, 60, [unique])
    writer.send(unique, [Outgoing(b"k", b"2")])
    writer.flush()
    undecided = bus.catalog.stable_ends(unique)
    writer.commit([])
    writer.close()
    reader.close()

    assert undecided == {0: 2}
    assert settled_end(bus, unique) > 2


def test_an_old_open_transaction_is_found(bus: Bus, unique: str) -> None:
    """The bus reports its bucket, first offset and arrival, where readers of committed data wait. A young transaction is not reported."""
    bus.catalog.create(CategorySpec(unique, 1))
    before_ms = int(time.time() * 1000) - 1_000
    send(bus, unique, [(b"k", b"0"), (b"k", b"1")])
    writer = bus.transactional_writer(unique, None, 60, [unique])
    writer.send(unique, [Outgoing(b"k", b"2")])
    writer.flush()
    young = old_transactions(bus, [unique], before_ms)
    [found] = old_transactions(bus, [unique], before_ms + 120_000)
    writer.abort()
    writer.close()
    settled_end(bus, unique)

    assert young == []
    assert (found.bucket, found.offset) == (Bucket(unique, 0), 2)
    assert before_ms <= found.since_ms <= before_ms + 60_000
    assert old_transactions(bus, [unique], before_ms + 120_000) == []


def test_the_ends_of_several_buckets_are_found_in_one_request(bus: Bus, unique: str) -> None:
    """They may belong to several categories; the ends include an open transaction, since it may still commit."""
    first, second = f"{unique}.1", f"{unique}.2"
    for name in (first, second):
        bus.catalog.create(CategorySpec(name, 2))
    send(bus, first, [(b"k", b"0"), (b"k", b"1")])
    reader = joined(bus, first)
    writer = bus.transactional_writer(unique, reader, 60, [unique])
    writer.send(second, [Outgoing(b"k", b"2")])
    writer.flush()
    asked = [Bucket(first, 0), Bucket(first, 1), Bucket(second, 1)]
    found = {name: bus.catalog.ends(name) for name in (first, second)}
    ends = dict(bus.catalog.ends_of(asked))
    writer.abort()
    writer.close()
    reader.close()

    assert ends == {bucket: found[bucket.category][bucket.number] for bucket in asked}
    assert sum(found[first].values()) == 2
    assert bus.catalog.ends_of([]) == {}
    with pytest.raises(BusError):
        bus.catalog.ends_of([Bucket(f"{unique}.missing", 0)])


def test_an_offset_range_is_read_to_its_end_and_no_further(bus: Bus, unique: str) -> None:
    """The range may end with an aborted transaction, with or without later events."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"%d" % n) for n in range(10)])
    reader = joined(bus, unique)
    writer = bus.transactional_writer(unique, reader, 60, [unique])
    writer.send(unique, [Outgoing(b"k", b"dropped")] * 3)
    writer.flush()
    writer.abort()
    writer.close()
    reader.close()
    bucket, end = Bucket(unique, 0), settled_end(bus, unique)
    at_the_end = [values_in(bus, OffsetRange(bucket, start, end)) for start in (0, 4, 10)]
    send(bus, unique, [(b"k", b"later")] * 10)

    assert at_the_end == [[b"%d" % n for n in range(start, 10)] for start in (0, 4, 10)]
    assert values_in(bus, OffsetRange(bucket, 4, end)) == at_the_end[1]
    assert values_in(bus, OffsetRange(bucket, 3, 7)) == [b"3", b"4", b"5", b"6"]


def settled_end(bus: Bus, category: str) -> int:
    """Return a bucket's end after its brokers have written the transaction markers, which takes a moment."""
    deadline = time.monotonic() + LIMIT_S
    while bus.catalog.stable_ends(category) != bus.catalog.ends(category):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return bus.catalog.ends(category)[0]


def values_in(bus: Bus, stretch: OffsetRange) -> list[bytes | None]:
    batches = read_offset_range(bus, stretch, silence_limit_s=LIMIT_S)
    return [message.value() for batch in batches for message in batch.messages]


def test_errors_name_the_missing_category(bus: Bus, unique: str) -> None:
    """Every request for a missing category names it."""
    with pytest.raises(MissingCategory, match=re.escape(unique)):
        bus.catalog.describe(unique)
    with pytest.raises(MissingCategory, match=re.escape(unique)):
        bus.catalog.stable_ends(unique)
    with pytest.raises(MissingCategory, match=re.escape(unique)):
        bus.catalog.at_time(unique, datetime.now(tz=UTC))
    with pytest.raises(MissingCategory, match=re.escape(unique)):
        bus.catalog.positions("group-" + unique, unique)
    with pytest.raises(MissingCategory, match=re.escape(unique)):
        bus.catalog.committed("group-" + unique, unique)
    with pytest.raises(MissingCategory, match=re.escape(unique)):
        bus.catalog.delete(unique)
