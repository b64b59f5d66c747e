"""Windows, slots and buckets: the small laws that everything above them leans on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.processors.declare.partitioner import bucket_of, murmur2
from penstock.processors.keyed_state.key_layout import decode_window_key, encode_window_key

TIMES = st.integers(-(2**62), 2**62)
LENGTHS = st.integers(1, 10**12)


@given(times=st.lists(TIMES, min_size=1), length=LENGTHS)
def test_each_time_lies_in_its_tumbling_window(times: list[int], length: int) -> None:
    """Also before 1970; windows have one length and touch without overlap."""
    windowing = ps.windows.Tumbling(timedelta(milliseconds=length))

    for time, start in zip(times, windowing.assign(times).starts, strict=True):
        window = windowing.window(start)
        assert window.start <= time < window.end
        assert window.end - window.start == length
        assert window.start % length == 0


@given(times=st.lists(TIMES, min_size=1))
def test_ever_is_one_window(times: list[int]) -> None:
    """Every time lies in it."""
    windowing = ps.windows.GlobalWindow()

    [start] = set(windowing.assign(times).starts)
    assert all(windowing.window(start).start <= time < windowing.window(start).end for time in times)


@given(key=st.text(), start=st.integers(-(2**63), 2**63 - 1))
def test_a_slot_says_its_key_and_window(key: str, start: int) -> None:
    """Encoding loses nothing."""
    assert decode_window_key(encode_window_key(key, start)) == (key, start)


@given(st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1)), min_size=2))
def test_slots_lie_in_the_order_of_their_windows(slots: list[tuple[str, int]]) -> None:
    """So that those of old windows are neighbours on disk."""
    ordered = [decode_window_key(slot)[1] for slot in sorted(encode_window_key(key, start) for key, start in slots)]

    assert ordered == sorted(start for _, start in slots)


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
    """The values that Kafka's own tests of its partitioner expect."""
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(key=st.binary(), buckets=st.integers(1, 1000))
def test_a_bucket_is_one_of_those_there_are(key: bytes, buckets: int) -> None:
    """Never negative, never beyond the last."""
    assert 0 <= bucket_of(key, buckets) < buckets
