"""What every bus promises: the one in memory and Kafka answer alike."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest
from confluent_kafka import Consumer, Producer

from penstock.processors.declare.partitioner import bucket_of
from penstock.transport.bus import Bus, Reader, Scanner
from penstock.transport.category_spec import CategorySpec, Topic
from penstock.transport.errors import (
    Aborted,
    BusError,
    CategoryExists,
    Fenced,
    GroupInUse,
    MessageRefused,
    MissingCategory,
)
from penstock.transport.kafka import KafkaBus
from penstock.transport.kafka.open_transactions import OpenTransactions
from penstock.transport.kafka.transactions import KafkaTransactionalWriter
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Bucket, Outgoing, Position, RawBatch
from penstock.transport.offset_range import OffsetRange, read_offset_range

LIMIT_S = 30.0


class Owner:
    """Takes what it is given, and remembers it."""

    def __init__(self) -> None:
        self.owned: set[Bucket] = set()
        self.is_told = False

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        self.owned.update(buckets)
        self.is_told = True

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        self.owned.difference_update(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        self.owned.difference_update(buckets)


@pytest.fixture(params=["memory", "kafka"])
def bus(request: pytest.FixtureRequest) -> Bus:
    """Each implementation in turn."""
    if request.param == "memory":
        return MemoryBus()
    bus: KafkaBus = request.getfixturevalue("kafka_bus")
    return bus


def send(bus: Bus, category: str, messages: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    writer = bus.writer()
    writer.send(category, [Outgoing(*message) for message in messages])
    writer.flush()
    writer.close()


def read(reader: Scanner, messages: int) -> dict[Bucket, list[tuple[int, bytes | None, bytes | None]]]:
    """Read that many messages: offset, key and value, by bucket."""
    found: dict[Bucket, list[tuple[int, bytes | None, bytes | None]]] = {}
    deadline = time.monotonic() + LIMIT_S
    while sum(map(len, found.values())) < messages:
        assert time.monotonic() < deadline, f"only {found} arrived"
        for batch in reader.poll(0.1).batches:
            found.setdefault(batch.bucket, []).extend((m.offset(), m.key(), m.value()) for m in batch.messages)
    return found


def joined(bus: Bus, category: str, identity: str | None = None) -> Reader:
    """Join the category's group, and read all of its buckets from where the group is."""
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
    """Read what counts, up to the ends as they are now."""
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


def test_a_category_that_is_created_again_is_another_topic(bus: Bus, unique: str) -> None:
    """Its id stays while it lives, whoever asks and whatever is written, and is another after it was deleted; its size is told too."""
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


def test_deletions_are_kept_for_as_long_as_was_asked_for(bus: Bus, unique: str) -> None:
    """In a compacted category."""
    spec = CategorySpec(unique, 1, compacted=True, delete_retention=timedelta(days=30))
    bus.catalog.create(spec)

    assert bus.catalog.describe(unique).spec == spec


def test_a_category_is_as_it_was_created(bus: Bus, unique: str) -> None:
    """Buckets and retention are what was asked for, and it begins empty."""
    spec = CategorySpec(unique, 3, timedelta(days=2))
    bus.catalog.create(spec)

    state = bus.catalog.describe(unique)

    assert state.spec == spec
    assert state.starts == state.ends == {0: 0, 1: 0, 2: 0}
    assert unique in bus.catalog.names()


def test_a_compacted_category_is_told_from_one_that_keeps_all(bus: Bus, unique: str) -> None:
    """What it keeps decides whether a state may be built from it again."""
    bus.catalog.create(CategorySpec(unique, 1, compacted=True))

    assert bus.catalog.describe(unique).spec.compacted


def test_a_name_is_taken_once(bus: Bus, unique: str) -> None:
    """Creating what exists is refused, and leaves it as it is."""
    bus.catalog.create(CategorySpec(unique, 2))

    with pytest.raises(CategoryExists, match=r"test_a_name"):
        bus.catalog.create(CategorySpec(unique, 5))

    assert bus.catalog.describe(unique).spec.buckets == 2


def test_a_deleted_category_is_gone(bus: Bus, unique: str) -> None:
    """After deletion it is neither listed nor described."""
    bus.catalog.create(CategorySpec(unique, 1))
    bus.catalog.delete(unique)

    assert unique not in bus.catalog.names()
    with pytest.raises(MissingCategory):
        bus.catalog.describe(unique)


def test_a_category_grows_and_never_shrinks(bus: Bus, unique: str) -> None:
    """More buckets can be had; fewer are refused."""
    bus.catalog.create(CategorySpec(unique, 2))
    bus.catalog.resize(unique, 4)

    with pytest.raises(BusError):
        bus.catalog.resize(unique, 3)

    assert bus.catalog.describe(unique).spec.buckets == 4


