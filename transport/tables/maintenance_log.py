"""Maintenance operations: changes to a processor's positions and states while none of its workers runs.

    penstock.maintenance, compacted    key  processor    value  its newest operation as JSON

An operation is recorded before its first step and again after its last step. A worker that starts in between finds it unfinished and
refuses to run. Each state that an operation installs contains the operation's generation in its position.
A state on another machine, or an older backup, has a lower generation and is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from ...processors import counted
from ..bus import Bus
from ..category_spec import CategorySpec
from .bus_table import TEXT_KEY, BusTable

MAINTENANCE = CategorySpec("penstock.maintenance", buckets=1, compacted=True)
"""The category of operations."""


class Reset(msgspec.Struct, frozen=True, tag="reset"):
    """Positions move to another target in the inputs.

    Args:
        target: the target, such as "earliest".
        state: the state policy: "auto", "empty" or "keep".
    """

    target: str
    state: str

    def __str__(self) -> str:
        return f"reset to {self.target}"


class Resize(msgspec.Struct, frozen=True, tag="resize"):
    """The number of buckets of the inputs increases.

    Args:
        buckets: the new number.
    """

    buckets: int

    def __str__(self) -> str:
        return f"resize to {counted(self.buckets, 'bucket')}"


class Migration(msgspec.Struct, frozen=True, tag="migration"):
    """Saved states become values of another type.

    Args:
        shape: the new type of the states.
    """

    shape: str

    def __str__(self) -> str:
        return f"migration to {self.shape}"


class Bootstrap(msgspec.Struct, frozen=True, tag="bootstrap"):
    """States that were built from the archive replace the processor's states."""

    def __str__(self) -> str:
        return "bootstrap"


class Restore(msgspec.Struct, frozen=True, tag="restore"):
    """All processors of an app return to a snapshot.

    Args:
        snapshot: its id.
    """

    snapshot: str

    def __str__(self) -> str:
        return f"restore of snapshot {self.snapshot}"


class StateRestore(msgspec.Struct, frozen=True, tag="state-restore"):
    """The states of one processor return to a snapshot. Its positions stay.

    Args:
        snapshot: its id.
    """

    snapshot: str

    def __str__(self) -> str:
        return f"restore of its state of snapshot {self.snapshot}"


class Clone(msgspec.Struct, frozen=True, tag="clone"):
    """The processor is made as a clone of another one.

    Args:
        snapshot: the id of the snapshot with its state.
        begins: by category that the original processor writes, and by bucket, the first offset whose message the clone's own category contains, too.
    """

    snapshot: str
    begins: dict[str, dict[int, int]]

    def __str__(self) -> str:
        return f"clone of snapshot {self.snapshot}"


class Promotion(msgspec.Struct, frozen=True, tag="promotion"):
    """The processors of an app take over the states of a clone, whose own workers are not started again.

    Args:
        clone: the name of the clone.
        origin: how the processor's counterpart in the clone was made.
        cloned_ms: when it was made (milliseconds since 1970, UTC).
    """

    clone: str
    origin: Clone
    cloned_ms: int

    def __str__(self) -> str:
        return f"promotion of {self.clone}"


OperationKind = Reset | Resize | Migration | Bootstrap | Restore | StateRestore | Clone | Promotion


class ConvertedType(msgspec.Struct, frozen=True):
    """The type of saved values since the last migration.

    Args:
        shape: the type of the states.
        generations: by bucket, the generation of the migrated state. States of lower generations contain another type, even if its name
            is the same.
    """

    shape: str
    generations: dict[int, int]


class LastReset(msgspec.Struct, frozen=True):
    """The last operation that has moved a group's positions to other events.

    Args:
        kind: the operation.
        started_ms: when it started (milliseconds since 1970, UTC).
    """

    kind: Reset | Restore | Bootstrap
    started_ms: int


