"""Queries on the archive, by DuckDB: each archived category is a table.

warehouse --valid files of each category--> views --SELECT--> rows
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...backfill.warehouse import Listing, Warehouse
from ...processors import PenstockError
from .trial import TrialResult, TriedTable

_FOLDER = "category"
_CATEGORY = f"{_FOLDER}="


class WarehouseQueryRefused(PenstockError):
    """A query on the warehouse is impossible: correct it, or install DuckDB."""


class WarehouseTrial:
    """Runs SELECTs on archived categories, in DuckDB's dialect.

    Args:
        warehouse: the warehouse, in a folder of this machine.

    Raises:
        WarehouseQueryRefused: DuckDB is not installed, or the warehouse is elsewhere.
        WarehouseError: the folder cannot be listed.
    """

    def __init__(self, warehouse: Warehouse) -> None:
        if not warehouse.files.location.startswith("/"):
            raise WarehouseQueryRefused(
                f"The shell reads a warehouse in a folder, not {warehouse.files.location}. Nothing was read. Query it with Spark, or name a folder "
                "with --warehouse."
            )
        try:
            import duckdb  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise WarehouseQueryRefused(
                "Queries on the warehouse need DuckDB, which is not installed. Nothing was read. Install it with `pip install 'penstock[shell]'`."
            ) from error
        self._duckdb = duckdb
        self._connection = duckdb.connect()
        self._root = Path(warehouse.files.location)
        self._names = [
            name.removeprefix(_CATEGORY) for name in sorted(warehouse.list_folder("")) if name.startswith(_CATEGORY)
        ]
        for name in self._names:
            self._add(name, [str(self._root / file.path) for file in Listing.of(warehouse, name).files])

    def _add(self, category: str, files: Sequence[str]) -> None:
        if not files:
            return
        connection = self._connection
        own = connection.read_parquet(list(files), hive_partitioning=False, union_by_name=True).columns
        if _FOLDER not in own:
            table = connection.read_parquet(list(files), hive_partitioning=True, union_by_name=True)
            table.project(f"* EXCLUDE ({_FOLDER})").create_view(category)
            return
        # The name of a folder would replace the records' own column of that name.
        table = connection.read_parquet(list(files), hive_partitioning=False, union_by_name=True, filename=True)
        day = "regexp_extract(filename, '/ds=([0-9-]+)/', 1)::DATE AS ds"
        table.project(f"* EXCLUDE (filename), {day}").create_view(category)

    def tables(self) -> list[TriedTable]:
        """Return the archived categories."""
        rows = self._connection.execute(
            "SELECT table_name, string_agg(column_name, ',' ORDER BY ordinal_position) FROM information_schema.columns "
            "GROUP BY table_name ORDER BY table_name"
        ).fetchall()
        return [TriedTable(name, name, columns.split(",")) for name, columns in rows]

    def run(self, query: str) -> TrialResult:
        """Return the rows of a SELECT.

        Raises:
            WarehouseQueryRefused: DuckDB refuses the query, or it is no SELECT.
        """
        duckdb = self._duckdb
        try:
            statements = self._connection.extract_statements(query)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise WarehouseQueryRefused(
                    "The shell runs one SELECT at a time, and changes nothing. Nothing was read. Write SELECT … FROM …."
                )
            found = self._connection.execute(statements[0])
            columns = [name for name, *_ in found.description or ()]
            return TrialResult(columns, found.fetchall(), frozenset())
        except duckdb.Error as error:
            known = ", ".join(f'"{name}"' for name in self._names) or "none"
            raise WarehouseQueryRefused(f"{error}\n\nThe archived categories are: {known}.") from error