def test_a_key_lives_in_the_bucket_that_the_partitioner_says(bus: Bus, unique: str) -> None:
    """Whoever writes, a key's events are in one bucket, in the order in which they were sent."""
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
    """What has no key or no value is kept as that."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(None, b"v"), (b"k", None)])

    found = scan(bus, unique, 2)

    assert found == {Bucket(unique, 0): [(0, None, b"v"), (1, b"k", None)]}


def test_the_bus_notes_when_messages_arrive(bus: Bus, unique: str) -> None:
    """Of a category that we have created, whatever the writers' clocks say."""
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


def test_the_largest_message_is_taken_and_no_larger_one(bus: Bus, unique: str) -> None:
    """What a category says that it takes, it takes; of noise, which does not compress."""
    bus.catalog.create(CategorySpec(unique, 1))
    largest = bus.catalog.message_limit(unique)
    send(bus, unique, [(b"key", os.urandom(largest - 3))])
    with pytest.raises(MessageRefused):
        send(bus, unique, [(b"key", os.urandom(largest + 1_000))])

    [message] = scan(bus, unique, 1)[Bucket(unique, 0)]
    assert len(message[2] or b"") == largest - 3


def test_a_group_goes_on_where_it_committed(bus: Bus, unique: str) -> None:
    """A position that a member commits is there for the next one, and nothing before it is read again."""
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


def test_where_a_group_goes_on_is_set_while_it_has_no_members(bus: Bus, unique: str) -> None:
    """By anybody, also for a group that never was; a member's own positions are not touched."""
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


def test_a_group_without_members_is_forgotten(bus: Bus, unique: str) -> None:
    """With its positions, so that it begins anew; one that has members is not; one that is not there need not be."""
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


def test_a_bucket_that_is_paused_gives_nothing_until_it_goes_on(bus: Bus, unique: str) -> None:
    """Where it was; the other goes on meanwhile. Started anew it is not paused any more."""
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


def test_a_poll_gives_no_more_than_is_asked_for(bus: Bus, unique: str) -> None:
    """From one poll to the next; what is left comes with later ones, in order."""
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


def test_a_group_that_never_committed_begins_at_the_start(bus: Bus, unique: str) -> None:
    """There is no position, and reading from none begins with the first event that is kept."""
    bus.catalog.create(CategorySpec(unique, 2))
    send(bus, unique, [(b"k", b"0")])
    assert bus.catalog.committed("group-" + unique, unique) == {}
    reader = joined(bus, unique)
    found = read(reader, 1)
    reader.close()

    assert found == {Bucket(unique, bucket_of(b"k", 2)): [(0, b"k", b"0")]}


def test_reading_can_begin_again_anywhere(bus: Bus, unique: str) -> None:
    """A bucket that is being read is read from another offset on, as often as is asked for."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"%d" % n) for n in range(10)])
    reader = joined(bus, unique)
    found = []
    for offset in (0, 4, 9, 0):
        reader.start([Position(Bucket(unique, 0), offset)])
        found.append([at for at, _, _ in read(reader, 10 - offset)[Bucket(unique, 0)]])
    reader.close()

    assert found == [list(range(offset, 10)) for offset in (0, 4, 9, 0)]


def test_a_bucket_is_read_from_where_it_was_told_and_nowhere_else(bus: Bus, unique: str) -> None:
    """Also right after joining, when the client may still be asking where the buckets begin."""
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
    """Before the commit neither its messages nor its positions are there; after it both are."""
    bus.catalog.create(CategorySpec(unique, 1))
    bus.catalog.create(CategorySpec(unique + ".out", 2))
    send(bus, unique, [(b"k", b"0"), (b"k", b"1")])
    reader = joined(bus, unique)
    read(reader, 2)
    writer = bus.transactional_writer(unique, reader, 10, [unique])
    writer.send(unique + ".out", [Outgoing(b"k", b"v", 1)])
    writer.flush()

    assert scan_all(bus, unique + ".out") == {}
    assert bus.catalog.committed("group-" + unique, unique) == {}

    writer.commit([Position(Bucket(unique, 0), 2)])

    assert [value for _, _, value in scan_all(bus, unique + ".out")[Bucket(unique + ".out", 1)]] == [b"v"]
    assert bus.catalog.committed("group-" + unique, unique) == {0: 2}
    writer.close()
    reader.close()


def checkpoint_ids(bus: Bus, group: str, category: str) -> dict[int, int]:
    """Return which checkpoints committed a group's positions, by bucket; those that have an id."""
    return {at.bucket.number: at.checkpoint_id for at in bus.catalog.positions(group, category) if at.checkpoint_id}


