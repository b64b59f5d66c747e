"""Promises about event time, which travel beside the data: "all that I shall ever write before t lies below these offsets".

Whoever writes a category (the shards of a processor, or an injector for what comes from outside) promises; whoever reads it takes
the least of what it was promised, once it has read up to the offsets. The categories themselves hold nothing of this.

    penstock.watermarks, compacted    key  promiser/bucket    value  a promise as JSON; none where it is taken back

Source: Akidau et al., "MillWheel", 2013, section 5.3, where a central authority keeps what the bus keeps here.
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
"""Where promises are kept."""


class WatermarkStatement(msgspec.Struct, frozen=True):
    """What one shard of a processor, or an injector, promises.

    Args:
        promiser: the processor's name, or the injector's.
        bucket: which of its shards.
        shards: how many it has: those that have promised nothing yet hold back whoever reads.
        watermark_ms: all that it will write before this event time (milliseconds since 1970, UTC) …
        ends: … lies below these offsets, by category and bucket.
        low_ms: its own low watermark, which what it writes may lie behind.
        held_by: what holds that back.
        idle: whether it has had nothing to do for so long that nobody should wait for it.
        as_of: how far this category went when the bus confirmed that it is idle: says how old that is, without a clock.
        outside: whether it speaks for programs outside, of which nobody knows whether they are at work.
    """

    promiser: str
    bucket: int
    shards: int
    watermark_ms: int
    ends: dict[str, dict[int, int]]
    low_ms: int = NEVER_MS
    held_by: str = ""
    idle: bool = False
    as_of: int = 0
    outside: bool = False

    @property
    def place(self) -> WatermarkOwner:
        """Who promises."""
        return self.promiser, self.bucket

    def later(self, earlier: WatermarkStatement | None) -> WatermarkStatement:
        """Return this promise, or where it says less than one before, what that said: a watermark never goes back."""
        if earlier is None or earlier.watermark_ms <= self.watermark_ms:
            return self
        return msgspec.structs.replace(self, watermark_ms=earlier.watermark_ms)


WatermarkOwner = tuple[str, int]
"""A promiser and which of its shards."""

_TABLE: BusTable[WatermarkOwner, WatermarkStatement] = BusTable(
    WATERMARKS, NUMBERED_KEY, msgspec.json.Decoder(WatermarkStatement).decode
)


def outgoing(promises: Iterable[WatermarkStatement]) -> list[Outgoing]:
    """Return the messages that publish watermarks."""
    return [_TABLE.put(promise.place, promise) for promise in promises]


def taken_back(places: Iterable[WatermarkOwner]) -> list[Outgoing]:
    """Return the messages that delete watermarks, so that no consumer waits for them."""
    return [_TABLE.delete(place) for place in places]


def take_back(bus: Bus, promiser: str, buckets: Collection[int]) -> None:
    """Delete the watermarks of shards whose output is written again, so that consumers wait for it. May be repeated."""
    places = [place for place in watermarks_on(bus) if place[0] == promiser and place[1] in buckets]
    if places:
        _TABLE.write(bus, taken_back(places))


class WatermarkTable:
    """The latest watermarks on a bus, as far as this has read. One thread; close it.

    Args:
        bus: where the category is, which exists.
    """

    def __init__(self, bus: Bus) -> None:
        self._reader = _TABLE.follow(bus)
        self.newest: dict[WatermarkOwner, WatermarkStatement] = {}

    @property
    def complete(self) -> bool:
        """Whether it has reached the end of the category once."""
        return self._reader.complete

    def read(self, timeout_s: float) -> Sequence[tuple[WatermarkOwner, WatermarkStatement | None]]:
        """Return the watermarks that were published since the last call, in order; None for a deleted one."""
        return [self._apply(change) for change in self._reader.read(timeout_s)]

    def read_to_end(self) -> None:
        """Read all that was published so far; see `TableReader.read_to_end`."""
        for change in self._reader.read_to_end():
            self._apply(change)

    def _apply(
        self, change: Change[WatermarkOwner, WatermarkStatement]
    ) -> tuple[WatermarkOwner, WatermarkStatement | None]:
        owner, value, offset = change
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
