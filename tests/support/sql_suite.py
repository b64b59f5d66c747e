"""Queries that run on a stream and on an oracle over the same rows.

sql_suite/*.sql --parsed--> cases
rows --in batches, with a crash after each--> processors on a bus in memory --> results, compared with DuckDB over all rows
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec

from penstock.processors.declare import Aggregator, AtCheckpoint, Join, Processor, TableJoin, plan_of
from penstock.processors.shard import Step
from penstock.processors.sql import Relation, SqlApp, SqlText, SqlType, compile_app
from penstock.processors.sql.cursor import parsed_sql, statements_of
from penstock.processors.sql.errors import SqlRefused
from penstock.processors.sql.expressions import StatementProgram
from penstock.processors.time import GlobalWindow
from penstock.testing import Crash, Driver

FOLDER = Path(__file__).parents[1] / "unit" / "sql_suite"
THEMES = (
    "projections",
    "filters",
    "conditionals",
    "texts",
    "times",
    "documents",
    "decimals",
    "groups",
    "windows",
    "distinct",
    "nested",
    "joins",
)
HOUR_MS = 3_600_000
_DIGITS = 9
"""The digits in which doubles agree: sums depend on the order of their events."""
_CRASHES: Sequence[Sequence[Crash]] = ([Crash(before=Step.COMMIT_TRANSACTION)], [Crash()], [])
"""What happens after each batch."""
_CLOSING_KEYS = 8
"""Enough keys for an event in each bucket."""


class Fact(NamedTuple):
    """A constant expression with the text of its value in PostgreSQL."""

    expression: str
    text: str


@dataclass(frozen=True)
class Case:
    """A query of the suite.

    Args:
        theme: the file that contains it.
        name: its name.
        query: its text for Penstock.
        oracle: its text for DuckDB.
        facts: what PostgreSQL defines otherwise than DuckDB.
    """

    theme: str
    name: str
    query: str
    oracle: str
    facts: tuple[Fact, ...]

    def __str__(self) -> str:
        return f"{self.theme}: {self.name}"


def cases() -> Iterator[Case]:
    """Yield the cases of all files.

    A case begins with `-- case: its name`. Its query follows; `-- oracle` precedes the text for DuckDB if that is another one. `-- postgres: why`
    precedes lines such as `-- 7 / 2 => 3`.
    """
    for theme in THEMES:
        _, *blocks = f"\n{(FOLDER / f'{theme}.sql').read_text(encoding='utf-8')}".split("\n-- case: ")
        for block in blocks:
            statements, _, differences = block.partition("\n-- postgres: ")
            name, _, body = statements.partition("\n")
            query, _, oracle = body.partition("\n-- oracle\n")
            lines = [line.removeprefix("-- ") for line in differences.splitlines()[1:]]
            facts = tuple(Fact(*line.split(" => ", 1)) for line in lines)
            yield Case(theme, name, query.strip(), (oracle or query).strip(), facts)


Rows = dict[str, list[dict[str, Any]]]
"""The rows of each table, in order of arrival."""


def made_up_batches() -> list[Rows]:
    """Return batches of rows whose event times are in no order, also across the batches."""
    dice = random.Random(11)
    rows: Rows = {"views": [], "orders": [], "payments": [], "items": []}
    for number in range(60):
        rows["views"].append(_view(dice, number))
    for number in range(36):
        paid = number % 2
        rows["payments" if paid else "orders"].append(
            {
                "seen": dice.randrange(0, 360) * 500,
                "customer": dice.choice(["ann", "bob"]),
                "item": dice.choice([None, "cup", "pen", "hat"]),
                ("paid" if paid else "cents"): dice.randrange(6),
            }
        )
    # Payments at the time of orders, and at the bounds of intervals.
    rows["payments"] += [
        {"seen": order["seen"] + offset, "customer": order["customer"], "item": order["item"], "paid": 5}
        for order, offset in zip(rows["orders"], (0, 20_000, 30_000, -10_000, 60_000, 10_000), strict=False)
    ]
    # One row of an item at each time: the order of two at the same time is undefined.
    rows["items"] += [
        {"seen": at * 7_000, "item": item, "price": dice.randrange(5)} for at, item in enumerate(["cup", "pen"] * 5)
    ]
    return [{table: listed[at :: len(_CRASHES)] for table, listed in rows.items()} for at in range(len(_CRASHES))]


def _view(dice: random.Random, number: int) -> dict[str, Any]:
    start = datetime(2026, 3, 28, 22, tzinfo=UTC)  # the clocks of Berlin change in the night
    document: dict[str, Any] = {
        "kind": dice.choice(["click", "scroll"]),
        "tags": [dice.choice("abc") for _ in range(dice.randrange(1, 4))],
        "share": dice.choice([0.25, 2.5, 7.0]),
        "inner": {"n": dice.randrange(4)},
    }
    if number % 3:
        document |= {"amount": dice.randrange(1, 6), "ok": dice.random() < 0.5}
    return {
        "seen": dice.randrange(0, 600) * 500,
        "id": number,
        "customer": dice.choice(["ann", "bob", "eve"]),
        "page": dice.choice([None, "", "/", "/a", "/ab", "/A b", " 5% "]),
        "milliseconds": dice.choice([None, 0.0, -0.0, *(dice.randrange(0, 80) / 4 for _ in range(5))]),
        "weight": dice.choice([None, *range(-3, 9)]),
        "price": dice.choice(
            [None, Decimal("1.5"), Decimal("1.50"), *(Decimal(dice.randrange(-3000, 9000)) / 1000 for _ in range(6))]
        ),
        "happened": dice.choice([None, *[start + timedelta(seconds=dice.randrange(0, 40_000) / 4) for _ in range(5)]]),
        "born": dice.choice([None, *map(_day, ("1999-12-31", "2000-02-29", "2024-12-31", "2026-06-01"))]),
        "active": dice.choice([None, True, False]),
        "payload": document if number % 7 else None,
    }


def _day(text: str) -> Any:
    return datetime.fromisoformat(text).date()


def connected_oracle(batches: Sequence[Rows]) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with the rows of all batches, and macros for windows."""
    connection = duckdb.connect()
    connection.execute((FOLDER / "oracle_tables.sql").read_text(encoding="utf-8").replace("{folder}", str(FOLDER)))
    for rows in batches:
        for table, listed in rows.items():
            for row in listed:
                values = [json.dumps(value) if isinstance(value, dict) else value for value in row.values()]
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", values)
    return connection


