"""Replacement of a shard's values by values that were computed elsewhere.

    claim at the position of the computation -> chunks of slots, one write each -> removal of slots that were not computed

Every write is the owner's, at that position. After each write, and after a crash between two, a slot contains the result of the same events,
either from the stream or from the computation, and the next owner continues from the position. So nothing counts twice, and the
replacement can be repeated at any time.

A shard without a position has no counted events, and a worker would read them from the first one. Until its values are complete, the shard has
a type that no worker opens. The last write sets its real type and its position together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from types import TracebackType
from typing import NamedTuple, final

from ...processors.declare import Aggregator, WriteMode, plan_of
from ...processors.keyed_state import Changes
from ...processors.shard import Offsets, StatePosition
from ..protocols import ShardIdentity
from .addresses import StoreAddress, address_of
from .errors import StoreMoved
from .folder import RemoteStates, store_at
from .protocols import RebuiltStore, StoredShard
from .retry import RETRY_LIMIT_S, StoreRetry
from .shard_state import RemoteShardState
from .state_shapes import unfinished_shape

CHUNK_SLOTS = 10_000
"""The number of slots that are replaced in one write."""


class ReplacedValues(NamedTuple):
    """The changes of a shard's slots.

    Args:
        written: slots with a computed value.
        removed: slots without one, which were removed.
    """

    written: int
    removed: int


@final
class StoreRebuild:
    """Replaces the shards of an aggregator in a store; for one thread.

    Args:
        store: the store.
        address: its address, for messages.
        processor: the aggregator.
        retry: repeats interrupted requests.
    """

    def __init__(
        self, store: RebuiltStore, address: StoreAddress, processor: type[Aggregator], retry: StoreRetry
    ) -> None:
        plan = plan_of(processor)
        self._store = store
        self._address = address
        self._processor = processor
        self._buckets = range(plan.inputs[0].buckets)
        self._final_shape = plan.state_shape
        self._building_shape = unfinished_shape(self._final_shape)
        self._retry = retry
        self._states = RemoteStates(store, processor, WriteMode.READ_MERGE_WRITE, retry)

    def positions(self) -> dict[int, Offsets]:
        """Claim all shards with counted events. Return their positions, without shards that are being built.

        Raises:
            ForeignState: a shard belongs to another declaration.
            StoreRefused, StoreUnreachable: the store failed.
        """
        claimed = [bucket for bucket in self._buckets if self._shape(bucket) not in {None, self._building_shape}]
        positions = {bucket: self._open(bucket, self._final_shape).position().offsets for bucket in claimed}
        return {bucket: position for bucket, position in positions.items() if position}

    def unfinished(self) -> list[int]:
        """Return the shards that are being built, or whose build was interrupted."""
        return [bucket for bucket in self._buckets if self._shape(bucket) == self._building_shape]

    def begin(self) -> None:
        """Claim every shard, and lock those without counted events until they are complete.

        Raises:
            ForeignState: a shard belongs to another declaration.
            StoreRefused, StoreUnreachable: the store failed.
        """
        for bucket in self._buckets:
            if self._shape(bucket) != self._building_shape:
                state = self._open(bucket, self._final_shape)
                if not state.position():
                    state.become(self._building_shape, StatePosition())

    def replace(
        self, bucket: int, position: Offsets, computed: Iterable[tuple[bytes, bytes]], within: Callable[[bytes], bool]
    ) -> ReplacedValues:
        """Replace a shard's values by those computed up to a position. A locked shard is then complete.

        Args:
            bucket: the shard.
            position: the position of the computation.
            computed: slots with their encoded values, each once.
            within: returns whether the computation includes a slot.

        Raises:
            StoreMoved: the shard has another position.
            StoreFenced: another owner has claimed the shard; each slot has its old or its computed value.
        """
        is_begun = self._shape(bucket) == self._building_shape
        state = self._open(bucket, self._building_shape if is_begun else self._final_shape)
        if not is_begun:
            self._expect_at(bucket, position, state.position().offsets)
        remaining = set(filter(within, self._slots(bucket)))
        replaced = _write(state, computed, remaining)
        if is_begun:
            state.become(self._final_shape, StatePosition(position))
        return replaced

    def close(self) -> None:
        """Close the store. May be repeated."""
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
        return self._retry.call(partial(self._store.shape, StoredShard(self._processor.name, bucket)))

    def _slots(self, bucket: int) -> list[bytes]:
        return self._retry.call(partial(self._store.slots, StoredShard(self._processor.name, bucket), None, None))

    def _expect_at(self, bucket: int, computed: Offsets, found: Offsets) -> None:
        if found != computed:
            raise StoreMoved(
                f"The state of {StoredShard(self._processor.name, bucket)} at {self._address} is at {found}, but the values were computed up to "
                f"{computed}: a worker has run meanwhile. Nothing of this shard was replaced. Stop the processor's workers, and run "
                "the command again."
            )


def _write(state: RemoteShardState, computed: Iterable[tuple[bytes, bytes]], remaining: set[bytes]) -> ReplacedValues:
    """Write the computed values, then remove the remaining slots."""
    written = 0
    for chunk in _chunks(computed):
        state.save(chunk)
        remaining.difference_update(chunk)
        written += len(chunk)
    for chunk in _chunks((slot, None) for slot in sorted(remaining)):
        state.save(chunk)
    return ReplacedValues(written, len(remaining))


def _chunks(slots: Iterable[tuple[bytes, bytes | None]]) -> Iterator[Changes]:
    unwritten = iter(slots)
    while chunk := dict(islice(unwritten, CHUNK_SLOTS)):
        yield chunk


def open_rebuild(url: str, processor: type[Aggregator], *, retry_limit_s: float = RETRY_LIMIT_S) -> StoreRebuild:
    """Return the shards of an aggregator, to replace their values. The first call connects.

    Args:
        url: postgresql://…, redis://… or rediss://…
        processor: the aggregator.
        retry_limit_s: how long to retry an unreachable store.

    Raises:
        BadStoreAddress: the URL is of another kind.
        StoreLibraryMissing: the client library is not installed.
    """
    address = address_of(url)
    return StoreRebuild(store_at(address), address, processor, StoreRetry(retry_limit_s))
