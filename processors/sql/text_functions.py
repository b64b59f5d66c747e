"""Functions and operators of texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from .columns import is_like, joined_texts
from .conversions import CASTS
from .expression_compiler import Compiled, ExpressionCompiler, Handler, Signature, apply_signature, chain_of, fixed
from .types import SqlType

_TO_TEXT = {
    SqlType.TEXT: "{0}",
    SqlType.NULL: "{0}",
    **{kind: code for (kind, wanted), code in CASTS.items() if wanted is SqlType.TEXT},
}
"""The code of the text of a value, by its type."""
_SHOWN = {**_TO_TEXT, SqlType.BOOLEAN: "boolean_to_letter({0})"}
"""The same for concat and concat_ws: as PostgreSQL shows a value alone."""


def _concatenation(program: ExpressionCompiler, node: exp.DPipe) -> Compiled:
    chain = chain_of(node, (exp.DPipe,))
    operands = [chain[0].this, *(each.expression for each in chain)]
    texts = [_as_text(program, each, _TO_TEXT) for each in operands]
    for operand in operands:
        if program.compile(operand).type is SqlType.JSON:
            raise program.refused(operand, "|| does not merge JSON values.", "Join their texts: cast(… AS text).")
    if len(texts) == 2:
        return program.strict("({0} + {1})", texts, SqlType.TEXT)
    places = ", ".join(f"{{{index}}}" for index in range(len(texts)))
    template = f"join_texts({program.constant('')}, ({places}))"
    return program.strict(template, texts, SqlType.TEXT, kernel=joined_texts)


def _as_text(program: ExpressionCompiler, node: exp.Expr, templates: Mapping[SqlType, str]) -> Compiled:
    value = program.compile(node)
    if value.type not in templates:
        raise program.refused(node, f"A value of type {value.type.value} cannot become text.")
    return program.strict(templates[value.type], [value], SqlType.TEXT)


def _concat(program: ExpressionCompiler, node: exp.Concat) -> Compiled:
    """Compile concat, which passes over NULL."""
    texts = [_as_text(program, each, _SHOWN) for each in node.expressions]
    return _joined(program, Compiled(program.constant(""), SqlType.TEXT), texts)


def _concat_ws(program: ExpressionCompiler, node: exp.ConcatWs) -> Compiled:
    separator, *texts = [_as_text(program, each, _SHOWN) for each in node.expressions]
    return _joined(program, separator, texts)


def _joined(program: ExpressionCompiler, separator: Compiled, texts: Sequence[Compiled]) -> Compiled:
    """Return the code of texts with a separator between them, without the texts that are NULL."""
    places = "".join(f"{{{index}}}, " for index in range(1, len(texts) + 1))
    operands = [separator, *(replace(text, nullable=False) for text in texts)]
    return program.strict(f"join_texts({{0}}, ({places}))", operands, SqlType.TEXT)


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
    if len(node.expression.this) > 1:
        raise program.refused(
            node.expression, "The character of ESCAPE is a single one.", "Write LIKE '5!%' ESCAPE '!'."
        )
    operands = [program.expect(each, SqlType.TEXT) for each in (node.this.this, node.this.expression)]
    word = "not " if node.this.args.get("negate") else ""
    escape = program.constant(node.expression.this)
    return program.strict(f"({word}{function}({{0}}, {{1}}, {escape}))", operands, SqlType.BOOLEAN)


_POSIX = re.compile(r"\[\[:\w+:\]|\\[mMyY]")
"""What regular expressions of PostgreSQL have, and those of Python read as something else."""


def _expect_valid(program: ExpressionCompiler, node: exp.Expr, pattern: Compiled) -> None:
    """Raise SqlRefused for a constant regular expression that is invalid, or has another meaning in PostgreSQL."""
    if not isinstance(pattern.literal, str):
        return
    if (found := _POSIX.search(pattern.literal)) is not None:
        raise program.refused(
            node,
            f"Regular expressions are Python's, which have no {found[0]}.",
            r"Write [A-Za-z] for [[:alpha:]], \d for [[:digit:]], \s for [[:space:]], and \b for the bounds of a word.",
        )
    try:
        re.compile(pattern.literal)
    except re.error as error:
        raise program.refused(
            node, f"This regular expression is invalid: {error}.", "Write \\ before a character that stands for itself."
        ) from error


def _regexp(flags: str) -> Callable[[ExpressionCompiler, exp.Expr], Compiled]:
    def compile_regexp(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
        operands = [program.expect(each, SqlType.TEXT) for each in (node.this, node.expression)]
        _expect_valid(program, node.expression, operands[1])
        return program.strict(f"matches({{0}}, {{1}}, {program.constant(flags)})", operands, SqlType.BOOLEAN)

    return compile_regexp


def _regexp_replace(program: ExpressionCompiler, node: exp.RegexpReplace) -> Compiled:
    optional = [node.args[name] for name in ("modifiers",) if node.args.get(name)]
    operands = [node.this, node.expression, node.args.get("replacement") or exp.Literal.string(""), *optional]
    compiled = [program.expect(each, SqlType.TEXT) for each in operands]
    _expect_valid(program, node.expression, compiled[1])
    if optional and isinstance(flags := compiled[3].literal, str) and not set(flags) <= set("gi"):
        raise program.refused(optional[0], f"regexp_replace has no option {flags!r}.", "Write 'g', 'i' or 'gi'.")
    places = ", ".join(f"{{{index}}}" for index in range(len(compiled)))
    return program.strict(f"regexp_replace({places})", compiled, SqlType.TEXT)


def _regexp_substring(program: ExpressionCompiler, node: exp.RegexpSubstr) -> Compiled:
    compiled = [program.expect(each, SqlType.TEXT) for each in (node.this, node.expression)]
    _expect_valid(program, node.expression, compiled[1])
    return program.strict("regexp_substring({0}, {1})", compiled, SqlType.TEXT, nullable=True)


def _substring(program: ExpressionCompiler, node: exp.Substring) -> Compiled:
    arguments = [node.args[name] for name in ("this", "start", "length") if node.args.get(name) is not None]
    if len(arguments) == 2 and program.compile(arguments[1]).type is SqlType.TEXT:
        raise program.refused(
            arguments[1],
            "substring takes positions here, and no regular expression.",
            "Write regexp_substr(page, 'a.').",
        )
    return apply_signature(program, node, _SUBSTRING, arguments)


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
_SUBSTRING = Signature("substring({*})", (_T, _I, _I), _T, optional=1)
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
    exp.RegexpSubstr: Handler(_regexp_substring),
    exp.Trim: Handler(_trim, frozenset({"this", "expression", "position"})),
    exp.Pad: Handler(_pad, frozenset({"this", "expression", "fill_pattern", "is_left"})),
    exp.Lower: fixed(Signature("lower({*})", (_T,), _T), "this"),
    exp.Upper: fixed(Signature("upper({*})", (_T,), _T), "this"),
    exp.Length: fixed(Signature("len({0})", (_T,), _I), "this"),
    exp.Initcap: Handler(
        lambda program, node: apply_signature(program, node, _INITCAP, [node.this]), frozenset({"this", "expression"})
    ),
    exp.Repeat: fixed(Signature("repeat({*})", (_T, _I), _T), "this", "times"),
    exp.Ascii: fixed(Signature("code_point({*})", (_T,), _I), "this"),
    exp.Translate: fixed(Signature("translate({*})", (_T, _T, _T), _T), "this", "from_", "to"),
    exp.MD5: fixed(Signature("md5({*})", (_T,), _T), "this"),
    exp.Reverse: fixed(Signature("{0}[::-1]", (_T,), _T), "this"),
    exp.Replace: fixed(Signature("replace({*})", (_T, _T, _T), _T), "this", "expression", "replacement"),
    exp.Substring: Handler(_substring, frozenset({"this", "start", "length"})),
    exp.SplitPart: fixed(Signature("split_part({*})", (_T, _T, _I), _T), "this", "delimiter", "part_index"),
    exp.StrPosition: fixed(Signature("({0}.find({1}) + 1)", (_T, _T), _I), "this", "substr"),
    exp.StartsWith: fixed(Signature("{0}.startswith({1})", (_T, _T), SqlType.BOOLEAN), "this", "expression"),
    exp.Left: fixed(Signature("left({*})", (_T, _I), _T), "this", "expression"),
    exp.Right: fixed(Signature("right({*})", (_T, _I), _T), "this", "expression"),
}
