"""Structured queries as SQL with parameters.

ExploreQuery --checked against the columns of its table--> SQL

Names of columns are quoted, and values are parameters, so no text of a client becomes SQL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from ....backfill.warehouse import DAY_COLUMN
from ....processors import did_you_mean
from ..results import BadQuery, parse_span_ms
from .flat_columns import RATE
from .queries import Aggregation, ExploreQuery, Filter, HistogramQuery, PlacesQuery, RowsQuery, SampleQuery, Scalar
from .store import quoted

MAX_SERIES = 1_000
MAX_PLOTTED = 50
"""The most groups of an answer with time series."""
MAX_GROUP_COLUMNS = 8
MAX_AGGREGATES = 8
MAX_FILTERS = 32
MAX_BINS = 200
MAX_PLACES = 2_000
"""The most places of a map."""
MIN_DEGREES, MAX_DEGREES = 0.1, 45
MAX_VALUES = 1_000
"""The most values of one filter."""
MAX_POINTS = 20_000
"""The most points of the time series of an answer."""
Z95 = 1.96
"""The distance of 95 % of a normal distribution from its mean, in standard deviations."""
_WEIGHT = f"(1 / {RATE})"
"""The number of events that a row stands for (Horvitz and Thompson, 1952)."""
_VARIANCE = f"((1 - {RATE}) / ({RATE} * {RATE}))"
"""The estimated variance of that number."""
_LEAST_ROWS = 100
"""The sampled rows from which on a sum or a mean has a margin. With 30, nine of ten margins of a mean of latencies contain the true one if none of
them is rare, but only half of them if two of a hundred are much slower; with 100, nine of ten do."""
_FLOATS = {"FLOAT", "DOUBLE"}
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_NUMERIC_ONLY = {"sum", "avg", *_QUANTILES}
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL")


def kind_of(column_type: str) -> str:
    """Return the kind of a column by its type in DuckDB: "number", "text", "time", "boolean" or "other"."""
    if column_type.startswith(_NUMBERS):
        return "number"
    return {"VARCHAR": "text", "BOOLEAN": "boolean", "TIMESTAMP": "time", "DATE": "time"}.get(column_type, "other")


@dataclass(frozen=True)
class Sql:
    """A statement with its parameters."""

    text: str
    parameters: Sequence[Any]


class QueryCompiler:
    """Compiles queries of one table.

    Args:
        columns: its columns and their types.
        is_sampled: whether rows stand for several events.
        now_ms: the time of the query (milliseconds since 1970, UTC).
    """

    def __init__(self, columns: Mapping[str, str], now_ms: int, *, is_sampled: bool) -> None:
        self._columns = columns
        self._now_ms = now_ms
        self._is_sampled = is_sampled

    def groups(self, query: ExploreQuery) -> Sql:
        """Return the statement for the largest groups.

        Its columns are the group's, value and margin of each aggregate, and the number of rows; then, for all groups together, the numbers of
        groups, of rows, and of values that are infinite or no numbers.

        Raises:
            BadQuery: the query is invalid.
        """
        self._expect_limits(query)
        source, where = self._source(query.table, query.aggregates), self._where(query)
        names = [f"g{at}" for at in range(len(query.group_by))]
        keys = [f"{self._column(column)} AS {name}" for column, name in zip(query.group_by, names, strict=True)]
        ordinals = ", ".join(str(at + 1) for at in range(len(keys)))  # a column may have the name of an alias
        floats = {each.column for each in query.aggregates if each.column and self._columns[each.column] in _FLOATS}
        not_finite = [f"count(*) FILTER (WHERE NOT isfinite({quoted(column)}))" for column in sorted(floats)]
        selected = [
            *keys,
            *self._values(query),
            f"{' + '.join(not_finite) or '0'} AS not_finite",
            "count(*) AS matched",
        ]
        grouped = f"SELECT {', '.join(selected)} FROM {source.text} {where.text}"
        grouped += f" GROUP BY {ordinals}" if keys else ""
        order = ", ".join(["v0 DESC NULLS LAST", *names])
        totals = "count(*) OVER () AS groups, sum(matched) OVER (), sum(not_finite) OVER ()"
        text = f"SELECT * EXCLUDE (not_finite), {totals} FROM ({grouped}) ORDER BY {order} LIMIT {query.series}"
        return Sql(text, [*source.parameters, *where.parameters])

    def points(self, query: ExploreQuery, groups: Sequence[Sequence[Any]], shift_ms: int = 0) -> Sql:
        """Return the statement for the time series of groups: start, index of the group, value and margin of each aggregate.

        Args:
            query: the query.
            groups: the groups.
            shift_ms: how long before the range of the query the time range is. Starts are moved to the later one.

        Raises:
            BadQuery: the interval is invalid.
        """
        every_ms = parse_span_ms(query.every or "", "every")
        if every_ms == 0:
            raise BadQuery("every=0s is no interval. Pass a longer one, such as 1m.")
        # The intervals of an earlier time range begin where those of the later one do.
        time = f"({quoted(query.time)} + {shift_ms})"
        start = f"{time} - (({time} % {every_ms}) + {every_ms}) % {every_ms} AS start"
        return self._of_groups(query, groups, [start], shift_ms)

    def totals(self, query: ExploreQuery, groups: Sequence[Sequence[Any]], shift_ms: int) -> Sql:
        """Return the statement for the aggregates of groups in an earlier time range: index of the group, value and margin of each aggregate."""
        return self._of_groups(query, groups, [], shift_ms)

    def _of_groups(
        self, query: ExploreQuery, groups: Sequence[Sequence[Any]], starts: Sequence[str], shift_ms: int
    ) -> Sql:
        where = self._where(query, shift_ms)
        table, series = self._source(query.table, query.aggregates), "0"
        source, parameters = table.text, list(table.parameters)
        if query.group_by:
            width = len(query.group_by)
            keys = [f"penstock_key{at}" for at in range(width)]
            shown = ", ".join(f"({', '.join([str(at), *['?'] * width])})" for at in range(len(groups)))
            same = [
                f"{self._column(name)} IS NOT DISTINCT FROM {key}"
                for name, key in zip(query.group_by, keys, strict=True)
            ]
            series = "penstock_series"
            source += f" JOIN (VALUES {shown}) AS shown({series}, {', '.join(keys)}) ON {' AND '.join(same)}"
            parameters += [value for group in groups for value in group]
        conditions = _and(where.text, f"{quoted(query.time)} IS NOT NULL") if starts else where.text
        text = (
            f"SELECT {', '.join([*starts, series, *self._values(query)])} FROM {source} {conditions} GROUP BY ALL "
            f"ORDER BY {', '.join(str(at + 1) for at in range(len(starts) + 1))} LIMIT {MAX_POINTS + 1}"
        )
        return Sql(text, [*parameters, *where.parameters])

    def samples(self, query: SampleQuery, most: int = MAX_SERIES) -> Sql:
        """Return the statement for rows.

        Args:
            query: the query.
            most: the largest allowed number of rows.

        Raises:
            BadQuery: the query is invalid.
        """
        if not 1 <= query.limit <= most:
            raise BadQuery(f"limit={query.limit} is invalid. Pass a number from 1 to {most:,}.")
        where = self._where(query)
        return Sql(
            f"SELECT * FROM {quoted(query.table)} {where.text} ORDER BY {quoted(query.time)} DESC LIMIT {query.limit}",
            where.parameters,
        )

    def day_condition(self, query: RowsQuery) -> Sql | None:
        """Return the filters on the days of an archive; None without any.

        Raises:
            BadQuery: a filter is invalid.
        """
        found = [self._condition(each) for each in query.filters if each.column == DAY_COLUMN]
        if not found:
            return None
        return Sql(" AND ".join(each.text for each in found), [value for each in found for value in each.parameters])

    def _expect_limits(self, query: ExploreQuery) -> None:
        for name, found, most in (
            ("group_by columns", len(query.group_by), MAX_GROUP_COLUMNS),
            ("aggregates", len(query.aggregates), MAX_AGGREGATES),
            ("series", query.series, MAX_SERIES if query.every is None else MAX_PLOTTED),
        ):
            if found > most:
                raise BadQuery(f"The query has {found:,} {name}. Pass at most {most:,}.")
        if not query.aggregates or query.series < 1:
            raise BadQuery("The query asks for nothing. Pass at least one aggregate and one series.")

    def _column(self, name: str) -> str:
        if name not in self._columns:
            known = list(self._columns)
            raise BadQuery(
                f"There is no column {name!r}. The columns are: {', '.join(known)}.{did_you_mean(name, known)}"
            )
        return quoted(name)

    def bounds(self, query: HistogramQuery) -> Sql:
        """Return the statement for the range of a histogram: the least value, the value below which 99 of 100 are, and the largest one.

        Raises:
            BadQuery: the column has no numbers, or the number of intervals is invalid.
        """
        if not 1 <= query.bins <= MAX_BINS:
            raise BadQuery(f"bins={query.bins} is invalid. Pass a number from 1 to {MAX_BINS}.")
        self._estimate(Aggregation("avg", query.column))  # raises if the column has no numbers
        value, where = f"{quoted(query.column)}::DOUBLE", self._where(query)
        text = f"SELECT min({value}), quantile_cont({value}, 0.99), max({value}) FROM {quoted(query.table)}"
        return Sql(f"{text} {_and(where.text, f'isfinite({value})')}", where.parameters)

    def bins(self, query: HistogramQuery, low: float, width: float) -> Sql:
        """Return the statement for a histogram: number of the interval, number of events and its margin."""
        value, where = f"{quoted(query.column)}::DOUBLE", self._where(query)
        last = query.bins - 1
        number = f"least({last}, floor(({value} - {low!r}) / {width!r}))::INTEGER" if width > 0 else "0"
        counted, margin = self._count()
        text = f"SELECT {number} AS number, {counted}, {margin} FROM {quoted(query.table)}"
        return Sql(f"{text} {_and(where.text, f'isfinite({value})')} GROUP BY 1", where.parameters)

    def places(self, query: PlacesQuery) -> Sql:
        """Return the statement for the places with the largest values: edges and mean position of each, value and its margin.

        Raises:
            BadQuery: a column has no numbers, or the size of the areas is invalid.
        """
        if not MIN_DEGREES <= query.degrees <= MAX_DEGREES:
            raise BadQuery(f"degrees={query.degrees} is invalid. Pass a number from {MIN_DEGREES} to {MAX_DEGREES}.")
        degrees, axes = [], ((query.latitude, 90), (query.longitude, 180))
        for column, _ in axes:
            self._estimate(Aggregation("avg", column))  # raises if the column has no numbers
            degrees.append(f"{quoted(column)}::DOUBLE")
        where, source = self._where(query), self._source(query.table, [query.aggregate])
        on_earth = " AND ".join(
            f"{value} BETWEEN -{most} AND {most}" for value, (_, most) in zip(degrees, axes, strict=True)
        )
        edges = [f"floor({value} / {query.degrees!r}) * {query.degrees!r}" for value in degrees]
        means = [f"avg({value})" for value in degrees]
        value, margin = self._estimate(query.aggregate)
        text = (
            f"SELECT {', '.join([*edges, *means])}, {value}, {margin} FROM {source.text} {_and(where.text, on_earth)}"
        )
        parameters = [*source.parameters, *where.parameters]
        return Sql(f"{text} GROUP BY 1, 2 ORDER BY 5 DESC NULLS LAST, 1, 2 LIMIT {MAX_PLACES + 1}", parameters)

    def _source(self, table: str, aggregates: Sequence[Aggregation]) -> Sql:
        """Return the table, with a column for the condition of each share: an aggregate may repeat it, and a parameter has one place."""
        columns, parameters = list[str](), list[Any]()
        for name, condition in {each.name: each.condition() for each in aggregates}.items():
            if condition is not None:
                found = self._condition(condition)
                # A comparison holds for a value that is no number, as for the largest one.
                counts = "TRUE" if condition.value is None else f"{self._finite(condition.column)} IS NOT NULL"
                columns.append(f"(CASE WHEN {counts} THEN ({found.text})::INTEGER END) AS {_condition_column(name)}")
                parameters += found.parameters
        return Sql(f"(SELECT *, {', '.join(columns)} FROM {quoted(table)})" if columns else quoted(table), parameters)

    def _where(self, query: RowsQuery, shift_ms: int = 0) -> Sql:
        if len(query.filters) > MAX_FILTERS:
            raise BadQuery(f"The query has {len(query.filters):,} filters. Pass at most {MAX_FILTERS}.")
        conditions, parameters = [], list[Any]()
        span = query.span(self._now_ms)
        if span is not None:
            conditions.append(f"{quoted(query.time)} >= ? AND {quoted(query.time)} < ?")
            parameters += [span.begin_ms - shift_ms, span.end_ms - shift_ms]
        for each in query.filters:
            found = self._condition(each)
            conditions.append(found.text)
            parameters += found.parameters
        return Sql(f"WHERE {' AND '.join(conditions)}" if conditions else "", parameters)

    def _condition(self, condition: Filter) -> Sql:
        column = self._column(condition.column)
        if condition.op in {"is null", "is not null"}:
            return Sql(f"{column} {condition.op.upper()}", [])
        if condition.value is None:
            raise BadQuery(f"The filter {condition.column} {condition.op} needs a value. Pass one, or use `is null`.")
        listed = condition.value if isinstance(condition.value, list) else [condition.value]
        if condition.op in {"in", "not in"}:
            if not 1 <= len(listed) <= MAX_VALUES:
                raise BadQuery(f"The filter {condition.column} {condition.op} needs 1 to {MAX_VALUES:,} values.")
            marks = ", ".join("?" for _ in listed)
            return Sql(
                f"{column} {condition.op.upper()} ({marks})",
                [self._value(condition.column, value) for value in listed],
            )
        if isinstance(condition.value, list):
            raise BadQuery(f"The filter {condition.column} {condition.op} needs one value. For several, use `in`.")
        if condition.op in {"contains", "starts with"}:
            function = "contains" if condition.op == "contains" else "starts_with"
            return Sql(f"{function}(CAST({column} AS VARCHAR), ?)", [str(condition.value)])
        return Sql(f"{column} {condition.op} ?", [self._value(condition.column, condition.value)])

    def _value(self, column: str, value: Scalar) -> Scalar | date:
        """Return a value in the type of a column. Forms of web pages and commands pass texts."""
        kind = kind_of(self._columns[column])
        if kind == "time":
            return _time(column, str(value), is_date=self._columns[column] == "DATE")
        if kind == "number":
            return _number(column, value)
        if kind == "boolean":
            found = {"true": True, "false": False}.get(str(value).lower())
            if found is None:
                raise BadQuery(f"{column} is true or false, not {value!r}. Correct the filter.")
            return found
        return str(value)

    def _values(self, query: ExploreQuery) -> list[str]:
        """Return the value and the margin of each aggregate."""
        found = []
        for at, aggregate in enumerate(query.aggregates):
            value, margin = self._estimate(aggregate)
            found += [f"{value} AS v{at}", f"{margin} AS m{at}"]
        return found

    def _estimate(self, aggregate: Aggregation) -> tuple[str, str]:
        function, name = aggregate.function, aggregate.column
        if name is None:
            if function != "count":
                raise BadQuery(f"{function} needs a column. Pass one, such as the column of a duration.")
            return self._count()
        column, kind = self._finite(name), kind_of(self._columns[name])
        if function == "count" or (kind == "boolean" and function == "sum"):
            return self._count(f"{self._column(name)} IS NOT NULL" if function == "count" else column)
        if function == "share" or (kind == "boolean" and function == "avg"):
            return self._mean(
                _condition_column(aggregate.name) if function == "share" else f"{column}::INTEGER", _margin_of_share
            )
        if function in _NUMERIC_ONLY and kind != "number":
            numbers = [each for each, kind in self._columns.items() if kind_of(kind) == "number"]
            raise BadQuery(
                f"{function} needs a column with numbers, and {name} has none. These have: {', '.join(numbers)}."
            )
        if function == "avg":
            return self._mean(f"{column}::DOUBLE" if self._is_sampled else column, _margin_of_mean)
        if function == "sum" and self._is_sampled:
            return f"sum({column}::DOUBLE * {_WEIGHT})", self._margin(_margin_of_sum(f"{column}::DOUBLE"))
        # For a sample, how far the others are from the values of all events is unknown.
        return _of_rows(function, column), self._margin("NULL")

    def _mean(self, value: str, margin: Callable[[str], str]) -> tuple[str, str]:
        return _sampled_mean(value) if self._is_sampled else f"avg({value})", self._margin(margin(value))

    def _count(self, condition: str = "TRUE") -> tuple[str, str]:
        """Return the number of events for which a condition holds."""
        if not self._is_sampled:
            return f"count(*) FILTER (WHERE {condition})", "0::DOUBLE"
        total = f"coalesce(sum({_WEIGHT}) FILTER (WHERE {condition}), 0)"
        return total, self._margin(_margin_of_count(condition))

    def _margin(self, sampled: str) -> str:
        """Return the margin of an aggregate: no estimate is exact, also if all sampled rows are alike."""
        return f"nullif({sampled}, 0)::DOUBLE" if self._is_sampled else "0::DOUBLE"

    def _finite(self, name: str) -> str:
        """Return a column without the values that are no numbers or infinite: one of them would replace the aggregate of all others."""
        column = self._column(name)
        if self._columns[name] not in _FLOATS:
            return column
        return f"(CASE WHEN isfinite({column}) THEN {column} END)"


def _margin_of_count(condition: str) -> str:
    """Return the distance to the farther end of the score interval, which also holds for few rows, and for none.

    Source: Garwood's problem of 1936 in the form of Rao's score test, with the mean number of events per row as the unit.
    """
    unit = f"(sum({_VARIANCE}) / sum({_WEIGHT}))"
    variance = f"coalesce(sum({_VARIANCE}) FILTER (WHERE {condition}), 0)"
    return f"({Z95 * Z95 / 2} * {unit} + {Z95} * sqrt({variance} + {Z95 * Z95 / 4} * {unit} * {unit}))"


def _margin_of_share(share: str) -> str:
    """Return the distance to the farther end of the interval of Wilson (1927), which is not empty for shares of 0 and 1.

    The number of rows in it is the one whose mean has the variance of the estimate: a row of a sample of 50 % counts twice.
    """
    has_share = f"FILTER (WHERE {share} IS NOT NULL)"
    rows = f"((sum({_WEIGHT}) {has_share}) ** 2 / nullif(sum({_VARIANCE}) {has_share}, 0))"
    mean = _sampled_mean(share)
    spread = f"sqrt(greatest(0, {mean} * (1 - {mean})) / {rows} + {Z95 * Z95 / 4} / {rows} ** 2)"
    return f"(({Z95 * Z95} * abs(0.5 - {mean}) / {rows} + {Z95} * {spread}) / (1 + {Z95 * Z95} / {rows}))"


def _margin_of_mean(value: str) -> str:
    """Return the margin of the ratio of two estimates; the variance comes from its linear approximation."""
    has_value = f"FILTER (WHERE {value} IS NOT NULL)"
    total, mean = f"(sum({_WEIGHT}) {has_value})", _sampled_mean(value)
    squares = (
        f"sum({value} * {value} * {_VARIANCE}) - 2 * {mean} * sum({value} * {_VARIANCE}) "
        f"+ {mean} * {mean} * (sum({_VARIANCE}) {has_value})"
    )
    return _of_many_rows(value, f"{Z95} * sqrt(greatest(0, {squares})) / {total}")


def _margin_of_sum(value: str) -> str:
    return _of_many_rows(value, f"{Z95} * sqrt(sum({value} * {value} * {_VARIANCE}))")


def _of_many_rows(value: str, margin: str) -> str:
    """Return a margin if enough sampled rows have a value; else NULL.

    The skewness of the values is no better measure: fewer rows often lack the rare large value of a skewed distribution, and do not look skewed.
    """
    return f"(CASE WHEN count({value}) FILTER (WHERE {RATE} < 1) >= {_LEAST_ROWS} THEN {margin} END)"


def _sampled_mean(value: str) -> str:
    return f"(sum({value} * {_WEIGHT}) / (sum({_WEIGHT}) FILTER (WHERE {value} IS NOT NULL)))"


def _condition_column(name: str) -> str:
    return quoted(f"penstock {name}")


def _and(where: str, condition: str) -> str:
    return f"{where} AND {condition}" if where else f"WHERE {condition}"


def _of_rows(function: str, column: str) -> str:
    if function in _QUANTILES:
        return f"quantile_cont({column}::DOUBLE, {_QUANTILES[function]})"
    return f"count(DISTINCT {column})" if function == "distinct" else f"{function}({column})"


def _number(column: str, value: Scalar) -> int | float:
    number = value if isinstance(value, (int, float)) else _parsed(value)
    if number is None or isinstance(value, bool) or not math.isfinite(number) or abs(number) > 1 << 63:
        raise BadQuery(f"{column} contains numbers, and {value!r} is none. Correct the filter.")
    return number


def _time(column: str, text: str, *, is_date: bool) -> date:
    """Return the date or the time (UTC) that a text is. DuckDB itself would ignore an offset."""
    try:
        if is_date:
            return date.fromisoformat(text)
        found = datetime.fromisoformat(text)
    except ValueError:
        wanted = "dates, such as 2026-01-31" if is_date else "times, such as 2026-01-31T10:00 (UTC)"
        raise BadQuery(f"{column} contains {wanted}, and {text!r} is none. Correct the filter.") from None
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _parsed(text: str) -> int | float | None:
    """Return the number that a text is; None for another text."""
    if "_" in text:
        return None  # only Python reads 1_000
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return None
