"""Answers queries from the store, each within limits of time, rows and memory, while the ingester adds rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import BoundedSemaphore, Timer
from typing import Any

import duckdb

from ...processors.errors import PenstockError
from ...processors.validation import did_you_mean
from ..clock import Clock, SystemClock
from ..serving.parameters import BadQuery
from .answers import Column, Estimate, Exploration, GroupRow, Point, SqlRows, TableInfo, Tables
from .compiler import MAX_POINTS, QueryCompiler, Sql, kind_of
from .ingester import Ingester
from .queries import ExploreQuery, SampleQuery
from .safe_sql import checked_select
from .sampling import SampleRate
from .store import ScubaStore

MAX_ROWS = 10_000
"""The most rows in an answer."""
_WIDEST = 1 << 63


class Busy(PenstockError):
    """Too many queries run: ask again."""


@dataclass(frozen=True)
class QueryLimits:
    """The limits of queries.

    Args:
        timeout: the longest time of a query.
        concurrent: the most queries at a time.
    """

    timeout: timedelta = timedelta(seconds=10)
    concurrent: int = 4


class Explorer:
    """Answers queries, in any thread.

    Args:
        store: contains the tables.
        ingester: knows how far they are behind.
        rate: the sampling rate of new rows.
        limits: the limits of queries.
        clock: the wall clock.
    """

    def __init__(
        self,
        store: ScubaStore,
        ingester: Ingester,
        rate: SampleRate,
        limits: QueryLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._ingester = ingester
        self._rate = rate
        self._limits = limits or QueryLimits()
        self._clock = clock or SystemClock()
        self._free = BoundedSemaphore(self._limits.concurrent)

    def tables(self) -> Tables:
        """Return the tables, and how far they are behind."""
        return Tables([self._info(name) for name in self._store.tables])

    def _info(self, name: str) -> TableInfo:
        segments, progress = self._store.segments(name), self._ingester.progress(name)
        return TableInfo(
            table=name,
            columns=[Column(column, kind_of(kind)) for column, kind in self._store.columns(name).items()],
            rows=sum(segment.rows for segment in segments),
            size_bytes=sum(segment.size_bytes for segment in segments),
            sample=self._rate,
            first_ms=min((segment.first_ms for segment in segments), default=None),
            last_ms=max((segment.last_ms for segment in segments), default=None),
            lag_events=progress.behind,
            lag_s=self._lag_s(name),
            rejected=progress.rejected,
            rejections=list(progress.rejections),
            expired=progress.expired,
            lost=progress.lost,
            problem=self._ingester.problem,
        )

    def _lag_s(self, name: str) -> float | None:
        progress = self._ingester.progress(name)
        if not progress.behind or progress.arrived_ms is None:
            return None if progress.behind is None or progress.behind else 0.0
        return max(0, self._clock.now_ms() - progress.arrived_ms) / 1000

    def explore(self, query: ExploreQuery) -> Exploration:
        """Return aggregates by group, and their time series. All figures are of one state of the table.

        Raises:
            BadQuery: the query is invalid, or exceeds a limit.
            Busy: too many queries run.
        """
        compiler = self._compiler(query.table)
        groups = compiler.groups(query)
        began_s = time.monotonic()
        with self._reading() as connection:
            found = connection.execute(groups.text, groups.parameters).fetchall()
            width = len(query.group_by)
            keys = [row[:width] for row in found]
            points = []
            if query.every is not None and found:
                series = compiler.points(query, keys)
                points = connection.execute(series.text, series.parameters).fetchall()
        progress = self._ingester.progress(query.table)
        return Exploration(
            table=query.table,
            group_by=query.group_by,
            aggregates=[aggregate.name for aggregate in query.aggregates],
            rows=[GroupRow(_plain(row[:width]), _estimates(row[width:-3])) for row in found if row[-3]],
            groups=int(found[0][-2]) if found and found[0][-3] else 0,
            points=[Point(int(row[0]), int(row[1]), _estimates(row[2:])) for row in points[:MAX_POINTS]],
            is_truncated=len(points) > MAX_POINTS,
            is_sampled=self._store.is_sampled(query.table),
            matched=int(found[0][-1]) if found else 0,
            elapsed_ms=_since_ms(began_s),
            lag_events=progress.behind,
            lag_s=self._lag_s(query.table),
            problem=self._ingester.problem,
        )

    def samples(self, query: SampleQuery) -> SqlRows:
        """Return rows of a table, the newest first.

        Raises:
            BadQuery: the query is invalid, or exceeds a limit.
            Busy: too many queries run.
        """
        return self._rows(self._compiler(query.table).samples(query))

    def select(self, text: str) -> SqlRows:
        """Return the rows of a SELECT.

        Raises:
            BadQuery: it is something else, DuckDB refuses it, or it exceeds a limit.
            Busy: too many queries run.
        """
        return self._rows(Sql(checked_select(text, self._store.tables), []))

    def _rows(self, statement: Sql) -> SqlRows:
        began_s = time.monotonic()
        with self._reading() as connection:
            found = connection.execute(statement.text, statement.parameters or None)
            columns = [name for name, *_ in found.description or ()]
            rows = found.fetchmany(MAX_ROWS + 1)
        return SqlRows(columns, [_plain(row) for row in rows[:MAX_ROWS]], len(rows) > MAX_ROWS, _since_ms(began_s))

    def _compiler(self, table: str) -> QueryCompiler:
        if table not in self._store.tables:
            known = list(self._store.tables)
            raise BadQuery(
                f"There is no table {table!r}. The tables are: {', '.join(known)}.{did_you_mean(table, known)}"
            )
        is_sampled = self._store.is_sampled(table)
        return QueryCompiler(self._store.columns(table), self._clock.now_ms(), is_sampled=is_sampled)

    @contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection for one query, which sees one state of all tables. It is ended after the time limit."""
        timeout_s = self._limits.timeout.total_seconds()
        if not self._free.acquire(timeout=timeout_s):
            raise Busy(f"{self._limits.concurrent} queries run, the most at a time. Ask again in a second.")
        try:
            with self._store.cursor() as connection:
                timer = Timer(timeout_s, connection.interrupt)
                timer.start()
                try:
                    connection.begin()
                    yield connection
                except duckdb.InterruptException as error:
                    raise BadQuery(
                        f"The query did not end within {timeout_s:.0f} s. Shorten its time range, or pass fewer groups."
                    ) from error
                except duckdb.OutOfMemoryException as error:
                    raise BadQuery(
                        "The query needs more memory than Scuba may use. Shorten its time range, pass fewer groups, or start Scuba with a larger "
                        "--memory."
                    ) from error
                except duckdb.Error as error:
                    raise BadQuery(f"DuckDB refuses the query: {error}") from error
                finally:
                    timer.cancel()
        finally:
            self._free.release()


def _estimates(values: Sequence[Any]) -> list[Estimate]:
    plain = _plain(values)
    return [Estimate(value, margin) for value, margin in zip(plain[::2], plain[1::2], strict=True)]


def _plain(row: Sequence[Any]) -> list[Any]:
    """Return values that JSON has. Whole numbers beyond 64 bits become approximate."""
    return [float(value) if isinstance(value, int) and not -_WIDEST <= value < _WIDEST else value for value in row]


def _since_ms(began_s: float) -> float:
    return round((time.monotonic() - began_s) * 1000, 1)
