"""The compilation of scalar expressions of SQL to Python code with PostgreSQL's types and NULL semantics.

    expression --a handler for its kind--> Compiled: code, type, nullability --ExpressionCompiler.function--> function of a row

Each kind of expression has one handler, which names the arguments that it uses. An expression without a handler, or an argument that its handler
does not use, is refused: nothing is ignored.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import ceil, floor
from typing import Any, ClassVar, Protocol
from warnings import catch_warnings, simplefilter

from sqlglot import exp

from . import values
from .columns import ARROW_TYPES, KERNELS, Columns, Kernel, computed, constant_column, or_row_by_row, row_by_row
from .conversions import CASTS, CONVERTING_CALLS, FROM_TEXT, IMPLICIT
from .errors import SqlDataError, SqlRefused, SqlText
from .python_calls import PythonFunction
from .types import SqlType, common_type


@dataclass(frozen=True)
class Compiled:
    """The Python code of an expression.

    Args:
        code: a Python expression, in parentheses where it needs them.
        type: the SQL type of its value.
        nullable: whether its value can be None.
        literal: the value, if the expression is a literal.
        columns: the same for many rows at once; None if that is unknown.
    """

    code: str
    type: SqlType
    nullable: bool = False
    literal: Any = None
    columns: Columns | None = None


class ForeignCode(RuntimeError):
    """Generated code contains a text or a private name. It may be a part of the file, which must never become code."""


def _expect_own(code: ast.Module) -> ast.Module:
    """Return generated code.

    Raises:
        ForeignCode: it contains a text, or a name that begins with an underscore.
    """
    for node in ast.walk(code):
        match node:
            case ast.Constant(value=str() | bytes() as found):
                raise ForeignCode(f"Generated code contains the text {found!r}.")
            case ast.JoinedStr():
                raise ForeignCode("Generated code contains a formatted text.")
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)) if name.startswith("_"):
                raise ForeignCode(f"Generated code contains the name {name}.")
    return code


class Scope(Protocol):
    """The columns that an expression can name."""

    def column(self, table: str | None, name: str) -> Compiled | None:
        """Return the code of a column; None if there is none of this name."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of all columns."""
        ...


