"""Values that were computed elsewhere take the place of what a shard keeps.

    claimed, at the position up to which they were computed -> chunks of slots, each one write -> what was not computed is removed

Every write is the owner's, at that position. So after each of them, and after a death between any two, a slot has either what the
stream has made of the events before the position or what was computed of the same events, and whoever owns the shard next goes on
behind them: nothing is counted twice. It may be begun anew at any time.

A shard that no stream has counted yet is at no position, and a worker would read its events from the first. Until its values are whole it is
therefore of a shape that nobody opens; what it is and where it goes on come last, as one write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from types import TracebackType
from typing import NamedTuple, final

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.stores import WriteMode
from ...processors.keyed_state.changes import Changes
from ...processors.shard.position import Offsets, StatePosition
from ..protocols import ShardIdentity
from .addresses import Address, address_of
from .errors import StoreMoved
from .folder import RemoteStates, store_at
from .protocols import RebuiltStore, Shard
from .retry import RETRY_LIMIT_S, StoreRetry
from .shard_state import RemoteShardState
from .state_shapes import built_shape

CHUNK_SLOTS = 10_000
"""How many slots are replaced in one write."""


class Replaced(NamedTuple):
    """What became of a shard's slots.

    Args:
        written: how many have a computed value.
        removed: how many are gone, since nothing was computed for them.
    """

    written: int
    removed: int


@final
class StoreRebuild:
    """The shards of an aggregator in a store, for whoever computes them; one thread.

    Args:
        store: where they are.
        address: the same, for messages.
        processor: whose they are.
        retrying: how interruptions are met.
    """

    def __init__(
        self, store: RebuiltStore, address: Address, processor: type[Aggregator], retrying: StoreRetry
    ) -> None:
        self._store = store
        self._address = address
        self._processor = processor
        self._buckets = range(processor.inputs()[0].buckets)
        self._whole = processor.state_shape()
        self._building = built_shape(self._whole)
        self._retrying = retrying
        self._states = RemoteStates(store, processor, WriteMode.READ_MERGE_WRITE, retrying)

    def counted(self) -> dict[int, Offsets]:
        """Become the owner of the shards that have counted anything, and return up to where; those that are being built are left alone.

        Raises:
            ForeignState: a shard is another's.
            StoreRefused, StoreUnreachable: as they say.
        """
        there = [bucket for bucket in self._buckets if self._shape(bucket) not in {None, self._building}]
        positions = {bucket: self._open(bucket, self._whole).position().offsets for bucket in there}
        return {bucket: position for bucket, position in positions.items() if position}

    def broken_off(self) -> list[int]:
        """Return the shards that are being built, or were when that broke off."""
        return [bucket for bucket in self._buckets if self._shape(bucket) == self._building]

    def begin(self) -> None:
        """Become the owner of every shard, and let nobody open those that have counted nothing, until they are whole.

        Raises:
            ForeignState: a shard is another's.
            StoreRefused, StoreUnreachable: as they say.
        """
        for bucket in self._buckets:
            if self._shape(bucket) != self._building:
                state = self._open(bucket, self._whole)
                if not state.position():
                    state.become(self._building, StatePosition())

    def replace(
        self, bucket: int, position: Offsets, computed: Iterable[tuple[bytes, bytes]], within: Callable[[bytes], bool]
    ) -> Replaced:
        """Give a shard the values that were computed up to a position; one that was begun is then whole.

        Args:
            bucket: which shard.
            position: up to where they were computed.
            computed: slots with their encoded values, each once.
            within: tells of a slot whether it was computed, if anything was observed there.

        Raises:
            StoreMoved: the shard has counted up to somewhere else.
            StoreFenced: somebody else has become the owner; slots have the old or the computed value.
        """
        is_begun = self._shape(bucket) == self._building
        state = self._open(bucket, self._building if is_begun else self._whole)
        if not is_begun:
            self._expect_at(bucket, position, state.position().offsets)
        left = set(filter(within, self._slots(bucket)))
        replaced = _write(state, computed, left)
        if is_begun:
            state.become(self._whole, StatePosition(position))
        return replaced

    def close(self) -> None:
        """Let go of the store. May be repeated."""
        self._states.close()

    def __enter__(self) -> StoreRebuild:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, bucket: int, shape: str) -> RemoteShardState:
        return self._states.open(ShardIdentity(self._processor.name, bucket, shape))

    def _shape(self, bucket: int) -> str | None:
        return self._retrying.call(partial(self._store.shape, Shard(self._processor.name, bucket)))

    def _slots(self, bucket: int) -> list[bytes]:
        return self._retrying.call(partial(self._store.slots, Shard(self._processor.name, bucket), None, None))

    def _expect_at(self, bucket: int, computed: Offsets, found: Offsets) -> None:
        if found != computed:
            raise StoreMoved(
                f"The state of {Shard(self._processor.name, bucket)} at {self._address} has counted up to {found}, and values were computed up to "
                f"{computed}: a worker has been at work meanwhile. Nothing of this shard was replaced, and what it has counted stays. Stop the "
                "processor's workers, and start this again."
            )


def _write(state: RemoteShardState, computed: Iterable[tuple[bytes, bytes]], left: set[bytes]) -> Replaced:
    """Write what was computed, then remove what is left of what was there."""
    written = 0
    for chunk in _chunks(computed):
        state.save(chunk)
        left.difference_update(chunk)
        written += len(chunk)
    for chunk in _chunks((slot, None) for slot in sorted(left)):
        state.save(chunk)
    return Replaced(written, len(left))


def _chunks(slots: Iterable[tuple[bytes, bytes | None]]) -> Iterator[Changes]:
    left = iter(slots)
    while chunk := dict(islice(left, CHUNK_SLOTS)):
        yield chunk


def rebuilds(url: str, processor: type[Aggregator], *, retry_limit_s: float = RETRY_LIMIT_S) -> StoreRebuild:
    """Return the shards of an aggregator for whoever computes them elsewhere; connects when it is first asked.

    Args:
        url: postgresql://…, redis://… or rediss://…
        processor: whose shards they are.
        retry_limit_s: how long a store that does not answer is waited for.

    Raises:
        BadStoreAddress: it is none of these.
        StoreLibraryMissing: the client library is not installed.
    """
    address = address_of(url)
    return StoreRebuild(store_at(address), address, processor, StoreRetry(retry_limit_s))
