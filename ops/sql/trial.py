"""A trial of a query on past events: nothing is written, and nothing is deployed.

shop.sql and SELECT --compiled--> processors of the query
Kafka, last 10 minutes --events--> the same processors on a bus in memory --rows--> table
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from ...processors import did_you_mean
from ...processors.apps import sql_app
from ...processors.declare import Aggregator, AnyCategory, Processor, plan_of
from ...processors.sql import Relation, SqlApp, SqlText
from ...transport import Bus
from ..kernel import Driver
from ..look_back import Records, read

TRIAL = "trial_of_a_query"
"""The name of the table that a trial computes."""
_SLICES = 20
"""The number of parts in which the events of several categories alternate."""
_SETTLE_S = 3_600.0
"""The time that passes after the last event, so that silent buckets hold back no window."""

_QUERY = re.compile(r"(?:\s|\(|--[^\n]*\n|/\*.*?\*/)*(?:select|with)\b", re.IGNORECASE | re.DOTALL)
_COLUMN = r"\w+(?:\s+(?:asc|desc))?"
_ORDER = re.compile(
    rf"\s(?:order\s+by\s+(?P<order>{_COLUMN}(?:\s*,\s*{_COLUMN})*))?\s*(?:\blimit\s+(?P<limit>\d{{1,9}}))?$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class TrialResult:
    """The rows of a query.

    Args:
        columns: the columns.
        rows: the rows, in order of event time, or as the query orders them.
        times: the columns with times in milliseconds since 1970, UTC.
        read: the number of events of each category.
        undecodable: the number of messages that did not decode.
        dead_letters: the number of events that a processor of the query rejected.
        truncated: the categories with as many events as the limit; earlier ones were not read.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    times: Collection[str]
    read: Mapping[str, int] = field(default_factory=dict)
    undecodable: int = 0
    dead_letters: int = 0
    truncated: Sequence[str] = ()


class TriedTable(NamedTuple):
    """A table that queries can read.

    Args:
        name: its name in queries.
        category: its category.
        columns: its columns.
    """

    name: str
    category: str
    columns: Sequence[str]


@dataclass(frozen=True)
class TrialOrder:
    """ORDER BY and LIMIT of a tried query. Streams have no order, so only a trial has them.

    Args:
        columns: the columns, and whether the largest value is first.
        limit: the largest number of rows; None for all.
    """

    columns: Sequence[tuple[str, bool]] = ()
    limit: int | None = None

    def sort(self, query: str, table: Relation, records: list[Any]) -> None:
        """Sort records in place; NULL is last.

        Raises:
            SqlRefused: a column is unknown.
        """
        for name, is_descending in reversed(self.columns):
            if name not in table.columns:
                raise SqlText("query", query).refusal(
                    len(query),
                    f"ORDER BY names no column of the result: {name}.{did_you_mean(name, list(table.columns))}",
                )
            attribute = table.attributes[name]
            known = [record for record in records if getattr(record, attribute) is not None]
            missing = [record for record in records if getattr(record, attribute) is None]
            known.sort(key=attrgetter(attribute), reverse=is_descending)
            records[:] = [*known, *missing]


def split_order(query: str) -> tuple[str, TrialOrder]:
    """Return a query without ORDER BY and LIMIT at its end, and these.

    Examples:
        >>> split_order("SELECT a FROM t ORDER BY a DESC LIMIT 5")
        ('SELECT a FROM t', Order(columns=[('a', True)], limit=5))
    """
    query = query.strip().rstrip(";").rstrip()
    found = _ORDER.search(query)
    if found is None:
        return query, TrialOrder()
    parts = [part.split() for part in (found["order"] or "").split(",") if part]
    columns = [(part[0], part[-1].lower() == "desc") for part in parts]
    return query[: found.start()].rstrip(), TrialOrder(columns, int(found["limit"]) if found["limit"] else None)


