"""Functions and operators of texts."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from .columns import is_like
from .conversions import CASTS
from .expression_compiler import Compiled, ExpressionCompiler, Handler, Signature, apply_signature, fixed
from .types import SqlType


def _concatenation(program: ExpressionCompiler, node: exp.DPipe) -> Compiled:
    return program.strict(
        "({0} + {1})", [_as_text(program, each) for each in (node.this, node.expression)], SqlType.TEXT
    )


def _as_text(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
    value = program.compile(node)
    template = "{0}" if value.type in (SqlType.TEXT, SqlType.NULL) else CASTS.get((value.type, SqlType.TEXT))
    if template is None:
        raise program.refused(node, f"A value of type {value.type.value} cannot become text.")
    return program.strict(template, [value], SqlType.TEXT)


def _concat(program: ExpressionCompiler, node: exp.Concat) -> Compiled:
    """Compile concat, which passes over NULL."""
    texts = [_as_text(program, each) for each in node.expressions]
    return Compiled("(" + " + ".join(f"({t.code} or '')" if t.nullable else t.code for t in texts) + ")", SqlType.TEXT)


def _concat_ws(program: ExpressionCompiler, node: exp.ConcatWs) -> Compiled:
    separator, *texts = [_as_text(program, each) for each in node.expressions]
    listed = ", ".join(text.code for text in texts)
    return program.strict(f"join_texts({{0}}, ({listed},))", [separator], SqlType.TEXT)


def _like(function: str) -> Callable[[ExpressionCompiler, exp.Binary], Compiled]:
    def compile_like(program: ExpressionCompiler, node: exp.Binary) -> Compiled:
        operands = [program.expect(each, SqlType.TEXT) for each in (node.this, node.expression)]
        negated = bool(node.args.get("negate"))
        kernel = is_like(operands[1].literal, negated=negated) if function == "like" else None
        word = "not " if negated else ""
        return program.strict(f"({word}{function}({{0}}, {{1}}))", operands, SqlType.BOOLEAN, kernel=kernel)

    return compile_like


def _escape(program: ExpressionCompiler, node: exp.Escape) -> Compiled:
    function = {exp.Like: "like", exp.ILike: "ilike"}.get(type(node.this))
    if function is None or not isinstance(node.expression, exp.Literal):
        raise program.refused(node, "ESCAPE needs LIKE or ILIKE before it and a quoted character after it.")
    operands = [program.expect(each, SqlType.TEXT) for each in (node.this.this, node.this.expression)]
    word = "not " if node.this.args.get("negate") else ""
    return program.strict(f"({word}{function}({{0}}, {{1}}, {node.expression.this!r}))", operands, SqlType.BOOLEAN)


def _regexp(flags: str) -> Callable[[ExpressionCompiler, exp.Expr], Compiled]:
    def compile_regexp(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
        operands = [program.expect(each, SqlType.TEXT) for each in (node.this, node.expression)]
        return program.strict(f"matches({{0}}, {{1}}, {flags!r})", operands, SqlType.BOOLEAN)

    return compile_regexp


def _regexp_replace(program: ExpressionCompiler, node: exp.RegexpReplace) -> Compiled:
    optional = [node.args[name] for name in ("modifiers",) if node.args.get(name)]
    operands = [node.this, node.expression, node.args.get("replacement") or exp.Literal.string(""), *optional]
    compiled = [program.expect(each, SqlType.TEXT) for each in operands]
    places = ", ".join(f"{{{index}}}" for index in range(len(compiled)))
    return program.strict(f"regexp_replace({places})", compiled, SqlType.TEXT)


def _trim(program: ExpressionCompiler, node: exp.Trim) -> Compiled:
    method = {"LEADING": "lstrip", "TRAILING": "rstrip"}.get(node.args.get("position") or "BOTH", "strip")
    operands = [node.this, *([node.expression] if node.expression else [exp.Literal.string(" ")])]
    return program.strict(
        f"{{0}}.{method}({{1}})", [program.expect(each, SqlType.TEXT) for each in operands], SqlType.TEXT
    )


def _pad(program: ExpressionCompiler, node: exp.Pad) -> Compiled:
    fill = node.args.get("fill_pattern") or exp.Literal.string(" ")
    arguments = [(node.this, SqlType.TEXT), (node.expression, SqlType.BIGINT), (fill, SqlType.TEXT)]
    return program.strict(
        f"pad({{0}}, {{1}}, {{2}}, is_left={bool(node.args.get('is_left'))})",
        [program.expect(argument, kind) for argument, kind in arguments],
        SqlType.TEXT,
    )


_T, _I = SqlType.TEXT, SqlType.BIGINT
_INITCAP = Signature("initcap({*})", (_T,), _T)
_LIKE = frozenset({"this", "expression", "negate"})
TEXT_FUNCTIONS: dict[type[exp.Expr], Handler] = {
    exp.DPipe: Handler(_concatenation, frozenset({"this", "expression", "safe"})),
    exp.Concat: Handler(_concat, frozenset({"expressions", "safe", "coalesce"})),
    exp.ConcatWs: Handler(_concat_ws, frozenset({"expressions", "safe", "coalesce"})),
    exp.Like: Handler(_like("like"), _LIKE),
    exp.ILike: Handler(_like("ilike"), _LIKE),
    exp.Escape: Handler(_escape),
    exp.RegexpLike: Handler(_regexp("")),
    exp.RegexpILike: Handler(_regexp("i")),
    exp.RegexpReplace: Handler(
        _regexp_replace, frozenset({"this", "expression", "replacement", "modifiers", "single_replace"})
    ),
    exp.RegexpSubstr: fixed(Signature("regexp_substring({*})", (_T, _T), _T, nullable=True), "this", "expression"),
    exp.Trim: Handler(_trim, frozenset({"this", "expression", "position"})),
    exp.Pad: Handler(_pad, frozenset({"this", "expression", "fill_pattern", "is_left"})),
    exp.Lower: fixed(Signature("{0}.lower()", (_T,), _T), "this"),
    exp.Upper: fixed(Signature("{0}.upper()", (_T,), _T), "this"),
    exp.Length: fixed(Signature("len({0})", (_T,), _I), "this"),
    exp.Initcap: Handler(
        lambda program, node: apply_signature(program, node, _INITCAP, [node.this]), frozenset({"this", "expression"})
    ),
    exp.Repeat: fixed(Signature("repeat({*})", (_T, _I), _T), "this", "times"),
    exp.Ascii: fixed(Signature("code_point({*})", (_T,), _I), "this"),
    exp.Translate: fixed(Signature("translate({*})", (_T, _T, _T), _T), "this", "from_", "to"),
    exp.MD5: fixed(Signature("md5({*})", (_T,), _T), "this"),
    exp.Reverse: fixed(Signature("{0}[::-1]", (_T,), _T), "this"),
    exp.Replace: fixed(Signature("{0}.replace({1}, {2})", (_T, _T, _T), _T), "this", "expression", "replacement"),
    exp.Substring: fixed(Signature("substring({*})", (_T, _I, _I), _T, optional=1), "this", "start", "length"),
    exp.SplitPart: fixed(Signature("split_part({*})", (_T, _T, _I), _T), "this", "delimiter", "part_index"),
    exp.StrPosition: fixed(Signature("({0}.find({1}) + 1)", (_T, _T), _I), "this", "substr"),
    exp.StartsWith: fixed(Signature("{0}.startswith({1})", (_T, _T), SqlType.BOOLEAN), "this", "expression"),
    exp.Left: fixed(Signature("left({*})", (_T, _I), _T), "this", "expression"),
    exp.Right: fixed(Signature("right({*})", (_T, _I), _T), "this", "expression"),
}
