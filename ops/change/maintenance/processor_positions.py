"""Positions of a processor on the bus, and the stored states of its shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ....processors.declare import Processor, plan_of
from ....processors.shard import Offsets, StatePosition, is_committed
from ....state import ShardIdentity
from ....state.backups import BackupId, ShardBackups, damages_of, expect_closed, read_database
from ....state.files import FileStore
from ....state.local import RocksShardState, shard_folder
from ....transport import Bus
from ....transport.tables import StateLineage
from ...kernel import committed_positions
from .reset_plan import Candidate, ShardFacts


@dataclass(frozen=True)
class LocalStates:
    """The states of a processor's shards in a local folder, and their backups.

    Args:
        processor: a processor with local state.
        root: the folder of all states.
        backup_store: where backups are; None without backups.
    """

    processor: type[Processor]
    root: Path
    backup_store: FileStore | None

    def identity(self, bucket: int) -> ShardIdentity:
        """Return the identity of a shard's state."""
        return ShardIdentity(self.processor.name, bucket, plan_of(self.processor).state_shape or "")

    def folder(self, bucket: int) -> Path:
        """Return the folder of a shard's databases."""
        return shard_folder(self.root, self.identity(bucket))

    def backups(self, bucket: int) -> ShardBackups | None:
        """Return a shard's backups; None without a backup store."""
        return None if self.backup_store is None else ShardBackups(self.backup_store, self.processor.name, bucket)

    def require_closed(self, bucket: int) -> None:
        """Raise StateInUse if a process has the shard's state open."""
        expect_closed(self.folder(bucket))

    def stored(self, bucket: int) -> Iterator[StoredState]:
        """Yield all intact states of a shard, of any type: the local one first, then the backups."""
        local = read_database(self.folder(bucket), _stored)
        if local is not None and (local.saved or local.prepared):
            yield local
        backups = self.backups(bucket)
        if backups is not None:
            manifests, files = list(backups.manifests()), backups.files()
            for manifest in manifests:
                if not damages_of(manifest, files):
                    yield StoredState(manifest.identity, manifest.position, backup=manifest.id)

    def candidates(self, bucket: int, committed: StatePosition, lineage: StateLineage) -> Iterator[Candidate]:
        """Yield the states of a shard that the processor can use, the local one first.

        Args:
            bucket: the shard.
            committed: the group's positions.
            lineage: which states contain values of the declared type.
        """
        identity = self.identity(bucket)
        for state in self.stored(bucket):
            fits = state.identity == identity and state.saved.generation >= lineage.first_of_type(bucket)
            if fits and (position := state.completed(committed)):
                yield Candidate(position, state.backup)


@dataclass(frozen=True)
class StoredState:
    """A stored state of a shard.

    Args:
        identity: its processor, bucket and content.
        saved: its position.
        prepared: the positions before and after a prepared checkpoint that is not decided.
        keys: its approximate number of values; 0 if unknown.
        backup: the backup; None for the local state.
    """

    identity: ShardIdentity
    saved: StatePosition
    prepared: tuple[Offsets, StatePosition] | None = None
    keys: int = 0
    backup: BackupId | None = None

    def completed(self, committed: StatePosition) -> StatePosition:
        """Return its position after its last checkpoint is completed or rolled back by the group's positions; see `is_committed`."""
        if self.prepared is None:
            return self.saved
        before, after = self.prepared
        checkpoint = f"{self.identity.processor}, bucket {self.identity.bucket}: a checkpoint"
        return self.saved.updated(after) if is_committed(before, after, committed, checkpoint) else self.saved


def _stored(state: RocksShardState) -> StoredState | None:
    identity, delta = state.identity(), state.prepared()
    if identity is None:
        return None
    prepared = None if delta is None else (delta.before, delta.after)
    return StoredState(identity, state.position(), prepared, state.estimated_keys())


@dataclass(frozen=True)
class ProcessorPositions:
    """The positions of a processor's group.

    Args:
        committed: its committed positions, by bucket.
        starts: the first retained offsets, by input and bucket.
        lineage: the states that its workers may use.
    """

    committed: dict[int, StatePosition]
    starts: dict[str, dict[int, int]]
    lineage: StateLineage

    def of(self, bucket: int) -> ShardFacts:
        """Return the facts about a shard, without its states."""
        return ShardFacts(
            bucket,
            starts={name: starts[bucket] for name, starts in self.starts.items()},
            committed=self.committed.get(bucket, StatePosition()),
            resize_offsets={name: offsets.get(bucket, 0) for name, offsets in self.lineage.resize_offsets.items()},
            is_rebuildable=self.lineage.is_rebuildable,
        )


def processor_positions(
    processor: type[Processor], bus: Bus, lineage: StateLineage | None = None
) -> ProcessorPositions:
    """Read the positions of a processor's group from the bus."""
    starts = {category.name: dict(bus.catalog.describe(category.name).starts) for category in plan_of(processor).inputs}
    return ProcessorPositions(committed_positions(processor, bus), starts, lineage or StateLineage())
