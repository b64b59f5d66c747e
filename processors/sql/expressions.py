"""Scalar expressions of SQL, compiled to Python code with PostgreSQL's types and NULL semantics.

    expression --a handler for its kind--> Compiled: code, type, nullability --Program.function--> function of a row

Each kind of expression has one handler, which names the arguments that it uses. An expression without a handler, or an argument that its handler
does not use, is refused: nothing is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from math import ceil, floor
from typing import Any, Protocol
from zoneinfo import ZoneInfo, available_timezones

from sqlglot import exp

from ..validation import did_you_mean
from . import values
from .errors import SqlDataError, SqlRefused, SqlText
from .python_calls import DEFINITION, Definition, PythonFunction
from .types import SqlType, common_type, declared_type

_UNITS = {
    "microsecond": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
"""The units of intervals. Months and years have no fixed length."""


@dataclass(frozen=True)
class Compiled:
    """The Python code of an expression.

    Args:
        code: a Python expression, in parentheses where it needs them.
        type: the SQL type of its value.
        nullable: whether its value can be None.
        literal: the value, if the expression is a literal.
    """

    code: str
    type: SqlType
    nullable: bool = False
    literal: Any = None


class Scope(Protocol):
    """The columns that an expression can name."""

    def column(self, table: str | None, name: str) -> Compiled | None:
        """Return the code of a column; None if there is none of this name."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of all columns."""
        ...