class StateLineage(msgspec.Struct, frozen=True):
    """The states that workers may use after all operations on a processor so far.

    Args:
        generations: by bucket, the generation of the state that an operation installed last.
        initial_positions: by bucket, the position of an empty state; a missing bucket starts at the first event.
        is_rebuildable: whether a lost state can be rebuilt from the events of its bucket.
        resize_offsets: by input and bucket, the first offset that was written with the current number of buckets.
        converted: the type of values since the last migration; None without a migration.
        resets: the number of operations that have moved the group's positions to other events. Positions that a sink saved before are obsolete.
        last_reset: the last of them; None without one.
        clone: how the processor was made, if it belongs to a clone.
    """

    generations: dict[int, int] = {}
    initial_positions: dict[int, dict[str, int]] = {}
    is_rebuildable: bool = True
    resize_offsets: dict[str, dict[int, int]] = {}
    converted: ConvertedType | None = None
    resets: int = 0
    last_reset: LastReset | None = None
    clone: Clone | None = None

    @property
    def newest_generation(self) -> int:
        """The generation of the last operation that installed states; 0 for none."""
        return max(self.generations.values(), default=0)

    @property
    def newest_buckets(self) -> set[int]:
        """The buckets whose states the last operation installed."""
        newest = self.newest_generation
        return {bucket for bucket, generation in self.generations.items() if generation == newest}

    def installed(
        self, generations: Mapping[int, int], initial_positions: Mapping[int, Mapping[str, int]] | None = None
    ) -> StateLineage:
        """Return the lineage after an operation has replaced the states of some buckets.

        Args:
            generations: by bucket, the generation of the new states.
            initial_positions: by bucket, the position of an empty new state.
        """
        kept = {bucket: at for bucket, at in self.initial_positions.items() if bucket not in generations}
        added = {bucket: dict(position) for bucket, position in (initial_positions or {}).items()}
        return msgspec.structs.replace(
            self, generations={**self.generations, **generations}, initial_positions={**kept, **added}
        )

    def with_type(self, converted: ConvertedType | None) -> StateLineage:
        """Return the lineage with another type of values."""
        return msgspec.structs.replace(self, converted=converted)

    def generation(self, bucket: int) -> int:
        """Return the generation of a bucket's current state; 0 if no operation has installed it."""
        return self.generations.get(bucket, 0)

    def first_of_type(self, bucket: int) -> int:
        """Return the lowest generation whose states contain values of the current type."""
        return 0 if self.converted is None else self.converted.generations.get(bucket, 0)


class MaintenanceOperation(msgspec.Struct, frozen=True):
    """The newest maintenance operation of a processor.

    Args:
        processor: its name.
        kind: the operation and its parameters.
        started_ms: the time of its start (milliseconds since 1970, UTC).
        lineage: the states that workers may use after it.
        is_done: whether its last step is done.
        previous: the operation before it, as long as this one can be rolled back.
    """

    processor: str
    kind: OperationKind
    started_ms: int
    lineage: StateLineage = StateLineage()
    is_done: bool = False
    previous: MaintenanceOperation | None = None

    @property
    def started(self) -> str:
        """The time of its start, as text."""
        return datetime.fromtimestamp(self.started_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def can_finish(kind: OperationKind, unfinished: OperationKind) -> bool:
    """Return whether an operation completes an unfinished operation that it replaces."""
    match kind, unfinished:
        case Reset(state=new), Reset(state=old):
            # An empty state lacks earlier events, and a kept state skips some. Shards with different policies must not mix.
            return old in {"auto", new} or (old, new) == ("keep", "empty")
        case Reset(state="empty"), Bootstrap():
            return True
        case _:
            return kind == unfinished


def lineage_of(operation: MaintenanceOperation | None) -> StateLineage:
    """Return the states that workers may use after an operation; all, without an operation."""
    return StateLineage() if operation is None else operation.lineage


_TABLE: BusTable[str, MaintenanceOperation] = BusTable(
    MAINTENANCE, TEXT_KEY, msgspec.json.Decoder(MaintenanceOperation).decode
)


def newest_maintenance(bus: Bus, processor: str) -> MaintenanceOperation | None:
    """Return the newest operation of a processor; None without one."""
    return _TABLE.read(bus).get(processor)


def record_maintenance(bus: Bus, operation: MaintenanceOperation) -> None:
    """Record an operation; durable on return."""
    _TABLE.write(bus, [_TABLE.put(operation.processor, operation)])


def forget_maintenance(bus: Bus, processor: str) -> None:
    """Delete the record of all operations on a processor."""
    _TABLE.write(bus, [_TABLE.delete(processor)])
