"""States of an aggregator's shards in a remote store, where other programs can read them.

`merging` splits a checkpoint's changes into numbers that the store adds up, and partials that it keeps. `shard_state` makes one conditional
write of them, which `postgres_store` or `redis_store` executes unless the owner has changed. A fetch combines the parts of each window key
to the value that the monoid's `combine` would return.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from ...processors.declare import Aggregator, WriteMode
from ..protocols import ShardIdentity
from .addresses import POSTGRES, StoreAddress, address_of
from .errors import StoreLibraryMissing
from .merging import PartialMerger
from .protocols import OwnedStore, StoredShard
from .retry import RETRY_LIMIT_S, StoreRetry
from .shard_state import RemoteShardState

if TYPE_CHECKING:
    from .postgres_store import PostgresStore
    from .redis_store import RedisStore


class RemoteStates:
    """Opens shards' states over one connection. Thread-safe.

    Args:
        store: the store.
        processor: the aggregator.
        write_mode: whether changes replace values or are partials to add.
        retry: repeats interrupted requests.
    """

    def __init__(
        self, store: OwnedStore, processor: type[Aggregator], write_mode: WriteMode, retry: StoreRetry
    ) -> None:
        self._store = store
        self._merger = PartialMerger(processor.monoid)
        self._write_mode = write_mode
        self._retry = retry

    def open(self, identity: ShardIdentity) -> RemoteShardState:
        """Claim a shard and return its state. The store refuses later writes of former owners.

        Raises:
            ForeignState: the shard belongs to another declaration.
            StoreRefused: the store refuses access.
            StoreUnreachable: the store does not answer.
        """
        # A claim whose answer was lost is repeated. An unused epoch is harmless.
        claim = self._retry.call(partial(self._store.claim, identity))
        shard = StoredShard(identity.processor, identity.bucket)
        return RemoteShardState(
            self._store, shard, claim, merger=self._merger, write_mode=self._write_mode, retry=self._retry
        )

    def close(self) -> None:
        """Close the store. May be repeated."""
        self._store.close()


def remote_states(
    url: str,
    processor: type[Aggregator],
    *,
    write_mode: WriteMode = WriteMode.READ_MERGE_WRITE,
    retry_limit_s: float = RETRY_LIMIT_S,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> RemoteStates:
    """Return the states of an aggregator in PostgreSQL or Redis. The first opened shard connects.

    Args:
        url: postgresql://…, redis://… or rediss://…
        processor: the aggregator.
        write_mode: with APPEND, changes are partials, which the store merges; otherwise they are whole values.
        retry_limit_s: how long to retry an unreachable store.
        waiting: entered for each call of the store.

    Raises:
        BadStoreAddress: the URL is of another kind.
        StoreLibraryMissing: the client library is not installed.
    """
    return RemoteStates(store_at(address_of(url)), processor, write_mode, StoreRetry(retry_limit_s, waiting=waiting))


def store_at(address: StoreAddress, *, read_only: bool = False) -> PostgresStore | RedisStore:
    """Return the store at an address, not connected yet.

    Args:
        address: the address.
        read_only: whether PostgreSQL refuses changes. Redis has no such mode; readers send no changes.
    """
    if address.scheme in POSTGRES:
        expect_library("psycopg", "postgres", address)
        from .postgres_store import PostgresStore  # noqa: PLC0415 - imports psycopg, which other stores do not need

        return PostgresStore(address, read_only=read_only)
    expect_library("redis", "redis", address)
    from .redis_store import RedisStore  # noqa: PLC0415 - imports redis, which other stores do not need

    return RedisStore(address)


def expect_library(module: str, extra: str, address: StoreAddress) -> None:
    """Raise StoreLibraryMissing if a store's client library is not installed."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise StoreLibraryMissing(
            f"The store at {address} needs the library {module}, which cannot be imported: {error}. Nothing was read or saved. "
            f"Install it: pip install 'penstock[{extra}]'"
        ) from error