class Program:
    """Compiles the expressions of one statement and makes functions of them.

    Args:
        text: the file, for messages.
        scope: the columns.
    """

    def __init__(self, text: SqlText, scope: Scope) -> None:
        self.text = text
        self.scope = scope
        self._globals: dict[str, Any] = {
            "Decimal": Decimal,
            "floor": floor,
            "ceil": ceil,
            **{name: getattr(values, name) for name in _OPERATIONS},
        }
        self._temporaries = 0

    def compile(self, node: exp.Expr) -> Compiled:
        """Return the code of an expression.

        Raises:
            SqlRefused: it is not supported, or its types do not fit.
        """
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise self.refused(node, f"{_described(node)} is not supported here.")
        for name, value in node.args.items():
            if value not in (None, False, []) and name not in handler.arguments:
                raise self.refused(node, f"{_described(node)} does not support {name.replace('_', ' ')!r} here.")
        return handler.compile(self, node)

    def function(self, name: str, parameters: str, body: Sequence[str]) -> Callable[..., Any]:
        """Return a function with a body of compiled code.

        Args:
            name: its name.
            parameters: its parameters, as code. Columns are fields of `event`.
            body: its lines.
        """
        namespace = {"__name__": f"<{self.text.name}>", **self._globals}
        source = "\n    ".join([f"def {name}({parameters}):", *body])
        exec(compile(source, f"<{self.text.name}>", "exec"), namespace)  # noqa: S102 - the code is our own
        compiled: Callable[..., Any] = namespace[name]
        return compiled

    def refused(self, node: exp.Expr, problem: str, advice: str = "") -> SqlRefused:
        """Return the error of an expression, at its place in the file."""
        return self.text.refusal(position_of(node), problem, advice)

    def constant(self, value: Any) -> str:
        """Return the name of a new constant of the compiled code."""
        name = f"c{len(self._globals)}"
        self._globals[name] = value
        return name

    def temporary(self) -> str:
        """Return the name of a new local variable of the compiled code."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    def strict(
        self, template: str, arguments: Sequence[Compiled], kind: SqlType, *, nullable: bool = False
    ) -> Compiled:
        """Return the code of an operation that is NULL if an argument is NULL.

        Args:
            template: its code, with `{0}`, `{1}` … for the arguments.
            arguments: its arguments.
            kind: the type of its value.
            nullable: whether it can be NULL for arguments that are not NULL.
        """
        checks, names = [], []
        for argument in arguments:
            if argument.nullable:
                name = self.temporary()
                checks.append(f"({name} := {argument.code}) is None")
                names.append(name)
            else:
                names.append(argument.code)
        code = template.format(*names)
        if checks:
            code = f"(None if {' or '.join(checks)} else {code})"
        return Compiled(code, kind, nullable=nullable or bool(checks))

    def expect(self, node: exp.Expr, wanted: SqlType) -> Compiled:
        """Compile an expression and convert it implicitly to a type, as PostgreSQL would.

        Raises:
            SqlRefused: its type does not fit.
        """
        compiled = self.compile(node)
        converted = self.converted(compiled, wanted)
        if converted is None:
            raise self.refused(
                node,
                f"This is of type {compiled.type.value}, and {wanted.value} is required.",
                f"Convert it: cast(… as {wanted.value}).",
            )
        return converted

    def converted(self, compiled: Compiled, wanted: SqlType) -> Compiled | None:
        """Return the code of an implicit conversion; None if there is none."""
        if compiled.type is wanted:
            return compiled
        if compiled.type is SqlType.NULL:
            return replace(compiled, type=wanted)
        if isinstance(compiled.literal, str) and wanted in _FROM_TEXT:
            with suppress(SqlDataError):
                value = getattr(values, _FROM_TEXT[wanted])(compiled.literal)
                return Compiled(self.constant(value), wanted, literal=value)
            return None
        if (compiled.type, wanted) in _IMPLICIT:
            return self.strict(_CASTS[compiled.type, wanted], [compiled], wanted)
        return None

    def comparable(self, node: exp.Expr, compiled: Compiled) -> Compiled:
        """Return the code of a value that is compared with others.

        Raises:
            SqlRefused: it is JSON.
        """
        if compiled.type is SqlType.JSON:
            raise self.refused(node, "JSON values cannot be compared.", "Extract a text with ->> first.")
        return compiled

    def compared(self, nodes: Sequence[exp.Expr], purpose: str) -> list[Compiled]:
        """Compile expressions that are compared with each other, and convert them to their common type.

        Raises:
            SqlRefused: there is none, or they are JSON.
        """
        return [self.comparable(node, each) for node, each in zip(nodes, self.together(nodes, purpose), strict=True)]

    def together(self, nodes: Sequence[exp.Expr], purpose: str) -> list[Compiled]:
        """Compile expressions and convert them to their common type.

        Raises:
            SqlRefused: there is none.
        """
        compiled = [self.compile(node) for node in nodes]
        # A quoted literal has no type of its own: it takes the type of the others.
        typed = [each.type for each in compiled if not isinstance(each.literal, str)]
        kind = common_type(typed) if typed else SqlType.TEXT
        if kind is SqlType.NULL and len(typed) < len(compiled):
            kind = SqlType.TEXT
        converted = []
        for node, each in zip(nodes, compiled, strict=True):
            value = None if kind is None else self.converted(each, kind)
            if value is None:
                others = ", ".join(dict.fromkeys(other.type.value for other in compiled))
                raise self.refused(
                    node, f"{purpose} needs values of one type, and these are of types {others}.", "Add a cast."
                )
            converted.append(value)
        return converted


@dataclass(frozen=True)
class _Handler:
    """The compilation of one kind of expression, and the names of the arguments that it uses."""

    compile: Callable[[Program, Any], Compiled]
    arguments: frozenset[str] = field(default=frozenset({"this", "expression"}))


def position_of(node: exp.Expr) -> int:
    """Return the offset of the first character of an expression, as far as the parser kept it."""
    found = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    if found:
        return int(min(found))
    return position_of(node.parent) if node.parent is not None else 0


def _described(node: exp.Expr) -> str:
    text = node.sql(dialect="postgres")
    return f"`{text if len(text) <= 60 else text[:57] + '…'}`"


def _column(program: Program, node: exp.Column) -> Compiled:
    found = program.scope.column(node.table or None, node.name)
    if found is None:
        names = program.scope.names()
        raise program.refused(
            node,
            f"There is no column {node.sql()!r}. The columns are: {', '.join(names)}.",
            did_you_mean(node.name, names).strip(),
        )
    return found


def _literal(program: Program, node: exp.Literal) -> Compiled:
    if node.is_string:
        return Compiled(repr(node.this), SqlType.TEXT, literal=node.this)
    if node.this.isdigit():
        value = int(node.this)
        if value > 2**63 - 1:
            raise program.refused(node, f"{value} is too large for bigint.")
        return Compiled(str(value), SqlType.BIGINT, literal=value)
    return Compiled(repr(float(node.this)), SqlType.DOUBLE, literal=float(node.this))


def _boolean(_: Program, node: exp.Boolean) -> Compiled:
    return Compiled(repr(bool(node.this)), SqlType.BOOLEAN, literal=bool(node.this))


def _null(_: Program, __: exp.Null) -> Compiled:
    return Compiled("None", SqlType.NULL, nullable=True)


def _parentheses(program: Program, node: exp.Paren) -> Compiled:
    return program.compile(node.this)


def _interval(program: Program, node: exp.Interval) -> Compiled:
    value = interval_of(program.text, node)
    return Compiled(program.constant(value), SqlType.INTERVAL, literal=value)


def interval_of(text: SqlText, node: exp.Interval) -> timedelta:
    """Return the length of an interval.

    Raises:
        SqlRefused: it is not a literal of fixed units.
    """
    words = f"{node.this.name if node.this else ''} {node.unit.name if node.unit else ''}".lower().split()
    total, pairs = timedelta(), list(zip(words[::2], words[1::2], strict=False))
    for number, unit in pairs:
        length = _UNITS.get(unit.rstrip("s"))
        try:
            amount = float(number)
        except ValueError:
            length = None
        if length is None:
            break
        total += length * amount
    else:
        if pairs and len(words) == 2 * len(pairs):
            return total
    raise text.refusal(
        position_of(node),
        f"The interval {node.sql(dialect='postgres')} is not supported.",
        f"Write a number and a unit, such as interval '5 minutes'; the units are {', '.join(_UNITS)}.",
    )


_ARITHMETIC: dict[type[exp.Expr], dict[SqlType, str]] = {
    exp.Add: {SqlType.BIGINT: "bigint({0} + {1})", SqlType.DOUBLE: "double({0} + {1})", SqlType.NUMERIC: "({0} + {1})"},
    exp.Sub: {SqlType.BIGINT: "bigint({0} - {1})", SqlType.DOUBLE: "double({0} - {1})", SqlType.NUMERIC: "({0} - {1})"},
    exp.Mul: {
        SqlType.BIGINT: "bigint({0} * {1})",
        SqlType.DOUBLE: "double({0} * {1})",
        SqlType.NUMERIC: "({0} * {1} + 0)",
    },
    exp.Div: {
        SqlType.BIGINT: "divide_bigint({0}, {1})",
        SqlType.DOUBLE: "divide_double({0}, {1})",
        SqlType.NUMERIC: "divide_numeric({0}, {1})",
    },
    exp.Mod: {SqlType.BIGINT: "remainder_bigint({0}, {1})", SqlType.NUMERIC: "remainder_numeric({0}, {1})"},
}
_TIME_ARITHMETIC = {
    (exp.Add, SqlType.TIMESTAMP, SqlType.INTERVAL): ("add_interval({0}, {1})", SqlType.TIMESTAMP),
    (exp.Add, SqlType.INTERVAL, SqlType.TIMESTAMP): ("add_interval({1}, {0})", SqlType.TIMESTAMP),
    (exp.Sub, SqlType.TIMESTAMP, SqlType.INTERVAL): ("add_interval({0}, -{1})", SqlType.TIMESTAMP),
    (exp.Sub, SqlType.TIMESTAMP, SqlType.TIMESTAMP): ("({0} - {1})", SqlType.INTERVAL),
    (exp.Add, SqlType.LOCAL, SqlType.INTERVAL): ("add_interval({0}, {1})", SqlType.LOCAL),
    (exp.Sub, SqlType.LOCAL, SqlType.INTERVAL): ("add_interval({0}, -{1})", SqlType.LOCAL),
    (exp.Sub, SqlType.LOCAL, SqlType.LOCAL): ("({0} - {1})", SqlType.INTERVAL),
    (exp.Sub, SqlType.DATE, SqlType.DATE): ("({0} - {1}).days", SqlType.BIGINT),
}


def _arithmetic(program: Program, node: exp.Binary) -> Compiled:
    left, right = program.compile(node.this), program.compile(node.expression)
    timed = _TIME_ARITHMETIC.get((type(node), left.type, right.type))
    if timed is not None:
        return program.strict(timed[0], [left, right], timed[1])
    left, right = program.together([node.this, node.expression], _described(node))
    template = _ARITHMETIC[type(node)].get(left.type)
    if left.type is SqlType.NULL:
        return Compiled("None", SqlType.NULL, nullable=True)
    if template is None:
        raise program.refused(node, f"{_described(node)} is not defined for {left.type.value}.")
    return program.strict(template, [left, right], left.type)


def _negative(program: Program, node: exp.Neg) -> Compiled:
    operand = program.compile(node.this)
    if not operand.type.is_number:
        raise program.refused(node, f"A minus sign is not defined for {operand.type.value}.")
    template = "bigint(-{0})" if operand.type is SqlType.BIGINT else "(-{0})"
    negated = program.strict(template, [operand], operand.type)
    return (
        negated if operand.literal is None else Compiled(f"(-{operand.code})", operand.type, literal=-operand.literal)
    )


def _comparison(operator: str) -> Callable[[Program, exp.Binary], Compiled]:
    def compile_comparison(program: Program, node: exp.Binary) -> Compiled:
        operands = program.compared([node.this, node.expression], _described(node))
        return program.strict(f"({{0}} {operator} {{1}})", operands, SqlType.BOOLEAN)

    return compile_comparison


def _same(*, negated: bool) -> Callable[[Program, exp.Binary], Compiled]:
    def compile_same(program: Program, node: exp.Binary) -> Compiled:
        left, right = program.compared([node.this, node.expression], _described(node))
        return Compiled(f"({left.code} {'!=' if negated else '=='} {right.code})", SqlType.BOOLEAN)

    return compile_same


def _connective(word: str, decisive: bool) -> Callable[[Program, exp.Connector], Compiled]:
    """Return the handler of AND or OR: three-valued, and decided by one operand with the decisive value."""

    def compile_connective(program: Program, node: exp.Connector) -> Compiled:
        left, right = (program.expect(each, SqlType.BOOLEAN) for each in (node.this, node.expression))
        if not left.nullable and not right.nullable:
            return Compiled(f"({left.code} {word} {right.code})", SqlType.BOOLEAN)
        first, second = program.temporary(), program.temporary()
        code = (
            f"({decisive} if ({first} := {left.code}) is {decisive} or ({second} := {right.code}) is {decisive} "
            f"else None if {first} is None or {second} is None else {not decisive})"
        )
        return Compiled(code, SqlType.BOOLEAN, nullable=True)

    return compile_connective


def _not(program: Program, node: exp.Not) -> Compiled:
    return program.strict("(not {0})", [program.expect(node.this, SqlType.BOOLEAN)], SqlType.BOOLEAN)


def _is(program: Program, node: exp.Is) -> Compiled:
    negate = bool(node.args.get("negate"))
    word = "is not" if negate else "is"
    if isinstance(node.expression, exp.Null):
        return Compiled(f"({program.compile(node.this).code} {word} None)", SqlType.BOOLEAN)
    if isinstance(node.expression, exp.Boolean):
        operand = program.expect(node.this, SqlType.BOOLEAN)
        return Compiled(f"({operand.code} {word} {bool(node.expression.this)})", SqlType.BOOLEAN)
    raise program.refused(node, f"{_described(node)} is not supported.", "IS tests for NULL, TRUE or FALSE.")


def _in(program: Program, node: exp.In) -> Compiled:
    operand, *members = program.compared([node.this, *node.expressions], "IN")
    if all(member.literal is not None for member in members):
        return program.strict(
            f"({{0}} in {program.constant(frozenset(m.literal for m in members))})", [operand], SqlType.BOOLEAN
        )
    code = " or ".join(f"{{0}} == ({member.code})" for member in members)
    if any(member.nullable for member in members):
        raise program.refused(
            node,
            "IN supports only values that are never NULL in its list.",
            "Write comparisons with OR, or coalesce(…).",
        )
    name = program.temporary()
    bound = Compiled(f"({name} := {operand.code})", operand.type)
    if operand.nullable:
        return Compiled(f"(None if {bound.code} is None else {code.format(name)})", SqlType.BOOLEAN, nullable=True)
    first, *rest = members
    tests = [f"{bound.code} == ({first.code})", *(f"{name} == ({member.code})" for member in rest)]
    return Compiled(f"({' or '.join(tests)})", SqlType.BOOLEAN)


def _between(program: Program, node: exp.Between) -> Compiled:
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    return program.compile(exp.And(this=low, expression=high))


def _case(program: Program, node: exp.Case) -> Compiled:
    branches = node.args["ifs"]
    default = node.args.get("default") or exp.Null()
    results = program.together([*(branch.args["true"] for branch in branches), default], "CASE")
    code = results[-1].code
    for branch, result in zip(reversed(branches), reversed(results[:-1]), strict=True):
        condition = branch.this if node.this is None else exp.EQ(this=node.this.copy(), expression=branch.this.copy())
        code = f"({result.code} if {program.expect(condition, SqlType.BOOLEAN).code} else {code})"
    return Compiled(code, results[0].type, nullable=any(result.nullable for result in results))


def _cast(program: Program, node: exp.Cast) -> Compiled:
    wanted = declared_type(node.args["to"])
    if wanted is None:
        raise program.refused(node, f"There is no type {node.args['to'].sql()}.", f"The types are: {_types()}.")
    if isinstance(node.this, exp.IntDiv):
        return program.compile(node.this)
    operand = program.compile(node.this)
    implicit = program.converted(operand, wanted)
    if implicit is not None:
        return _scaled(program, node, implicit)
    if isinstance(operand.literal, str) and wanted in _FROM_TEXT:
        raise program.refused(node, f"{operand.literal!r} is not a valid {wanted.value}.")
    template = _CASTS.get((operand.type, wanted))
    if template is None:
        raise program.refused(node, f"A value of type {operand.type.value} cannot become {wanted.value}.")
    return _scaled(program, node, program.strict(template, [operand], wanted))


def _scaled(program: Program, node: exp.Cast, value: Compiled) -> Compiled:
    """Apply the parameters of a type, such as numeric(10, 2)."""
    parameters = [parameter.name for parameter in node.args["to"].expressions]
    if not parameters:
        return value
    if value.type is not SqlType.NUMERIC or not all(parameter.isdigit() for parameter in parameters):
        raise program.refused(node, f"Parameters of {value.type.value} are not supported.", "Leave them out.")
    scale = int(parameters[1]) if len(parameters) > 1 else 0
    limit = program.constant(Decimal(10) ** (int(parameters[0]) - scale))
    return program.strict(f"bounded_numeric({{0}}, {scale}, {limit})", [value], SqlType.NUMERIC)


def _types() -> str:
    return ", ".join(kind.value for kind in SqlType if kind is not SqlType.NULL)


def _coalesce(program: Program, node: exp.Coalesce) -> Compiled:
    *firsts, last = program.together([node.this, *node.expressions], "coalesce")
    code = last.code
    for value in reversed(firsts):
        if not value.nullable:
            code = value.code
            continue
        name = program.temporary()
        code = f"({name} if ({name} := {value.code}) is not None else {code})"
    return Compiled(code, last.type, nullable=all(value.nullable for value in [*firsts, last]))


def _nullif(program: Program, node: exp.Nullif) -> Compiled:
    left, right = program.compared([node.this, node.expression], "nullif")
    name = program.temporary()
    return Compiled(f"(None if ({name} := {left.code}) == {right.code} else {name})", left.type, nullable=True)


def _extreme(function: str) -> Callable[[Program, exp.Expr], Compiled]:
    """Return the handler of greatest or least, which pass over NULL."""

    def compile_extreme(program: Program, node: exp.Expr) -> Compiled:
        operands = program.compared([node.this, *node.expressions], function)
        listed = ", ".join(operand.code for operand in operands)
        return Compiled(
            f"{function}(({listed},))", operands[0].type, nullable=all(operand.nullable for operand in operands)
        )

    return compile_extreme


def _concatenation(program: Program, node: exp.DPipe) -> Compiled:
    return program.strict(
        "({0} + {1})", [_as_text(program, each) for each in (node.this, node.expression)], SqlType.TEXT
    )


def _as_text(program: Program, node: exp.Expr) -> Compiled:
    value = program.compile(node)
    template = "{0}" if value.type in (SqlType.TEXT, SqlType.NULL) else _CASTS.get((value.type, SqlType.TEXT))
    if template is None:
        raise program.refused(node, f"A value of type {value.type.value} cannot become text.")
    return program.strict(template, [value], SqlType.TEXT)


def _concat(program: Program, node: exp.Concat) -> Compiled:
    """Compile concat, which passes over NULL."""
    texts = [_as_text(program, each) for each in node.expressions]
    return Compiled("(" + " + ".join(f"({t.code} or '')" if t.nullable else t.code for t in texts) + ")", SqlType.TEXT)


def _concat_ws(program: Program, node: exp.ConcatWs) -> Compiled:
    separator, *texts = [_as_text(program, each) for each in node.expressions]
    listed = ", ".join(text.code for text in texts)
    return program.strict(f"join_texts({{0}}, ({listed},))", [separator], SqlType.TEXT)


def _like(function: str) -> Callable[[Program, exp.Binary], Compiled]:
    def compile_like(program: Program, node: exp.Binary) -> Compiled:
        operands = [program.expect(each, SqlType.TEXT) for each in (node.this, node.expression)]
        word = "not " if node.args.get("negate") else ""
        return program.strict(f"({word}{function}({{0}}, {{1}}))", operands, SqlType.BOOLEAN)

    return compile_like


def _escape(program: Program, node: exp.Escape) -> Compiled:
    function = {exp.Like: "like", exp.ILike: "ilike"}.get(type(node.this))
    if function is None or not isinstance(node.expression, exp.Literal):
        raise program.refused(node, "ESCAPE needs LIKE or ILIKE before it and a quoted character after it.")
    operands = [program.expect(each, SqlType.TEXT) for each in (node.this.this, node.this.expression)]
    word = "not " if node.this.args.get("negate") else ""
    return program.strict(f"({word}{function}({{0}}, {{1}}, {node.expression.this!r}))", operands, SqlType.BOOLEAN)


def _regexp(flags: str) -> Callable[[Program, exp.Expr], Compiled]:
    def compile_regexp(program: Program, node: exp.Expr) -> Compiled:
        operands = [program.expect(each, SqlType.TEXT) for each in (node.this, node.expression)]
        return program.strict(f"matches({{0}}, {{1}}, {flags!r})", operands, SqlType.BOOLEAN)

    return compile_regexp


def _regexp_replace(program: Program, node: exp.RegexpReplace) -> Compiled:
    optional = [node.args[name] for name in ("modifiers",) if node.args.get(name)]
    operands = [node.this, node.expression, node.args.get("replacement") or exp.Literal.string(""), *optional]
    compiled = [program.expect(each, SqlType.TEXT) for each in operands]
    places = ", ".join(f"{{{index}}}" for index in range(len(compiled)))
    return program.strict(f"regexp_replace({places})", compiled, SqlType.TEXT)


def _trim(program: Program, node: exp.Trim) -> Compiled:
    method = {"LEADING": "lstrip", "TRAILING": "rstrip"}.get(node.args.get("position") or "BOTH", "strip")
    operands = [node.this, *([node.expression] if node.expression else [exp.Literal.string(" ")])]
    return program.strict(
        f"{{0}}.{method}({{1}})", [program.expect(each, SqlType.TEXT) for each in operands], SqlType.TEXT
    )


def _extract(program: Program, node: exp.Extract) -> Compiled:
    part = node.this.name.lower()
    if part not in values.PARTS:
        raise program.refused(node, f"extract does not know {part!r}.", f"It knows {', '.join(values.PARTS)}.")
    return program.strict(f"time_part({part!r}, {{0}})", [_moment(program, node.expression)], SqlType.DOUBLE)


def _moment(program: Program, node: exp.Expr) -> Compiled:
    """Return the code of a time, with or without time zone."""
    compiled = program.compile(node)
    return compiled if compiled.type is SqlType.LOCAL else program.expect(node, SqlType.TIMESTAMP)


def _at_time_zone(program: Program, node: exp.AtTimeZone) -> Compiled:
    """Compile the local time of a moment, or the moment of a local time."""
    moment, zone = _moment(program, node.this), _zone(program, node.args["zone"])
    if moment.type is SqlType.LOCAL:
        return program.strict(f"moment_of_local({{0}}, {zone})", [moment], SqlType.TIMESTAMP)
    return program.strict(f"local_time({{0}}, {zone})", [moment], SqlType.LOCAL)


def _zone(program: Program, node: exp.Expr) -> str:
    """Return the name of a constant time zone."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise program.refused(node, "A time zone is a quoted name.", "Write at AT TIME ZONE 'Europe/Berlin'.")
    known = available_timezones()
    if node.name not in known:
        raise program.refused(
            node, f"There is no time zone {node.name!r}.", did_you_mean(node.name, sorted(known)).strip()
        )
    return program.constant(ZoneInfo(node.name))


