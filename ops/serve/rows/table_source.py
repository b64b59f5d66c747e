"""The sources of tables: the newest events, which the ingester adds, and the warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import duckdb

from ...shell import MachineClock
from ..results import TimeSpan
from .answers import Column, DaysRead, TableInfo
from .compiler import Sql, kind_of
from .ingester import Ingester
from .sampling import SampleRate
from .store import ScubaStore


@dataclass(frozen=True)
class RowsNeeded:
    """The rows that a query reads, so that a source can leave the others unread.

    Args:
        table: their table.
        spans: time spans that contain all of them; None if they may be at any time.
        time: the column of the time spans.
        day: a condition on the column `ds` that holds for all of them; None without one.
    """

    table: str
    spans: Sequence[TimeSpan] | None = None
    time: str = "_event_time"
    day: Sql | None = None


@dataclass(frozen=True)
class Freshness:
    """How far a table is behind: `lag_events`, `lag_s` and `problem` as in `TableInfo`."""

    lag_events: int | None
    lag_s: float | None
    problem: str


class TableSource(Protocol):
    """Tables in one database. Any thread may call."""

    @property
    def tables(self) -> Sequence[str]:
        """The names of the tables."""
        ...

    def columns(self, name: str) -> Mapping[str, str]:
        """Return the columns of a table and their types in DuckDB, in order."""
        ...

    def is_sampled(self, name: str) -> bool:
        """Return whether a row of a table stands for several events."""
        ...

    def info(self, name: str) -> TableInfo:
        """Return the description of a table."""
        ...

    def freshness(self, name: str) -> Freshness:
        """Return how far a table is behind."""
        ...

    def first_ms(self, name: str) -> int | None:
        """Return the arrival of its oldest row (milliseconds since 1970, UTC); None without rows."""
        ...

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection for one query. Close it."""
        ...

    def prepare(self, connection: duckdb.DuckDBPyConnection, needed: RowsNeeded) -> DaysRead | None:
        """Let a connection find a table with at least the needed rows. Return the days in it; None without days.

        Raises:
            PenstockError: the table cannot be read.
        """
        ...


class NewestEvents:
    """The tables of the ingester: a `TableSource`.

    Args:
        store: contains the tables.
        ingester: knows how far they are behind.
        rate: the sampling rate of new rows.
        clock: the wall clock.
    """

    def __init__(self, store: ScubaStore, ingester: Ingester, rate: SampleRate, clock: MachineClock) -> None:
        self._store = store
        self._ingester = ingester
        self._rate = rate
        self._clock = clock

    @property
    def tables(self) -> Sequence[str]:
        """The served categories."""
        return self._store.tables

    def columns(self, name: str) -> Mapping[str, str]:
        """Return the columns of a table."""
        return self._store.columns(name)

    def is_sampled(self, name: str) -> bool:
        """Return whether any of its rows are a sample."""
        return self._store.is_sampled(name)

    def info(self, name: str) -> TableInfo:
        """Return the description of a table."""
        segments, progress, freshness = self._store.segments(name), self._ingester.progress(name), self.freshness(name)
        return TableInfo(
            table=name,
            columns=columns_of(self.columns(name)),
            rows=sum(segment.rows for segment in segments),
            size_bytes=sum(segment.size_bytes for segment in segments),
            sample=self._rate,
            first_ms=self.first_ms(name),
            last_ms=max((segment.last_ms for segment in segments), default=None),
            lag_events=freshness.lag_events,
            lag_s=freshness.lag_s,
            rejected=progress.rejected,
            rejections=list(progress.rejections),
            expired=progress.expired,
            lost=progress.lost,
            problem=freshness.problem,
            event_time=self._ingester.event_time(name),
        )

    def freshness(self, name: str) -> Freshness:
        """Return how far a table is behind the bus."""
        progress = self._ingester.progress(name)
        lag_s = None if progress.behind is None or progress.behind else 0.0
        if progress.behind and progress.arrived_ms is not None:
            lag_s = max(0, self._clock.now_ms() - progress.arrived_ms) / 1000
        return Freshness(progress.behind, lag_s, self._ingester.problem)

    def first_ms(self, name: str) -> int | None:
        """Return the arrival of the oldest row."""
        return min((segment.first_ms for segment in self._store.segments(name)), default=None)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection to the store."""
        return self._store.cursor()

    def prepare(self, connection: duckdb.DuckDBPyConnection, needed: RowsNeeded) -> DaysRead | None:  # noqa: ARG002 - the views of the store are all there
        """Do nothing: the views of the store are always there."""
        return None


def columns_of(kinds: Mapping[str, Any]) -> list[Column]:
    """Return columns for a description."""
    return [Column(column, kind_of(kind)) for column, kind in kinds.items()]
