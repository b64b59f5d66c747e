"""Category folders through Spark's file system: local, HDFS, or any other that its jars support."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from ..errors import WarehouseError
from ..warehouse import folder_of


class Folders:
    """The category folders below a root.

    Args:
        spark: the session with the file system.
        root: the root, as a Spark path.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        # PySpark has no public API for listing or renaming folders.
        self._jvm: Any = spark._jvm  # noqa: SLF001 - as above
        self.root = root
        self._files: Any = self._path(root).getFileSystem(
            spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
        )

    def has(self, category: str) -> bool:
        """Return whether the folder of a category exists."""
        return bool(self._files.exists(self._path(self.of(category))))

    def of(self, category: str) -> str:
        """Return the folder of a category."""
        return f"{self.root}/{folder_of(category)}"

    def within(self, folder: str) -> list[str]:
        """Return the names of the entries of a folder; none if it does not exist."""
        if not self._files.exists(self._path(folder)):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._path(folder))]

    def content(self, file: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist."""
        path = self._path(file)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, file: str, content: bytes) -> None:
        """Write a small file and create its folders."""
        stream = self._files.create(self._path(file), True)
        try:
            stream.write(content)
        finally:
            stream.close()

    def move(self, source: str, target: str) -> None:
        """Rename a folder; the parent of the target exists."""
        if not self._files.rename(self._path(source), self._path(target)):
            raise WarehouseError(
                f"{source} could not be renamed to {target}. The output is incomplete. Check that no other process writes "
                "there, and run again."
            )

    def remove(self, folder: str) -> None:
        """Delete a folder with its content, if it exists."""
        self._files.delete(self._path(folder), True)

    def _path(self, location: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(location)