def _date_bin(program: Program, node: exp.DateBin) -> Compiled:
    width = exp.Interval(this=node.this) if isinstance(node.this, exp.Literal) else node.this
    length = interval_of(program.text, width) if isinstance(width, exp.Interval) else timedelta()
    if length <= timedelta():
        raise program.refused(
            node, "date_bin needs an interval above zero.", "Write date_bin('15 minutes', at, '2026-01-01')."
        )
    times = [program.expect(each, SqlType.TIMESTAMP) for each in (node.expression, node.args["unit"])]
    return program.strict(f"bin_time({program.constant(length)}, {{0}}, {{1}})", times, SqlType.TIMESTAMP)


def _not_repeatable(program: Program, node: exp.Expr) -> Compiled:
    raise program.refused(
        node,
        f"{_described(node)} is not supported: a replay, a restart and a backfill would compute other values.",
        "Use the event time.",
    )


def _date_trunc(program: Program, node: exp.Expr) -> Compiled:
    unit = node.args["unit"].name.lower()
    if unit not in values.TRUNCATIONS:
        raise program.refused(node, f"date_trunc does not know {unit!r}.", f"It knows {', '.join(values.TRUNCATIONS)}.")
    if node.args.get("zone") is not None:
        zone = _zone(program, node.args["zone"])
        template = f"moment_of_local(truncate_time({unit!r}, local_time({{0}}, {zone})), {zone})"
        return program.strict(template, [program.expect(node.this, SqlType.TIMESTAMP)], SqlType.TIMESTAMP)
    moment = _moment(program, node.this)
    return program.strict(f"truncate_time({unit!r}, {{0}})", [moment], moment.type)


