"""Offset ranges of a bucket: their pieces, and a bus that stops sending."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.transport.category_spec import CategorySpec
from penstock.transport.errors import BusUnreachable
from penstock.transport.memory import MemoryBus
from penstock.transport.messages import Bucket
from penstock.transport.offset_range import OffsetRange, read_offset_range

BUCKET = Bucket("words", 3)


@settings(deadline=None)
@given(start=st.integers(0, 2000), length=st.integers(0, 2000), offsets=st.integers(1, 500))
def test_pieces_cover_an_offset_range_without_gaps(start: int, length: int, offsets: int) -> None:
    """Each offset is in one piece, in order; no piece is empty or longer than the limit."""
    pieces = OffsetRange(BUCKET, start, start + length).cut(offsets)

    assert [at for piece in pieces for at in range(piece.start, piece.end)] == list(range(start, start + length))
    assert all(0 < piece.end - piece.start <= offsets and piece.bucket == BUCKET for piece in pieces)


def test_a_bus_that_stops_sending_raises_an_error() -> None:
    """The read fails instead of returning fewer events."""
    bus = MemoryBus()
    bus.create(CategorySpec("words", 4))
    seconds = count()

    with pytest.raises(BusUnreachable, match=r"words/3: the bus sent no event before offset 7 for 5 s"):
        list(read_offset_range(bus, OffsetRange(BUCKET, 0, 7), silence_limit_s=5, monotonic_s=lambda: next(seconds)))
