"""A PostgreSQL table as a sink: its declaration."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import inspect as shapes

from ...processors import DeclarationError
from ...processors.declare import (
    ALL_SEMANTICS,
    AnyRecord,
    ErrorPolicy,
    Semantics,
    Sink,
    SinkRefused,
    is_union,
    primitive,
)
from ..errors import StateError
from ..remote import POSTGRES, StoreAddress, StoreRetry, address_with, expect_library, url_named
from .owned_rows import OwnedRows
from .table_columns import RecordColumn, key_columns, record_columns

DEFAULT_VARIABLE = "PENSTOCK_SINKS"


@dataclass(frozen=True)
class PostgresSink(Sink):
    """A table of PostgreSQL, whose columns are the fields of the record.

    With a key, a row replaces the row with its key, and a `Tombstone` deletes it; the table needs a unique index of the key. Without a key,
    rows are appended. The table exists before the worker starts, which otherwise prints the statement that creates it. The user may also
    create and write the table `penstock_sinks`, which contains the position of each shard.

    Args:
        table: its name; within a schema, `schema.table`.
        record: the type of its rows.
        key: the field or fields by which rows are replaced; None to append.
        at: the environment variable with the address, postgresql://user:password@host:5432/database; or the address.
        on_refused: what happens to a row that the table refuses, such as by a constraint: it goes to the dead letters of the processor, or the
            worker stops. It also stops at 100 refused rows in a checkpoint.

    Raises:
        DeclarationError: `record` is not a supported type, or has no such key.

    Examples:
        >>> import penstock as ps
        >>> class Total(ps.Record, frozen=True):
        ...     user: str
        ...     clicks: int
        >>> PostgresSink("totals", Total, key="user").name
        'table totals of PostgreSQL'
    """

    table: str
    record: type[AnyRecord]
    key: str | tuple[str, ...] | None = None
    at: str = field(default=DEFAULT_VARIABLE, repr=False)
    on_refused: ErrorPolicy = ErrorPolicy.DEAD_LETTER

    def __post_init__(self) -> None:
        if is_union(self.record):
            raise DeclarationError(f"{self.name}: a table has rows of one record type. Declare a table for each type.")
        self.key_columns  # noqa: B018 - raises for an unknown field

    @property
    def name(self) -> str:
        """The name for messages and `penstock.To`."""
        return f"table {self.table} of PostgreSQL"

    @property
    def semantics(self) -> frozenset[Semantics]:
        """All: rows and position are one transaction."""
        return ALL_SEMANTICS

    @property
    def variables(self) -> tuple[str, ...]:
        """The variable with the address."""
        return () if "://" in self.at else (self.at,)

    @property
    def replaces_rows(self) -> bool:
        """Whether it has a key."""
        return self.key is not None

    @property
    def columns(self) -> list[RecordColumn]:
        """The columns of the record."""
        return record_columns(self.record)

    @property
    def key_columns(self) -> list[str]:
        """The names of the key's columns; none to append."""
        names = () if self.key is None else self.key if isinstance(self.key, tuple) else (self.key,)
        return key_columns(self.name, self.columns, names)

    def expect_tombstone(self, key: object) -> None:
        """Raise TypeError unless the table has a key of one field, which a tombstone's key fits."""
        names = self.key_columns
        if len(names) != 1:
            super().expect_tombstone(key)
        shape = primitive(next(column.shape for column in self.columns if column.name == names[0]))
        if not isinstance(key, str) or not isinstance(shape, shapes.StrType | shapes.IntType):
            super().expect_tombstone(key)
        if isinstance(shape, shapes.IntType) and not _is_int(str(key)):
            raise TypeError(f"The tombstone of {key!r} does not fit {self.name}, whose key {names[0]} is an int.")

    def open(self) -> OwnedRows:
        """Return a writer. The first claim connects."""
        address = self._address()
        try:
            expect_library("psycopg", "postgres", address)
        except StateError as error:
            raise SinkRefused(str(error)) from error
        from .postgres_rows import PostgresRowStore  # noqa: PLC0415 - imports psycopg

        return OwnedRows(PostgresRowStore(self, address), self.name, StoreRetry())

    def _address(self) -> StoreAddress:
        url = url_named(self.at)
        if not url:
            raise SinkRefused(
                f"The address of the {self.name} belongs in the environment variable {self.at}, which is not set here. Nothing was read or written. Set it, "
                f"such as {self.at}=postgresql://user:password@host:5432/database, for every worker."
            )
        address = address_with(url, POSTGRES)
        if address is not None:
            return address
        raise SinkRefused(
            f"The {self.name} cannot be written at {StoreAddress(url)}. Nothing was read or written. Use an address that starts with postgresql://."
        )


def _is_int(text: str) -> bool:
    try:
        return str(int(text)) == text
    except ValueError:
        return False