def _json(*, as_text: bool) -> Callable[[Program, exp.Expr], Compiled]:
    def compile_json(program: Program, node: exp.Expr) -> Compiled:
        source = program.expect(node.this, SqlType.JSON)
        found = program.strict(_json_part(program, node), [source], SqlType.JSON, nullable=True)
        return program.strict("json_text({0})", [found], SqlType.TEXT, nullable=True) if as_text else found

    return compile_json


def _json_part(program: Program, node: exp.Expr) -> str:
    """Return the code of a field, an element, or the part at a path such as '{items,0}'."""
    if not isinstance(node, (exp.JSONBExtract, exp.JSONBExtractScalar)):
        return f"json_field({{0}}, {program.constant(tuple(_json_steps(program, node)))})"
    path = node.expression.name
    if not (isinstance(node.expression, exp.Literal) and path.startswith("{") and path.endswith("}")):
        raise program.refused(
            node, f"{_described(node)} is not supported.", "Write a quoted path after #> and #>>: '{items,0}'."
        )
    steps = tuple(step.strip().strip('"') for step in path[1:-1].split(",")) if path != "{}" else ()
    return f"json_part({{0}}, {program.constant(steps)})"


def _json_steps(program: Program, node: exp.Expr) -> Iterator[str | int]:
    for part in node.expression.expressions if isinstance(node.expression, exp.JSONPath) else [node.expression]:
        if isinstance(part, exp.JSONPathRoot):
            continue
        if isinstance(part, exp.Neg) and isinstance(part.this, exp.Literal) and part.this.name.isdigit():
            yield -int(part.this.name)
            continue
        if not isinstance(part, (exp.JSONPathKey, exp.JSONPathSubscript)):
            raise program.refused(
                node, f"{_described(node)} is not supported.", "Name one field or index after -> and ->>."
            )
        yield part.this


