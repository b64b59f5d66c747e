"""Keys and partitioners: the bytes of message keys, their buckets, and the explanation of a wrong bucket."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.ops.kernel import Crash, Driver
from penstock.processors import DeclarationError
from penstock.processors.declare import InvalidKey, MessageKeys, bucket_of, buckets_of, plan_of
from penstock.processors.declare.partitioner import _FEW, _compiled_hashes
from penstock.processors.shard import EventRejected, Step
from penstock.transport import Bucket, Outgoing, outgoing
from penstock.transport.messages import BY_KEY

SIZED_KEYS = st.binary(max_size=12) | st.binary(max_size=300)
KEYS = [b"a", b"kafka", b"EWR-IAH", "Zürich".encode(), *(b"key-%d" % n for n in range(200)), b"k" * 300]


class Ride(ps.Record, frozen=True):
    """A ride of a user in a car."""

    user: str
    car: int
    at: ps.EventTime


class Total(ps.Record, frozen=True):
    """The number of rides of a key."""

    key: str
    at: ps.EventTime
    rides: int


class Row(ps.Record, frozen=True):
    """A row of a table by car."""

    car: int
    at: ps.EventTime
    name: str


class Named(ps.Record, frozen=True):
    """A ride with the name of its car."""

    car: int
    at: ps.EventTime
    name: str | None


def rides(**options: Any) -> ps.Category[Ride]:
    """Return a category of rides."""
    return ps.Category("rides", Ride, **{"key": "user", "event_time": "at", "buckets": 8, **options})


def last_byte(key: bytes, buckets: int) -> int:
    """A partitioner of a user."""
    return key[-1] % buckets


def counter(reads: ps.Category[Ride], writes: ps.Category[Total] | tuple[()] = ()) -> type[ps.Stateful]:
    """Return a processor that counts the rides of each key."""
    category = reads

    class Counting(ps.Stateful):
        reads, state = category, int

        def process(self, event: Ride, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
            count = (state or 0) + 1
            return count, [Total(context.key, event.at, count)] if plan_of(Counting).outputs else []

    Counting.writes = writes
    return Counting


def ride(user: str = "ann", car: int = 5, at: int = 1) -> Ride:
    """Return a ride."""
    return Ride(user, car, at)


def encoded(event: Ride) -> bytes:
    """Return a ride as another program writes it."""
    return json.dumps({"user": event.user, "car": event.car, "at": event.at}).encode()


def places(driver: Driver, category: str) -> set[tuple[bytes | None, int]]:
    """Return the message keys in a category, with their buckets."""
    return {
        (message.key(), number)
        for number, end in driver.bus.describe(category).ends.items()
        for message in driver.bus.slice(Bucket(category, number), 0, end)
    }


# Partitioners.


@pytest.mark.parametrize(
    ("partitioner", "name"),
    [
        (ps.Partitioner.MURMUR2, "murmur2_random"),
        (ps.Partitioner.MURMUR2, "murmur2"),
        (ps.Partitioner.CONSISTENT, "consistent_random"),
        (ps.Partitioner.CONSISTENT, "consistent"),
        (ps.Partitioner.FNV1A, "fnv1a_random"),
        (ps.Partitioner.FNV1A, "fnv1a"),
    ],
)
def test_each_partitioner_is_librdkafkas(partitioner: ps.Partitioner, name: str) -> None:
    """A real producer, with librdkafka's own test broker, puts every key into the same bucket."""
    found: dict[bytes | None, int | None] = {}

    def record(error: object, message: Message) -> None:
        assert error is None
        found[message.key()] = message.partition()

    producer = Producer(
        {"bootstrap.servers": "unused:1", "test.mock.num.brokers": 1, "partitioner": name, "log_level": 0}
    )
    for key in KEYS:
        producer.produce("rides", b"", key, on_delivery=record)
    assert producer.flush(30) == 0
    partitions = len(producer.list_topics("rides", 10).topics["rides"].partitions)

    assert partitions > 1
    assert found == dict(zip(KEYS, buckets_of(KEYS, partitions, partitioner), strict=True))


