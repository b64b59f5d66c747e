"""The log of maintenance operations, which change the positions and states of a stopped processor.

    penstock.moves, compacted    key  processor    value  its newest operation as JSON

An operation is recorded before its first step and again after its last one, so a worker that starts in between finds it unfinished. Each
state that it installs contains the operation's number in its position, under the category's name. The number identifies outdated states:
on other machines, and in older backups.
"""

from __future__ import annotations

import msgspec

from ..bus import Bus
from ..category_spec import CategorySpec
from .bus_table import TEXT_KEY, BusTable

MOVES = CategorySpec("penstock.moves", buckets=1, compacted=True)
"""The category of operations. Its name is also the key of the operation's number in a state's position."""


class Retyped(msgspec.Struct, frozen=True):
    """The type of the values in a processor's states since a migration.

    Args:
        shape: the description of the type.
        numbers: the number of the migration, by bucket. States with lower numbers contain another type, even one of the same name.
    """

    shape: str
    numbers: dict[int, int]


class MaintenanceOperation(msgspec.Struct, frozen=True):
    """The newest operation on a processor.

    Args:
        processor: the processor's name.
        what: a description for people, such as "reset to earliest".
        time_ms: the start (milliseconds since 1970, UTC).
        done: whether the last step is complete.
        numbers: the number of the last operation that replaced the state, by bucket.
        begins: the position at which a missing state starts, by bucket; the first event for other buckets.
        rebuilds: whether the events of a bucket can rebuild a lost state.
        empties: whether the operation drops the content of states.
        passes: whether the operation keeps states, so that no state contains the skipped events.
        borders: after a resize, the first offset with the present assignment of keys to buckets, by input and bucket.
        buckets: the new number of buckets of a resize; otherwise 0.
        migrates: whether the operation changes the type of values in states.
        retyped: the last migration; None if there was none.
        earlier: the previous operation, as long as this one can be cancelled.
    """

    processor: str
    what: str
    time_ms: int
    done: bool
    numbers: dict[int, int]
    begins: dict[int, dict[str, int]] = {}
    rebuilds: bool = True
    empties: bool = False
    passes: bool = False
    borders: dict[str, dict[int, int]] = {}
    buckets: int = 0
    migrates: bool = False
    retyped: Retyped | None = None
    earlier: MaintenanceOperation | None = None

    def number_of(self, bucket: int) -> int:
        """Return the maintenance number of a bucket's current state; 0 if no operation replaced it."""
        return self.numbers.get(bucket, 0)

    def first_fitting(self, bucket: int) -> int:
        """Return the number below which states of a bucket contain another type of values."""
        return 0 if self.retyped is None else self.retyped.numbers.get(bucket, 0)

    @property
    def next_number(self) -> int:
        """The number of the next operation."""
        return max(self.numbers.values(), default=0) + 1


_TABLE: BusTable[str, MaintenanceOperation] = BusTable(
    MOVES, TEXT_KEY, msgspec.json.Decoder(MaintenanceOperation).decode
)


def newest_maintenance(bus: Bus, processor: str) -> MaintenanceOperation | None:
    """Return the newest operation on a processor; None if there was none."""
    return _TABLE.read(bus).get(processor)


def record_maintenance(bus: Bus, operation: MaintenanceOperation) -> None:
    """Record an operation as the newest of its processor; durable on return."""
    _TABLE.write(bus, [_TABLE.put(operation.processor, operation)])


def forget_maintenance(bus: Bus, processor: str) -> None:
    """Delete a processor's record; durable on return."""
    _TABLE.write(bus, [_TABLE.delete(processor)])
