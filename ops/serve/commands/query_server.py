"""Queries of a server that `penstock serve results` started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ....processors import UNKNOWN, counted, human_duration
from ....processors.time import Window
from ...shell import format_time, format_window, note, parse_span, parse_time_ms, print_json, print_table
from ..results import AsOf, ProcessorInfo, QueryClient, Row, Rows

Server = Annotated[
    str,
    typer.Option(
        "--server",
        envvar="PENSTOCK_SERVER",
        metavar="URL",
        help="The address of a query server (`penstock serve results`).",
    ),
]


@dataclass(frozen=True)
class ServerAccess:
    """The address of a server, and what it requires.

    Args:
        url: its address.
        token: its token; None without one.
        ca_file: the certificates to trust.
    """

    url: str
    token: str | None = field(repr=False)
    ca_file: Path | None

    def connect(self) -> QueryClient:
        """Return a client."""
        return QueryClient(self.url, token=self.token, ca_file=self.ca_file)


@dataclass(frozen=True)
class ServerQuery:
    """A query, as on the command line.

    Args:
        processor: the processor; None for a list of them.
        key: the key; None for a list of them, or for a ranking.
        at: the time of a window.
        span: the time span before now.
        top: the number of ranked results; None for no ranking.
        by: the field that ranks.
        limit: the largest number of results.
    """

    processor: str | None
    key: str | None
    at: str | None
    span: str | None
    top: int | None
    by: str | None
    limit: int

    def __post_init__(self) -> None:
        if self.top is not None and self.key is not None:
            raise typer.BadParameter("--top ranks all keys, so it excludes a key. Leave one of them out.")
        if self.by is not None and self.top is None:
            raise typer.BadParameter("--by needs --top, the number of results.")
        if self.at is not None and self.span is not None:
            raise typer.BadParameter("--at and --last exclude each other. Leave one of them out.")
        if self.at is not None and self.key is None and self.top is None:
            raise typer.BadParameter("--at needs a key or --top.")

    @property
    def at_ms(self) -> int | None:
        """The time of the window (milliseconds since 1970, UTC)."""
        return None if self.at is None else parse_time_ms(self.at)

    @property
    def last(self) -> timedelta | None:
        """The time span before now."""
        return None if self.span is None else parse_span(self.span)


def print_answer(access: ServerAccess, query: ServerQuery, *, json: bool) -> None:
    """Print the answer of a server.

    Raises:
        PenstockError: the server refuses the query, or does not answer.
    """
    with access.connect() as client:
        if query.processor is None:
            _print_processors(client.processors(), json=json)
        elif query.top is not None:
            rows = client.top(query.processor, query.top, by=query.by, at=query.at_ms, last=query.last)
            _print_rows(rows, json=json)
        elif query.key is not None:
            rows = client.results(query.processor, query.key, at=query.at_ms, last=query.last, limit=query.limit)
            _print_rows(rows, json=json)
        else:
            keys = list(islice(client.keys(query.processor, last=query.last), query.limit + 1))
            _print_keys(keys, query.limit, json=json)


def _print_processors(processors: Sequence[ProcessorInfo], *, json: bool) -> None:
    if json:
        for each in processors:
            print_json(msgspec.to_builtins(each))
        return
    rows = [
        [each.processor, each.windows or "", ", ".join(each.fields), each.keys, each.results, _lag(each.as_of)]
        for each in processors
    ]
    print_table(["processor", "windows", "fields", "keys", "results", "lag"], rows)


def _print_keys(keys: Sequence[str], limit: int, *, json: bool) -> None:
    if json:
        for key in keys[:limit]:
            print_json({"key": key})
        return
    print_table(["key"], [[key] for key in keys[:limit]])
    if len(keys) > limit:
        note(f"There are more than {counted(limit, 'key')}. Increase --limit, or name a key.")


def _print_rows(rows: Rows, *, json: bool) -> None:
    if json:
        for row in rows.results:
            print_json({**msgspec.to_builtins(row), "as_of": msgspec.to_builtins(rows.as_of)})
        return
    if rows.results:
        names = dict.fromkeys(name for row in rows.results for name in row.result)
        fields = [name for name in names if any(_is_news(row, name) for row in rows.results)]
        print_table(["key", "window", *fields], [_cells(row, fields) for row in rows.results])
    else:
        note("There is no result. `penstock query PROCESSOR` lists the keys.")
    note(_age(rows.as_of))


def _is_news(row: Row, name: str) -> bool:
    """Return whether a field says more than the key and the window."""
    value = row.result.get(name)
    bounds = () if row.window is None else (row.window.start, row.window.end)
    return value not in (row.event_time, *bounds) and str(value) != _key_text(row.key)


def _key_text(key: str) -> str:
    """Return a key for people. A key of several columns, or one that can be NULL, is the JSON of a list."""
    try:
        columns = msgspec.json.decode(key, type=list[str | int | float | bool | None])
    except msgspec.MsgspecError:
        return key
    return ", ".join("NULL" if column is None else str(column) for column in columns)


def _cells(row: Row, fields: Sequence[str]) -> list[object]:
    values: Mapping[str, Any] = row.result
    window = row.window
    time = format_time(row.event_time) if window is None else format_window(Window(window.start, window.end))
    return [_key_text(row.key), time, *(_shown(values.get(name)) for name in fields)]


def _shown(value: Any) -> object:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return value
    return "" if value is None else dumps(value, ensure_ascii=False)


def _age(as_of: AsOf) -> str:
    state = "" if as_of.state is None else f" The processor is {as_of.state}."
    problem = f" {as_of.problem}" if as_of.problem else ""
    return f"As of {format_time(as_of.measured_at)}: {_lag(as_of)}.{state}{problem}"


def _lag(as_of: AsOf) -> str:
    if as_of.lag_events is None:
        return f"lag {UNKNOWN}"
    if as_of.lag_events == 0:
        return "no lag"
    age = "" if as_of.lag_s is None else f" ({human_duration(as_of.lag_s)})"
    return f"{counted(as_of.lag_events, 'event')} behind{age}"
