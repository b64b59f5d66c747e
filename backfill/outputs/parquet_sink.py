"""Parquet files as a sink, at least once: a crash leaves no row twice.

    INPUT/BUCKET/FIRST-RESETS-CLAIM.parquet    the rows of one checkpoint of a bucket: the first offset of its events, and a random name of the claim
    .claims/PROCESSOR/BUCKET/CLAIM             the claim whose worker may write

A worker that dies after its rows are written and before its position is saved leaves a file of events that its successor reads again. The
successor lists the files at its claim. At its first checkpoint, also one without rows, it deletes the listed files that begin there or later:
a position is saved only after the file before it, so they were not committed. After a reset, files of earlier positions stay.

A paused worker that wakes up finds another claim in place of its own. It writes nothing, and deletes the file that it was writing.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from ...processors import CallRetry, DeclarationError, WaitLog
from ...processors.declare import (
    AnyRecord,
    Processor,
    Semantics,
    Sink,
    SinkBatch,
    SinkFenced,
    SinkRefused,
    SinkUnreachable,
    plan_of,
)
from ...state import FileStoreRefuses, FileStoreUnreachable, StateError
from ...state.files import SCHEME, VARIABLES, S3Files, open_file_store, retried

if TYPE_CHECKING:
    from ..warehouse import RecordColumns

T = TypeVar("T")
_NAME = re.compile(r"(\d{20})-(\d+)-([0-9a-f]{12})\.parquet")
RETRY_LIMIT_S = 15.0
"""The time limit of a request to an unreachable store. Then the worker returns to its last checkpoint and waits."""
_ADVICE = "The position was not saved, so the rows of this checkpoint are written again: nothing is lost."


@dataclass(frozen=True)
class ParquetSink(Sink):
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
        >>> ParquetSink("/data/totals", Total).name
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
        plan = plan_of(processor)
        if len(plan.inputs) > 1 or plan.emits_without_input:
            raise DeclarationError(
                f"Processor {processor.__name__} writes {self.name}, which have the name of their first event, but some of its outputs follow from several "
                "inputs or from time. Nothing was read. Write to a category, and let a stateless processor copy it to the files."
            )

    def open(self) -> ParquetWriter:
        """Return a writer. The first claim connects.

        Raises:
            SinkRefused: the location is incomplete or of another kind, or the record type has no columns.
        """
        from ..warehouse import RecordColumns  # noqa: PLC0415 - imports Arrow

        try:
            return ParquetWriter(self._files(), RecordColumns(self.record), self.name)
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


class _RowFile(NamedTuple):
    """A file of rows.

    Args:
        folder: the folder of its input and bucket.
        first: the offset of its first event.
        resets: the number of resets before it, as of `SinkBatch`.
        claim: the claim of its worker.
    """

    folder: str
    first: int
    resets: int
    claim: str

    @staticmethod
    def parse(folder: str, name: str) -> _RowFile | None:
        """Return the file of a name; None for files of others."""
        found = _NAME.fullmatch(name)
        return _RowFile(folder, int(found[1]), int(found[2]), found[3]) if found else None

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.first:020d}-{self.resets}-{self.claim}.parquet"

    def is_repeated_by(self, other: _RowFile) -> bool:
        """Return whether the events of this file are read again by the first checkpoint after a claim, or later."""
        return (self.folder, self.resets) == (other.folder, other.resets) and self.first >= other.first


def _claims_of(processor: str, bucket: int) -> str:
    return f".claims/{processor}/{bucket:05d}"


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
        columns: RecordColumns,
        what: str,
        retry: CallRetry = CallRetry(RETRY_LIMIT_S),  # noqa: B008 - frozen
    ) -> None:
        self._files = files
        self._columns = columns
        self._what = what
        self._retry = retry
        self._wait = WaitLog(retry.clock)
        self._claim = uuid4().hex[:12]
        self._earlier: dict[int, list[_RowFile]] = {}
        self._lock = threading.Lock()

    def claim(self, processor: str, bucket: int) -> str:
        """Take the place of earlier claims, then list the files that their workers may have left."""
        claims = _claims_of(processor, bucket)

        def listed() -> list[_RowFile]:
            self._files.write(f"{claims}/{self._claim}", [])
            for other in self._files.list_folder(claims):
                if other != self._claim and not other.startswith("."):
                    self._files.delete(f"{claims}/{other}")
            return list(self._found(bucket))

        found = self._call(listed)
        with self._lock:
            self._earlier[bucket] = found
        return ""

    def _found(self, bucket: int) -> Iterator[_RowFile]:
        for name, size in self._files.list_folder("").items():
            if size is None and not name.startswith("."):
                folder = f"{name}/{bucket:05d}"
                yield from filter(None, (_RowFile.parse(folder, file) for file in self._files.list_folder(folder)))

    def write(self, batch: SinkBatch) -> None:
        """Write a file if there are rows; delete the files of later events that were not committed."""
        self._expect_claim(batch)
        [(name, first)] = batch.first.items()
        own = _RowFile(f"{name}/{batch.bucket:05d}", first, batch.resets, self._claim)
        if batch.rows:
            self._write(batch, own)
        with self._lock:
            earlier = self._earlier.pop(batch.bucket, [])
        for old in earlier:
            if old.is_repeated_by(own) and not (batch.rows and old == own):
                self._call(partial(self._files.delete, old.path))

    def _write(self, batch: SinkBatch, own: _RowFile) -> None:
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and this module is imported by every command

        from ..warehouse import content_of  # noqa: PLC0415 - imports Arrow

        content = content_of(pa.Table.from_arrays(self._columns.arrays(batch.rows), schema=self._columns.schema))
        self._call(lambda: self._files.write(own.path, [content]))
        try:
            self._expect_claim(batch)
        except SinkFenced:
            self._call(lambda: self._files.delete(own.path))
            raise

    def _expect_claim(self, batch: SinkBatch) -> None:
        """Raise SinkFenced if another worker has claimed the shard."""
        if self._claim not in self._call(lambda: self._files.list_folder(_claims_of(batch.processor, batch.bucket))):
            raise SinkFenced(
                f"{batch.processor}, bucket {batch.bucket}: another worker has claimed the {self._what}. Nothing of this checkpoint was written. The owner "
                "of the bucket writes the rows."
            )

    def close(self) -> None:
        """Do nothing: a store has no connection to release."""

    def _call(self, request: Callable[[], T]) -> T:
        try:
            return retried(request, self._retry, _ADVICE, self._wait, f"The {self._what}")
        except FileStoreRefuses as error:
            raise SinkRefused(f"The {self._what} cannot be written. {error} Correct it, and start again.") from error
        except FileStoreUnreachable as error:
            raise SinkUnreachable(str(error)) from error
        except StateError as error:
            raise SinkRefused(f"The {self._what} cannot be written. {error}") from error
