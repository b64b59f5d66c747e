"""Where an app's processors stand: how much input is left, how far event time is, and what holds it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...processors.kinds import Processor
from ...processors.watermarks import NEVER_MS
from ...transport.bus import Bus
from ...transport.promises import Place, Promise


@dataclass(frozen=True)
class ShardStanding:
    """Where a shard stands, as of its last checkpoint.

    Args:
        bucket: its bucket number.
        behind: how many events of its inputs lie between what its group has committed and their ends.
        low_ms: its low watermark (milliseconds since 1970, UTC); None where it has none yet.
        idle: whether nobody waits for it, since nothing comes.
        held_by: what holds it back beside its own events; may be empty.
    """

    bucket: int
    behind: int
    low_ms: int | None
    idle: bool
    held_by: str


@dataclass(frozen=True)
class Standing:
    """Where a processor stands.

    Args:
        processor: its name.
        shards: its shards, by bucket.
    """

    processor: str
    shards: tuple[ShardStanding, ...]

    @property
    def behind(self) -> int:
        """How many events of its inputs are left."""
        return sum(shard.behind for shard in self.shards)

    @property
    def low_ms(self) -> int | None:
        """Its low watermark: that of the shard that is waited for longest; None where that has none yet."""
        return self.holder.low_ms

    @property
    def holder(self) -> ShardStanding:
        """The shard that holds it back; where all are idle, the furthest, which was waited for last."""
        awake = [shard for shard in self.shards if not shard.idle]
        return min(awake, key=_how_far) if awake else max(self.shards, key=_how_far)


def _how_far(shard: ShardStanding) -> int:
    return NEVER_MS if shard.low_ms is None else shard.low_ms


def standing_of(processor: type[Processor], bus: Bus, promises: Mapping[Place, Promise]) -> Standing:
    """Return where a processor stands.

    Args:
        processor: which.
        bus: where its inputs are.
        promises: the newest on that bus.
    """
    behind = _behind(processor, bus)
    shards = []
    for bucket in range(processor.inputs()[0].buckets):
        promise = promises.get((processor.name, bucket))
        low_ms = None if promise is None or promise.low_ms == NEVER_MS else promise.low_ms
        idle, held_by = (False, "") if promise is None else (promise.idle, promise.held_by)
        shards.append(ShardStanding(bucket, behind.get(bucket, 0), low_ms, idle, held_by))
    return Standing(processor.name, tuple(shards))


def _behind(processor: type[Processor], bus: Bus) -> dict[int, int]:
    behind: dict[int, int] = {}
    for category in processor.inputs():
        state, committed = bus.catalog.describe(category.name), bus.catalog.committed(processor.name, category.name)
        for bucket, end in state.ends.items():
            behind[bucket] = behind.get(bucket, 0) + end - committed.get(bucket, state.starts[bucket])
    return behind
