"""Processors of SQL files.

SELECT … WHERE …     --> a stateless processor
SELECT … GROUP BY …  --> an aggregator, perhaps after a stateless processor that regroups its input
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from ..declare.processor import Processor
from ..declare.stateless import Stateless
from .errors import SqlText
from .expressions import Program
from .grouping import grouped
from .queries import Query, constructor
from .relations import Relation
from .statements import CreateApplication, CreateInput, CreateTable, Statement, parse_statements


@dataclass(frozen=True)
class SqlApp:
    """The processors of a file.

    Args:
        name: the name of the application; None without CREATE APPLICATION.
        relations: the tables, by name.
        processors: the processors, in the order of the file.
    """

    name: str | None
    relations: Mapping[str, Relation]
    processors: tuple[type[Processor], ...]


def compile_app(text: SqlText, module: str) -> SqlApp:
    """Return the processors of a file.

    Args:
        text: the file.
        module: the name of the module that contains the processors.

    Raises:
        SqlRefused: a statement is invalid or unsupported.
    """
    compiler = _Compiler(text, module)
    for statement in parse_statements(text):
        compiler.add(statement)
    return SqlApp(compiler.name, compiler.relations, tuple(compiler.processors))


class _Compiler:
    """Adds the tables and processors of one statement after the other."""

    def __init__(self, text: SqlText, module: str) -> None:
        self.name: str | None = None
        self.relations: dict[str, Relation] = {}
        self.processors: list[type[Processor]] = []
        self._text = text
        self._module = module

    def add(self, statement: Statement) -> None:
        """Add the tables and processors of a statement.

        Raises:
            SqlRefused: it is invalid or unsupported.
        """
        if isinstance(statement, CreateApplication):
            if self.name is not None:
                raise self._text.refusal(statement.position, "The application already has a name.")
            self.name = statement.name
            return
        if statement.name in self.relations:
            raise self._text.refusal(statement.position, f"There is already a table {statement.name}.")
        if isinstance(statement, CreateInput):
            self.relations[statement.name] = Relation.of_input(self._text, statement)
        else:
            self._add_query(statement)

    def _add_query(self, statement: CreateTable) -> None:
        query = Query.of(self._text, self._module, statement, self.relations)
        processors, output = grouped(query) if query.is_grouped else _filtered(query)
        self.processors += processors
        self.relations[statement.name] = output


def _filtered(query: Query) -> tuple[list[type[Processor]], Relation]:
    """Return the processor of a query without aggregates, and the table of its results."""
    statement = query.statement
    if statement.window is not None or statement.emit is not None or "late" in statement.settings:
        raise query.text.refusal(
            statement.position,
            "A query without aggregates has no windows.",
            "Remove the window, EMIT or late; or add an aggregate.",
        )
    program = Program(query.text, query.source)
    columns = {name: program.compile(node) for name, node in query.columns}
    kept = {node.name: name for name, node in reversed(query.columns) if isinstance(node, exp.Column)}
    key = query.source.category.key
    output = query.output(columns, kept.get(query.source.time), kept.get(key) if isinstance(key, str) else None)
    written = f"return ({constructor(program, output, columns)},)"
    condition = query.condition(program)
    body = [written] if condition is None else [f"if {condition}:", f"    {written}", "return ()"]
    process = program.function("process", "self, event", body)
    return [query.processor(Stateless, query.source, output, {"process": process})], output
