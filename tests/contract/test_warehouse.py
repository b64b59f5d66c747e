"""The seam to the warehouse: a folder, HDFS, and memory do the same."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
import pytest
from support.proxy import Proxy
from support.warehouses import MemoryWarehouse

import penstock as ps
from penstock.backfill.archive.archiver import Archiver
from penstock.backfill.archive.status import archive_status
from penstock.backfill.errors import NotStored, WarehouseError
from penstock.backfill.warehouse.columns import Columns
from penstock.backfill.warehouse.layout import Days, EventFile, Note, OtherFile, Stored, StoredFile
from penstock.backfill.warehouse.listing import Listing
from penstock.backfill.warehouse.protocols import LocalWarehouse, Warehouse, open_warehouse
from penstock.backfill.warehouse.schema_evolution import content_of, table_of
from penstock.backfill.warehouse.stored import StoredCategory
from penstock.ops.dev_services import running_hdfs
from penstock.transport.bus import Bucket, CategorySpec, Outgoing
from penstock.transport.memory import MemoryBus

FILE = StoredFile("readings", "2013-01-31", 3, 250_000, epoch=7)
WHOLE = Note("readings", "_archive.json")
OF_DAY = Note("readings", "_SUCCESS", "2013-01-31")


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A NameNode and a DataNode; their addresses."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as endpoints:
        yield endpoints


@pytest.fixture(params=["memory", "folder", "hdfs"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Each kind in turn."""
    if request.param == "hdfs":
        endpoints = request.getfixturevalue("hdfs")
        return warehouse_of(endpoints)
    return MemoryWarehouse() if request.param == "memory" else LocalWarehouse(tmp_path)


def test_files_and_notes_are_stored_listed_replaced_read_in_part_and_removed(warehouse: Warehouse) -> None:
    """Also twice; and a category of which there is nothing has no contents."""
    empty = warehouse.contents("category=readings")
    stored: list[tuple[Stored, bytes]] = [(FILE, b"first"), (WHOLE, b""), (OF_DAY, b"since"), (FILE, b"second")]
    for file, content in stored:
        warehouse.write(file, content)
    found = [warehouse.contents("category=readings"), warehouse.contents("category=readings/ds=2013-01-31")]
    parts = [warehouse.read(FILE), warehouse.read(FILE, 3), warehouse.read(WHOLE)]
    for _ in range(2):
        warehouse.remove(FILE)
    with pytest.raises(NotStored):
        warehouse.read(FILE)

    assert empty == {}
    assert found == [
        {"_archive.json": 0, "ds=2013-01-31": None},
        {"_SUCCESS": 5, "bucket-00003-00000000000000250000-e00000007.parquet": 6},
    ]
    assert parts == [b"second", b"ond", b""]
    assert warehouse.contents("category=readings/ds=2013-01-31") == {"_SUCCESS": 5}


def test_a_file_is_created_by_one_alone(warehouse: Warehouse) -> None:
    """Of many at a time; the others change nothing, and leave nothing behind."""
    contents = [bytes([number]) * 1000 for number in range(8)]
    place = Note("claimed", "_owner-00000-00000001.json")
    with ThreadPoolExecutor(len(contents)) as pool:
        created = list(pool.map(lambda content: warehouse.create(place, content), contents))
    again = warehouse.create(place, b"later")

    assert (sum(created), again) == (1, False)
    assert warehouse.read(place) == contents[created.index(True)]
    assert warehouse.contents("category=claimed") == {place.name: 1000}


class Reading(ps.Record, frozen=True):
    """A sensor's reading."""

    at: ps.EventTime
    value: int


def test_events_are_read_back_from_files_of_any_name(warehouse: Warehouse) -> None:
    """The archiver's, without those that a compacted one or a later owner's supersedes, and a batch run's."""
    days = Days.of("1970-01-01", "1970-01-02")
    schema = pa.schema([*Columns(Reading).schema, ("_key", pa.string())])
    files: dict[EventFile, list[int]] = {
        StoredFile("read", "1970-01-01", 0, 0): [1],
        StoredFile("read", "1970-01-01", 0, 5): [2],
        StoredFile("read", "1970-01-01", 0, 0, 5): [1, 2],
        StoredFile("read", "1970-01-01", 0, 10, epoch=2): [5, 6],
        StoredFile("read", "1970-01-01", 0, 10, epoch=1): [5],
        OtherFile("read", "1970-01-02", "part-0.parquet"): [3],
        OtherFile("read", "1970-01-03", "part-0.parquet"): [4],
    }
    for file, values in files.items():
        warehouse.write(file, content_of(pa.table([values, values, list("k" * len(values))], schema=schema)))
    read = [batch.column("value").to_pylist() for batch in StoredCategory.of(warehouse, "read", schema).read(days)]

    assert read == [[1, 2], [5, 6], [3]]


class Losing:
    """Loses HDFS at its third write, and finds it again when that was noticed twice."""

    def __init__(self, warehouse: Warehouse, proxy: Proxy) -> None:
        self._warehouse = warehouse
        self._proxy = proxy
        self._writes = 0
        self.noticed = 0
        self.location, self.remove = warehouse.location, warehouse.remove
        self.read, self.contents, self.create = warehouse.read, warehouse.contents, warehouse.create

    def write(self, file: Stored, content: bytes) -> None:
        """Store a file, unless HDFS is lost."""
        self._writes += 1
        if self._writes == 3:
            self._proxy.refuse()
        try:
            self._warehouse.write(file, content)
        except WarehouseError:
            self.noticed += 1
            if self.noticed == 2:
                self._proxy.resume()
            raise


def test_hdfs_that_was_away_for_a_while_has_every_event_once(hdfs: dict[str, str]) -> None:
    """The archiver asks again until it is back; nothing is left out, and nothing written twice."""
    bus = MemoryBus()
    bus.create(CategorySpec("outage", 2))
    for value in range(200):
        bus.append("outage", Outgoing(b"k", msgspec.json.encode(Reading(value, value)), value % 2))
    category = ps.Category("outage", Reading, key=lambda _: "k", event_time="at", buckets=2)
    ends = {Bucket("outage", number): end for number, end in bus.ends("outage").items()}
    address = urlsplit(hdfs["webhdfs"])
    with closing(Proxy((str(address.hostname), int(address.port or 0)))) as proxy:
        warehouse = open_warehouse(f"{hdfs['rpc']}/warehouse", f"http://127.0.0.1:{proxy.port}")
        losing = Losing(warehouse, proxy)
        Archiver(bus, [category], losing, segment_events=30).run(lambda it: it.has_reached(ends))
        tables = [table_of(warehouse.read(file)) for file in Listing.of(warehouse, "outage").files]

    assert losing.noticed >= 2
    assert sorted(row["value"] for table in tables for row in table.to_pylist()) == list(range(200))
    assert sum(day.events for day in archive_status(warehouse_of(hdfs), "outage")) == 200


def warehouse_of(hdfs: dict[str, str]) -> Warehouse:
    """Return the warehouse without anything between."""
    return open_warehouse(f"{hdfs['rpc']}/warehouse", hdfs["webhdfs"])
