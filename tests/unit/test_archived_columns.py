"""Rows of the archive from columns equal the rows from records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import penstock as ps
from penstock.backfill.archive import ArchivedRows
from penstock.processors.declare import Decoded, Message, Payload
from penstock.transport import Bucket, MessageCopy, RawBatch
from penstock.transport.codecs.json_codec import JsonCodec


class Reading(ps.Record, frozen=True):
    """A record with each type of a flat field."""

    meter: str
    at: ps.EventTime
    litres: float
    is_final: bool
    note: str | None
    number: int
    count: int | None = None


CATEGORIES = [
    ps.Category("readings", Reading, key="meter", event_time="at"),
    ps.Category("readings", Reading, key="number", event_time="at"),
    ps.Category("readings", Reading, key=("meter", "number"), event_time="at"),
    ps.Category("readings", Reading, key=lambda reading: reading.meter[:1], event_time="at"),
]
INTEGERS = some.integers(-(2**63), 2**63 - 1)
READINGS = some.builds(
    Reading,
    some.text(some.characters(codec="utf-8"), max_size=8),
    some.integers(0, 2**42),
    some.floats(allow_nan=False, allow_infinity=False),
    some.booleans(),
    some.none() | some.text(max_size=3),
    INTEGERS,
    some.none() | INTEGERS,
)
OTHERS = some.sampled_from([b"", b"{", b"[]", b'{"meter":"a"}'])


class WithoutColumns:
    """A codec that decodes records only."""

    def __init__(self, codec: JsonCodec) -> None:
        self._codec = codec

    def decode(self, messages: Sequence[Message]) -> Decoded:
        return self._codec.decode(messages)

    def encode(self, records: Sequence[object]) -> list[bytes]:
        return self._codec.encode(records)


def batch_of(values: Sequence[bytes]) -> RawBatch:
    """Return messages with gaps between their offsets."""
    stamped = [MessageCopy(value, b"k", 3, 2 * at, (1, 1_000 + at)) for at, value in enumerate(values, start=5)]
    return RawBatch(Bucket("readings", 3), stamped)


@given(records=some.lists(READINGS, min_size=1, max_size=8), others=some.lists(OTHERS, max_size=1), data=some.data())
@settings(deadline=None)
def test_rows_from_columns_equal_rows_from_records(
    records: list[Reading], others: list[bytes], data: some.DataObject
) -> None:
    """Every key and value is equal, also beside messages that cannot be decoded."""
    category = data.draw(some.sampled_from(CATEGORIES))
    codec = JsonCodec(Payload("readings", Reading, "at"))
    values = data.draw(some.permutations([*codec.encode(records), *others]))
    found = ArchivedRows(category, codec).of(batch_of(values))
    truth = ArchivedRows(category, WithoutColumns(codec)).of(batch_of(values))

    assert found.batch.equals(truth.batch)
    assert list(found.excluded) == list(truth.excluded)


class WithoutRecords(JsonCodec):
    """A codec that decodes columns only."""

    def decode(self, messages: Sequence[Message]) -> Decoded:
        raise AssertionError(f"{len(messages)} records")


def test_no_record_is_made_where_the_key_is_a_field() -> None:
    """Only other keys need records."""
    codec = WithoutRecords(Payload("readings", Reading, "at"))
    batch = batch_of(codec.encode([Reading("a", 1, 2.0, True, None, 7), Reading("b", 2, 2.0, False, "x", -7, 3)]))
    for category in CATEGORIES[:2]:
        assert ArchivedRows(category, codec).of(batch).batch.column("_offset").to_pylist() == [10, 12]
    for category in CATEGORIES[2:]:
        with pytest.raises(AssertionError, match="2 records"):
            ArchivedRows(category, codec).of(batch)
