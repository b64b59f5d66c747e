"""JSON decodes to columns as it decodes to records, or not at all; and columns encode as records do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

import penstock as ps
from penstock.processors.declare import Message, Payload, flat_fields
from penstock.transport import MessageCopy
from penstock.transport.codecs.json_codec import JsonCodec
from penstock.transport.codecs.json_columns import JoinedValues, columns_of_json, load_library


class Reading(ps.Record, frozen=True):
    """A record with each type of a flat field."""

    meter: str
    at: ps.EventTime
    litres: float
    is_final: bool
    note: str | None
    count: int | None = None
    price: float | None = None


CODEC = JsonCodec(Payload("readings", Reading, "at"))
NAMES = [field.name for field in flat_fields(Reading) or ()]
KINDS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
SCHEMA = pa.schema(
    zip(NAMES, [pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.int64(), pa.float64()], strict=True)
)
TEXTS = some.text(some.characters(codec="utf-8"), max_size=20)
FLOATS = some.floats(allow_nan=False, allow_infinity=False)
READINGS = some.builds(
    Reading,
    TEXTS,
    some.integers(0, 2**41),
    FLOATS,
    some.booleans(),
    some.none() | TEXTS,
    some.none() | some.integers(-(2**63), 2**63 - 1),
    some.none() | FLOATS,
)
NUMBERS = some.one_of(
    some.from_regex(r"-?[0-9]{1,22}(\.[0-9]{1,22})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    some.sampled_from(
        ["-0", "0", "-0.0", "00", "1.", ".5", "1e400", "1e-400", "NaN", "Infinity", "0x1", "+1", "1_0", ""]
    ),
)
ANYTHING = some.one_of(
    some.sampled_from([b"", b"{}", b"{,}", b'{"meter":"a",}', b"[]", b"null", b'"a"', b"{", b"\xef\xbb\xbf{}", None]),
    some.binary(max_size=8),
)


def written(reading: Reading) -> some.SearchStrategy[bytes]:
    """Return the JSON of a reading as several encoders write it, and almost its JSON."""
    fields = msgspec.to_builtins(reading)
    compact = msgspec.json.encode(reading)
    return some.one_of(
        some.just(compact),
        some.sampled_from(
            [
                msgspec.json.format(compact, indent=2),
                json.dumps(fields).encode(),
                json.dumps(fields, ensure_ascii=False).encode(),
                json.dumps(dict(reversed(fields.items()))).encode(),
                json.dumps({**fields, "more": 1.5, "text": "é\n", "none": None}).encode(),
                json.dumps({**fields, "more": {"a": [1]}}).encode(),
                json.dumps({name: value for name, value in fields.items() if value is not None}).encode(),
                json.dumps({**fields, "meter": 5}).encode(),
                json.dumps({**fields, "is_final": 1}).encode(),
                json.dumps({**fields, "count": fields["litres"]}).encode(),
                json.dumps({**fields, "litres": None}).encode(),
                compact + b" ",
                compact[:-1] + b',"at":7}',
                compact[:-1] + b',"m\\u0065ter":"x"}',
                compact[:-1] + b"}}",
            ]
        ),
        NUMBERS.map(lambda number: compact.replace(b'"price":', f'"price":{number},"ignored":'.encode(), 1)),
        NUMBERS.map(lambda number: f'{{"unknown":{number},'.encode() + compact[1:]),
        NUMBERS.map(lambda number: compact.replace(b'"at":', f'"at":{number},"ignored":'.encode(), 1)),
        some.binary(min_size=1, max_size=4).map(lambda raw: compact.replace(b'"meter":"', b'"meter":"' + raw, 1)),
        some.tuples(some.integers(0, len(compact) - 1), some.binary(max_size=2)).map(
            lambda change: compact[: change[0]] + change[1] + compact[change[0] + 1 :]
        ),
    )


VALUES = READINGS.flatmap(written)


def messages_of(values: Sequence[bytes | None]) -> list[Message]:
    return [MessageCopy(value) for value in values]


def exact(rows: list[dict[str, Any]]) -> str:
    """Return a text that differs for 0.0 and -0.0, and for 1 and 1.0."""
    return repr(rows)


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    assert load_library() is not None, "flat_json.c was not compiled; run: pip install --no-deps --editable ."


@settings(max_examples=600)
@given(
    values=some.lists(VALUES | ANYTHING, min_size=1, max_size=3), names=some.sets(some.sampled_from(NAMES), min_size=1)
)
@example(values=[b'{"meter":"\\ud83d\\ude00","at":1,"litres":2,"is_final":true,"note":null}'], names={"meter"})
@example(values=[b'{"meter":"\xed\xa0\x80","at":1,"litres":2,"is_final":true,"note":null}'], names={"at"})
@example(values=[b'{"meter":"a","at":1,"litres":0.1e1,"is_final":true,"note":null,}'], names={"at"})
def test_columns_have_the_values_of_the_records(values: list[bytes | None], names: set[str]) -> None:
    """If arbitrary messages decode to columns, each message is a record with these values."""
    columns = CODEC.decode_columns(messages_of(values), sorted(names))
    if columns is None:
        return
    decoded = CODEC.decode(messages_of(values))

    assert not decoded.bad
    assert len(decoded.events) == len(values) == columns.num_rows
    assert exact(columns.to_pylist()) == exact(
        [{name: getattr(event, name) for name in sorted(names)} for event in decoded.events]
    )
    columns.validate(full=True)


@settings(max_examples=600)
@given(value=VALUES, size=some.integers(0, 400))
def test_the_end_of_the_lines_is_the_end(value: bytes, size: int) -> None:
    """A part of a message is never a record, whatever bytes follow it in memory."""
    columns_of, part = columns_of_json(flat_fields(Reading)), value[: size % (len(value) + 1)]
    starts, ends = np.array([0]), np.array([len(part)])
    assert columns_of is not None
    for memory in (np.frombuffer(value, np.uint8), np.frombuffer(part, np.uint8).copy()):
        found = columns_of.decode(JoinedValues(memory[: len(part)].data, starts, ends), NAMES)
        if found is not None:
            (event,) = CODEC.decode(messages_of([part])).events
            assert exact(found.to_pylist()) == exact([msgspec.to_builtins(event)])


@settings(max_examples=200)
@given(readings=some.lists(READINGS, min_size=1, max_size=5))
def test_what_encoders_write_has_columns(readings: list[Reading]) -> None:
    """The encoders are msgspec and Python's json, with few digits in whole numbers."""
    small = [msgspec.structs.replace(it, count=it.count and it.count % 10**18) for it in readings]
    for values in (
        list(map(msgspec.json.encode, small)),
        [json.dumps(msgspec.to_builtins(it)).encode() for it in small],
        [json.dumps(msgspec.to_builtins(it), ensure_ascii=False).encode() for it in small],
    ):
        columns = CODEC.decode_columns(messages_of(values), NAMES)
        negative_zero = any(b":-0," in value or b":-0}" in value for value in values)

        assert columns is not None or negative_zero
        assert columns is None or exact(columns.to_pylist()) == exact(list(map(msgspec.to_builtins, small)))


