"""Rows of a PostgreSQL table or query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ...processors import DeclarationError
from ...processors.lookups import InvalidRow, LookupRefused, LookupUnreachable, RowShape
from ..errors import StateError
from ..remote import POSTGRES, StoreInterrupted, expect_library
from .address import DEFAULT_VARIABLE, address_named, expect_time, lookup_refused

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    from ..remote import PostgresConnection

_WHOLE_NUMBERS = (20, 21, 23)
_TEXTS = (25, 1042, 1043)
_PADDED = 1042
"""Type identifiers in PostgreSQL's catalog pg_type."""


@dataclass(frozen=True)
class PostgresTable:
    """A table or view of PostgreSQL.

    Args:
        table: its name; within a schema, `schema.table`.
        row: the type of its rows; columns are matched to fields by name.
        key: the column of the key, with unique strings or integers, ideally with an index.
        at: the environment variable with the address, postgresql://user:password@host:5432/database; or the address.
        time_limit: the limit of each request; connecting may take two seconds more.

    Raises:
        DeclarationError: `row` is not a supported type, or the time limit is not above zero.
    """

    table: str
    row: type[msgspec.Struct]
    key: str
    at: str = field(default=DEFAULT_VARIABLE, repr=False)
    time_limit: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        RowShape(self.row)
        expect_time(self, self.time_limit)

    def open(self) -> PostgresLookup:
        """Return a client. The first request connects.

        Raises:
            LookupRefused: the address is missing or of another kind.
        """
        return _opened(self, self._prepare)

    def _prepare(self, connection: psycopg.Connection) -> PostgresRequest:
        from psycopg import sql  # noqa: PLC0415 - other sources need no psycopg

        table = sql.Identifier(*self.table.split("."))
        types = _types(connection, sql.SQL("SELECT * FROM {} LIMIT 0").format(table))
        columns, key = RowShape(self.row).columns(list(types), self.key, str(self)), types[self.key]
        if key not in _WHOLE_NUMBERS + _TEXTS:
            raise LookupRefused(
                f"{self}: the key column {self.key!r} contains neither strings nor integers. Nothing was looked up. Declare a PostgresQuery "
                "that converts the list of keys to the column's type."
            )
        # The index of blank-padded text is used only for a parameter of that type.
        parameter = sql.SQL("%s::bpchar[]" if key == _PADDED else "%s")
        where = sql.SQL(" FROM {} WHERE {} = ANY({})").format(table, sql.Identifier(self.key), parameter)
        return PostgresRequest(_selection(self.key, columns) + where, columns, whole_numbers=key in _WHOLE_NUMBERS)

    def __str__(self) -> str:
        return f"table {self.table} of PostgreSQL"


@dataclass(frozen=True)
class PostgresQuery:
    """A query of PostgreSQL with a list of keys.

    Args:
        query: a query with one parameter, `%s`, for the list of keys as text: `SELECT … WHERE code = ANY(%s)`, or for a column of another
            type, `ANY(%s::uuid[])`.
        row: the type of its rows; columns are matched to fields by name.
        key: the result column with the key, which must be unique.
        at: the environment variable with the address, postgresql://user:password@host:5432/database; or the address.
        time_limit: the limit of each request; connecting may take two seconds more.

    Raises:
        DeclarationError: `row` is not a supported type, the time limit is not above zero, or the query does not have one parameter.
    """

    query: str
    row: type[msgspec.Struct]
    key: str
    at: str = field(default=DEFAULT_VARIABLE, repr=False)
    time_limit: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        RowShape(self.row)
        expect_time(self, self.time_limit)
        if self.query.count("%s") != 1:
            raise DeclarationError(
                f"{self}: the query has {self.query.count('%s')} parameters instead of one. Use one %s for the list of keys, such as "
                "`WHERE code = ANY(%s)`."
            )

    def open(self) -> PostgresLookup:
        """Return a client. The first request connects.

        Raises:
            LookupRefused: the address is missing or of another kind.
        """
        return _opened(self, self._prepare)

    def _prepare(self, connection: psycopg.Connection) -> PostgresRequest:
        from psycopg import sql  # noqa: PLC0415 - other sources need no psycopg

        query = sql.SQL(self.query.strip().rstrip(";"))  # the author of a processor may query anything
        given = sql.SQL(" FROM ({}) AS given").format(query)
        types = _types(connection, sql.SQL("SELECT *") + given + sql.SQL(" LIMIT 0"), [])
        columns = RowShape(self.row).columns(list(types), self.key, str(self))
        return PostgresRequest(_selection(self.key, columns) + given, columns)

    def __str__(self) -> str:
        return f"the query {' '.join(self.query.split())!r} of PostgreSQL"