def test_positions_tell_which_checkpoint_committed_them(bus: Bus, unique: str) -> None:
    """In a transaction as outside of one, by a member as by nobody; those that name none, or are set anew without, tell nothing."""
    group = "group-" + unique
    bus.catalog.create(CategorySpec(unique, 3))
    reader = joined(bus, unique)
    writer = bus.transactional_writer(unique, reader, 10, [unique])
    writer.send(unique, [Outgoing(b"k", b"0", 0)])
    writer.commit([Position(Bucket(unique, 0), 0, 7)])
    reader.commit([Position(Bucket(unique, 1), 0, 2**62), Position(Bucket(unique, 2), 0)])
    told = checkpoint_ids(bus, group, unique)
    writer.close()
    reader.leave()
    reader.close()
    bus.catalog.set_committed(group, [Position(Bucket(unique, 0), 0, 8), Position(Bucket(unique, 1), 0)])

    assert told == {0: 7, 1: 2**62}
    assert checkpoint_ids(bus, group, unique) == {0: 8}
    assert bus.catalog.committed(group, unique) == {0: 0, 1: 0, 2: 0}


def test_what_is_aborted_never_was(bus: Bus, unique: str) -> None:
    """Its messages are not seen, and the next transaction is not concerned."""
    bus.catalog.create(CategorySpec(unique, 1))
    reader = joined(bus, unique)
    writer = bus.transactional_writer(unique, reader, 10, [unique])
    writer.send(unique, [Outgoing(b"k", b"dropped")])
    writer.abort()
    writer.send(unique, [Outgoing(b"k", b"kept")])
    writer.commit([])
    writer.close()
    reader.close()

    assert [value for _, _, value in scan_all(bus, unique)[Bucket(unique, 0)]] == [b"kept"]


def test_transactions_without_positions_need_no_group(bus: Bus, unique: str) -> None:
    """A later writer of the identity ends what the earlier one left open, which cannot commit any more."""
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


def test_a_later_writer_of_an_identity_fences_the_earlier(bus: Bus, unique: str) -> None:
    """What the earlier one left open is ended at once, and it cannot commit any more."""
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


def test_a_fenced_writer_is_told_so_in_our_words(bus: Bus, unique: str) -> None:
    """Also where it learns of it while it sends, in the middle of the client's own callbacks."""
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


def test_one_that_is_no_member_commits_nothing(bus: Bus, unique: str) -> None:
    """A transaction with the positions of a member that left is taken back as a whole."""
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


def test_kafka_takes_no_positions_without_a_generation(kafka_bus: KafkaBus, unique: str) -> None:
    """From one that was dismissed and does not know it yet: of a group without members, Kafka itself would take them from anybody."""
    kafka_bus.catalog.create(CategorySpec(unique, 1))
    dismissed = Consumer(kafka_bus.settings.for_reader("group-" + unique, "one", co_partitioned=False))
    writer = KafkaTransactionalWriter(
        kafka_bus.settings,
        unique,
        dismissed.consumer_group_metadata,
        10,
        OpenTransactions(kafka_bus.settings, kafka_bus.catalog, [unique], None),
    )
    writer.enlist()
    writer.send(unique, [Outgoing(b"k", b"dropped")])

    with pytest.raises(Aborted, match="no member of its group"):
        writer.commit([Position(Bucket(unique, 0), 1)])

    assert kafka_bus.catalog.committed("group-" + unique, unique) == {}
    writer.close()
    dismissed.close()


def test_a_member_that_leaves_makes_room_at_once(bus: Bus, unique: str) -> None:
    """Also one with an identity: who joins then gets the buckets without waiting for the session to end."""
    bus.catalog.create(CategorySpec(unique, 2))
    first = joined(bus, unique, "one")
    first.leave()
    first.close()

    joined(bus, unique, "two").close()


def test_members_share_the_buckets_and_none_is_read_twice(bus: Bus, unique: str) -> None:
    """When a member joins, it takes over where the others saved; when it leaves, they take over from it."""
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
def test_a_member_for_whom_there_is_no_bucket_is_told(bus: Bus, unique: str, inputs: int) -> None:
    """By an assignment of nothing; before it, it is not known who has what."""
    names = [f"{unique}.{number}" for number in range(inputs)]
    for name in names:
        bus.catalog.create(CategorySpec(name, 1))
    owners = [Owner(), Owner(), Owner()]
    readers = [bus.reader("group-" + unique, names, owner) for owner in owners]
    knew = [owner.is_told for owner in owners]
    deadline = time.monotonic() + LIMIT_S
    while not all(owner.is_told for owner in owners) or sum(len(owner.owned) for owner in owners) < inputs:
        assert time.monotonic() < deadline
        for reader in readers:
            reader.poll(0.05)
    for reader in readers:
        reader.close()

    assert knew == [False] * 3


