"""Notes of the archive beside the events: small JSON files.

    category=…/_archive.json                  the settings of the archive
    category=…/_owner-00003-00000007.json     an archiver's claim to be the seventh owner of a bucket
    category=…/_bucket-00003-00000007.json    the bucket's event time at the positions that this owner may commit
    category=…/ds=…/_SUCCESS                  the day is complete
    category=…/ds=…/_late-00003-00000007.json events that arrived later

Only the owner of a bucket writes its notes, before it commits the position that they describe. Each owner has notes of its own; those with
the highest epoch count.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
import pyarrow as pa

from ...processors.time import BucketProgress
from ..errors import WarehouseError, WarehouseFileMissing
from .layout import DayOf, Note
from .warehouse import Warehouse

SUCCESS = "_SUCCESS"
"""The name that other tools look for, too."""
ARCHIVE = "_archive.json"

T = TypeVar("T", bound=msgspec.Struct)
_encode = msgspec.json.Encoder().encode
_OF_OWNER = re.compile(r"_(owner|bucket|late)-(\d{5,})-(\d{8,})\.json")


class ArchiveSettings(msgspec.Struct, frozen=True):
    """The settings of a category's archive; chosen once.

    Args:
        by: the time that assigns events to days.
        segment_events: the number of offsets of a segment.
        columns: all columns ever written, with their current types, for people to read.
        schema: the same in Arrow's format.
        topic_id: the id of the archived topic; empty if unknown.
    """

    by: DayOf
    segment_events: int
    columns: dict[str, str]
    schema: bytes
    topic_id: str = ""

    @staticmethod
    def of(by: DayOf, segment_events: int, schema: pa.Schema, topic_id: str = "") -> ArchiveSettings:
        """Return the settings for a schema."""
        columns = {field.name: str(field.type) for field in schema}
        return ArchiveSettings(by, segment_events, columns, schema.serialize().to_pybytes(), topic_id)

    @property
    def arrow(self) -> pa.Schema:
        """The columns."""
        return pa.ipc.read_schema(pa.py_buffer(self.schema))


class OffsetTime(msgspec.Struct, frozen=True):
    """A bucket's event time after its events before an offset."""

    offset: int
    progress: BucketProgress


class Closing(msgspec.Struct, frozen=True):
    """From an offset on, a bucket's events of a day, or of an earlier one, are late additions."""

    day: str
    offset: int


class BucketNote(msgspec.Struct, frozen=True):
    """The progress of one bucket.

    Args:
        marks: its event time at the committed position and at the next one, in order.
        closings: the offsets from which on events are late, for more and more days.
    """

    marks: tuple[OffsetTime, ...]
    closings: tuple[Closing, ...]


class Success(msgspec.Struct, frozen=True):
    """A complete day.

    Args:
        complete_since_ms: when it was marked (milliseconds since 1970, UTC).
        positions: the offset of each bucket from which on its events of the day are late additions.
    """

    complete_since_ms: int
    positions: dict[int, int]


class Addition(msgspec.Struct, frozen=True):
    """Late events of one segment for a complete day.

    Args:
        segment: the segment's first offset.
        events: their number.
        first_arrived_ms: the arrival of the first one at the bus (milliseconds since 1970, UTC).
        last_arrived_ms: the arrival of the last one.
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
    """Return the path of an archiver's claim to a bucket."""
    return Note(category, f"_owner-{bucket:05d}-{epoch:08d}.json")


def bucket_note(category: str, bucket: int, epoch: int) -> Note:
    """Return the path of an owner's note about its bucket."""
    return Note(category, f"_bucket-{bucket:05d}-{epoch:08d}.json")


def late_note(category: str, day: str, bucket: int, epoch: int) -> Note:
    """Return the path of an owner's note about late additions to a day."""
    return Note(category, f"_late-{bucket:05d}-{epoch:08d}.json", day)


def epochs_among(names: Iterable[str], kind: str) -> dict[int, list[int]]:
    """Return the sorted epochs by bucket of one kind of note ("owner", "bucket" or "late") among file names."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for name in names:
        note = _OF_OWNER.fullmatch(name)
        if note and note[1] == kind:
            found[int(note[2])].append(int(note[3]))
    return {bucket: sorted(epochs) for bucket, epochs in found.items()}


def read_note(warehouse: Warehouse, note: Note, kind: type[T]) -> T | None:
    """Return a note; None if it is missing or, as other tools write it, empty.

    Raises:
        WarehouseError: the note is unreadable.
    """
    try:
        content = warehouse.read(note)
    except WarehouseFileMissing:
        return None
    return decoded(content, kind, f"{warehouse.location}/{note.path}") if content else None


def decoded(content: bytes, kind: type[T], place: str) -> T:
    """Decode a note.

    Raises:
        WarehouseError: the note is unreadable.
    """
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise WarehouseError(
            f"{place} is not a note of the archiver: {error}. Nothing was changed. Restore the file from a copy, or "
            "delete it if it is not needed."
        ) from error


def write_note(warehouse: Warehouse, note: Note, content: msgspec.Struct) -> None:
    """Store a note."""
    warehouse.write(note, _encode(content))


def create_note(warehouse: Warehouse, note: Note, content: msgspec.Struct) -> bool:
    """Store a note unless it exists. Return whether it is new."""
    return warehouse.create(note, _encode(content))


def late_from(closings: tuple[Closing, ...], day: str) -> int | None:
    """Return the offset from which on events of a day are late additions; None while none is."""
    return next((closing.offset for closing in closings if closing.day >= day), None)


def closed_until(notes: Mapping[int, BucketNote], buckets: int) -> str | None:
    """Return the last day that all buckets of a category have closed; None without one."""
    closed = [notes[number].closings for number in range(buckets) if number in notes]
    if len(closed) < buckets or not all(closed):
        return None
    return min(closings[-1].day for closings in closed)
