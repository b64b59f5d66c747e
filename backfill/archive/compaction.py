"""Compaction of complete days: many small files of a bucket become a few large ones.

    files of finished segments --read in turn--> one file, created unless it exists --> the old files are deleted

During the deletion, the folder contains both. The name of the new file states its segments, so all readers here skip the old files, also
after a crash. The next compaction deletes them.

Files are joined by blocks of 2, 4, 8 … segments that the bucket's position has passed. Two such blocks never overlap in part, and the
files of a block never change. So a compaction that is paused and resumes after another one either supersedes files whose events it
contains, or is superseded by a file that contains its events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import ArchiveRefused, WarehouseFileMissing
from ..warehouse import (
    SUCCESS,
    ArchivedFile,
    ColumnTypeMismatch,
    EventFile,
    Listing,
    Warehouse,
    bucket_notes,
    fitted,
    merged,
    settings_of,
    table_of,
)

_LOG = logging.getLogger("penstock.archiver")
LIMIT_BYTES = 256 * 2**20
"""The greatest size of a compacted file."""


@dataclass(frozen=True)
class Compacted:
    """The result of joining several files.

    Args:
        day: their day.
        bucket: their bucket.
        files: the number of files joined.
        events: the number of their events.
        size_bytes: the size of the new file.
    """

    day: str
    bucket: int
    files: int
    events: int
    size_bytes: int


def compact(
    warehouse: Warehouse,
    category: str,
    wanted: Callable[[str], bool] = lambda _: True,
    *,
    limit_bytes: int = LIMIT_BYTES,
) -> Iterator[Compacted]:
    """Compact the complete days of a category, one file per iteration. Archivers may run meanwhile.

    Args:
        warehouse: the warehouse.
        category: its name.
        wanted: returns whether to compact a day.
        limit_bytes: the greatest size of a new file, by the sum of its parts.

    Raises:
        ArchiveRefused: no archive of that name exists, or its archiver has not recorded its settings yet.
        WarehouseError: the warehouse failed; files compacted so far are complete.
    """
    # Before the listing: every event committed by then is in the listed files.
    notes = bucket_notes(warehouse, category)
    settings = settings_of(warehouse, category)
    listing = Listing.of(warehouse, category)
    if settings is None:
        raise ArchiveRefused(
            f"{warehouse.location} has no archive of {category} with settings. Nothing was changed. Archive it with "
            "`penstock archive run` first."
        )
    for file in listing.superseded:
        warehouse.delete(file)
    committed = {bucket: note.marks[0].offset for bucket, note in notes.items()}
    for day in listing.days:
        if wanted(day) and SUCCESS in listing.notes.get(day, ()):
            for bucket, files in groupby(listing.of_day(day), key=lambda file: file.bucket):
                blocks = _Blocks(listing.sizes, settings.segment_events, committed.get(bucket, 0), limit_bytes)
                for group in blocks.groups(list(files)):
                    try:
                        yield _replace(warehouse, group)
                    except WarehouseFileMissing as error:
                        _LOG.warning("%s Another compaction has joined it with others, so this one skips them.", error)


@dataclass(frozen=True)
class _Blocks:
    """The blocks of 2, 4, 8 … segments of a bucket that may become one file.

    Args:
        sizes: the size of each file, in bytes.
        length: the number of offsets in a segment.
        committed: the bucket's position. The files of a block are final once it has passed the block.
        limit_bytes: the greatest size of a new file.
    """

    sizes: Mapping[EventFile, int]
    length: int
    committed: int
    limit_bytes: int

    def groups(self, files: Sequence[ArchivedFile]) -> Iterator[Sequence[ArchivedFile]]:
        """Yield the files of one day to join, in order: all of them, or those of either half of their smallest common block."""
        if len(files) < 2:
            return
        first, last = files[0].segment // self.length, files[-1].last_segment // self.length
        bits = (first ^ last).bit_length()
        end = ((last >> bits) + 1) << bits
        if end * self.length <= self.committed and sum(self.sizes[file] for file in files) <= self.limit_bytes:
            yield files
            return
        middle = end - (1 << bits >> 1)
        yield from self.groups([file for file in files if file.last_segment < middle * self.length])
        yield from self.groups([file for file in files if file.segment >= middle * self.length])


def _replace(warehouse: Warehouse, group: Sequence[ArchivedFile]) -> Compacted:
    first = group[0]
    whole = first._replace(last=group[-1].last_segment, epoch=0)
    content, events = _joined(warehouse, group)
    warehouse.create(whole, content)  # if it exists, another compaction made it from the same files
    for file in group:
        warehouse.delete(file)
    return Compacted(first.day, first.bucket, len(group), events, len(content))


def _joined(warehouse: Warehouse, group: Sequence[ArchivedFile]) -> tuple[bytes, int]:
    """Return one file with the events of several, by offset, and their number."""
    schema = _schema_of(warehouse, group)
    content, events = BytesIO(), 0
    with pq.ParquetWriter(content, schema, compression="zstd") as writer:
        for file in group:
            table = fitted(table_of(warehouse.read(file)), schema, file)
            writer.write_table(table)
            events += table.num_rows
    return content.getvalue(), events


def _schema_of(warehouse: Warehouse, group: Sequence[ArchivedFile]) -> pa.Schema:
    """Return columns that fit all files, including columns that the record type has lost."""
    schema = pa.schema([])
    for at, file in enumerate(group):
        own = table_of(warehouse.read(file)).schema.remove_metadata()
        try:
            schema = merged(schema, _optional(own, schema) if at else own)
        except ColumnTypeMismatch as other:
            raise ArchiveRefused(
                f"{file.path}: column {other.column} has type {other.wanted}, but {group[0].path} has {other.stored}. The bucket's files of "
                "this day were not changed. Start the archiver with the current record once: it converts all files to one type."
            ) from other
    return schema


def _optional(schema: pa.Schema, before: pa.Schema) -> pa.Schema:
    """Make columns nullable that earlier files lack."""
    return pa.schema([field if field.name in before.names else field.with_nullable(True) for field in schema])
