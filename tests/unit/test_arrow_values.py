"""Values of Arrow arrays, read from their buffers."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.processors.declare import flags_of, numbers_of, text_bytes_of
from penstock.processors.declare.arrow_values import texts_of

NUMBERS = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
}
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])) | st.text("abc"))


def part_of(array: pa.Array[Any], begin: int, count: int) -> pa.Array[Any]:
    return array.slice(min(begin, len(array)), count)


@pytest.mark.parametrize("kind", NUMBERS)
@given(st.data())
def test_numbers_equal_those_of_arrow(kind: str, data: st.DataObject) -> None:
    """A part of an array has the same numbers, too."""
    values = data.draw(st.lists(NUMBERS[kind]))
    array = part_of(pa.array(values, kind), data.draw(st.integers(0, 5)), data.draw(st.integers(0, 20)))

    assert numbers_of(array).tolist() == array.to_pylist()
    assert str(numbers_of(array).dtype) == kind.replace("double", "float64")


@given(st.lists(st.booleans()), st.integers(0, 20), st.integers(0, 20))
def test_flags_equal_those_of_arrow(values: list[bool], begin: int, count: int) -> None:
    """The part of an array may begin within a byte."""
    array = part_of(pa.array(values, pa.bool_()), begin, count)

    assert flags_of(array).tolist() == array.to_pylist()
    assert flags_of(array).dtype == np.bool_


@given(TEXTS, st.integers(0, 5), st.integers(0, 20))
def test_texts_equal_those_of_arrow(values: list[str], begin: int, count: int) -> None:
    """Texts may be empty or have characters of several bytes, and the array may be a part of another one."""
    array = part_of(pa.array(values, pa.string()), begin, count)

    encoded, ends = text_bytes_of(array)
    assert texts_of(array) == array.to_pylist()
    assert [encoded[at:end].tobytes().decode() for at, end in pairwise(ends)] == array.to_pylist()


def test_a_null_has_no_bytes() -> None:
    """The bytes of an array with nulls are those of the other texts."""
    encoded, ends = text_bytes_of(pa.array(["a", None, "bc"]))

    assert (encoded.tobytes()[: ends[-1]], ends.tolist()) == (b"abc", [0, 1, 1, 3])


COUNTING = """
import sys
from penstock.processors.declare.column_events import ColumnEvents
from penstock.processors.operators.column_folds import count_groups, slot_groups
from penstock.processors.time.windows import Tumbling
from datetime import timedelta
from penstock.transport.codecs.json_codec import JsonCodec
from penstock.transport.message_columns import BytesColumn, MessageColumns
import numpy as np, penstock as ps

class Click(ps.Record, frozen=True):
    page: str
    at: ps.EventTime

clicks = ps.Category("clicks", Click, key="page", event_time="at", buckets=2)
lines = b'{"page":"a","at":1}\\n{"page":"b","at":2}\\n'
ends = np.array([19, 39])
values = BytesColumn(memoryview(lines), np.array([0, 20]), ends, np.array([True, True]))
messages = MessageColumns(0, np.arange(2), np.arange(2), np.ones(2, np.int8), values, values, None)
from penstock.transport.codecs.by_category import Codecs
from penstock.transport.memory import MemoryBus
codec = Codecs(MemoryBus()).of(clicks)
columns = codec.decode_columns(messages, ("page", "at"))
assert columns is not None
events = ColumnEvents(clicks, columns, lambda begin, end: codec.decode(messages[begin:end]).events)
assert events.times == [1, 2]
found = slot_groups(events.key_groups, Tumbling(timedelta(seconds=1)).assign(events.time_array), None)
assert (found.keys, found.windows) == (["a", "b"], [(0, 2, 0)])
print("pandas" in sys.modules)
"""


def test_events_are_counted_in_columns_without_pandas() -> None:
    """A worker that imported it would need 43 MiB more, and start later."""
    done = subprocess.run([sys.executable, "-c", COUNTING], capture_output=True, text=True, check=False, timeout=240)

    assert (done.stdout.strip(), done.stderr) == ("False", "")
