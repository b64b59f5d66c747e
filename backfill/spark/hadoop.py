"""Folders of categories as Spark sees them: on this machine, on HDFS, or wherever else its jars reach."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from ..errors import WarehouseError
from ..warehouse.layout import folder_of


class Folders:
    """The category folders below a root.

    Args:
        spark: the session whose file system is asked.
        root: the root, as Spark calls it.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        # Spark's Python side has no public way to look at or rename a folder.
        self._jvm: Any = spark._jvm  # noqa: SLF001 - as said above
        self.root = root
        self._files: Any = self._path(root).getFileSystem(
            spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - as said above
        )

    def has(self, category: str) -> bool:
        """Tell whether a category is there."""
        return bool(self._files.exists(self._path(self.of(category))))

    def of(self, category: str) -> str:
        """Return where a category lies."""
        return f"{self.root}/{folder_of(category)}"

    def within(self, folder: str) -> list[str]:
        """Return the names of what is in a folder; nothing where there is none."""
        if not self._files.exists(self._path(folder)):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._path(folder))]

    def content(self, file: str) -> bytes | None:
        """Return what is in a small file; None where there is none."""
        path = self._path(file)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, file: str, content: bytes) -> None:
        """Store a small file, and make the folders that it lies in."""
        stream = self._files.create(self._path(file), True)
        try:
            stream.write(content)
        finally:
            stream.close()

    def move(self, source: str, target: str) -> None:
        """Rename a folder; the parent of its new place exists."""
        if not self._files.rename(self._path(source), self._path(target)):
            raise WarehouseError(
                f"{source} could not be renamed to {target}. The output is not complete; see whether somebody else writes "
                "there, and run again."
            )

    def remove(self, folder: str) -> None:
        """Delete a folder and what is in it, if it is there."""
        self._files.delete(self._path(folder), True)

    def _path(self, location: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(location)
