"""Tables of airports in each kind of lookup source."""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql

import penstock as ps

from .databases import Postgres, Redis
from .stores import unique_name


class Airport(ps.Record, frozen=True):
    """An airport."""

    name: str
    feet: int
    zone: str | None = None
    open: bool = True
    degrees: float = 0.0


Values = Mapping[str, Any]
"""The values of a row by column."""


class Table(ABC):
    """A table of airports by `iata` that a test fills, and its lookup source."""

    @abstractmethod
    def put(self, rows: Mapping[str, Values]) -> None:
        """Replace all rows of the table."""

    @abstractmethod
    def source(self) -> ps.lookups.LookupSource:
        """Return the source."""


class InMemory(Table):
    """A mapping."""

    def __init__(self) -> None:
        self._rows: dict[str, Any] = {}

    def put(self, rows: Mapping[str, Values]) -> None:
        self._rows.clear()
        self._rows.update({key: Airport(**values) for key, values in rows.items()})

    def source(self) -> ps.lookups.LookupSource:
        return ps.lookups.MemoryTable(self._rows)


class InCsv(Table):
    """A CSV file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.put({})

    def put(self, rows: Mapping[str, Values]) -> None:
        """Replace the file atomically."""
        new = self.path.with_suffix(".new")
        with new.open("w", encoding="utf-8", newline="") as file:
            lines = csv.DictWriter(file, ["other", *columns_of(rows), "iata"], restval="")
            lines.writeheader()
            lines.writerows({"iata": key, **values} for key, values in rows.items())
        new.replace(self.path)

    def source(self) -> ps.lookups.LookupSource:
        return ps.lookups.CsvTable(self.path, Airport, key="iata")


class InParquet(InCsv):
    """A Parquet file."""

    def put(self, rows: Mapping[str, Values]) -> None:
        columns = columns_of(rows)
        table = {"iata": list(rows), "other": [1.0] * len(rows)}
        table |= {name: [values.get(name) for values in rows.values()] for name in columns}
        new = self.path.with_suffix(".new")
        pq.write_table(pa.table(table), new)
        new.replace(self.path)

    def source(self) -> ps.lookups.LookupSource:
        return ps.lookups.ParquetTable(self.path, Airport, key="iata")


class InPostgres(Table):
    """A table of PostgreSQL."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.name = unique_name("airports")

    def put(self, rows: Mapping[str, Values]) -> None:
        columns = columns_of(rows)
        with self.server.session() as session:
            session.execute(f"DROP TABLE IF EXISTS {self.name}")
            session.execute(f"CREATE TABLE {self.name} (iata text, other text, {', '.join(map(_declared, columns))})")
            insert = sql.SQL("INSERT INTO {} (iata, {}) VALUES ({})").format(
                sql.Identifier(self.name),
                sql.SQL(", ").join(map(sql.Identifier, columns)),
                sql.SQL(", ").join([sql.Placeholder()] * (1 + len(columns))),
            )
            for key, values in rows.items():
                session.execute(insert, [key, *map(values.get, columns)])

    def source(self) -> ps.lookups.LookupSource:
        return ps.lookups.PostgresTable(f"public.{self.name}", Airport, key="iata", at=self.server.url)


class InPostgresQuery(InPostgres):
    """A table of PostgreSQL, read by a query."""

    def source(self) -> ps.lookups.LookupSource:
        query = f"SELECT * FROM {self.name} WHERE iata = ANY(%s);"
        return ps.lookups.PostgresQuery(query, Airport, key="iata", at=self.server.url)


class InRedis(Table):
    """Hashes of Redis."""

    def __init__(self, server: Redis) -> None:
        self.server = server
        self.prefix = f"{unique_name('airport')}:"

    def put(self, rows: Mapping[str, Values]) -> None:
        with self.server.session() as client:
            for key in client.scan_iter(f"{self.prefix}*"):
                client.delete(key)
            for key, values in rows.items():
                self.put_one(client, self.prefix + key, values)

    def put_one(self, client: Any, key: str, values: Values) -> None:
        texts = {name: str(value) for name, value in values.items() if value is not None}
        client.hset(key, mapping={**texts, "other": "x"})

    def source(self) -> ps.lookups.LookupSource:
        return ps.lookups.RedisTable(self.prefix, Airport, at=self.server.url)


class InRedisJson(InRedis):
    """JSON objects in Redis."""

    def put_one(self, client: Any, key: str, values: Values) -> None:
        client.set(key, json.dumps({**values, "other": "x"}))

    def source(self) -> ps.lookups.LookupSource:
        return ps.lookups.RedisTable(self.prefix, Airport, ps.lookups.RedisForm.JSON, at=self.server.url)


def columns_of(rows: Mapping[str, Values]) -> Sequence[str]:
    """Return the columns of all rows; without rows, the required columns of an airport."""
    return list(dict.fromkeys(name for values in rows.values() for name in values)) or ["name", "feet"]


def _declared(column: str) -> str:
    kinds = {"feet": "int", "open": "boolean", "degrees": "double precision"}
    return f"{column} {kinds.get(column, 'text')}"
