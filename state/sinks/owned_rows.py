"""Sinks whose shards have owners: retries, fencing, and writes whose answer was lost.

A write is conditional on the shard's owner, epoch and number of writes, as for remote state (see `state.remote.protocols`). A write whose
answer was lost is repeated unchanged: if it had taken effect, the number of writes is one higher, and it is not repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from ...processors.declare import RowsRefused, SinkBatch, SinkFenced, SinkRefused, SinkUnreachable
from ..errors import StateError
from ..remote import ShardVersion, StoredShard, StoreRetry, StoreUnreachable

T = TypeVar("T")


class RowClaim(NamedTuple):
    """The result of a claim: the shard's version, and the position of its last batch; empty text without one."""

    version: ShardVersion
    position: str


class RowStore(Protocol):
    """Rows of shards with owners. Thread-safe. Each call is one attempt and durable on return; it is repeated after `StoreInterrupted`."""

    def claim(self, shard: StoredShard) -> RowClaim:
        """Become the owner: increase the epoch, and create a missing shard."""
        ...

    def commit(self, shard: StoredShard, version: ShardVersion, batch: SinkBatch) -> ShardVersion:
        """Write rows and position if the shard has the expected version. Return its version before: the expected one if the write took effect.

        Raises:
            RowsRefused: the store refuses rows; nothing was written.
        """
        ...

    def close(self) -> None:
        """Close the connection. May be repeated."""
        ...


class OwnedRows:
    """A `SinkWriter` over a store of rows. A shard whose write failed must be claimed again.

    Args:
        store: the store.
        what: the sink, for messages.
        retry: repeats interrupted requests.
    """

    def __init__(self, store: RowStore, what: str, retry: StoreRetry) -> None:
        self._store = store
        self._what = what
        self._retry = retry
        self._versions: dict[StoredShard, ShardVersion] = {}
        self._lock = threading.Lock()

    def claim(self, processor: str, bucket: int) -> str:
        """Become the writer of a shard, and return the position of its last batch."""
        shard = StoredShard(processor, bucket)
        # A claim whose answer was lost is repeated. An unused epoch is harmless.
        version, position = self._call(partial(self._store.claim, shard))
        with self._lock:
            self._versions[shard] = version
        return position

    def write(self, batch: SinkBatch) -> None:
        """Write a batch and its position as one, once.

        Raises:
            RowsRefused: the store refuses rows; nothing was written, and the shard is still claimed.
        """
        shard = StoredShard(batch.processor, batch.bucket)
        with self._lock:
            ours = self._versions.pop(shard, None)
        if ours is None:
            raise SinkFenced(
                f"{shard}: an earlier write to {self._what} failed with an unknown outcome, so nothing more is written. The worker claims the shard again."
            )
        try:
            found = self._call(partial(self._store.commit, shard, ours, batch))
        except RowsRefused:
            with self._lock:
                self._versions[shard] = ours
            raise
        after = ours._replace(saves=ours.saves + 1)
        if found not in {ours, after}:
            raise SinkFenced(
                f"{shard}: {self._what} is at write {found.saves} of epoch {found.epoch}, but this worker's last write was {ours.saves} of epoch "
                f"{ours.epoch}: another worker has claimed the shard, or the store has lost writes. Nothing was written. The owner continues from the "
                "position in the sink."
            )
        with self._lock:
            self._versions[shard] = after

    def close(self) -> None:
        """Close the connection."""
        self._store.close()

    def _call(self, attempt: Callable[[], T]) -> T:
        try:
            return self._retry.call(attempt)
        except StoreUnreachable as error:
            raise SinkUnreachable(str(error)) from error
        except StateError as error:
            raise SinkRefused(f"{self._what} cannot be written. {error}") from error