def test_co_partitioned_categories_come_together(bus: Bus, unique: str) -> None:
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


def test_the_end_of_a_bucket_is_told(bus: Bus, unique: str) -> None:
    """A reader says which buckets it has read to the end, empty ones included."""
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
    """From a time before, all; from a time after, none."""
    bus.catalog.create(CategorySpec(unique, 1))
    now = datetime.now(tz=timezone.utc)
    send(bus, unique, [(b"k", b"0"), (b"k", b"1")])

    assert bus.catalog.at_time(unique, now - timedelta(minutes=1)) == {0: 0}
    assert bus.catalog.at_time(unique, now + timedelta(minutes=1)) == {0: 2}


def test_when_the_first_event_from_a_position_arrived_is_found_for_several_in_one_bucket(bus: Bus, unique: str) -> None:
    """Two groups that lag in one bucket at different offsets are asked about at once."""
    bus.catalog.create(CategorySpec(unique, 2))
    since_ms = int(time.time() * 1000) - 1_000
    send(bus, unique, [(b"k", b"1"), (b"k", b"2"), (b"k", b"3")])
    full = bucket_of(b"k", 2)
    waiting = [Position(Bucket(unique, full), offset) for offset in (0, 2)]
    ended = [Position(Bucket(unique, full), 3), Position(Bucket(unique, 1 - full), 0)]
    found = bus.catalog.waiting_since([*waiting, *ended])

    assert found.keys() == set(waiting)
    assert all(since_ms <= arrived_ms <= since_ms + LIMIT_S * 1000 for arrived_ms in found.values())


def test_an_open_transaction_lies_behind_the_end_that_readers_find(bus: Bus, unique: str) -> None:
    """What is sent and not decided is no event yet, and the end does not wait for it; decided, it is before the end."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"0"), (b"k", b"1")])
    reader = joined(bus, unique)
    writer = bus.transactional_writer(unique, reader, 10, [unique])
    writer.send(unique, [Outgoing(b"k", b"2")])
    writer.flush()
    undecided = bus.catalog.stable_ends(unique)
    writer.commit([])
    writer.close()
    reader.close()

    assert undecided == {0: 2}
    assert settled_end(bus, unique) > 2


def test_the_ends_of_some_buckets_are_asked_for_at_once(bus: Bus, unique: str) -> None:
    """Of several categories; what an open transaction has written lies before them, as it may count yet."""
    first, second = f"{unique}.1", f"{unique}.2"
    for name in (first, second):
        bus.catalog.create(CategorySpec(name, 2))
    send(bus, first, [(b"k", b"0"), (b"k", b"1")])
    reader = joined(bus, first)
    writer = bus.transactional_writer(unique, reader, 10, [unique])
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


def test_a_stretch_is_read_to_its_end_and_no_further(bus: Bus, unique: str) -> None:
    """Also where nothing but an aborted transaction lies before its end, where later events follow, and where none do."""
    bus.catalog.create(CategorySpec(unique, 1))
    send(bus, unique, [(b"k", b"%d" % n) for n in range(10)])
    reader = joined(bus, unique)
    writer = bus.transactional_writer(unique, reader, 10, [unique])
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
    """Return where a bucket ends when its brokers have written down how its transactions ended, which they do soon after."""
    deadline = time.monotonic() + LIMIT_S
    while bus.catalog.stable_ends(category) != bus.catalog.ends(category):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return bus.catalog.ends(category)[0]


def values_in(bus: Bus, stretch: OffsetRange) -> list[bytes | None]:
    return [value for batch in read_offset_range(bus, stretch, silence_limit_s=LIMIT_S) for value in batch.values()]


def test_what_is_missing_is_named(bus: Bus, unique: str) -> None:
    """Every question about a category that is not there says which."""
    with pytest.raises(MissingCategory, match=r"test_what_is_missing"):
        bus.catalog.describe(unique)
    with pytest.raises(MissingCategory, match=r"test_what_is_missing"):
        bus.catalog.stable_ends(unique)
    with pytest.raises(MissingCategory, match=r"test_what_is_missing"):
        bus.catalog.at_time(unique, datetime.now(tz=timezone.utc))
    with pytest.raises(MissingCategory, match=r"test_what_is_missing"):
        bus.catalog.delete(unique)
