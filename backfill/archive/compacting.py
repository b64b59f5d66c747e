"""Compacting: the many small files of a day that is complete become few, each with what a bucket had in several segments.

    the files of finished segments --read, one after the other--> one file, aside --renamed--> in place --> the old ones are removed

Both are in the folder for as long as the removal takes. The new file's name says which segments it holds, so that whoever knows such
names, as everything here does, passes over the old ones, now or after a run that was killed; the next run removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import ArchiveRefused
from ..warehouse.evolution import OtherType, fitted, merged, table_of
from ..warehouse.layout import StoredFile
from ..warehouse.listing import Listing
from ..warehouse.notes import SUCCESS, BucketNote, bucket_note, read_note
from ..warehouse.seam import Warehouse
from ..warehouse.terms import terms_of

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
    listing = Listing.of(warehouse, category)
    terms = terms_of(warehouse, category)
    if terms is None:
        raise ArchiveRefused(
            f"{warehouse.location} has no {category} that an archiver has noted anything about. Nothing was changed. Archive it with "
            "`penstock archive run` first."
        )
    for file in listing.replaced:
        warehouse.remove(file)
    finished = _Finished(warehouse, category, terms.segment_events)
    for day in listing.days:
        if wanted(day) and SUCCESS in listing.notes.get(day, ()):
            files = [file for file in listing.of_day(day) if finished(file)]
            for group in _groups(files, listing, limit_bytes):
                yield _replace(warehouse, group)


class _Finished:
    """Tells whether no event can come to the segments of a file any more: their bucket's committed position lies behind them."""

    def __init__(self, warehouse: Warehouse, category: str, segment_events: int) -> None:
        self._warehouse = warehouse
        self._category = category
        self._length = segment_events
        self._committed: dict[int, int] = {}

    def __call__(self, file: StoredFile) -> bool:
        if file.bucket not in self._committed:
            note = read_note(self._warehouse, bucket_note(self._category, file.bucket), BucketNote)
            self._committed[file.bucket] = 0 if note is None else note.marks[0].offset
        return file.last_segment + self._length <= self._committed[file.bucket]


def _groups(files: Iterable[StoredFile], listing: Listing, limit_bytes: int) -> Iterator[Sequence[StoredFile]]:
    """Give the files of a day that become one, in order: neighbours of one bucket, as many as the limit allows."""
    for _, of_bucket in groupby(files, key=lambda file: file.bucket):
        group: list[StoredFile] = []
        size_bytes = 0
        for file in of_bucket:
            if group and size_bytes + listing.sizes[file] > limit_bytes:
                yield from [group] if len(group) > 1 else []
                group, size_bytes = [], 0
            group.append(file)
            size_bytes += listing.sizes[file]
        yield from [group] if len(group) > 1 else []


def _replace(warehouse: Warehouse, group: Sequence[StoredFile]) -> Compacted:
    first = group[0]
    whole = first._replace(last=group[-1].last_segment)
    content, events = _joined(warehouse, group)
    warehouse.write(whole, content)
    for file in group:
        warehouse.remove(file)
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