def _name_of(table: str) -> str:
    """Return the name in CREATE CATEGORY or CREATE LOOKUP TABLE."""
    return table.partition(" (")[0].split()[-1]


def compiled(query: str, further: str = "") -> SqlApp:
    """Return the app whose table `found` contains the results of a query.

    Args:
        query: the query.
        further: settings of the table, each after a comma.
    """
    declared = (FOLDER / "tables.sql").read_text(encoding="utf-8").replace("{folder}", str(FOLDER)).strip()
    tables = "".join(f"{each};\n" for each in declared.rstrip(";").split(";\n") if _name_of(each) in query.lower())
    settings = f"WITH (semantics = 'exactly once', out_of_orderness = '30 minutes', buckets = 2{further})"
    return compile_app(SqlText("suite.sql", f"{tables}\nCREATE TABLE found {settings} AS\n{query};"), __name__)


def compiled_in_two_phases(query: str) -> SqlApp | None:
    """Return the app with aggregates in two phases, or None if two phases are refused."""
    try:
        return compiled(query, ", two_phase = true")
    except SqlRefused as refused:
        if "two_phase" in str(refused):
            return None
        raise


class Results(NamedTuple):
    """The comparable rows of a query, by their number.

    Args:
        columns: the names of the columns, sorted.
        rows: the rows, each with its number.
    """

    columns: tuple[str, ...]
    rows: Counter[tuple[Any, ...]]


def streamed(app: SqlApp, batches: Sequence[Rows]) -> Results:
    """Return the final results of an app whose workers crash after two batches: between two steps of a checkpoint, and after the last one."""
    driver = Driver(app.processors, start_ms=2 * HOUR_MS)
    inputs = _inputs(app)
    has_state = any(plan_of(processor).state_shape is not None for processor in app.processors)
    # Without a state, a restart is a restart from the offsets: one of them is enough.
    crashes = _CRASHES if has_state else (_CRASHES[0], [], [])
    for rows, crash in zip(batches, crashes, strict=True):
        for name, relation in inputs.items():
            is_last = relation is list(inputs.values())[-1]
            driver.send(relation.category, [*_records(relation, rows[name]), *(crash if is_last else ())])
    if any(map(_waits, app.processors)):
        for relation in inputs.values():
            driver.send(relation.category, _closing(relation))
        driver.advance(120)
    found = app.relations["found"]
    return _comparable(found, list(_final(app.processors[-1], found, driver.read(found.category))))


