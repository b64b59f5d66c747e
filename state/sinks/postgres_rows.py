"""Rows in a PostgreSQL table, written by COPY.

    penstock_sinks    by processor, bucket and table: the shard's owner, its number of writes, and the position of its last batch

A write is one transaction. It starts with the shard's row of `penstock_sinks`, which it locks and whose epoch and number of writes it checks,
so a former owner writes nothing. Rows without a key are copied into the table; rows with a key into a temporary table, and from there by one
INSERT … ON CONFLICT.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
from msgspec import inspect as shapes
from psycopg import sql

from ...processors import counted
from ...processors.declare import ErrorPolicy, RefusedRow, RowsRefused, SinkBatch, SinkRefused, Tombstone, primitive
from ..remote import NO_VERSION, PostgresConnection, ShardVersion, StoreAddress, StoredShard
from .owned_rows import RowClaim
from .table_columns import Convert, RecordColumn, TableColumn, create_table, quoted, unfit_reasons

if TYPE_CHECKING:
    from .postgres_sink import PostgresSink

_LOCK = 0x70656E73696E6B73
"""The advisory lock for creating the table: the bytes of "pensinks" as a number."""
_CREATE = """
    CREATE TABLE IF NOT EXISTS penstock_sinks (
        processor text NOT NULL,
        bucket integer NOT NULL,
        sink text NOT NULL,
        owner text NOT NULL,
        epoch bigint NOT NULL DEFAULT 1,
        writes bigint NOT NULL DEFAULT 0,
        position text NOT NULL DEFAULT '',
        PRIMARY KEY (processor, bucket, sink)
    )
"""
_CLAIM = """
    INSERT INTO penstock_sinks AS own (processor, bucket, sink, owner) VALUES (%s, %s, %s, %s)
    ON CONFLICT (processor, bucket, sink) DO UPDATE SET owner = EXCLUDED.owner, epoch = own.epoch + 1
    RETURNING owner, epoch, writes, position
"""
_BEGIN = """
    UPDATE penstock_sinks SET writes = writes + 1, position = %s
    WHERE processor = %s AND bucket = %s AND sink = %s AND owner = %s AND epoch = %s AND writes = %s
"""
_VERSION = "SELECT owner, epoch, writes FROM penstock_sinks WHERE processor = %s AND bucket = %s AND sink = %s"
_COLUMNS = """
    SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull, atthasdef OR attidentity <> '', attgenerated <> '' OR attidentity = 'a'
    FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""
_UNIQUE = """
    SELECT array_agg(part.attname::text) FROM pg_index AS own
    JOIN pg_attribute AS part ON part.attrelid = own.indrelid AND part.attnum = ANY(own.indkey::smallint[])
    WHERE own.indrelid = to_regclass(%s) AND own.indisunique AND own.indisvalid AND own.indimmediate AND own.indpred IS NULL AND own.indexprs IS NULL
    GROUP BY own.indexrelid
"""
_REFUSALS = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.RaiseException,  # by a trigger
    OverflowError,
    UnicodeEncodeError,
)
"""The errors by which a table refuses a row."""
ANSWER_LIMIT_S = 30.0
"""How long PostgreSQL may take for a part of a batch. A server that hangs, or a lock, would otherwise hold the worker silently."""
PART_ROWS = 10_000
"""The number of rows in a part."""
MOST_REFUSED = 100
"""The number of refused rows in a checkpoint at which the worker stops."""
_RIGHTS = "it writes the tables of its sinks, and creates, reads and writes the table penstock_sinks"


