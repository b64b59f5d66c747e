"""The queries of clients: aggregates by group and time, rows as they are, or a SELECT."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..results import BadQuery, TimeSpan, parse_span_ms, parse_time_ms

DEFAULT_SERIES = 7
"""The number of groups in an answer. A plot with more lines is hard to read."""

PREFIX = "warehouse/"
"""The prefix of the warehouse's tables on a server, which also has the newest events. No category has a slash in its name."""

Function = Literal["count", "sum", "avg", "min", "max", "p50", "p95", "p99", "distinct", "share"]
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


class Aggregation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An aggregate of the rows of a group.

    Args:
        function: the function. A count without a column is the number of events.
        column: its column. Rows without a value in it are ignored.
        op: for "share", the comparison of the column.
        value: for "share", the value as in `Filter`. The share counts the rows for which the comparison holds.
    """

    function: Function = "count"
    column: str | None = None
    op: Operator | None = None
    value: Scalar | list[Scalar] | None = None

    @property
    def name(self) -> str:
        """Its name in answers: `count`, `p95(ms)`, `share(status >= 500)`."""
        if self.column is None:
            return self.function
        values = self.value if isinstance(self.value, list) else [] if self.value is None else [self.value]
        condition = [self.column, self.op or "", ", ".join(map(str, values))]
        return f"{self.function}({' '.join(filter(None, condition))})"

    def condition(self) -> Filter | None:
        """Return the condition of a share; None for other functions.

        Raises:
            BadQuery: a share has no condition, or another function has one.
        """
        if self.function == "share" and (self.column is None or self.op is None):
            raise BadQuery("share needs a column and a condition, such as share(status >= 500).")
        if self.function != "share" and (self.op, self.value) != (None, None):
            raise BadQuery(
                f"{self.function} has a condition, and only share may have one. Use a filter, or share(status >= 500)."
            )
        return None if self.op is None else Filter(self.column or "", self.op, self.value)


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
        compare: how long before the time range the compared one is, such as "7d"; None for no comparison.
    """

    aggregates: list[Aggregation] = msgspec.field(default_factory=lambda: [Aggregation()])
    group_by: list[str] = []
    every: str | None = None
    series: int = DEFAULT_SERIES
    compare: str | None = None

    def shift_ms(self, now_ms: int) -> int | None:
        """Return how long before the time range the compared one is, in milliseconds; None without a comparison.

        Raises:
            BadQuery: the duration is invalid, or there is no time range to compare.
        """
        if self.compare is None:
            return None
        shift_ms = parse_span_ms(self.compare, "compare")
        if self.span(now_ms) is None or shift_ms <= 0:
            raise BadQuery(
                "compare needs a time range, and a time above zero. Pass last=1h and compare=1d, for example."
            )
        return shift_ms


class HistogramQuery(RowsQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A query for the distribution of a column.

    Args:
        column: a column with numbers.
        bins: the number of intervals.
    """

    column: str
    bins: int = 30


class PlacesQuery(RowsQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A query for an aggregate by place.

    Args:
        latitude: a column with latitudes, in degrees.
        longitude: a column with longitudes, in degrees.
        aggregate: the aggregate.
        degrees: the size of the areas that are one place each.
    """

    latitude: str
    longitude: str
    aggregate: Aggregation = Aggregation()
    degrees: float = 2.0


class SampleQuery(RowsQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A query for rows as they are, the newest first.

    Args:
        limit: the largest number of rows.
    """

    limit: int = 20


class SqlQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A SELECT in DuckDB's dialect."""

    sql: str


class AppQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query that is to become an app in SQL.

    Args:
        query: the query.
        name: the name of the table with the results.
        source: the address of the page with the query.
    """

    query: ExploreQuery
    name: str = "explored"
    source: str = ""
