"""The faults of a run, as data: they can be printed, repeated, and removed one by one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class What(Enum):
    """What a fault does."""

    KILL = "is killed"
    POWER = "loses power"
    """Its machine does: all its processes end, and what was not synced is lost."""
    DISK = "loses its disk"
    """Its processes end, and come back on an empty one."""
    PAUSE = "pauses"
    SLEEP = "all processes pause"
    STOP = "is stopped"
    """A clean stop, and a later restart."""
    SLOW = "is slow"
    """The request, or the write, takes long."""
    FAIL = "gets no answer"
    """The request is not carried out; the client says so when it has waited long enough."""
    LOST = "does not hear the answer"
    """The request is carried out; the client says that no answer came."""
    FULL = "has a full disk"
    DELAY = "gives up a request that arrives late"
    """A request that the client gives up, but that the broker performs much later."""
    BROKERS = "the brokers are away"
    MARKERS = "the brokers are killed, and lose markers"
    """They are started again; the markers of transactions that ran out of time meanwhile are in some buckets, and not in others."""
    CUT = "commits, and the brokers are killed"
    """The brokers have decided a commit and answered no request; after their restart, its markers are missing."""
    ROWS = "the rows are away"
    """Rows that lookups request."""
    STORE = "the store is away"
    PLACE = "the place of backups is away"
    WAREHOUSE = "the warehouse is away"
    EXPIRE = "is away until its group's positions have expired"
    """All its workers are; they come back on the disks that they had, or where it says so on empty ones."""
    RECREATE = "is deleted, created again, and filled by others"
    """A category is deleted and created again while no worker reads it."""
    GROW = "gets another bucket"
    """A category does, from another tool."""
    CLEAN = "the brokers compact their logs"


OF_REQUESTS = frozenset({What.SLOW, What.FAIL, What.LOST, What.DELAY, What.CUT})
ON_EMPTY_DISKS = "on empty disks"
OF_ALL = frozenset(
    {
        What.BROKERS,
        What.MARKERS,
        What.ROWS,
        What.STORE,
        What.PLACE,
        What.SLEEP,
        What.CLEAN,
        What.EXPIRE,
        What.WAREHOUSE,
        What.RECREATE,
        What.GROW,
    }
)
"""They befall no process alone."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong.

    Args:
        at_s: from when on, in seconds since the begin.
        what: what.
        who: which process or machine; empty for all.
        where: the point at which it strikes, the next time that one is reached; empty for any.
        lasts_s: how long.
    """

    at_s: float
    what: What
    who: str = ""
    where: str = ""
    lasts_s: float = 0.0

    def __str__(self) -> str:
        where = f" at '{self.where}'" if self.where else ""
        lasts = f" for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.at_s:8.3f} s  {self.who} {self.what.value}{where}{lasts}"
