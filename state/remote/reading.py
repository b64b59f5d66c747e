"""Reads of an aggregator's results from a remote store, for users and dashboards. A read does not claim or change a shard.

All results of one shard are from one consistent read. In Redis, `results` and `scan` may miss windows that start while they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, final

from ...processors.declare import Aggregator, plan_of
from ...processors.keyed_state import decode_window_key, encode_window_key
from ...processors.time import GLOBAL_WINDOW_END_MS, GLOBAL_WINDOW_START_MS, Window
from .addresses import StoreAddress, address_of
from .folder import store_at
from .merging import PartialMerger
from .protocols import ReadStore, StoredShard
from .retry import StoreRetry
from .state_shapes import foreign_shape

T = TypeVar("T")

ALL_TIME = Window(GLOBAL_WINDOW_START_MS, GLOBAL_WINDOW_END_MS)
"""The window of an aggregator without windows."""

_RETRY_LIMIT_S = 10.0
"""Shorter than a worker's limit, because a user is waiting."""


@final
class RemoteResults:
    """The results of an aggregator; for one thread.

    Args:
        store: the store.
        address: its address, for messages.
        processor: the aggregator.
        retry: repeats interrupted requests.
    """

    def __init__(self, store: ReadStore, address: StoreAddress, processor: type[Aggregator], retry: StoreRetry) -> None:
        self._store = store
        self._address = address
        self._processor = processor
        self._merger = PartialMerger(processor.monoid)
        self._retry = retry

    def result(self, key: str, window: Window = ALL_TIME) -> Any:
        """Return the monoid's value for a key and window; None without observations.

        Raises:
            ForeignState: the store contains other state for this processor.
        """
        slot = encode_window_key(key, window.start)
        partials: dict[bytes, Any] = {}
        for shard in self._shards_of(key):
            if self._exists(shard):
                self._add_partials(partials, shard, [slot])
        return self._processor.monoid.value(partials[slot]) if slot in partials else None

    def results(self, key: str) -> Iterator[tuple[Window, Any]]:
        """Yield all windows of a key with their values, by time. Scans the key's whole shard."""
        partials: dict[bytes, Any] = {}
        for shard in self._shards_of(key):
            if self._exists(shard):
                slots = self._call(partial(self._store.slots, shard, key.encode(), None))
                self._add_partials(partials, shard, slots)
        for slot in sorted(partials):
            yield self._window_of(slot), self._processor.monoid.value(partials[slot])

    def scan(self, limit: int) -> Iterator[tuple[str, Window, Any]]:
        """Yield up to `limit` results as key, window and value; by shard, otherwise unordered.

        A key whose events are in several buckets has a result in each.
        """
        remaining = limit
        for bucket in range(plan_of(self._processor).inputs[0].buckets):
            shard = StoredShard(self._processor.name, bucket)
            if remaining > 0 and self._exists(shard):
                slots = self._call(partial(self._store.slots, shard, None, remaining))
                remaining -= len(slots)
                for slot, value in self._partials(shard, slots):
                    yield decode_window_key(slot)[0], self._window_of(slot), self._processor.monoid.value(value)

    def close(self) -> None:
        """Close the store. May be repeated."""
        self._store.close()

    def __enter__(self) -> RemoteResults:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _shards_of(self, key: str) -> list[StoredShard]:
        """Return the shards that may have results of a key: one if the processor checks that each event is in the bucket of its key."""
        category = plan_of(self._processor).inputs[0]
        numbers = [category.bucket_of(key)] if plan_of(self._processor).checks_keys else range(category.buckets)
        return [StoredShard(self._processor.name, number) for number in numbers]

    def _exists(self, shard: StoredShard) -> bool:
        """Return whether a shard exists. Its state must have the processor's monoid and windows."""
        shape = self._call(partial(self._store.shape, shard))
        expected = plan_of(self._processor).state_shape
        if shape is not None and shape != expected:
            raise foreign_shape(self._address, shard, shape, expected)
        return shape is not None

    def _add_partials(self, partials: dict[bytes, Any], shard: StoredShard, slots: Sequence[bytes]) -> None:
        """Combine the partials of a shard with those of other shards."""
        for slot, value in self._partials(shard, slots):
            partials[slot] = self._processor.monoid.combine(partials[slot], value) if slot in partials else value

    def _partials(self, shard: StoredShard, slots: Sequence[bytes]) -> Iterator[tuple[bytes, Any]]:
        for slot, parts in zip(slots, self._call(partial(self._store.parts, shard, slots)), strict=True):
            encoded = self._merger.value(parts)
            if encoded is not None:
                yield slot, self._processor.monoid.decode(encoded)

    def _window_of(self, slot: bytes) -> Window:
        return self._processor.window.window(decode_window_key(slot)[1])

    def _call(self, attempt: Callable[[], T]) -> T:
        return self._retry.call(attempt)


def read_results(url: str, processor: type[Aggregator]) -> RemoteResults:
    """Return a reader of an aggregator's results. The first call connects.

    Args:
        url: postgresql://…, redis://… or rediss://…
        processor: the aggregator.

    Raises:
        BadStoreAddress: the URL is of another kind.
        StoreLibraryMissing: the client library is not installed.
    """
    address = address_of(url)
    return RemoteResults(store_at(address, read_only=True), address, processor, StoreRetry(_RETRY_LIMIT_S))
