"""A client of Redis or a Redis Cluster, with translated errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...processors import PenstockError
from ..errors import BadStoreAddress, StateError, StateUnwritable
from .addresses import StoreAddress
from .errors import StoreInterrupted, StoreRefused
from .redis_scripts import STAGED_CHUNKS_ARE_MISSING

_LOG = logging.getLogger("penstock.state")

_REFUSALS = (redis.AuthenticationError, redis.exceptions.AuthorizationError, redis.exceptions.NoPermissionError)
_INTERRUPTIONS = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.ReadOnlyError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MovedError,
    redis.exceptions.SlotNotCoveredError,
    OSError,
)
_TEMPORARY_CODES = (
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "READONLY",
    "BUSY",
    "NOREPLICAS",
    "TRYAGAIN",
    STAGED_CHUNKS_ARE_MISSING,
)
_ACCESS_DENIED = (
    "WRONGPASS",
    "NOAUTH",
    "NOPERM",
    "DB index",
    "invalid DB",
    "SELECT is not allowed",
    "without any password",
)
_OUT_OF_SPACE = ("OOM", "MISCONF")
_STATE_RIGHTS = "the keys penstock:* and to scripts (EVAL)"


class RedisConnection:
    """The client of a process. Its pool has a connection for each thread that works at the same time.

    Args:
        address: the address of Redis, or of one node of a cluster.
        rights: the keys and commands that the user needs, for messages.
        limit_s: the time limit of an answer in seconds; by default 30, and 10 for connecting.
    """

    def __init__(self, address: StoreAddress, *, rights: str = _STATE_RIGHTS, limit_s: float | None = None) -> None:
        self.address = address
        self._rights = rights
        self._limit_s = limit_s
        self._client: Any = None
        self._lock = threading.Lock()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Yield the client. Errors in the block are translated."""
        client = None
        try:
            client = self._connected()
            yield client
        except PenstockError:
            raise
        except (redis.RedisError, OSError) as error:
            failure = translated(self.address, error, self._rights)
            if isinstance(failure, StoreInterrupted):
                # A replica that was the primary keeps its connections open: the next attempt looks up the primary again.
                self._forget(client)
            raise failure from error

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any] = ()) -> Any:
        """Return a script's result."""
        with self.client() as client:
            return client.register_script(script)(keys=list(keys), args=list(arguments))

    def close(self) -> None:
        """Close the connections. May be repeated; the next use opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with suppress(redis.RedisError, OSError):
                client.close()

    def _forget(self, client: Any) -> None:
        """Make the next use create a new client. This one stays open, since other threads may be using it."""
        with self._lock:
            if self._client is client:
                self._client = None

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        settings: dict[str, Any] = {
            "socket_timeout": self._limit_s or 30.0,
            "socket_connect_timeout": self._limit_s or 10.0,
            "socket_keepalive": True,
            # Only StoreRetry repeats requests; it knows the time limit.
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        try:
            client = redis.Redis.from_url(self.address.url, **settings)
        except ValueError:
            # The library's message may quote part of a password that was not escaped.
            raise BadStoreAddress(
                f"{self.address} is not a valid Redis address. Nothing was read or saved. Write redis://user:password@host:6379/0, "
                "with %40 for @, %2F for / and %3A for : within the password."
            ) from None
        if not _is_cluster(client):
            return client
        client.close()
        return redis.RedisCluster.from_url(self.address.url, **settings)


def warn_unless_durable(connection: RedisConnection) -> None:
    """Warn if Redis keeps its data in memory only, so that a crash would lose saves.

    Managed Redis hides the setting; then there is no warning.
    """
    try:
        with connection.client() as client:
            setting = client.config_get("appendonly")
    except StateError:
        return
    if setting.get("appendonly", setting.get(b"appendonly")) in ("no", b"no"):
        _LOG.warning(
            "Redis at %s runs with `appendonly no`: a crash loses the saves since its last snapshot, and processors continue from there. "
            "Set `appendonly yes`, and `appendfsync always` if no save may be lost.",
            connection.address,
        )


def translated(address: StoreAddress, error: Exception, rights: str = _STATE_RIGHTS) -> StateError:
    """Translate an error of redis-py."""
    message = " ".join(address.without_password(str(error)).split()).rstrip(".") or type(error).__name__
    # First, because redis-py reports a wrong password as a failed connection.
    if isinstance(error, _REFUSALS) or any(words in message for words in _ACCESS_DENIED):
        return StoreRefused(
            f"Redis at {address} refuses access: {message}. Nothing was saved. Check the user, password and database number in the address, or "
            f"grant the user access to {rights}. Then start again."
        )
    if isinstance(error, _INTERRUPTIONS) or _has_code(message, _TEMPORARY_CODES):
        return StoreInterrupted(f"Redis at {address} failed temporarily: {message}.")
    if isinstance(error, redis.OutOfMemoryError) or _has_code(message, _OUT_OF_SPACE):
        return StateUnwritable(
            f"Redis at {address} is out of space: {message}. Nothing of this checkpoint was saved. Raise maxmemory or free disk space, "
            "then start again."
        )
    return StateError(f"Redis at {address} failed: {message}. Nothing was saved. Check the server's log.")


def _has_code(message: str, codes: Sequence[str]) -> bool:
    # Before version 7, the error of a script contains the failed command's code after a minus.
    return any(message.startswith(code) or f" -{code}" in message for code in codes)


def _is_cluster(client: Any) -> bool:
    try:
        return bool(client.info("cluster").get("cluster_enabled"))
    except redis.ResponseError:
        # Managed Redis may hide the setting, and then behaves like a single server.
        return False