@pytest.mark.parametrize(
    ("partitioner", "key", "hashed"),
    [
        (ps.Partitioner.CONSISTENT, b"123456789", 0xCBF43926),
        (ps.Partitioner.CONSISTENT, b"", 0),
        (ps.Partitioner.FNV1A, b"", 0x100000000 - 0x811C9DC5),
        (ps.Partitioner.FNV1A, b"a", 0x100000000 - 0xE40C292C),
        (ps.Partitioner.FNV1A, b"foobar", 0x100000000 - 0xBF9CF968),
    ],
)
def test_hashes_are_the_published_ones(partitioner: ps.Partitioner, key: bytes, hashed: int) -> None:
    """CRC-32 has its check value, and FNV-1a its authors' vectors. Sarama takes the absolute value of the signed hash."""
    for buckets in (2, 7, 12, 1000, 2**31 - 1):
        assert bucket_of(key, buckets, partitioner) == hashed % buckets


@settings(max_examples=300)
@given(
    st.lists(SIZED_KEYS, max_size=12) | st.lists(SIZED_KEYS, min_size=_FEW, max_size=40),
    st.integers(1, 1000),
    st.sampled_from([*ps.Partitioner, last_byte]),
)
def test_many_keys_have_the_bucket_of_each(keys: list[bytes], buckets: int, partitioner: Any) -> None:
    """They are computed together and one by one."""
    assert _compiled_hashes(), "key_hashes.c was not compiled; run: pip install --no-deps --editable ."
    keys = [key or b"x" for key in keys]

    assert buckets_of(keys, buckets, partitioner) == [bucket_of(key, buckets, partitioner) for key in keys]


@pytest.mark.parametrize("bucket", [-1, 8, "1", True, 1.0, None])
def test_a_partitioner_function_must_return_a_bucket(bucket: Any) -> None:
    """The error names the function, its result and the key."""
    category = rides(partitioner=lambda key, buckets: bucket)

    with pytest.raises(DeclarationError, match=r"partitioner lambda … returned .* for the key b'ann'"):
        category.bucket_of("ann")


def test_an_error_of_a_partitioner_function_is_reported() -> None:
    """It becomes an error of the declaration."""
    with pytest.raises(DeclarationError, match=r"IndexError.*the key b''"):
        rides(partitioner=last_byte).bucket_of("")


# Messages that Penstock writes.


@pytest.mark.parametrize("semantics", ps.Semantics)
@pytest.mark.parametrize("partitioner", [*ps.Partitioner, last_byte, None])
def test_outputs_are_in_the_buckets_of_the_declared_partitioner(partitioner: Any, semantics: ps.Semantics) -> None:
    """A Repartition obeys the rule of any processor. An unknown partitioner means the placement of Kafka's Java clients."""
    source = rides(partitioner=ps.Partitioner.MURMUR2)
    target = ps.Category("by_car", Ride, key="car", event_time="at", buckets=5, partitioner=partitioner)
    declared = {"reads": source, "writes": target, "output_semantics": semantics}
    by_car: type[ps.Repartition] = type("ByCar", (ps.Repartition,), declared)
    driver = Driver(by_car)
    driver.send(source, [ride(car=car) for car in range(50)])
    expected = ps.Partitioner.MURMUR2 if partitioner is None else partitioner

    assert places(driver, "by_car") == {
        (key, bucket_of(key, 5, expected)) for key in (b"%d" % car for car in range(50))
    }