@settings(max_examples=200)
@given(readings=some.lists(READINGS, min_size=1, max_size=5), begin=some.integers(0, 4))
def test_columns_encode_as_their_records(readings: list[Reading], begin: int) -> None:
    """The columns have escapes, floats and nulls, and may be parts of longer ones."""
    begin = min(begin, len(readings) - 1)
    batch = pa.RecordBatch.from_pylist(list(map(msgspec.to_builtins, readings)), schema=SCHEMA).slice(begin)

    assert CODEC.encode_columns(batch) == CODEC.encode(readings[begin:])


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ([("at", int), ("tags", list[str])], {}),
        ([("at", int), ("of", int | str)], {}),
        ([("at", int), ("share", Annotated[float, msgspec.Meta(le=1)])], {}),
        ([("at", int)], {"array_like": True}),
        ([("at", int)], {"forbid_unknown_fields": True}),
        ([("at", int), ("n", int, 0)], {"omit_defaults": True}),
        ([("at", int)], {"tag": "a"}),
    ],
)
def test_other_records_have_no_columns(fields: list[Any], options: dict[str, Any]) -> None:
    """Such records have nested values or unions, or are structs that decode or encode in another way."""
    record: Any = msgspec.defstruct("Other", fields, bases=(ps.Record,), frozen=True, **options)
    try:
        found = flat_fields(record)
    except ps.errors.DeclarationError:
        found = None  # no category accepts it

    assert found is None
