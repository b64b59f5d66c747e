"""That a worker is letting go of buckets, noted on its disk for the case that it dies in that moment.

A member with an identity that comes back within its session is taken for the one that died: Kafka gives out nothing anew. A bucket that it was
told to let go of, and has not said that it did, then stays with nobody until the group changes for another reason. So a worker that finds
such a note leaves the group before it joins: then all buckets are given out.

    <state>/<processor>/workers/0.letting-go    there while the worker of this place lets go of buckets, and until the group has gone on
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

from ...processors.declare.processor import Processor
from ...transport.bus import Bus
from ...transport.errors import BusUnreachable
from ...transport.messages import Bucket

POLL_S = 0.1
LEAVING_S = 0.5
"""How long a client is given to say that it leaves."""
JOIN_LIMIT_S = 60.0
"""How long a group may take to tell a member what it has."""


class RevocationNotes(Protocol):
    """Notes that a worker lets go of buckets. Both calls may be repeated."""

    def begin(self) -> None:
        """Note that it begins."""
        ...

    def end(self) -> None:
        """Note that the group has given out its buckets since."""
        ...


class NoRevocationNotes:
    """Notes nothing: for workers that never come back."""

    def begin(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class RevocationNotesOnDisk:
    """Notes it in a file, which outlives the process.

    Args:
        note: the file; used by one process at a time.
    """

    def __init__(self, note: Path) -> None:
        self._note = note

    @property
    def was_under_way(self) -> bool:
        """Whether the last worker of this place died while it let go of buckets."""
        return self._note.exists()

    def begin(self) -> None:
        """Note that it begins."""
        self._note.touch()

    def end(self) -> None:
        """Note that the group has given out its buckets since."""
        self._note.unlink(missing_ok=True)


class _Joined:
    """A member that reads nothing of what it is given."""

    def __init__(self) -> None:
        self.is_told = False
        self.owned: set[Bucket] = set()

    def assigned(self, buckets: Sequence[Bucket]) -> None:
        """Note what is given."""
        self.is_told = True
        self.owned.update(buckets)

    def revoked(self, buckets: Sequence[Bucket]) -> None:
        """Note what is taken."""
        self.owned.difference_update(buckets)

    def lost(self, buckets: Sequence[Bucket]) -> None:
        """Note what is taken."""
        self.revoked(buckets)


def leave_group(processor: type[Processor], bus: Bus, identity: str) -> None:
    """Leave a processor's group in the name of a member that died, so that its buckets are given out anew.

    Raises:
        BusUnreachable: the group does not answer.
    """
    joined = _Joined()
    deadline = time.monotonic() + JOIN_LIMIT_S
    with closing(bus.reader(processor.name, [one.name for one in processor.inputs()], joined, identity)) as reader:
        while not joined.is_told:
            _expect_time(processor, deadline)
            reader.poll(POLL_S)
        reader.leave()
        while joined.owned:  # the client says that it leaves when it has let go
            _expect_time(processor, deadline)
            reader.poll(POLL_S)
        reader.poll(LEAVING_S)


def _expect_time(processor: type[Processor], deadline: float) -> None:
    if time.monotonic() > deadline:
        raise BusUnreachable(
            f"Group {processor.name} has not answered for {JOIN_LIMIT_S:.0f} s, and buckets that this worker was letting go of when it died may "
            "be with nobody. Nothing was read. Start the worker again when the brokers answer."
        )