@pytest.mark.parametrize("partitioner", [*ps.Partitioner, last_byte])
@pytest.mark.parametrize("semantics", [ps.Semantics.AT_MOST_ONCE, ps.Semantics.EXACTLY_ONCE])
def test_outputs_of_a_remote_store_are_in_the_declared_buckets(partitioner: Any, semantics: ps.Semantics) -> None:
    """They are saved with the state, and sent from there, also after a crash."""
    totals = ps.Category("totals", Total, key="key", event_time="at", buckets=5, partitioner=partitioner)

    class Adding(ps.Aggregator):
        reads, writes, monoid = rides(), totals, ps.monoids.Count()
        store, output_semantics = ps.RemoteStore(ps.WriteMode.READ_MERGE_WRITE), semantics

        def result(self, key: str, window: ps.windows.Window, value: int) -> Total:
            return Total(key, 0, value)

    driver = Driver(Adding)
    crash = Crash(before=Step.COMMIT_TRANSACTION if semantics is ps.Semantics.EXACTLY_ONCE else Step.SEND_OUTPUTS)
    driver.send(rides(), [*(ride(f"user-{n}") for n in range(20)), crash])
    driver.send(rides(), [ride(f"user-{n}") for n in range(20)])

    assert places(driver, "totals") == {
        (key, bucket_of(key, 5, partitioner)) for key in (b"user-%d" % n for n in range(20))
    }


def test_the_client_places_messages_by_murmur2() -> None:
    """Penstock computes the buckets only for other partitioners."""
    keys, values = [b"a", b"b"], [b"1", b"2"]

    assert [message.bucket for message in outgoing(rides(), keys, values)] == [BY_KEY, BY_KEY]
    assert [m.bucket for m in outgoing(rides(partitioner=last_byte), keys, values)] == [ord("a") % 8, ord("b") % 8]


# Messages of other producers.


def place(driver: Driver, messages: Iterable[tuple[bytes | None, Ride]], partitioner: Any) -> None:
    """Write messages as a producer with a partitioner does; without a key into the last bucket."""
    for key, event in messages:
        number = 7 if key is None else bucket_of(key, 8, partitioner)
        driver.bus.append("rides", Outgoing(key, encoded(event), number))


@pytest.mark.parametrize("written", [*ps.Partitioner, last_byte])
@pytest.mark.parametrize("declared", [*ps.Partitioner, last_byte])
def test_a_count_per_key_is_right_or_refused(written: Any, declared: Any) -> None:
    """It is right with the partitioner of the producer, and refused with any other one; the error names the right one."""
    events = [ride(f"user-{n % 40}", at=n) for n in range(400)]
    totals = ps.Category("totals", Total, key="key", event_time="at", buckets=1)
    driver = Driver(counter(rides(partitioner=declared), totals))
    place(driver, [(event.user.encode(), event) for event in events], written)
    if declared is written:
        driver.run()
        counts: dict[str, int] = {}
        for total in driver.read(totals):
            counts[total.key] = max(counts.get(total.key, 0), total.rides)
        assert counts == {f"user-{n}": 10 for n in range(40)}
        return

    name = "No partitioner that" if written is last_byte else f"declare `partitioner=ps.Partitioner.{written.name}` on"
    with pytest.raises(EventRejected, match=name):
        driver.run()


@pytest.mark.parametrize(
    ("messages", "written", "options", "finding"),
    [
        (
            [(b"%d" % n, ride(str(n))) for n in range(90)],
            ps.Partitioner.CONSISTENT,
            {},
            (
                r"The messages are placed as librdkafka's default partitioner \(consistent\) does: declare "
                r"`partitioner=ps\.Partitioner\.CONSISTENT` on rides"
            ),
        ),
        ([(None, ride())], None, {}, "Kafka's clients spread messages without a key over all buckets. Correct"),
        (
            [(b'"ann"', ride())],
            ps.Partitioner.MURMUR2,
            {},
            r"The message key is the declared key in another encoding: declare `key_codec=ps\.KeyCodec\.JSON` on rides",
        ),
        (
            [(struct.pack(">q", 12), ride(car=12))],
            ps.Partitioner.CONSISTENT,
            {"key": "car"},
            (
                r"another encoding, and the messages may be placed as .* \(consistent\) does: declare "
                r"`key_codec=ps\.KeyCodec\.INT64, partitioner=ps\.Partitioner\.CONSISTENT`"
            ),
        ),
        (
            [(b"6", ride(car=6)), (b"6", ride("bob", car=6))],
            ps.Partitioner.MURMUR2,
            {},
            "The message key is the field `car`: declare `key='car'` on rides",
        ),
        (
            [(struct.pack(">i", 77), ride(car=77))],
            ps.Partitioner.MURMUR2,
            {},
            r"the field `car`: declare `key='car', key_codec=ps\.KeyCodec\.INT32` on rides",
        ),
        (
            [(b"order-3", ride())],
            ps.Partitioner.MURMUR2,
            {},
            "The message key is not the declared key. Correct the producer",
        ),
        *(
            (
                [(key, ride())],
                ps.Partitioner.MURMUR2,
                {},
                "The message key is a JSON object: `penstock category infer rides` prints the `key` and `key_codec` to declare. Correct",
            )
            for key in (b'{"user":"bob"}', b'{"schema":{"type":"string","optional":false},"payload":"ann"}')
        ),
        (
            [(b"", ride(""))],
            None,
            {"partitioner": ps.Partitioner.CONSISTENT},
            "without a key or with an empty key over all buckets",
        ),
    ],
)
def test_the_error_explains_the_bucket_of_a_message(
    messages: list[tuple[bytes | None, Ride]], written: Any, options: dict[str, Any], finding: str
) -> None:
    """It names the partitioner, the encoding or the field that the producer uses. Otherwise it suggests alternatives."""
    driver = Driver(counter(rides(**options)))
    place(driver, messages, (lambda key, buckets: 7) if written is None else written)

    with pytest.raises(EventRejected, match=finding) as caught:
        driver.run()

    assert str(caught.value).endswith(
        "declare `partitioner=None` on rides and copy its events to another category with a penstock.Repartition; or, if each bucket should "
        "have a separate state, declare `key_check = False` on Counting."
    )


