"""Columns, literals and operators of SQL expressions, and the forms that choose among values: CASE, coalesce, greatest."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import isinf
from typing import Any

from sqlglot import exp

from ..validation import did_you_mean
from .columns import CONNECTIVES, FIRST_VALUE, chosen, computed, constant_column, is_member, is_null, is_value, null_if
from .conversions import CASTS, CONVERTING_CALLS, FROM_TEXT
from .expression_compiler import Compiled, ExpressionCompiler, Handler, described
from .types import PYTHON_TYPES, SqlType, declared_type


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
        return _constant(repr(node.this), SqlType.TEXT, node.this)
    if node.this.isdigit():
        value = int(node.this)
        if value > 2**63 - 1:
            raise program.refused(
                node, f"{value} is too large for bigint.", f"Write a number in quotes: cast('{value}' AS numeric)."
            )
        return _constant(str(value), SqlType.BIGINT, value)
    number = float(node.this)
    if isinf(number):
        raise program.refused(node, f"{node.this} is too large for double precision.")
    return _constant(repr(number), SqlType.DOUBLE, number)


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
        SqlType.DOUBLE: "double({0} + {1})",
        SqlType.NUMERIC: "add_numeric({0}, {1})",
    },
    exp.Sub: {
        SqlType.BIGINT: "bigint({0} - {1})",
        SqlType.DOUBLE: "double({0} - {1})",
        SqlType.NUMERIC: "subtract_numeric({0}, {1})",
    },
    exp.Mul: {
        SqlType.BIGINT: "bigint({0} * {1})",
        SqlType.DOUBLE: "double({0} * {1})",
        SqlType.NUMERIC: "multiply_numeric({0}, {1})",
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
    (exp.Add, SqlType.DATE, SqlType.BIGINT): ("add_days({0}, {1})", SqlType.DATE),
    (exp.Add, SqlType.BIGINT, SqlType.DATE): ("add_days({1}, {0})", SqlType.DATE),
    (exp.Sub, SqlType.DATE, SqlType.BIGINT): ("add_days({0}, -{1})", SqlType.DATE),
    (exp.Add, SqlType.DATE, SqlType.INTERVAL): ("add_interval(date_to_timestamp({0}), {1})", SqlType.LOCAL),
    (exp.Add, SqlType.INTERVAL, SqlType.DATE): ("add_interval(date_to_timestamp({1}), {0})", SqlType.LOCAL),
    (exp.Sub, SqlType.DATE, SqlType.INTERVAL): ("add_interval(date_to_timestamp({0}), -{1})", SqlType.LOCAL),
}


def _arithmetic(program: ExpressionCompiler, node: exp.Binary) -> Compiled:
    left, right = program.compile(node.this), program.compile(node.expression)
    timed = _TIME_ARITHMETIC.get((type(node), left.type, right.type))
    if timed is not None:
        return program.strict(timed[0], [left, right], timed[1])
    left, right = program.together([node.this, node.expression], described(node))
    template = _ARITHMETIC[type(node)].get(left.type)
    if left.type is SqlType.NULL:
        return Compiled("None", SqlType.NULL, nullable=True)
    if template is None:
        raise program.refused(node, f"{described(node)} is not defined for {left.type.value}.")
    return program.strict(template, [left, right], left.type)


_NEGATIONS = {SqlType.BIGINT: "bigint(-{0})", SqlType.DOUBLE: "(-{0})", SqlType.NUMERIC: "negate_numeric({0})"}


def _negative(program: ExpressionCompiler, node: exp.Neg) -> Compiled:
    operand = program.compile(node.this)
    if not operand.type.is_number:
        raise program.refused(node, f"A minus sign is not defined for {operand.type.value}.")
    negated = program.strict(_NEGATIONS[operand.type], [operand], operand.type)
    if operand.literal is None or operand.type is SqlType.NUMERIC:
        return negated
    return _constant(f"(-{operand.code})", operand.type, -operand.literal)


def _comparison(operator: str) -> Callable[[ExpressionCompiler, exp.Binary], Compiled]:
    def compile_comparison(program: ExpressionCompiler, node: exp.Binary) -> Compiled:
        operands = program.compared([node.this, node.expression], described(node))
        return program.strict(f"({{0}} {operator} {{1}})", operands, SqlType.BOOLEAN)

    return compile_comparison


def _same(*, negated: bool) -> Callable[[ExpressionCompiler, exp.Binary], Compiled]:
    def compile_same(program: ExpressionCompiler, node: exp.Binary) -> Compiled:
        left, right = program.compared([node.this, node.expression], described(node))
        return Compiled(f"({left.code} {'!=' if negated else '=='} {right.code})", SqlType.BOOLEAN)

    return compile_same


def _connective(word: str, decisive: bool) -> Callable[[ExpressionCompiler, exp.Connector], Compiled]:
    """Return the handler of AND or OR: three-valued, and decided by one operand with the decisive value."""

    def compile_connective(program: ExpressionCompiler, node: exp.Connector) -> Compiled:
        left, right = (program.expect(each, SqlType.BOOLEAN) for each in (node.this, node.expression))
        columns = computed(CONNECTIVES[word], [left.columns, right.columns])
        if not left.nullable and not right.nullable:
            return Compiled(f"({left.code} {word} {right.code})", SqlType.BOOLEAN, columns=columns)
        first, second = program.temporary(), program.temporary()
        code = (
            f"({decisive} if ({first} := {left.code}) is {decisive} or ({second} := {right.code}) is {decisive} "
            f"else None if {first} is None or {second} is None else {not decisive})"
        )
        return Compiled(code, SqlType.BOOLEAN, nullable=True, columns=columns)

    return compile_connective


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
    if any(member.nullable for member in members):
        comparisons = [exp.EQ(this=node.this.copy(), expression=each.copy()) for each in node.expressions]
        return program.compile(exp.or_(*comparisons, copy=False))
    code = " or ".join(f"{{0}} == ({member.code})" for member in members)
    name = program.temporary()
    bound = Compiled(f"({name} := {operand.code})", operand.type)
    if operand.nullable:
        return Compiled(f"(None if {bound.code} is None else {code.format(name)})", SqlType.BOOLEAN, nullable=True)
    first, *rest = members
    tests = [f"{bound.code} == ({first.code})", *(f"{name} == ({member.code})" for member in rest)]
    return Compiled(f"({' or '.join(tests)})", SqlType.BOOLEAN)


def _between(program: ExpressionCompiler, node: exp.Between) -> Compiled:
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    return program.compile(exp.And(this=low, expression=high))


def _case(program: ExpressionCompiler, node: exp.Case) -> Compiled:
    branches = node.args["ifs"]
    default = node.args.get("default") or exp.Null()
    results = program.together([*(branch.args["true"] for branch in branches), default], "CASE")
    code, columns = results[-1].code, results[-1].columns
    for branch, result in zip(reversed(branches), reversed(results[:-1]), strict=True):
        equation = branch.this if node.this is None else exp.EQ(this=node.this.copy(), expression=branch.this.copy())
        condition = program.expect(equation, SqlType.BOOLEAN)
        code = f"({result.code} if {condition.code} else {code})"
        columns = computed(chosen, [condition.columns, result.columns, columns])
    return Compiled(code, results[0].type, nullable=any(result.nullable for result in results), columns=columns)


def _cast(program: ExpressionCompiler, node: exp.Cast) -> Compiled:
    wanted = declared_type(node.args["to"])
    if wanted is None:
        raise program.refused(node, f"There is no type {node.args['to'].sql()}.", f"The types are: {_types()}.")
    if isinstance(node.this, exp.IntDiv):
        return program.compile(node.this)
    operand = program.compile(node.this)
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
    if value.type is not SqlType.NUMERIC or not all(parameter.isdigit() for parameter in parameters):
        raise program.refused(node, f"Parameters of {value.type.value} are not supported.", "Leave them out.")
    scale = int(parameters[1]) if len(parameters) > 1 else 0
    limit = program.constant(Decimal(10) ** (int(parameters[0]) - scale))
    return program.strict(f"bounded_numeric({{0}}, {scale}, {limit})", [value], SqlType.NUMERIC)


def _types() -> str:
    return ", ".join(kind.value for kind in PYTHON_TYPES)


def _coalesce(program: ExpressionCompiler, node: exp.Coalesce) -> Compiled:
    *firsts, last = program.together([node.this, *node.expressions], "coalesce")
    code = last.code
    for value in reversed(firsts):
        if not value.nullable:
            code = value.code
            continue
        name = program.temporary()
        code = f"({name} if ({name} := {value.code}) is not None else {code})"
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
    exp.And: Handler(_connective("and", decisive=False), is_lazy=True),
    exp.Or: Handler(_connective("or", decisive=True), is_lazy=True),
    exp.Not: Handler(_not),
    exp.Is: Handler(_is, frozenset({"this", "expression", "negate"})),
    exp.In: Handler(_in, frozenset({"this", "expressions"})),
    exp.Between: Handler(_between, frozenset({"this", "low", "high"})),
    exp.Case: Handler(_case, frozenset({"this", "ifs", "default"}), is_lazy=True),
    exp.Cast: Handler(_cast, frozenset({"this", "to"})),
    exp.Coalesce: Handler(_coalesce, frozenset({"this", "expressions"}), is_lazy=True),
    exp.Nullif: Handler(_nullif),
    exp.Greatest: Handler(_extreme("greatest"), frozenset({"this", "expressions", "ignore_nulls"})),
    exp.Least: Handler(_extreme("least"), frozenset({"this", "expressions", "ignore_nulls"})),
}
