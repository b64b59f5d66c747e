"""The answers of a Scuba server, which its clients decode."""

from __future__ import annotations

from typing import Any

import msgspec


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    Args:
        name: its name.
        kind: "number", "text", "time", "boolean" or "other".
    """

    name: str
    kind: str


class DaysRead(msgspec.Struct, frozen=True):
    """The days that a query of the warehouse reads. The files of other days are not opened.

    Args:
        read: the number of days that are read.
        total: the number of days of the table.
        size_bytes: the size of the files that are read.
    """

    read: int
    total: int
    size_bytes: int


class TableInfo(msgspec.Struct, frozen=True):
    """A table, and how far it is behind.

    Args:
        table: its name: a category, or `warehouse/` and a table of the warehouse.
        columns: its columns.
        rows: the number of rows; None if it is unknown, in the warehouse.
        size_bytes: their estimated size.
        sample: the share of events that are kept.
        first_ms: the arrival of the oldest row at the bus (milliseconds since 1970, UTC); None without rows.
        last_ms: the arrival of the newest row.
        lag_events: offsets that were not read; None if it is unknown.
        lag_s: the time since the arrival of the last event that was read, in seconds; 0 if all were read.
        rejected: the number of events that do not decode or do not fit their columns, since the start of the server.
        rejections: the last of them, with the reasons.
        expired: offsets that Kafka deleted before they were read, since the start.
        lost: rows that could not be stored, since the start.
        problem: why the table is not up to date; empty while it is.
        days: the number of archived days; None for the newest events.
        event_time: the column of the record with the event time, in milliseconds; empty if it has none.
    """

    table: str
    columns: list[Column]
    rows: int | None
    size_bytes: int
    sample: float
    first_ms: int | None
    last_ms: int | None
    lag_events: int | None
    lag_s: float | None
    rejected: int
    rejections: list[str]
    expired: int
    lost: int
    problem: str
    days: int | None = None
    event_time: str = ""


class Tables(msgspec.Struct, frozen=True):
    """All tables of a server."""

    tables: list[TableInfo]


class SampledEstimate(msgspec.Struct, frozen=True):
    """The value of an aggregate.

    Args:
        value: the value; None without a row that has one.
        margin: the true value is within this distance with a probability of 95 %; 0 for an exact value, None if it is unknown, as for few rows of a
            sample.
    """

    value: Any
    margin: float | None


class GroupRow(msgspec.Struct, frozen=True):
    """The aggregates of one group, over the whole time range.

    Args:
        group: the value of each column in `group_by`.
        values: the aggregates.
    """

    group: list[Any]
    values: list[SampledEstimate]


class Point(msgspec.Struct, frozen=True):
    """The aggregates of a group in one interval of time.

    Args:
        start_ms: the start of the interval (milliseconds since 1970, UTC).
        series: the index of the group in `rows`.
        values: the aggregates.
    """

    start_ms: int
    series: int
    values: list[SampledEstimate]


class Exploration(msgspec.Struct, frozen=True):
    """The answer to a query.

    Args:
        table: the table.
        group_by: the columns of the groups.
        aggregates: the names of the aggregates, such as `p95(ms)`.
        rows: the groups with the largest first aggregate.
        groups: the number of all groups; of a sample, those with a row in it, so there may be more.
        points: the time series of the groups in `rows`, in order of time; empty without `every`. Intervals without events are missing.
        compared: for each group in `rows`, its aggregates in the earlier time range, None for a group without events; empty without `compare`.
        compared_points: the time series of the earlier time range, at the times of the later one.
        is_compared_partly: whether the earlier time range begins before the oldest row of the table.
        days: the days that were read; None for the newest events.
        is_truncated: whether there were more points.
        is_sampled: whether values are estimates.
        matched: the number of stored rows in the answer; of a sample, fewer than events.
        not_finite: the number of values in columns of aggregates that are infinite or no numbers (NaN). Aggregates leave them out.
        elapsed_ms: the time that the query took.
        lag_events: as in `TableInfo`.
        lag_s: as in `TableInfo`.
        problem: as in `TableInfo`.
    """

    table: str
    group_by: list[str]
    aggregates: list[str]
    rows: list[GroupRow]
    groups: int
    points: list[Point]
    is_truncated: bool
    is_sampled: bool
    matched: int
    not_finite: int
    elapsed_ms: float
    lag_events: int | None
    lag_s: float | None
    problem: str
    compared: list[list[SampledEstimate] | None] = []
    compared_points: list[Point] = []
    is_compared_partly: bool = False
    days: DaysRead | None = None


class Bin(msgspec.Struct, frozen=True):
    """An interval of a histogram.

    Args:
        low: its begin.
        high: its end; excluded, except in the last interval.
        events: the number of events with a value in it.
    """

    low: float
    high: float
    events: SampledEstimate


class Distribution(msgspec.Struct, frozen=True):
    """The distribution of a column.

    Args:
        table: the table.
        column: the column.
        bins: the intervals, in order, also the ones without an event. The last one contains the largest hundredth; empty without a value.
        is_sampled: whether the numbers are estimates.
        elapsed_ms: the time that the query took.
    """

    table: str
    column: str
    bins: list[Bin]
    is_sampled: bool
    elapsed_ms: float


class Place(msgspec.Struct, frozen=True):
    """The aggregate of the rows in an area.

    Args:
        south: its southern edge, in degrees.
        west: its western edge.
        latitude: the mean latitude of its rows.
        longitude: their mean longitude.
        value: the aggregate.
    """

    south: float
    west: float
    latitude: float
    longitude: float
    value: SampledEstimate


class Places(msgspec.Struct, frozen=True):
    """An aggregate by place.

    Args:
        table: the table.
        aggregate: the name of the aggregate.
        degrees: the size of an area.
        places: the places with the largest values.
        is_truncated: whether there were more.
        is_sampled: whether values are estimates.
        elapsed_ms: the time that the query took.
    """

    table: str
    aggregate: str
    degrees: float
    places: list[Place]
    is_truncated: bool
    is_sampled: bool
    elapsed_ms: float


class SqlRows(msgspec.Struct, frozen=True):
    """Rows of a SELECT, or rows of a table.

    Args:
        columns: the columns.
        rows: the rows.
        is_truncated: whether there were more.
        elapsed_ms: the time that the query took.
        days: as in `Exploration`.
    """

    columns: list[str]
    rows: list[list[Any]]
    is_truncated: bool
    elapsed_ms: float
    days: DaysRead | None = None


class SavedApp(msgspec.Struct, frozen=True):
    """A query as an app.

    Args:
        sql: its file.
    """

    sql: str
