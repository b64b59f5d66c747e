"""Queries with GROUP BY or aggregates, as aggregators.

    source --the processor before it: WHERE, keys and observations--> <table>.grouped, keyed by group --aggregator--> results

The processor before it is left out if the group is the key of the source, or with `two_phase`; see `phases.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from ..declare import Aggregator, AtCheckpoint, AtWatermark, OnLate, Processor
from ..monoids import Monoid, OfValues, TupleOf
from ..time import GlobalWindow, Hopping, Session, Tumbling, WindowAssigner
from .aggregates import Aggregate, FirstRows, Ranked, compile_aggregate, is_aggregate
from .columns import key_column, observed, tuples_of, unless_no_value
from .conversions import CANONICAL
from .expression_compiler import Compiled, described, position_of
from .expressions import StatementProgram, is_known_function
from .phases import GROUP_KEY, encoder_of_keys, expect_commutative, is_two_phase, phases_of
from .queries import Query, column_named, constructor
from .relations import Relation, TableDeclaration, Updates
from .statements import Emit, Setting
from .time_functions import constant_interval, window_length
from .types import ColumnType, SqlType

if TYPE_CHECKING:
    import pyarrow as pa

_WINDOW_FUNCTIONS = {"tumble": 2, "hop": 3, "session": 2}
"""The functions of GROUP BY that declare windows, with their numbers of arguments."""
_WINDOW_EXAMPLE = (
    "Write tumble(at, interval '5 minutes'), hop(at, interval '1 minute', interval '5 minutes') with the step before the size, or "
    "session(at, interval '30 seconds')."
)
_TIME_COLUMN = "event_time"


def grouped(query: Query) -> tuple[list[type[Processor]], Relation]:
    """Return the processors of a query with aggregates, and the table of its results.

    Raises:
        SqlRefused: the query is not supported.
    """
    group = QueryGroups.of(query)
    program = StatementProgram(query.text, query.source)
    keys = [group_key(program, node, "GROUP BY") for node in group.keys]
    aggregates = _Aggregates(program, group)
    columns = {name: aggregates.replaced(node) for name, node in query.columns}
    having = query.select.args.get("having")
    condition = None if having is None else aggregates.replaced(having.this)
    for node in (*columns.values(), *([] if condition is None else [condition])):
        _expect_grouped(query, _Results.of(query, group, keys, aggregates.found), node)
    time = _time_of_results(query, group, aggregates, columns)
    results = StatementProgram(query.text, _Results.of(query, group, keys, aggregates.found))
    compiled = {name: results.compile(node) for name, node in columns.items()}
    group_columns = [name for name, node in columns.items() if node.name.startswith("$key")]
    timing = _timing(query, group)
    is_final = _is_final(timing)
    if not is_final:
        _expect_group(query, group, columns)
    output = query.output(compiled, time, _key_of_results(columns, compiled, keys), group_columns)
    output = replace(output, updates=output.updates or (None if is_final else Updates.RESULTS))
    decode = results.constant(_key_decoder(keys, of_source=group.is_key_of_source))
    written = constructor(results, output, compiled)
    passes = None if condition is None else results.expect(condition, SqlType.BOOLEAN).code
    body = f"return {written}" if passes is None else f"return {written} if {passes} else None"
    inputs = _observed(query, group, program, keys, aggregates.nodes)
    if inputs.phases:
        expect_commutative(query, aggregates.nodes)
    members = {
        "reads": inputs.source.category,
        **inputs.members,
        "result": results.function("result", "self, key, window, value", [f"keys = {decode}(key)", body]),
        "monoid": _monoid_of(aggregates.found),
        "window": group.window,
        **timing,
        **inputs.phases,
    }
    return [*query.before, *inputs.before, query.processor(Aggregator, inputs.source, output, members)], output


def _monoid_of(aggregates: Sequence[Aggregate]) -> Monoid[Any]:
    """Return the monoid of the observations of some aggregates together."""
    single = _single(aggregates)
    return TupleOf(*(aggregate.monoid for aggregate in aggregates)) if single is None else single


def _single(aggregates: Sequence[Aggregate]) -> Monoid[Any] | None:
    """Return the monoid of a single aggregate, whose observations and partials are faster without a tuple; None if they need one.

    None as an observation would mean an event without one, so the aggregate must observe each event.
    """
    if len(aggregates) != 1 or aggregates[0].observation.nullable:
        return None
    monoid = aggregates[0].monoid
    return monoid.inner if type(monoid) is OfValues else None


def _expect_grouped(query: Query, results: _Results, node: exp.Expr) -> None:
    """Raise SqlRefused for a column of the source outside of aggregates and GROUP BY: a group has many values of it."""
    for call in node.find_all(exp.Anonymous):
        if not is_known_function(call):
            StatementProgram(query.text, results).compile(call)  # which refuses it: it may be meant as an aggregate
    for column in node.find_all(exp.Column):
        if results.column(column.table or None, column.name) is None and query.source.column(
            column.table or None, column.name
        ):
            raise query.text.refusal(
                position_of(column),
                f"{column.sql()} is neither in GROUP BY nor in an aggregate, and a group has many values of it.",
                f"Add it to GROUP BY, or write an aggregate such as max({column.sql()}).",
            )


def _is_final(timing: Mapping[str, Any]) -> bool:
    """Return whether each result is written once."""
    return isinstance(timing["emit"], AtWatermark) and timing["emit"].early is None and timing["late"] is OnLate.DROP


def _expect_group(query: Query, group: QueryGroups, columns: Mapping[str, exp.Expr]) -> None:
    """Raise SqlRefused unless the results contain what the query groups by: an update replaces the result of the same group."""
    selected = {node.name for node in columns.values()}
    for number, key in enumerate(group.keys):
        if key in group.keys[:number] or f"$key{number}" in selected or key.find(exp.Column) is None:
            continue
        raise query.text.refusal(
            position_of(key),
            f"The result does not contain {described(key)}, by which the query groups: updates of different groups would replace each other.",
            "Select it, or group by an expression that is selected"
            + ("." if isinstance(group.window, GlobalWindow) else "; or write each window once: EMIT ON WINDOW CLOSE."),
        )


def group_key(program: StatementProgram, node: exp.Expr, clause: str) -> Compiled:
    """Return the code of a value that is compared by its JSON: equal values have the same.

    Args:
        program: the program.
        node: the expression of the value.
        clause: the clause that compares it, for messages.

    Raises:
        SqlRefused: values of its type cannot be compared.
    """
    compiled = program.comparable(node, program.compile(node))
    if compiled.type in (SqlType.INTERVAL, SqlType.NULL):
        raise program.refused(node, f"{clause} is not defined for {compiled.type.value}.", "Add a cast.")
    template = CANONICAL.get(compiled.type)
    return compiled if template is None else program.strict(template, [compiled], compiled.type)


@dataclass(frozen=True)
class QueryGroups:
    """The groups of a query.

    Args:
        keys: the expressions of GROUP BY, without the window.
        window: the windows.
        is_key_of_source: whether the only key is the key of the source.
    """

    keys: tuple[exp.Expr, ...]
    window: WindowAssigner
    is_key_of_source: bool

    @staticmethod
    def of(query: Query) -> QueryGroups:
        """Return the groups of a query.

        Raises:
            SqlRefused: there are two windows, or a window is not over the event time.
        """
        clause = query.select.args.get("group")
        keys: list[exp.Expr] = []
        windows: list[WindowAssigner] = [] if query.statement.window is None else [Tumbling(query.statement.window)]
        for node in () if clause is None else _listed(clause.expressions):
            resolved = _resolved(query, node)
            if isinstance(resolved, exp.Anonymous) and resolved.name.lower() in _WINDOW_FUNCTIONS:
                windows.append(_window(query, resolved))
            else:
                keys.append(resolved)
        if len(windows) > 1:
            raise query.text.refusal(query.statement.position, "A query has at most one window.")
        # A delay is the delay of the watermark that the processor before the aggregator publishes.
        is_key = (
            not _delay(query)
            and len(keys) == 1
            and isinstance(keys[0], exp.Column)
            and query.source.is_keyed_by(keys[0].name)
        )
        return QueryGroups(tuple(keys), windows[0] if windows else GlobalWindow(), is_key)


def _delay(query: Query) -> timedelta:
    """Return how long after the end of a window its results are written, in event time."""
    emit = query.statement.emit
    return emit.interval if emit is not None and emit.at_end else timedelta()


def _listed(nodes: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield the expressions of GROUP BY, without parentheses."""
    for node in nodes:
        plain = node.unnest()
        if isinstance(plain, exp.Tuple):
            yield from _listed(plain.expressions)
        else:
            yield plain


