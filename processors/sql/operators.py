"""Columns, literals and operators of SQL expressions, and the forms that choose among values: CASE, coalesce, greatest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from math import isinf
from typing import Any

from sqlglot import exp

from ..validation import did_you_mean
from .columns import (
    CONNECTIVES,
    FIRST_VALUE,
    chosen,
    computed,
    computed_once,
    constant_column,
    is_member,
    is_null,
    is_value,
    null_if,
)
from .conversions import CASTS, CONVERTING_CALLS, FROM_TEXT
from .errors import SqlDataError
from .expression_compiler import Compiled, ExpressionCompiler, Handler, Steps, chain_of, described
from .types import NUMBERS, PYTHON_TYPES, SqlType, declared_type
from .values import is_underflow


def _column(program: ExpressionCompiler, node: exp.Column) -> Compiled:
    found = program.scope.column(node.table or None, node.name)
    if found is None:
        names = program.scope.names()
        raise program.refused(
            node,
            f"There is no column {node.sql()!r}. The columns are: {', '.join(names)}.",
            _field_advice(program, node) or did_you_mean(node.name, names).strip() or _text_advice(node),
        )
    return found


def _field_advice(program: ExpressionCompiler, node: exp.Column) -> str:
    """Return advice if the field of a JSON value may be meant."""
    document = program.scope.column(None, node.table) if node.table else None
    is_json = document is not None and document.type is SqlType.JSON
    return f"Write {node.table} ->> '{node.name}' for a field of {node.table}." if is_json else ""


def _text_advice(node: exp.Column) -> str:
    """Return advice if a text may be meant: many write it in double quotes, which SQL has for names."""
    if not (isinstance(node.this, exp.Identifier) and node.this.quoted):
        return ""
    return f"Double quotes are for names; a text has single quotes: {exp.Literal.string(node.name).sql()}."


def _literal(program: ExpressionCompiler, node: exp.Literal) -> Compiled:
    if node.is_string:
        return _constant(program.constant(node.this), SqlType.TEXT, node.this)
    if node.this.isascii() and node.this.isdigit():
        digits = node.this.lstrip("0") or "0"
        if len(digits) > _MOST_DIGITS or int(digits) > 2**63 - 1:
            raise program.refused(
                node, f"{digits} is too large for bigint.", f"Write a number in quotes: cast('{digits}' AS numeric)."
            )
        return _constant(digits, SqlType.BIGINT, int(digits))
    try:
        number = float(node.this)
    except ValueError as error:
        raise program.refused(node, f"{node.this} is no number.", "Write 0.5 or 5e-1.") from error
    if isinf(number):
        raise program.refused(node, f"{node.this} is too large for double precision.")
    if is_underflow(node.this, number):
        raise program.refused(node, f"{node.this} is too small for double precision.")
    return _constant(repr(number), SqlType.DOUBLE, number)


_MOST_DIGITS = 19
"""The number of digits of the largest bigint."""


def _constant(code: str, kind: SqlType, value: Any) -> Compiled:
    return Compiled(code, kind, literal=value, columns=constant_column(value, kind))


def _boolean(_: ExpressionCompiler, node: exp.Boolean) -> Compiled:
    return _constant(repr(bool(node.this)), SqlType.BOOLEAN, bool(node.this))


def _null(_: ExpressionCompiler, __: exp.Null) -> Compiled:
    return Compiled("None", SqlType.NULL, nullable=True)


def _parentheses(program: ExpressionCompiler, node: exp.Paren) -> Compiled:
    return program.compile(node.this)


_ARITHMETIC: dict[type[exp.Expr], dict[SqlType, str]] = {
    exp.Add: {
        SqlType.BIGINT: "bigint({0} + {1})",
        SqlType.DOUBLE: "add_double({0}, {1})",
        SqlType.NUMERIC: "add_numeric({0}, {1})",
    },
    exp.Sub: {
        SqlType.BIGINT: "bigint({0} - {1})",
        SqlType.DOUBLE: "subtract_double({0}, {1})",
        SqlType.NUMERIC: "subtract_numeric({0}, {1})",
    },
    exp.Mul: {
        SqlType.BIGINT: "bigint({0} * {1})",
        SqlType.DOUBLE: "multiply_double({0}, {1})",
        SqlType.NUMERIC: "multiply_numeric({0}, {1})",
    },
    exp.Div: {
        SqlType.BIGINT: "divide_bigint({0}, {1})",
        SqlType.DOUBLE: "divide_double({0}, {1})",
        SqlType.NUMERIC: "divide_numeric({0}, {1})",
    },
    exp.Mod: {SqlType.BIGINT: "remainder_bigint({0}, {1})", SqlType.NUMERIC: "remainder_numeric({0}, {1})"},
}
_TIME_ARITHMETIC: dict[tuple[type[exp.Expr], SqlType, SqlType], tuple[str, SqlType]] = {
    (exp.Add, SqlType.TIMESTAMP, SqlType.INTERVAL): ("add_interval({0}, {1})", SqlType.TIMESTAMP),
    (exp.Add, SqlType.INTERVAL, SqlType.TIMESTAMP): ("add_interval({1}, {0})", SqlType.TIMESTAMP),
    (exp.Sub, SqlType.TIMESTAMP, SqlType.INTERVAL): ("add_interval({0}, -{1})", SqlType.TIMESTAMP),
    (exp.Sub, SqlType.TIMESTAMP, SqlType.TIMESTAMP): ("({0} - {1})", SqlType.INTERVAL),
    (exp.Add, SqlType.LOCAL, SqlType.INTERVAL): ("add_interval({0}, {1})", SqlType.LOCAL),
    (exp.Sub, SqlType.LOCAL, SqlType.INTERVAL): ("add_interval({0}, -{1})", SqlType.LOCAL),
    (exp.Sub, SqlType.LOCAL, SqlType.LOCAL): ("({0} - {1})", SqlType.INTERVAL),
    (exp.Sub, SqlType.DATE, SqlType.DATE): ("({0} - {1}).days", SqlType.BIGINT),
    (exp.Add, SqlType.DATE, SqlType.BIGINT): ("add_days({0}, {1})", SqlType.DATE),
    (exp.Add, SqlType.BIGINT, SqlType.DATE): ("add_days({1}, {0})", SqlType.DATE),
    (exp.Sub, SqlType.DATE, SqlType.BIGINT): ("add_days({0}, -{1})", SqlType.DATE),
    (exp.Add, SqlType.DATE, SqlType.INTERVAL): ("add_interval(date_to_timestamp({0}), {1})", SqlType.LOCAL),
    (exp.Add, SqlType.INTERVAL, SqlType.DATE): ("add_interval(date_to_timestamp({1}), {0})", SqlType.LOCAL),
    (exp.Sub, SqlType.DATE, SqlType.INTERVAL): ("add_interval(date_to_timestamp({0}), -{1})", SqlType.LOCAL),
    (exp.Add, SqlType.INTERVAL, SqlType.INTERVAL): ("add_intervals({0}, {1})", SqlType.INTERVAL),
    (exp.Sub, SqlType.INTERVAL, SqlType.INTERVAL): ("add_intervals({0}, -{1})", SqlType.INTERVAL),
    **{(exp.Mul, SqlType.INTERVAL, kind): ("multiply_interval({0}, {1})", SqlType.INTERVAL) for kind in NUMBERS},
    **{(exp.Mul, kind, SqlType.INTERVAL): ("multiply_interval({1}, {0})", SqlType.INTERVAL) for kind in NUMBERS},
    **{(exp.Div, SqlType.INTERVAL, kind): ("divide_interval({0}, {1})", SqlType.INTERVAL) for kind in NUMBERS},
}
_TIMES = (SqlType.TIMESTAMP, SqlType.LOCAL, SqlType.DATE, SqlType.INTERVAL)
_LENGTHS = (SqlType.INTERVAL, *NUMBERS)
_TIME_ADVICE = "An interval is added to a time and multiplied by a number: at + 5 * interval '1 second'."


def _arithmetic(program: ExpressionCompiler, node: exp.Binary) -> Compiled:
    steps, [first, *_] = Steps(program), (chain := chain_of(node, tuple(_ARITHMETIC)))
    value = program.compile(first.this)
    for operation in chain:
        program.handler_of(operation)
        value = steps.shallow(_operation(program, operation, value, program.compile(operation.expression)))
    return steps.finished(value)


def _operation(program: ExpressionCompiler, node: exp.Binary, left: Compiled, right: Compiled) -> Compiled:
    timed = _TIME_ARITHMETIC.get((type(node), left.type, right.type))
    if timed is not None:
        return _folded(program, node, program.strict(timed[0], [left, right], timed[1]), [left, right])
    if (left.type in _TIMES and right.type in _LENGTHS) or (left.type in _LENGTHS and right.type in _TIMES):
        raise program.refused(
            node, f"{described(node)} is not defined for {left.type.value} and {right.type.value}.", _TIME_ADVICE
        )
    left, right = program.together([node.this, node.expression], node, [left, right])
    template = _ARITHMETIC[type(node)].get(left.type)
    if left.type is SqlType.NULL:
        return Compiled("None", SqlType.NULL, nullable=True)
    if template is None:
        raise program.refused(node, f"{described(node)} is not defined for {left.type.value}.")
    return program.strict(template, [left, right], left.type)


def _folded(program: ExpressionCompiler, node: exp.Expr, compiled: Compiled, operands: Sequence[Compiled]) -> Compiled:
    """Return an interval of constants as a constant: windows and joins need its length before there is a row."""
    if compiled.type is not SqlType.INTERVAL or any(each.literal is None for each in operands):
        return compiled
    try:
        value = program.function("folded", "", [f"return {compiled.code}"])()
    except SqlDataError as error:
        raise program.refused(node, f"{described(node)} has no value: {error}.") from error
    return _constant(program.constant(value), SqlType.INTERVAL, value)


_NEGATIONS = {
    SqlType.BIGINT: "bigint(-{0})",
    SqlType.DOUBLE: "(-{0})",
    SqlType.NUMERIC: "negate_numeric({0})",
    SqlType.INTERVAL: "multiply_interval({0}, -1)",
}


def _negative(program: ExpressionCompiler, node: exp.Neg) -> Compiled:
    operand = program.compile(node.this)
    if operand.type not in _NEGATIONS:
        raise program.refused(node, f"A minus sign is not defined for {operand.type.value}.")
    negated = program.strict(_NEGATIONS[operand.type], [operand], operand.type)
    if operand.type is SqlType.INTERVAL:
        return _folded(program, node, negated, [operand])
    if operand.literal is None or operand.type is SqlType.NUMERIC or operand.literal == -(2**63):
        return negated
    return _constant(f"(-{operand.code})", operand.type, -operand.literal)


def _comparison(operator: str) -> Callable[[ExpressionCompiler, exp.Binary], Compiled]:
    def compile_comparison(program: ExpressionCompiler, node: exp.Binary) -> Compiled:
        operands = program.compared([node.this, node.expression], node)
        return program.strict(f"({{0}} {operator} {{1}})", operands, SqlType.BOOLEAN)

    return compile_comparison


def _same(*, negated: bool) -> Callable[[ExpressionCompiler, exp.Binary], Compiled]:
    def compile_same(program: ExpressionCompiler, node: exp.Binary) -> Compiled:
        left, right = program.compared([node.this, node.expression], node)
        return Compiled(f"({left.code} {'!=' if negated else '=='} {right.code})", SqlType.BOOLEAN)

    return compile_same


def _connective(kind: type[exp.Connector]) -> Callable[[ExpressionCompiler, exp.Connector], Compiled]:
    """Return the handler of AND or OR."""

    def compile_connective(program: ExpressionCompiler, node: exp.Connector) -> Compiled:
        chain = chain_of(node, (kind,))
        operands = [chain[0].this, *(each.expression for each in chain)]
        return _connected(program, kind, [program.expect(each, SqlType.BOOLEAN) for each in operands])

    return compile_connective


def _connected(program: ExpressionCompiler, kind: type[exp.Connector], operands: Sequence[Compiled]) -> Compiled:
    """Return the code of conditions joined by AND or OR: three-valued, and decided by the first operand with the decisive value."""
    decisive = kind is exp.Or
    word = "or" if decisive else "and"
    columns = computed(CONNECTIVES[word], [each.columns for each in operands])
    if not any(each.nullable for each in operands):
        return Compiled(f"({f' {word} '.join(each.code for each in operands)})", SqlType.BOOLEAN, columns=columns)
    tests, names = [], []
    for each in operands:
        if each.nullable:
            names.append(program.temporary())
            tests.append(f"({names[-1]} := {each.code}) is {decisive}")
        else:
            tests.append(each.code if decisive else f"not {each.code}")
    unknown = " or ".join(f"{name} is None" for name in names)
    code = f"({decisive} if {' or '.join(tests)} else None if {unknown} else {not decisive})"
    return Compiled(code, SqlType.BOOLEAN, nullable=True, columns=columns)


def _bound(program: ExpressionCompiler, value: Compiled) -> tuple[Compiled, str]:
    """Return a value that several operations use, and the code that stores it before the first one; empty if it needs no variable."""
    if value.literal is not None or value.code.replace(".", "_").isidentifier():
        return value, ""
    name = program.temporary()
    return replace(value, code=name, columns=computed_once(value.columns)), f"{name} := {value.code}"


def _after(stored: str, compiled: Compiled) -> Compiled:
    """Return code that stores a value first. A tuple is true whatever it contains."""
    return replace(compiled, code=f"({compiled.code} if (({stored}),) else None)") if stored else compiled


def _not(program: ExpressionCompiler, node: exp.Not) -> Compiled:
    return program.strict("(not {0})", [program.expect(node.this, SqlType.BOOLEAN)], SqlType.BOOLEAN)


def _is(program: ExpressionCompiler, node: exp.Is) -> Compiled:
    negate = bool(node.args.get("negate"))
    word = "is not" if negate else "is"
    if isinstance(node.expression, exp.Null):
        operand = program.compile(node.this)
        columns = computed(is_null(negated=negate), [operand.columns])
        return Compiled(f"({operand.code} {word} None)", SqlType.BOOLEAN, columns=columns)
    if isinstance(node.expression, exp.Boolean):
        operand = program.expect(node.this, SqlType.BOOLEAN)
        wanted = bool(node.expression.this)
        columns = computed(is_value(wanted, negated=negate), [operand.columns])
        return Compiled(f"({operand.code} {word} {wanted})", SqlType.BOOLEAN, columns=columns)
    raise program.refused(node, f"{described(node)} is not supported.", "IS tests for NULL, TRUE or FALSE.")


def _in(program: ExpressionCompiler, node: exp.In) -> Compiled:
    if not node.expressions:
        raise program.refused(node, "IN () has no values.", "Write the values: IN (1, 2).")
    operand, *members = program.compared([node.this, *node.expressions], "IN")
    if all(member.literal is not None for member in members):
        values = frozenset(member.literal for member in members)
        return program.strict(
            f"({{0}} in {program.constant(values)})",
            [operand],
            SqlType.BOOLEAN,
            kernel=is_member(list(values), operand.type),
        )
    operand, stored = _bound(program, operand)
    tests = [program.strict("({0} == {1})", [operand, member], SqlType.BOOLEAN) for member in members]
    return _after(stored, _connected(program, exp.Or, tests))


def _between(program: ExpressionCompiler, node: exp.Between) -> Compiled:
    tests, (operand, stored) = [], _bound(program, program.compile(node.this))
    for name, operator in (("low", ">="), ("high", "<=")):
        nodes = [node.this, node.args[name]]
        pair = program.compared(nodes, node, [operand, program.compile(nodes[1])])
        tests.append(program.strict(f"({{0}} {operator} {{1}})", pair, SqlType.BOOLEAN))
    return _after(stored, _connected(program, exp.And, tests))


def _case(program: ExpressionCompiler, node: exp.Case) -> Compiled:
    branches = node.args["ifs"]
    default = node.args.get("default") or exp.Null()
    *results, last = program.together([*(branch.args["true"] for branch in branches), default], "CASE")
    conditions, stored = _conditions(program, node)
    pairs = list(zip(conditions, results, strict=True))
    operands = [each.columns for pair in pairs for each in pair]
    # A tuple is true whatever it contains: the first condition that holds stores its result, and ends the chain.
    name = program.temporary()
    tests = " or ".join(f"{condition.code} and (({name} := {result.code}),)" for condition, result in pairs)
    chain = Compiled(
        f"({name} if {tests} else {last.code})",
        last.type,
        nullable=any(result.nullable for result in (*results, last)),
        columns=computed(chosen, [*operands, last.columns]),
    )
    return _after(stored, chain)


def _conditions(program: ExpressionCompiler, node: exp.Case) -> tuple[list[Compiled], str]:
    """Return the conditions of the branches of CASE; with a value after CASE, the comparisons with it, and the code that stores it."""
    nodes = [branch.this for branch in node.args["ifs"]]
    if node.this is None:
        return [program.expect(each, SqlType.BOOLEAN) for each in nodes], ""
    conditions, (operand, stored) = [], _bound(program, program.compile(node.this))
    for each in nodes:
        pair = program.compared([node.this, each], "CASE", [operand, program.compile(each)])
        conditions.append(program.strict("({0} == {1})", pair, SqlType.BOOLEAN))
    return conditions, stored


def _cast(program: ExpressionCompiler, node: exp.Cast) -> Compiled:
    wanted = declared_type(node.args["to"])
    if wanted is None:
        raise program.refused(node, f"There is no type {node.args['to'].sql()}.", f"The types are: {_types()}.")
    if isinstance(node.this, exp.IntDiv):
        return program.compile(node.this)
    return _converted(program, node, program.compile(node.this), wanted)


def _try_cast(program: ExpressionCompiler, node: exp.TryCast) -> Compiled:
    """Compile TRY_CAST: NULL for a value that the cast refuses. An error of the value itself stays one."""
    wanted = declared_type(node.args["to"])
    if wanted is None:
        return _cast(program, node)
    operand = program.compile(node.this)
    converted = _converted(program, node, Compiled("value", operand.type), wanted)
    convert = program.constant(program.function("convert", "value", [f"return {converted.code}"]))
    return program.strict(f"attempted({convert}, {{0}})", [operand], wanted, nullable=True)


def _converted(program: ExpressionCompiler, node: exp.Cast, operand: Compiled, wanted: SqlType) -> Compiled:
    """Return the code of a value of another type, at the place of a cast."""
    implicit = program.converted(operand, wanted)
    if implicit is not None:
        return _scaled(program, node, implicit)
    if operand.type is SqlType.TEXT and isinstance(operand.literal, str) and wanted in FROM_TEXT:
        raise program.refused(node, f"{operand.literal!r} is not a valid {wanted.value}.")
    template = CASTS.get((operand.type, wanted))
    if template is None:
        raise program.refused(
            node,
            f"A value of type {operand.type.value} cannot become {wanted.value}.",
            CONVERTING_CALLS.get((operand.type, wanted), ""),
        )
    return _scaled(program, node, program.strict(template, [operand], wanted))


def _scaled(program: ExpressionCompiler, node: exp.Cast, value: Compiled) -> Compiled:
    """Apply the parameters of a type, such as numeric(10, 2)."""
    parameters = [parameter.name for parameter in node.args["to"].expressions]
    if not parameters:
        return value
    if value.type is not SqlType.NUMERIC or not all(each.isascii() and each.isdigit() for each in parameters):
        raise program.refused(node, f"Parameters of {value.type.value} are not supported.", "Leave them out.")
    scale = int(parameters[1]) if len(parameters) > 1 else 0
    if max(int(parameters[0]), scale) > _MOST_PLACES:
        raise program.refused(node, f"numeric has at most {_MOST_PLACES} digits.", "Write numeric without parameters.")
    limit = program.constant(Decimal(10) ** (int(parameters[0]) - scale))
    return program.strict(f"bounded_numeric({{0}}, {scale}, {limit})", [value], SqlType.NUMERIC)


_MOST_PLACES = 1_000
"""The most digits of numeric with parameters, as in PostgreSQL."""


def _types() -> str:
    return ", ".join(kind.value for kind in PYTHON_TYPES)


def _coalesce(program: ExpressionCompiler, node: exp.Coalesce) -> Compiled:
    *firsts, last = program.together([node.this, *node.expressions], "coalesce")
    name = program.temporary()
    tests = " or ".join(f"({name} := {value.code}) is not None" for value in firsts)
    code = f"({name} if {tests} else {last.code})" if firsts else last.code
    columns = computed(FIRST_VALUE, [value.columns for value in [*firsts, last]])
    return Compiled(code, last.type, nullable=all(value.nullable for value in [*firsts, last]), columns=columns)


def _nullif(program: ExpressionCompiler, node: exp.Nullif) -> Compiled:
    left, right = program.compared([node.this, node.expression], "nullif")
    name = program.temporary()
    code = f"(None if ({name} := {left.code}) == {right.code} else {name})"
    return Compiled(code, left.type, nullable=True, columns=computed(null_if, [left.columns, right.columns]))


def _extreme(function: str) -> Callable[[ExpressionCompiler, exp.Expr], Compiled]:
    """Return the handler of greatest or least, which pass over NULL."""

    def compile_extreme(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
        operands = program.compared([node.this, *node.expressions], function)
        listed = ", ".join(operand.code for operand in operands)
        return Compiled(
            f"{function}(({listed},))", operands[0].type, nullable=all(operand.nullable for operand in operands)
        )

    return compile_extreme


OPERATORS: dict[type[exp.Expr], Handler] = {
    exp.Column: Handler(_column, frozenset({"this", "table"})),
    exp.Literal: Handler(_literal, frozenset({"this", "is_string"})),
    exp.Boolean: Handler(_boolean),
    exp.Null: Handler(_null),
    exp.Paren: Handler(_parentheses),
    **dict.fromkeys(_ARITHMETIC, Handler(_arithmetic, frozenset({"this", "expression", "typed"}))),
    exp.Neg: Handler(_negative),
    exp.EQ: Handler(_comparison("==")),
    exp.NEQ: Handler(_comparison("!=")),
    exp.LT: Handler(_comparison("<")),
    exp.LTE: Handler(_comparison("<=")),
    exp.GT: Handler(_comparison(">")),
    exp.GTE: Handler(_comparison(">=")),
    exp.NullSafeEQ: Handler(_same(negated=False)),
    exp.NullSafeNEQ: Handler(_same(negated=True)),
    exp.And: Handler(_connective(exp.And), is_lazy=True),
    exp.Or: Handler(_connective(exp.Or), is_lazy=True),
    exp.Not: Handler(_not),
    exp.Is: Handler(_is, frozenset({"this", "expression", "negate"})),
    exp.In: Handler(_in, frozenset({"this", "expressions"})),
    exp.Between: Handler(_between, frozenset({"this", "low", "high"})),
    exp.Case: Handler(_case, frozenset({"this", "ifs", "default"}), is_lazy=True),
    exp.Cast: Handler(_cast, frozenset({"this", "to"})),
    exp.TryCast: Handler(_try_cast, frozenset({"this", "to", "safe", "requires_string"})),
    exp.Coalesce: Handler(_coalesce, frozenset({"this", "expressions"}), is_lazy=True),
    exp.Nullif: Handler(_nullif),
    exp.Greatest: Handler(_extreme("greatest"), frozenset({"this", "expressions", "ignore_nulls"})),
    exp.Least: Handler(_extreme("least"), frozenset({"this", "expressions", "ignore_nulls"})),
}
