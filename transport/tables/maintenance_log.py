"""Moves: what was done to a processor's positions and states from outside, while no worker of it ran.

    penstock.moves, compacted    key  processor    value  its newest move as JSON

A move is noted before its first step and again after its last one, so whoever starts in between learns that it is half done. Each
state that it puts in place carries the move's number in its position: so a state on another machine,
or an older backup, that the move could not reach is told from those that count.
"""

from __future__ import annotations

import msgspec

from ..bus import Bus
from ..category_spec import CategorySpec
from .bus_table import TEXT_KEY, BusTable

MOVES = CategorySpec("penstock.moves", buckets=1, compacted=True)
"""Where maintenance operations are recorded."""


class Retyped(msgspec.Struct, frozen=True):
    """Of what type the values in a processor's states are since somebody changed them.

    Args:
        shape: what states hold since then.
        numbers: by bucket, the number of the move that did so: states of lower ones hold values of another type, even if it is called the same.
    """

    shape: str
    numbers: dict[int, int]


class MaintenanceOperation(msgspec.Struct, frozen=True):
    """The newest move of a processor.

    Args:
        processor: its name.
        what: what it is, as a person would say it, such as "reset to earliest".
        time_ms: when it began (milliseconds since 1970, UTC).
        done: whether its last step was taken.
        numbers: for each bucket whose state was ever replaced, the number of the move that did so last.
        begins: by bucket, the position at which a state begins that is nowhere; where a bucket is missing, at the first event.
        rebuilds: whether a state that is lost can be built again from the events of its bucket.
        empties: whether it drops what was in states.
        passes: whether it leaves states as they are, so that events which it passes over are in none.
        borders: by input and bucket, the first offset from which on keys lie in buckets as they do now, where their number was changed.
        buckets: for a change of that number, the new one; otherwise 0.
        migrates: whether it changes what values in states are.
        retyped: since when these are as they are; None where they were never changed.
        earlier: the move before it, as long as this one may be taken back.
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
        """Return the maintenance number of a bucket's current state; 0 where none has replaced it."""
        return self.numbers.get(bucket, 0)

    def first_fitting(self, bucket: int) -> int:
        """Return the number below which states of a bucket hold values of another type."""
        return 0 if self.retyped is None else self.retyped.numbers.get(bucket, 0)

    @property
    def next_number(self) -> int:
        """The number of the move after this one."""
        return max(self.numbers.values(), default=0) + 1


_TABLE: BusTable[str, MaintenanceOperation] = BusTable(
    MOVES, TEXT_KEY, msgspec.json.Decoder(MaintenanceOperation).decode
)


def newest_maintenance(bus: Bus, processor: str) -> MaintenanceOperation | None:
    """Return the newest operation on a processor; None where there was none."""
    return _TABLE.read(bus).get(processor)


def record_maintenance(bus: Bus, move: MaintenanceOperation) -> None:
    """Record an operation as the newest of its processor; durable on return."""
    _TABLE.write(bus, [_TABLE.put(move.processor, move)])


def forget_maintenance(bus: Bus, processor: str) -> None:
    """Delete a processor's record; durable on return."""
    _TABLE.write(bus, [_TABLE.delete(processor)])