def _resolved(query: Query, node: exp.Expr) -> exp.Expr:
    """Return the expression that GROUP BY names by number or by alias.

    Raises:
        SqlRefused: it is another constant, or an aggregate.
    """
    resolved = node
    if isinstance(node, (exp.Literal, exp.Neg, exp.Null, exp.Boolean)) and node.find(exp.Column) is None:
        number = node.this if isinstance(node, exp.Literal) and not node.is_string else ""
        if not (number.isdigit() and 0 < int(number) <= len(query.columns)):
            raise query.text.refusal(
                position_of(node),
                f"The result has no column {node.sql(dialect='postgres')}.",
                f"A constant in GROUP BY is the number of a column, from 1 to {len(query.columns)}.",
            )
        resolved = query.columns[int(number) - 1][1]
    elif isinstance(node, exp.Column) and not node.table and node.name not in query.source.columns:
        resolved = next((each for name, each in query.columns if name == node.name), node)
    if any(is_aggregate(each) for each in resolved.walk()):
        raise query.text.refusal(
            position_of(node),
            "GROUP BY cannot contain aggregates: their values are known for a group only.",
            "Group by columns and their expressions. For groups of results, name the query first: WITH name AS (SELECT …).",
        )
    return resolved


def _window(query: Query, node: exp.Anonymous) -> WindowAssigner:
    name, arguments = node.name.lower(), node.expressions
    if len(arguments) != _WINDOW_FUNCTIONS[name]:
        raise query.text.refusal(position_of(node), f"{name} has {_WINDOW_FUNCTIONS[name]} arguments.", _WINDOW_EXAMPLE)
    time, *lengths = arguments
    if not isinstance(time, exp.Column) or time.name != query.source.time:
        raise query.text.refusal(
            position_of(node),
            f"Windows are over the event time, {query.source.time}.",
            f"Write {name}({query.source.time}, …).",
        )
    program = StatementProgram(query.text, query.source)
    first, *rest = (_window_length(program, name, length) for length in lengths)
    if rest and first > rest[0]:
        raise query.text.refusal(
            position_of(lengths[0]),
            "This step is longer than the window, so the events between two windows would be in none.",
            _WINDOW_EXAMPLE,
        )
    if rest:
        return Hopping(rest[0], first)
    return Tumbling(first) if name == "tumble" else Session(first)