def test_the_other_messages_of_the_batch_decide() -> None:
    """One message may be in its bucket by chance; several producers may write with several partitioners."""
    chance = next(
        user
        for user in map("user-{}".format, range(1000))
        if bucket_of(user.encode(), 8) != bucket_of(user.encode(), 8, ps.Partitioner.CONSISTENT)
    )
    number = bucket_of(chance.encode(), 8, ps.Partitioner.CONSISTENT)
    other = next(user for user in map("user-{}".format, range(1000)) if bucket_of(user.encode(), 8) == number)
    driver = Driver(counter(rides()))
    for user in (other, chance):
        driver.bus.append("rides", Outgoing(user.encode(), encoded(ride(user)), number))

    with pytest.raises(EventRejected, match=r"No partitioner that Penstock knows explains .* may use several"):
        driver.run()


def test_a_message_key_may_differ_from_the_key_in_the_right_bucket() -> None:
    """A producer that chooses partitions itself may use message keys for another purpose, or write none."""
    totals = ps.Category("totals", Total, key="key", event_time="at", buckets=1)
    driver = Driver(counter(rides(), totals))
    for key in (None, b"order-1", b"order-2"):
        driver.bus.append("rides", Outgoing(key, encoded(ride()), bucket_of(b"ann", 8)))
    driver.run()

    assert [total.rides for total in driver.read(totals)] == [1, 2, 3]


def test_an_unknown_partitioner_needs_a_repartition() -> None:
    """A processor with state per key refuses the category; a Repartition to the same key copies it."""
    source = rides(partitioner=None)
    with pytest.raises(DeclarationError, match=r"the partitioner of rides is unknown .*penstock\.Repartition"):
        plan_of(counter(source)).check()
    unchecked: type[ps.Stateful] = type("Unchecked", (counter(source),), {"key_check": False})
    plan_of(unchecked).check()
    target = ps.Category("again", Ride, key="user", event_time="at", buckets=8)
    totals = ps.Category("totals", Total, key="key", event_time="at", buckets=1)
    copy: type[ps.Repartition] = type("Copy", (ps.Repartition,), {"reads": source, "writes": target})
    driver = Driver([copy, counter(target, totals)])
    for number in range(8):
        driver.bus.append("rides", Outgoing(None, encoded(ride(at=number)), number))
    driver.run()

    assert max(total.rides for total in driver.read(totals)) == 8
    with pytest.raises(DeclarationError, match="partitioner is unknown"):
        source.bucket_of("ann")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"partitioner": ps.Partitioner.MURMUR2}, {"partitioner": ps.Partitioner.CONSISTENT}),
        ({"key_codec": ps.KeyCodec.TEXT}, {"key_codec": ps.KeyCodec.JSON}),
        ({"key_codec": ps.KeyCodec.JSON, "key": "user"}, {"key_codec": ps.KeyCodec.JSON, "key": "car"}),
    ],
)
def test_inputs_with_different_partitioning_are_refused(left: dict[str, Any], right: dict[str, Any]) -> None:
    """One key would be in different buckets of both."""
    wrong = counter(rides(**left))
    wrong.reads = (rides(**left), rides(**right))

    with pytest.raises(DeclarationError, match="not co-partitioned"):
        plan_of(wrong).check()


