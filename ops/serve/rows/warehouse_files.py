"""The tables of a warehouse and their files, in a folder or on HDFS.

<root>/category=views/ds=2026-11-24/*.parquet  --files that count--> table "views", with the column ds
<root>/prices/day=2026-11-24/*.parquet         --all files---------> table "prices", with the column day

DuckDB reads files of this machine. Files on HDFS are copied when a query needs them first; the copies have a limited size.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

from ....backfill import WarehouseError
from ....backfill.warehouse import DayOf, Listing, Warehouse, open_warehouse, settings_of
from ....processors import PenstockError

MAX_COPIED_BYTES = 10 << 30
"""The largest size of the copies of files on HDFS."""
_CATEGORY = "category="
_SUFFIX = ".parquet"


class WarehouseUnreadable(PenstockError):
    """The tables of a warehouse cannot be queried: correct the path, or the table."""


@dataclass(frozen=True)
class WarehouseFile:
    """A Parquet file.

    Args:
        path: its path below the root.
        size_bytes: its size.
        day: its UTC day, YYYY-MM-DD; empty in a table without days.
    """

    path: str
    size_bytes: int
    day: str = ""


@dataclass(frozen=True)
class WarehouseTable:
    """A table.

    Args:
        files: its files, sorted.
        is_archived: whether it is a category, with a folder for each day.
        day_column: the column whose times determine the days; empty if none does.
        schema: the columns that its files have, apart from the origin of events; None if only the files know them.
    """

    files: Sequence[WarehouseFile]
    is_archived: bool
    day_column: str = ""
    schema: pa.Schema | None = None

    @property
    def days(self) -> list[str]:
        """Its days, sorted."""
        return sorted({file.day for file in self.files})


class WarehouseFiles:
    """The files of a warehouse. Any thread may call. Close it.

    Args:
        location: a folder, or ``hdfs://host:port/path``.
        webhdfs: the WebHDFS address of an HDFS location.

    Raises:
        WarehouseError: the location is incomplete or of another kind.
        WarehouseUnreadable: there is no such folder on this machine.
    """

    def __init__(self, location: str | Path, webhdfs: str | None = None) -> None:
        self._warehouse = open_warehouse(location, webhdfs)
        place = self._warehouse.files.location
        self.location = place
        self._is_local = place.startswith("/")
        self.folder = Path(place) if self._is_local else Path(mkdtemp(prefix="penstock-warehouse-"))
        """The folder with files of this machine."""
        self._lock = threading.Lock()
        if not self.folder.is_dir():
            raise WarehouseUnreadable(
                f"The warehouse {self.location} is no folder. Nothing was read. Correct the location of --warehouse."
            )

    def tables(self) -> Mapping[str, WarehouseTable]:
        """Return the tables with files. Files that a later one replaces are left out.

        Raises:
            WarehouseUnreadable: the warehouse cannot be read.
        """
        try:
            names = [name for name, size in self._warehouse.list_folder("").items() if size is None]
            found = {name.removeprefix(_CATEGORY): self._table(name) for name in sorted(names) if name[0] not in "._"}
        except (WarehouseError, OSError) as error:
            raise WarehouseUnreadable(
                f"The warehouse {self.location} cannot be read: {error} Nothing was read. Correct the location of --warehouse."
            ) from error
        return {name: table for name, table in found.items() if table.files}

    def _table(self, folder: str) -> WarehouseTable:
        if not folder.startswith(_CATEGORY):
            return WarehouseTable(
                sorted(_below(self._warehouse, folder), key=lambda file: file.path), is_archived=False
            )
        name = folder.removeprefix(_CATEGORY)
        listing, settings = Listing.of(self._warehouse, name), settings_of(self._warehouse, name)
        files = [WarehouseFile(file.path, listing.sizes[file], file.day) for file in listing.all_files]
        by = settings.by if settings else DayOf.EVENT_TIME
        # A file of another writer, such as a backfill, has the day of its name, whatever its events say.
        return WarehouseTable(
            sorted(files, key=lambda file: file.path),
            is_archived=True,
            day_column=""
            if listing.others and by is DayOf.ARRIVAL
            else {DayOf.EVENT_TIME: "_event_time", DayOf.ARRIVAL: "_arrived"}[by],
            schema=settings.arrow if settings and not listing.others else None,
        )

    def local_paths(self, files: Sequence[WarehouseFile]) -> list[Path]:
        """Return the paths of files on this machine. Copy the ones that are elsewhere.

        Raises:
            WarehouseUnreadable: a file cannot be read.
        """
        paths = [self.folder / file.path for file in files]
        if not self._is_local:
            with self._lock:
                self._copy(files)
        return paths

    def _copy(self, files: Sequence[WarehouseFile]) -> None:
        missing = [file for file in files if not (self.folder / file.path).exists()]
        if not missing:
            return
        needed = sum(file.size_bytes for file in files)
        if needed > MAX_COPIED_BYTES:
            raise WarehouseUnreadable(
                f"The query needs {needed / 1e9:,.1f} GB of files from {self.location}, and {MAX_COPIED_BYTES / 1e9:,.1f} GB is the most. Nothing was read. "
                "Shorten its time range, add a condition on ds, or use Spark."
            )
        self._make_room({file.path for file in files}, sum(file.size_bytes for file in missing))
        for file in missing:
            target = self.folder / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}")
            try:
                with part.open("wb") as copied:
                    copied.writelines(self._warehouse.files.read(file.path))
            except (PenstockError, OSError) as error:
                part.unlink(missing_ok=True)
                raise WarehouseUnreadable(
                    f"{file.path} of {self.location} was not copied: {error} Ask again."
                ) from error
            part.replace(target)

    def _make_room(self, kept: set[str], new_bytes: int) -> None:
        """Delete the oldest copies that the query does not need, up to the largest size."""
        copies = [(path.stat(), path) for path in self.folder.rglob(f"*{_SUFFIX}")]
        size = sum(status.st_size for status, _ in copies) + new_bytes
        for status, path in sorted(copies, key=lambda each: each[0].st_mtime):
            if size <= MAX_COPIED_BYTES:
                return
            if str(path.relative_to(self.folder)) not in kept:
                path.unlink(missing_ok=True)
                size -= status.st_size

    def close(self) -> None:
        """Delete the copies."""
        if not self._is_local:
            shutil.rmtree(self.folder, ignore_errors=True)


def _below(warehouse: Warehouse, folder: str) -> Iterator[WarehouseFile]:
    """Yield the Parquet files in a folder and its subfolders."""
    for name, size in warehouse.list_folder(folder).items():
        if name[0] in "._":
            continue
        if size is None:
            yield from _below(warehouse, f"{folder}/{name}")
        elif name.endswith(_SUFFIX):
            yield WarehouseFile(f"{folder}/{name}", size)
