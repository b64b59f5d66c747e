"""The queries of clients: aggregates by group and time, rows as they are, or a SELECT."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..serving.parameters import BadQuery, TimeSpan, parse_span_ms, parse_time_ms

DEFAULT_SERIES = 7
"""The number of groups in an answer. A plot with more lines is hard to read."""

Function = Literal["count", "sum", "avg", "min", "max", "p50", "p95", "p99", "distinct"]
Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "contains", "starts with", "is null", "is not null"]
Scalar = str | int | float | bool


class Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition. All conditions of a query hold for its rows.

    Args:
        column: the column.
        op: the comparison. Only "is null" finds rows without a value.
        value: the value; a list for "in" and "not in"; None for "is null" and "is not null".
    """

    column: str
    op: Operator
    value: Scalar | list[Scalar] | None = None


class Aggregate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An aggregate of the rows of a group.

    Args:
        function: the function. A count without a column is the number of events.
        column: its column. Rows without a value in it are ignored.
    """

    function: Function = "count"
    column: str | None = None

    @property
    def name(self) -> str:
        """Its name in answers: `count`, `p95(ms)`."""
        return self.function if self.column is None else f"{self.function}({self.column})"


class RowsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rows of a table.

    Args:
        table: the table.
        filters: conditions.
        last: a time span that ends now, such as "10m".
        begin: the begin of a time span: milliseconds since 1970, or an ISO time; `from` in JSON.
        end: its end, excluded; by default now; `to` in JSON.
        time: the column of the time range and of time series: the event time, or the arrival.
    """

    table: str
    filters: list[Filter] = []
    last: str | None = None
    begin: str | int | None = msgspec.field(name="from", default=None)
    end: str | int | None = msgspec.field(name="to", default=None)
    time: Literal["_event_time", "_arrived"] = "_event_time"

    def span(self, now_ms: int) -> TimeSpan | None:
        """Return the time span; None for all times.

        Raises:
            BadQuery: a time or duration is invalid.
        """
        if self.last is not None:
            if (self.begin, self.end) != (None, None):
                raise BadQuery("last excludes from and to. Pass one of them.")
            return TimeSpan(now_ms - parse_span_ms(self.last), now_ms + 1)
        if self.begin is None and self.end is None:
            return None
        begin = -(1 << 62) if self.begin is None else parse_time_ms("from", str(self.begin), now_ms)
        end = (1 << 62) if self.end is None else parse_time_ms("to", str(self.end), now_ms)
        if begin >= end:
            raise BadQuery(f"from={self.begin} is not before to={self.end}. Pass an earlier from.")
        return TimeSpan(begin, end)


class ExploreQuery(RowsQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A query for aggregates.

    Args:
        aggregates: the aggregates; the first one ranks the groups.
        group_by: the columns of the groups.
        every: the interval of time series, such as "1m"; None for none.
        series: the largest number of groups.
    """

    aggregates: list[Aggregate] = msgspec.field(default_factory=lambda: [Aggregate()])
    group_by: list[str] = []
    every: str | None = None
    series: int = DEFAULT_SERIES


class SampleQuery(RowsQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A query for rows as they are, the newest first.

    Args:
        limit: the largest number of rows.
    """

    limit: int = 20


class SqlQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A SELECT in DuckDB's dialect."""

    sql: str
