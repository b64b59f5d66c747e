"""Operators that take JSON values apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from .expression_compiler import Compiled, ExpressionCompiler, Handler, described
from .types import SqlType


def _json(*, as_text: bool) -> Callable[[ExpressionCompiler, exp.Expr], Compiled]:
    def compile_json(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
        source = program.expect(node.this, SqlType.JSON)
        found = program.strict(_json_part(program, node), [source], SqlType.JSON, nullable=True)
        return program.strict("json_text({0})", [found], SqlType.TEXT, nullable=True) if as_text else found

    return compile_json


def _json_part(program: ExpressionCompiler, node: exp.Expr) -> str:
    """Return the code of a field, an element, or the part at a path such as '{items,0}'."""
    if not isinstance(node, (exp.JSONBExtract, exp.JSONBExtractScalar)):
        return f"json_field({{0}}, {program.constant(tuple(_json_steps(program, node)))})"
    path = node.expression.name
    if not (isinstance(node.expression, exp.Literal) and path.startswith("{") and path.endswith("}")):
        raise program.refused(
            node, f"{described(node)} is not supported.", "Write a quoted path after #> and #>>: '{items,0}'."
        )
    steps = tuple(step.strip().strip('"') for step in path[1:-1].split(",")) if path != "{}" else ()
    return f"json_part({{0}}, {program.constant(steps)})"


def _json_steps(program: ExpressionCompiler, node: exp.Expr) -> Iterator[str | int]:
    for part in node.expression.expressions if isinstance(node.expression, exp.JSONPath) else [node.expression]:
        if isinstance(part, exp.JSONPathRoot):
            continue
        if isinstance(part, exp.Neg) and isinstance(part.this, exp.Literal) and part.this.name.isdigit():
            yield -int(part.this.name)
            continue
        if not isinstance(part, (exp.JSONPathKey, exp.JSONPathSubscript)):
            raise program.refused(
                node, f"{described(node)} is not supported.", "Name one field or index after -> and ->>."
            )
        yield part.this


JSON_FUNCTIONS: dict[type[exp.Expr], Handler] = {
    exp.JSONExtract: Handler(_json(as_text=False), frozenset({"this", "expression", "only_json_types"})),
    exp.JSONExtractScalar: Handler(_json(as_text=True), frozenset({"this", "expression", "only_json_types"})),
    exp.JSONBExtract: Handler(_json(as_text=False)),
    exp.JSONBExtractScalar: Handler(_json(as_text=True)),
}
