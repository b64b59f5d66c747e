"""Where the shards of a processor stand: positions on the bus, and the states that there are of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...processors.declare.processor import Processor
from ...processors.shard.position import Offsets, StatePosition
from ...processors.shard.resume_point import is_committed
from ...state.backups.inventory import expect_closed, read_database
from ...state.backups.manifest import BackupId
from ...state.backups.shard import ShardBackups, damages_of
from ...state.files.file_store import FileStore
from ...state.local.folder import shard_folder
from ...state.local.rocksdb import RocksShardState
from ...state.protocols import ShardIdentity
from ...transport.bus import Bus
from ...transport.tables.maintenance_log import MaintenanceOperation
from ..worker.resume_checks import committed_by
from .reset_plan import Candidate, ShardFacts


@dataclass(frozen=True)
class LocalStates:
    """The states of a processor's shards that lie in a folder of this machine, and their backups.

    Args:
        processor: whose; it keeps state, and not in a remote store.
        root: the folder of all states.
        place: where backups are kept; None for nowhere.
    """

    processor: type[Processor]
    root: Path
    place: FileStore | None

    def identity(self, bucket: int) -> ShardIdentity:
        """Return what a shard's state is known by."""
        return ShardIdentity(self.processor.name, bucket, self.processor.state_shape() or "")

    def folder(self, bucket: int) -> Path:
        """Return the folder of a shard's databases."""
        return shard_folder(self.root, self.identity(bucket))

    def backups(self, bucket: int) -> ShardBackups | None:
        """Return a shard's backups; None where none are kept."""
        return None if self.place is None else ShardBackups(self.place, self.processor.name, bucket)

    def expect_closed(self, bucket: int) -> None:
        """Raise StateInUse where a process has the shard's state open."""
        expect_closed(self.folder(bucket))

    def found(self, bucket: int) -> Iterator[FoundState]:
        """Give the states that there are of a shard, whatever they hold, the one on this machine first; none that is damaged."""
        local = read_database(self.folder(bucket), _found)
        if local is not None and (local.saved or local.prepared):
            yield local
        backups = self.backups(bucket)
        if backups is not None:
            manifests, files = list(backups.manifests()), backups.files()
            for manifest in manifests:
                if not damages_of(manifest, files):
                    yield FoundState(manifest.identity, manifest.position, backup=manifest.id)

    def known(self, bucket: int, committed: StatePosition, first_fitting: int = 0) -> Iterator[Candidate]:
        """Give the states of a shard that this processor could go on with, the one on this machine first.

        Args:
            bucket: which.
            committed: the group's positions.
            first_fitting: the number of the move below which states hold values of another type.
        """
        identity = self.identity(bucket)
        for found in self.found(bucket):
            fits = found.identity == identity and found.saved.maintenance_number >= first_fitting
            if fits and (position := found.settled(committed)):
                yield Candidate(position, found.backup)


@dataclass(frozen=True)
class FoundState:
    """A state that there is of a shard.

    Args:
        identity: whose it is, and what it holds.
        saved: what it reflects.
        prepared: from where and to where a checkpoint leads that waits for its decision.
        keys: about how many values it has; 0 where that is not known.
        backup: which backup it is; None for the state on this machine.
    """

    identity: ShardIdentity
    saved: StatePosition
    prepared: tuple[Offsets, StatePosition] | None = None
    keys: int = 0
    backup: BackupId | None = None

    def settled(self, committed: StatePosition) -> StatePosition:
        """Return what it reflects once its last checkpoint is settled by the group's positions; see `counts`."""
        if self.prepared is None:
            return self.saved
        before, after = self.prepared
        what = f"{self.identity.processor}, bucket {self.identity.bucket}: a checkpoint"
        return self.saved.updated(after) if is_committed(before, after, committed, what) else self.saved


def _found(state: RocksShardState) -> FoundState | None:
    identity, delta = state.identity(), state.prepared()
    if identity is None:
        return None
    prepared = None if delta is None else (delta.before, delta.after)
    return FoundState(identity, state.position(), prepared, state.estimated_keys())


@dataclass(frozen=True)
class ProcessorPositions:
    """Where a processor's group stands, by input and bucket.

    Args:
        committed: its positions, by bucket.
        starts: the first offsets that the bus keeps.
        move: the newest move of it; None where there was none.
    """

    committed: dict[int, StatePosition]
    starts: dict[str, dict[int, int]]
    move: MaintenanceOperation | None

    def of(self, bucket: int) -> ShardFacts:
        """Return where a shard stands, without its states."""
        committed = self.committed.get(bucket, StatePosition())
        starts = {name: starts[bucket] for name, starts in self.starts.items()}
        if self.move is None:
            return ShardFacts(bucket, starts, committed)
        borders = {name: offsets.get(bucket, 0) for name, offsets in self.move.borders.items()}
        return ShardFacts(bucket, starts, committed, borders=borders, rebuilds=self.move.rebuilds)


def processor_positions(
    processor: type[Processor], bus: Bus, move: MaintenanceOperation | None = None
) -> ProcessorPositions:
    """Ask the bus where a processor's group stands."""
    starts = {category.name: dict(bus.catalog.describe(category.name).starts) for category in processor.inputs()}
    return ProcessorPositions(committed_by(processor, bus), starts, move)
