"""Answers for Grafana's JSON data source (simpod-json-datasource, and simple-json-datasource before it).

GET  /          the test of the connection
POST /search    the metrics, as PROCESSOR:FIELD
POST /metrics   the same with labels
POST /query     time series or tables of PROCESSOR:FIELD or PROCESSOR:FIELD:KEY
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ....processors.declare import fields_of
from .answers import Row
from .parameters import MAX_LIMIT, BadQuery, TimeSpan, parse_time_ms
from .queries import Queries, rows_of
from .result_table import Result, ResultTable
from .served import ServedProcessor

MAX_SERIES = 20
"""The number of keys of a target without a key: those with the largest value in the range of the panel."""
_TABLE = "table"


class Range(msgspec.Struct, frozen=True, rename={"begin": "from", "end": "to"}):
    """The time range of a panel, as ISO times."""

    begin: str
    end: str


class GrafanaTarget(msgspec.Struct, frozen=True):
    """A query of a panel.

    Args:
        target: the metric; PROCESSOR:FIELD or PROCESSOR:FIELD:KEY.
        type: "timeserie" or "table".
        hide: whether the panel does not show it.
        payload: further parameters: `{"key": …}`.
    """

    target: str | None = None
    type: str = "timeserie"
    hide: bool = False
    payload: Any = None


class PanelQuery(msgspec.Struct, frozen=True):
    """The request of a panel."""

    range: Range
    targets: list[GrafanaTarget]


class Series(msgspec.Struct, frozen=True):
    """A time series: pairs of a value and a time (milliseconds since 1970, UTC), in order of time."""

    target: str
    datapoints: list[tuple[Any, int]]


class GrafanaColumn(msgspec.Struct, frozen=True):
    """A column of a table."""

    text: str
    type: str


class Table(msgspec.Struct, frozen=True, tag_field="type", tag=_TABLE):
    """The rows of the results, with their window, key and fields."""

    columns: list[GrafanaColumn]
    rows: list[list[Any]]


class _Metric(NamedTuple):
    """What a target names."""

    served: ServedProcessor
    field: str
    key: str | None


class GrafanaQueries:
    """Answers the requests of the data source.

    Args:
        queries: has the results.
    """

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self.routes: Mapping[str, Callable[[bytes], Any]] = {
            "/search": lambda _: self.metrics(),
            "/metrics": lambda _: [{"label": name, "value": name} for name in self.metrics()],
            "/query": self.query,
            "/metric-payload-options": lambda _: [],
            "/variable": lambda _: [],
            "/annotations": lambda _: [],
            "/tag-keys": lambda _: [],
            "/tag-values": lambda _: [],
        }

    def metrics(self) -> list[str]:
        """Return the numeric fields of all processors."""
        return [f"{name}:{field}" for name, served in self._queries.served.items() for field in served.numbers]

    def query(self, body: bytes) -> list[Series | Table]:
        """Return the series and tables of a panel."""
        try:
            asked = msgspec.json.decode(body, type=PanelQuery)
        except msgspec.MsgspecError as error:
            raise BadQuery(f"The request is not one of a Grafana panel: {error}. Send range and targets.") from error
        now_ms = self._queries.now_ms()
        span = TimeSpan(
            parse_time_ms("range.from", asked.range.begin, now_ms), parse_time_ms("range.to", asked.range.end, now_ms)
        )
        found: list[Series | Table] = []
        for target in asked.targets:
            if target.target and not target.hide:
                found += self._of_target(target, span)
        return found

    def _of_target(self, target: GrafanaTarget, span: TimeSpan) -> Sequence[Series | Table]:
        metric = self._metric(target)
        table = self._queries.follower.table(metric.served.name)
        with self._queries.follower.lock:
            results = _results(metric, table, span)
        rows = [row for of_key in results.values() for result in of_key for row in rows_of(result)]
        self._queries.on_read(metric.served.name)
        if target.type == _TABLE:
            return [_table(metric.served, rows)]
        return _series(metric, results)

    def _metric(self, target: GrafanaTarget) -> _Metric:
        name, _, rest = (target.target or "").partition(":")
        field, has_key, key = rest.partition(":")
        served = self._queries.processor(name)
        if field not in served.numbers:
            raise BadQuery(
                f"{target.target!r} names no numeric field of {name}. Choose one of: {', '.join(served.numbers) or 'none'}."
            )
        named = target.payload.get("key") if isinstance(target.payload, dict) else None
        return _Metric(served, field, key if has_key else named if isinstance(named, str) and named else None)


def _results(metric: _Metric, table: ResultTable, span: TimeSpan) -> dict[str, list[Result]]:
    """Return the results by key, in order of time."""
    slots = table.slots_overlapping(span.begin_ms, span.end_ms) if metric.served.is_windowed else table.last_slots(1)
    if metric.key is not None:
        key = table.known(metric.served.spellings(metric.key))
        return {metric.key: table.in_slots(key, slots)[-MAX_LIMIT:]}
    weight, highest = metric.served.weight(metric.field), dict[str, float]()
    for slot in slots:
        for result in table.pane(slot):
            values = [value for record in result.records if (value := weight(record)) is not None]
            highest[result.key] = max([*values, highest.get(result.key, float("-inf"))])
    keys = heapq.nsmallest(MAX_SERIES, highest, lambda key: (-highest[key], key))
    return {key: table.in_slots(key, slots)[-MAX_LIMIT:] for key in keys}


def _series(metric: _Metric, results: Mapping[str, Sequence[Result]]) -> list[Series]:
    weight, points = metric.served.weight(metric.field), dict[str, list[tuple[Any, int]]]()
    for key, of_key in results.items():
        for result in of_key:
            time_ms = result.event_time if result.window is None else result.window.start
            for record in result.records:
                # Several records of a key and window differ in their text, such as the items of a ranking.
                labels = (
                    [key, *(str(getattr(record, name)) for name in metric.served.texts)]
                    if len(result.records) > 1
                    else [key]
                )
                points.setdefault(" ".join(labels), []).append((weight(record), time_ms))
    return [Series(name, datapoints) for name, datapoints in points.items()]


def _table(served: ServedProcessor, rows: Sequence[Row]) -> Table:
    fields = {name: field.name for name, field in fields_of(served.category.record).items()}
    columns = [GrafanaColumn("Time", "time"), GrafanaColumn("Key", "string")]
    columns += [GrafanaColumn(name, "number" if name in served.numbers else "string") for name in fields]
    cells = [
        [
            row.event_time if row.window is None else row.window.start,
            row.key,
            *(getattr(row.result, attribute) for attribute in fields.values()),
        ]
        for row in rows
    ]
    return Table(columns, cells)
