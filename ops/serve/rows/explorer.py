"""Answers queries from the store, each within limits of time, rows and memory, while the ingester adds rows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from math import isfinite, isnan
from threading import BoundedSemaphore, Timer
from typing import Any, cast

import duckdb
import pyarrow as pa

from ....processors import PenstockError, did_you_mean
from ...shell import MachineClock, SystemClock
from ..results import BadQuery, TimeSpan
from .answers import (
    Bin,
    DaysRead,
    Distribution,
    Exploration,
    GroupRow,
    Place,
    Places,
    Point,
    SampledEstimate,
    SqlRows,
    Tables,
)
from .compiler import MAX_PLACES, MAX_POINTS, MAX_SERIES, QueryCompiler, Sql
from .export import FileFormat, exploration_table, file_of
from .queries import ExploreQuery, HistogramQuery, PlacesQuery, RowsQuery, SampleQuery, SqlQuery
from .safe_sql import checked_select
from .table_source import RowsNeeded, TableSource

MAX_ROWS = 10_000
"""The most rows in an answer."""
MAX_EXPORTED = 1_000_000
"""The most rows in a file."""
_ARROW_ROWS = 100_000
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
        sources: contain the tables, each of them in one source.
        limits: the limits of queries.
        clock: the wall clock.
    """

    def __init__(
        self, sources: Sequence[TableSource], limits: QueryLimits | None = None, clock: MachineClock | None = None
    ) -> None:
        self._sources = sources
        self._limits = limits or QueryLimits()
        self._clock = clock or SystemClock()
        self._free = BoundedSemaphore(self._limits.concurrent)

    def tables(self) -> Tables:
        """Return the tables, and how far they are behind."""
        return Tables([source.info(name) for source in self._sources for name in source.tables])

    def explore(self, query: ExploreQuery) -> Exploration:
        """Return aggregates by group, and their time series. All figures are of one state of the table.

        Raises:
            BadQuery: the query is invalid, or exceeds a limit.
            Busy: too many queries run.
        """
        source = self._source_of(query.table)
        compiler = self._compiler(source, query.table)
        groups, shift_ms = compiler.groups(query), query.shift_ms(self._clock.now_ms())
        needed = self._needed(query, compiler, shift_ms)
        began_s = time.monotonic()
        with self._reading(source) as connection:
            days = source.prepare(connection, needed)
            found = connection.execute(groups.text, groups.parameters).fetchall()
            width = len(query.group_by)
            keys = [row[:width] for row in found]
            points, before, points_before = [], dict[int, list[SampledEstimate]](), []
            if query.every is not None and found:
                series = compiler.points(query, keys)
                points = connection.execute(series.text, series.parameters).fetchall()
            if shift_ms is not None and found:
                totals = compiler.totals(query, keys, shift_ms)
                rows = connection.execute(totals.text, totals.parameters).fetchall()
                before = {int(row[0]): _estimates(row[1:]) for row in rows}
                if query.every is not None:
                    series = compiler.points(query, keys, shift_ms)
                    points_before = connection.execute(series.text, series.parameters).fetchall()
        freshness = source.freshness(query.table)
        return Exploration(
            table=query.table,
            group_by=query.group_by,
            aggregates=[aggregate.name for aggregate in query.aggregates],
            rows=[GroupRow(plain_row(row[:width]), _estimates(row[width:-4])) for row in found if row[-4]],
            groups=int(found[0][-3]) if found and found[0][-4] else 0,
            points=_points(points),
            is_truncated=len(points) > MAX_POINTS,
            is_sampled=source.is_sampled(query.table),
            matched=int(found[0][-2]) if found else 0,
            not_finite=int(found[0][-1]) if found else 0,
            elapsed_ms=_since_ms(began_s),
            lag_events=freshness.lag_events,
            lag_s=freshness.lag_s,
            problem=freshness.problem,
            compared=[] if shift_ms is None else [before.get(at) for at, row in enumerate(found) if row[-4]],
            compared_points=_points(points_before),
            is_compared_partly=shift_ms is not None and self._lacks(source, query, shift_ms),
            days=days,
        )

    def _needed(self, query: RowsQuery, compiler: QueryCompiler, shift_ms: int | None = None) -> RowsNeeded:
        """Return the rows that a query reads."""
        span = query.span(self._clock.now_ms())
        shifts_ms = [0] if shift_ms is None else [0, shift_ms]
        spans = None if span is None else [TimeSpan(span.begin_ms - each, span.end_ms - each) for each in shifts_ms]
        return RowsNeeded(query.table, spans, query.time, compiler.day_condition(query))

    def _lacks(self, source: TableSource, query: ExploreQuery, shift_ms: int) -> bool:
        """Return whether the compared time range begins before the oldest row of a table."""
        span, first_ms = query.span(self._clock.now_ms()), source.first_ms(query.table)
        return span is not None and (first_ms is None or span.begin_ms - shift_ms < first_ms)

    def histogram(self, query: HistogramQuery) -> Distribution:
        """Return the distribution of a column. Raises as `explore`."""
        source = self._source_of(query.table)
        compiler, began_s = self._compiler(source, query.table), time.monotonic()
        bounds, bins, is_sampled = compiler.bounds(query), list[Bin](), source.is_sampled(query.table)
        with self._reading(source) as connection:
            source.prepare(connection, self._needed(query, compiler))
            low, most, high = connection.execute(bounds.text, bounds.parameters).fetchone() or (None, None, None)
            if low is not None:
                width = (most - low) / query.bins
                found = compiler.bins(query, low, width)
                counts = {row[0]: row[1:] for row in connection.execute(found.text, found.parameters).fetchall()}
                edges = [low + width * at for at in range(query.bins if width > 0 else 1)] + [high]
                bins = [
                    Bin(begin, end, *_estimates(counts.get(at, (0, None if is_sampled else 0.0))))
                    for at, (begin, end) in enumerate(pairwise(edges))
                ]
        return Distribution(query.table, query.column, bins, is_sampled, _since_ms(began_s))

    def places(self, query: PlacesQuery) -> Places:
        """Return an aggregate by place. Raises as `explore`."""
        source, began_s = self._source_of(query.table), time.monotonic()
        compiler = self._compiler(source, query.table)
        statement = compiler.places(query)
        with self._reading(source) as connection:
            source.prepare(connection, self._needed(query, compiler))
            found = connection.execute(statement.text, statement.parameters).fetchall()
        places = [Place(*row[:4], *_estimates(row[4:])) for row in found[:MAX_PLACES]]
        is_truncated, is_sampled = len(found) > MAX_PLACES, source.is_sampled(query.table)
        name = query.aggregate.name
        return Places(query.table, name, query.degrees, places, is_truncated, is_sampled, _since_ms(began_s))

    def exported(self, query: ExploreQuery | SampleQuery | SqlQuery, form: str) -> bytes:
        """Return the answer to a query as a file: "csv" or "parquet". Raises as `select`, and if there are more rows than a file may have."""
        return file_of(self._exported_table(query), FileFormat(form))

    def _exported_table(self, query: ExploreQuery | SampleQuery | SqlQuery) -> pa.Table:
        if isinstance(query, SqlQuery):
            return self._table(self._selected(query.sql))
        return (
            exploration_table(self.explore(query))
            if isinstance(query, ExploreQuery)
            else self._table(self._sampled(query, MAX_EXPORTED))
        )

    def _table(self, statement: _Statement) -> pa.Table:
        with self._reading(statement.source) as connection:
            statement.prepare(connection)
            found = connection.sql(statement.sql.text, params=list(statement.sql.parameters))
            reader = cast("pa.RecordBatchReader", found.to_arrow_reader(_ARROW_ROWS))
            batches, rows = list[pa.RecordBatch](), 0
            for batch in reader:
                batches.append(batch)
                rows += batch.num_rows
                if rows > MAX_EXPORTED:
                    raise BadQuery(
                        f"A file may have at most {MAX_EXPORTED:,} rows, and there are more. Filter them, or add a LIMIT."
                    )
            return pa.Table.from_batches(batches, reader.schema)

    def samples(self, query: SampleQuery) -> SqlRows:
        """Return rows of a table, the newest first.

        Raises:
            BadQuery: the query is invalid, or exceeds a limit.
            Busy: too many queries run.
        """
        return self._rows(self._sampled(query))

    def select(self, text: str) -> SqlRows:
        """Return the rows of a SELECT.

        Raises:
            BadQuery: it is something else, DuckDB refuses it, or it exceeds a limit.
            Busy: too many queries run.
        """
        return self._rows(self._selected(text))

    def _sampled(self, query: SampleQuery, most: int = MAX_SERIES) -> _Statement:
        source = self._source_of(query.table)
        compiler = self._compiler(source, query.table)
        return _Statement(source, compiler.samples(query, most), [self._needed(query, compiler)])

    def _selected(self, text: str) -> _Statement:
        checked = checked_select(text, self._names)
        sources = [source for source in self._sources if set(checked.tables) & set(source.tables)]
        if len(sources) > 1:
            raise BadQuery(
                f"A SELECT reads the newest events or the warehouse, and this one reads both: {', '.join(checked.tables)}. Nothing was read. Ask one "
                "after the other."
            )
        days = {name: Sql(condition, []) for name, condition in checked.days.items()}
        needed = [RowsNeeded(name, day=days.get(name)) for name in checked.tables]
        return _Statement(sources[0] if sources else self._sources[0], Sql(checked.sql, []), needed)

    def _rows(self, statement: _Statement) -> SqlRows:
        began_s = time.monotonic()
        with self._reading(statement.source) as connection:
            days = statement.prepare(connection)
            found = connection.execute(statement.sql.text, statement.sql.parameters or None)
            columns = [name for name, *_ in found.description or ()]
            rows = found.fetchmany(MAX_ROWS + 1)
        is_truncated = len(rows) > MAX_ROWS
        return SqlRows(columns, [plain_row(row) for row in rows[:MAX_ROWS]], is_truncated, _since_ms(began_s), days)

    @property
    def _names(self) -> list[str]:
        return [name for source in self._sources for name in source.tables]

    def _source_of(self, table: str) -> TableSource:
        for source in self._sources:
            if table in source.tables:
                return source
        known = self._names
        raise BadQuery(f"There is no table {table!r}. The tables are: {', '.join(known)}.{did_you_mean(table, known)}")

    def _compiler(self, source: TableSource, table: str) -> QueryCompiler:
        return QueryCompiler(source.columns(table), self._clock.now_ms(), is_sampled=source.is_sampled(table))

    @contextmanager
    def _reading(self, source: TableSource) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection for one query, which sees one state of all tables. It is ended after the time limit."""
        timeout_s = self._limits.timeout.total_seconds()
        if not self._free.acquire(timeout=timeout_s):
            raise Busy(f"{self._limits.concurrent} queries run, the most at a time. Ask again in a second.")
        try:
            with source.cursor() as connection:
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


@dataclass(frozen=True)
class _Statement:
    """A statement, and the rows that it needs.

    Args:
        source: its tables.
        sql: the statement.
        needed: the rows of each table.
    """

    source: TableSource
    sql: Sql
    needed: Sequence[RowsNeeded]

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> DaysRead | None:
        """Prepare the tables; return the days that are read, of all of them."""
        found = [days for each in self.needed if (days := self.source.prepare(connection, each)) is not None]
        if not found:
            return None
        return DaysRead(
            sum(days.read for days in found),
            sum(days.total for days in found),
            sum(days.size_bytes for days in found),
        )


def _points(rows: Sequence[Sequence[Any]]) -> list[Point]:
    return [Point(int(row[0]), int(row[1]), _estimates(row[2:])) for row in rows[:MAX_POINTS]]


def _estimates(values: Sequence[Any]) -> list[SampledEstimate]:
    # Charts need numbers. Decimals of SQL keep their digits.
    plain = plain_row([float(value) if isinstance(value, Decimal) else value for value in values])
    return [SampledEstimate(value, margin) for value, margin in zip(plain[::2], plain[1::2], strict=True)]


def plain_row(row: Sequence[Any]) -> list[Any]:
    """Return values that JSON has.

    Whole numbers beyond 64 bits become approximate; decimals are texts without the zeros at their end; infinity and values that are no numbers are
    texts, too.
    """
    return [_plain(value) for value in row]


def _plain(value: Any) -> Any:
    if isinstance(value, int) and not -_WIDEST <= value < _WIDEST:
        return float(value)
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"{value.normalize():f}" if isinstance(value, Decimal) else value


def _since_ms(began_s: float) -> float:
    return round((time.monotonic() - began_s) * 1000, 1)
