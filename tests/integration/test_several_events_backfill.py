"""Messages with several events in the archive and in Spark. This file is also the app of the backfill, so it imports nothing that Spark's processes lack."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.backfill.archive import Archiver
from penstock.backfill.run import run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import RecordColumns, open_warehouse
from penstock.ops.look_back import BusEventSource, PastRange
from penstock.ops.look_back.replay.archive_source import ArchiveEventSource
from penstock.processors.apps import AppName
from penstock.testing import Driver
from penstock.transport import Bucket

FIRST = datetime(2024, 2, 1, tzinfo=UTC)
HALF_DAY_MS = 12 * 3_600_000


class Step(ps.Record, frozen=True):
    """A step of a walk."""

    walk: str
    at: ps.EventTime
    number: int


class WalkPath(ps.Record, frozen=True):
    """The steps of a walk so far."""

    walk: str
    at: ps.EventTime
    numbers: str


class InOrder(ps.monoids.Monoid[str]):
    """Texts in the order of their events."""

    def identity(self) -> str:
        """Return an empty text."""
        return ""

    def combine(self, left: str, right: str) -> str:
        """Return both texts."""
        return left + right


steps = ps.Category(
    "steps", Step, key="walk", event_time="at", buckets=1, codec=ps.codecs.JsonArray(), partitioner=None
)
paths = ps.Category("paths", WalkPath, key="walk", event_time="at", buckets=1)
whole_paths = ps.Category("whole_paths", WalkPath, key="walk", event_time="at", buckets=1)


class Paths(ps.Stateful[Step, str, WalkPath]):
    """Lists the steps of each walk: the result depends on the order of events."""

    reads, writes, state, key_check = steps, paths, str, False
    on_undecodable = ps.ErrorPolicy.DEAD_LETTER

    def process(self, event: Step, state: str | None, context: ps.Context) -> tuple[str, list[WalkPath]]:
        """Return the steps so far."""
        numbers = f"{state or ''} {event.number}"
        return numbers, [WalkPath(event.walk, event.at, numbers)]


class WholePaths(ps.Aggregator):
    """The same for whole days."""

    reads, writes, key_check = steps, whole_paths, False
    monoid, window = InOrder(), ps.windows.Tumbling(timedelta(days=1))
    on_undecodable = ps.ErrorPolicy.DEAD_LETTER

    def observe(self, event: Step) -> str:
        """Return the number."""
        return f" {event.number}"

    def result(self, key: str, window: ps.windows.Window, value: str) -> WalkPath:
        """Return the numbers of a day."""
        return WalkPath(key, window.start, value)


def arrays() -> list[bytes]:
    """Return arrays of steps of three walks, whose event times alternate between two days, and a malformed one."""
    dice, number = random.Random(3), iter(range(1_000_000))
    start = int(FIRST.timestamp() * 1000)

    def step() -> dict[str, Any]:
        n = next(number)
        return {"walk": f"w{dice.randrange(3)}", "at": start + n + HALF_DAY_MS * dice.randrange(4), "number": n}

    found = [json.dumps([step() for _ in range(dice.randrange(9))]).encode() for _ in range(60)]
    return [*found, json.dumps([step(), {**step(), "number": "many"}, step()]).encode(), b"nonsense"]


def test_a_backfill_and_an_archived_replay_equal_the_stream(tmp_path: Path) -> None:
    """The order of the events within a message counts, also across days; a bad event is left out alone."""
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or later on PATH: arrays do not pass through Spark")
    driver = Driver([Paths, WholePaths])
    driver.send(steps, arrays())
    bus, warehouse = driver.bus, open_warehouse(tmp_path / "warehouse")
    ends = {Bucket(steps.name, 0): bus.describe(steps.name).ends[0]}
    archiver = Archiver(bus, [steps], warehouse)
    archiver.run(lambda it: it.has_reached(ends))
    batch: dict[str, list[Any]] = {}
    days = FIRST.date(), FIRST.date() + timedelta(days=2)
    with spark_session("local[2]"):
        for processor, output in ((Paths, paths), (WholePaths, whole_paths)):
            folder, app = tmp_path / output.name, AppName(Path(__file__), processor.__name__)
            run_backfill(app, warehouse, first=days[0], last=days[1], output=open_warehouse(folder), master="local[2]")
            columns = RecordColumns(output.record)
            table = pq.read_table(folder / f"category={output.name}").select(columns.schema.names)
            batch[output.name] = [record for part in table.to_batches() for record in columns.records(part)]
    archived, live = (
        [
            (offset, event)
            for part in source.read(steps, source.stretch(Bucket(steps.name, 0), PastRange(0, None)))
            for offset, event in zip(part.offsets, part.events, strict=False)
        ]
        for source in (ArchiveEventSource(Paths(), warehouse, bus), BusEventSource(Paths(), bus))
    )

    assert sorted(batch["paths"], key=repr) == sorted(driver.read(paths), key=repr)
    last = {(path.walk, path.at): path for path in driver.read(whole_paths)}
    assert sorted(batch["whole_paths"], key=repr) == sorted(last.values(), key=repr)
    assert archived == live
    assert len(live) == len(driver.read(paths)) > 200
