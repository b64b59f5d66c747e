"""Reading Kafka as columns: equal to reading it message by message, through seeks, pauses and rebalances."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from support import plain

from penstock.transport import Bucket, CategorySpec, MessageColumns, Outgoing, Position, RawBatch, Reader
from penstock.transport.bus import Scanner
from penstock.transport.kafka import KafkaBus, column_queue
from penstock.transport.kafka.client_handle import VARIABLE, load_plugin
from penstock.transport.kafka.column_queue import load_library
from penstock.transport.message_columns import ColumnBatch

LIMIT_S = 90.0
BUCKETS = 3
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class Read(NamedTuple):
    """A message as its reader sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: tuple[int, int]


@pytest.fixture
def category(kafka_bus: KafkaBus, unique: str) -> str:
    """An empty category."""
    kafka_bus.catalog.create(CategorySpec(unique, BUCKETS))
    return unique


def read_of(message: Any) -> Read:
    return Read(
        message.offset(), message.key(), message.value(), list(message.headers() or ()), tuple(message.timestamp())
    )


def by_bucket(kafka: str, category: str) -> dict[int, list[Read]]:
    """Read a category with a plain consumer."""
    found: dict[int, list[Read]] = {number: [] for number in range(BUCKETS)}
    for message in plain.read(kafka, category):
        found[message.partition() or 0].append(read_of(message))
    return found


def send_one_each(kafka_bus: KafkaBus, category: str) -> None:
    """Write one message to each bucket: later messages of the buckets are read as columns."""
    with closing(kafka_bus.writer()) as writer:
        writer.send(category, [Outgoing(b"first", b"{}", number) for number in range(BUCKETS)])
        writer.flush()


class Collected:
    """The messages and ends that a reader has returned."""

    def __init__(self, reader: Scanner) -> None:
        self.reader = reader
        self.messages: dict[int, list[Read]] = {number: [] for number in range(BUCKETS)}
        self.ended: dict[int, int] = {}
        self.in_columns = 0

    def poll(self) -> None:
        """Poll once."""
        polled = self.reader.poll(0.1)
        for batch in polled.batches:
            self.in_columns += len(batch.messages) if isinstance(batch, ColumnBatch) else 0
            self.messages[batch.bucket.number] += map(read_of, batch.messages)
            self.ended.pop(batch.bucket.number, None)
        self.ended |= {bucket.number: offset for bucket, offset in polled.ended}

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(map(len, self.messages.values()))

    def until(self, count: int) -> Collected:
        """Poll until a number of messages has arrived."""
        deadline = time.monotonic() + LIMIT_S
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count} messages arrived"
            self.poll()
        return self


def test_the_libraries_are_compiled() -> None:
    """These tests would otherwise test nothing."""
    assert load_library() is not None
    assert load_plugin() is not None


@pytest.fixture(params=["tested version", "other version"])
def _each_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read with a version of the client that keeps values in records, and as with an unknown one."""
    if request.param == "other version":
        monkeypatch.setattr(column_queue, "VALUES_IN_RECORDS", frozenset[str]())
    load_library.cache_clear()
    yield
    load_library.cache_clear()


def odd_messages(count: int) -> Iterator[dict[str, Any]]:
    """Yield messages with all kinds of parts."""
    dice = random.Random(5)
    # The encoded size of a value takes one, two or three bytes.
    sizes = [1, 63, 64, 65, 8_191, 8_192]
    values = [None, b"", b"\n", b'{"a": 1}', b"\0\xff", *(fill * size for size in sizes for fill in (b"x", b"\0"))]
    headers = [None, [("a", b"1")], [("a", b""), ("a", None), ("\u00e9", b"\xff\0")], [("many", b"")] * 64]
    for number in range(count):
        yield {
            "partition": dice.randrange(BUCKETS),
            "key": dice.choice([None, b"", b"k%d" % number]),
            "value": dice.choice(values),
            "headers": dice.choice(headers),
            "timestamp": 1_700_000_000_000 + number,
        }


@pytest.mark.usefixtures("_each_version")
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_columns_equal_messages(kafka: str, kafka_bus: KafkaBus, category: str, compression: str) -> None:
    """Keys, values, headers, timestamps and offsets are equal, with nulls, newlines and empty parts. Slices are equal, too."""
    send_one_each(kafka_bus, category)
    producer = Producer({"bootstrap.servers": kafka, "compression.type": compression})
    with closing(kafka_bus.scanner([Position(Bucket(category, number), 0) for number in range(BUCKETS)])) as scanner:
        found = Collected(scanner).until(BUCKETS)
        for message in odd_messages(3_000):
            producer.produce(category, **message)
        producer.flush()
        found.until(BUCKETS + 3_000)

    expected = by_bucket(kafka, category)
    assert found.messages == expected
    assert found.in_columns > 2_000


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_the_client_keeps_values_in_records(
    kafka: str, kafka_bus: KafkaBus, category: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The installed version, which VALUES_IN_RECORDS names, is not asked about a message without headers."""
    library = load_library()
    assert library is not None
    asked = 0
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    headers_of = kind(library.client.headers)

    def count(message: int, headers: int) -> int:
        nonlocal asked
        asked += 1
        found: int = headers_of(message, headers)
        return found

    counted = kind(count)
    monkeypatch.setattr(library.client, "headers", ctypes.cast(counted, ctypes.c_void_p).value)
    send_one_each(kafka_bus, category)
    producer = Producer({"bootstrap.servers": kafka, "compression.type": compression})
    with closing(kafka_bus.scanner([Position(Bucket(category, number), 0) for number in range(BUCKETS)])) as scanner:
        found = Collected(scanner).until(BUCKETS)
        for message in odd_messages(1_000):
            producer.produce(category, **message | {"headers": None, "value": message["value"] or b"{}"})
        producer.flush()
        found.until(BUCKETS + 1_000)

    assert found.in_columns > 500
    assert asked == 0


