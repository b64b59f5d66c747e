"""Listings of a category's folders: event files, superseded files and notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..errors import WarehouseFileMissing
from .layout import ArchivedFile, EventFile, OtherFile, day_folder, folder_of, is_day
from .warehouse import Warehouse


@dataclass(frozen=True)
class Listing:
    """The files of a category; each folder is listed once.

    Args:
        files: the event files that count, sorted. They contain each event once.
        superseded: event files that readers skip, because a compacted file or a later owner's file contains their events.
        sizes: the size of each file, in bytes.
        notes: the names of each day's notes and unfinished files.
        others: event files of other writers, sorted.
    """

    files: tuple[ArchivedFile, ...]
    superseded: tuple[ArchivedFile, ...]
    sizes: Mapping[EventFile, int]
    notes: Mapping[str, frozenset[str]]
    others: tuple[OtherFile, ...] = ()

    @staticmethod
    def of(warehouse: Warehouse, category: str) -> Listing:
        """List a category's folders."""
        sizes: dict[EventFile, int] = {}
        own: set[ArchivedFile] = set()
        others: list[OtherFile] = []
        notes: defaultdict[str, set[str]] = defaultdict(set)
        for folder, name, size in _in_days(warehouse, category):
            file = ArchivedFile.parse(category, folder, name)
            if file is not None:
                own.add(file)
                sizes[file] = size
            elif name[0] in "._":
                notes[folder.removeprefix("ds=")].add(name)
            else:
                others.append(OtherFile(category, folder.removeprefix("ds="), name))
                sizes[others[-1]] = size
        superseded = superseded_among(own)
        return Listing(
            tuple(sorted(own - superseded)),
            tuple(sorted(superseded)),
            sizes,
            {day: frozenset(names) for day, names in notes.items()},
            tuple(sorted(others)),
        )

    @property
    def all_files(self) -> tuple[EventFile, ...]:
        """All event files that count, of any writer."""
        return (*self.files, *self.others)

    @property
    def days(self) -> list[str]:
        """The days with events, sorted."""
        return sorted({file.day for file in self.files})

    def of_day(self, day: str) -> list[ArchivedFile]:
        """Return the files of a day, sorted."""
        return [file for file in self.files if file.day == day]


@dataclass(frozen=True)
class OpenSegments:
    """The segments of a category that may still change.

    Args:
        segments: the first offset of the open segment, by bucket.
    """

    segments: Mapping[int, int]

    @staticmethod
    def last_of(files: Iterable[ArchivedFile]) -> OpenSegments:
        """Return the last segment of each bucket, for a category without known positions."""
        last: dict[int, int] = {}
        for file in files:
            last[file.bucket] = max(file.last_segment, last.get(file.bucket, 0))
        return OpenSegments(last)

    @staticmethod
    def at(handoffs: Mapping[int, int], segment_events: int) -> OpenSegments:
        """Return the segments that contain the archived positions of the buckets."""
        return OpenSegments({number: offset - offset % segment_events for number, offset in handoffs.items()})

    def is_growing(self, file: ArchivedFile) -> bool:
        """Return whether a file belongs to an open segment."""
        return not file.is_compacted and file.segment == self.segments.get(file.bucket)

    def is_beyond(self, file: ArchivedFile) -> bool:
        """Return whether a file starts after the open segment."""
        return file.segment > self.segments.get(file.bucket, -1)


def superseded_among(files: Iterable[ArchivedFile]) -> set[ArchivedFile]:
    """Return the files of a category that readers skip, because another file replaces them."""
    found = list(files)
    newest: dict[tuple[str, int, int, int], ArchivedFile] = {}
    for file in found:
        segments = (file.day, file.bucket, file.segment, file.last_segment)
        if segments not in newest or file.supersedes(newest[segments]):
            newest[segments] = file
    counting = set(newest.values())
    compacted: defaultdict[tuple[str, int], list[ArchivedFile]] = defaultdict(list)
    for file in counting:
        if file.is_compacted:
            compacted[file.day, file.bucket].append(file)
    return {
        file
        for file in found
        if file not in counting or any(other.supersedes(file) for other in compacted.get((file.day, file.bucket), ()))
    }


def read_events(warehouse: Warehouse, file: EventFile) -> bytes:
    """Return the content of a listed file, or of the file that a later owner of its bucket has written in its place since.

    The later file contains all events of the listed one before the committed position.

    Raises:
        WarehouseFileMissing: the file was deleted without a later owner's, for example by a compaction.
        WarehouseError: the warehouse failed.
    """
    while True:
        try:
            return warehouse.read(file)
        except WarehouseFileMissing:
            later = _written_later(warehouse, file)
            if later is None:
                raise
            file = later


def _written_later(warehouse: Warehouse, file: EventFile) -> ArchivedFile | None:
    """Return the file of the same segments by the latest owner; None without a later one."""
    if not isinstance(file, ArchivedFile):
        return None
    folder = day_folder(file.category, file.day)
    names = warehouse.list_folder(folder)
    found = (ArchivedFile.parse(file.category, folder.rpartition("/")[2], name) for name in names)
    same = (other for other in found if other and other._replace(epoch=file.epoch) == file and other.epoch > file.epoch)
    return max(same, key=lambda other: other.epoch, default=None)


def _in_days(warehouse: Warehouse, category: str) -> Iterator[tuple[str, str, int]]:
    """Yield the files of a category's days: folder, name and size in bytes."""
    root = folder_of(category)
    for folder in filter(is_day, warehouse.list_folder(root)):
        for name, size_bytes in warehouse.list_folder(f"{root}/{folder}").items():
            if size_bytes is not None:
                yield folder, name, size_bytes
