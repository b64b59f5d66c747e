"""The watermarks of a category's writers, beside the definition that they follow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from penstock.ops.kernel.event_time.upstream_shards import MAX_LEVELS, UpstreamShards
from penstock.ops.kernel.event_time.watermark_subscriber import BucketWatermarks
from penstock.processors.time import NEVER_MS
from penstock.transport import Bucket
from penstock.transport.tables import WatermarkStatement

SHARDS = 3


class Published(NamedTuple):
    """A statement of one shard.

    Args:
        shard: the shard.
        passed_ms: how much its watermark has increased.
        written: how many events all shards have written since the last statement.
        idle: whether it is idle.
        begins: whether consumers read it together with the earlier ones.
    """

    shard: int
    passed_ms: int
    written: int
    idle: bool
    begins: bool


published = st.builds(
    Published, st.integers(0, SHARDS - 1), st.integers(0, 9), st.integers(0, 2), st.booleans(), st.booleans()
)


def _statements(drawn: Sequence[Published]) -> list[list[WatermarkStatement]]:
    """Return the statements, by the reads of a consumer."""
    end, watermarks_ms, reads = 0, [0] * SHARDS, [list[WatermarkStatement]()]
    ends = {"hours": {0: 0, 1: 0}}
    for as_of, each in enumerate(drawn):
        end += each.written
        watermarks_ms[each.shard] += each.passed_ms
        if each.begins:
            reads.append([])
        if each.written:
            ends = {"hours": {0: end, 1: end // 2}}
        at_ms = watermarks_ms[each.shard]
        reads[-1].append(WatermarkStatement("up", each.shard, SHARDS, at_ms, ends, at_ms, idle=each.idle, as_of=as_of))
    return reads


def _expected(said: Sequence[WatermarkStatement], number: int, position: int, fresh_from: int) -> int:
    """Return the least watermark of the shards that may still write; the greatest if none may."""
    may_write, all_ms = [], []
    for shard in range(SHARDS):
        own = [one for one in said if one.bucket == shard]
        if not own:
            return NEVER_MS
        repeats = [a.idle and b.idle and a.watermark_ms == b.watermark_ms for a, b in pairwise(own)]
        counts = [own[0], *(one for one, repeated in zip(own[1:], repeats, strict=True) if not repeated)]
        read = [one.ends["hours"][number] <= position for one in counts]
        reached_ms = max(
            (one.watermark_ms for one, is_read in zip(counts, read, strict=True) if is_read), default=NEVER_MS
        )
        all_ms.append(reached_ms)
        if not (own[-1].idle and all(read) and own[-1].as_of >= fresh_from):
            may_write.append(reached_ms)
    return min(may_write, default=max(all_ms))


@given(
    drawn=st.lists(published, max_size=40),
    positions=st.lists(st.integers(0, 4), max_size=40),
    fresh_from=st.integers(0, 40),
)
def test_each_bucket_has_the_least_watermark_of_the_shards_that_may_write(
    drawn: list[Published], positions: list[int], fresh_from: int
) -> None:
    """Statements arrive while both buckets are read at their own pace. Some idle shards no longer report."""
    upstream, said, at = UpstreamShards("hours"), list[WatermarkStatement](), [0, 0]
    boards = [BucketWatermarks(Bucket("hours", n), upstream, lambda one: one.as_of >= fresh_from) for n in (0, 1)]
    steps = [(step % 2, read) for step, read in enumerate(positions)]
    for statements in _statements(drawn):
        upstream.record([(one.owner, one) for one in statements])
        said += statements
        number, read = steps.pop() if steps else (0, 1)
        at[number] += read

        assert [boards[n].at(at[n]).watermark_ms for n in (0, 1)] == [
            _expected(said, n, at[n], fresh_from) for n in (0, 1)
        ]


def test_a_lagging_bucket_keeps_its_watermark_while_earlier_ones_are_thinned() -> None:
    """Of many unread watermarks, only some are kept. They apply later than all would, never earlier, and never go back."""
    upstream, said, found = UpstreamShards("hours"), list[WatermarkStatement](), list[int]()
    lagging = BucketWatermarks(Bucket("hours", 0), upstream)
    drawn = [Published(step % SHARDS, 5, 1, idle=False, begins=True) for step in range(5 * MAX_LEVELS)]
    for statements in _statements(drawn)[1:]:
        upstream.record([(one.owner, one) for one in statements])
        said += statements
        position = len(said) // 3
        found.append(lagging.at(position).watermark_ms)
        assert found[-1] <= _expected(said, 0, position, 0)

    assert found == sorted(found)
    assert len(set(found)) > MAX_LEVELS / 8
    assert lagging.at(len(said)).watermark_ms == _expected(said, 0, len(said), 0)


def test_a_look_at_a_bucket_asks_for_a_few_of_many_idle_shards() -> None:
    """A worker with many buckets looks at all of them in each turn, so a look must not go over all shards."""
    shards, asked = 1_000, list[WatermarkStatement]()
    ends = {"hours": {0: 0}}
    upstream = UpstreamShards("hours")
    idle = [WatermarkStatement("up", n, shards, 5, ends, 5, idle=True, as_of=n) for n in range(shards)]
    upstream.record([(one.owner, one) for one in idle])

    def is_fresh(statement: WatermarkStatement) -> bool:
        asked.append(statement)
        return statement.as_of >= shards // 2

    found = BucketWatermarks(Bucket("hours", 0), upstream, is_fresh).at(0)

    assert found.watermark_ms == 5
    assert "has not been heard from" in found.held_by
    assert len(asked) < 20
