"""Repartitioning of states by key, for another number of buckets.

old states --each entry to the new bucket of its key--> new states, built aside

A new bucket has keys of the old buckets with the same remainder modulo the greatest common divisor of both numbers. If the new number is
a multiple of the old one, all of its keys come from one old bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import gcd

from ....processors.declare import Processor, Stateful, plan_of
from ....processors.operators import EntryKeyReader, entry_key_reader
from ....processors.shard import Offsets, StatePosition
from ....processors.time import merge_schedules, merge_shard_time
from ....state.backups import fetch
from ....state.local import RocksShardState, RocksStateFolder, current
from ....transport.tables import MaintenanceRefused
from ...kernel import resolve_prepared
from .processor_positions import LocalStates
from .staging import Staging, open_state, write_entries


@dataclass(frozen=True)
class SplitPlan:
    """The repartitioning of one processor's states.

    Args:
        processor: whose states.
        before: the old number of buckets.
        after: the new number of buckets.
        ends: the end of each old bucket of each input; each old state must contain all events up to it.
        generation: the generation of the new states.
        previous: by old bucket, the generation of the state to split; lower ones are obsolete.
    """

    processor: type[Processor]
    before: int
    after: int
    ends: Mapping[str, Mapping[int, int]]
    generation: int
    previous: Mapping[int, int] = field(default_factory=dict)

    def end(self, bucket: int) -> Offsets:
        """Return the old end of a bucket of each input; 0 for a new bucket."""
        return {name: offsets.get(bucket, 0) for name, offsets in self.ends.items()}

    def sources(self, bucket: int) -> list[int]:
        """Return the old buckets that contain keys of a new bucket."""
        common = gcd(self.before, self.after)
        return [source for source in range(self.before) if source % common == bucket % common]


class StateSplit:
    """Builds the new states.

    Args:
        states: the old states.
        plan: the repartitioning.
        staging: the new states.
    """

    def __init__(self, states: LocalStates, plan: SplitPlan, staging: Staging) -> None:
        self._states = states
        self._plan = plan
        self._staging = staging
        self._key_of: EntryKeyReader = entry_key_reader(plan.processor)

    def build(self, committed: Callable[[int], StatePosition]) -> Generator[int, None, None]:
        """Build the new states and leave the old ones unchanged; nothing if all are built. Yields each bucket before its state is built.

        Args:
            committed: returns the group's positions in a bucket.

        Raises:
            MaintenanceRefused: an old state is missing or incomplete, or a key is in another bucket than expected.
        """
        if self._staging.is_complete:
            return
        with self._staging.building(), self._sources(committed) as sources:
            for bucket in range(self._plan.after):
                yield bucket
                self._build_state(bucket, [sources[old] for old in self._plan.sources(bucket) if old in sources])

    @contextmanager
    def _sources(self, committed: Callable[[int], StatePosition]) -> Iterator[dict[int, RocksShardState]]:
        sources: dict[int, RocksShardState] = {}
        try:
            for bucket in range(self._plan.before):
                state = self._source(bucket, committed(bucket))
                if state is not None:
                    sources[bucket] = state
            yield sources
        finally:
            for state in sources.values():
                state.close()

    def _source(self, bucket: int, committed: StatePosition) -> RocksShardState | None:
        """Open the state of an old bucket at its end; None for a bucket without events."""
        local = self._local(bucket, committed)
        if local is not None:
            if self._is_complete(bucket, local.position()):
                return local
            local.close()
        backup = self._complete_backup(bucket)
        if backup is not None:
            return backup
        end = self._plan.end(bucket)
        if not any(end.values()):
            return None
        raise MaintenanceRefused(
            f"{self._plan.processor.__name__}, bucket {bucket}: its state at {_describe(end)}, the end of the bucket, is neither on this machine "
            "nor in the backups. Nothing was changed. Run this command on the machine with the states (`--dir`), or name the backup store "
            "(`--backup`). With workers on several machines, back up all states before you stop them."
        )

    def _local(self, bucket: int, committed: StatePosition) -> RocksShardState | None:
        if current(self._states.folder(bucket)) is None:
            return None
        self._states.require_closed(bucket)
        state = RocksStateFolder(self._states.root).open(self._states.identity(bucket))
        resolve_prepared(state, committed, f"{self._plan.processor.name}, bucket {bucket}: a checkpoint")
        return state

    def _complete_backup(self, bucket: int) -> RocksShardState | None:
        backups = self._states.backups(bucket)
        if backups is None:
            return None
        for manifest in backups.manifests():
            if manifest.identity == self._states.identity(bucket) and self._is_complete(bucket, manifest.position):
                target = self._staging.source(bucket)
                fetch(backups, manifest, target)
                return open_state(target)
        return None

    def _is_complete(self, bucket: int, position: StatePosition) -> bool:
        """Return whether a state contains all events of its bucket and is of the current generation."""
        plan = self._plan
        is_current = plan.previous.get(bucket, 0) <= position.generation < plan.generation
        return is_current and all(position.offsets.get(name, 0) == offset for name, offset in plan.end(bucket).items())

    def _build_state(self, bucket: int, sources: list[RocksShardState]) -> None:
        state = open_state(self._staging.staged(bucket))
        try:
            state.claim(self._states.identity(bucket))
            for source in sources:
                write_entries(state, self._entries_of(bucket, source))
            processor = self._plan.processor
            inputs = [category.name for category in plan_of(processor).inputs]
            position = StatePosition(self._plan.end(bucket), generation=self._plan.generation)
            schedules = merge_schedules(processor.schedules, sources) if issubclass(processor, Stateful) else {}
            state.save_together(merge_shard_time(inputs, sources) | schedules, position)
        finally:
            state.close()

    def _entries_of(self, bucket: int, source: RocksShardState) -> Iterator[tuple[bytes, bytes]]:
        find_key, category = self._key_of, plan_of(self._plan.processor).inputs[0]
        before, after = (replace(category, buckets=buckets) for buckets in (self._plan.before, self._plan.after))
        identity = source.identity()
        old = None if identity is None else identity.bucket
        for entry, value in source.items():
            owner = find_key(entry, value)
            if owner is None:
                continue
            key = owner.decode()
            if before.bucket_of(key) != old:
                raise MaintenanceRefused(
                    f"{self._plan.processor.__name__}: key {key!r} has state in bucket {old}, and the partitioner of {category.name} chooses bucket "
                    f"{before.bucket_of(key)} of {before.buckets}. The writer uses another partitioner, so the new bucket of the key is unknown. "
                    f"Nothing was changed. Declare the `partitioner` of the writer on {category.name}, or copy it to a new category first "
                    "(penstock.Repartition)."
                )
            if after.bucket_of(key) == bucket:
                yield entry, value


def _describe(position: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {offset:,}" for name, offset in sorted(position.items()))
