"""An exploration in Scuba as an app in SQL.

    address of the page, or JSON of POST /query --ExploreQuery--> CREATE CATEGORY …; CREATE TABLE … AS SELECT … GROUP BY …, tumble(…)

Scuba reads all rows at each question; the app reads each event once, and keeps the aggregates of each interval.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import msgspec
from msgspec import inspect as shapes
from msgspec import structs
from sqlglot.dialects.postgres import Postgres

from ....processors import DeclarationError, counted, did_you_mean
from ....processors.apps import App
from ....processors.declare import AnyCategory, FieldPath, KeyCodec, Partitioner, find_field, plan_of
from ....processors.sql import SqlText, compile_app
from ..results import BadQuery, parse_span_ms
from .queries import PREFIX, Aggregation, AppQuery, ExploreQuery, Filter, Scalar

DEFAULT_INTERVAL = "1m"
"""The windows of a query without an interval."""
_TYPES: dict[type, str] = {
    shapes.StrType: "text",
    shapes.IntType: "bigint",
    shapes.FloatType: "double precision",
    shapes.BoolType: "boolean",
    shapes.DateTimeType: "timestamp",
    shapes.DateType: "date",
    shapes.DecimalType: "numeric",
}
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}
_UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("millisecond", 1))
_SIMPLE = re.compile("[a-z_][a-z0-9_]*")


class UnreadableQuery(BadQuery):
    """The query of an exploration cannot become an app; nothing was written."""


def parsed_query(text: str) -> ExploreQuery:
    """Return the query of an address of the page, or of JSON.

    Raises:
        UnreadableQuery: the text is neither.
    """
    if text.lstrip().startswith("{"):
        try:
            return msgspec.json.decode(text, type=ExploreQuery)
        except msgspec.DecodeError as error:
            raise UnreadableQuery(
                f"The query is no JSON of POST /query: {error}. Nothing was printed. Pass the JSON as `penstock explore` sends it, or the "
                "address of the page in quotes."
            ) from error
    given = parse_qs(text.partition("#")[2] or text, keep_blank_values=True)
    if "table" not in given:
        raise UnreadableQuery(
            f"{text!r} names no table. Nothing was printed. Copy the address of the page, with its part after #, in quotes; or pass the JSON of POST /query."
        )
    if given.get("chart") == ["histogram"] or "latitude" in given:
        raise UnreadableQuery(
            "The page shows a histogram or places by latitude and longitude, and the app of a query has aggregates of groups. Nothing was printed. Switch the page to a time "
            "series or bars, and copy its address again."
        )
    columns, ops, values = (given.get(name, []) for name in ("c", "o", "v"))
    filters = [_filter(*each) for each in zip(columns, ops, values, strict=False) if each[0]]
    function, column = given.get("f", ["count"])[0], given.get("of", [None])[0]
    aggregate = {"function": function, "column": column}
    if function == "share":
        aggregate |= _filter(column or "", given.get("is", ["is not null"])[0], given.get("than", [""])[0])
    plain = {
        "table": given["table"][0],
        "filters": filters,
        "aggregates": [aggregate],
        "group_by": given.get("by", []),
        "last": given.get("last", [None])[0],
        "every": given.get("every", [None])[0],
        "time": "_arrived" if given.get("time") == ["arrival"] else "_event_time",
    }
    try:
        return msgspec.convert(plain, ExploreQuery)
    except msgspec.ValidationError as error:
        raise UnreadableQuery(
            f"The address of the page is damaged: {error}. Nothing was printed. Copy it again."
        ) from error


def _filter(column: str, op: str, value: str) -> dict[str, Any]:
    if op.startswith("is "):
        return {"column": column, "op": op}
    return {
        "column": column,
        "op": op,
        "value": [each.strip() for each in value.split(",")] if op.endswith("in") else value,
    }


def sql_of(query: ExploreQuery, app: App, name: str, source: str) -> str:
    """Return the SQL file of a query.

    Args:
        query: the query. Of a table of the warehouse, the app reads the category.
        app: declares its table as a category.
        name: the name of the table with the results.
        source: the address of the page, or the JSON of the query; the file contains it.

    Raises:
        UnreadableQuery: the query or the category is not supported.
    """
    query = structs.replace(query, table=query.table.removeprefix(PREFIX))
    text = _Writer(query, _category(app, query.table), app).text(name, " ".join(source.split()))
    compile_app(SqlText(f"{name}.sql", text), "__from_query__")  # what is printed also runs
    return text


def saving(app: App) -> Callable[[AppQuery], str]:
    """Return the function that returns the SQL file of a query, for a server of an app."""
    return lambda asked: sql_of(asked.query, app, asked.name, asked.source)


def _category(app: App, table: str) -> AnyCategory:
    categories = app.declared_categories()
    if table not in categories:
        raise UnreadableQuery(
            f"App {app.name} has no category {table!r}. Nothing was printed. Name the app that Scuba serves; its categories are "
            f"{', '.join(categories)}.{did_you_mean(table, categories)}"
        )
    category = categories[table]
    if (
        not isinstance(category.event_time, str)
        or category.codec not in ("json", "avro")
        or len(category.record_types) > 1
    ):
        raise UnreadableQuery(
            f"Category {table} has several record types, another codec than JSON or Avro, or an event time that is no field. SQL does not read such a "
            "category. Nothing was printed. Copy it to a category of one record type with a processor in Python, and explore that one."
        )
    return category


@dataclass(frozen=True)
class _Writer:
    """Writes the statements of a query.

    Args:
        query: the query.
        category: its category.
        app: the app that declares the category.
    """

    query: ExploreQuery
    category: AnyCategory
    app: App

    def text(self, name: str, source: str) -> str:
        """Return the file."""
        query = self.query
        if query.time == "_arrived":
            raise UnreadableQuery(
                "The query counts by arrival, and windows are over the event time. Nothing was printed. Switch the page to the event time, and copy its "
                "address again."
            )
        results = [f"{self._value(column)} AS {_alias(column)}" for column in query.group_by]
        results += [f"{self._aggregate(each)} AS {_alias(each.name)}" for each in query.aggregates]
        conditions = [self._condition(each) for each in query.filters]
        groups = ", ".join(
            [
                *map(self._value, query.group_by),
                f"tumble({self._time}, interval '{_interval(query.every or DEFAULT_INTERVAL)}')",
            ]
        )
        settings = "" if self._key in query.group_by else " WITH (two_phase = true)"
        where = f"\nWHERE {' AND '.join(conditions)}" if conditions else ""
        listed = ",\n    ".join(["window_start", *results])
        return (
            f"-- Source: {source}\n"
            f"-- From an exploration of {query.table}. The app counts all events from its start on, in windows, and all groups: it has neither the\n"
            f"-- time range, nor a comparison with an earlier one, nor the limit of groups of the page.\n{self._declaration()}\n\n"
            f"CREATE TABLE {_name(name)}{settings} AS\nSELECT\n    {listed}\nFROM {_name(query.table)}{where}\nGROUP BY {groups};\n"
        )

    @property
    def _time(self) -> str:
        return _name(self._field(str(self.category.event_time)).names[0])

    @property
    def _key(self) -> str | None:
        """The field with the key, if SQL can rely on it."""
        category = self.category
        is_known = category.partitioner is Partitioner.MURMUR2 and category.key_codec is KeyCodec.TEXT
        return category.key if is_known and isinstance(category.key, str) else None

    def _declaration(self) -> str:
        query, category = self.query, self.category
        used = [*query.group_by, *(each.column for each in query.aggregates), *(each.column for each in query.filters)]
        paths = [self._field(path) for path in [str(category.event_time), self._key, *used] if path is not None]
        columns = {path.names[0]: "jsonb" if len(path.names) > 1 else _type(path) for path in paths}
        settings = [
            f"time = '{self._field(str(category.event_time)).names[0]}'",
            f"buckets = {category.buckets}",
            f"codec = '{category.codec}'",
        ]
        settings += [] if self._key is None else [f"key = '{self._key}'"]
        writers = [
            each for each in self.app.processors if category.name in [output.name for output in plan_of(each).outputs]
        ]
        settings += ["watermark = 'upstream'"] if writers else []
        declared = ", ".join(f"{_name(column)} {kind}" for column, kind in columns.items())
        return f"CREATE CATEGORY {_name(query.table)} ({declared})\nWITH ({', '.join(settings)});"

    def _field(self, path: str) -> FieldPath:
        try:
            return find_field(self.category.name, "column", self.category.record_types[0], path)
        except DeclarationError as error:
            raise UnreadableQuery(f"{error} Nothing was printed. Name the app that declares the column.") from error

    def _value(self, column: str) -> str:
        """Return the code of a column, which may be a field of a nested record."""
        path = self._field(column)
        first, *rest = path.names
        if not rest:
            return _name(first)
        *steps, last = [f"'{_escaped(step)}'" for step in rest]
        text = " -> ".join([_name(first), *steps]) + f" ->> {last}"
        return f"({text})" if _type(path) == "text" else f"({text})::{_type(path)}"

    def _aggregate(self, aggregate: Aggregation) -> str:
        function, column, condition = aggregate.function, aggregate.column, aggregate.condition()
        if condition is not None:
            held = self._condition(condition)
            return f"avg(CASE WHEN {held} THEN 1 WHEN NOT ({held}) THEN 0 END)"
        value = "*" if column is None else self._value(column)
        if function == "distinct":
            return f"approx_count_distinct({value})"
        if function in {"sum", "avg"} and column is not None and _type(self._field(column)) == "boolean":
            value = f"CASE WHEN {value} THEN 1 WHEN NOT {value} THEN 0 END"
        return f"approx_quantile({value}, {_QUANTILES[function]})" if function in _QUANTILES else f"{function}({value})"

    def _condition(self, condition: Filter) -> str:
        column, op = self._value(condition.column), condition.op
        if op in {"is null", "is not null"} or condition.value is None:
            return f"{column} {op.upper()}"
        kind = _type(self._field(condition.column))
        values = condition.value if isinstance(condition.value, list) else [condition.value]
        literals = [_literal(kind, condition.column, value) for value in values]
        if op in {"in", "not in"}:
            return f"{column} {op.upper()} ({', '.join(literals)})"
        if op in {"contains", "starts with"}:
            text, sought = (
                column if kind == "text" else f"{column}::text",
                _literal("text", condition.column, values[0]),
            )
            return f"strpos({text}, {sought}) > 0" if op == "contains" else f"starts_with({text}, {sought})"
        return f"{column} {'<>' if op == '!=' else op} {literals[0]}"


def _interval(text: str) -> str:
    """Return a span such as 5m as an interval: 5 minutes."""
    span_ms = parse_span_ms(text, "every")
    unit, size_ms = next((unit, size_ms) for unit, size_ms in _UNITS if span_ms % size_ms == 0)
    return counted(span_ms // size_ms, unit).replace(",", "")


def _type(path: FieldPath) -> str:
    kind = _TYPES.get(type(path.shape))
    if kind is None:
        raise UnreadableQuery(
            f"Column {path.name} is a list, a dict, bytes or another type that queries in SQL do not compare. Nothing was printed. Remove it from the query."
        )
    return kind


def _literal(kind: str, column: str, value: Scalar) -> str:
    if kind in {"bigint", "double precision", "numeric"}:
        number = str(value)
        if not re.fullmatch(r"-?\d+(\.\d+)?", number):
            raise UnreadableQuery(
                f"{column} contains numbers, and {value!r} is none. Nothing was printed. Correct the filter."
            )
        return number
    if kind == "boolean":
        return "true" if str(value).lower() == "true" else "false"
    quoted = f"'{_escaped(str(value))}'"
    return quoted if kind == "text" else f"CAST({quoted} AS {kind})"


def _escaped(text: str) -> str:
    return text.replace("'", "''")


def _alias(column: str) -> str:
    return _name(re.sub(r"\W+", "_", column).strip("_"))


def _name(name: str) -> str:
    """Return a name, with quotes where SQL needs them."""
    is_plain = _SIMPLE.fullmatch(name) and name.upper() not in Postgres.Tokenizer.KEYWORDS
    return name if is_plain else '"' + name.replace('"', '""') + '"'
