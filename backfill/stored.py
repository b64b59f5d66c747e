"""Reading what the warehouse and the batch keep, without Spark: one category, day by day, as record batches.

    <root>/category=departures/ds=2013-01-31/*.parquet --only some keys, only some columns--> record batches

Files in the making begin with an underscore or a dot and are passed over, as Spark does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ..state.webhdfs import HdfsFolder, WebHdfsError
from .columns import DAY_COLUMN
from .errors import WarehouseError
from .hdfs_warehouse import ANSWER_LIMIT_S
from .layout import aside_name, folder_of

COMPLETE = "_SUCCESS"
"""The file that says of a day's folder that nothing more is to come."""


class Tree(Protocol):
    """Folders of files, by relative paths with slashes. Calls may be repeated; all raise WarehouseError."""

    @property
    def location(self) -> str:
        """What it is called."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder, sorted; nothing where there is none."""
        ...

    def open(self, path: str) -> Any:
        """Return a file as Arrow reads it."""
        ...


class LocalTree:
    """A folder on this machine.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def location(self) -> str:
        """What it is called."""
        return str(self._root)

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder, sorted."""
        with _explained(f"{self._root / folder} was not listed"):
            found = self._root / folder
            return sorted(path.name for path in found.iterdir()) if found.is_dir() else []

    def open(self, path: str) -> Any:
        """Return a file as Arrow reads it: only what is asked for."""
        with _explained(f"{self._root / path} was not read"):
            return pa.OSFile(str(self._root / path), "r")


class HdfsTree:
    """A folder on HDFS, over WebHDFS.

    Args:
        location: ``hdfs://host:port/path``.
        webhdfs: the address of WebHDFS, ``http://host:port``.
    """

    def __init__(self, location: str, webhdfs: str) -> None:
        self._folder = HdfsFolder(location, webhdfs, answer_limit_s=ANSWER_LIMIT_S, aside_name=aside_name)

    @property
    def location(self) -> str:
        """What it is called."""
        return self._folder.location

    def names(self, folder: str) -> list[str]:
        """Return what is in a folder, sorted."""
        with _explained(f"{self.location}/{folder} was not listed"):
            return sorted(self._folder.contents(folder))

    def open(self, path: str) -> Any:
        """Return a file as Arrow reads it, all of it in memory."""
        with _explained(f"{self.location}/{path} was not read"):
            return pa.BufferReader(b"".join(self._folder.read(path)))


def open_tree(location: str, webhdfs: str | None = None) -> Tree:
    """Return the files at a location that `open_warehouse` takes; `webhdfs` is as there."""
    parts = urlsplit(location)
    if parts.scheme == "hdfs":
        return HdfsTree(location, webhdfs or f"http://{parts.hostname}:9870")
    return LocalTree(Path(parts.path if parts.scheme == "file" else location))


class StoredCategory:
    """What is stored of a category.

    Args:
        tree: where it is.
        name: its name.
        schema: the columns that are read; those that a file does not have are null.
    """

    def __init__(self, tree: Tree, name: str, schema: pa.Schema) -> None:
        self._tree = tree
        self._folder = folder_of(name)
        self._schema = schema

    def days(self) -> list[str]:
        """Return the days of which something is stored, YYYY-MM-DD, in order."""
        marked = [name for name in self._tree.names(self._folder) if name.startswith(f"{DAY_COLUMN}=")]
        return [name.removeprefix(f"{DAY_COLUMN}=") for name in marked]

    def is_complete(self, day: str) -> bool:
        """Tell whether nothing more is to come of a day."""
        return COMPLETE in self._tree.names(self._folder_of(day))

    def files(self, day: str) -> list[str]:
        """Return the names of a day's files."""
        return [name for name in self._tree.names(self._folder_of(day)) if name[0] not in "._"]

    def read(
        self,
        day: str,
        *,
        key: str | None = None,
        columns: Sequence[str] | None = None,
        files: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Give what is stored of a day.

        Args:
            day: the UTC day, YYYY-MM-DD.
            key: only this key; None for all.
            columns: only these; None for all.
            files: only these files of the day; None for all.
        """
        wanted = None if key is None else pc.field("_key") == key
        schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
        # Arrow's own type for filters and its stubs disagree; every column that is not in a file is null.
        of_all = pa.schema([field.with_nullable(True) for field in self._schema])
        for name in self.files(day) if files is None else files:
            path = f"{self._folder_of(day)}/{name}"
            fragment = ds.ParquetFileFormat().make_fragment(self._tree.open(path))
            with _explained(f"{self._tree.location}/{path} was not read"):
                found = fragment.to_batches(schema=of_all, columns=schema.names, filter=cast("Any", wanted))
                yield from (batch for batch in found if batch.num_rows)

    def _folder_of(self, day: str) -> str:
        return f"{self._folder}/{DAY_COLUMN}={day}"


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except WebHdfsError as error:
        raise WarehouseError(
            f"{error} Nothing was changed; ask again then."
        ) from error  # it names the file and the address
    except (OSError, pa.ArrowInvalid) as error:
        raise WarehouseError(
            f"{what}: {error} Nothing was changed. See whether the file is whole and may be read, and ask again."
        ) from error
