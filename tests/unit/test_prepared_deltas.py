"""Prepared deltas of any size: in parts, which are prepared, applied and dropped together."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.processors.shard import StatePosition
from penstock.state import Delta, ShardIdentity
from penstock.state.local import RocksStateFolder, rocksdb

ME = ShardIdentity("totals", 0, "int")
Changes = st.dictionaries(st.binary(min_size=1, max_size=3), st.none() | st.binary(max_size=30), max_size=10)


@settings(deadline=None, max_examples=30)
@given(first=Changes, second=Changes, part_bytes=st.integers(1, 100), is_applied=st.booleans())
def test_a_delta_is_prepared_in_parts_as_in_one(
    first: dict[bytes, bytes | None], second: dict[bytes, bytes | None], part_bytes: int, is_applied: bool
) -> None:
    """A later one replaces all parts of it; after a restart it is applied or dropped as a whole."""
    deltas = [
        Delta({"events": number}, StatePosition({"events": number + 1}), changes)
        for number, changes in enumerate((first, second))
    ]
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(rocksdb, "PART_BYTES", part_bytes)
        states = RocksStateFolder(Path(folder))
        state = states.open(ME)
        for delta in deltas:
            state.prepare(delta)
        state.close()
        state = states.open(ME)
        prepared = state.prepared()
        if is_applied:
            state.apply()
        else:
            state.discard()
        found, left = dict(state.items()), state.prepared()
        state.prepare(deltas[0])
        again = state.prepared()
        state.close()

    assert prepared == deltas[1]
    assert found == ({key: value for key, value in second.items() if value is not None} if is_applied else {})
    assert left is None
    assert again == deltas[0]
