"""The compilation of scalar expressions of SQL to Python code with PostgreSQL's types and NULL semantics.

    expression --a handler for its kind--> Compiled: code, type, nullability --ExpressionCompiler.function--> function of a row

Each kind of expression has one handler, which names the arguments that it uses. An expression without a handler, or an argument that its handler
does not use, is refused: nothing is ignored.
"""

from __future__ import annotations

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

    def compile(self, node: exp.Expr) -> Compiled:
        """Return the code of an expression.

        Raises:
            SqlRefused: it is not supported, or its types do not fit.
        """
        handler = self.handlers.get(type(node))
        if handler is None:
            advice = next((text for kind, text in self.advice.items() if isinstance(node, kind)), "")
            raise self.refused(node, f"{self._written(node)} is not supported here.", advice)
        for name, value in node.args.items():
            if value not in (None, False, []) and name not in handler.arguments:
                raise self.refused(node, f"{described(node)} does not support {name.replace('_', ' ')!r} here.")
        return self.in_columns(node, handler.compile(self, node), is_lazy=handler.is_lazy)

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
            body: its lines.
        """
        namespace = {"__name__": f"<{self.text.name}>", **self._globals}
        source = "\n    ".join([f"def {name}({parameters}):", *body])
        with catch_warnings():
            simplefilter("ignore", SyntaxWarning)  # such as for `1 is None`, the code of 1 IS NULL
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
            template: its code, with `{0}`, `{1}` … for the arguments.
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
                raise self.refused(
                    node, f"{purpose} needs values of one type, and these are of types {others}.", "Add a cast."
                )
            converted.append(value)
        return converted


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
    text = node.sql(dialect="postgres")
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
