"""Scalar expressions of SQL: all handlers, and the functions that only Penstock or Python knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from sqlglot import exp

from ..validation import did_you_mean
from .expression_compiler import Compiled, ExpressionCompiler, Handler, Signature, apply_signature
from .format_functions import to_char
from .json_functions import JSON_FUNCTIONS
from .number_functions import NUMBER_FUNCTIONS
from .operators import OPERATORS
from .python_calls import DEFINITION, Definition, PythonFunction
from .refused_expressions import EXPRESSION_ADVICE, FUNCTION_ADVICE
from .text_functions import TEXT_FUNCTIONS
from .time_functions import TIME_FUNCTIONS
from .types import SqlType


def is_known_function(node: exp.Anonymous) -> bool:
    """Return whether there is a function that only Penstock knows."""
    return node.name.lower() in (*_NAMED, "to_char")


def _anonymous(program: ExpressionCompiler, node: exp.Anonymous) -> Compiled:
    name = node.name.lower()
    if not is_known_function(node):
        known = [*_NAMED, "to_char", *_WELL_KNOWN]
        advice = FUNCTION_ADVICE.get(name) or did_you_mean(name, known).strip()
        raise program.refused(node, f"There is no function {node.name}.", advice)
    if name == "to_char":
        return to_char(program, node)
    return apply_signature(program, node, _NAMED[name], node.expressions)


def _python_function(program: ExpressionCompiler, node: PythonFunction) -> Compiled:
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


_T, _I, _D = SqlType.TEXT, SqlType.BIGINT, SqlType.DOUBLE
_NAMED = {
    "to_timestamp_ms": Signature("milliseconds_to_timestamp({*})", (_D,), SqlType.TIMESTAMP),
    "epoch_ms": Signature("epoch_ms({*})", (SqlType.TIMESTAMP,), _I),
    "right": Signature("right({*})", (_T, _I), _T),
    "jsonb_array_length": Signature("json_length({*})", (SqlType.JSON,), _I),
    "jsonb_typeof": Signature("json_type({*})", (SqlType.JSON,), _T),
}
"""The functions that the parser does not know, by name."""
_WELL_KNOWN = [
    "abs",
    "ascii",
    "cbrt",
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
    "regexp_substr",
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


class StatementProgram(ExpressionCompiler):
    """Compiles the expressions of one statement and makes functions of them."""

    handlers: ClassVar[Mapping[type[exp.Expr], Handler]] = {
        **OPERATORS,
        **NUMBER_FUNCTIONS,
        **TEXT_FUNCTIONS,
        **TIME_FUNCTIONS,
        **JSON_FUNCTIONS,
        exp.Anonymous: Handler(_anonymous, frozenset({"this", "expressions"})),
        PythonFunction: Handler(_python_function, frozenset({"this", "expressions"})),
    }
    advice: ClassVar[Mapping[type[exp.Expr], str]] = EXPRESSION_ADVICE
