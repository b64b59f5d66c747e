"""A connection to PostgreSQL that is made when it is needed, and its errors in our words."""

from __future__ import annotations

import math
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ...processors.errors import PenstockError
from ..errors import BadStoreAddress, StateError, StateUnwritable
from .addresses import Address
from .errors import StoreInterrupted, StoreRefused

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    # A server that vanished without a word is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "penstock",
}
_STATE_RIGHTS = (
    "it reads and writes the tables penstock_shards and penstock_parts, and creates them where they are not there"
)
_SESSION = (
    "SET client_min_messages = warning",
    "SET lock_timeout = '10s'",
    # A worker that is paused within a transaction holds its shard: it must not keep the next owner from it for long.
    "SET idle_in_transaction_session_timeout = '10s'",
)

# By the first characters of SQLSTATE (appendix A of PostgreSQL's manual).
_INTERRUPTIONS = (
    "08",  # the connection broke
    "25006",  # a standby answers: the primary moved
    "25P03",  # we were idle within a transaction for too long
    "40",  # deadlock, serialization failure
    "53300",  # too many connections
    "55P03",  # a lock was not to be had in time
    "57",  # cancelled, shut down by the administrator, starting up
)
_NO_ROOM = ("53100", "53200", "53400", "58")
_REFUSALS = ("28", "3D", "3F", "42501")
_NOT_WORTH_REPEATING = ("no password supplied", "does not support SSL", "certificate", "authentication method")
_UNAVAILABLE = ("starting up", "shutting down", "recovery mode", "too many clients", "remaining connection slots")


class PostgresConnection:
    """One connection for all the shards of a process: they work in turn, and a checkpoint is a few round trips.

    A connection for each shard would serve no more, for the shards of a worker share one thread, and PostgreSQL pays for each with a
    process. A lock lets other threads open shards meanwhile; it is held for one attempt, never while something is waited for.

    Args:
        address: where PostgreSQL is.
        read_only: whether PostgreSQL shall refuse every change.
        rights: what its user has to be allowed, for messages.
        limit_s: how long a block may take, in seconds; None for as long as it takes. Connecting may take two seconds more.
    """

    def __init__(
        self, address: Address, *, read_only: bool = False, rights: str = _STATE_RIGHTS, limit_s: float | None = None
    ) -> None:
        self.address = address
        self._read_only = read_only
        self._rights = rights
        self._limit_s = limit_s
        self._connection: psycopg.Connection | None = None
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection]:
        """Give the connection within a transaction, which commits when the block ends well."""
        with self.session() as connection, connection.transaction():
            yield connection

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """Give the connection, on which each statement is a transaction of its own."""
        with self._lock, self._explained():
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
        """Break the connection when the block takes too long: a server that stands still says nothing, not even that."""
        if self._limit_s is None:
            yield
            return
        overdue = threading.Event()
        with socket.socket(fileno=os.dup(connection.fileno())) as line:

            def break_off() -> None:
                overdue.set()
                with suppress(OSError):
                    line.shutdown(socket.SHUT_RDWR)

            timer = threading.Timer(self._limit_s, break_off)
            timer.start()
            try:
                yield
            except psycopg.OperationalError as error:
                if overdue.is_set():
                    raise StoreInterrupted(
                        f"PostgreSQL at {self.address} gave no answer within {self._limit_s:g} s."
                    ) from error
                raise
            finally:
                timer.cancel()
                timer.join()

    def close(self) -> None:
        """Let go of the connection. May be repeated; the next transaction makes a new one."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(psycopg.Error, OSError):
                connection.close()

    def _connected(self) -> psycopg.Connection:
        # Prepared statements would tie us to one session, which a pooler in front of PostgreSQL may change.
        connection = psycopg.connect(**self._parameters(), autocommit=True, prepare_threshold=None)
        with self._limited(connection):
            for setting in (*_SESSION, *self._own_settings()):
                connection.execute(setting)
        return connection

    def _own_settings(self) -> Iterator[str]:
        if self._read_only:
            yield "SET default_transaction_read_only = on"
        if self._limit_s is not None:
            yield f"SET statement_timeout = {max(round(self._limit_s * 1000), 1)}"

    def _parameters(self) -> dict[str, Any]:
        writable = {} if self._read_only else {"target_session_attrs": "read-write"}
        try:
            given = conninfo_to_dict(self.address.url)
        except psycopg.Error:
            given = {"port": "unknown"}
        # What follows an unescaped / or : within a password is taken for a port; libraries quote it in their errors.
        if not all(port.isdigit() for port in str(given.get("port") or "0").split(",")):
            raise BadStoreAddress(
                f"{self.address} is not an address of PostgreSQL: write it as postgresql://user:password@host:5432/database, with "
                "%40 for @, %2F for / and %3A for : within the password. Nothing was read or saved."
            )
        limited = {} if self._limit_s is None else {"connect_timeout": max(math.ceil(self._limit_s), 2)}
        return {**_DEFAULTS, **limited, **writable, **given}

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except PenstockError:
            raise
        except (psycopg.Error, OSError) as error:
            raise explained(self.address, error, self._rights) from error


def explained(address: Address, error: Exception, rights: str = _STATE_RIGHTS) -> StateError:
    """Return our error for one of psycopg's: the class says what to do next."""
    said = " ".join(address.without_password(str(error)).split()).rstrip(".") or type(error).__name__
    code = getattr(error, "sqlstate", None) or ""
    if _is_interruption(error, code, said):
        return StoreInterrupted(f"PostgreSQL at {address} does not answer as it should: {said}.")
    if code.startswith(_NO_ROOM):
        return StateUnwritable(
            f"PostgreSQL at {address} has no room: {said}. Nothing of this checkpoint was saved. Make room, then start again."
        )
    if code.startswith(_REFUSALS) or not code:
        return StoreRefused(
            f"PostgreSQL at {address} refuses: {said}. Nothing was saved. Mend user, password and database in the address, or "
            f"grant the user what is missing ({rights}), then start again."
        )
    return StateError(f"PostgreSQL at {address} cannot do what was asked: {said} (SQLSTATE {code}). Nothing was saved.")


def _is_interruption(error: Exception, code: str, said: str) -> bool:
    if code:
        return code.startswith(_INTERRUPTIONS)
    if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, OSError)):
        return False
    # While a connection is being made there are no codes. What the server itself refuses begins with FATAL.
    refused = "FATAL" in said or any(words in said for words in _NOT_WORTH_REPEATING)
    return not refused or any(words in said for words in _UNAVAILABLE)