# Key codecs.


CODED: list[tuple[ps.KeyCodec, bool, Any, bytes, str]] = [
    (ps.KeyCodec.TEXT, False, "Zürich", "Zürich".encode(), "Zürich"),
    (ps.KeyCodec.TEXT, True, 12, b"12", "12"),
    (ps.KeyCodec.INT32, True, -2, struct.pack(">i", -2), "-2"),
    (ps.KeyCodec.INT64, True, 2**40, struct.pack(">q", 2**40), str(2**40)),
    (ps.KeyCodec.JSON, False, 'a"ü', '"a\\"ü"'.encode(), 'a"ü'),
    (ps.KeyCodec.JSON, True, 12, b"12", "12"),
    (ps.KeyCodec.BYTES, False, "00ff", b"\x00\xff", "00ff"),
]


@pytest.mark.parametrize(("codec", "is_number", "value", "message_key", "key"), CODED)
def test_message_keys_are_those_of_other_clients(
    codec: ps.KeyCodec, is_number: bool, value: Any, message_key: bytes, key: str
) -> None:
    """Java's integer serializers, JSON and raw bytes are read and written, and placed by their bytes."""
    category = rides(key="car" if is_number else "user", key_codec=codec, partitioner=ps.Partitioner.CONSISTENT)
    event = ride(car=value) if is_number else ride(user=value)
    totals = ps.Category("totals", Total, key="key", event_time="at", buckets=1)
    driver = Driver(counter(category, totals))
    number = bucket_of(message_key, 8, ps.Partitioner.CONSISTENT)
    driver.bus.append("rides", Outgoing(message_key, encoded(event), number))
    driver.send(category, [event])
    written = [message.key() for message in driver.bus.slice(Bucket("rides", number), 0, 9)]

    assert category.keys_of([event]) == [key]
    assert category.decode_key(message_key) == key
    assert category.bucket_of(key) == number
    assert written == [message_key, message_key]
    assert [(total.key, total.rides) for total in driver.read(totals)] == [(key, 1), (key, 2)]


@given(st.text(), st.integers(-(2**31), 2**31 - 1), st.binary())
def test_a_key_survives_its_message_key(text: str, number: int, raw: bytes) -> None:
    """Every codec that has a message key for a key reads it back."""
    for codec, is_number, key in [
        (ps.KeyCodec.TEXT, False, text),
        (ps.KeyCodec.JSON, False, text),
        *((codec, True, str(number)) for codec in ps.KeyCodec if codec is not ps.KeyCodec.BYTES),
        (ps.KeyCodec.BYTES, False, raw.hex()),
    ]:
        keys = MessageKeys("rides", codec, is_number)

        assert keys.decode(keys.encode([key])[0]) == key


@pytest.mark.parametrize(
    ("codec", "is_number", "key"),
    [
        (ps.KeyCodec.TEXT, False, "\ud800"),
        (ps.KeyCodec.INT32, True, str(2**31)),
        (ps.KeyCodec.INT64, True, "x"),
        (ps.KeyCodec.INT64, True, "05"),
        (ps.KeyCodec.BYTES, False, "FF"),
        (ps.KeyCodec.BYTES, False, "f"),
    ],
)
def test_a_key_without_a_message_key_is_refused(codec: ps.KeyCodec, is_number: bool, key: str) -> None:
    """A key that would have the message key of another key is refused, too."""
    with pytest.raises(InvalidKey, match=rf"rides.*KeyCodec\.{codec.name}"):
        MessageKeys("rides", codec, is_number).encode([key])