def _opened(declared: PostgresTable | PostgresQuery, prepare: Prepare) -> PostgresLookup:
    address = address_named(declared.at, POSTGRES, str(declared))
    try:
        expect_library("psycopg", "postgres", address)
    except StateError as error:
        raise lookup_refused(error, str(declared)) from error
    from ..remote import PostgresConnection  # noqa: PLC0415 - imports psycopg

    connection = PostgresConnection(
        address,
        read_only=True,
        rights=f"it reads {declared}",
        limit_s=declared.time_limit.total_seconds(),
    )
    return PostgresLookup(connection, prepare, RowShape(declared.row), str(declared))


def _selection(key: str, columns: Sequence[str]) -> sql.Composed:
    from psycopg import sql  # noqa: PLC0415

    selected = [sql.SQL("{}::text").format(sql.Identifier(key)), *map(sql.Identifier, columns)]
    return sql.SQL("SELECT ") + sql.SQL(", ").join(selected)


def _types(connection: psycopg.Connection, statement: sql.Composed, *parameters: list[str]) -> dict[str, int]:
    """Return the types of a statement's columns by name."""
    described = connection.execute(statement, parameters or None).description or []
    return {column.name: column.type_code for column in described}


@dataclass(frozen=True)
class PostgresRequest:
    """A statement whose parameter is the list of keys, and whose first column is the key.

    Args:
        statement: the statement.
        columns: the names of the columns after the first.
        whole_numbers: whether only integers can be keys.
    """

    statement: sql.Composed
    columns: Sequence[str]
    whole_numbers: bool = False


Prepare = Callable[["psycopg.Connection"], PostgresRequest]
"""Creates the statement from the current tables; raises LookupRefused if they lack something."""


class PostgresLookup:
    """Rows in PostgreSQL; for one thread. A broken connection is replaced.

    Args:
        connection: the connection.
        prepare: creates the statement, once.
        shape: the type of the rows.
        what: the source, for messages.
    """

    def __init__(self, connection: PostgresConnection, prepare: Prepare, shape: RowShape, what: str) -> None:
        self._connection = connection
        self._prepare = prepare
        self._shape = shape
        self._what = what
        self._request: PostgresRequest | None = None

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the rows of the keys; keys without a row are missing."""
        try:
            with self._connection.session() as connection:
                if self._request is None:
                    self._request = self._prepare(connection)
                found = self._found(connection, self._request, keys)
        except StoreInterrupted as error:
            raise LookupUnreachable(f"{self._what} did not answer. {error}") from error
        except StateError as error:
            raise lookup_refused(error, self._what) from error
        return self._rows(found, self._request)

    def _found(
        self, connection: psycopg.Connection, request: PostgresRequest, keys: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        wanted: list[Any] = [int(key) for key in keys if _is_whole(key)] if request.whole_numbers else list(keys)
        return connection.execute(request.statement, (wanted,)).fetchall() if wanted else []

    def _rows(self, found: Sequence[tuple[Any, ...]], request: PostgresRequest) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for key, *values in found:
            name = str(key)
            place = f"the row of {name!r} in {self._what}"
            if name in rows:
                rows[name] = InvalidRow(f"{place} is ambiguous: the key has several rows")
                continue
            try:
                rows[name] = self._shape.from_values(dict(zip(request.columns, values, strict=True)), place)
            except InvalidRow as error:
                rows[name] = error
        return rows

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _is_whole(key: str) -> bool:
    """Return whether a key is an integer in PostgreSQL's notation."""
    digits = key.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19 and str(int(key)) == key
