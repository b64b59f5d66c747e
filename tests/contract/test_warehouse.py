"""The warehouse on each file store: event files with any name, and an outage of HDFS."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
import pytest
from support.proxy import Proxy
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.archive import Archiver, archive_status
from penstock.backfill.warehouse import (
    ArchivedFile,
    Days,
    EventFile,
    Listing,
    RecordColumns,
    StoredCategory,
    Warehouse,
    content_of,
    open_warehouse,
    table_of,
)
from penstock.backfill.warehouse.layout import OtherFile
from penstock.state import FileStoreUnreachable
from penstock.state.files import FileStore
from penstock.state.files.wrappers import WrappedFileStore
from penstock.transport import Bucket, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

T = TypeVar("T")


@pytest.fixture(params=["memory", "folder", "hdfs"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Each kind of file store."""
    if request.param == "hdfs":
        endpoints = request.getfixturevalue("hdfs")
        return warehouse_of(endpoints)
    return MemoryWarehouse() if request.param == "memory" else open_warehouse(tmp_path)


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    at: ps.EventTime
    value: int


def test_events_are_read_from_files_with_any_name(warehouse: Warehouse) -> None:
    """The warehouse reads the archiver's files except superseded ones, and a batch run's files."""
    days = Days.of("1970-01-01", "1970-01-02")
    schema = pa.schema([*RecordColumns(Reading).schema, ("_key", pa.string())])
    files: dict[EventFile, list[int]] = {
        ArchivedFile("read", "1970-01-01", 0, 0): [1],
        ArchivedFile("read", "1970-01-01", 0, 5): [2],
        ArchivedFile("read", "1970-01-01", 0, 0, 5): [1, 2],
        ArchivedFile("read", "1970-01-01", 0, 10, epoch=2): [5, 6],
        ArchivedFile("read", "1970-01-01", 0, 10, epoch=1): [5],
        OtherFile("read", "1970-01-02", "part-0.parquet"): [3],
        OtherFile("read", "1970-01-03", "part-0.parquet"): [4],
    }
    for file, values in files.items():
        warehouse.write(file, content_of(pa.table([values, values, list("k" * len(values))], schema=schema)))
    read = [batch.column("value").to_pylist() for batch in StoredCategory.of(warehouse, "read", schema).read(days)]

    assert read == [[1, 2], [5, 6], [3]]


class Losing(WrappedFileStore):
    """Loses HDFS at its third write, and recovers after two failed attempts."""

    def __init__(self, files: FileStore, proxy: Proxy) -> None:
        super().__init__(files)
        self._proxy = proxy
        self._writes = 0
        self.noticed = 0

    def _call(self, request: Callable[[], T]) -> T:
        return request()

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file, unless HDFS is lost."""
        self._writes += 1
        if self._writes == 3:
            self._proxy.refuse()
        try:
            super().write(path, chunks)
        except FileStoreUnreachable:
            self.noticed += 1
            if self.noticed == 2:
                self._proxy.resume()
            raise


def test_every_event_is_archived_once_after_an_outage_of_hdfs(hdfs: dict[str, str]) -> None:
    """The archiver retries until HDFS is back; it skips nothing and writes nothing twice."""
    bus = MemoryBus()
    bus.create(CategorySpec("outage", 2))
    for value in range(200):
        bus.append("outage", Outgoing(b"k", msgspec.json.encode(Reading(value, value)), value % 2))
    category = ps.Category("outage", Reading, key=lambda _: "k", event_time="at", buckets=2)
    ends = {Bucket("outage", number): end for number, end in bus.ends("outage").items()}
    address = urlsplit(hdfs["webhdfs"])
    with closing(Proxy((str(address.hostname), int(address.port or 0)))) as proxy:
        warehouse = open_warehouse(f"{hdfs['rpc']}/warehouse", f"http://127.0.0.1:{proxy.port}")
        losing = Losing(warehouse.files, proxy)
        Archiver(bus, [category], Warehouse(losing), segment_events=30).run(lambda it: it.has_reached(ends))
        tables = [table_of(warehouse.read(file)) for file in Listing.of(warehouse, "outage").files]

    assert losing.noticed >= 2
    assert sorted(row["value"] for table in tables for row in table.to_pylist()) == list(range(200))
    assert sum(day.events for day in archive_status(warehouse_of(hdfs), "outage")) == 200


def warehouse_of(hdfs: dict[str, str]) -> Warehouse:
    """Return the warehouse of the files."""
    return open_warehouse(f"{hdfs['rpc']}/warehouse", hdfs["webhdfs"])
