"""Values for a remote store, without Spark and without the store."""

from __future__ import annotations

import random
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.step_counts import counters

import penstock as ps
from penstock.backfill.archive import archive_schema
from penstock.backfill.spark import ShippedApp
from penstock.backfill.steps import SHARD_PARTIALS, BatchStep, StoreLoad, shard_partials, store_loader
from penstock.backfill.warehouse import DAY_MS, Days, RecordColumns
from penstock.processors.apps import AppName
from penstock.processors.keyed_state import decode_window_key
from penstock.state.remote import PartialMerger

HOUR_MS = 3_600_000
START_MS = 15_706 * DAY_MS
DAYS = Days(date(2013, 1, 2), date(2013, 1, 2))
POSITIONS = {0: {"heard": 40}, 1: {"heard": 25}}


class Word(ps.Record, frozen=True):
    """A spoken word."""

    speaker: str
    at: ps.EventTime
    word: str


heard = ps.Category("heard", Word, key="speaker", event_time="at", buckets=3)


class Newest(ps.Aggregator):
    """A speaker's last word in an hour, and the number of words."""

    reads, window, store = heard, ps.windows.Tumbling(timedelta(hours=1)), ps.RemoteStore()
    monoid = ps.monoids.TupleOf(ps.monoids.LastArrived(), ps.monoids.Count())

    def observe(self, event: Word) -> tuple[str, int]:
        """Return the word for both parts."""
        return event.word, 1


def in_bus_order() -> list[tuple[int, int, Word]]:
    """Return bucket, offset and word for two days; each of three buckets has the same speakers."""
    dice = random.Random(5)
    return [
        (bucket, offset, Word(f"s{dice.randrange(3)}", START_MS + dice.randrange(2 * DAY_MS), f"w{bucket}-{offset}"))
        for bucket in range(3)
        for offset in range(60)
    ]


def stored(events: list[tuple[int, int, Word]], size: int) -> list[pa.RecordBatch]:
    """Return events as batches of the archive; a batch contains several buckets."""
    columns, batches = RecordColumns(Word), []
    for start in range(0, len(events), size):
        buckets, offsets, part = zip(*events[start : start + size], strict=True)
        times = heard.event_times_of(part)
        marks: list[list[Any]] = [list(buckets), list(offsets), heard.keys_of(part), times, times]
        schema = archive_schema(columns)
        kinds = schema.types[len(columns.schema) :]
        arrays = [*columns.arrays(part), *map(pa.array, marks, kinds)]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return batches


@pytest.mark.parametrize("flush_events", [1, 20, 1000])
@pytest.mark.parametrize("within", [DAYS, None])
def test_values_include_the_events_before_each_shards_position(
    monkeypatch: pytest.MonkeyPatch, flush_events: int, within: Days | None
) -> None:
    """They are in bus order for any split into tasks and batches. Other shards have no values."""
    monkeypatch.setattr(store_loader, "FLUSH_EVENTS", flush_events)
    step = BatchStep(ShippedApp(AppName(Path(__file__))), "Newest", "heard", counters())
    words = in_bus_order()
    refill = StoreLoad("postgresql://nowhere", POSITIONS, within)
    tasks = [shard_partials(step, refill)(iter(stored(part, 7))) for part in (words[:50], words[50:])]
    rows = [row for task in tasks for batch in task for row in batch.to_pylist()]
    order = SHARD_PARTIALS.names[:3]
    rows.sort(key=lambda row: [row[name] for name in order])
    monoid = Newest.monoid
    given = {
        (bucket, *decode_window_key(slot)): monoid.value(
            monoid.decode(PartialMerger(monoid).combined([r["partial"] for r in own]))
        )
        for (bucket, slot), own in groupby(rows, key=lambda row: (row["bucket"], row["slot"]))
    }

    truth: dict[tuple[int, str, int], tuple[str, int]] = {}
    for bucket, offset, word in words:
        slot = bucket, word.speaker, word.at - word.at % HOUR_MS
        if offset < POSITIONS.get(bucket, {}).get("heard", 0) and (within is None or within.contains(word.at)):
            truth[slot] = (word.word, truth.get(slot, ("", 0))[1] + 1)
    assert given == truth
    assert step.counters.events_in.value == 65