class PostgresRowStore:
    """The rows of one table: a `RowStore`.

    Args:
        declared: the table.
        address: its address.
    """

    def __init__(self, declared: PostgresSink, address: StoreAddress) -> None:
        self._declared = declared
        self._columns = declared.columns
        self._key = declared.key_columns
        self._address = address
        self._connection = PostgresConnection(address, rights=_RIGHTS, limit_s=ANSWER_LIMIT_S)
        self._types: dict[str, TableColumn] | None = None
        self._check_lock = threading.Lock()

    def claim(self, shard: StoredShard) -> RowClaim:
        """Become the owner."""
        self._expect_table()
        with self._connection.transaction() as connection:
            row = connection.execute(_CLAIM, (*self._place(shard), uuid4().hex)).fetchone()
        assert row is not None  # noqa: S101 - every insertion or update returns its row
        *version, position = row
        return RowClaim(ShardVersion(*version), position)

    def commit(self, shard: StoredShard, version: ShardVersion, batch: SinkBatch) -> ShardVersion:
        """Write rows and position if the shard has the expected version."""
        with self._connection.transaction() as connection:
            begun = connection.execute(_BEGIN, (batch.position, *self._place(shard), *version))
            if not begun.rowcount:
                found = connection.execute(_VERSION, self._place(shard)).fetchone()
                return ShardVersion(*found) if found else NO_VERSION
            if batch.rows:
                most = 1 if self._declared.on_refused is ErrorPolicy.STOP else MOST_REFUSED
                refused: list[RefusedRow] = []
                rows = self._latest(batch.rows) if self._key else batch.rows
                for begin in range(0, len(rows), PART_ROWS):
                    if len(refused) < most:
                        part = rows[begin : begin + PART_ROWS]
                        refused += self._write(connection, part, most - len(refused))
                self._expect_accepted(refused, batch)
        return version

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _place(self, shard: StoredShard) -> tuple[str, int, str]:
        return (*shard, self._declared.table)

    def _expect_table(self) -> None:
        """Check the table once, and create the table of positions."""
        with self._check_lock:
            if self._types is not None:
                return
            with self._connection.transaction() as connection:
                types = self._checked_columns(connection)
                if connection.execute("SELECT to_regclass('penstock_sinks')").fetchone() == (None,):
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                    connection.execute(_CREATE)
            self._types = types

    def _checked_columns(self, connection: psycopg.Connection) -> dict[str, TableColumn]:
        table = quoted(self._declared.table)
        found = {name: TableColumn(*of) for name, *of in connection.execute(_COLUMNS, (table,))}
        create = create_table(self._declared.table, self._columns, self._key)
        if not found:
            raise SinkRefused(
                f"The {self._declared.name} does not exist at {self._address}. Nothing was read or written. Create it, and start again:\n{create}"
            )
        reasons = unfit_reasons(self._columns, found)
        unique = [set(names) for (names,) in connection.execute(_UNIQUE, (table,))]
        if self._key and set(self._key) not in unique:
            reasons.append(f"no unique index has exactly the columns of the key ({', '.join(self._key)})")
        if reasons:
            raise SinkRefused(
                f"The {self._declared.name} at {self._address} does not fit {self._declared.record_name}: {'; '.join(reasons)}. Nothing was read or written. Change the "
                f"table or the record, and start again. A table that fits:\n{create}"
            )
        return found

    def _expect_accepted(self, refused: Sequence[RefusedRow], batch: SinkBatch) -> None:
        """Raise RowsRefused for refused rows, or SinkRefused if they stop the worker."""
        if not refused:
            return
        first = ", ".join(f"{name}/{batch.bucket} at offset {offset}" for name, offset in batch.first.items())
        what = f"The {self._declared.name} refuses a row of the events from {first} on: {refused[0].reason}. The row is {refused[0].row!a:.500}."
        if self._declared.on_refused is ErrorPolicy.STOP:
            raise SinkRefused(
                f"{what} Nothing of this checkpoint was written, and the worker stops before its events. Correct the processor or the constraints of the "
                "table, and start again; or declare `on_refused = penstock.ErrorPolicy.DEAD_LETTER`."
            )
        if len(refused) >= MOST_REFUSED:
            raise SinkRefused(
                f"{what} It refuses {counted(len(refused), 'row')} or more of this checkpoint, so the cause is rarely the rows. Nothing of the checkpoint was "
                "written, and the worker stops before its events. Correct the processor or the constraints of the table, and start again."
            )
        raise RowsRefused(refused)

    def _write(self, connection: psycopg.Connection, rows: Sequence[Any], most: int) -> list[RefusedRow]:
        """Write rows in a savepoint, or in halves until the rows that the table refuses are found: at most `most` of them."""
        self._connection.renew()
        try:
            with connection.transaction():
                if self._key:
                    self._replace(connection, rows)
                else:
                    self._copy(connection, sql.SQL(quoted(self._declared.table)), rows)
        except _REFUSALS as error:
            if len(rows) == 1:
                return [RefusedRow(rows[0], " ".join(self._address.without_password(str(error)).split()).rstrip("."))]
            middle = len(rows) // 2
            found = self._write(connection, rows[:middle], most)
            return found if len(found) >= most else found + self._write(connection, rows[middle:], most - len(found))
        return []

    def _copy(self, connection: psycopg.Connection, table: sql.Composable, rows: Sequence[Any]) -> None:
        plan = [(column.attribute, self._convert(column)) for column in self._columns]
        with (
            connection.cursor() as cursor,
            cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(table, self._names())) as copy,
        ):
            for row in rows:
                copy.write_row(
                    [None if (value := getattr(row, name)) is None else convert(value) for name, convert in plan]
                )

    def _latest(self, rows: Sequence[Any]) -> list[Any]:
        """Return the last row or tombstone of each key; in the order of the keys, so that workers with common keys do not deadlock."""
        latest = {self._key_of(row): row for row in rows}
        return [latest[key] for key in sorted(latest, key=repr)]

    def _replace(self, connection: psycopg.Connection, ordered: Sequence[Any]) -> None:
        """Write rows and tombstones of different keys."""
        table = sql.SQL(quoted(self._declared.table))
        self._delete(connection, table, [row.key for row in ordered if type(row) is Tombstone])
        kept = [row for row in ordered if type(row) is not Tombstone]
        if not kept:
            return
        temporary = sql.SQL("pg_temp.penstock_rows")
        connection.execute(
            sql.SQL(
                "CREATE TEMPORARY TABLE IF NOT EXISTS penstock_rows ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA"
            ).format(self._names(), table)
        )
        connection.execute("DELETE FROM pg_temp.penstock_rows")  # of a part before this one
        self._copy(connection, temporary, kept)
        connection.execute(
            sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
                table,
                self._names(),
                self._names(),
                temporary,
                sql.SQL(", ".join(map(quoted, self._key))),
                self._update(),
            )
        )

    def _key_of(self, row: Any) -> tuple[str, ...]:
        """Return the key as the table has it: a tombstone has the text of an enumeration's value, or of a time in milliseconds."""
        if type(row) is Tombstone:
            return (str(self._deleted(row.key)),)
        columns = {column.name: column for column in self._columns}
        keys = [columns[name] for name in self._key]
        return tuple(str(self._convert(column)(getattr(row, column.attribute))) for column in keys)

    def _deleted(self, key: str) -> Any:
        """Return the value of the key column of a deleted row."""
        column = next(column for column in self._columns if column.name == self._key[0])
        value = int(key) if isinstance(primitive(column.shape), shapes.IntType) else key
        return value if isinstance(column.shape, shapes.EnumType) else self._convert(column)(value)

    def _convert(self, column: RecordColumn) -> Convert:
        if self._types is None:
            raise TypeError("the table is checked before the first claim")
        return column.forms[self._types[column.name].type]

    def _delete(self, connection: psycopg.Connection, table: sql.Composable, keys: Sequence[str]) -> None:
        if keys and self._types is not None:
            kind = self._types[self._key[0]].type
            statement = sql.SQL("DELETE FROM {} WHERE {} = ANY(%s::{}[])").format(
                table, sql.SQL(quoted(self._key[0])), sql.SQL(kind)
            )
            connection.execute(statement, ([self._deleted(key) for key in keys],))

    def _names(self) -> sql.SQL:
        return sql.SQL(", ".join(quoted(column.name) for column in self._columns))

    def _update(self) -> sql.SQL:
        others = [quoted(column.name) for column in self._columns if column.name not in self._key]
        return sql.SQL(
            f"UPDATE SET {', '.join(f'{name} = EXCLUDED.{name}' for name in others)}" if others else "NOTHING"
        )