def _window_length(program: StatementProgram, name: str, node: exp.Expr) -> timedelta:
    """Return the length of a window, of its step, or of the gap between sessions.

    Raises:
        SqlRefused: it is no constant interval, or impossible.
    """
    length = constant_interval(program, node)
    if length is None:
        raise program.refused(node, f"{name} needs constant intervals.", _WINDOW_EXAMPLE)
    return window_length(program.text, node, length)


class _Aggregates:
    """The aggregates of a query; each one once."""

    def __init__(self, program: StatementProgram, group: QueryGroups) -> None:
        self.found: list[Aggregate] = []
        self.nodes: list[tuple[exp.Expr, Aggregate]] = []
        self._program = program
        self._keys = group.keys
        self._has_windows = not isinstance(group.window, GlobalWindow)
        self._indexes: dict[exp.Expr, int] = {}

    def reference(self, node: exp.Expr) -> str:
        """Return the name of an aggregate in results. It is compiled at its first occurrence."""
        if node not in self._indexes:
            aggregate = compile_aggregate(self._program, node)
            if aggregate.grows and not self._has_windows:
                raise self._program.refused(
                    node,
                    "count(distinct …) needs a window: without one, its state would grow without limit.",
                    f"Write approx_count_distinct(…). {_WINDOW_EXAMPLE}",
                )
            self._indexes[node] = len(self.found)
            self.nodes.append((node, aggregate))
            self.found.append(aggregate)
        return f"$value{self._indexes[node]}"

    def replaced(self, node: exp.Expr) -> exp.Expr:
        """Return an expression over results: keys and aggregates are replaced by columns such as `$key0` and `$value0`."""
        return node.transform(self._replaced)

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        plain = node.unnest()
        for index, key in enumerate(self._keys):
            if type(plain) is type(key) and plain == key:
                return _named(f"$key{index}", node)
        if is_aggregate(node) or (isinstance(node, exp.Filter) and is_aggregate(node.this)):
            return _named(self.reference(node), node)
        return node


