"""Processors of SQL files.

SELECT … WHERE …     --> a stateless processor
SELECT DISTINCT …    --> a stateful processor after a stateless one that computes its rows
SELECT … GROUP BY …  --> an aggregator, perhaps after a stateless processor that regroups its input
WITH …, FROM (…)     --> processors with internal categories
… UNION ALL …        --> a stateless processor for each branch, which write the same category
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from sqlglot import exp

from ..declare import ErrorPolicy, Processor, Semantics, plan_of
from ..errors import AppFileError
from ..validation import did_you_mean
from .cursor import too_deep
from .distinct import distinct, is_distinct
from .errors import SqlText
from .expression_compiler import Compiled, position_of
from .expressions import StatementProgram
from .first_rows import RowOrder, first_rows
from .functions import LoadMember, defined_function, with_functions
from .grouping import QueryGroups, grouped
from .inner_queries import branches, inner_queries, typed_nulls, united, within
from .join_chains import move_first_join
from .join_conditions import Side
from .joins import joined, side_of
from .lookup_tables import LookupTable, lookup_table
from .phases import could_have_phases, expect_one_phase
from .python_calls import Definition
from .queries import Query, fold_names, table_of
from .ranking import is_topk, ranked
from .refused_expressions import expect_clauses, expect_supported
from .relations import Relation
from .semi_joins import add_semi_joins
from .statements import (
    CreateApplication,
    CreateFunction,
    CreateInput,
    CreateLookup,
    CreateTable,
    Statement,
    parse_statements,
)
from .updates import expect_events, updates_of


@dataclass(frozen=True)
class SqlApp:
    """The processors of a file.

    Args:
        name: the name of the application; None without CREATE APPLICATION.
        relations: the tables, by name.
        lookups: the lookup tables, by name.
        processors: the processors, in the order of the file.
        spreadable: the names of aggregators that could have two phases, and have one.
    """

    name: str | None
    relations: Mapping[str, Relation]
    lookups: Mapping[str, LookupTable]
    processors: tuple[type[Processor], ...]
    spreadable: frozenset[str] = frozenset()


def compile_app(text: SqlText, module: str, load: LoadMember | None = None) -> SqlApp:
    """Return the processors of a file.

    Args:
        text: the file.
        module: the name of the module that contains the processors.
        load: imports the functions of CREATE FUNCTION; None if the text is not a file.

    Raises:
        SqlRefused: a statement is invalid or unsupported.
    """
    compiler = _Compiler(text, module, load or _no_functions)
    for statement in parse_statements(text):
        try:
            compiler.add(statement)
        except RecursionError as error:
            raise too_deep(text, statement.position) from error
    return SqlApp(
        compiler.name,
        compiler.relations,
        compiler.lookups,
        tuple(compiler.processors),
        frozenset(compiler.spreadable),
    )


def _no_functions(place: str) -> NoReturn:
    raise AppFileError(
        f"{place} cannot be imported: this text is not a file. Write it to a file, beside the functions."
    )


class _Compiler:
    """Adds the tables and processors of one statement after the other."""

    def __init__(self, text: SqlText, module: str, load: LoadMember) -> None:
        self.name: str | None = None
        self.relations: dict[str, Relation] = {}
        self.lookups: dict[str, LookupTable] = {}
        self.processors: list[type[Processor]] = []
        self.spreadable: set[str] = set()
        self._functions: dict[str, Definition] = {}
        self._load = load
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
        if isinstance(statement, CreateFunction):
            self._functions[statement.name] = defined_function(self._text, statement, self._load)
            return
        if statement.name in self.relations or statement.name in self.lookups:
            raise self._text.refusal(statement.position, f"There is already a table {statement.name}.")
        if isinstance(statement, CreateInput):
            self.relations[statement.name] = Relation.of_input(self._text, statement)
        elif isinstance(statement, CreateLookup):
            self.lookups[statement.name] = lookup_table(self._text, statement)
        else:
            self._add_query(statement)

    def _add_query(self, statement: CreateTable) -> None:
        columns = [table.columns for table in self.relations.values()]
        columns += [table.columns for table in self.lookups.values()]
        expect_clauses(self._text, statement.query)
        fold_names(statement.query, frozenset().union(*columns))
        with_functions(statement.query, self._functions)
        first = len(self.processors)
        result = self._result(statement, self.relations)
        on_error = _error_policy(self._text, statement)
        for processor in self.processors[first:]:
            processor.on_error = on_error
            if result.category not in plan_of(processor).outputs:
                # An internal category: a row that a crash repeats would count twice in the results.
                processor.output_semantics = Semantics.EXACTLY_ONCE
        self.relations[statement.name] = result

    def _result(self, statement: CreateTable, relations: Mapping[str, Relation]) -> Relation:
        """Add the processors of a query; return the table of its results.

        Raises:
            SqlRefused: the query is invalid or unsupported.
        """
        named = dict(relations)
        order = RowOrder.taken_from(self._text, statement.query)
        for name, inner in inner_queries(self._text, statement.query):
            if name in named:
                raise self._text.refusal(
                    position_of(inner), f"There is already a table {name}.", "Choose another name."
                )
            named[name] = replace(self._result(within(statement, name, inner), named), name=name)
        queries = [
            self._query(replace(statement, query=branch), named, number)
            for number, branch in enumerate(branches(self._text, statement.query), 1)
        ]
        single = queries[0]
        if len(queries) == 1 and (
            order is not None
            or single.is_grouped
            or is_distinct(single.select)
            or any(is_topk(node) for _, node in single.columns)
        ):
            expect_events(single)
        if order is not None:
            processors, output = first_rows(queries[0], order)
        elif len(queries) == 1 and any(is_topk(node) for _, node in queries[0].columns):
            processors, output = ranked(queries[0])
        elif len(queries) == 1 and is_distinct(queries[0].select):
            processors, output = distinct(queries[0])
        elif len(queries) == 1 and queries[0].is_grouped:
            processors, output = grouped(queries[0])
            if could_have_phases(queries[0], QueryGroups.of(queries[0]), processors[-1]):
                self.spreadable.add(processors[-1].name)
        else:
            processors, output = _filtered(queries)
        self.processors += processors
        return output

    def _query(self, statement: CreateTable, relations: Mapping[str, Relation], number: int) -> Query:
        """Return a query with resolved tables and columns, perhaps over a join.

        Args:
            statement: its statement.
            relations: the tables that it can read.
            number: its number among the branches of UNION ALL.

        Raises:
            SqlRefused: a table or a column does not exist, or a clause is not supported.
        """
        source = statement.query.args.get("from_")
        if source is not None and source.this.name in self.lookups and source.this.name not in relations:
            raise self._text.refusal(
                position_of(source.this),
                f"{source.this.name} is a lookup table, which has no events.",
                f"Join it: FROM … JOIN {source.this.name} ON ….",
            )
        if isinstance(statement.query, exp.Select):
            add_semi_joins(self._text, statement.query, relations, self.lookups)
            expect_supported(self._text, statement.query)
        statement, relations = self._with_inner_joins(statement, relations, number)
        query = Query.of(self._text, self._module, statement, relations)
        if query.select.args.get("joins"):
            query = joined(query, relations, self.lookups, number)
        return query.with_columns()

    def _with_inner_joins(
        self, statement: CreateTable, relations: Mapping[str, Relation], number: int
    ) -> tuple[CreateTable, Mapping[str, Relation]]:
        """Move all joins of a query but the last into inner queries; return it with the tables that it can read then."""
        select = statement.query
        while isinstance(select, exp.Select) and len(select.args.get("joins") or ()) > 1:
            left = table_of(self._text, select.args.get("from_") or select, relations)
            rights = [side_of(self._text, clause, relations, self.lookups) for clause in select.args["joins"]]
            name = f"{left.name}_{rights[0].name}" if number == 1 else f"{left.name}_{rights[0].name}_{number}"
            if name in relations or name in self.lookups:
                raise self._text.refusal(
                    position_of(select.args["joins"][1]),
                    f"The result of the first join would have the name of the table {name}.",
                    "Name one of its tables otherwise: FROM a AS other_name JOIN ….",
                )
            sides = [Side(left.name, left.columns, left.attributes), *rights]
            inner = move_first_join(self._text, select, name, sides, left.time)
            result = self._result(within(statement, name, inner), relations)
            relations = {**relations, name: replace(result, name=name)}
        return statement, relations


def _error_policy(text: SqlText, statement: CreateTable) -> ErrorPolicy:
    """Return what the processors of a table do with an event for which an expression has no value."""
    setting = statement.settings.get("on_error")
    if setting is None:
        return ErrorPolicy.STOP
    policies = {policy.name.lower(): policy for policy in ErrorPolicy}
    policy = policies.get(str(setting.value))
    if policy is None:
        raise text.refusal(
            setting.position,
            f"on_error = {setting.value!r} is not supported.",
            f"Write {' or '.join(map(repr, policies))}.{did_you_mean(str(setting.value), policies)}",
        )
    return policy


def _filtered(queries: Sequence[Query]) -> tuple[list[type[Processor]], Relation]:
    """Return the processors of queries without aggregates, one for each branch of a UNION ALL, and the table of their results."""
    first = queries[0]
    for query in queries:
        _expect_no_window(query)
    programs = [StatementProgram(query.text, query.source) for query in queries]
    compiled: list[Sequence[Compiled]] = [
        [program.compile(node) for _, node in query.columns] for query, program in zip(queries, programs, strict=True)
    ]
    compiled = [typed_nulls(program, each, compiled[0]) for program, each in zip(programs, compiled, strict=True)]
    columns = united(queries, compiled)
    updates = updates_of(queries)
    kept = {node.name: name for name, node in reversed(first.columns) if isinstance(node, exp.Column)}
    key = None if first.source.key is None else kept.get(first.source.key)
    if len(queries) > 1 and key is not None and columns[key].nullable:
        key = None
    output = first.output(columns, kept.get(first.source.time), key)
    at = list(columns).index(output.category.times.field or "")
    has_watermarks = output.has_watermarks and all(query.keeps_time(at) for query in queries)
    output = replace(output, has_watermarks=has_watermarks, updates=output.updates or updates)
    before = [processor for query in queries for processor in query.before]
    processors = [
        _branch(query, program, output, dict(zip(columns, values, strict=True)), number)
        for number, (query, program, values) in enumerate(zip(queries, programs, compiled, strict=True), 1)
    ]
    return [*before, *processors], output


def _expect_no_window(query: Query) -> None:
    statement = query.statement
    expect_one_phase(query.text, statement)
    if query.is_grouped or is_distinct(query.select):
        problem = "DISTINCT" if is_distinct(query.select) else "aggregates"
        raise query.text.refusal(
            position_of(query.select),
            f"A branch of UNION ALL has {problem}.",
            "Name it first: WITH name AS (SELECT …).",
        )
    if statement.window is not None or statement.emit is not None or "late" in statement.settings:
        raise query.text.refusal(
            statement.position,
            "A query without aggregates has no windows.",
            "Remove the window, EMIT or late; or add an aggregate.",
        )


def _branch(
    query: Query, program: StatementProgram, output: Relation, columns: Mapping[str, Compiled], number: int
) -> type[Processor]:
    """Return the processor of a query without aggregates, or of a branch of a UNION ALL, whose first has the number 1."""
    name = output.name if number == 1 else f"{output.name}_{number}"
    return query.filtered_rows(program, replace(output, name=name), columns)
