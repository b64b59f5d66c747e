"""Tests of SQL files with example rows.

shop.sql --compiled--> processors on a bus in memory
shop_test.sql --parsed--> INSERT: events; ADVANCE: time; EXPECT: compared with the rows written since the last EXPECT
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...processors import AppFileError
from ...processors.apps import sql_app
from ...processors.declare import AnyCategory, AtWatermark, plan_of
from ...processors.lookups import LookupJoin, MemoryTable
from ...processors.sql import (
    Advance,
    ExampleRows,
    ExampleTest,
    Expect,
    Insert,
    InsertLookup,
    LookupTable,
    Relation,
    SqlApp,
    SqlText,
    parse_examples,
)
from ..kernel import Driver

_DIGITS = 12
"""The number of digits in which equal numbers with a point agree: sums depend on the order of their events."""


@dataclass(frozen=True)
class Difference:
    """An EXPECT with other rows than were written.

    Args:
        table: the table.
        line: the line of the EXPECT in the test file.
        columns: the compared columns.
        missing: the expected rows that were not written.
        unexpected: the written rows that were not expected.
        equal: the number of rows that were expected and written.
        waits: whether its rows are written when windows are complete.
    """

    table: str
    line: int
    columns: tuple[str, ...]
    missing: tuple[tuple[Any, ...], ...]
    unexpected: tuple[tuple[Any, ...], ...]
    equal: int
    waits: bool = False


@dataclass(frozen=True)
class ExampleResult:
    """The result of a test.

    Args:
        name: its name.
        differences: the differences that it found; empty if it passed.
    """

    name: str
    differences: tuple[Difference, ...]


def examples_of(file: Path) -> Path:
    """Return the test file of an SQL file, beside it: `shop_test.sql` of `shop.sql`."""
    return file.with_name(f"{file.stem}_test.sql")


def run_examples(file: Path, examples: Path) -> list[ExampleResult]:
    """Run the tests of an SQL file on a bus in memory.

    Raises:
        AppFileError: the test file is missing, or has no tests.
        DeclarationError: a statement of either file is invalid.
        PenstockError: a processor stopped at an event.
    """
    app = sql_app(file, file.stem)
    if not examples.is_file():
        raise AppFileError(
            f"The test file {examples} does not exist. Nothing was tested. Create it with INSERT and EXPECT statements, or name another one with "
            "--examples."
        )
    tests = parse_examples(SqlText.read(examples), app)
    if not any(isinstance(step, Expect) for test in tests for step in test.steps):
        raise AppFileError(
            f"{examples} expects nothing. Nothing was tested. Add a statement: EXPECT table (…) VALUES (…);"
        )
    return [ExampleResult(test.name, tuple(_run(app, test))) for test in tests]


def _run(app: SqlApp, test: ExampleTest) -> Iterator[Difference]:
    lookups = _LookupRows(app, test)
    driver = Driver(app.processors, sources=lookups.sources)
    seen: dict[str, Counter[Any]] = {}
    for step in test.steps:
        match step:
            case InsertLookup(lookup_rows):
                lookups.add(lookup_rows)
            case Insert(rows):
                driver.send(rows.table.category, _records(rows, rows.table.category.record))
            case Advance(time):
                driver.advance(time.total_seconds())
            case Expect(rows):
                written = Counter(driver.read(rows.table.category))
                new = written - seen.get(rows.table.name, Counter())
                seen[rows.table.name] = written
                waits = _waits_for_windows(app, rows.table.category)
                yield from (replace(each, waits=waits) for each in _difference(rows, list(new.elements())))


def _waits_for_windows(app: SqlApp, category: AnyCategory) -> bool:
    """Return whether a category contains results that are written when their window is complete."""
    return any(
        isinstance(getattr(writer, "emit", None), AtWatermark)
        or any(_waits_for_windows(app, read) for read in plan_of(writer).inputs)
        for writer in app.processors
        if category in plan_of(writer).outputs
    )


class _LookupRows:
    """The rows that a test inserts into lookup tables. They replace the sources of these tables; other tables keep theirs.

    Args:
        app: the tested file.
        test: the test.
    """

    def __init__(self, app: SqlApp, test: ExampleTest) -> None:
        self._rows: dict[str, dict[str, Any]] = {
            step.rows.table.name: {} for step in test.steps if isinstance(step, InsertLookup)
        }
        self.sources = {
            processor: MemoryTable(self._rows[name])
            for name in self._rows
            for processor in app.processors
            if issubclass(processor, LookupJoin) and processor.source is app.lookups[name].source
        }

    def add(self, rows: ExampleRows[LookupTable]) -> None:
        """Add rows to a lookup table; a row replaces the one of the same key."""
        table = rows.table
        for row in _records(rows, table.record):
            self._rows[table.name][str(getattr(row, table.attributes[table.key]))] = row


def _records(rows: ExampleRows[Relation] | ExampleRows[LookupTable], record: type[Any]) -> list[Any]:
    names = [rows.table.attributes[name] for name in rows.columns]
    return [record(**dict(zip(names, values, strict=True))) for values in rows.values]


def _difference(rows: ExampleRows[Relation], written: Sequence[Any]) -> Iterator[Difference]:
    """Yield the difference between expected and written rows, if there is one."""
    expected = Counter(tuple(map(_rounded, values)) for values in rows.values)
    found = Counter(_values(rows.table, rows.columns, record) for record in written)
    if found != expected:
        yield Difference(
            rows.table.name,
            rows.line,
            rows.columns,
            tuple((expected - found).elements()),
            tuple((found - expected).elements()),
            (expected & found).total(),
        )


def _values(table: Relation, columns: Sequence[str], record: Any) -> tuple[Any, ...]:
    return tuple(_rounded(getattr(record, table.attributes[name])) for name in columns)


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
