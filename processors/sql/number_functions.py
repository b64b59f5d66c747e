"""Functions of numbers."""

from __future__ import annotations

from sqlglot import exp

from .expression_compiler import Compiled, ExpressionCompiler, Handler, Signature, by_type, fixed
from .types import SqlType


def _round(program: ExpressionCompiler, node: exp.Round) -> Compiled:
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


def _trunc(program: ExpressionCompiler, node: exp.Trunc) -> Compiled:
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


def _log(program: ExpressionCompiler, node: exp.Log) -> Compiled:
    if node.args.get("expression") is not None:
        raise program.refused(node, "log with a base is not supported.", "Write ln(x) / ln(base).")
    return program.strict("logarithm_10({0})", [program.expect(node.this, SqlType.DOUBLE)], SqlType.DOUBLE)


_I, _D, _N = SqlType.BIGINT, SqlType.DOUBLE, SqlType.NUMERIC
_ROUND = by_type({_D: ("round_double({0})", _D), _N: ("round_numeric({0})", _N), _I: ("float({0})", _D)}, _D)
NUMBER_FUNCTIONS: dict[type[exp.Expr], Handler] = {
    exp.Round: Handler(_round, frozenset({"this", "decimals"})),
    exp.Trunc: Handler(_trunc, frozenset({"this", "decimals"})),
    exp.Log: Handler(_log),
    exp.Abs: Handler(by_type({_I: ("bigint(abs({0}))", _I), _D: ("abs({0})", _D), _N: ("{0}.copy_abs()", _N)}, _D)),
    exp.Floor: Handler(by_type({_D: ("floor_double({0})", _D), _N: ("Decimal(floor({0}))", _N)}, _D)),
    exp.Ceil: Handler(by_type({_D: ("ceil_double({0})", _D), _N: ("Decimal(ceil({0}))", _N)}, _D)),
    exp.Sign: Handler(by_type({_D: ("float(({0} > 0) - ({0} < 0))", _D)}, _D)),
    exp.Cbrt: fixed(Signature("cube_root({*})", (_D,), _D), "this"),
    exp.Sqrt: fixed(Signature("square_root({*})", (_D,), _D), "this"),
    exp.Exp: fixed(Signature("exponential({*})", (_D,), _D), "this"),
    exp.Ln: fixed(Signature("logarithm({*})", (_D,), _D), "this"),
    exp.Pow: fixed(Signature("power({*})", (_D, _D), _D), "this", "expression"),
    exp.IntDiv: fixed(Signature("divide_bigint({*})", (_I, _I), _I), "this", "expression"),
}
