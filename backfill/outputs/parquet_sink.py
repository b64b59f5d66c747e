"""Parquet files as a sink, at least once: a crash leaves no row twice, unless a paused worker wakes up.

    INPUT/BUCKET/FIRST-CLAIM.parquet    the rows of one checkpoint of a bucket: the first offset of its events, and a random name of the claim

A worker that dies after its rows are written and before its position is saved leaves a file that begins where its successor begins. The
successor lists the files at its claim, writes its own rows, and then deletes the listed files with the same first offset. Files with other
offsets are complete: a position is saved only after the file before it. A paused worker knows only older files, so it deletes none of its
successor's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

from ...processors.declare.processor import Processor
from ...processors.declare.records import AnyRecord
from ...processors.declare.semantics import Semantics
from ...processors.declare.sinks import Sink, SinkBatch, SinkRefused, SinkUnreachable
from ...processors.errors import DeclarationError
from ...processors.retry import Retry
from ...state.errors import FileStoreRefuses, FileStoreUnreachable, StateError
from ...state.files.file_store import open_file_store
from ...state.files.s3_files import SCHEME, VARIABLES, S3Files
from ...state.files.wrappers import retried

if TYPE_CHECKING:
    from ..warehouse.columns import Columns

T = TypeVar("T")
RETRY_LIMIT_S = 15.0
"""The time limit of a request to an unreachable store. Then the worker returns to its last checkpoint and waits."""
_ADVICE = "The position was not saved, so the rows of this checkpoint are written again: nothing is lost."


@dataclass(frozen=True)
class ParquetFiles(Sink):
    """Parquet files in a folder, on HDFS or in a bucket of S3, at least once: one for each bucket and checkpoint with rows.

    A long checkpoint interval makes large files, such as `penstock.CheckpointInterval(time=timedelta(minutes=5))`. Rows wait in memory until then.

    Args:
        location: a folder, hdfs://host:port/path with the RPC port of the NameNode, or s3://bucket/path. Each sink has a folder of its own.
        record: the type of the rows.
        webhdfs: the WebHDFS address of an HDFS location; http://host:9870 by default.

    Examples:
        >>> import penstock as ps
        >>> class Total(ps.Record, frozen=True):
        ...     user: str
        >>> ParquetFiles("/data/totals", Total).name
        'Parquet files in /data/totals'
    """

    location: str
    record: type[AnyRecord]
    webhdfs: str | None = None

    @property
    def name(self) -> str:
        """The name for messages and `penstock.To`."""
        return f"Parquet files in {self.location}"

    @property
    def semantics(self) -> frozenset[Semantics]:
        """At least once: files and positions are not one transaction."""
        return frozenset({Semantics.AT_LEAST_ONCE})

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables with the keys and the address of a bucket, as far as they are set."""
        is_bucket = self.location.startswith(f"{SCHEME}://")
        return tuple(name for name in VARIABLES if os.environ.get(name)) if is_bucket else ()

    def expect_processor(self, processor: type[Processor]) -> None:
        """Raise DeclarationError unless the first offset of its events identifies a batch."""
        if len(processor.inputs()) > 1 or processor.emits_without_input():
            raise DeclarationError(
                f"Processor {processor.__name__} writes {self.name}, which have the name of their first event, but some of its outputs follow from several "
                "inputs or from time. Nothing was read. Write to a category, and let a stateless processor copy it to the files."
            )

    def open(self) -> ParquetWriter:
        """Return a writer. The first claim connects.

        Raises:
            SinkRefused: the location is incomplete or of another kind, or the record type has no columns.
        """
        from ..warehouse.columns import Columns  # noqa: PLC0415 - imports Arrow

        try:
            return ParquetWriter(self._files(), Columns(self.record), self.name)
        except (StateError, DeclarationError) as error:
            raise SinkRefused(f"The {self.name} cannot be written. {error}") from error

    def _files(self) -> RowFolder:
        if self.location.startswith(f"{SCHEME}://"):
            return S3Files(self.location)
        return open_file_store(self.location, self.webhdfs)


class RowFolder(Protocol):
    """The folder with the files of a sink: the calls of a `FileStore` that need no condition."""

    def write(self, path: str, chunks: Iterable[bytes]) -> None:
        """Store a file; see `FileStore`."""
        ...

    def list_folder(self, folder: str) -> dict[str, int | None]:
        """Return the size of each file in a folder, and None for each subfolder; see `FileStore`."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, if it exists; see `FileStore`."""
        ...


class ParquetWriter:
    """One worker's writer. Claims may come from several threads.

    Args:
        files: the folder.
        columns: the columns of the record type.
        what: the sink, for messages.
        retry: repeats interrupted requests.
    """

    def __init__(
        self,
        files: RowFolder,
        columns: Columns,
        what: str,
        retry: Retry = Retry(RETRY_LIMIT_S),  # noqa: B008 - frozen
    ) -> None:
        self._files = files
        self._columns = columns
        self._what = what
        self._retry = retry
        self._claim = uuid4().hex[:12]
        self._earlier: dict[int, list[str]] = {}
        self._lock = threading.Lock()

    def claim(self, processor: str, bucket: int) -> str:  # noqa: ARG002 - the folder is the processor's
        """List the files that earlier workers may have left."""
        found = self._call(lambda: list(self._paths(bucket)))
        with self._lock:
            self._earlier[bucket] = found
        return ""

    def _paths(self, bucket: int) -> Iterator[str]:
        for folder, size in self._files.list_folder("").items():
            if size is None:
                path = f"{folder}/{bucket:05d}"
                yield from (f"{path}/{name}" for name in self._files.list_folder(path) if not name.startswith("."))

    def write(self, batch: SinkBatch) -> None:
        """Write a file, and delete the files that an interrupted checkpoint has left at its place."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and this module is imported by every command

        from ..warehouse.schema_evolution import content_of  # noqa: PLC0415 - imports Arrow

        [(name, first)] = batch.first.items()
        place = f"{name}/{batch.bucket:05d}/{first:020d}-"
        path = f"{place}{self._claim}.parquet"
        content = content_of(pa.Table.from_arrays(self._columns.arrays(batch.rows), schema=self._columns.schema))
        self._call(lambda: self._files.write(path, [content]))
        with self._lock:
            earlier = self._earlier.pop(batch.bucket, [])
        for old in earlier:
            if old.startswith(place) and old != path:
                self._call(lambda: self._files.delete(old))  # noqa: B023 - called within the round

    def close(self) -> None:
        """Do nothing: a store has no connection to release."""

    def _call(self, request: Callable[[], T]) -> T:
        try:
            return retried(request, self._retry, _ADVICE)
        except FileStoreRefuses as error:
            raise SinkRefused(f"The {self._what} cannot be written. {error} Correct it, and start again.") from error
        except FileStoreUnreachable as error:
            raise SinkUnreachable(str(error)) from error
        except StateError as error:
            raise SinkRefused(f"The {self._what} cannot be written. {error}") from error