def _anonymous(program: Program, node: exp.Anonymous) -> Compiled:
    name = node.name.lower()
    signature = _NAMED.get(name)
    if signature is None:
        known = [*_NAMED, *_WELL_KNOWN]
        raise program.refused(node, f"There is no function {node.name}.", did_you_mean(name, known).strip())
    return _apply(program, node, signature, node.expressions)


def _python_function(program: Program, node: PythonFunction) -> Compiled:
    """Compile the call of a function in Python: only arguments that exclude NULL make it NULL."""
    definition: Definition = node.meta[DEFINITION]
    if len(node.expressions) != len(definition.parameters):
        raise program.refused(
            node,
            f"{definition.name} has {len(definition.parameters)} arguments, and {len(node.expressions)} are given.",
        )
    compiled = [
        program.expect(each, kind.type) for each, kind in zip(node.expressions, definition.parameters, strict=True)
    ]
    arguments = [
        replace(each, nullable=each.nullable and not kind.nullable)
        for each, kind in zip(compiled, definition.parameters, strict=True)
    ]
    places = ", ".join(f"{{{index}}}" for index in range(len(arguments)))
    template = f"{program.constant(definition.function)}({places})"
    return program.strict(template, arguments, definition.result.type, nullable=definition.result.nullable)


@dataclass(frozen=True)
class _Signature:
    """A function with parameters of fixed types that is NULL for NULL.

    Args:
        template: its code.
        parameters: the types of its arguments.
        result: the type of its value.
        optional: the number of parameters at the end that a call may leave out.
        nullable: whether it can be NULL for arguments that are not NULL.
    """

    template: str
    parameters: tuple[SqlType, ...]
    result: SqlType
    optional: int = 0
    nullable: bool = False


