"""A worker that stops at offsets, although its buckets continue."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machines import Machine, create_categories, read, write
from support.resets import EXACT, generate_readings, readings, totals
from support.snapshots import checked

import penstock as ps
from penstock.ops.kernel import RunLimits
from penstock.ops.kernel.loop.offset_limits import OffsetLimits
from penstock.state.files import LocalFileStore
from penstock.transport import Bucket, End, MessageCopy, Polled, RawBatch
from penstock.transport.memory import MemoryBus


@given(st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=8).map(sorted), st.integers(0, 31))
def test_only_offsets_below_the_limit_remain_and_the_bucket_ends_there(offsets: list[int], limit: int) -> None:
    """Offsets may have gaps, as after transactions."""
    bucket = Bucket("orders", 0)
    batch = RawBatch(bucket, [MessageCopy(b"", offset=offset) for offset in offsets])
    applied = OffsetLimits({bucket: limit}).applied(Polled([batch], []))
    other = OffsetLimits({Bucket("orders", 1): 0}).applied(Polled([batch], [End(bucket, 31)]))

    assert [offset for one in applied.batches for offset in one.offsets()] == [each for each in offsets if each < limit]
    assert applied.ended == ([End(bucket, limit)] if offsets[-1] >= limit else [])
    assert other == Polled([batch], [End(bucket, 31)])


class Both(ps.Stateful):
    """Writes the number of the events of two inputs that it has read."""

    name = "both"
    reads, writes, state = (readings, checked), totals, int
    output_semantics, deterministic = EXACT, False

    def process(self, event: object, state: int | None, context: ps.Context) -> tuple[int, list[object]]:
        """Count."""
        return (state or 0) + 1, []


@pytest.mark.parametrize("limit", [0, 7])
def test_a_worker_saves_exactly_the_limit_of_one_input_and_the_end_of_another(tmp_path: Path, limit: int) -> None:
    """An input that has reached its limit does not hold up the other one, whose events arrived later."""
    machine = Machine(tmp_path / "machine", MemoryBus(), LocalFileStore(tmp_path / "place"))
    create_categories(machine.bus, [Both])
    for category in (readings, checked):
        write(machine.bus, category, generate_readings(0, 60))
    machine.run(Both, limits=RunLimits({Bucket("readings", number): limit for number in (0, 1)}))

    assert {number: machine.bus.committed("both", "readings").get(number, 0) for number in (0, 1)} == {
        0: limit,
        1: limit,
    }
    assert machine.bus.committed("both", "checked") == machine.bus.ends("checked")
    assert not read(machine.bus, totals)
