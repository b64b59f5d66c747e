"""States split anew by key, for another number of buckets.

states of the old buckets --each entry by its key's bucket--> states of the new ones, made aside --all whole--> put in place

A new bucket has keys of those old ones that leave the same remainder by what both numbers have in common; of one alone, where the new
number is a multiple of the old one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import gcd
from pathlib import Path

from rocksdict import Cache

from ...processors.buckets import bucket_of
from ...processors.changes import Changes
from ...processors.event_time import merged_time
from ...processors.kinds import Processor
from ...processors.owners import KeyOf, key_of
from ...state.backups.fetching import fetch
from ...state.durable import sync_folder
from ...state.folder import RocksStateFolder, add_database, current
from ...state.rocks import RocksShardState, database_options, explained, open_database, viewed
from ...state.store import Offsets
from ...transport.moves import MOVES, number_in
from ..working.resuming import settle_prepared
from .errors import MoveRefused
from .standing import LocalStates

AT_ONCE = 50_000
"""How many entries are written at a time."""
_CACHE_BYTES = 32 * 2**20
_WHOLE = "whole"


@dataclass(frozen=True)
class Split:
    """How states are to be split.

    Args:
        processor: whose.
        before: the number of buckets so far.
        after: the new number.
        borders: where each old bucket of each input ends, and so what its state reflects.
        number: the number of the move.
    """

    processor: type[Processor]
    before: int
    after: int
    borders: Mapping[str, Mapping[int, int]]
    number: int

    def border(self, bucket: int) -> Offsets:
        """Return where a bucket of each input ended before; 0 of a new one."""
        return {name: offsets.get(bucket, 0) for name, offsets in self.borders.items()}

    def sources(self, bucket: int) -> list[int]:
        """Return the old buckets that a new one may have keys of."""
        common = gcd(self.before, self.after)
        return [source for source in range(self.before) if source % common == bucket % common]


class Staging:
    """The new states, made aside until all of them are whole.

    Args:
        states: where the old ones are, and the new ones will be.
        split: how.
    """

    def __init__(self, states: LocalStates, split: Split) -> None:
        self._states = states
        self._split = split
        self._key_of: KeyOf = key_of(split.processor)
        self._folder = states.root / split.processor.name / f".resize-{split.number}"

    @property
    def is_whole(self) -> bool:
        """Whether all new states are made."""
        return (self._folder / _WHOLE).exists()

    def make(self, committed: Callable[[int], Offsets]) -> None:
        """Make the new states from the old ones, which stay as they are; nothing where that is done.

        Args:
            committed: gives the group's positions in a bucket.

        Raises:
            MoveRefused: an old state is missing, or is not as far as its bucket's end, or a key is not where it belongs.
        """
        if self.is_whole:
            return
        with explained(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True)
        with self._sources(committed) as sources:
            for bucket in range(self._split.after):
                self._make_one(bucket, [sources[old] for old in self._split.sources(bucket) if old in sources])
        with explained(self._folder):
            (self._folder / _WHOLE).touch()
            sync_folder(self._folder)

    def place(self, bucket: int) -> None:
        """Make a new state a shard's current one; nothing where it is."""
        shard = self._states.folder(bucket)
        self._states.expect_closed(bucket)
        there = current(shard)
        if there is not None:
            with viewed(there) as state:
                if number_in(state.position()) == self._split.number:
                    return
        add_database(shard, lambda target: _copied(self._staged(bucket), target))

    def drop(self) -> None:
        """Remove what was made aside. May be repeated."""
        with explained(self._folder):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _staged(self, bucket: int) -> Path:
        return self._folder / f"{bucket:05d}"

    @contextmanager
    def _sources(self, committed: Callable[[int], Offsets]) -> Iterator[dict[int, RocksShardState]]:
        opened: dict[int, RocksShardState] = {}
        try:
            for bucket in range(self._split.before):
                state = self._source(bucket, committed(bucket))
                if state is not None:
                    opened[bucket] = state
            yield opened
        finally:
            for state in opened.values():
                state.close()

    def _source(self, bucket: int, committed: Offsets) -> RocksShardState | None:
        """Open the state of an old bucket as it was at the border; None of one that never had an event."""
        border = self._split.border(bucket)
        local = self._local(bucket, committed)
        if local is not None:
            if _is_at(border, local, self._split.number):
                return local
            local.close()
        kept = self._backup_at(bucket, border)
        if kept is not None:
            return kept
        if not any(border.values()):
            return None
        raise MoveRefused(
            f"{self._split.processor.__name__}, bucket {bucket}: its state at {_shown(border)}, where the bucket ends, is neither on this "
            "machine nor among the backups. Nothing was changed. Do this where the states are (`--dir`), or name the place of backups "
            "(`--backup`); with workers on several machines, let them make a last backup of everything before they are stopped."
        )

    def _local(self, bucket: int, committed: Offsets) -> RocksShardState | None:
        if current(self._states.folder(bucket)) is None:
            return None
        self._states.expect_closed(bucket)
        state = RocksStateFolder(self._states.root).open(self._states.identity(bucket))
        settle_prepared(state, committed, f"{self._split.processor.name}, bucket {bucket}: a checkpoint")
        return state

    def _backup_at(self, bucket: int, border: Offsets) -> RocksShardState | None:
        backups = self._states.backups(bucket)
        if backups is None:
            return None
        for manifest in backups.manifests():
            is_older = number_in(manifest.position) < self._split.number
            if is_older and manifest.identity == self._states.identity(bucket) and _at(border, manifest.position):
                target = self._folder / f"source-{bucket}"
                fetch(backups, manifest, target)
                return _opened(target)
        return None

    def _make_one(self, bucket: int, sources: list[RocksShardState]) -> None:
        state = _opened(self._staged(bucket))
        try:
            state.claim(self._states.identity(bucket))
            for source in sources:
                entries = self._entries_of(bucket, source)
                while chunk := _changes(islice(entries, AT_ONCE)):
                    state.save(chunk)
            inputs = [category.name for category in self._split.processor.inputs()]
            position = {**self._split.border(bucket), MOVES.name: self._split.number}
            state.save_together(merged_time(inputs, sources), position)
        finally:
            state.close()

    def _entries_of(self, bucket: int, source: RocksShardState) -> Iterator[tuple[bytes, bytes]]:
        before, after, find = self._split.before, self._split.after, self._key_of
        identity = source.identity()
        old = None if identity is None else identity.bucket
        for entry, value in source.items():
            key = find(entry, value)
            if key is None:
                continue
            if bucket_of(key, before) != old:
                raise MoveRefused(
                    f"{self._split.processor.__name__}: key {key.decode(errors='backslashreplace')!r} has state in bucket {old}, where Kafka's "
                    f"own producers put it into {bucket_of(key, before)} of {before}: what writes its category chooses buckets in its own way, "
                    "so it is not known where the key will be. Nothing was changed. Write it as Kafka's producers do (murmur2), or bring it "
                    "to a category of its own first (penstock.Repartition)."
                )
            if bucket_of(key, after) == bucket:
                yield entry, value


def _changes(entries: Iterable[tuple[bytes, bytes]]) -> Changes:
    return dict(entries)


def _is_at(border: Offsets, state: RocksShardState, number: int) -> bool:
    position = state.position()
    return number_in(position) < number and _at(border, position)


def _at(border: Offsets, position: Offsets) -> bool:
    return all(position.get(name, 0) == offset for name, offset in border.items())


def _opened(folder: Path) -> RocksShardState:
    return RocksShardState(open_database(folder, database_options(Cache(_CACHE_BYTES))), folder)


def _copied(source: Path, target: Path) -> None:
    state = _opened(source)
    try:
        state.snapshot(target)
    finally:
        state.close()


def _shown(position: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {offset:,}" for name, offset in sorted(position.items()))
