"""Compacting: the many small files of a day that is complete become few, each with what a bucket had in several segments.

    the files of finished segments --read, one after the other--> one file, created where there is none --> the old ones are removed

Both are in the folder for as long as the removal takes. The new file's name says which segments it holds, so that whoever knows such
names, as everything here does, skips the old ones, now or after a run that was killed; the next run removes them.

Files become one by blocks of 2, 4, 8 … segments, when the bucket's position has passed the block: no two such blocks overlap in part, and
the files of a block are always the same. So a compaction that was paused, and goes on after another
one, supersedes files whose events it holds, or is superseded by one that holds its events.
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
from ..warehouse.archive_settings import settings_of
from ..warehouse.layout import EventFile, StoredFile
from ..warehouse.listing import Listing
from ..warehouse.notes import SUCCESS
from ..warehouse.owners import bucket_notes
from ..warehouse.schema_evolution import OtherType, fitted, merged, table_of
from ..warehouse.warehouse import Warehouse

_LOG = logging.getLogger("penstock.archiver")
LIMIT_BYTES = 256 * 2**20
"""How large a file may become."""


@dataclass(frozen=True)
class Compacted:
    """What became of several files.

    Args:
        day: their day.
        bucket: their bucket.
        files: how many they were.
        events: how many events they hold.
        size_bytes: how large the one is that holds them now.
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
    """Compact the complete days of a category, file by file as they are asked for. One at a time; archivers may go on meanwhile.

    Args:
        warehouse: where it is.
        category: its name.
        wanted: tells of which days.
        limit_bytes: how large, by the sum of its parts, a file may become.

    Raises:
        ArchiveRefused: nothing of that name is archived, or its archiver has noted nothing about it yet.
        WarehouseError: the warehouse; what was done until then is done.
    """
    # Before the files are listed: what was committed by then is in the files that are listed.
    notes = bucket_notes(warehouse, category)
    terms = settings_of(warehouse, category)
    listing = Listing.of(warehouse, category)
    if terms is None:
        raise ArchiveRefused(
            f"{warehouse.location} has no {category} that an archiver has noted anything about. Nothing was changed. Archive it with "
            "`penstock archive run` first."
        )
    for file in listing.superseded:
        warehouse.delete(file)
    committed = {bucket: note.marks[0].offset for bucket, note in notes.items()}
    for day in listing.days:
        if wanted(day) and SUCCESS in listing.notes.get(day, ()):
            for bucket, files in groupby(listing.of_day(day), key=lambda file: file.bucket):
                blocks = _Blocks(listing.sizes, terms.segment_events, committed.get(bucket, 0), limit_bytes)
                for group in blocks.groups(list(files)):
                    try:
                        yield _replace(warehouse, group)
                    except WarehouseFileMissing as error:
                        _LOG.warning(
                            "%s Another compaction made one file of it and others; this one leaves them.", error
                        )


@dataclass(frozen=True)
class _Blocks:
    """The blocks of 2, 4, 8 … segments of a bucket that may become one file.

    Args:
        sizes: the size of each file, in bytes.
        length: how many offsets a segment has.
        committed: the bucket's position; which files a block has does not change any more once it has passed the block.
        limit_bytes: how large a file may become.
    """

    sizes: Mapping[EventFile, int]
    length: int
    committed: int
    limit_bytes: int

    def groups(self, files: Sequence[StoredFile]) -> Iterator[Sequence[StoredFile]]:
        """Give the files of one day that become one, in order: all, or those in either half of the smallest block that has them all."""
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


def _replace(warehouse: Warehouse, group: Sequence[StoredFile]) -> Compacted:
    first = group[0]
    whole = first._replace(last=group[-1].last_segment, epoch=0)
    content, events = _joined(warehouse, group)
    warehouse.create(whole, content)  # where there is one already, another compaction made it of the same files
    for file in group:
        warehouse.delete(file)
    return Compacted(first.day, first.bucket, len(group), events, len(content))


def _joined(warehouse: Warehouse, group: Sequence[StoredFile]) -> tuple[bytes, int]:
    """Return one file of the events of several, in order of offset, and how many they are."""
    schema = _schema_of(warehouse, group)
    content, events = BytesIO(), 0
    with pq.ParquetWriter(content, schema, compression="zstd") as writer:
        for file in group:
            table = fitted(table_of(warehouse.read(file)), schema, file)
            writer.write_table(table)
            events += table.num_rows
    return content.getvalue(), events


def _schema_of(warehouse: Warehouse, group: Sequence[StoredFile]) -> pa.Schema:
    """Return columns that hold all files, those that the record type has lost since included."""
    schema = pa.schema([])
    for at, file in enumerate(group):
        own = table_of(warehouse.read(file)).schema.remove_metadata()
        try:
            schema = merged(schema, _optional(own, schema) if at else own)
        except OtherType as other:
            raise ArchiveRefused(
                f"{file.path}: column {other.column} holds {other.wanted}, and {group[0].path} holds {other.stored}. Nothing of this day's "
                "bucket was changed. Start the archiver with today's record once: it brings all files to one type."
            ) from other
    return schema


def _optional(schema: pa.Schema, before: pa.Schema) -> pa.Schema:
    """Let columns be null that earlier files do not have."""
    return pa.schema([field if field.name in before.names else field.with_nullable(True) for field in schema])
