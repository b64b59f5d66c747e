"""Intervals, and functions of times and dates."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo, available_timezones

from sqlglot import exp

from ..time import MILLISECOND
from ..validation import did_you_mean
from . import values
from .errors import SqlText
from .expression_compiler import Compiled, ExpressionCompiler, Handler, Signature, described, fixed, position_of
from .types import SqlType

_UNITS = {
    "microsecond": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
"""The units of intervals. Months and years have no fixed length."""


def _interval(program: ExpressionCompiler, node: exp.Interval) -> Compiled:
    value = interval_of(program.text, node)
    return Compiled(program.constant(value), SqlType.INTERVAL, literal=value)


def interval_of(text: SqlText, node: exp.Interval) -> timedelta:
    """Return the length of an interval.

    Raises:
        SqlRefused: it is not a literal of fixed units.
    """
    words = f"{node.this.name if node.this else ''} {node.unit.name if node.unit else ''}".lower().split()
    total, pairs = timedelta(), list(zip(words[::2], words[1::2], strict=False))
    for number, unit in pairs:
        length = _UNITS.get(unit.rstrip("s"))
        if length is None:
            break
        try:
            total += length * float(number)
        except (OverflowError, ValueError):
            break
    else:
        if pairs and len(words) == 2 * len(pairs):
            return total
    raise text.refusal(
        position_of(node),
        f"The interval {node.sql(dialect='postgres')} is not supported.",
        f"Write a number and a unit, such as interval '5 minutes'; the units are {', '.join(_UNITS)}.",
    )


def constant_interval(program: ExpressionCompiler, node: exp.Expr) -> timedelta | None:
    """Return the length of an interval of literals, such as `2 * interval '1 hour'`; None for another expression."""
    compiled = program.compile(node)
    return compiled.literal if compiled.type is SqlType.INTERVAL else None


def window_length(text: SqlText, node: exp.Expr, length: timedelta) -> timedelta:
    """Return the length of a window, of its step, or of the gap between sessions.

    Args:
        text: the file, for messages.
        node: its expression.
        length: the value of the expression.

    Raises:
        SqlRefused: it is shorter than a millisecond, or has fractions of one.
    """
    if length < MILLISECOND or length % MILLISECOND:
        raise text.refusal(
            position_of(node),
            "The length of a window is a whole number of milliseconds, at least 1.",
            "Write a longer one, such as interval '5 minutes'.",
        )
    return length


def _extract(program: ExpressionCompiler, node: exp.Extract) -> Compiled:
    part = node.this.name.lower()
    if part not in values.PARTS:
        raise program.refused(node, f"extract does not know {part!r}.", f"It knows {', '.join(values.PARTS)}.")
    source = program.compile(node.expression)
    if source.type is SqlType.INTERVAL:
        if part != "epoch":
            raise program.refused(
                node, f"extract does not know {part!r} of an interval.", "Write extract(epoch FROM …): its seconds."
            )
        return program.strict("seconds_of({0})", [source], SqlType.DOUBLE)
    return program.strict(
        f"time_part({program.constant(part)}, {{0}})", [_moment(program, node.expression)], SqlType.DOUBLE
    )


def _moment(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
    """Return the code of a time, with or without time zone."""
    compiled = program.compile(node)
    return compiled if compiled.type is SqlType.LOCAL else program.expect(node, SqlType.TIMESTAMP)


def _at_time_zone(program: ExpressionCompiler, node: exp.AtTimeZone) -> Compiled:
    """Compile the local time of a moment, or the moment of a local time."""
    moment, zone = _moment(program, node.this), _zone(program, node.args["zone"])
    written = node.this.unnest()
    if isinstance(written, exp.Cast) and written.to.this is exp.DataType.Type.TIMESTAMP:
        raise program.refused(
            node,
            "A timestamp always has a time zone here, so AT TIME ZONE returns its local time. PostgreSQL would read a timestamp without time zone as a local time.",
            "Write timestamptz instead of timestamp. For the moment of a local time, write it with its offset: timestamptz '2026-03-29 10:00:00+02'.",
        )
    if moment.type is SqlType.LOCAL:
        return program.strict(f"moment_of_local({{0}}, {zone})", [moment], SqlType.TIMESTAMP)
    return program.strict(f"local_time({{0}}, {zone})", [moment], SqlType.LOCAL)


def _zone(program: ExpressionCompiler, node: exp.Expr) -> str:
    """Return the name of a constant time zone."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise program.refused(node, "A time zone is a quoted name.", "Write at AT TIME ZONE 'Europe/Berlin'.")
    known = available_timezones()
    if node.name not in known:
        raise program.refused(
            node, f"There is no time zone {node.name!r}.", did_you_mean(node.name, sorted(known)).strip()
        )
    return program.constant(ZoneInfo(node.name))


def _date_bin(program: ExpressionCompiler, node: exp.DateBin) -> Compiled:
    width = exp.Interval(this=node.this) if isinstance(node.this, exp.Literal) else node.this
    length = constant_interval(program, width)
    if length is None or length <= timedelta():
        raise program.refused(
            node, "date_bin needs a constant interval above zero.", "Write date_bin('15 minutes', at, '2026-01-01')."
        )
    times = [program.expect(each, SqlType.TIMESTAMP) for each in (node.expression, node.args["unit"])]
    return program.strict(f"bin_time({program.constant(length)}, {{0}}, {{1}})", times, SqlType.TIMESTAMP)


def _not_repeatable(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
    raise program.refused(
        node,
        f"{described(node)} is not supported: a replay, a restart and a backfill would compute other values.",
        "Use the event time.",
    )


def _date_trunc(program: ExpressionCompiler, node: exp.Expr) -> Compiled:
    unit = node.args["unit"].name.lower()
    if unit not in values.TRUNCATIONS:
        raise program.refused(node, f"date_trunc does not know {unit!r}.", f"It knows {', '.join(values.TRUNCATIONS)}.")
    if node.args.get("zone") is not None:
        zone = _zone(program, node.args["zone"])
        moment = program.expect(node.this, SqlType.TIMESTAMP)
        return program.strict(f"truncate_local({program.constant(unit)}, {{0}}, {zone})", [moment], SqlType.TIMESTAMP)
    moment = _moment(program, node.this)
    return program.strict(f"truncate_time({program.constant(unit)}, {{0}})", [moment], moment.type)


TIME_FUNCTIONS: dict[type[exp.Expr], Handler] = {
    exp.Interval: Handler(_interval, frozenset({"this", "unit", "fraction_in_string"})),
    exp.Extract: Handler(_extract),
    exp.TimestampTrunc: Handler(_date_trunc, frozenset({"this", "unit", "zone"})),
    exp.AtTimeZone: Handler(_at_time_zone, frozenset({"this", "zone"})),
    exp.DateBin: Handler(_date_bin, frozenset({"this", "expression", "unit"})),
    **dict.fromkeys(
        (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.Localtimestamp, exp.Localtime, exp.Rand, exp.Uuid),
        Handler(_not_repeatable, frozenset({"this", "expression", "is_string"})),
    ),
    exp.UnixToTime: fixed(Signature("seconds_to_timestamp({*})", (SqlType.DOUBLE,), SqlType.TIMESTAMP), "this"),
}