@dataclass(frozen=True)
class QueryTrial:
    """Tries queries on the tables of an SQL file.

    Args:
        file: the file.
        bus: the bus with the events.
        last: how long ago the first event arrived.
        limit: the largest number of events of each category; of more, the last ones.
    """

    file: Path
    bus: Bus
    last: timedelta
    limit: int = 200_000

    def tables(self) -> list[TriedTable]:
        """Return the tables of the file.

        Raises:
            SqlRefused: the file is invalid.
        """
        relations = sql_app(self.file, self.file.stem).relations.values()
        return [TriedTable(each.name, each.category.name, list(each.columns)) for each in relations]

    def run(self, query: str) -> TrialResult:
        """Return the rows of a SELECT over the events.

        Raises:
            SqlRefused: the query is invalid or unsupported.
            BusError: a category is missing, or no broker answers.
            PenstockError: a processor stopped at an event.
        """
        query, order = split_order(query)
        if not _QUERY.match(query):
            raise SqlText("query", query).refusal(
                0,
                "This is not a SELECT.",
                "Try a query, such as SELECT page, count(*) AS views FROM views GROUP BY page. Other statements belong in the file.",
            )
        known = {processor.name for processor in sql_app(self.file, self.file.stem).processors}
        app = self._compiled(query)
        processors = [each for each in app.processors if each.name not in known]
        inputs = _inputs(processors)
        records = [read(category, last=self.last, limit=self.limit, bus=self.bus) for category in inputs]
        driver = Driver(processors)
        for part in _alternating(records):
            driver.send(part.category, part.records)
        driver.advance(_SETTLE_S)
        output = app.relations[TRIAL]
        found = driver.read(output.category)
        if issubclass(processors[-1], Aggregator):
            found = _last_of_each(output.category, found)
        found.sort(key=lambda record: output.category.event_times_of([record])[0])
        order.sort(query, output, found)
        attributes = [output.attributes[name] for name in output.columns]
        return TrialResult(
            list(output.columns),
            [[getattr(record, attribute) for attribute in attributes] for record in found[: order.limit]],
            {output.time, "window_start", "window_end"},
            {each.category.name: len(each) for each in records},
            sum(each.undecodable for each in records),
            sum(len(driver.dead_letters(processor)) for processor in processors),
            [each.category.name for each in records if len(each) + each.undecodable >= self.limit],
        )

    def _compiled(self, query: str) -> SqlApp:
        before = f"{SqlText.read(self.file).text}\n;\nCREATE TABLE {TRIAL} AS\n"
        return sql_app(self.file, self.file.stem, SqlText("query", before + query, len(before)))


def _inputs(processors: Sequence[type[Processor]]) -> list[AnyCategory]:
    """Return the categories that processors read and do not write."""
    written = {category.name for processor in processors for category in plan_of(processor).outputs}
    read_ones = {category.name: category for processor in processors for category in plan_of(processor).sources}
    return [category for name, category in read_ones.items() if name not in written]


def _alternating(inputs: Sequence[Records]) -> list[Records]:
    """Return the events of several categories in turns, in order of arrival."""
    if len(inputs) == 1:
        return list(inputs)
    arrivals = [origin.at_ms or 0 for records in inputs for origin in records.origins]
    if not arrivals:
        return []
    first, step = min(arrivals), (max(arrivals) - min(arrivals)) // _SLICES + 1
    parts = []
    for begin in range(first, max(arrivals) + 1, step):
        for records in inputs:
            chosen = [at for at, origin in enumerate(records.origins) if begin <= (origin.at_ms or 0) < begin + step]
            if chosen:
                parts.append(records[chosen[0] : chosen[-1] + 1])
    return parts


def _last_of_each(category: AnyCategory, records: Sequence[Any]) -> list[Any]:
    """Return the last record of each key and event time: later ones replace it."""
    places = zip(category.keys_of(records), category.event_times_of(records), strict=True)
    return list(dict(zip(places, records, strict=True)).values())
