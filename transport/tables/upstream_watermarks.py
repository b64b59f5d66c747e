"""Upstream watermarks: "all events that I will write before time t are below these offsets".

The writers of a category publish them: the shards of a processor, or a watermark writer (injector) for an external program. A consumer uses
the least watermark of the writers, once it has read up to their offsets. The categories themselves contain no watermarks.

    penstock.watermarks, compacted    key  writer/bucket    value  its watermark as JSON; none if it was deleted

Source: Akidau et al., "MillWheel", 2013, section 5.3, where a central authority stores them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing

import msgspec

from ...processors.time.watermarks import NEVER_MS
from ..bus import Bus
from ..category_spec import CategorySpec
from ..messages import Outgoing
from .bus_table import NUMBERED_KEY, BusTable, Change

WATERMARKS = CategorySpec("penstock.watermarks", buckets=1, compacted=True)
"""The category of watermarks."""


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
        outside: whether an external program publishes it, whose activity is unknown.
        round: the round of the shard's loop.
    """

    writer: str
    bucket: int
    shards: int
    watermark_ms: int
    ends: dict[str, dict[int, int]]
    low_ms: int = NEVER_MS
    held_by: str = ""
    idle: bool = False
    as_of: int = 0
    outside: bool = False
    round: LoopRound = NO_ROUND

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
    """Return the messages that publish watermarks."""
    return [_TABLE.put(statement.owner, statement) for statement in statements]


def deletion_messages(owners: Iterable[WatermarkOwner]) -> list[Outgoing]:
    """Return the messages that delete watermarks, so that no consumer waits for them."""
    return [_TABLE.delete(owner) for owner in owners]


def delete_watermarks(bus: Bus, writer: str, buckets: Collection[int]) -> None:
    """Delete the watermarks of shards whose output is written again, so that consumers wait for it. May be repeated."""
    owners = [owner for owner in watermarks_on(bus) if owner[0] == writer and owner[1] in buckets]
    if owners:
        _TABLE.write(bus, deletion_messages(owners))


class WatermarkTable:
    """The latest published watermarks, as far as this has read. For one thread; close it.

    Args:
        bus: the bus of the category, which must exist.
    """

    def __init__(self, bus: Bus) -> None:
        self._reader = _TABLE.follow(bus)
        self.newest: dict[WatermarkOwner, WatermarkStatement] = {}

    @property
    def complete(self) -> bool:
        """Whether the reader has reached the end of the category."""
        return self._reader.complete

    def read(self, timeout_s: float) -> Sequence[tuple[WatermarkOwner, WatermarkStatement | None]]:
        """Return the watermarks that were published since the last call, in order; None for a deleted one."""
        return [self._apply(change) for change in self._reader.read(timeout_s)]

    def read_to_end(self) -> Sequence[tuple[WatermarkOwner, WatermarkStatement | None]]:
        """Return the same up to the end of the category, and wait for that; see `TableReader.read_to_end`."""
        return [self._apply(change) for change in self._reader.read_to_end()]

    def _apply(
        self, change: Change[WatermarkOwner, WatermarkStatement]
    ) -> tuple[WatermarkOwner, WatermarkStatement | None]:
        owner, value, offset, _ = change
        if value is None:
            self.newest.pop(owner, None)
            return owner, None
        later = value.later(self.newest.get(owner))
        self.newest[owner] = msgspec.structs.replace(later, as_of=min(later.as_of, offset))
        return owner, self.newest[owner]

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
