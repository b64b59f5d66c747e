"""What the archive notes beside the events, as small files of JSON.

    category=…/_archive.json                  how the category is archived: by which time, in segments of which length, with which columns
    category=…/_owner-00003-00000007.json     an archiver's claim to be the seventh owner of a bucket
    category=…/_bucket-00003-00000007.json    how far the bucket's time has come, as of the positions that this owner may commit
    category=…/ds=…/_SUCCESS                  the day is complete
    category=…/ds=…/_late-00003-00000007.json what came for it since

A bucket's notes are written by its owner alone, and before the position is committed that they hold for. Each owner writes notes of its own;
the one with the highest epoch counts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
import pyarrow as pa

from ...processors.time.watermarks import BucketProgress
from ..errors import WarehouseError, WarehouseFileMissing
from .layout import By, Note
from .warehouse import Warehouse

SUCCESS = "_SUCCESS"
"""The name that others, too, look for."""
ARCHIVE = "_archive.json"

T = TypeVar("T", bound=msgspec.Struct)
_encode = msgspec.json.Encoder().encode
_OF_OWNER = re.compile(r"_(owner|bucket|late)-(\d{5,})-(\d{8,})\.json")


class ArchiveSettings(msgspec.Struct, frozen=True):
    """How a category is archived; chosen once.

    Args:
        by: by which time events have their days.
        segment_events: how many offsets share a file name.
        columns: all columns that were ever written, with the type that all files have today, for people to read.
        schema: the same, as Arrow writes it.
        topic_id: the bus's id of the topic that is archived; empty where that was not noted.
    """

    by: By
    segment_events: int
    columns: dict[str, str]
    schema: bytes
    topic_id: str = ""

    @staticmethod
    def of(by: By, segment_events: int, schema: pa.Schema, topic_id: str = "") -> ArchiveSettings:
        """Note a way."""
        columns = {field.name: str(field.type) for field in schema}
        return ArchiveSettings(by, segment_events, columns, schema.serialize().to_pybytes(), topic_id)

    @property
    def arrow(self) -> pa.Schema:
        """The columns."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


class Mark(msgspec.Struct, frozen=True):
    """How far a bucket's time has come with its events before an offset."""

    offset: int
    progress: BucketProgress


class Closing(msgspec.Struct, frozen=True):
    """Events of a bucket from an offset on that belong to a day, or to one before it, are late additions."""

    day: str
    offset: int


class BucketNote(msgspec.Struct, frozen=True):
    """What is known of one bucket.

    Args:
        marks: of the position that is committed, and of the one that is about to be; in order.
        closings: from where on events are late additions, for more and more days.
    """

    marks: tuple[Mark, ...]
    closings: tuple[Closing, ...]


class Success(msgspec.Struct, frozen=True):
    """A day is complete.

    Args:
        complete_since_ms: since when (milliseconds since 1970, UTC).
        positions: the offset of each bucket from which on its events for the day are late additions.
    """

    complete_since_ms: int
    positions: dict[int, int]


class Addition(msgspec.Struct, frozen=True):
    """Events of one segment that came for a day that was complete.

    Args:
        segment: the segment's first offset.
        events: how many.
        first_arrived_ms: when the first of them came to the bus (milliseconds since 1970, UTC).
        last_arrived_ms: when the last did.
    """

    segment: int
    events: int
    first_arrived_ms: int
    last_arrived_ms: int


class Late(msgspec.Struct, frozen=True):
    """The late additions of one bucket to one day."""

    bucket: int
    additions: tuple[Addition, ...]


def claim_note(category: str, bucket: int, epoch: int) -> Note:
    """Return where an archiver claims to own a bucket."""
    return Note(category, f"_owner-{bucket:05d}-{epoch:08d}.json")


def bucket_note(category: str, bucket: int, epoch: int) -> Note:
    """Return where an owner's note on its bucket lies."""
    return Note(category, f"_bucket-{bucket:05d}-{epoch:08d}.json")


def late_note(category: str, day: str, bucket: int, epoch: int) -> Note:
    """Return where an owner notes the late additions of its bucket to a day."""
    return Note(category, f"_late-{bucket:05d}-{epoch:08d}.json", day)


def epochs_among(names: Iterable[str], kind: str) -> dict[int, list[int]]:
    """Return by bucket the epochs of notes of one kind ("owner", "bucket" or "late") among the names in a folder, in order."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for name in names:
        note = _OF_OWNER.fullmatch(name)
        if note and note[1] == kind:
            found[int(note[2])].append(int(note[3]))
    return {bucket: sorted(epochs) for bucket, epochs in found.items()}


def read_note(warehouse: Warehouse, note: Note, kind: type[T]) -> T | None:
    """Return what a note says; None where there is none, or, as others write them, an empty one.

    Raises:
        WarehouseError: it is not readable.
    """
    try:
        content = warehouse.read(note)
    except WarehouseFileMissing:
        return None
    return decoded(content, kind, f"{warehouse.location}/{note.path}") if content else None


def decoded(content: bytes, kind: type[T], place: str) -> T:
    """Return what the bytes of a note say.

    Raises:
        WarehouseError: nothing.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise WarehouseError(
            f"{place} is not what the archiver writes: {error}. Nothing was changed; put it back from a copy, or "
            "move it away if you know that nobody needs it."
        ) from error


def write_note(warehouse: Warehouse, note: Note, said: msgspec.Struct) -> None:
    """Store what a note says."""
    warehouse.write(note, _encode(said))


def create_note(warehouse: Warehouse, note: Note, said: msgspec.Struct) -> bool:
    """Store what a note says where there is none of that name; return whether there was none."""
    return warehouse.create(note, _encode(said))


def late_from(closings: tuple[Closing, ...], day: str) -> int | None:
    """Return from which offset on events that belong to a day are late additions; None while none is."""
    return next((closing.offset for closing in closings if closing.day >= day), None)


def closed_until(notes: Mapping[int, BucketNote], buckets: int) -> str | None:
    """Return the last day that all buckets of a category have closed; None while there is none."""
    closed = [notes[number].closings for number in range(buckets) if number in notes]
    if len(closed) < buckets or not all(closed):
        return None
    return min(closings[-1].day for closings in closed)