def _apply(program: Program, node: exp.Expr, signature: _Signature, arguments: Sequence[exp.Expr]) -> Compiled:
    most, least = len(signature.parameters), len(signature.parameters) - signature.optional
    if not least <= len(arguments) <= most:
        raise program.refused(node, f"{_described(node)} has {len(arguments)} arguments instead of {most}.")
    compiled = [program.expect(each, kind) for each, kind in zip(arguments, signature.parameters, strict=False)]
    places = ", ".join(f"{{{index}}}" for index in range(len(compiled)))
    template = signature.template.replace("{*}", places)
    return program.strict(template, compiled, signature.result, nullable=signature.nullable)


def _fixed(signature: _Signature, *names: str) -> _Handler:
    """Return the handler of a function whose arguments the parser names."""

    def compile_fixed(program: Program, node: exp.Expr) -> Compiled:
        arguments = [node.args[name] for name in names if node.args.get(name) is not None]
        return _apply(program, node, signature, arguments)

    return _Handler(compile_fixed, frozenset(names))


def _by_type(
    templates: Mapping[SqlType, tuple[str, SqlType]], otherwise: SqlType
) -> Callable[[Program, exp.Expr], Compiled]:
    """Return the handler of a function of one number whose code depends on the number's type."""

    def compile_by_type(program: Program, node: exp.Expr) -> Compiled:
        operand = program.compile(node.this)
        if operand.type not in templates:
            operand = program.expect(node.this, otherwise)
        template, result = templates[operand.type]
        return program.strict(template, [operand], result)

    return compile_by_type


def _round(program: Program, node: exp.Round) -> Compiled:
    operand = program.compile(node.this)
    digits = node.args.get("decimals")
    if digits is None:
        return _ROUND(program, node)
    if operand.type is SqlType.DOUBLE:
        raise program.refused(
            node,
            "round with digits is defined for numeric only, as in PostgreSQL.",
            "Write round(cast(… as numeric), …).",
        )
    number = program.expect(node.this, SqlType.NUMERIC)
    return program.strict("round_numeric({0}, {1})", [number, program.expect(digits, SqlType.BIGINT)], SqlType.NUMERIC)


def _trunc(program: Program, node: exp.Trunc) -> Compiled:
    operand, digits = program.compile(node.this), node.args.get("decimals")
    if digits is None and operand.type is not SqlType.NUMERIC:
        return program.strict("truncate_double({0})", [program.expect(node.this, SqlType.DOUBLE)], SqlType.DOUBLE)
    if operand.type is SqlType.DOUBLE:
        raise program.refused(
            node,
            "trunc with digits is defined for numeric only, as in PostgreSQL.",
            "Write trunc(cast(… as numeric), …).",
        )
    number = program.expect(node.this, SqlType.NUMERIC)
    scale = program.expect(digits or exp.Literal.number(0), SqlType.BIGINT)
    return program.strict("truncate_numeric({0}, {1})", [number, scale], SqlType.NUMERIC)


def _log(program: Program, node: exp.Log) -> Compiled:
    if node.args.get("expression") is not None:
        raise program.refused(node, "log with a base is not supported.", "Write ln(x) / ln(base).")
    return program.strict("logarithm_10({0})", [program.expect(node.this, SqlType.DOUBLE)], SqlType.DOUBLE)


def _pad(program: Program, node: exp.Pad) -> Compiled:
    fill = node.args.get("fill_pattern") or exp.Literal.string(" ")
    arguments = [(node.this, SqlType.TEXT), (node.expression, SqlType.BIGINT), (fill, SqlType.TEXT)]
    return program.strict(
        f"pad({{0}}, {{1}}, {{2}}, is_left={bool(node.args.get('is_left'))})",
        [program.expect(argument, kind) for argument, kind in arguments],
        SqlType.TEXT,
    )


