"""Events and outputs of a batch run as blocks in Spark's shuffle, without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.backfill.outputs import OutputBlocks, output_blocks
from penstock.backfill.steps import EventBlocks, OutputRows, PartOf, Split, event_blocks
from penstock.backfill.warehouse import DAY_MS, ELEMENT, MARKS, day_of
from penstock.state.files import LocalFileStore


@pytest.fixture(autouse=True, params=[1, 300, 1_000_000], ids="packed by {} bytes".format, scope="module")
def packed_bytes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let tasks pack little or much at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_blocks, "PACKED_BYTES", request.param)
        patch.setattr(output_blocks, "PACKED_BYTES", request.param)
        patch.setattr(output_blocks, "ROW_GROUP_BYTES", request.param)
        yield


def in_batches(rows: pa.Table, dice: random.Random) -> list[pa.RecordBatch]:
    """Split rows anywhere."""
    cuts = sorted({0, rows.num_rows, *(dice.randrange(rows.num_rows + 1) for _ in range(3))})
    parts = [rows.slice(begin, end - begin) for begin, end in pairwise(cuts)]
    return [batch for part in parts for batch in part.combine_chunks().to_batches()]


EVENTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 1), st.sampled_from([None, "a", "b", "ä", ""])), max_size=80
)


@given(EVENTS, st.sampled_from(PartOf), st.integers(1, 3), st.integers(1, 60), st.randoms(use_true_random=False))
def test_each_part_has_the_events_of_its_keys_or_buckets_in_bus_order(
    events: list[tuple[int, int, str | None]], by: PartOf, parts: int, range_offsets: int, dice: random.Random
) -> None:
    """Tasks may read and pack them in any way. Messages may have several events, and offsets may have gaps."""
    schema = pa.schema([MARKS.field("_bucket"), MARKS.field("_offset"), ELEMENT, MARKS.field("_key")])
    offsets = [3 * number - 30 for number in range(len(events))]
    sent = [
        (bucket, at // (1 + element), element, key) for at, (bucket, element, key) in zip(offsets, events, strict=True)
    ]
    sent = list({row[:3]: row for row in sent}.values())
    read = dice.sample(sent, len(sent))
    rows = pa.Table.from_arrays(
        [pa.array(list(column), field.type) for column, field in zip(zip(*read, strict=True), schema, strict=True)]
        if read
        else [pa.array([], field.type) for field in schema],
        schema=schema,
    )
    blocks = EventBlocks.of(schema, Split(by, parts), range_offsets)
    half = dice.randrange(rows.num_rows + 1)
    packed = [
        batch
        for task in (rows.slice(0, half), rows.slice(half))
        for batch in blocks.packed(iter(in_batches(task, dice)))
    ]

    unpacked: list[list[tuple[int, int, int, str | None]]] = []
    for part in range(parts):
        of_part = [batch.filter(pc.field("part") == part) for batch in packed]
        sorted_blocks = (
            pa.Table.from_batches(of_part).sort_by([("bucket", "ascending"), ("range", "ascending")])
            if of_part
            else None
        )
        batches = sorted_blocks.to_batches() if sorted_blocks else []
        unpacked.append([tuple(row.values()) for batch in blocks.unpacked(iter(batches)) for row in batch.to_pylist()])

    def common(event: tuple[int, int, int, str | None]) -> object:
        return event[0] if by is PartOf.BUCKET else event[3] or ""

    wholes = [{common(event) for event in part} for part in unpacked]
    assert sum(map(len, wholes)) == len(set(map(common, sent)))
    assert [sorted(event for event in sent if common(event) in whole) for whole in wholes] == unpacked


class Click(ps.Record, frozen=True):
    """A click."""

    user: str
    at: ps.EventTime
    pages: list[str] | None = None


class Count(ps.Record, frozen=True):
    """A number of clicks."""

    user: str
    at: ps.EventTime
    count: int


clicks = ps.Category("clicks", Click, key="user", event_time="at")
copies = ps.Category("copies", Click, key="user", event_time="at")
counts = ps.Category("counts", Count, key="user", event_time="at")


class Copy(ps.Stateless):
    """Writes to two categories."""

    reads, writes = clicks, (copies, counts)

    def process(self, event: Click) -> list[ps.Record]:
        """Copy and count the event."""
        return [event, Count(event.user, event.at, 1)]


CLICKS = st.builds(
    Click,
    user=st.sampled_from("ab"),
    at=st.integers(-3 * DAY_MS, 3 * DAY_MS),
    pages=st.none() | st.lists(st.sampled_from(["x", "y"]), max_size=2),
)
OUTPUTS = st.lists(
    st.lists(
        CLICKS | st.builds(Count, user=st.sampled_from("ab"), at=st.integers(-DAY_MS, DAY_MS), count=st.integers(0, 9))
    )
)


@given(OUTPUTS)
def test_each_day_is_one_file_with_its_outputs_in_order(tasks: Sequence[Sequence[Click | Count]]) -> None:
    """Each category has its own file of the day, in which the outputs of the first task come first."""
    form, rows = OutputBlocks.of(Copy), OutputRows(Copy)
    numbered = [
        batch.set_column(2, batch.schema.field("task"), pa.array([task] * batch.num_rows, pa.int32()))
        for task, outputs in enumerate(tasks)
        for batch in form.blocks_of(rows.batches(outputs))
    ]
    names = ("name", "day", "task", "number")
    in_order = pa.Table.from_batches(numbered).sort_by([(name, "ascending") for name in names]) if numbered else None
    blocks = in_order.to_batches() if in_order else []
    with TemporaryDirectory() as folder:
        paths = list(form.files_of(blocks, LocalFileStore(Path(folder)), lambda name, day: f"{name}/{day}.parquet"))
        written = {path: pq.read_table(f"{folder}/{path}", partitioning=None).to_pylist() for path in paths}
        assert sorted(paths) == sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.parquet"))

    expected: dict[str, list[tuple[object, ...]]] = {}
    for output in (output for outputs in tasks for output in outputs):
        name, last = ("copies", output.pages) if isinstance(output, Click) else ("counts", output.count)
        row = (output.user, output.at, last, output.user, output.at)
        expected.setdefault(f"{name}/{day_of(output.at)}.parquet", []).append(row)
    assert {path: [tuple(row.values()) for row in found] for path, found in written.items()} == expected
