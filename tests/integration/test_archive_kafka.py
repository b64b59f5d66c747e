"""The archiver on a real broker."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

import penstock as ps
from penstock.backfill.archive import Archiver, group_of
from penstock.backfill.warehouse import Listing, Warehouse, open_warehouse
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.kafka import KafkaBus


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    sensor: str
    at: ps.EventTime
    value: int


def archive(bus: KafkaBus, category: ps.Category[Reading], warehouse: Warehouse) -> None:
    """Archive all events that Kafka has now."""
    ends = bus.catalog.describe(category.name).ends
    targets = {Bucket(category.name, number): end for number, end in ends.items()}
    Archiver(bus, [category], warehouse, segment_events=150).run(lambda it: it.has_reached(targets))


def test_successive_archive_runs_archive_every_event_once(kafka_bus: KafkaBus, unique: str, tmp_path: Path) -> None:
    """Each run continues at the group's committed offsets, which may lie within a segment."""
    category = ps.Category(unique[-100:], Reading, key="sensor", event_time="at", buckets=3)
    warehouse = open_warehouse(tmp_path)
    kafka_bus.catalog.create(CategorySpec.of(category))
    writer = kafka_bus.writer()
    for first in (0, 1000):
        events = [Reading(f"s{n % 10}", n * 1000, n) for n in range(first, first + 1000)]
        writer.send(category.name, [Outgoing(event.sensor.encode(), msgspec.json.encode(event)) for event in events])
        writer.flush()
        archive(kafka_bus, category, warehouse)
    writer.close()
    files = [BytesIO(warehouse.read(file)) for file in Listing.of(warehouse, category.name).files]
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]

    assert sorted(row["value"] for row in rows) == list(range(2000))
    assert all(row["_arrived"] > 0 for row in rows)
    assert (
        kafka_bus.catalog.committed(group_of(category.name), category.name)
        == kafka_bus.catalog.describe(category.name).ends
    )
