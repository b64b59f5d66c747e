"""Codecs decode messages in columns as they decode the same messages one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.processors.declare import Payload
from penstock.transport import MessageColumns, MessageCopy
from penstock.transport.codecs import Lines
from penstock.transport.codecs.json_codec import JsonCodec
from penstock.transport.message_columns import BytesColumn


class Visit(ps.Record, frozen=True):
    """A visit."""

    page: str
    at: ps.EventTime
    count: int = 0


VISITS = st.builds(Visit, st.text(max_size=5), st.integers(0, 2**40), st.integers(-5, 2**63 - 1))
VALUES = st.one_of(
    VISITS.map(msgspec.json.encode),
    VISITS.map(lambda visit: msgspec.json.format(msgspec.json.encode(visit), indent=2)),
    st.sampled_from(
        [
            None,
            b"",
            b"\n",
            b"{",
            b"}",
            b"{}\n{}",
            b'{"page": "a", "at"',
            b': 1}\n{"page": "b", "at": 2}',
            b'{"page": "a", "at": 1, "count": 18446744073709551616}',
            b'{"page": "a"}',
        ]
    ),
    st.binary(max_size=6),
)


def in_columns(values: Sequence[bytes | None]) -> MessageColumns:
    """Return messages as the reader of columns creates them."""
    sizes = [len(value or b"") for value in values]
    ends = np.cumsum([size + 1 for size in sizes]) - 1
    buffer = np.frombuffer(b"".join((value or b"") + b"\n" for value in values), np.uint8)
    present = np.array([value is not None for value in values])
    numbers, none = np.arange(len(values)), np.zeros(len(values), np.int64)
    keys = BytesColumn(np.empty(0, np.uint8).data, none, none, none.astype(np.bool_))
    column = BytesColumn(buffer.data, ends - np.array(sizes), ends, present)
    return MessageColumns(0, numbers, numbers, none.astype(np.int8), column, keys, None)


@given(values=st.lists(VALUES, min_size=1, max_size=8), data=st.data())
def test_json_in_columns_decodes_as_message_by_message(values: list[bytes | None], data: st.DataObject) -> None:
    """Values are valid, broken, empty or null, in any order and in parts of a batch."""
    codec = JsonCodec(Payload("visits", Visit, "at"))
    begin = data.draw(st.integers(0, len(values) - 1))
    end = data.draw(st.integers(begin + 1, len(values)))
    part = in_columns(values)[begin:end]

    assert codec.decode(part) == codec.decode([MessageCopy(value) for value in values[begin:end]])


@pytest.mark.parametrize("spoilt", [0, 1, 2])
def test_one_broken_message_does_not_spoil_its_batch(spoilt: int) -> None:
    """The others are decoded."""
    values = [msgspec.json.encode(Visit("a", at)) for at in range(3)]
    values[spoilt] = values[spoilt][:-1]
    decoded = JsonCodec(Payload("visits", Visit, "at")).decode(in_columns(values))

    assert [event.at for event in decoded.events] == [at for at in range(3) if at != spoilt]
    assert [bad.at for bad in decoded.bad] == [spoilt]


@given(st.lists(st.none() | st.binary(max_size=6), min_size=1), st.sampled_from([0, 1, 2]))
def test_lines_are_decoded_equally(values: list[bytes | None], timestamp_type: int) -> None:
    """Messages may have null values, keys of any bytes, and no timestamps."""
    codec = Lines().open(Payload("log", ps.Line, "at", "key"))
    columns = in_columns(values)
    columns = replace(columns, keys=columns.values, timestamp_types=np.full(len(values), timestamp_type, np.int8))
    found, expected = codec.decode(columns), codec.decode(list(columns))

    assert (found.events, list(found.at), found.bad) == (expected.events, list(expected.at), expected.bad)
    assert len(found.events) + len(found.bad) == len(values)
