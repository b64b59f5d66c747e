"""A client of Redis or of a Redis Cluster, and its errors in our words."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ...processors.errors import PenstockError
from ..errors import BadStoreAddress, StateError, StateUnwritable
from .addresses import Address
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
_PASSING = (
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "READONLY",
    "BUSY",
    "NOREPLICAS",
    "TRYAGAIN",
    STAGED_CHUNKS_ARE_MISSING,
)
_NOT_ALLOWED = (
    "WRONGPASS",
    "NOAUTH",
    "NOPERM",
    "DB index",
    "invalid DB",
    "SELECT is not allowed",
    "without any password",
)
_NO_ROOM = ("OOM", "MISCONF")
_STATE_RIGHTS = "the keys penstock:* and to scripts (EVAL)"


class RedisConnection:
    """The client of a process: its pool gives each thread that works at the same time a connection of its own.

    Args:
        address: where Redis is, or one node of a cluster.
        rights: what its user needs access to, for messages.
        limit_s: how long an answer may take, in seconds; by default 30, and 10 for connecting.
    """

    def __init__(self, address: Address, *, rights: str = _STATE_RIGHTS, limit_s: float | None = None) -> None:
        self.address = address
        self._rights = rights
        self._limit_s = limit_s
        self._client: Any = None
        self._lock = threading.Lock()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Give the client; what goes wrong in the block is raised in our words."""
        client = None
        try:
            client = self._connected()
            yield client
        except PenstockError:
            raise
        except (redis.RedisError, OSError) as error:
            wrong = explained(self.address, error, self._rights)
            if isinstance(wrong, StoreInterrupted):
                # A replica that once was the primary keeps its connections open: the next attempt asks anew who is.
                self._forget(client)
            raise wrong from error

    def run(self, script: str, keys: Sequence[str], arguments: Sequence[Any] = ()) -> Any:
        """Return what a script returns."""
        with self.client() as client:
            return client.register_script(script)(keys=list(keys), args=list(arguments))

    def close(self) -> None:
        """Let go of the connections. May be repeated; the next use makes new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with suppress(redis.RedisError, OSError):
                client.close()

    def _forget(self, client: Any) -> None:
        """Make a new client next time. This one is not closed: other threads may be in the middle of a call on it."""
        with self._lock:
            if self._client is client:
                self._client = None

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._made()
            return self._client

    def _made(self) -> Any:
        settings: dict[str, Any] = {
            "socket_timeout": self._limit_s or 30.0,
            "socket_connect_timeout": self._limit_s or 10.0,
            "socket_keepalive": True,
            # Repeating is for one place only, which knows for how long.
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        try:
            client = redis.Redis.from_url(self.address.url, **settings)
        except ValueError:
            # The library's own words may quote a part of the password, where that was not escaped.
            raise BadStoreAddress(
                f"{self.address} is not an address of Redis: write it as redis://user:password@host:6379/0, with %40 for @, %2F "
                "for / and %3A for : within the password. Nothing was read or saved."
            ) from None
        if not _is_cluster(client):
            return client
        client.close()
        return redis.RedisCluster.from_url(self.address.url, **settings)


def warn_unless_durable(connection: RedisConnection) -> None:
    """Say once that a crash of Redis loses what was saved, if it keeps its data in memory alone.

    Managed Redis does not tell: then nothing is said.
    """
    try:
        with connection.client() as client:
            setting = client.config_get("appendonly")
    except StateError:
        return
    if setting.get("appendonly", setting.get(b"appendonly")) in ("no", b"no"):
        _LOG.warning(
            "Redis at %s runs with `appendonly no`: when it crashes, what was saved since its last snapshot is lost, and "
            "processors go on from there. Set `appendonly yes`, and `appendfsync always` where every save has to last.",
            connection.address,
        )


def explained(address: Address, error: Exception, rights: str = _STATE_RIGHTS) -> StateError:
    """Return our error for one of redis-py's: the class says what to do next."""
    said = " ".join(address.without_password(str(error)).split()).rstrip(".") or type(error).__name__
    # Before interruptions: to redis-py, a wrong password is a failed connection.
    if isinstance(error, _REFUSALS) or any(words in said for words in _NOT_ALLOWED):
        return StoreRefused(
            f"Redis at {address} refuses: {said}. Nothing was saved. Mend user, password and database number in the address, or "
            f"give the user access to {rights}, then start again."
        )
    if isinstance(error, _INTERRUPTIONS) or _has_code(said, _PASSING):
        return StoreInterrupted(f"Redis at {address} does not answer as it should: {said}.")
    if isinstance(error, redis.OutOfMemoryError) or _has_code(said, _NO_ROOM):
        return StateUnwritable(
            f"Redis at {address} has no room: {said}. Nothing of this checkpoint was saved. Raise maxmemory or make room on its "
            "disk, then start again."
        )
    return StateError(f"Redis at {address} cannot do what was asked: {said}. Nothing was saved.")


def _has_code(said: str, codes: Sequence[str]) -> bool:
    # Before version 7, a script's error had the code of the command that failed in it somewhere within, after a minus.
    return any(said.startswith(code) or f" -{code}" in said for code in codes)


def _is_cluster(client: Any) -> bool:
    try:
        return bool(client.info("cluster").get("cluster_enabled"))
    except redis.ResponseError:
        # Managed Redis may not tell; to a client it then looks like a single server.
        return False