def test_without_calls_of_the_library_messages_come_one_by_one(
    kafka_bus: KafkaBus, category: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment variable turns columns off."""
    monkeypatch.setenv(VARIABLE, "0")
    send_one_each(kafka_bus, category)
    with closing(kafka_bus.scanner([Position(Bucket(category, number), 0) for number in range(BUCKETS)])) as scanner:
        found = Collected(scanner).until(BUCKETS)
        send_one_each(kafka_bus, category)
        found.until(2 * BUCKETS)

    assert found.in_columns == 0


def test_a_batch_in_columns_is_a_sequence_of_messages(kafka: str, kafka_bus: KafkaBus, category: str) -> None:
    """Single messages, parts of parts and totals equal the messages."""
    send_one_each(kafka_bus, category)
    producer = Producer({"bootstrap.servers": kafka})
    with closing(kafka_bus.scanner([Position(Bucket(category, number), 0) for number in range(BUCKETS)])) as scanner:
        Collected(scanner).until(BUCKETS)
        for message in odd_messages(300):
            producer.produce(category, **message | {"partition": 1})
        producer.flush()
        batch: RawBatch | None = None
        deadline = time.monotonic() + LIMIT_S
        while not (isinstance(batch, ColumnBatch) and len(batch.messages) > 10) and time.monotonic() < deadline:
            batch = next(iter(scanner.poll(0.1).batches), None)
    assert isinstance(batch, ColumnBatch)
    assert isinstance(batch.messages, MessageColumns)
    messages = [read_of(message) for message in batch.messages]

    assert [read_of(batch.messages[at]) for at in range(len(messages))] == messages
    inner = batch.part(1, len(messages) - 1)
    assert [read_of(message) for message in inner.part(1, 5).messages] == messages[2:6]
    assert inner.offsets() == [message.offset for message in messages[1:-1]]
    assert inner.arrivals_ms().tolist() == [message.timestamp[1] for message in messages[1:-1]]
    assert inner.size_bytes() == sum(len(message.value or b"") for message in messages[1:-1])
    assert inner.next_offset == messages[-2].offset + 1


def test_a_smaller_limit_applies_to_messages_that_were_copied_ahead(kafka_bus: KafkaBus, category: str) -> None:
    """They are returned in parts, in their order."""
    send_one_each(kafka_bus, category)
    with (
        closing(kafka_bus.writer()) as writer,
        closing(kafka_bus.scanner([Position(Bucket(category, number), 0) for number in range(BUCKETS)])) as scanner,
    ):
        found = Collected(scanner).until(BUCKETS)
        writer.send(category, [Outgoing(b"k", b"%d" % at, at % BUCKETS) for at in range(3_000)])
        writer.flush()
        for number, limit in enumerate([500, 500, *[70] * 200]):
            scanner.poll_limit = limit
            before = found.count
            found.poll()
            assert found.count - before <= limit, number
            if found.count == BUCKETS + 3_000:
                break

    for messages in found.messages.values():
        assert [message.offset for message in messages] == list(range(1_001))
    assert found.in_columns > 2_000


def test_ends_are_reported_after_each_arrival(kafka_bus: KafkaBus, category: str) -> None:
    """A bucket's end is reported again after further messages, also where they are read as columns."""
    with (
        closing(kafka_bus.writer()) as writer,
        closing(kafka_bus.scanner([Position(Bucket(category, number), 0) for number in range(BUCKETS)])) as scanner,
    ):
        found = Collected(scanner)
        for sent in range(1, 4):
            writer.send(category, [Outgoing(b"k", b"{}", number) for number in range(BUCKETS)])
            writer.flush()
            deadline = time.monotonic() + LIMIT_S
            while found.ended != dict.fromkeys(range(BUCKETS), sent):
                assert time.monotonic() < deadline, f"after {sent}: {found.ended}"
                found.poll()

    assert found.in_columns >= BUCKETS


class Member:
    """A member of the group, which starts its buckets at the end of what it or another one has read."""

    def __init__(self, kafka_bus: KafkaBus, category: str, progress: dict[Bucket, int], seen: list[Read]) -> None:
        self.owned: set[Bucket] = set()
        self._progress = progress
        self._seen = seen
        self._new: list[Bucket] = []
        self.in_columns = 0
        self.reader: Reader = kafka_bus.reader(f"group-{category}", [category], self, None)

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        self._new += buckets
        self.owned.update(buckets)

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        self.owned.difference_update(buckets)
        self._new = [bucket for bucket in self._new if bucket not in buckets]

    lost = revoked

    def disturb(self, dice: random.Random) -> None:
        """Pause, resume or rewind; limit the next polls."""
        self.reader.poll_limit = dice.choice([10, 100, 10_000])
        match dice.randrange(6):
            case 0:
                self.reader.pause(list(self.owned))
            case 1 | 2:
                self.reader.resume(list(self.owned))
            case 3:
                self._rewind(dice.randrange(300))

    def _rewind(self, by: int) -> None:
        for bucket in self.owned:
            self._progress[bucket] = max(self._progress[bucket] - by, 0)
        self.reader.start([Position(bucket, self._progress[bucket]) for bucket in self.owned])

    def poll(self) -> None:
        """Poll once; every message must be the next one of its bucket."""
        polled = self.reader.poll(0.05)
        for batch in polled.batches:
            assert batch.bucket in self.owned
            self.in_columns += len(batch.messages) if isinstance(batch, ColumnBatch) else 0
            for message in map(read_of, batch.messages):
                assert message.offset == self._progress[batch.bucket]
                self._progress[batch.bucket] += 1
                self._seen.append(message)
        if self._new:
            new, self._new = self._new, []
            self.reader.start([Position(bucket, self._progress[bucket]) for bucket in new])


def test_every_message_is_the_next_one_through_seeks_pauses_and_rebalances(kafka_bus: KafkaBus, category: str) -> None:
    """Members come and go, pause, resume and rewind their buckets, and change the size of polls, while messages are written."""
    dice = random.Random(11)
    progress = {Bucket(category, number): 0 for number in range(BUCKETS)}
    seen: list[Read] = []
    members = [Member(kafka_bus, category, progress, seen)]
    written, in_columns = 0, 0
    with closing(kafka_bus.writer()) as writer:
        for step in range(120):
            count = dice.randrange(400)
            writer.send(category, [Outgoing(b"k", b"%d" % at, at % BUCKETS) for at in range(written, written + count)])
            written += count
            if step in {20, 40}:
                members.append(Member(kafka_bus, category, progress, seen))
            if step in {80, 100}:
                left = members.pop(dice.randrange(len(members)))
                in_columns += left.in_columns
                left.reader.leave()
                left.reader.close()
            dice.choice(members).disturb(dice)
            for each in members:
                each.poll()
        writer.flush()
        ends = kafka_bus.catalog.ends(category)
        deadline = time.monotonic() + 2 * LIMIT_S
        for member in members:
            member.reader.resume(list(member.owned))
        while any(progress[Bucket(category, number)] < end for number, end in ends.items()):
            assert time.monotonic() < deadline, f"{progress} of {ends}"
            for member in members:
                member.poll()
    in_columns += sum(member.in_columns for member in members)
    for member in members:
        member.reader.close()

    assert sum(ends.values()) == written
    assert {int(message.value or b"") for message in seen} == set(range(written))
    assert in_columns > 1_000


@pytest.mark.parametrize("end", ["del scanner", "sys.exit(0)", "raise SystemExit(0)"])
def test_a_reader_that_nobody_closes_holds_no_process(kafka: str, kafka_bus: KafkaBus, category: str, end: str) -> None:
    """Python releases it when it is no longer used, and at the end of its process."""
    send_one_each(kafka_bus, category)
    program = f"""
import sys
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.messages import Bucket, Position

def read():
    scanner = KafkaBus(KafkaSettings({kafka!r})).scanner([Position(Bucket({category!r}, 0), 0)])
    while not scanner.poll(0.1).batches:
        pass
    {end}

read()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_S)


def test_a_member_closes_while_its_next_messages_are_being_copied(
    kafka: str, kafka_bus: KafkaBus, category: str
) -> None:
    """The end of a membership forgets them once. Copying them in a thread that was joined already would hang or crash the process."""
    send_one_each(kafka_bus, category)
    program = f"""
from penstock.transport.kafka import KafkaBus, KafkaSettings
from penstock.transport.messages import Outgoing, Position

class Owner:
    buckets = ()
    def assigned(self, buckets):
        self.buckets = [*self.buckets, *buckets]
    def revoked(self, buckets):
        pass
    lost = revoked

bus = KafkaBus(KafkaSettings({kafka!r}))
writer = bus.writer()
for number in range(10):
    owner, copied = Owner(), 0
    reader = bus.reader("{category}.%d" % number, [{category!r}], owner)
    reader.poll_limit = 50
    while len(owner.buckets) < {BUCKETS}:
        reader.poll(0.1)
    ends = bus.catalog.ends({category!r})
    reader.start([Position(bucket, ends[bucket.number] - 1) for bucket in owner.buckets])
    while copied < 500:
        writer.send({category!r}, [Outgoing(b"key", b"value", number % {BUCKETS}) for number in range(100)])
        writer.flush()
        copied += sum(len(batch.messages) for batch in reader.poll(0.1).batches if hasattr(batch, "next_offset"))
    reader.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=4 * LIMIT_S)