def _named(name: str, node: exp.Expr) -> exp.Column:
    column = exp.column(exp.to_identifier(name, quoted=True))
    column.meta["start"] = position_of(node)
    return column


@dataclass(frozen=True)
class _Results:
    """The columns that results can name: keys, aggregates and the bounds of the window."""

    codes: Mapping[str, Compiled]

    @staticmethod
    def of(query: Query, group: QueryGroups, keys: Sequence[Compiled], aggregates: Sequence[Aggregate]) -> _Results:
        """Return the columns of the results of a query."""
        codes = {f"$key{index}": Compiled(f"keys[{index}]", key.type, key.nullable) for index, key in enumerate(keys)}
        for index, found in enumerate(aggregates):
            code = found.result.replace("{0}", f"value[{index}]" if _single(aggregates) is None else "value")
            codes[f"$value{index}"] = Compiled(f"({code})", found.type, found.nullable)
        if not isinstance(group.window, GlobalWindow):
            kind = query.source.columns[query.source.time].type
            for bound in ("start", "end"):
                code = f"window.{bound}" if kind is SqlType.BIGINT else f"timestamp_of_ms(window.{bound})"
                codes[f"window_{bound}"] = Compiled(code, kind)
        return _Results(codes)

    def column(self, table: str | None, name: str) -> Compiled | None:
        """Return the code of a key, an aggregate or a bound of the window."""
        return None if table is not None else self.codes.get(name)

    def names(self) -> Sequence[str]:
        """Return the names that users can write outside of aggregates, besides the expressions of GROUP BY."""
        return [name for name in self.codes if not name.startswith("$")]


def _time_of_results(query: Query, group: QueryGroups, aggregates: _Aggregates, columns: dict[str, exp.Expr]) -> str:
    """Return the column with the event time of results: the bound of the window, or the latest event time.

    It is added if the query does not select it.
    """
    if isinstance(group.window, GlobalWindow):
        name = query.source.time
        wanted = aggregates.reference(exp.Max(this=column_named(name)))
    else:
        name = wanted = "window_end" if isinstance(group.window, Session) else "window_start"
    for column, node in columns.items():
        if isinstance(node, exp.Column) and node.name == wanted:
            return column
    if name in columns:
        raise query.text.refusal(
            query.statement.position,
            f"The result needs column {name} for its event time, but the query uses this name for another expression.",
            "Choose another name for that.",
        )
    columns[name] = _named(wanted, query.select)
    return name


def _key_of_results(
    columns: Mapping[str, exp.Expr], compiled: Mapping[str, Compiled], keys: Sequence[Compiled]
) -> str | None:
    """Return the column that can be the key of results; None if there is none."""
    if len(keys) != 1 or keys[0].nullable or keys[0].type not in (SqlType.TEXT, SqlType.BIGINT):
        return None
    return next((name for name in compiled if columns[name].name == "$key0"), None)


