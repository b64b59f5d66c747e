"""What is in a category's folder, at one look: its event files, those that a compacted one has taken the place of, and notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .layout import EventFile, OtherFile, StoredFile, is_day
from .seam import Warehouse


@dataclass(frozen=True)
class Listing:
    """A category's folder as it was at one moment.

    Args:
        files: the event files, sorted: each event is in one of them.
        replaced: event files that are still there although a compacted one holds all that they hold.
        sizes: the size of each file, in bytes.
        notes: the names of the notes of each day, and of files in the making.
        others: event files that the archiver did not name, sorted.
    """

    files: tuple[StoredFile, ...]
    replaced: tuple[StoredFile, ...]
    sizes: Mapping[EventFile, int]
    notes: Mapping[str, frozenset[str]]
    others: tuple[OtherFile, ...] = ()

    @staticmethod
    def of(warehouse: Warehouse, category: str) -> Listing:
        """Look at a category."""
        sizes: dict[EventFile, int] = {}
        own: set[StoredFile] = set()
        others: list[OtherFile] = []
        notes: defaultdict[str, set[str]] = defaultdict(set)
        for path, size in warehouse.contents(category).items():
            folder, _, name = path.rpartition("/")
            file = StoredFile.parse(category, folder, name)
            if file is not None:
                own.add(file)
                sizes[file] = size
            elif is_day(folder) and name[0] in "._":
                notes[folder.removeprefix("ds=")].add(name)
            elif is_day(folder):
                others.append(OtherFile(category, folder.removeprefix("ds="), name))
                sizes[others[-1]] = size
        replaced = replaced_among(own)
        return Listing(
            tuple(sorted(own - replaced)),
            tuple(sorted(replaced)),
            sizes,
            {day: frozenset(names) for day, names in notes.items()},
            tuple(sorted(others)),
        )

    @property
    def all_files(self) -> tuple[EventFile, ...]:
        """The event files of whatever name: each event is in one of them."""
        return (*self.files, *self.others)

    @property
    def days(self) -> list[str]:
        """The days that have events, sorted."""
        return sorted({file.day for file in self.files})

    def of_day(self, day: str) -> list[StoredFile]:
        """Return the files of a day, sorted."""
        return [file for file in self.files if file.day == day]


def replaced_among(files: Iterable[StoredFile]) -> set[StoredFile]:
    """Return the files of one category that others hold all of."""
    found = list(files)
    compacted: defaultdict[tuple[str, int], list[StoredFile]] = defaultdict(list)
    for file in found:
        if file.is_compacted:
            compacted[file.day, file.bucket].append(file)
    return {file for file in found if any(other.covers(file) for other in compacted.get((file.day, file.bucket), ()))}
