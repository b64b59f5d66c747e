"""Output of commands: tables and notes for people, JSON lines for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ....processors import printable
from ..logs import logs_json, reopen_standard_streams

_LOG = logging.getLogger("penstock.command")
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
UNWRAPPED = 100_000
"""The width of tables that a program reads: wide enough for one line per row."""


def print_error(text: str, stack: str = "") -> None:
    """Print an error, after the lines of user code that caused it; with --log-format json, log both."""
    if logs_json():
        _LOG.error("%s", text, extra={"stack": stack} if stack else None)
        return
    reopen_standard_streams()
    if stack:
        err.out(printable(stack).rstrip(), highlight=False)
    err.print(f"[bold red]Error:[/] {escape(text)}", soft_wrap=not err.is_terminal)


def note(text: str) -> None:
    """Print a note on standard error; with --log-format json, log it."""
    if logs_json():
        _LOG.info("%s", text)
        return
    reopen_standard_streams()
    err.print(escape(text), soft_wrap=True)


def note_after_interruption(text: str) -> None:
    """Print a note, also if the interruption came in the middle of another one, which leaves the shared console collecting for ever."""
    if logs_json():
        note(text)
        return
    reopen_standard_streams()
    Console(stderr=True, highlight=False).print(escape(text), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print one JSON value on one line."""
    reopen_standard_streams()
    out.out(json.dumps(value, default=str), highlight=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table."""
    table_console().print(table_of(columns, rows))


def table_console() -> Console:
    """Return the console for tables. A program, such as grep, reads lines: without a terminal, none is wrapped."""
    return out if out.is_terminal else Console(file=out.file, width=UNWRAPPED, highlight=False)


def table_of(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table. Numbers are right-aligned, with separators."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], (int, float)) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, (int, float)) else escape(str(cell)) for cell in row))
    return table


def print_facts(values: Mapping[str, object]) -> None:
    """Print names and values, one per line."""
    width = max(map(len, values))
    for name, value in values.items():
        out.print(f"[bold]{name:<{width}}[/]  {escape(str(value))}", soft_wrap=True)


ReportStep: TypeAlias = Callable[[str], None]
"""Receives a line of text for each step of long work, for the person at the terminal."""


def progress() -> Progress:
    """Return a progress display on standard error; disabled without a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        disable=logs_json() or not err.is_terminal,
    )
