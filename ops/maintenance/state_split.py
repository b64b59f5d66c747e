"""States split anew by key, for another number of buckets.

states of the old buckets --each entry by its key's bucket--> states of the new ones, made aside --all whole--> put in place

A new bucket has keys of those old ones that leave the same remainder by what both numbers have in common; of one alone, where the new
number is a multiple of the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import gcd

from ...processors.declare.partitioner import bucket_of
from ...processors.declare.processor import Processor
from ...processors.operators.key_owners import KeyOf, key_of
from ...processors.shard.position import Offsets, StatePosition
from ...processors.time.shard_time import merge_shard_time
from ...state.backups.fetch import fetch
from ...state.local.folder import RocksStateFolder, current
from ...state.local.rocksdb import RocksShardState
from ..worker.resume_checks import settle_prepared
from .errors import MaintenanceRefused
from .processor_positions import LocalStates
from .staging import Staging, opened, write_all


@dataclass(frozen=True)
class Split:
    """How states are to be split.

    Args:
        processor: whose.
        before: the number of buckets so far.
        after: the new number.
        borders: where each old bucket of each input ends, and so what its state reflects.
        number: the number of the move.
        since: by old bucket, the number of the move that its state is of; one of a lower number was replaced elsewhere.
    """

    processor: type[Processor]
    before: int
    after: int
    borders: Mapping[str, Mapping[int, int]]
    number: int
    since: Mapping[int, int] = field(default_factory=dict)

    def border(self, bucket: int) -> Offsets:
        """Return where a bucket of each input ended before; 0 of a new one."""
        return {name: offsets.get(bucket, 0) for name, offsets in self.borders.items()}

    def sources(self, bucket: int) -> list[int]:
        """Return the old buckets that a new one may have keys of."""
        common = gcd(self.before, self.after)
        return [source for source in range(self.before) if source % common == bucket % common]


class StateSplit:
    """Makes the new states.

    Args:
        states: where the old ones are.
        split: how.
        staging: where the new ones are made.
    """

    def __init__(self, states: LocalStates, split: Split, staging: Staging) -> None:
        self._states = states
        self._split = split
        self._staging = staging
        self._key_of: KeyOf = key_of(split.processor)

    def make(self, committed: Callable[[int], StatePosition]) -> None:
        """Make the new states from the old ones, which stay as they are; nothing where that is done.

        Args:
            committed: gives the group's positions in a bucket.

        Raises:
            MaintenanceRefused: an old state is missing, or is not as far as its bucket's end, or a key is not where it belongs.
        """
        if self._staging.is_whole:
            return
        with self._staging.making(), self._sources(committed) as sources:
            for bucket in range(self._split.after):
                self._make_one(bucket, [sources[old] for old in self._split.sources(bucket) if old in sources])

    @contextmanager
    def _sources(self, committed: Callable[[int], StatePosition]) -> Iterator[dict[int, RocksShardState]]:
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

    def _source(self, bucket: int, committed: StatePosition) -> RocksShardState | None:
        """Open the state of an old bucket as it was at the border; None of one that never had an event."""
        border = self._split.border(bucket)
        local = self._local(bucket, committed)
        if local is not None:
            if self._is_at(bucket, local.position()):
                return local
            local.close()
        kept = self._backup_at(bucket)
        if kept is not None:
            return kept
        if not any(border.values()):
            return None
        raise MaintenanceRefused(
            f"{self._split.processor.__name__}, bucket {bucket}: its state at {_shown(border)}, where the bucket ends, is neither on this "
            "machine nor among the backups. Nothing was changed. Do this where the states are (`--dir`), or name the place of backups "
            "(`--backup`); with workers on several machines, let them make a last backup of everything before they are stopped."
        )

    def _local(self, bucket: int, committed: StatePosition) -> RocksShardState | None:
        if current(self._states.folder(bucket)) is None:
            return None
        self._states.expect_closed(bucket)
        state = RocksStateFolder(self._states.root).open(self._states.identity(bucket))
        settle_prepared(state, committed, f"{self._split.processor.name}, bucket {bucket}: a checkpoint")
        return state

    def _backup_at(self, bucket: int) -> RocksShardState | None:
        backups = self._states.backups(bucket)
        if backups is None:
            return None
        for manifest in backups.manifests():
            if manifest.identity == self._states.identity(bucket) and self._is_at(bucket, manifest.position):
                target = self._staging.source(bucket)
                fetch(backups, manifest, target)
                return opened(target)
        return None

    def _is_at(self, bucket: int, position: StatePosition) -> bool:
        """Tell whether a state is that of the border, and not one of before a move, or of this one."""
        split = self._split
        is_current = split.since.get(bucket, 0) <= position.maintenance_number < split.number
        return is_current and all(
            position.offsets.get(name, 0) == offset for name, offset in split.border(bucket).items()
        )

    def _make_one(self, bucket: int, sources: list[RocksShardState]) -> None:
        state = opened(self._staging.staged(bucket))
        try:
            state.claim(self._states.identity(bucket))
            for source in sources:
                write_all(state, self._entries_of(bucket, source), lambda _: None)
            inputs = [category.name for category in self._split.processor.inputs()]
            position = StatePosition(self._split.border(bucket), maintenance_number=self._split.number)
            state.save_together(merge_shard_time(inputs, sources), position)
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
                raise MaintenanceRefused(
                    f"{self._split.processor.__name__}: key {key.decode(errors='backslashreplace')!r} has state in bucket {old}, where Kafka's "
                    f"own producers put it into {bucket_of(key, before)} of {before}: what writes its category chooses buckets in its own way, "
                    "so it is not known where the key will be. Nothing was changed. Write it as Kafka's producers do (murmur2), or bring it "
                    "to a category of its own first (penstock.Repartition)."
                )
            if bucket_of(key, after) == bucket:
                yield entry, value


def _shown(position: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {offset:,}" for name, offset in sorted(position.items()))
