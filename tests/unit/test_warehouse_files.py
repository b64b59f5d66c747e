"""The warehouse's files: names, days, and a folder in which readers see no partial file."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from penstock.backfill import WarehouseError
from penstock.backfill.warehouse import DAY_MS, ArchivedFile, Days, Listing, day_of, open_warehouse
from penstock.state.files.hdfs_files import HdfsFileStore

FILE = ArchivedFile("departures", "2013-01-31", 3, 250_000)


def test_a_file_has_the_documented_path() -> None:
    """Other tools read the warehouse by this layout."""
    assert FILE.path == "category=departures/ds=2013-01-31/bucket-00003-00000000000000250000.parquet"
    assert ArchivedFile.parse("departures", *FILE.path.split("/")[1:]) == FILE


@pytest.mark.parametrize(
    ("time_ms", "day"),
    [
        (0, "1970-01-01"),
        (-1, "1969-12-31"),
        (DAY_MS - 1, "1970-01-01"),
        (DAY_MS, "1970-01-02"),
        (2**62, "9999-12-31"),
        (-(2**62), "0001-01-01"),
    ],
)
def test_every_event_time_has_a_day(time_ms: int, day: str) -> None:
    """One event with an absurd time must not stop the archiver."""
    assert day_of(time_ms) == day


def test_a_range_of_days_includes_both_ends() -> None:
    """A range of one day includes its first and its last millisecond."""
    days = Days(date(1970, 1, 2), date(1970, 1, 2))

    assert [days.contains(time) for time in (DAY_MS - 1, DAY_MS, 2 * DAY_MS - 1, 2 * DAY_MS)] == [
        False,
        True,
        True,
        False,
    ]


def test_a_written_file_can_be_read_listed_and_replaced(tmp_path: Path) -> None:
    """A file contains the last content written."""
    warehouse = open_warehouse(tmp_path)
    other = FILE._replace(day="2013-01-30")
    for file, content in [(FILE, b"first"), (other, b"other"), (FILE, b"second")]:
        warehouse.write(file, content)

    assert warehouse.read(FILE) == b"second"
    assert Listing.of(warehouse, "departures").files == (other, FILE)


def test_a_category_that_was_never_written_has_no_files(tmp_path: Path) -> None:
    """The warehouse's folder need not exist."""
    assert open_warehouse(tmp_path / "nowhere").list_folder("departures") == {}


def test_unfinished_files_are_not_listed(tmp_path: Path) -> None:
    """Readers skip the files of a killed writer."""
    warehouse = open_warehouse(tmp_path)
    warehouse.write(FILE, b"whole")
    folder = (tmp_path / FILE.path).parent
    (folder / f"_{Path(FILE.path).name}.0f").write_bytes(b"ha")

    assert Listing.of(warehouse, "departures").files == (FILE,)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk may be full. No partial file remains."""
    warehouse = open_warehouse(tmp_path)
    warehouse.write(FILE, b"whole")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("penstock.state.files.local_files.os.fsync", full)
    with pytest.raises(WarehouseError, match="was not written: No space left on device"):
        warehouse.write(FILE, b"half")

    assert [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] == [b"whole"]


def test_a_location_determines_the_kind_of_warehouse(tmp_path: Path) -> None:
    """Spark uses the same location as the archiver."""
    assert open_warehouse(str(tmp_path)).location == f"file://{tmp_path}"
    assert open_warehouse(f"file://{tmp_path}").location == f"file://{tmp_path}"
    assert isinstance(open_warehouse("hdfs://127.0.0.1:8020/warehouse").files, HdfsFileStore)
    assert open_warehouse("hdfs://127.0.0.1:8020/warehouse/").location == "hdfs://127.0.0.1:8020/warehouse"


@pytest.mark.parametrize("location", ["s3://bucket/warehouse", "hdfs://127.0.0.1:8020", "hdfs:///warehouse"])
def test_an_invalid_location_is_refused(location: str) -> None:
    """The error shows a valid location."""
    with pytest.raises(WarehouseError, match="hdfs://host:port/path"):
        open_warehouse(location)


def test_the_error_of_an_unreachable_hdfs_names_the_requested_address() -> None:
    """HDFS has two addresses; only one of them failed."""
    warehouse = open_warehouse("hdfs://127.0.0.1:8020/warehouse", "http://127.0.0.1:9")

    with pytest.raises(
        WarehouseError, match=r"was not listed: nothing listens at 127\.0\.0\.1:9\. .*http://127\.0\.0\.1:9"
    ):
        warehouse.list_folder("departures")
