"""Memory of backfills and bootstraps for one key with ten million events, and for ten million keys.

    python benchmarks/backfill_memory.py [--events 10000000]

Prints the maximum memory of a Python worker of Spark, beside its memory after imports; Spark limits Java's heap (1 GiB).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from backfill_run import HERE, imported, measured_processes
from keys_app import Tick, ticks

from penstock.backfill.archive import archive_schema
from penstock.backfill.run import BootstrapTarget, bootstrap, run_backfill
from penstock.backfill.spark import spark_session
from penstock.backfill.warehouse import (
    ARCHIVE,
    ArchivedFile,
    ArchiveSettings,
    BucketNote,
    DayOf,
    Note,
    OffsetTime,
    RecordColumns,
    Warehouse,
    bucket_note,
    bucket_notes,
    content_of,
    day_of,
    open_warehouse,
    write_note,
)
from penstock.processors.apps import AppName
from penstock.processors.time import BucketProgress
from penstock.state.files import open_file_store
from penstock.transport import Bucket, CategorySpec
from penstock.transport.memory import MemoryBus

SEGMENT = 250_000
START_MS = 1_700_006_400_000
"""The start of a day."""
APP = HERE / "keys_app.py"


def main() -> None:
    """Measure and print each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000, help="the number of events")
    count = parser.parse_args().events
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(HERE)
    with TemporaryDirectory() as folder, spark_session("local[2]") as spark:
        with measured_processes() as usage:
            spark.range(0, 200_000, 1, 4).mapInArrow(imported, "id long").count()
        print(f"imports alone: {usage[2]:,.0f} MiB", flush=True)
        for name, keys in (("one key", 1), (f"{count:,} keys", count)):
            warehouse = open_warehouse(Path(folder) / f"of-{keys}")
            fill(warehouse, count, keys)
            for job, work in works(warehouse, Path(folder) / f"out-{keys}").items():
                with measured_processes() as usage:
                    work()
                print(f"{name:16} {job:20} {usage[0]:6.0f} s, a worker: {usage[2]:,.0f} MiB", flush=True)


def works(warehouse: Warehouse, folder: Path) -> dict[str, Callable[[], object]]:
    """Return the measured jobs by name."""
    day = date.fromisoformat(day_of(START_MS))

    def backfill(processor: str) -> Callable[[], object]:
        return lambda: run_backfill(
            AppName(APP, processor), warehouse, first=day, last=day, output=open_warehouse(folder / processor)
        )

    def build() -> object:
        return bootstrap(
            AppName(APP, "Totals"),
            warehouse,
            BootstrapTarget(expired_bus(warehouse), open_file_store(str(folder / "backup"), None)),
        )

    return {"stateful": backfill("Totals"), "aggregator": backfill("Hours"), "bootstrap, stateful": build}


def expired_bus(warehouse: Warehouse) -> MemoryBus:
    """Return the bus of an archive whose events have all expired there."""
    bus = MemoryBus()
    bus.catalog.create(CategorySpec.of(ticks))
    for bucket, note in bucket_notes(warehouse, ticks.name).items():
        log = bus.cluster.log(Bucket(ticks.name, bucket))
        log.start = log.end = note.marks[-1].offset
    return bus


def fill(warehouse: Warehouse, count: int, keys: int) -> None:
    """Write an archive of `count` events of one day, like the archiver: keys in turn, each in its bucket."""
    schema = archive_schema(RecordColumns(Tick))
    write_note(warehouse, Note(ticks.name, ARCHIVE), ArchiveSettings.of(DayOf.EVENT_TIME, SEGMENT, schema))
    began_s, buckets = time.monotonic(), min(keys, ticks.buckets)
    for bucket in range(buckets):
        for segment in range(0, count // buckets, SEGMENT):
            offsets = np.arange(segment, min(segment + SEGMENT, count // buckets))
            names = pa.array((offsets * buckets + bucket) % keys).cast(pa.string())
            times = START_MS + offsets * 86_000_000 // count
            marks = [np.full(len(offsets), bucket, np.int32), offsets, names, times, times]
            table = pa.table([names, times, offsets % 10, *marks], schema=schema)
            warehouse.write(ArchivedFile(ticks.name, day_of(START_MS), bucket, segment), content_of(table))
        end = OffsetTime(count // buckets, BucketProgress())
        write_note(warehouse, bucket_note(ticks.name, bucket, epoch=1), BucketNote((end,), ()))
    print(f"{count:,} events of {keys:,} keys written in {time.monotonic() - began_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
