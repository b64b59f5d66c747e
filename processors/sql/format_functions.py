"""The function to_char: texts of times and numbers in a constant format."""

from __future__ import annotations

from sqlglot import exp

from .errors import SqlRefused
from .expression_compiler import Compiled, ExpressionCompiler, described, position_of
from .formats import NUMBER_PATTERNS, TIME_PATTERNS, NumberFormat, UnknownPattern, time_text
from .types import SqlType

_EXAMPLE = "Write to_char(at, 'YYYY-MM-DD HH24:MI:SS') or to_char(price, 'FM999990.00')."


def to_char(program: ExpressionCompiler, node: exp.Anonymous) -> Compiled:
    """Return the code of a call of to_char.

    Raises:
        SqlRefused: the format is not constant, contains an unknown pattern, or does not fit the type of the value.
    """
    arguments = node.expressions
    if len(arguments) != 2 or not (
        isinstance(arguments[1], exp.Literal) and arguments[1].is_string and arguments[1].name
    ):
        raise program.refused(node, f"{described(node)} has no value and quoted format.", _EXAMPLE)
    value, written = program.compile(arguments[0]), arguments[1].name
    is_number = value.type.is_number
    if not is_number and value.type is not SqlType.LOCAL:
        value = program.expect(arguments[0], SqlType.TIMESTAMP)
    try:
        text = NumberFormat.of(written).text if is_number else time_text(written)
    except UnknownPattern as error:
        raise _unknown(program, node, error, NUMBER_PATTERNS if is_number else TIME_PATTERNS) from error
    return program.strict(f"{program.constant(text)}({{0}})", [value], SqlType.TEXT)


def _unknown(
    program: ExpressionCompiler, node: exp.Anonymous, error: UnknownPattern, known: tuple[str, ...]
) -> SqlRefused:
    """Return the error of a pattern, at its place in the format."""
    start, written = position_of(node), node.expressions[1].name
    quoted = program.text.text.find(f"'{written}'", start)
    place = start if quoted < 0 else quoted + 1 + error.place
    return program.text.refusal(
        place,
        f"to_char does not know the pattern {error.pattern!r} here.",
        f'It knows {", ".join(known)}, and quoted text: "T".',
    )
