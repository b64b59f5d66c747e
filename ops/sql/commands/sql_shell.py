"""`penstock sql shell`: tries queries on the last events of categories."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from ....backfill.warehouse import open_warehouse
from ....processors import PenstockError, counted
from ...shell import (
    DEFAULT_FOLDER,
    AsJson,
    Folder,
    Kafka,
    Warehouse,
    connect,
    format_time,
    note,
    parse_span,
    print_error,
    print_json,
    print_table,
    warehouse_location,
)
from ..trial import QueryTrial, TrialResult, TriedTable
from ..warehouse_trial import WarehouseTrial

_PROMPT, _CONTINUED = "penstock> ", "       -> "
_HELP = "End a SELECT with a semicolon. \\d lists the tables, \\last 1h changes the time span, \\q ends."


class Trial(Protocol):
    """Runs queries and changes nothing."""

    def tables(self) -> list[TriedTable]:
        """Return the tables that queries can read."""
        ...

    def run(self, query: str) -> TrialResult:
        """Return the rows of a SELECT.

        Raises:
            PenstockError: the query is refused.
        """
        ...


def shell(
    file: Annotated[
        Path | None,
        typer.Argument(help="An SQL file with the tables.", exists=True, dir_okay=False, show_default=False),
    ] = None,
    last: Annotated[str, typer.Option(help="How long ago the first event arrived: 30s, 10m, 2h or 7d.")] = "10m",
    query: Annotated[
        str | None, typer.Option("--query", "-q", help="Try this SELECT and end.", show_default=False)
    ] = None,
    limit: Annotated[
        int, typer.Option(help="The largest number of events of each category; of more, the last ones.", min=1)
    ] = 200_000,
    source: Annotated[
        str,
        typer.Option(
            "--source",
            metavar="bus|warehouse",
            help="The source of events; with warehouse, the tables are the archived categories, and the SQL is DuckDB's.",
        ),
    ] = "bus",
    warehouse: Warehouse = None,
    kafka: Kafka = None,
    folder: Folder = DEFAULT_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Try SELECTs on the last events of the tables in an SQL file, and print the rows.

    A query runs in this process with the engine of the workers. Nothing is written or deployed. It may end in ORDER BY and LIMIT. Without
    --query, it reads queries from the terminal or from standard input.

    With --source warehouse, DuckDB runs the queries on the archive.

    Example: penstock sql shell --source warehouse --query "SELECT page, count(*) FROM views WHERE ds = '2026-01-31' GROUP BY page"

    Example: penstock sql shell shop.sql --last 10m --query "SELECT page, count(*) AS views FROM views GROUP BY page ORDER BY views DESC"
    """
    trial: Trial
    if source == "warehouse":
        trial = WarehouseTrial(open_warehouse(warehouse_location(warehouse, folder)))
    elif source != "bus" or file is None:
        raise typer.BadParameter("Name an SQL file with the tables, or pass --source warehouse.")
    else:
        trial = QueryTrial(file, connect(kafka, folder), parse_span(last), limit)
        trial.tables()  # reports an error in the file before the first query
    if query is not None:
        _print(trial.run(query), as_json=as_json)
        return
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        with suppress(ModuleNotFoundError):
            import_module("readline")  # `input` then edits lines and remembers them
        note(_HELP)
    failed = False
    for statement in _statements(is_terminal=is_terminal):
        try:
            trial = _run(trial, statement, as_json=as_json)
        except (PenstockError, typer.BadParameter) as error:
            print_error(str(error))
            failed = True
    if failed and not is_terminal:
        raise typer.Exit(1)


def _run(trial: Trial, statement: str, *, as_json: bool) -> Trial:
    """Run a query or a command of the shell. Return the trial for the next one."""
    word, _, rest = statement.partition(" ")
    if word == "\\d":
        _print_tables(trial)
    elif word == "\\last" and isinstance(trial, QueryTrial):
        return replace(trial, last=parse_span(rest))
    elif statement.startswith("\\"):
        note(_HELP)
    else:
        _print(trial.run(statement), as_json=as_json)
    return trial


def _statements(*, is_terminal: bool) -> Iterator[str]:
    """Yield queries, which end with a semicolon, and commands, which begin with a backslash, up to the end of the input."""
    lines: list[str] = []
    while True:
        try:
            line = input((_CONTINUED if lines else _PROMPT) if is_terminal else "")
        except (EOFError, KeyboardInterrupt):
            break
        if not lines and line.strip() in {"\\q", "exit", "quit"}:
            return
        if not lines and line.startswith("\\"):
            yield line.strip()
            continue
        lines += [line] if line.strip() or lines else []
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
    if lines and not is_terminal:
        yield "\n".join(lines)


def _print_tables(trial: Trial) -> None:
    rows = [[table.name, table.category, ", ".join(table.columns)] for table in trial.tables()]
    print_table(["table", "category", "columns"], rows)


def _print(result: TrialResult, *, as_json: bool) -> None:
    if as_json:
        for row in result.rows:
            print_json(dict(zip(result.columns, row, strict=True)))
    else:
        print_table(
            result.columns,
            [list(map(_shown, row, (name in result.times for name in result.columns))) for row in result.rows],
        )
    events = ", ".join(f"{counted(events, 'event')} of {name}" for name, events in result.read.items())
    lost = f" {counted(result.undecodable, 'message')} did not decode." if result.undecodable else ""
    rejected = f" {counted(result.dead_letters, 'event')} would become dead letters." if result.dead_letters else ""
    names = ", ".join(result.truncated)
    partial = f" Earlier events of {names} in this time span were not read: increase --limit for more." if names else ""
    note(f"{counted(len(result.rows), 'row')}{f' from {events}' if events else ''}.{lost}{rejected}{partial}")


def _shown(value: Any, is_time: bool) -> object:
    if value is None:
        return "NULL"
    return format_time(value) if is_time and isinstance(value, int) else value
