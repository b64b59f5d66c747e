"""Keys of several fields: their text, their message keys, and processors of categories that have them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.backfill.archive import ArchivedRows
from penstock.backfill.compare.comparer import estimates_of
from penstock.codecs import Debezium
from penstock.errors import DeclarationError
from penstock.monoids import Sum
from penstock.processors import PenstockError
from penstock.processors.declare import InvalidKey, KeyPart, MessageKeys, content_of_key, plan_of
from penstock.processors.shard import EventRejected
from penstock.testing import Driver
from penstock.transport import Bucket, CategorySpec, MessageCopy, Outgoing, RawBatch
from penstock.transport.codecs import Codecs, encoded_messages
from penstock.transport.memory import MemoryBus

TEXT = st.text(st.characters(codec="utf-8"), max_size=10)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTS = (KeyPart("tenant", is_number=False), KeyPart("orderId", is_number=True))
KEY = '["a",3]'


class Order(ps.Record, frozen=True, rename="camel"):
    """An order of a tenant."""

    tenant: str
    order_id: int
    at: ps.EventTime
    note: str | None = None


class Total(ps.Record, frozen=True):
    """The number of orders of a key."""

    key: str
    at: ps.EventTime
    orders: int


def orders(**options: Any) -> ps.Category[Order]:
    return ps.Category("orders", Order, **{"key": ("tenant", "order_id"), "event_time": "at", **options})


totals = ps.Category("totals", Total, key="key", event_time="at", buckets=1)


def counter(category: ps.Category[Order]) -> type[ps.Stateful]:
    """Return a processor that counts the orders of each key."""

    class Counting(ps.Stateful):
        reads, writes, state = category, totals, int

        def process(self, event: Order, state: int | None, context: ps.Context) -> tuple[int, list[Total]]:
            return (state or 0) + 1, [Total(context.key, event.at, (state or 0) + 1)]

    return Counting


@given(TEXT, INT64)
def test_a_key_survives_its_message_key(tenant: str, number: int) -> None:
    """With every codec for several fields, different keys have different message keys."""
    key = ps.composite_key(tenant, number)
    for codec in (ps.KeyCodec.TEXT, ps.KeyCodec.JSON):
        keys = MessageKeys("orders", codec, is_number=False, parts=PARTS)

        assert keys.decode(keys.encode([key])[0]) == key
    assert content_of_key(key, PARTS) == {"tenant": tenant, "orderId": number}


@given(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=2, unique=True))
def test_different_values_have_different_keys(pairs: list[tuple[str, str]]) -> None:
    """The values may contain any separator: `("a,", "b")` is not `("a", ",b")`."""
    first, second = (ps.composite_key(*pair) for pair in pairs)

    assert first != second


@pytest.mark.parametrize(
    ("codec", "message_key"), [(ps.KeyCodec.TEXT, b'["a",3]'), (ps.KeyCodec.JSON, b'{"tenant":"a","orderId":3}')]
)
def test_events_of_a_key_are_placed_and_counted_by_its_message_key(codec: ps.KeyCodec, message_key: bytes) -> None:
    """Another program may have written the message key. Its names are the names on the bus, and its bytes determine the bucket."""
    category = orders(key_codec=codec)
    driver = Driver(counter(category))
    driver.bus.writer().send("orders", [Outgoing(message_key, b'{"tenant":"a","orderId":3,"at":1}')])
    driver.send(category, [Order("a", 3, 2), Order("a", 4, 3)])
    number = category.bucket_of(KEY)
    written = [message.key() for message in driver.bus.slice(Bucket("orders", number), 0, 9)]

    assert category.key == ("tenant", "orderId")
    assert written[:2] == [message_key, message_key]
    assert {(one.key, one.orders) for one in driver.read(totals)} == {(KEY, 1), (KEY, 2), ('["a",4]', 1)}


@pytest.mark.parametrize(
    "key", ["a", '["a"]', '["a","3"]', '["a", 3]', '["a",3.0]', '["a",3,4]', '{"tenant":"a"}', "[[["]
)
def test_another_text_is_no_key(key: str) -> None:
    """The error shows the form of a key."""
    for codec in (ps.KeyCodec.TEXT, ps.KeyCodec.JSON):
        with pytest.raises(InvalidKey, match=r"orderId \(an int\), such as \[\"a\",1\], as penstock\.composite_key"):
            orders(key_codec=codec).encode_keys([key])


@pytest.mark.parametrize(
    "message_key",
    [
        b"a",
        b"\xff",
        b"{",
        b'{"tenant":"a"}',
        b'{"tenant":"a","orderId":"3"}',
        b'{"tenant":"a","orderId":true}',
        b"[" * 9_000,
    ],
)
def test_another_message_key_is_refused(message_key: bytes) -> None:
    """No record could have this key."""
    for codec in (ps.KeyCodec.TEXT, ps.KeyCodec.JSON):
        with pytest.raises(InvalidKey, match="orders: the message key"):
            orders(key_codec=codec).decode_key(message_key)


@pytest.mark.parametrize("value", [True, 1.5, None, b"a"])
def test_a_value_of_another_type_is_no_part_of_a_key(value: Any) -> None:
    """A boolean would be read as another key than the int that it equals."""
    with pytest.raises(TypeError, match="neither a str nor an int"):
        ps.composite_key("a", value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": ["tenant", "order_id"]}, "a tuple of several names"),
        ({"key": ("tenant",)}, "for one field its name"),
        ({"key": ("tenant", 3)}, "for one field its name"),
        ({"key": ("tenant", "orderid")}, "Did you mean `orderId`"),
        ({"key": ("order_id", "orderId")}, "names a field twice"),
        ({"key": ("tenant", "note")}, "'note' must be a str or an int, without None"),
        ({"key_codec": ps.KeyCodec.INT64}, "INT64` is for one value, but the key has the fields tenant, orderId"),
        ({"key_codec": ps.KeyCodec.BYTES}, "BYTES` is for one value"),
    ],
)
def test_wrong_declarations_are_refused(options: dict[str, Any], message: str) -> None:
    """The error contains the right declaration."""
    with pytest.raises(DeclarationError, match=message):
        orders(**options)


def test_a_tombstone_reaches_a_processor_with_the_values_of_its_key() -> None:
    """A repartition by the same fields copies it. A text that is not a key is refused when it is written."""
    source, target = (
        orders(key_codec=ps.KeyCodec.JSON),
        ps.Category("copies", Order, key=("tenant", "order_id"), event_time="at", buckets=3),
    )

    class Copy(ps.Stateless[Order | ps.Tombstone, Order | ps.Tombstone]):
        reads, writes, tombstones = source, target, True

        def process(self, event: Order | ps.Tombstone) -> Iterable[Order | ps.Tombstone]:
            yield event

    driver = Driver(Copy)
    driver.send(source, [Order("a", 3, 1), ps.Tombstone(KEY)])

    assert driver.read(target) == [Order("a", 3, 1), ps.Tombstone(KEY)]
    with pytest.raises(PenstockError, match=r"such as \[\"a\",1\]"):
        driver.send(source, [ps.Tombstone("a")])


@pytest.mark.parametrize("before", [{"tenant": "a", "orderId": 3}, None])
@pytest.mark.parametrize("key", [{"tenant": "a", "orderId": 3}, {"orderId": 3, "tenant": "a", "shop": 1}])
def test_a_deletion_of_debezium_has_the_key_of_its_columns(before: Any, key: Any) -> None:
    """The key comes from the message key or from the row before. Without both, the deletion has no key."""
    category = orders(key_codec=ps.KeyCodec.JSON, codec=Debezium())
    codec = Codecs(MemoryBus()).of(category)
    deletion = json.dumps({"op": "d", "before": before, "after": None, "ts_ms": 5}).encode()
    [bad] = codec.decode([MessageCopy(deletion, json.dumps(key).encode())]).bad
    [null] = codec.decode([MessageCopy(None, json.dumps(key).encode())]).bad
    [other] = codec.decode([MessageCopy(deletion, b'{"orderId":3}')]).bad

    assert bad.deleted_key == null.deleted_key == KEY
    assert other.deleted_key == (KEY if before else None)


def test_categories_with_other_key_fields_are_not_joined() -> None:
    """With KeyCodec.JSON, the names are a part of the message key; with KeyCodec.TEXT, only the types are."""
    cases: list[tuple[ps.KeyCodec, Any, bool]] = [
        (ps.KeyCodec.TEXT, ("note", "order_id"), True),
        (ps.KeyCodec.JSON, ("note", "order_id"), False),
        (ps.KeyCodec.TEXT, ("order_id", "tenant"), False),
        (ps.KeyCodec.TEXT, "tenant", False),
    ]

    class Other(ps.Record, frozen=True, rename="camel"):
        tenant: str
        note: str
        order_id: int
        at: ps.EventTime

    for codec, key, equal in cases:
        other: ps.Category[Any] = ps.Category("others", Other, key=key, event_time="at", key_codec=codec)

        assert (orders(key_codec=codec).partitioning == other.partitioning) is equal


@pytest.mark.parametrize(
    ("message_key", "codec", "finding"),
    [
        (
            b'{"tenant":"a","orderId":3}',
            ps.KeyCodec.TEXT,
            r"in another encoding: declare `key_codec=ps\.KeyCodec\.JSON`",
        ),
        (b'{"orderId":3,"tenant":"a"}', ps.KeyCodec.JSON, "with its fields in another order"),
        (
            b'{"tenant": "a", "orderId": 3}',
            ps.KeyCodec.JSON,
            r"with spaces.*declare `key_codec=codecs.KeyFields\(\(\"tenant\", \"orderId\"\), spaces=True\)`",
        ),
        (
            b"a",
            ps.KeyCodec.JSON,
            "The message key is the field `tenant`: declare `key='tenant', key_codec=ps.KeyCodec.TEXT`",
        ),
    ],
)
def test_a_message_key_in_another_form_stops_the_worker_with_the_cause(
    message_key: bytes, codec: ps.KeyCodec, finding: str
) -> None:
    """The declaration to change is named where one explains the message."""
    category = orders(key_codec=codec, buckets=64)
    driver = Driver(counter(category))
    driver.bus.writer().send("orders", [Outgoing(message_key, b'{"tenant":"a","orderId":3,"at":1}')])

    with pytest.raises(EventRejected, match=rf"its 'tenant', 'orderId' is '\[\"a\",3\]'.*{finding}"):
        driver.run()


def test_the_key_of_an_output_cannot_be_set_beside_its_record() -> None:
    """Readers find it in the fields, which the error names."""
    with pytest.raises(TypeError, match="the key of this category is the fields tenant, orderId"):
        ps.To(orders(), Order("a", 3, 1), key=KEY).record_for(orders())


def test_the_archive_contains_the_key() -> None:
    """The column of keys contains it as text, by which backfills sort and group."""
    category = orders()
    bus = MemoryBus()
    bus.create(CategorySpec.of(category))
    codec = Codecs(bus).of(category)
    bus.writer().send("orders", encoded_messages(category, codec, [Order("a", 3, 1)]))
    number = category.bucket_of(KEY)
    batch = RawBatch(Bucket("orders", number), bus.slice(Bucket("orders", number), 0, 9))

    assert ArchivedRows(category, codec).of(batch).batch.column("_key").to_pylist() == [KEY]


def test_a_comparison_of_results_excludes_the_key_fields() -> None:
    """The key fields of a pair are equal, and are not estimates."""

    class Sums(ps.Aggregator):
        reads, monoid = orders(), Sum()
        writes = ps.Category("sums", Order, key=("tenant", "order_id"), event_time="at")

    assert list(estimates_of(plan_of(Sums).outputs[0], Sums)) == ["note"]
    assert plan_of(Sums).key_name == "tenant, orderId"
