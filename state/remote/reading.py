"""Asking a store for an aggregator's results, as a person or a dashboard does: nothing is claimed and nothing changes.

What is read of one shard is as of one moment. In Redis, windows that begin while `results` or `scan` looks through a shard may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, final

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.partitioner import bucket_of
from ...processors.keyed_state.window_keys import decode_slot, encode_slot
from ...processors.time.windows import EVER_END_MS, EVER_START_MS, Window
from .addresses import Address, address_of
from .folder import store_at
from .merging import Merging
from .protocols import ReadStore, Shard
from .retry import StoreRetry
from .state_shapes import foreign_shape

T = TypeVar("T")

ALL_TIME = Window(EVER_START_MS, EVER_END_MS)
"""The window of an aggregator that declares none."""

_RETRY_LIMIT_S = 10.0
"""A person waits less patiently than a worker."""


@final
class RemoteResults:
    """The results of an aggregator; one thread.

    Args:
        store: where they are.
        address: the same, for messages.
        processor: whose they are.
        retrying: how interruptions are met.
    """

    def __init__(self, store: ReadStore, address: Address, processor: type[Aggregator], retrying: StoreRetry) -> None:
        self._store = store
        self._address = address
        self._processor = processor
        self._merging = Merging(processor.monoid)
        self._retrying = retrying

    def result(self, key: str, window: Window = ALL_TIME) -> Any:
        """Return the monoid's value for a key and window; None where nothing was observed.

        Raises:
            ForeignState: the store keeps something else for this processor.
        """
        shard = self._shard_of(key)
        values = self._values(shard, [encode_slot(key, window.start)]) if self._knows(shard) else []
        return next((value for _, _, value in values), None)

    def results(self, key: str) -> Iterator[tuple[Window, Any]]:
        """Give all windows of a key with their values, in order of time. Takes as long as looking through the key's shard."""
        shard = self._shard_of(key)
        if self._knows(shard):
            slots = self._call(partial(self._store.slots, shard, key.encode(), None))
            for _, window, value in self._values(shard, slots):
                yield window, value

    def scan(self, limit: int) -> Iterator[tuple[str, Window, Any]]:
        """Give up to `limit` results: key, window and value; shard after shard, otherwise in no order."""
        left = limit
        for bucket in range(self._processor.inputs()[0].buckets):
            shard = Shard(self._processor.name, bucket)
            if left > 0 and self._knows(shard):
                slots = self._call(partial(self._store.slots, shard, None, left))
                left -= len(slots)
                yield from self._values(shard, slots)

    def close(self) -> None:
        """Let go of the store. May be repeated."""
        self._store.close()

    def __enter__(self) -> RemoteResults:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _shard_of(self, key: str) -> Shard:
        return Shard(self._processor.name, bucket_of(key.encode(), self._processor.inputs()[0].buckets))

    def _knows(self, shard: Shard) -> bool:
        """Whether there is anything, which then has to be of the processor's own monoid and windows."""
        shape = self._call(partial(self._store.shape, shard))
        expected = self._processor.state_shape()
        if shape is not None and shape != expected:
            raise foreign_shape(self._address, shard, shape, expected)
        return shape is not None

    def _values(self, shard: Shard, slots: Sequence[bytes]) -> Iterator[tuple[str, Window, Any]]:
        monoid, windows = self._processor.monoid, self._processor.window
        for slot, parts in zip(slots, self._call(partial(self._store.parts, shard, slots)), strict=True):
            encoded = self._merging.value(parts)
            if encoded is not None:
                key, start = decode_slot(slot)
                yield key, windows.window(start), monoid.value(monoid.decode(encoded))

    def _call(self, attempt: Callable[[], T]) -> T:
        return self._retrying.call(attempt)


def read_results(url: str, processor: type[Aggregator]) -> RemoteResults:
    """Return what answers questions about an aggregator's results; connects at the first.

    Args:
        url: postgresql://…, redis://… or rediss://…
        processor: whose results they are.

    Raises:
        BadStoreAddress: it is none of these.
        StoreLibraryMissing: the client library is not installed.
    """
    address = address_of(url)
    return RemoteResults(store_at(address, read_only=True), address, processor, StoreRetry(_RETRY_LIMIT_S))