def _inputs(app: SqlApp) -> dict[str, Relation]:
    read = {category.name for processor in app.processors for category in plan_of(processor).inputs}
    return {name: app.relations[name] for name in ("items", "views", "orders", "payments") if name in read}


def _records(relation: Relation, rows: Sequence[dict[str, Any]]) -> list[Any]:
    return [relation.category.record(**row) for row in rows]


def _closing(relation: Relation) -> list[Any]:
    """Return events that are later than all windows, in each bucket."""
    rows = []
    for number in range(_CLOSING_KEYS):
        row: dict[str, Any] = {name: None if kind.nullable else 0 for name, kind in relation.columns.items()}
        rows.append({**row, "seen": HOUR_MS, str(relation.key): f"closing {number}"})
    return _records(relation, rows)


def _waits(processor: type[Processor]) -> bool:
    """Return whether a processor writes results when later events have arrived."""
    if issubclass(processor, Aggregator):
        return not isinstance(processor.emit, AtCheckpoint)
    return issubclass(processor, (Join, TableJoin))


def _final(last: type[Processor], found: Relation, records: Sequence[Any]) -> Iterator[Any]:
    """Yield the results that no later one replaces, without the results of closing events."""
    times = found.category.event_times_of(records)
    is_update = (issubclass(last, Aggregator) and isinstance(last.emit, AtCheckpoint)) or _is_early(last)
    without_windows = issubclass(last, Aggregator) and isinstance(last.window, GlobalWindow)
    latest: dict[Any, Any] = {}
    for number, (key, at, record) in enumerate(zip(found.category.keys_of(records), times, records, strict=True)):
        place = (key, None if without_windows else at) if is_update else number
        latest[place] = (at, record)
    yield from (record for at, record in latest.values() if at < HOUR_MS)


def _is_early(processor: type[Processor]) -> bool:
    return issubclass(processor, Aggregator) and getattr(processor.emit, "early", None) is not None


def _comparable(found: Relation, records: Sequence[Any]) -> Results:
    names = tuple(sorted(found.columns))
    rows = (
        tuple(comparable(found.columns[name].type, getattr(record, found.attributes[name])) for name in names)
        for record in records
    )
    return Results(names, Counter(rows))


def of_oracle(connection: duckdb.DuckDBPyConnection, query: str, found: Relation) -> Results:
    """Return the results of DuckDB, as the types of the columns of a table."""
    answer = connection.execute(query)
    names = [column[0] for column in answer.description or ()]
    rows: Counter[tuple[Any, ...]] = Counter()
    for values in answer.fetchall():
        row = {}
        for name, value in zip(names, values, strict=True):
            kind = found.columns[name].type if name in found.columns else SqlType.TEXT
            decoded = json.loads(value) if kind is SqlType.JSON and value is not None else value
            row[name] = comparable(kind, decoded)
        rows[tuple(row[name] for name in sorted(row))] += 1
    return Results(tuple(sorted(names)), rows)


def comparable(kind: SqlType, value: Any) -> Any:
    """Return a value that equals the same value of another system."""
    return None if value is None else _COMPARABLE.get(kind, lambda same: same)(value)


def _whole(value: Any) -> int:
    assert value == int(value)
    return int(value)


_COMPARABLE: dict[SqlType, Callable[[Any], Any]] = {
    SqlType.DOUBLE: lambda value: float(f"{float(value):.{_DIGITS}g}") + 0.0,
    SqlType.NUMERIC: lambda value: Decimal(str(value)).normalize() + 0,
    SqlType.BIGINT: _whole,
    SqlType.TIMESTAMP: lambda value: value.astimezone(UTC),
    SqlType.JSON: lambda value: msgspec.json.encode(value, order="deterministic"),
}


class _NoColumns:
    """The scope of constant expressions."""

    def column(self, table: str | None, name: str) -> None:
        """Return None."""

    def names(self) -> Sequence[str]:
        """Return no name."""
        return []


def text_of(expression: str) -> str:
    """Return the text of the value of a constant expression."""
    program = StatementProgram(SqlText("fact.sql", expression), _NoColumns())
    [cursor] = statements_of(SqlText("fact.sql", f"cast(({expression}) AS text)"))
    compiled = program.compile(parsed_sql(cursor.text, cursor.tokens, 0))
    text: str = program.function("evaluate", "", [f"return {compiled.code}"])()
    return text
