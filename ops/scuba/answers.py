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


class TableInfo(msgspec.Struct, frozen=True):
    """A table, and how far it is behind.

    Args:
        table: the name of its category.
        columns: its columns.
        rows: the number of rows.
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
    """

    table: str
    columns: list[Column]
    rows: int
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


class Tables(msgspec.Struct, frozen=True):
    """All tables of a server."""

    tables: list[TableInfo]


class Estimate(msgspec.Struct, frozen=True):
    """The value of an aggregate.

    Args:
        value: the value; None without a row that has one.
        margin: the true value is within this distance with a probability of 95 %; 0 for an exact value, None if it is unknown.
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
    values: list[Estimate]


class Point(msgspec.Struct, frozen=True):
    """The aggregates of a group in one interval of time.

    Args:
        start_ms: the start of the interval (milliseconds since 1970, UTC).
        series: the index of the group in `rows`.
        values: the aggregates.
    """

    start_ms: int
    series: int
    values: list[Estimate]


class Exploration(msgspec.Struct, frozen=True):
    """The answer to a query.

    Args:
        table: the table.
        group_by: the columns of the groups.
        aggregates: the names of the aggregates, such as `p95(ms)`.
        rows: the groups with the largest first aggregate.
        groups: the number of all groups.
        points: the time series of the groups in `rows`, in order of time; empty without `every`. Intervals without events are missing.
        is_truncated: whether there were more points.
        is_sampled: whether values are estimates.
        matched: the number of stored rows in the answer; of a sample, fewer than events.
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
    elapsed_ms: float
    lag_events: int | None
    lag_s: float | None
    problem: str


class SqlRows(msgspec.Struct, frozen=True):
    """Rows of a SELECT, or rows of a table.

    Args:
        columns: the columns.
        rows: the rows.
        is_truncated: whether there were more.
        elapsed_ms: the time that the query took.
    """

    columns: list[str]
    rows: list[list[Any]]
    is_truncated: bool
    elapsed_ms: float
