"""Queries with SELECT DISTINCT: each row is written once, when it occurs first.

source --WHERE and columns--> <table>.rows, keyed by row --a stateful processor: the first row of each key--> results

With a window, they are groups: SELECT DISTINCT page FROM views [5 minutes] is SELECT page FROM views [5 minutes] GROUP BY page.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from sqlglot import exp

from ..declare import Processor, Stateful
from .expression_compiler import Compiled, position_of
from .expressions import StatementProgram
from .grouping import group_key, grouped
from .phases import expect_one_phase
from .queries import Query, constructor
from .relations import Relation, TableDeclaration
from .statements import Setting
from .types import ColumnType, SqlType

_ROWS = "rows"
_ROW_KEY = "row_key"
"""The key of the internal category: the values of the row as JSON."""
_JSON = msgspec.json.Encoder(order="deterministic")


def is_distinct(select: exp.Query) -> bool:
    """Return whether a query is SELECT DISTINCT."""
    return select.args.get("distinct") is not None


def distinct(query: Query) -> tuple[list[type[Processor]], Relation]:
    """Return the processors of a query with SELECT DISTINCT, and the table of its results.

    Raises:
        SqlRefused: the query is not supported.
    """
    _expect_plain(query)
    if query.statement.window is not None:
        keys = [node.copy() for _, node in query.columns]
        query.select.set("group", exp.Group(expressions=keys))
        return grouped(query)
    expect_one_phase(query.text, query.statement)
    if query.statement.emit is not None or "late" in query.statement.settings:
        raise query.text.refusal(
            query.statement.position,
            "SELECT DISTINCT without a window writes each row when it occurs first.",
            "Remove EMIT and late, or write a window: FROM views [5 minutes].",
        )
    program = StatementProgram(query.text, query.source)
    columns = {name: group_key(program, node, "SELECT DISTINCT") for name, node in query.columns}
    kept = {node.name: name for name, node in reversed(query.columns) if isinstance(node, exp.Column)}
    time = kept.get(query.source.time, query.source.time)
    with_time = _with_time(query, program, columns, time)
    internal, first = _keyed_rows(query, program, columns, with_time, time)
    results = StatementProgram(query.text, internal)
    compiled = {name: results.compile(exp.column(exp.to_identifier(name, quoted=True))) for name in with_time}
    output = query.output(compiled, time, None, list(columns))
    body = f"return True, () if state else ({constructor(results, output, compiled)},)"
    process = results.function("process", "self, event, state, context", [body])
    members = {"reads": internal.category, "state": bool, "process": process}
    return [*query.before, first, query.processor(Stateful, internal, output, members)], output


def _expect_plain(query: Query) -> None:
    """Raise SqlRefused for DISTINCT ON, and for aggregates."""
    place = position_of(query.select.args["distinct"])
    if query.select.args["distinct"].args.get("on") is not None:
        raise query.text.refusal(
            position_of(query.select),
            "DISTINCT ON is not supported.",
            "Write first(…) or last(…) with GROUP BY.",
        )
    if query.is_grouped:
        raise query.text.refusal(
            place, "A query with aggregates has no DISTINCT: each group is one row.", "Remove DISTINCT."
        )


def _with_time(query: Query, program: StatementProgram, columns: dict[str, Compiled], time: str) -> dict[str, Compiled]:
    """Return the columns of a row with its event time, which a query need not select."""
    if time in columns and not query.keeps_time(list(columns).index(time)):
        raise query.text.refusal(
            query.statement.position,
            f"The result needs column {time} for its event time, but the query uses this name for another expression.",
            "Choose another name for that.",
        )
    return columns if time in columns else {**columns, time: program.compile(exp.column(exp.to_identifier(time)))}


def _keyed_rows(
    query: Query, program: StatementProgram, columns: dict[str, Compiled], with_time: dict[str, Compiled], time: str
) -> tuple[Relation, type[Processor]]:
    """Return the internal category of rows under their own values, and the processor that writes it."""
    statement, key = query.statement, _ROW_KEY
    while key in with_time:
        key += "_"
    encode = program.constant(lambda *values: _JSON.encode(values).decode())
    names = {name: program.temporary() for name in with_time}
    values = {name: Compiled(names[name], each.type) for name, each in with_time.items()}
    values[key] = Compiled(f"{encode}({', '.join(names[name] for name in columns)})", SqlType.TEXT)
    category = statement.settings.get("category", Setting(statement.name, statement.position)).value
    settings = {
        "category": Setting(f"{category}.{_ROWS}", statement.position),
        "key": Setting(key, statement.position),
        **{name: statement.settings[name] for name in ("buckets",) if name in statement.settings},
    }
    types = {name: ColumnType(each.type, each.nullable) for name, each in with_time.items()}
    types[key] = ColumnType(SqlType.TEXT, nullable=False)
    declared = TableDeclaration(f"{statement.name}_{_ROWS}", types, time, settings, statement.position)
    internal = replace(Relation.of(query.text, declared), has_watermarks=True)
    where = query.condition(program)
    computed = [f"{names[name]} = {each.code}" for name, each in with_time.items()]
    skipped = [] if where is None else [f"if not {where.code}:", "    return ()"]
    body = [*skipped, *computed, f"return ({constructor(program, internal, values)},)"]
    return internal, query.row_processor(program, query.source, internal, body)