class ExpressionCompiler:
    """Compiles the expressions of one statement and makes functions of them.

    Args:
        text: the file, for messages.
        scope: the columns.
    """

    handlers: ClassVar[Mapping[type[exp.Expr], Handler]] = {}
    """The handlers of a kind of expression. An expression without one is refused."""
    advice: ClassVar[Mapping[type[exp.Expr], str]] = {}
    """What to write instead of a kind of expression."""

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
        self._compiled: dict[int, tuple[exp.Expr, Compiled]] = {}

    def compile(self, node: exp.Expr) -> Compiled:
        """Return the code of an expression. Each expression is compiled once, however often its type or code is needed.

        Raises:
            SqlRefused: it is not supported, or its types do not fit.
        """
        known = self._compiled.get(id(node))
        if known is not None:
            return known[1]
        handler = self.handler_of(node)
        compiled = self.in_columns(node, self._shallow(handler.compile(self, node)), is_lazy=handler.is_lazy)
        self._compiled[id(node)] = node, compiled
        return compiled

    def handler_of(self, node: exp.Expr) -> Handler:
        """Return the handler of an expression.

        Raises:
            SqlRefused: it is not supported.
        """
        handler = self.handlers.get(type(node))
        if handler is None:
            advice = next((text for kind, text in self.advice.items() if isinstance(node, kind)), "")
            raise self.refused(node, f"{self._written(node)} is not supported here.", advice)
        for name, value in node.args.items():
            if value not in (None, False, []) and name not in handler.arguments:
                raise self.refused(node, f"{described(node)} does not support {name.replace('_', ' ')!r} here.")
        return handler

    def _written(self, node: exp.Expr) -> str:
        """Return the name of a function as it is written, and the text of another expression."""
        name = self.text.text[node.meta["start"] : node.meta["end"] + 1] if "end" in node.meta else ""
        return f"The function {name}" if isinstance(node, exp.Func) and name.isidentifier() else described(node)

    def in_columns(self, node: exp.Expr, compiled: Compiled, *, is_lazy: bool = False) -> Compiled:
        """Return the code of an expression with its columns, if it can have them: row by row where no kernel computes it.

        Args:
            node: the expression.
            compiled: its code.
            is_lazy: whether the code does not evaluate all operands in every row, so that a kernel may fail where the code does not.
        """
        at_once = compiled.columns
        if compiled.type not in ARROW_TYPES or (at_once is not None and not is_lazy) or node.find(PythonFunction):
            return compiled
        found = [self.scope.column(each.table or None, each.name) for each in node.find_all(exp.Column)]
        named = {each.code.removeprefix("event."): each.columns for each in found if each and each.columns}
        if not all(each and each.columns for each in found):
            return compiled

        def define() -> Callable[..., list[Any]]:
            return self.function("values", "rows", [f"return [{compiled.code} for event in rows]"])

        in_rows = row_by_row(named, define, compiled.type)
        return replace(compiled, columns=in_rows if at_once is None else or_row_by_row(at_once, in_rows))

    def function(self, name: str, parameters: str, body: Sequence[str]) -> Callable[..., Any]:
        """Return a function with a body of compiled code.

        Args:
            name: its name.
            parameters: its parameters, as code. Columns are fields of `event`.
            body: its lines. They contain no text of the file but names of fields: constants are in them by name.

        Raises:
            ForeignCode: the lines contain a text, or a name that no template has.
        """
        namespace = {"__name__": f"<{self.text.name}>", **self._globals}
        source = "\n    ".join([f"def {name}({parameters}):", *body])
        with catch_warnings():
            simplefilter("ignore", SyntaxWarning)  # such as for `1 is None`, the code of 1 IS NULL
            code = compile(_expect_own(ast.parse(source)), f"<{self.text.name}>", "exec")
        exec(code, namespace)  # noqa: S102 - it consists of templates, numbers and names, as `_expect_own` has checked
        compiled: Callable[..., Any] = namespace[name]
        return compiled

    def _shallow(self, compiled: Compiled) -> Compiled:
        """Return the same code, in a function of its own if its parentheses are nested deeply: Python reads 200 levels at most."""
        if not _is_deep(compiled.code):
            return compiled
        return replace(compiled, code=self.part([], compiled.code))

    def part(self, lines: Sequence[str], code: str) -> str:
        """Return the code that calls a new function.

        Args:
            lines: its lines before the last one.
            code: what it returns.
        """
        body = [*lines, f"return {code}"]
        names = [node for node in ast.walk(ast.parse("\n".join([*lines, code]))) if isinstance(node, ast.Name)]
        own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        used = {node.id for node in names} - own - self._globals.keys() - vars(builtins).keys()
        parameters = ", ".join(sorted(used))
        return f"{self.constant(self.function('part', parameters, body))}({parameters})"

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
        self,
        template: str,
        arguments: Sequence[Compiled],
        kind: SqlType,
        *,
        nullable: bool = False,
        kernel: Kernel | None = None,
    ) -> Compiled:
        """Return the code of an operation that is NULL if an argument is NULL.

        Args:
            template: its code, with `{0}`, `{1}` … for the arguments. Other code becomes an argument, so that its braces stay.
            arguments: its arguments.
            kind: the type of its value.
            nullable: whether it can be NULL for arguments that are not NULL.
            kernel: computes it in columns. Default: the kernel of its code, if there is one.
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
        kernel = kernel or KERNELS.get(template)
        columns = kernel and computed(kernel, [argument.columns for argument in arguments])
        return Compiled(code, kind, nullable=nullable or bool(checks), columns=columns)

    def expect(self, node: exp.Expr, wanted: SqlType) -> Compiled:
        """Compile an expression and convert it implicitly to a type, as PostgreSQL would.

        Raises:
            SqlRefused: its type does not fit.
        """
        compiled = self.compile(node)
        converted = self.converted(compiled, wanted)
        if converted is None and _is_quoted(compiled) and wanted in FROM_TEXT:
            raise self.refused(node, f"{compiled.literal!r} is not a valid {wanted.value}.")
        if converted is None:
            raise self.refused(
                node,
                f"This is of type {compiled.type.value}, and {wanted.value} is required.",
                CONVERTING_CALLS.get((compiled.type, wanted), f"Convert it: cast(… as {wanted.value})."),
            )
        return self.in_columns(node, converted)

    def converted(self, compiled: Compiled, wanted: SqlType) -> Compiled | None:
        """Return the code of an implicit conversion; None if there is none."""
        if compiled.type is wanted:
            return compiled
        if compiled.type is SqlType.NULL:
            return replace(compiled, type=wanted, columns=constant_column(None, wanted))
        if _is_quoted(compiled) and wanted in FROM_TEXT:
            with suppress(SqlDataError):
                value = getattr(values, FROM_TEXT[wanted])(compiled.literal)
                columns = constant_column(value, wanted)
                return Compiled(self.constant(value), wanted, value is None, literal=value, columns=columns)
            return None
        if (compiled.type, wanted) in IMPLICIT:
            return self.strict(CASTS[compiled.type, wanted], [compiled], wanted)
        return None

    def comparable(self, node: exp.Expr, compiled: Compiled) -> Compiled:
        """Return the code of a value that is compared with others.

        Raises:
            SqlRefused: it is JSON.
        """
        if compiled.type is SqlType.JSON:
            raise self.refused(node, "JSON values cannot be compared.", "Extract a text with ->> first.")
        return compiled

    def compared(
        self, nodes: Sequence[exp.Expr], purpose: str | exp.Expr, compiled: Sequence[Compiled] | None = None
    ) -> list[Compiled]:
        """Compile expressions that are compared with each other, and convert them to their common type.

        Args:
            nodes: the expressions.
            purpose: what needs the common type, for messages.
            compiled: their code, if another than the code of `compile`.

        Raises:
            SqlRefused: there is none, or they are JSON.
        """
        together = self.together(nodes, purpose, compiled)
        return [self.comparable(node, each) for node, each in zip(nodes, together, strict=True)]

    def together(
        self, nodes: Sequence[exp.Expr], purpose: str | exp.Expr, compiled: Sequence[Compiled] | None = None
    ) -> list[Compiled]:
        """Compile expressions and convert them to their common type; the arguments are those of `compared`.

        Raises:
            SqlRefused: there is none.
        """
        compiled = [self.compile(node) for node in nodes] if compiled is None else compiled
        # A quoted literal has no type of its own: it takes the type of the others.
        typed = [each.type for each in compiled if not _is_quoted(each)]
        kind = common_type(typed) if typed else SqlType.TEXT
        if kind is SqlType.NULL and len(typed) < len(compiled):
            kind = SqlType.TEXT
        converted = []
        for node, each in zip(nodes, compiled, strict=True):
            value = None if kind is None else self.converted(each, kind)
            if value is None and kind in FROM_TEXT and _is_quoted(each):
                raise self.refused(node, f"{each.literal!r} is not a valid {kind.value}.")
            if value is None:
                others = ", ".join(dict.fromkeys(other.type.value for other in compiled))
                needing = purpose if isinstance(purpose, str) else described(purpose)
                raise self.refused(
                    node, f"{needing} needs values of one type, and these are of types {others}.", "Add a cast."
                )
            converted.append(value)
        return converted


class Steps:
    """The code of a long chain of operations: a few at a time become a statement, so that no code is nested deeply."""

    def __init__(self, program: ExpressionCompiler) -> None:
        self._program = program
        self._lines: list[str] = []

    def shallow(self, compiled: Compiled) -> Compiled:
        """Return the value so far: its code, or the name of a variable with it. Deep chains have no columns of their own."""
        if not _is_deep(compiled.code):
            return compiled
        name = self._program.temporary()
        self._lines.append(f"{name} = {compiled.code}")
        return replace(compiled, code=name, columns=None)

    def finished(self, compiled: Compiled) -> Compiled:
        """Return the value of the whole chain."""
        if not self._lines:
            return compiled
        return replace(compiled, code=self._program.part(self._lines, compiled.code))


_DEEP = 40
"""The levels of parentheses above which code moves to a function of its own."""


def _is_deep(code: str) -> bool:
    depth = deepest = 0
    for found in _PARENTHESES.finditer(code) if len(code) > 2 * _DEEP else ():
        depth += 1 if found[0] in "([" else -1
        deepest = max(deepest, depth)
    return deepest > _DEEP


_PARENTHESES = re.compile(r"[()\[\]]")


def chain_of(node: exp.Expr, kinds: tuple[type[exp.Expr], ...]) -> list[Any]:
    """Return the operations of a chain such as `a + b - c`, the first one first: each but the first has the one before it as its left operand."""
    chain = [node]
    while isinstance(chain[-1].this, kinds):
        chain.append(chain[-1].this)
    return chain[::-1]


def _is_quoted(compiled: Compiled) -> bool:
    """Return whether an expression is a text in quotes."""
    return compiled.type is SqlType.TEXT and isinstance(compiled.literal, str)


@dataclass(frozen=True)
class Handler:
    """The compilation of one kind of expression, the names of the arguments that it uses, and whether it evaluates some of them only in some rows."""

    compile: Callable[[ExpressionCompiler, Any], Compiled]
    arguments: frozenset[str] = field(default=frozenset({"this", "expression"}))
    is_lazy: bool = False


def position_of(node: exp.Expr) -> int:
    """Return the offset of the first character of an expression, as far as the parser kept it."""
    found = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    if found:
        return int(min(found))
    return position_of(node.parent) if node.parent is not None else 0


def described(node: exp.Expr) -> str:
    """Return the text of an expression for messages, at most 60 characters."""
    try:
        text = node.sql(dialect="postgres")
    except RecursionError:  # of a sum of a thousand terms
        return "this long expression"
    return f"`{text if len(text) <= 60 else text[:57] + '…'}`"


@dataclass(frozen=True)
class Signature:
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


def apply_signature(
    program: ExpressionCompiler, node: exp.Expr, signature: Signature, arguments: Sequence[exp.Expr]
) -> Compiled:
    """Return the code of a call.

    Raises:
        SqlRefused: the number or a type of the arguments does not fit.
    """
    most, least = len(signature.parameters), len(signature.parameters) - signature.optional
    if not least <= len(arguments) <= most:
        raise program.refused(node, f"{described(node)} has {len(arguments)} arguments instead of {most}.")
    compiled = [program.expect(each, kind) for each, kind in zip(arguments, signature.parameters, strict=False)]
    places = ", ".join(f"{{{index}}}" for index in range(len(compiled)))
    template = signature.template.replace("{*}", places)
    return program.strict(template, compiled, signature.result, nullable=signature.nullable)


def fixed(signature: Signature, *names: str) -> Handler:
    """Return the handler of a function whose arguments the parser names."""

    def compile_fixed(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
        arguments = [node.args[name] for name in names if node.args.get(name) is not None]
        return apply_signature(program, node, signature, arguments)

    return Handler(compile_fixed, frozenset(names))


def by_type(
    templates: Mapping[SqlType, tuple[str, SqlType]], otherwise: SqlType
) -> Callable[[ExpressionCompiler, exp.Expr], Compiled]:
    """Return the handler of a function of one number whose code depends on the number's type."""

    def compile_by_type(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
        operand = program.compile(node.this)
        if operand.type not in templates:
            operand = program.expect(node.this, otherwise)
        template, result = templates[operand.type]
        return program.strict(template, [operand], result)

    return compile_by_type


_OPERATIONS = [
    name
    for name, value in vars(values).items()
    if callable(value) and not name.startswith("_") and value.__module__ == values.__name__
]
