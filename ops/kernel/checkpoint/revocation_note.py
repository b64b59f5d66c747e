"""Notes on disk that a worker is releasing revoked buckets, in case it dies before the group has reassigned them.

A member that returns with the same identity within its session replaces the dead one, and Kafka starts no rebalance. A bucket that was revoked
from the dead member, but not yet released, then has no owner until the group changes for another reason. So a worker that finds a note leaves
the group before it joins, which reassigns all buckets.

    <state>/<processor>/workers/0.revocation    exists while the worker of this place releases buckets, until the group's next assignment
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from ....processors.declare import Processor, plan_of
from ....transport import Bucket, Bus, BusUnreachable

POLL_S = 0.1
LEAVE_WAIT_S = 0.5
"""How long the client may take to send its leave request."""
JOIN_LIMIT_S = 60.0
"""How long the group may take to assign buckets to a member."""


class RevocationNotes(Protocol):
    """Notes about revocations in progress. Both calls may be repeated."""

    def begin(self) -> None:
        """Record that the worker begins to release buckets."""
        ...

    def end(self) -> None:
        """Record that the group has assigned buckets since."""
        ...


class NoRevocationNotes:
    """Notes of a worker whose identity never returns: none."""

    def begin(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class RevocationNotesOnDisk:
    """Notes as a file, which outlives the process.

    Args:
        note: the file; used by one process at a time.
    """

    def __init__(self, note: Path) -> None:
        self._note = note

    @property
    def is_unfinished(self) -> bool:
        """Whether the last worker of this place died during a revocation."""
        return self._note.exists()

    def begin(self) -> None:
        """Create the file."""
        self._note.touch()

    def end(self) -> None:
        """Delete the file."""
        self._note.unlink(missing_ok=True)


class _Membership:
    """A membership that reads no events."""

    def __init__(self) -> None:
        self.is_assigned = False
        self.owned: set[Bucket] = set()

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Record assigned buckets."""
        self.is_assigned = True
        self.owned.update(buckets)

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Record revoked buckets."""
        self.owned.difference_update(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Record lost buckets."""
        self.revoked(buckets)


def leave_group(processor: type[Processor], bus: Bus, identity: str) -> None:
    """Leave a processor's group under the identity of a dead member, so that the group reassigns its buckets.

    Raises:
        BusUnreachable: the group does not answer.
    """
    membership = _Membership()
    deadline = time.monotonic() + JOIN_LIMIT_S
    inputs = [category.name for category in plan_of(processor).inputs]
    with closing(bus.reader(processor.name, inputs, membership, identity)) as reader:
        while not membership.is_assigned:
            _expect_time(processor, deadline)
            reader.poll(POLL_S)
        reader.leave()
        while membership.owned:  # the client sends its leave request after the revocation
            _expect_time(processor, deadline)
            reader.poll(POLL_S)
        reader.poll(LEAVE_WAIT_S)


def _expect_time(processor: type[Processor], deadline: float) -> None:
    if time.monotonic() > deadline:
        raise BusUnreachable(
            f"Group {processor.name} has not answered for {JOIN_LIMIT_S:.0f} s. This worker died while it released buckets, and they may have no "
            "owner. Nothing was read. Start the worker again when the brokers answer."
        )