@pytest.mark.parametrize(
    ("codec", "is_number", "message_key"),
    [
        (ps.KeyCodec.TEXT, False, b"\xff"),
        (ps.KeyCodec.INT32, True, b"12"),
        (ps.KeyCodec.INT64, True, b"1234"),
        (ps.KeyCodec.JSON, False, b"12"),
        (ps.KeyCodec.JSON, True, b'"12"'),
        (ps.KeyCodec.JSON, False, b"{"),
    ],
)
def test_a_message_key_of_another_codec_is_refused(codec: ps.KeyCodec, is_number: bool, message_key: bytes) -> None:
    """The error names the category, the bytes and the declared codec."""
    with pytest.raises(InvalidKey, match=rf"rides: the message key b.*KeyCodec\.{codec.name}"):
        MessageKeys("rides", codec, is_number).decode(message_key)


def test_an_event_whose_key_has_no_bucket_stops_the_worker() -> None:
    """Earlier events count; the reason names the codec."""
    category = rides(key_codec=ps.KeyCodec.BYTES)
    driver = Driver(counter(category))
    number = category.bucket_of("00ff")
    for user in ("00ff", "ann"):
        driver.bus.append("rides", Outgoing(b"\x00\xff", encoded(ride(user)), number))

    with pytest.raises(EventRejected, match=rf"rides/{number} at offset 1: .*'ann'.*no bucket.*KeyCodec\.BYTES"):
        driver.run()


def test_deletions_of_a_table_have_keys_of_its_codec() -> None:
    """A message without a value deletes the row of its decoded key; one with undecodable bytes goes to the dead letters."""
    stream = rides(key="car", key_codec=ps.KeyCodec.INT64)
    rows = ps.Category("rows", Row, key="car", event_time="at", buckets=8, key_codec=ps.KeyCodec.INT64)
    named = ps.Category("named", Named, key="car", event_time="at", buckets=1)

    class Naming(ps.TableJoin):
        stream, table, writes = rides(key="car", key_codec=ps.KeyCodec.INT64), rows, named

        def join(self, event: Ride, row: Row | None, context: ps.Context) -> Iterable[Named]:
            yield Named(event.car, event.at, None if row is None else row.name)

    driver = Driver(Naming)
    driver.send(rows, [Row(5, 1, "five")])
    driver.send(Naming.stream, [ride(car=5, at=2)])
    driver.bus.append("rows", Outgoing(struct.pack(">q", 5), None, rows.bucket_of("5")))
    driver.bus.append("rows", Outgoing(b"5", None, rows.bucket_of("5")))
    driver.run()
    driver.send(Naming.stream, [ride(car=5, at=3)])

    assert stream.partitioning == rows.partitioning
    assert [one.name for one in driver.read(named)] == ["five", None]
    [letter] = driver.dead_letters(Naming)
    assert "KeyCodec.INT64" in letter.reason


# Declarations.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitioner": "murmur2"}, r"Declare a penstock\.Partitioner"),
        ({"key_codec": "int64"}, r"Declare a penstock\.KeyCodec"),
        ({"key_codec": ps.KeyCodec.INT64}, "needs an int, but the key field 'user' is a str"),
    ],
)
def test_wrong_declarations_are_refused(options: dict[str, Any], message: str) -> None:
    """The error contains the right types."""
    with pytest.raises(DeclarationError, match=message):
        rides(**options)


def test_a_computed_key_may_be_an_int_on_the_bus() -> None:
    """The key function returns its decimal digits."""
    category = rides(key=lambda event: str(event.car), key_codec=ps.KeyCodec.INT32)

    assert category.encode_keys(category.keys_of([ride(car=7)])) == [struct.pack(">i", 7)]


def test_one_category_with_two_partitioners_is_refused() -> None:
    """Two keys are refused in the same way."""
    first, second = counter(rides()), counter(rides(partitioner=ps.Partitioner.FNV1A))
    second.name = "second"
    second.__name__ = "Second"

    with pytest.raises(DeclarationError, match="is declared twice"):
        Driver([first, second])
