"""The faults of a run as data, so they can be printed, repeated, and removed one by one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FaultKind(Enum):
    """The effect of a fault."""

    KILL = "is killed"
    POWER = "loses power"
    """All processes of the machine end, and unsynced data is lost."""
    DISK = "loses its disk"
    """Its processes end, and restart on an empty disk."""
    PAUSE = "pauses"
    SLEEP = "all processes pause"
    STOP = "is stopped"
    """A clean stop, and a later restart."""
    SLOW = "is slow"
    """The request or the write takes long."""
    FAIL = "gets no answer"
    """The request is not performed; the client raises an error after its timeout."""
    LOST = "does not hear the answer"
    """The request is performed; the client raises an error after its timeout."""
    FULL = "has a full disk"
    CLOCK = "has a wrong clock"
    """The wall clock of its machine jumps, and back later."""
    DELAY = "gives up a request that arrives late"
    """A request that the client gives up, but that the broker performs much later."""
    BROKERS = "the brokers are unreachable"
    LEADERS = "is an unreachable broker"
    """Its buckets are neither read nor written; those of the other brokers are, and the brokers reach each other."""
    SECOND = "the brokers of the second cluster are unreachable"
    MARKERS = "the brokers are killed, and lose markers"
    """After the restart, the markers of expired transactions are missing in some buckets."""
    CUT = "commits, and the brokers are killed"
    """The brokers have decided a commit and answered no request; after their restart, its markers are missing."""
    UNMARKED = "commits, and the brokers write no marker"
    """The brokers confirm a commit while their controller takes them for dead; no broker restarts, and its markers are missing."""
    ROWS = "the lookup source is unreachable"
    """The source of lookups."""
    STORE = "the remote store is unreachable"
    BACKUP_STORE = "the backup store is unreachable"
    ROLLBACK = "the backup store is put back to an older copy"
    WAREHOUSE = "the warehouse is unreachable"
    EXPIRE = "stops until its group's positions have expired"
    """All workers of a processor stop; they restart on their disks, or with `ON_EMPTY_DISKS` on empty disks."""
    RECREATE = "is deleted, created again, and filled by others"
    """A category is deleted and created again while no worker reads it."""
    GROW = "gets another bucket"
    """Another tool adds a bucket to a category."""
    CLEAN = "the brokers compact their logs"


REQUEST_FAULTS = frozenset(
    {FaultKind.SLOW, FaultKind.FAIL, FaultKind.LOST, FaultKind.DELAY, FaultKind.CUT, FaultKind.UNMARKED}
)
ON_EMPTY_DISKS = "on empty disks"
GLOBAL_FAULTS = frozenset(
    {
        FaultKind.BROKERS,
        FaultKind.LEADERS,
        FaultKind.SECOND,
        FaultKind.MARKERS,
        FaultKind.ROWS,
        FaultKind.STORE,
        FaultKind.ROLLBACK,
        FaultKind.BACKUP_STORE,
        FaultKind.SLEEP,
        FaultKind.CLEAN,
        FaultKind.EXPIRE,
        FaultKind.WAREHOUSE,
        FaultKind.RECREATE,
        FaultKind.GROW,
    }
)
"""Faults that do not hit a single process."""


@dataclass(frozen=True)
class Fault:
    """A planned fault.

    Args:
        at_s: the earliest time, in seconds since the start of the run.
        kind: the effect.
        target: the process, machine, processor or category; empty for all.
        point: the point at which it takes effect, when the target next reaches it; empty for any point.
        duration_s: the duration.
    """

    at_s: float
    kind: FaultKind
    target: str = ""
    point: str = ""
    duration_s: float = 0.0

    def __str__(self) -> str:
        at = f" at '{self.point}'" if self.point else ""
        lasts = f" for {self.duration_s:.1f} s" if self.duration_s else ""
        return f"{self.at_s:8.3f} s  {self.target} {self.kind.value}{at}{lasts}"
