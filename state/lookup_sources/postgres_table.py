"""Rows in a table of PostgreSQL, or that a query of one's own gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from ...processors.errors import DeclarationError
from ...processors.lookups import LookupRefused
from ...processors.lookups.row_shape import RowShape
from ..errors import StateError
from ..remote.addresses import POSTGRES
from ..remote.folder import expect_library
from .address import DEFAULT_VARIABLE, address_named, expect_time, explained
from .postgres_rows import PostgresRequest, PostgresRows, Prepare

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

_WHOLE_NUMBERS = (20, 21, 23)
_TEXTS = (25, 1042, 1043)
_PADDED = 1042
"""Object identifiers of types, as PostgreSQL's catalog pg_type has them."""


@dataclass(frozen=True)
class PostgresTable:
    """A table or view of PostgreSQL.

    Args:
        table: its name; within a schema, `schema.table`.
        row: what a row becomes; its fields are found by their columns' names.
        key: the column of the key, text or whole numbers, best with an index; each key has one row.
        at: the environment variable that holds the address, postgresql://user:password@host:5432/database; or an address.
        time_limit: for each request; connecting takes two seconds more at most.

    Raises:
        DeclarationError: `row` is no type of rows, or there is no time.
    """

    table: str
    row: type[msgspec.Struct]
    key: str
    at: str = field(default=DEFAULT_VARIABLE, repr=False)
    time_limit: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        RowShape(self.row)
        expect_time(self, self.time_limit)

    def open(self) -> PostgresRows:
        """Return what can be asked; connects when it is.

        Raises:
            LookupRefused: its address is not known or none of PostgreSQL.
        """
        return _opened(self, self._prepare)

    def _prepare(self, connection: psycopg.Connection) -> PostgresRequest:
        from psycopg import sql  # noqa: PLC0415 - what looks up elsewhere needs no psycopg

        table = sql.Identifier(*self.table.split("."))
        types = _types(connection, sql.SQL("SELECT * FROM {} LIMIT 0").format(table))
        columns, key = RowShape(self.row).columns(list(types), self.key, str(self)), types[self.key]
        if key not in _WHOLE_NUMBERS + _TEXTS:
            raise LookupRefused(
                f"{self}: the key column {self.key!r} is neither text nor whole numbers. Declare a PostgresQuery, which turns the list of "
                "keys into what the column holds."
            )
        # A text that is padded with blanks is found by its index only as what it is.
        parameter = sql.SQL("%s::bpchar[]" if key == _PADDED else "%s")
        where = sql.SQL(" FROM {} WHERE {} = ANY({})").format(table, sql.Identifier(self.key), parameter)
        return PostgresRequest(_selection(self.key, columns) + where, columns, whole_numbers=key in _WHOLE_NUMBERS)

    def __str__(self) -> str:
        return f"table {self.table} of PostgreSQL"


@dataclass(frozen=True)
class PostgresQuery:
    """What a query of PostgreSQL gives for a list of keys.

    Args:
        query: with one parameter, `%s`, which stands for the list of keys, as texts: `SELECT … WHERE code = ANY(%s)`, or, where the
            column holds something else, `ANY(%s::uuid[])`.
        row: what a row becomes; its fields are found by their columns' names.
        key: the column of the result that says which key a row is of; each has one row.
        at: the environment variable that holds the address, postgresql://user:password@host:5432/database; or an address.
        time_limit: for each request; connecting takes two seconds more at most.

    Raises:
        DeclarationError: `row` is no type of rows, there is no time, or not one parameter.
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
                f"{self}: it needs one parameter, %s, for the list of keys, such as `WHERE code = ANY(%s)`, and has "
                f"{self.query.count('%s')}."
            )

    def open(self) -> PostgresRows:
        """Return what can be asked; connects when it is.

        Raises:
            LookupRefused: its address is not known or none of PostgreSQL.
        """
        return _opened(self, self._prepare)

    def _prepare(self, connection: psycopg.Connection) -> PostgresRequest:
        from psycopg import sql  # noqa: PLC0415 - what looks up elsewhere needs no psycopg

        query = sql.SQL(self.query.strip().rstrip(";"))  # whoever declares a processor may ask anything
        given = sql.SQL(" FROM ({}) AS given").format(query)
        types = _types(connection, sql.SQL("SELECT *") + given + sql.SQL(" LIMIT 0"), [])
        columns = RowShape(self.row).columns(list(types), self.key, str(self))
        return PostgresRequest(_selection(self.key, columns) + given, columns)

    def __str__(self) -> str:
        return f"the query {' '.join(self.query.split())!r} of PostgreSQL"


def _opened(declared: PostgresTable | PostgresQuery, prepare: Prepare) -> PostgresRows:
    address = address_named(declared.at, POSTGRES, str(declared))
    try:
        expect_library("psycopg", "postgres", address)
    except StateError as error:
        raise explained(error, str(declared)) from error
    from ..remote.postgres_connection import PostgresConnection  # noqa: PLC0415 - imports psycopg

    connection = PostgresConnection(
        address,
        read_only=True,
        rights=f"it reads {declared}",
        limit_s=declared.time_limit.total_seconds(),
    )
    return PostgresRows(connection, prepare, RowShape(declared.row), str(declared))


def _selection(key: str, columns: Sequence[str]) -> sql.Composed:
    from psycopg import sql  # noqa: PLC0415

    selected = [sql.SQL("{}::text").format(sql.Identifier(key)), *map(sql.Identifier, columns)]
    return sql.SQL("SELECT ") + sql.SQL(", ").join(selected)


def _types(connection: psycopg.Connection, statement: sql.Composed, *parameters: list[str]) -> dict[str, int]:
    """Return the types of a statement's columns by their names."""
    described = connection.execute(statement, parameters or None).description or []
    return {column.name: column.type_code for column in described}