_T, _I, _D, _N = SqlType.TEXT, SqlType.BIGINT, SqlType.DOUBLE, SqlType.NUMERIC
_FROM_TEXT = {
    SqlType.BOOLEAN: "text_to_boolean",
    SqlType.BIGINT: "text_to_bigint",
    SqlType.DOUBLE: "text_to_double",
    SqlType.NUMERIC: "text_to_numeric",
    SqlType.TIMESTAMP: "text_to_timestamp",
    SqlType.DATE: "text_to_date",
    SqlType.UUID: "text_to_uuid",
    SqlType.JSON: "text_to_json",
}
_CASTS = {
    **{(SqlType.TEXT, kind): f"{name}({{0}})" for kind, name in _FROM_TEXT.items()},
    (_I, _D): "float({0})",
    (_I, _N): "Decimal({0})",
    (_I, _T): "str({0})",
    (_I, SqlType.BOOLEAN): "({0} != 0)",
    (_D, _I): "double_to_bigint({0})",
    (_D, _N): "Decimal(repr({0}))",
    (_D, _T): "double_to_text({0})",
    (_N, _I): "numeric_to_bigint({0})",
    (_N, _D): "float({0})",
    (_N, _T): "numeric_to_text({0})",
    (SqlType.BOOLEAN, _I): "int({0})",
    (SqlType.BOOLEAN, _T): "('true' if {0} else 'false')",
    (SqlType.TIMESTAMP, SqlType.DATE): "{0}.date()",
    (SqlType.TIMESTAMP, _T): "timestamp_to_text({0})",
    (SqlType.LOCAL, SqlType.DATE): "{0}.date()",
    (SqlType.LOCAL, _T): "local_to_text({0})",
    (SqlType.DATE, SqlType.TIMESTAMP): "date_to_timestamp({0})",
    (SqlType.DATE, _T): "{0}.isoformat()",
    (SqlType.UUID, _T): "str({0})",
    (SqlType.JSON, _T): "json_text({0})",
    (SqlType.JSON, _I): "numeric_to_bigint(json_number({0}))",
    (SqlType.JSON, _D): "float(json_number({0}))",
    (SqlType.JSON, _N): "json_number({0})",
    (SqlType.JSON, SqlType.BOOLEAN): "json_boolean({0})",
}
"""The code of conversions, by the types from and to."""
_IMPLICIT = frozenset({(_I, _D), (_I, _N), (_N, _D), (SqlType.DATE, SqlType.TIMESTAMP)})
_NAMED = {
    "regexp_substr": _Signature("regexp_substring({*})", (_T, _T), _T, nullable=True),
    "to_timestamp_ms": _Signature("milliseconds_to_timestamp({*})", (_D,), SqlType.TIMESTAMP),
    "epoch_ms": _Signature("epoch_ms({*})", (SqlType.TIMESTAMP,), _I),
    "right": _Signature("right({*})", (_T, _I), _T),
    "cbrt": _Signature("cube_root({*})", (_D,), _D),
    "jsonb_array_length": _Signature("json_length({*})", (SqlType.JSON,), _I),
    "jsonb_typeof": _Signature("json_type({*})", (SqlType.JSON,), _T),
}
"""The functions that the parser does not know, by name."""
_WELL_KNOWN = [
    "abs",
    "ascii",
    "ceil",
    "coalesce",
    "concat",
    "concat_ws",
    "date_bin",
    "date_trunc",
    "exp",
    "extract",
    "floor",
    "greatest",
    "initcap",
    "least",
    "left",
    "length",
    "ln",
    "log",
    "lower",
    "lpad",
    "md5",
    "mod",
    "nullif",
    "position",
    "power",
    "regexp_replace",
    "repeat",
    "replace",
    "reverse",
    "right",
    "round",
    "rpad",
    "sign",
    "split_part",
    "sqrt",
    "starts_with",
    "strpos",
    "substring",
    "to_timestamp",
    "translate",
    "trim",
    "trunc",
    "upper",
]
"""The functions that the parser knows, for suggestions."""
_INITCAP = _Signature("initcap({*})", (_T,), _T)
_ROUND = _by_type({_D: ("round_double({0})", _D), _N: ("round_numeric({0})", _N), _I: ("float({0})", _D)}, _D)
_LIKE = frozenset({"this", "expression", "negate"})
_HANDLERS: dict[type[exp.Expr], _Handler] = {
    exp.Column: _Handler(_column, frozenset({"this", "table"})),
    exp.Literal: _Handler(_literal, frozenset({"this", "is_string"})),
    exp.Boolean: _Handler(_boolean),
    exp.Null: _Handler(_null),
    exp.Paren: _Handler(_parentheses),
    exp.Interval: _Handler(_interval, frozenset({"this", "unit"})),
    **dict.fromkeys(_ARITHMETIC, _Handler(_arithmetic, frozenset({"this", "expression", "typed"}))),
    exp.Neg: _Handler(_negative),
    exp.EQ: _Handler(_comparison("==")),
    exp.NEQ: _Handler(_comparison("!=")),
    exp.LT: _Handler(_comparison("<")),
    exp.LTE: _Handler(_comparison("<=")),
    exp.GT: _Handler(_comparison(">")),
    exp.GTE: _Handler(_comparison(">=")),
    exp.NullSafeEQ: _Handler(_same(negated=False)),
    exp.NullSafeNEQ: _Handler(_same(negated=True)),
    exp.And: _Handler(_connective("and", decisive=False)),
    exp.Or: _Handler(_connective("or", decisive=True)),
    exp.Not: _Handler(_not),
    exp.Is: _Handler(_is, frozenset({"this", "expression", "negate"})),
    exp.In: _Handler(_in, frozenset({"this", "expressions"})),
    exp.Between: _Handler(_between, frozenset({"this", "low", "high"})),
    exp.Case: _Handler(_case, frozenset({"this", "ifs", "default"})),
    exp.Cast: _Handler(_cast, frozenset({"this", "to"})),
    exp.Coalesce: _Handler(_coalesce, frozenset({"this", "expressions"})),
    exp.Nullif: _Handler(_nullif),
    exp.Greatest: _Handler(_extreme("greatest"), frozenset({"this", "expressions", "ignore_nulls"})),
    exp.Least: _Handler(_extreme("least"), frozenset({"this", "expressions", "ignore_nulls"})),
    exp.DPipe: _Handler(_concatenation, frozenset({"this", "expression", "safe"})),
    exp.Concat: _Handler(_concat, frozenset({"expressions", "safe", "coalesce"})),
    exp.ConcatWs: _Handler(_concat_ws, frozenset({"expressions", "safe", "coalesce"})),
    exp.Like: _Handler(_like("like"), _LIKE),
    exp.ILike: _Handler(_like("ilike"), _LIKE),
    exp.Escape: _Handler(_escape),
    exp.RegexpLike: _Handler(_regexp("")),
    exp.RegexpILike: _Handler(_regexp("i")),
    exp.RegexpReplace: _Handler(
        _regexp_replace, frozenset({"this", "expression", "replacement", "modifiers", "single_replace"})
    ),
    exp.Trim: _Handler(_trim, frozenset({"this", "expression", "position"})),
    exp.Extract: _Handler(_extract),
    exp.TimestampTrunc: _Handler(_date_trunc, frozenset({"this", "unit", "zone"})),
    exp.AtTimeZone: _Handler(_at_time_zone, frozenset({"this", "zone"})),
    exp.DateBin: _Handler(_date_bin, frozenset({"this", "expression", "unit"})),
    **dict.fromkeys((exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Rand), _Handler(_not_repeatable)),
    exp.JSONExtract: _Handler(_json(as_text=False), frozenset({"this", "expression", "only_json_types"})),
    exp.JSONExtractScalar: _Handler(_json(as_text=True), frozenset({"this", "expression", "only_json_types"})),
    exp.JSONBExtract: _Handler(_json(as_text=False)),
    exp.JSONBExtractScalar: _Handler(_json(as_text=True)),
    exp.Anonymous: _Handler(_anonymous, frozenset({"this", "expressions"})),
    PythonFunction: _Handler(_python_function, frozenset({"this", "expressions"})),
    exp.Round: _Handler(_round, frozenset({"this", "decimals"})),
    exp.Trunc: _Handler(_trunc, frozenset({"this", "decimals"})),
    exp.Log: _Handler(_log),
    exp.Pad: _Handler(_pad, frozenset({"this", "expression", "fill_pattern", "is_left"})),
    exp.Abs: _Handler(_by_type({_I: ("bigint(abs({0}))", _I), _D: ("abs({0})", _D), _N: ("abs({0})", _N)}, _D)),
    exp.Floor: _Handler(_by_type({_D: ("float(floor({0}))", _D), _N: ("Decimal(floor({0}))", _N)}, _D)),
    exp.Ceil: _Handler(_by_type({_D: ("float(ceil({0}))", _D), _N: ("Decimal(ceil({0}))", _N)}, _D)),
    exp.Sign: _Handler(_by_type({_D: ("float(({0} > 0) - ({0} < 0))", _D)}, _D)),
    exp.Lower: _fixed(_Signature("{0}.lower()", (_T,), _T), "this"),
    exp.Upper: _fixed(_Signature("{0}.upper()", (_T,), _T), "this"),
    exp.Length: _fixed(_Signature("len({0})", (_T,), _I), "this"),
    exp.Initcap: _Handler(
        lambda program, node: _apply(program, node, _INITCAP, [node.this]), frozenset({"this", "expression"})
    ),
    exp.Repeat: _fixed(_Signature("repeat({*})", (_T, _I), _T), "this", "times"),
    exp.Ascii: _fixed(_Signature("code_point({*})", (_T,), _I), "this"),
    exp.Translate: _fixed(_Signature("translate({*})", (_T, _T, _T), _T), "this", "from_", "to"),
    exp.MD5: _fixed(_Signature("md5({*})", (_T,), _T), "this"),
    exp.Reverse: _fixed(_Signature("{0}[::-1]", (_T,), _T), "this"),
    exp.Replace: _fixed(_Signature("{0}.replace({1}, {2})", (_T, _T, _T), _T), "this", "expression", "replacement"),
    exp.Substring: _fixed(_Signature("substring({*})", (_T, _I, _I), _T, optional=1), "this", "start", "length"),
    exp.SplitPart: _fixed(_Signature("split_part({*})", (_T, _T, _I), _T), "this", "delimiter", "part_index"),
    exp.StrPosition: _fixed(_Signature("({0}.find({1}) + 1)", (_T, _T), _I), "this", "substr"),
    exp.StartsWith: _fixed(_Signature("{0}.startswith({1})", (_T, _T), SqlType.BOOLEAN), "this", "expression"),
    exp.Left: _fixed(_Signature("left({*})", (_T, _I), _T), "this", "expression"),
    exp.Right: _fixed(_Signature("right({*})", (_T, _I), _T), "this", "expression"),
    exp.Sqrt: _fixed(_Signature("square_root({*})", (_D,), _D), "this"),
    exp.Exp: _fixed(_Signature("exponential({*})", (_D,), _D), "this"),
    exp.Ln: _fixed(_Signature("logarithm({*})", (_D,), _D), "this"),
    exp.Pow: _fixed(_Signature("power({*})", (_D, _D), _D), "this", "expression"),
    exp.IntDiv: _fixed(_Signature("divide_bigint({*})", (_I, _I), _I), "this", "expression"),
    exp.UnixToTime: _fixed(_Signature("seconds_to_timestamp({*})", (_D,), SqlType.TIMESTAMP), "this"),
}
_OPERATIONS = [
    name
    for name, value in vars(values).items()
    if callable(value) and not name.startswith("_") and value.__module__ == values.__name__
]
