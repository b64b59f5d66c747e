"""A lazy connection to PostgreSQL, with translated errors."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ...processors import PenstockError
from ..errors import BadStoreAddress, StateError, StateUnwritable
from ..socket_deadline import SocketDeadline
from .addresses import StoreAddress
from .errors import StoreInterrupted, StoreRefused

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    # Detects a server that vanishes silently within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "penstock",
}
_PROBE_LIMIT_S = 5
"""How long a server may take to answer a new connection before it counts as hanging."""
_STATE_RIGHTS = "it reads, writes and creates the tables penstock_shards and penstock_parts"
_SESSION = (
    "SET client_min_messages = warning",
    "SET lock_timeout = '10s'",
    # A worker that is paused within a transaction locks its shard: limit how long it blocks the next owner.
    "SET idle_in_transaction_session_timeout = '10s'",
)

# By the first characters of SQLSTATE (appendix A of PostgreSQL's manual).
_INTERRUPTIONS = (
    "08",  # the connection broke
    "25006",  # a standby answers: the primary moved
    "25P03",  # idle within a transaction for too long
    "40",  # deadlock, serialization failure
    "53300",  # too many connections
    "55P03",  # lock timeout
    "57",  # cancelled, shut down by the administrator, starting up
)
_OUT_OF_SPACE = ("53100", "53200", "53400", "58")
_REFUSALS = ("28", "3D", "3F", "42501")
_PERMANENT_FAILURES = ("no password supplied", "does not support SSL", "certificate", "authentication method")
# A server that starts, stops or recovers: "the database system is starting up", "… is not yet accepting connections" and others.
_UNAVAILABLE = (
    "the database system is ",
    "too many clients",
    "too many connections",
    "remaining connection slots",
    # PgBouncer's
    "no more connections allowed",
    "cannot connect to server",
    "server login has been failing",
)


class PostgresConnection:
    """The connection of a process, which all its shards share.

    One connection for each shard would not be faster: a worker's shards share one thread, and PostgreSQL runs a process for each connection.
    Other threads may open shards, so a lock serializes the attempts. It is released during the pauses between attempts.

    Args:
        address: the address of PostgreSQL.
        read_only: whether PostgreSQL refuses changes.
        rights: the permissions that the user needs, for messages.
        limit_s: the time limit of a block in seconds, or of the part of it after a call of `renew`; None for no limit. Connecting may take two
            seconds more.
        allows_slow: whether a block may exceed the limit while the server answers a new connection: its work has no limit, and would begin again
            if it was interrupted.
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        read_only: bool = False,
        rights: str = _STATE_RIGHTS,
        limit_s: float | None = None,
        allows_slow: bool = False,
    ) -> None:
        self.address = address
        self._read_only = read_only
        self._rights = rights
        self._limit_s = limit_s
        self._allows_slow = allows_slow
        self._connection: psycopg.Connection | None = None
        self._deadline: SocketDeadline | None = None
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """Yield the connection within a transaction, which commits if the block succeeds."""
        with self.session() as connection, connection.transaction():
            yield connection

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """Yield the connection, with each statement as its own transaction."""
        with self._lock, self._translated_errors():
            if self._connection is None:
                self._connection = self._connected()
            try:
                with self._limited(self._connection):
                    yield self._connection
            except (psycopg.Error, OSError, StoreInterrupted):
                self._drop()
                raise

    @contextmanager
    def _limited(self, connection: psycopg.Connection) -> Iterator[None]:
        """Close the connection if the block takes too long: a hanging server sends nothing at all."""
        if self._limit_s is None:
            yield
            return
        with SocketDeadline(self._limit_s, self._is_hanging if self._allows_slow else lambda: True) as deadline:
            deadline.watch(connection.fileno())
            self._deadline = deadline
            try:
                yield
            except psycopg.OperationalError as error:
                if deadline.has_passed:
                    raise StoreInterrupted(
                        f"PostgreSQL at {self.address} did not answer within {self._limit_s:g} s."
                    ) from error
                raise
            finally:
                self._deadline = None

    def _is_hanging(self) -> bool:
        """Return whether the server does not answer a new connection, either. A refusal is an answer."""
        try:
            with (
                closing(
                    psycopg.connect(**self._parameters() | {"connect_timeout": _PROBE_LIMIT_S}, autocommit=True)
                ) as probe,
                SocketDeadline(_PROBE_LIMIT_S) as deadline,
            ):
                deadline.watch(probe.fileno())
                probe.execute("SELECT 1")
        except (psycopg.Error, OSError) as error:
            return "FATAL" not in str(error)
        return False

    def renew(self) -> None:
        """Begin the time limit of the running block again, because it makes progress."""
        if self._deadline is not None:
            self._deadline.renew()

    def close(self) -> None:
        """Close the connection. May be repeated; the next transaction opens a new one."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(psycopg.Error, OSError):
                connection.close()

    def _connected(self) -> psycopg.Connection:
        # Prepared statements belong to one session, which a connection pooler may change.
        connection = psycopg.connect(**self._parameters(), autocommit=True, prepare_threshold=None)
        with self._limited(connection):
            for setting in (*_SESSION, *self._own_settings()):
                connection.execute(setting)
        return connection

    def _own_settings(self) -> Iterator[str]:
        if self._read_only:
            yield "SET default_transaction_read_only = on"
        if self._limit_s is not None and not self._allows_slow:
            yield f"SET statement_timeout = {max(round(self._limit_s * 1000), 1)}"

    def _parameters(self) -> dict[str, Any]:
        writable = {} if self._read_only else {"target_session_attrs": "read-write"}
        try:
            parameters = conninfo_to_dict(self.address.url)
        except psycopg.Error:
            parameters = {"port": "unknown"}
        # Text after an unescaped / or : in a password is parsed as a port, and libraries quote it in their errors.
        if not all(port.isdigit() for port in str(parameters.get("port") or "0").split(",")):
            raise BadStoreAddress(
                f"{self.address} is not a valid PostgreSQL address. Nothing was read or saved. Write postgresql://user:password@host:5432/database, "
                "with %40 for @, %2F for / and %3A for : within the password."
            )
        limited = {} if self._limit_s is None else {"connect_timeout": min(max(math.ceil(self._limit_s), 2), 10)}
        return {**_DEFAULTS, **limited, **writable, **parameters}

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except PenstockError:
            raise
        except (psycopg.Error, OSError) as error:
            raise translated(self.address, error, self._rights) from error


def translated(address: StoreAddress, error: Exception, rights: str = _STATE_RIGHTS) -> StateError:
    """Translate an error of psycopg."""
    message = " ".join(address.without_password(str(error)).split()).rstrip(".") or type(error).__name__
    code = getattr(error, "sqlstate", None) or ""
    if _is_interruption(error, code):
        return StoreInterrupted(f"PostgreSQL at {address} failed temporarily: {message}.")
    if code.startswith(_OUT_OF_SPACE):
        return StateUnwritable(
            f"PostgreSQL at {address} is out of space: {message}. Nothing of this checkpoint was saved. Free space, then start again."
        )
    if code.startswith(_REFUSALS) or not code:
        return StoreRefused(
            f"PostgreSQL at {address} refuses access: {message}. Nothing was saved. Check the user, password and database in the address, or "
            f"grant the missing permissions ({rights}). Then start again."
        )
    return StateError(
        f"PostgreSQL at {address} failed: {message} (SQLSTATE {code}). Nothing was saved. Check the server's log."
    )


def _is_interruption(error: Exception, code: str) -> bool:
    message = str(error)  # with the password, which may be a part of the words
    if code:
        return code.startswith(_INTERRUPTIONS)
    if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError)):
        return False
    # Connection errors have no codes. Refusals by the server start with FATAL.
    refused = "FATAL" in message or any(words in message for words in _PERMANENT_FAILURES)
    return not refused or any(words in message for words in _UNAVAILABLE)
