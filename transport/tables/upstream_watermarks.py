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
from ..bus import Bucket, Bus, CategorySpec, Outgoing, Position
from ..errors import MissingCategory

WATERMARKS = CategorySpec("penstock.watermarks", buckets=1, compacted=True)
"""Where promises are kept."""

READ_WAIT_S = 1.0


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

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WatermarkStatement).decode


def outgoing(promises: Iterable[WatermarkStatement]) -> list[Outgoing]:
    """Return promises as they are sent."""
    return [Outgoing(_key(promise.promiser, promise.bucket), _encode(promise)) for promise in promises]


def taken_back(places: Iterable[WatermarkOwner]) -> list[Outgoing]:
    """Return what is sent so that nobody waits for these any more."""
    return [Outgoing(_key(*place), None) for place in places]


def take_back(bus: Bus, promiser: str, buckets: Collection[int]) -> None:
    """Let consumers wait for what is written again, and not take it for complete. May be repeated."""
    places = [place for place in watermarks_on(bus) if place[0] == promiser and place[1] in buckets]
    if places:
        with closing(bus.writer()) as writer:
            writer.send(WATERMARKS.name, taken_back(places))
            writer.flush()


def _key(promiser: str, bucket: int) -> bytes:
    return f"{promiser}/{bucket}".encode()


class WatermarkTable:
    """All promises on a bus, as far as this has read. One thread.

    Args:
        bus: where they are; the category exists.
    """

    def __init__(self, bus: Bus) -> None:
        self._scanner = bus.scanner([Position(Bucket(WATERMARKS.name, 0), None)])
        self.newest: dict[WatermarkOwner, WatermarkStatement] = {}
        self.complete = False

    def read(self, timeout_s: float) -> Sequence[tuple[WatermarkOwner, WatermarkStatement | None]]:
        """Return what was promised since the last call, in order; None for what was taken back."""
        polled = self._scanner.poll(timeout_s)
        found: list[tuple[WatermarkOwner, WatermarkStatement | None]] = []
        for message in (message for batch in polled.batches for message in batch.messages):
            promiser, _, bucket = (message.key() or b"").decode().rpartition("/")
            place, value = (promiser, int(bucket)), message.value()
            if value is None:
                self.newest.pop(place, None)
                found.append((place, None))
            else:
                promise = _decode(value).later(self.newest.get(place))
                self.newest[place] = msgspec.structs.replace(promise, as_of=min(promise.as_of, message.offset()))
                found.append((place, self.newest[place]))
        self.complete = self.complete or bool(polled.ended)
        return found

    def close(self) -> None:
        """Read no more."""
        self._scanner.close()


def watermarks_on(bus: Bus) -> dict[WatermarkOwner, WatermarkStatement]:
    """Return the newest promises on a bus."""
    try:
        bus.catalog.describe(WATERMARKS.name)
    except MissingCategory:
        return {}
    with closing(WatermarkTable(bus)) as promises:
        while not promises.complete:
            promises.read(READ_WAIT_S)
        return promises.newest
