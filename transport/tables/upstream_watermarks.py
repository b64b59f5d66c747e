"""Upstream watermarks: "all events that I will write before time t are below these offsets".

The writers of a category publish them: the shards of a processor, or a watermark writer (injector) for an external program. A consumer uses
the least watermark of the writers, once it has read up to their offsets. The categories themselves contain no watermarks.

    penstock.watermarks, compacted    key  writer/bucket    value  its watermark as JSON; none if it was deleted

Statements that a worker sends together have the same offsets. Only the first contains them, and the others refer to it, so that the
messages grow with the shards and not with their square. If the bus has compacted the first, the present offsets take the place of its own: they
are larger, so the watermark counts later, but never too early.

Source: Akidau et al., "MillWheel", 2013, section 5.3, where a central authority stores them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from itertools import groupby

import msgspec

from ...processors.time import NEVER_MS
from ..bus import Bus
from ..category_spec import CategorySpec
from ..errors import BusUnreachable
from ..messages import Outgoing
from .bus_table import NUMBERED_KEY, BusTable, Change

WATERMARKS = CategorySpec("penstock.watermarks", buckets=1, compacted=True)
"""The category of watermarks."""


Ends = dict[str, dict[int, int]]
"""End offsets, by category and bucket."""

MAX_SHARED = 64
"""The number of shared end offsets that a reader keeps, for statements that follow. Statements that are sent together rarely mix with others."""


class LoopRound(msgspec.Struct, frozen=True):
    """A round in which the shards of a loop agree on its watermark.

    Args:
        number: its number; 0 outside of loops.
        cut_ms: no event that the shard sends into the loop after this round has an earlier event time (milliseconds since 1970, UTC), unless an
            earlier event of the loop causes it; and no event that it has sent since its previous round is earlier.
    """

    number: int = 0
    cut_ms: int = NEVER_MS


NO_ROUND = LoopRound()
"""The round of a shard that is in no loop."""


class WatermarkStatement(msgspec.Struct, frozen=True):
    """The watermark of one shard of a processor, or of a watermark writer.

    Args:
        writer: the name of the processor or watermark writer.
        bucket: the shard.
        shards: the number of its shards; consumers wait until each has a watermark.
        watermark_ms: all events that it will write before this event time (milliseconds since 1970, UTC) …
        ends: … are below these offsets, by category and bucket.
        low_ms: its own low watermark; it may write earlier events.
        held_by: the reason for a low watermark that does not advance.
        idle: whether it has been idle for so long that consumers should not wait for it.
        as_of: the end of this category when the bus confirmed the idleness; it shows the age without a clock.
        idle_as_of: the end of this category when the inputs had no event and their writers were idle, or earlier. What arrived later is not considered.
        ended: whether it is idle until its next statement, without signs of life: its run has stopped at the end of its input, and assumes silence.
        outside: whether an external program publishes it, whose activity is unknown.
        round: the round of the shard's loop.
        shared: on the bus, the name of the offsets that several statements share. All but the first have the categories without offsets.
    """

    writer: str
    bucket: int
    shards: int
    watermark_ms: int
    ends: Ends
    low_ms: int = NEVER_MS
    held_by: str = ""
    idle: bool = False
    as_of: int = 0
    idle_as_of: int = 0
    ended: bool = False
    outside: bool = False
    round: LoopRound = NO_ROUND
    shared: str = ""

    @property
    def owner(self) -> WatermarkOwner:
        """The writer and its shard."""
        return self.writer, self.bucket

    def later(self, earlier: WatermarkStatement | None) -> WatermarkStatement:
        """Return this statement with the later of both watermarks: a watermark never decreases."""
        if earlier is None or earlier.watermark_ms <= self.watermark_ms:
            return self
        return msgspec.structs.replace(self, watermark_ms=earlier.watermark_ms)


WatermarkOwner = tuple[str, int]
"""A writer and one of its shards."""

_TABLE: BusTable[WatermarkOwner, WatermarkStatement] = BusTable(
    WATERMARKS, NUMBERED_KEY, msgspec.json.Decoder(WatermarkStatement).decode
)


def watermark_messages(statements: Iterable[WatermarkStatement]) -> list[Outgoing]:
    """Return the messages that publish watermarks. Statements with the same object as their ends, one after another, contain it once."""
    return [_TABLE.put(statement.owner, statement) for statement in _sharing(list(statements))]


def _sharing(statements: Sequence[WatermarkStatement]) -> Iterator[WatermarkStatement]:
    """Yield statements; those with the ends of the one before refer to them."""
    for _, group in groupby(statements, key=lambda statement: id(statement.ends)):
        first, *others = group
        shared = _digest(first.ends) if others and first.ends else ""
        yield msgspec.structs.replace(first, shared=shared)
        names: Ends = {name: {} for name in first.ends}
        yield from (msgspec.structs.replace(other, ends=names, shared=shared) for other in others)


def _digest(ends: Ends) -> str:
    """Return a name that only equal ends have."""
    return blake2b(msgspec.json.encode(ends), digest_size=12).hexdigest()


def deletion_messages(owners: Iterable[WatermarkOwner]) -> list[Outgoing]:
    """Return the messages that delete watermarks, so that no consumer waits for them."""
    return [_TABLE.delete(owner) for owner in owners]


def delete_watermarks(bus: Bus, writer: str, buckets: Collection[int]) -> None:
    """Delete the watermarks of shards whose output is written again, so that consumers wait for it. May be repeated."""
    owners = [owner for owner in watermarks_on(bus) if owner[0] == writer and owner[1] in buckets]
    if owners:
        _TABLE.write(bus, deletion_messages(owners))


class _SharedEnds:
    """The newest ends that statements share. For one thread."""

    def __init__(self) -> None:
        self._newest: dict[str, Ends] = {}

    def resolve(self, statement: WatermarkStatement) -> WatermarkStatement | None:
        """Return a statement with its ends; None if they are missing. Takes each statement, in their order on the bus."""
        if not statement.shared:
            return statement
        if any(statement.ends.values()):
            self._newest.pop(statement.shared, None)  # so that it is the newest
            self._newest[statement.shared] = statement.ends
            if len(self._newest) > MAX_SHARED:
                del self._newest[next(iter(self._newest))]
        ends = self._newest.get(statement.shared)
        return None if ends is None else msgspec.structs.replace(statement, ends=ends, shared="")


OwnerStatement = tuple[WatermarkOwner, WatermarkStatement | None]
"""A published watermark; None for a deleted one."""


class WatermarkTable:
    """The latest published watermarks, as far as this has read. For one thread; close it.

    Args:
        bus: the bus of the category.
        categories: the categories whose ends the caller needs, and may ask for. Those of others may be missing.
        may_be_missing: whether the category of watermarks may be missing, which is an empty table.
    """

    def __init__(self, bus: Bus, categories: Collection[str] = (), *, may_be_missing: bool = False) -> None:
        self._bus = bus
        self._categories = frozenset(categories)
        self._reader = _TABLE.follow(bus, may_be_missing=may_be_missing)
        self._shared = _SharedEnds()
        self._without_ends: dict[WatermarkOwner, Change[WatermarkOwner, WatermarkStatement]] = {}
        self.newest: dict[WatermarkOwner, WatermarkStatement] = {}
        self.last_offset = -1
        """The offset of the last message that was read."""

    @property
    def complete(self) -> bool:
        """Whether the reader has reached the end of the category."""
        return self._reader.complete and not self._without_ends

    def is_read_to(self, end: int) -> bool:
        """Return whether all watermarks before an offset are read, with their ends."""
        return self._reader.is_read_to(end) and not self._without_ends

    def read(self, timeout_s: float) -> Sequence[OwnerStatement]:
        """Return the watermarks that were published since the last call, in order; None for a deleted one."""
        return self._apply_all(self._reader.read(timeout_s))

    def read_to_end(self) -> Sequence[OwnerStatement]:
        """Return the same up to the end of the category, and wait for that; see `TableReader.read_to_end`."""
        return self._apply_all(self._reader.read_to_end())

    def _apply_all(self, changes: Iterable[Change[WatermarkOwner, WatermarkStatement]]) -> Sequence[OwnerStatement]:
        applied = [found for change in changes if (found := self._apply(change)) is not None]
        return [*applied, *self._complete_ends()] if self._reader.complete and self._without_ends else applied

    def _apply(self, change: Change[WatermarkOwner, WatermarkStatement]) -> OwnerStatement | None:
        """Apply a change; return None if its ends are missing, so that it has to wait."""
        owner, value, offset, _ = change
        self.last_offset = offset
        self._without_ends.pop(owner, None)
        if value is None:
            self.newest.pop(owner, None)
            return owner, None
        statement = self._shared.resolve(value)
        if statement is None:
            self._without_ends[owner] = change
            return None
        return owner, self._newest_with(statement, offset)

    def _newest_with(self, statement: WatermarkStatement, offset: int) -> WatermarkStatement:
        later = statement.later(self.newest.get(statement.owner))
        as_of, idle_as_of = min(later.as_of, offset), min(later.idle_as_of, offset)
        self.newest[statement.owner] = newest = msgspec.structs.replace(later, as_of=as_of, idle_as_of=idle_as_of)
        return newest

    def _complete_ends(self) -> Iterator[OwnerStatement]:
        """Yield the statements whose ends the bus has compacted, with the present ones, which are not below them; none while the bus is silent."""
        names = {name for change in self._without_ends.values() if change.value for name in change.value.ends}
        with suppress(BusUnreachable):  # the next call asks again
            ends = {name: dict(self._bus.catalog.ends(name)) for name in names & self._categories}
            changes, self._without_ends = self._without_ends, {}
            for owner, statement, offset, _ in changes.values():
                if statement is not None:
                    own = {name: ends.get(name, {}) for name in statement.ends}
                    yield owner, self._newest_with(msgspec.structs.replace(statement, ends=own, shared=""), offset)

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()


def watermarks_on(bus: Bus) -> dict[WatermarkOwner, WatermarkStatement]:
    """Return the latest watermarks on a bus."""
    if not bus.catalog.topics([WATERMARKS.name]):
        return {}
    with closing(WatermarkTable(bus)) as table:
        table.read_to_end()
        return table.newest
