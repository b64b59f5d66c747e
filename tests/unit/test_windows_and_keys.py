"""Windows, window keys and buckets."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.processors.declare import bucket_of
from penstock.processors.declare.partitioner import murmur2
from penstock.processors.keyed_state import decode_window_key, encode_window_key

TIMES = st.integers(-(2**62), 2**62)
LENGTHS = st.integers(1, 10**12)


@given(times=st.lists(TIMES, min_size=1), length=LENGTHS)
def test_each_time_is_in_its_tumbling_window(times: list[int], length: int) -> None:
    """Times before 1970 are included. Windows have equal lengths and do not overlap."""
    assigner = ps.windows.Tumbling(timedelta(milliseconds=length))

    for time, start in zip(times, assigner.assign(times).starts, strict=True):
        window = assigner.window(start)
        assert window.start <= time < window.end
        assert window.end - window.start == length
        assert window.start % length == 0


@given(times=st.lists(TIMES, min_size=1))
def test_the_global_window_contains_every_time(times: list[int]) -> None:
    """All times have the same window."""
    assigner = ps.windows.GlobalWindow()

    [start] = set(assigner.assign(times).starts)
    assert all(assigner.window(start).start <= time < assigner.window(start).end for time in times)


@given(key=st.text(), start=st.integers(-(2**63), 2**63 - 1))
def test_a_window_key_can_be_decoded(key: str, start: int) -> None:
    """Encoding loses neither the key nor the window."""
    assert decode_window_key(encode_window_key(key, start)) == (key, start)


@given(st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1)), min_size=2))
def test_window_keys_sort_by_window(pairs: list[tuple[str, int]]) -> None:
    """Old windows are neighbours on disk."""
    ordered = [
        decode_window_key(encoded)[1] for encoded in sorted(encode_window_key(key, start) for key, start in pairs)
    ]

    assert ordered == sorted(start for _, start in pairs)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key: bytes, expected: int) -> None:
    """The expected values come from the tests of Kafka's partitioner."""
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(key=st.binary(), buckets=st.integers(1, 1000))
def test_a_bucket_number_is_within_its_range(key: bytes, buckets: int) -> None:
    """It is neither negative nor beyond the last bucket."""
    assert 0 <= bucket_of(key, buckets) < buckets
