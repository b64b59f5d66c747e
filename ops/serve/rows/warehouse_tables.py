"""Tables of the warehouse as a source of queries: all days of archived categories, and other tables of Parquet files.

query --days of its time range and of its conditions on ds--> files --DuckDB--> a view with the columns of the newest events' tables

Files of other days are not opened.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa

from ....backfill.warehouse import DAY_MS, MARKS, day_of
from ....processors import did_you_mean
from ..results import BadQuery
from .answers import DaysRead, TableInfo
from .sampling import ALL
from .store import quoted
from .table_source import Freshness, RowsNeeded, columns_of
from .warehouse_files import WarehouseFile, WarehouseFiles, WarehouseTable, WarehouseUnreadable

_LOG = logging.getLogger("penstock.scuba")
LISTED_S = 30.0
"""The longest time for which the listed files are used again."""
_FILE = "_penstock_file"
_EMPTY = "penstock_empty"


@dataclass(frozen=True)
class _Listed:
    tables: Mapping[str, WarehouseTable]
    at_s: float


class WarehouseTables:
    """The tables of a warehouse: a `TableSource`. Close it.

    Args:
        location: a folder, or ``hdfs://host:port/path``.
        memory_bytes: the most memory for queries; None for DuckDB's default.
        prefix: precedes the names of the tables, of a server that also has the newest events.
        webhdfs: the WebHDFS address of an HDFS location.

    Raises:
        WarehouseError: the location is incomplete or of another kind.
    """

    def __init__(
        self, location: str | Path, memory_bytes: int | None = None, prefix: str = "", webhdfs: str | None = None
    ) -> None:
        self._files = WarehouseFiles(location, webhdfs)
        self._prefix = prefix
        self._lock = Lock()
        self._listed: _Listed | None = None
        self._kinds: dict[str, tuple[str, Mapping[str, str]]] = {}
        limits: dict[str, Any] = {} if memory_bytes is None else {"memory_limit": f"{memory_bytes}B"}
        self._connection = duckdb.connect(
            config={"autoload_known_extensions": False, "autoinstall_known_extensions": False, **limits}
        )
        folder = str(self._files.folder.absolute()).replace("'", "''")
        self._connection.execute(
            f"SET TimeZone = 'UTC'; SET allowed_directories = ['{folder}/']; SET enable_external_access = false; SET lock_configuration = true"
        )

    @property
    def tables(self) -> Sequence[str]:
        """The tables with files."""
        return [self._prefix + name for name in self._current()]

    def _current(self) -> Mapping[str, WarehouseTable]:
        with self._lock:
            if self._listed is None or time.monotonic() - self._listed.at_s > LISTED_S:
                self._listed = _Listed(self._newly_listed(), time.monotonic())
            return self._listed.tables

    def _newly_listed(self) -> Mapping[str, WarehouseTable]:
        """List the files. Beside the newest events, an unreachable warehouse leaves the last list, so that they are still explored."""
        try:
            return self._files.tables()
        except WarehouseUnreadable as error:
            if not self._prefix:
                raise
            _LOG.warning("%s It is tried again after %.0f s.", error, LISTED_S)
            return {} if self._listed is None else self._listed.tables

    def table(self, name: str) -> WarehouseTable:
        """Return a table.

        Raises:
            BadQuery: there is no such table.
        """
        tables = self._current()
        known = name.removeprefix(self._prefix)
        if known not in tables:
            raise BadQuery(
                f"There is no table {name!r}. The tables are: {', '.join(self.tables)}.{did_you_mean(name, self.tables)}"
            )
        return tables[known]

    def columns(self, name: str) -> Mapping[str, str]:
        """Return the columns of a table: of an archive, the ones of all its files; of another table, those of its newest file."""
        table = self.table(name)
        version = table.files[-1].path
        with self._lock:
            found = self._kinds.get(name)
        if found is None or found[0] != version:
            with self._connection.cursor() as connection:
                found = version, self._described(connection, table)
            with self._lock:
                self._kinds[name] = found
        return found[1]

    def _described(self, connection: duckdb.DuckDBPyConnection, table: WarehouseTable) -> Mapping[str, str]:
        if table.schema is not None:
            connection.register(_EMPTY, pa.schema([*table.schema, *MARKS]).empty_table())
            select = f"SELECT {_flattened(connection, _EMPTY)}, NULL::DATE AS ds FROM {_EMPTY}"
        else:
            select = self._select(connection, table, table.files[-1:])
        return {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE {select}").fetchall()}

    def is_sampled(self, name: str) -> bool:  # noqa: ARG002 - as the protocol has it
        """Return False: an archive has all events."""
        return False

    def info(self, name: str) -> TableInfo:
        """Return the description of a table. The number of its rows is unknown, since that would open all files."""
        table = self.table(name)
        days = table.days if table.is_archived else []
        return TableInfo(
            table=name,
            columns=columns_of(self.columns(name)),
            rows=None,
            size_bytes=sum(file.size_bytes for file in table.files),
            sample=ALL,
            first_ms=_start_ms(days[0]) if days else None,
            last_ms=_start_ms(days[-1]) + DAY_MS - 1 if days else None,
            lag_events=None,
            lag_s=None,
            rejected=0,
            rejections=[],
            expired=0,
            lost=0,
            problem="",
            days=len(days),
        )

    def freshness(self, name: str) -> Freshness:  # noqa: ARG002 - as the protocol has it
        """Return nothing: the answer has the days."""
        return Freshness(None, None, "")

    def first_ms(self, name: str) -> int | None:
        """Return the start of the first day."""
        return _start_ms(self.table(name).days[0]) if self.table(name).is_archived else None

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection."""
        return self._connection.cursor()

    def prepare(self, connection: duckdb.DuckDBPyConnection, needed: RowsNeeded) -> DaysRead | None:
        """Declare a table with the files of the days that a query needs.

        Raises:
            WarehouseUnreadable: a file cannot be read, or a column has the name of a folder.
        """
        table = self.table(needed.table)
        days = self._days(connection, table, needed) if table.is_archived else {""}
        files = [file for file in table.files if file.day in days]
        kinds = self.columns(needed.table)
        empty = ", ".join(f"NULL::{kind} AS {quoted(column)}" for column, kind in kinds.items())
        selects = [f"(SELECT {empty} WHERE false)"] + ([self._select(connection, table, files)] if files else [])
        view = " UNION ALL BY NAME ".join(selects)
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(needed.table)} AS {view}")
        return (
            DaysRead(len(days), len(table.days), sum(file.size_bytes for file in files)) if table.is_archived else None
        )

    def _days(self, connection: duckdb.DuckDBPyConnection, table: WarehouseTable, needed: RowsNeeded) -> set[str]:
        days = table.days
        if needed.spans is not None and needed.time == table.day_column:
            spans = [(day_of(span.begin_ms), day_of(span.end_ms - 1)) for span in needed.spans]
            days = [day for day in days if any(first <= day <= last for first, last in spans)]
        if needed.day is None:
            return set(days)
        listed = ", ".join(f"DATE '{day}'" for day in days)
        text = f"SELECT ds FROM (SELECT unnest([{listed}]::DATE[]) AS ds) WHERE {needed.day.text}"
        with suppress(duckdb.Error):  # the query itself reports it
            return {str(day) for (day,) in connection.execute(text, list(needed.day.parameters)).fetchall()}
        return set(days)

    def _select(
        self, connection: duckdb.DuckDBPyConnection, table: WarehouseTable, files: Sequence[WarehouseFile]
    ) -> str:
        """Return a SELECT of all rows of files, with flat columns."""
        paths = self._files.local_paths(files)
        listed = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
        if table.is_archived:
            # Not the columns of folders: a record may have a field with the name of one, such as category.
            source = f"read_parquet([{listed}], hive_partitioning = false, union_by_name = true, filename = '{_FILE}')"
            day = f"regexp_extract({_FILE}, '/ds=([0-9-]+)/[^/]*$', 1)::DATE AS ds"
            return f"SELECT {_flattened(connection, source)}, {day} FROM {source}"
        folders = {part.partition("=")[0] for part in Path(files[0].path).parts[:-1] if "=" in part}
        own = f"read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"
        taken = folders & set(connection.sql(f"SELECT * FROM {own} LIMIT 0").columns)
        if taken:
            raise WarehouseUnreadable(
                f"{files[0].path} has a column {', '.join(sorted(taken))}, like a folder of its table. Nothing was read. Rename the column, or query the "
                "files with DuckDB itself."
            )
        source = f"read_parquet([{listed}], hive_partitioning = true, union_by_name = true)"
        times = "".join(
            f", NULL::BIGINT AS {name}" for name in ("_event_time", "_arrived")
        )  # of which such a table has none
        return f"SELECT {_flattened(connection, source)}{times} FROM {source}"

    def close(self) -> None:
        """Close the database, and delete copies."""
        self._connection.close()
        self._files.close()


def _start_ms(day: str) -> int:
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_MS


def _flattened(connection: duckdb.DuckDBPyConnection, source: str) -> str:
    """Return the columns of a source as those of Scuba's tables: one for each field, also of nested records."""
    relation = connection.sql(f"SELECT * FROM {source} LIMIT 0")
    columns = [
        f"{expression} AS {quoted(flat)}"
        for name, kind in zip(relation.columns, relation.types, strict=True)
        if name != _FILE
        for flat, expression in _flat(name, quoted(name), kind)
    ]
    return ", ".join(columns)


def _flat(name: str, expression: str, kind: Any) -> Iterator[tuple[str, str]]:
    if kind.id == "struct":
        for child, of in kind.children:
            escaped = child.replace("'", "''")
            yield from _flat(f"{name}.{child}", f"struct_extract({expression}, '{escaped}')", of)
    elif kind.id in {"list", "array", "map"}:
        yield name, f"to_json({expression})::VARCHAR"
    elif kind.id == "blob":
        yield name, f"lower(hex({expression}))"
    elif kind.id == "timestamp with time zone":
        yield name, f"{expression}::TIMESTAMP"
    else:
        yield name, expression
