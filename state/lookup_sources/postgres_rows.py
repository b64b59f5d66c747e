"""Rows that PostgreSQL is asked for, by a list of keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...processors.lookups import InvalidRow, LookupUnreachable
from ...processors.lookups.row_shape import RowShape
from ..errors import StateError
from ..remote.errors import StoreInterrupted
from .address import explained

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    from ..remote.postgres_connection import PostgresConnection


@dataclass(frozen=True)
class PostgresRequest:
    """A statement with one parameter, the list of keys, whose first column is the key of a row.

    Args:
        statement: itself.
        columns: the names of the columns after the first.
        whole_numbers: whether only whole numbers can be keys.
    """

    statement: sql.Composed
    columns: Sequence[str]
    whole_numbers: bool = False


Prepare = Callable[["psycopg.Connection"], PostgresRequest]
"""Finds out how to ask, from the tables as they are; raises LookupRefused where they lack something."""


class PostgresRows:
    """Rows in PostgreSQL. One thread; a new connection where the last one broke.

    Args:
        connection: to where they are.
        prepare: finds out, once, how to ask.
        shape: what they become.
        what: is asked, for messages.
    """

    def __init__(self, connection: PostgresConnection, prepare: Prepare, shape: RowShape, what: str) -> None:
        self._connection = connection
        self._prepare = prepare
        self._shape = shape
        self._what = what
        self._asking: PostgresRequest | None = None

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the row of each key that has one."""
        try:
            with self._connection.session() as connection:
                if self._asking is None:
                    self._asking = self._prepare(connection)
                found = self._found(connection, self._asking, keys)
        except StoreInterrupted as error:
            raise LookupUnreachable(f"{self._what} could not be asked. {error}") from error
        except StateError as error:
            raise explained(error, self._what) from error
        return self._rows(found, self._asking)

    def _found(
        self, connection: psycopg.Connection, asking: PostgresRequest, keys: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        wanted: list[Any] = [int(key) for key in keys if _is_whole(key)] if asking.whole_numbers else list(keys)
        return connection.execute(asking.statement, (wanted,)).fetchall() if wanted else []

    def _rows(self, found: Sequence[tuple[Any, ...]], asking: PostgresRequest) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for key, *values in found:
            name = str(key)
            place = f"the row of {name!r} in {self._what}"
            if name in rows:
                rows[name] = InvalidRow(f"{place} is not one: there are several, and which is meant cannot be known")
                continue
            try:
                rows[name] = self._shape.of_values(dict(zip(asking.columns, values, strict=True)), place)
            except InvalidRow as error:
                rows[name] = error
        return rows

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


def _is_whole(key: str) -> bool:
    """Tell whether a key can be that of a column of whole numbers, written as PostgreSQL writes it."""
    digits = key.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) < 19 and str(int(key)) == key
