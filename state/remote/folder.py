"""The states of an aggregator's shards in a store that others can read.

A checkpoint's changes are split by `merging` into what the store adds up itself and partials that it keeps; `shard_state` makes one write
of them; `postgres_store` or `redis_store` carries it out, if nobody else has become the owner; and a fetch joins what is kept at
each slot to the one value that the monoid's `combine` would have given.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING

from ...processors.declare.aggregator import Aggregator
from ...processors.declare.stores import WriteMode
from ..protocols import ShardIdentity
from .addresses import POSTGRES, Address, address_of
from .errors import StoreLibraryMissing
from .merging import Merging
from .protocols import OwnedStore, Shard
from .retry import RETRY_LIMIT_S, StoreRetry
from .shard_state import RemoteShardState

if TYPE_CHECKING:
    from .postgres_store import PostgresStore
    from .redis_store import RedisStore


class RemoteStates:
    """Opens shards' states, which share what connects this process to the store. Any thread may open.

    Args:
        store: where they are.
        processor: whose they are.
        writing: whether changes replace values or are partials to be added to them.
        retrying: how interruptions are met.
    """

    def __init__(
        self, store: OwnedStore, processor: type[Aggregator], writing: WriteMode, retrying: StoreRetry
    ) -> None:
        self._store = store
        self._merging = Merging(processor.monoid)
        self._writing = writing
        self._retrying = retrying

    def open(self, identity: ShardIdentity) -> RemoteShardState:
        """Become the owner of a shard: writes of whoever had it are refused from now on.

        Raises:
            ForeignState: what is there is another shard's.
            StoreRefused: the store does not let us in.
            StoreUnreachable: it does not answer.
        """
        # A claim whose answer was lost is simply made again: an epoch that nobody uses does no harm.
        claim = self._retrying.call(partial(self._store.claim, identity))
        shard = Shard(identity.processor, identity.bucket)
        return RemoteShardState(
            self._store, shard, claim, merging=self._merging, writing=self._writing, retrying=self._retrying
        )

    def close(self) -> None:
        """Let go of the store. May be repeated."""
        self._store.close()


def remote_states(
    url: str,
    processor: type[Aggregator],
    *,
    writing: WriteMode = WriteMode.READ_MERGE_WRITE,
    retry_limit_s: float = RETRY_LIMIT_S,
) -> RemoteStates:
    """Return the states of an aggregator in PostgreSQL or Redis; connects when the first is opened.

    Args:
        url: postgresql://…, redis://… or rediss://…
        processor: whose states they are.
        writing: with APPEND, changes are partials, which the store merges; otherwise they are whole values.
        retry_limit_s: how long a store that does not answer is waited for.

    Raises:
        BadStoreAddress: it is none of these.
        StoreLibraryMissing: the client library is not installed.
    """
    return RemoteStates(store_at(address_of(url)), processor, writing, StoreRetry(retry_limit_s))


def store_at(address: Address, *, read_only: bool = False) -> PostgresStore | RedisStore:
    """Return the store at an address, not yet connected.

    Args:
        address: where it is.
        read_only: whether PostgreSQL shall refuse every change; to Redis we then merely send none.
    """
    if address.scheme in POSTGRES:
        expect_library("psycopg", "postgres", address)
        from .postgres_store import PostgresStore  # noqa: PLC0415 - imports psycopg, which other stores do not need

        return PostgresStore(address, read_only=read_only)
    expect_library("redis", "redis", address)
    from .redis_store import RedisStore  # noqa: PLC0415 - imports redis, which other stores do not need

    return RedisStore(address)


def expect_library(module: str, extra: str, address: Address) -> None:
    """Raise StoreLibraryMissing where the client library of a store is not installed."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise StoreLibraryMissing(
            f"The store at {address} needs the library {module}, which cannot be imported here: {error}. Nothing was read or saved. "
            f"Install it: pip install 'penstock[{extra}]'"
        ) from error