def _key_decoder(keys: Sequence[Compiled], *, of_source: bool) -> Callable[[str], Sequence[Any]]:
    """Return the function from the key of a group to its values."""
    if of_source:
        return (lambda key: (int(key),)) if keys[0].type is SqlType.BIGINT else (lambda key: (key,))
    annotations = tuple(ColumnType(key.type, key.nullable).annotation() for key in keys)
    shape: Any = tuple.__class_getitem__(annotations or ())
    decode: Callable[[str], Sequence[Any]] = msgspec.json.Decoder(shape).decode
    return decode


@dataclass(frozen=True)
class _Observed:
    """The input of an aggregator.

    Args:
        source: the table that it reads.
        members: its methods for observations, and the reason if it has none for columns.
        before: the processor that writes the source; empty if the aggregator reads the table of the query.
        phases: the attribute of an aggregator in two phases.
    """

    source: Relation
    members: Mapping[str, Any]
    before: tuple[type[Processor], ...] = ()
    phases: Mapping[str, Any] = field(default_factory=dict)


def _observed(
    query: Query,
    group: QueryGroups,
    program: StatementProgram,
    keys: Sequence[Compiled],
    aggregates: Sequence[tuple[exp.Expr, Aggregate]],
) -> _Observed:
    phases = phases_of(query, group, program, keys) if is_two_phase(query) else {}
    obstacle = _obstacle(group, has_phases=bool(phases))
    if group.is_key_of_source or phases:
        time = _event_time(query, query.source)
        observations = [each.observed(program, each.observation, time) for _, each in aggregates]
        names = [described(node) for node, _ in aggregates]
        where = query.condition(program)
        obstacle = obstacle or query.obstacle(list(zip(names, observations, strict=True)), where)
        members = _observing(program, aggregates, observations, where, obstacle)
        return _Observed(query.source, {"columns": query.needed_columns(), **members}, phases=phases)
    internal, processor = _regrouped(query, program, keys, [aggregate for _, aggregate in aggregates])
    named = [f"value{index}" for index in range(len(aggregates))]
    columns = [found for name in named if (found := internal.column(None, name))]
    obstacles = [
        f"{described(node)} is of type {each.type.value}"
        for (node, _), each in zip(aggregates, columns, strict=True)
        if each.columns is None
    ]
    observing, time = StatementProgram(query.text, internal), _event_time(query, internal)
    pairs = [each.observed(observing, found, time) for (_, each), found in zip(aggregates, columns, strict=True)]
    if any(pair.columns is None for pair in pairs):
        obstacles.append(f"{query.source.time} is of type {time.type.value}")
    obstacle = obstacle or next(iter(obstacles), None)
    members = _observing(observing, aggregates, pairs, None, obstacle)
    return _Observed(internal, {"columns": tuple(named), **members}, (processor,))


def _obstacle(group: QueryGroups, *, has_phases: bool) -> str | None:
    """Return why an aggregator has no columns, whatever its aggregates are."""
    if has_phases:
        return "the first of two phases has no columns"
    return "sessions take one event after the other" if isinstance(group.window, Session) else None


def _observing(
    program: StatementProgram,
    aggregates: Sequence[tuple[exp.Expr, Aggregate]],
    observations: Sequence[Compiled],
    where: Compiled | None,
    obstacle: str | None,
) -> dict[str, Any]:
    """Return the methods of an aggregator for its observations, or the reason why there is none for columns.

    Args:
        program: compiled the observations.
        aggregates: the aggregates.
        observations: their observations of a row.
        where: the condition for rows; None for all.
        obstacle: why the observations have no columns; None if they have them.
    """
    is_single = _single([each for _, each in aggregates]) is not None
    values = observations[0].code if is_single else f"({''.join(f'{each.code}, ' for each in observations)})"
    # Two statements: Python would fold an expression whose condition is constant, and then the method would seem to return nothing ever.
    body = [f"values = {values}" if where is None else f"values = {values} if {where.code} else None", "return values"]
    members = {"observe": program.function("observe", "self, event", body)}
    combined = [
        f"{_name(program, node)} takes one value after the other"
        for node, each in aggregates
        if not each.combines_columns
    ]
    reasons = [*([] if obstacle is None else [obstacle]), *combined, *([] if aggregates else ["there is no aggregate"])]
    if reasons:
        return {**members, "sql_by_event": reasons[0]}
    condition = None if where is None else where.columns
    columns = [each.columns for each in observations if each.columns is not None]
    observation = columns[0] if is_single else tuples_of(columns)

    def observe_columns(_: Processor, events: pa.RecordBatch) -> pa.Array[Any] | None:
        return unless_no_value(lambda: observed(events, condition, observation))

    return {**members, "observe_columns": observe_columns}


def _name(program: StatementProgram, node: exp.Expr) -> str:
    """Return the name of an aggregate as it is written."""
    call = node.this if isinstance(node, exp.Filter) else node
    if isinstance(call, (Ranked, FirstRows)):
        return "topk" if isinstance(call, Ranked) else "ORDER BY … LIMIT"
    written = program.text.text[call.meta["start"] : call.meta["end"] + 1].lower() if "end" in call.meta else ""
    return written or described(call)


def _event_time(query: Query, source: Relation) -> Compiled:
    """Return the event time of the rows of a table."""
    time = source.column(None, source.time)
    if time is None:
        raise query.text.refusal(query.statement.position, f"Table {source.name} has no column {source.time}.")
    return time


def _regrouped(
    query: Query, program: StatementProgram, keys: Sequence[Compiled], aggregates: Sequence[Aggregate]
) -> tuple[Relation, type[Processor]]:
    """Return the internal category with the observations under the keys of their groups, and the processor that writes it."""
    statement, time = query.statement, _event_time(query, query.source)
    encode = encoder_of_keys(program)
    values = {
        GROUP_KEY: Compiled(
            f"{encode}({', '.join(key.code for key in keys)})",
            SqlType.TEXT,
            columns=key_column([key.columns for key in keys]),
        ),
        _TIME_COLUMN: time,
        **{f"value{index}": aggregate.observation for index, aggregate in enumerate(aggregates)},
    }
    category = statement.settings.get("category", Setting(statement.name, statement.position))
    settings = {
        "category": Setting(f"{category.value}.grouped", statement.position),
        "key": Setting(GROUP_KEY, statement.position),
        **{name: statement.settings[name] for name in ("buckets",) if name in statement.settings},
    }
    types = {
        name: ColumnType(each.type, each.nullable and name not in (GROUP_KEY, _TIME_COLUMN))
        for name, each in values.items()
    }
    declared = TableDeclaration(f"{statement.name}_grouped", types, _TIME_COLUMN, settings, statement.position)
    internal = replace(Relation.of(query.text, declared), has_watermarks=True)
    return internal, query.filtered_rows(program, internal, values, max_output_delay=_delay(query))


def _timing(query: Query, group: QueryGroups) -> dict[str, Any]:
    """Return when results are written, and what happens to late events."""
    emit, late = query.statement.emit, query.statement.settings.get("late")
    if isinstance(group.window, GlobalWindow) and emit is not None and emit.emit is not Emit.CHANGES:
        raise query.text.refusal(
            position_of(query.select),
            f"{emit.emit.value.partition(' interval')[0]}, and a query inside another one, needs a window: without one, results are never complete.",
            _WINDOW_EXAMPLE,
        )
    if isinstance(group.window, Session) and emit is not None and not emit.at_end:
        raise query.text.refusal(
            query.statement.position,
            "The bounds of a session are known only at its end.",
            "Write EMIT ON WINDOW CLOSE.",
        )
    if late is not None and late.value not in ("drop", "into window"):
        raise query.text.refusal(
            late.position, f"late = {late.value!r} is not supported.", "Write 'drop' or 'into window'."
        )
    ends = isinstance(group.window, Session) or (emit is not None and emit.at_end)
    drops = ends if late is None else late.value == "drop"
    early = emit.interval if emit is not None and emit.emit is Emit.EVERY else None
    at_watermark = ends or early is not None
    return {
        "emit": AtWatermark(early) if at_watermark else AtCheckpoint(),
        "late": OnLate.DROP if drops else OnLate.INTO_WINDOW,
    }
