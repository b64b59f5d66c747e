"""Aggregate functions of SQL, as monoids.

As in PostgreSQL, aggregates pass over NULL, and all but counts are NULL if every value was NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import msgspec
from sqlglot import exp

from ..monoids import (
    Count,
    Distinct,
    DistinctValues,
    Earliest,
    Latest,
    Max,
    Mean,
    Min,
    Monoid,
    OfValues,
    Quantiles,
    Sum,
    TopKeys,
    Variance,
)
from ..validation import did_you_mean
from .columns import computed, constant_column, is_counted, only_where, pair_of
from .decimals import ChosenDecimal, DecimalByTime, DecimalMean, DecimalSum
from .expression_compiler import Compiled
from .expressions import StatementProgram
from .python_calls import DEFINITION, Definition, PythonAggregate
from .types import SqlType

_encode_row = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a query.

    Args:
        monoid: how its observations combine.
        observation: the code of the observation of an event; None for an event that does not count.
        result: the code of its value, with `{0}` for the monoid's value, which is None if no event counted.
        type: the type of its value.
        nullable: whether its value can be NULL.
        grows: whether its partial grows with the number of distinct values, so that it needs a window.
        is_by_time: whether its monoid observes pairs of the event time and the observation.
    """

    monoid: Monoid[Any]
    observation: Compiled
    result: str
    type: SqlType
    nullable: bool
    grows: bool = False
    is_by_time: bool = False

    def observed(self, program: StatementProgram, observation: Compiled, time: Compiled) -> Compiled:
        """Return the code of what its monoid observes.

        Args:
            program: compiled the observation.
            observation: the observation of a row.
            time: the event time of the row.
        """
        if not self.is_by_time:
            return observation
        stored = program.strict(STORED[time.type][0], [time], _AS_NUMBERS.get(time.type, time.type))
        pair, name = f"({stored.code}, {observation.code})", program.temporary()
        if observation.nullable:
            pair = f"(None if ({name} := {observation.code}) is None else ({stored.code}, {name}))"
        columns = computed(pair_of, [stored.columns, observation.columns])
        return Compiled(pair, observation.type, observation.nullable, columns=columns)

    @property
    def combines_columns(self) -> bool:
        """Whether partials of columns take less time than one observation after the other."""
        monoid = self.monoid
        return type(monoid) is DistinctValues or (type(monoid) is OfValues and type(monoid.inner) in _COMBINED)


_COMBINED = (Count, Sum, Mean, Min, Max, Earliest, Latest)


STORED = {
    SqlType.BOOLEAN: ("{0}", "{0}"),
    SqlType.BIGINT: ("{0}", "{0}"),
    SqlType.DOUBLE: ("{0}", "{0}"),
    SqlType.NUMERIC: ("{0}", "{0}"),
    SqlType.TEXT: ("{0}", "{0}"),
    SqlType.BYTES: ("{0}", "{0}"),
    SqlType.TIMESTAMP: ("epoch_us({0})", "timestamp_of_us({0})"),
    SqlType.DATE: ("{0}.toordinal()", "date_of_ordinal({0})"),
}
"""The code of a value in a partial and back, by type."""


_AS_NUMBERS = {SqlType.TIMESTAMP: SqlType.BIGINT, SqlType.DATE: SqlType.BIGINT}
"""The types of partials that are of another type than their values."""


class Ranked(exp.Expression, exp.AggFunc):
    """The items with the largest sums of weights, as JSON. Created from a query's `topk`; no text of SQL contains it."""

    arg_types = {"this": True, "weight": True, "most": True}  # noqa: RUF012 - as sqlglot declares it


class RankedItems(OfValues):
    """The k items with the largest sums. An observation is the JSON of an array: the values of the item, then the weight."""

    def lift(self, observation: Any) -> Any:
        """Return a partial of one item."""
        return super().lift(observation and _weighted(observation))

    def fold(self, accumulator: Any, observation: Any) -> Any:
        """Add the weight of an item."""
        return super().fold(accumulator, observation and _weighted(observation))


def _weighted(observation: str) -> dict[str, Any]:
    *item, weight = msgspec.json.decode(observation)
    return {msgspec.json.encode(item).decode(): weight}


class FirstRows(exp.Expression, exp.AggFunc):
    """The first rows in an order, as JSON. Created from a query's ORDER BY; no text of SQL contains it."""

    arg_types = {"expressions": True, "most": True}  # noqa: RUF012 - as sqlglot declares it


class FirstInOrder(Monoid[list[Any]]):
    """The first n rows in an order; of equal ones, those whose text is less. An observation is a list of keys, and the text of the row.

    Args:
        most: the number of rows.
        descending: whether each key is in descending order.
    """

    commutative = True

    def __init__(self, most: int, descending: tuple[bool, ...]) -> None:
        self.most = most
        self.descending = descending

    def identity(self) -> list[Any]:
        """Return no row."""
        return []

    def lift(self, observation: list[Any]) -> list[Any]:
        """Return a partial of one row."""
        return [observation]

    def combine(self, left: list[Any], right: list[Any]) -> list[Any]:
        """Return the first rows of both."""
        rows = sorted([*left, *right], key=itemgetter(1))
        for number in reversed(range(len(self.descending))):
            rows.sort(key=lambda row: tuple(row[0][number]), reverse=self.descending[number])
        return rows[: self.most]

    def value(self, partial: list[Any]) -> list[str]:
        """Return the texts of the rows, in order."""
        return [text for _, text in partial]


_SELECTIONS: dict[type[exp.Expr], type[Monoid[Any]]] = {
    exp.Min: Min,
    exp.Max: Max,
    exp.First: Earliest,
    exp.Last: Latest,
    exp.FirstValue: Earliest,
    exp.LastValue: Latest,
    exp.LogicalAnd: Min,
    exp.LogicalOr: Max,
}
_SPREADS: dict[type[exp.Expr], tuple[bool, bool]] = {
    exp.Variance: (False, False),
    exp.VariancePop: (True, False),
    exp.Stddev: (False, True),
    exp.StddevSamp: (False, True),
    exp.StddevPop: (True, True),
}
"""Aggregates of the variance: whether of a population, and whether its root is the value."""


_KNOWN = (
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "first",
    "last",
    "bool_and",
    "bool_or",
    "stddev",
    "stddev_pop",
    "variance",
    "var_pop",
    "approx_count_distinct",
    "approx_quantile",
    "topk",
)


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is the call of an aggregate, without its FILTER."""
    return isinstance(node, exp.AggFunc)


def compile_aggregate(program: StatementProgram, node: exp.Expr) -> Aggregate:
    """Return the aggregate of a call, perhaps with a FILTER.

    Raises:
        SqlRefused: it is not supported, or does not fit the type of its argument.
    """
    call, condition = (node.this, node.expression.this) if isinstance(node, exp.Filter) else (node, None)
    handler = _HANDLERS.get(type(call))
    if handler is None:
        raise program.refused(call, f"The aggregate {call.sql(dialect='postgres')} is not supported.", _known(call))
    aggregate = handler(program, call)
    if condition is None:
        return aggregate
    passes = program.expect(condition, SqlType.BOOLEAN)
    observed = aggregate.observation
    filtered = Compiled(
        f"({observed.code} if {passes.code} else None)",
        observed.type,
        nullable=True,
        columns=computed(only_where, [observed.columns, passes.columns]),
    )
    return replace(
        aggregate,
        observation=program.in_columns(node, filtered, is_lazy=True),
        nullable=aggregate.nullable or not _is_count(call),
    )


def _known(call: exp.Expr) -> str:
    if call.find(exp.Median, exp.PercentileCont, exp.PercentileDisc) is not None:
        return "Write approx_quantile(delay, 0.9)."
    return f"The aggregates are {', '.join(_KNOWN)}.{did_you_mean(_name(call), _KNOWN)}"


def _name(call: exp.Expr) -> str:
    """Return the name of an aggregate in SQL."""
    return call.sql(dialect="postgres").partition("(")[0].lower()


def _is_count(call: exp.Expr) -> bool:
    return isinstance(call, (exp.Count, exp.ApproxDistinct))


def _count(program: StatementProgram, call: exp.Count) -> Aggregate:
    _expect_arguments(program, call, {"this", "big_int"})
    if isinstance(call.this, exp.Distinct):
        return _count_distinct(program, call.this)
    if call.this is None:
        raise program.refused(call, "count has no argument.", "Write count(*).")
    if isinstance(call.this, exp.Star):
        each = Compiled("True", SqlType.BOOLEAN, columns=constant_column(True, SqlType.BOOLEAN))
        return Aggregate(OfValues(Count()), each, "({0} or 0)", SqlType.BIGINT, nullable=False)
    counted = program.compile(call.this)
    observation = Compiled(
        f"(None if {counted.code} is None else True)",
        SqlType.BOOLEAN,
        nullable=counted.nullable,
        columns=computed(is_counted, [counted.columns]),
    )
    return Aggregate(OfValues(Count()), observation, "({0} or 0)", SqlType.BIGINT, nullable=False)


def _count_distinct(program: StatementProgram, distinct: exp.Distinct) -> Aggregate:
    if len(distinct.expressions) != 1:
        raise program.refused(
            distinct, "count(distinct …) counts the values of one expression.", "Join them: a || ' ' || b."
        )
    [node] = distinct.expressions
    counted = program.compile(node)
    if counted.type not in STORED:
        raise program.refused(node, f"count(distinct …) is not defined for {counted.type.value}.", "Add a cast.")
    if counted.type is SqlType.NUMERIC:  # a key of a partial is no Decimal
        observation = program.strict("numeric_to_text(shortest_numeric({0}))", [counted], SqlType.TEXT)
    else:
        stored = _AS_NUMBERS.get(counted.type, counted.type)
        observation = program.strict(STORED[counted.type][0], [counted], stored)
    values = DistinctValues()
    return Aggregate(values, observation, "len({0} or ())", SqlType.BIGINT, nullable=False, grows=True)


def _sum(program: StatementProgram, call: exp.Sum) -> Aggregate:
    summed = _number(program, call)
    if summed.type is SqlType.NUMERIC:
        return Aggregate(OfValues(DecimalSum()), summed, "{0}", SqlType.NUMERIC, nullable=summed.nullable)
    check = "bigint" if summed.type is SqlType.BIGINT else "double"
    return Aggregate(OfValues(Sum()), summed, f"({{0}} and {check}({{0}}))", summed.type, nullable=summed.nullable)


def _mean(program: StatementProgram, call: exp.Avg) -> Aggregate:
    averaged = _number(program, call)
    if averaged.type is SqlType.NUMERIC:
        return Aggregate(OfValues(DecimalMean()), averaged, "{0}", SqlType.NUMERIC, nullable=averaged.nullable)
    return Aggregate(OfValues(Mean()), averaged, "{0}", SqlType.DOUBLE, nullable=averaged.nullable)


def _spread(program: StatementProgram, call: exp.Expr) -> Aggregate:
    """Compile a variance or a standard deviation, of doubles."""
    _expect_arguments(program, call, {"this"})
    observed = program.expect(call.this, SqlType.DOUBLE)
    is_of_population, is_root = _SPREADS[type(call)]
    result = "(None if {0} is None else square_root({0}))" if is_root else "{0}"
    variance = OfValues(Variance(population=is_of_population))
    return Aggregate(variance, observed, result, SqlType.DOUBLE, nullable=observed.nullable or not is_of_population)


def _number(program: StatementProgram, call: exp.Expr) -> Compiled:
    """Return the argument of a sum or a mean."""
    _expect_arguments(program, call, {"this"})
    if isinstance(call.this, exp.Distinct):
        raise program.refused(call, f"{_name(call)}(distinct …) is not supported.")
    argument = program.compile(call.this)
    if not argument.type.is_number:
        raise program.refused(
            call.this,
            f"{_name(call)} needs a number, and this is of type {argument.type.value}.",
            "Add a cast.",
        )
    return argument


def _selection(program: StatementProgram, call: exp.Expr) -> Aggregate:
    """Compile min, max, first, last, bool_and or bool_or: one of the values."""
    _expect_arguments(program, call, {"this"})
    is_logical = isinstance(call, (exp.LogicalAnd, exp.LogicalOr))
    chosen = program.expect(call.this, SqlType.BOOLEAN) if is_logical else program.compile(call.this)
    if chosen.type not in STORED:
        raise program.refused(call.this, f"{_name(call)} is not defined for {chosen.type.value}.")
    store, load = STORED[chosen.type]
    observation = program.strict(store, [chosen], _AS_NUMBERS.get(chosen.type, chosen.type))
    value = f"(None if {{0}} is None else {load})"
    monoid = _SELECTIONS[type(call)]()
    is_by_time = isinstance(monoid, (Earliest, Latest))
    if chosen.type is SqlType.NUMERIC:
        monoid = DecimalByTime(monoid) if is_by_time else ChosenDecimal(monoid)
    return Aggregate(OfValues(monoid), observation, value, chosen.type, chosen.nullable, is_by_time=is_by_time)


def _distinct(program: StatementProgram, call: exp.ApproxDistinct) -> Aggregate:
    _expect_arguments(program, call, {"this"})
    counted = program.compile(call.this)
    if counted.type not in STORED:
        raise program.refused(call.this, f"approx_count_distinct is not defined for {counted.type.value}.")
    observation = program.strict(STORED[counted.type][0], [counted], counted.type)
    return Aggregate(
        OfValues(Distinct()), observation, "(0 if {0} is None else round({0}.estimate))", SqlType.BIGINT, nullable=False
    )


def _quantile(program: StatementProgram, call: exp.ApproxQuantile) -> Aggregate:
    _expect_arguments(program, call, {"this", "quantile"})
    rank = program.compile(call.args["quantile"])
    if not isinstance(rank.literal, (int, float)) or not 0 <= rank.literal <= 1:
        raise program.refused(call, "approx_quantile needs a number from 0 to 1.", "Write approx_quantile(delay, 0.9).")
    ranked = program.expect(call.this, SqlType.DOUBLE)
    first = "(None if {0} is None else {0}[0])"
    return Aggregate(
        OfValues(Quantiles((float(rank.literal),))), ranked, first, SqlType.DOUBLE, nullable=ranked.nullable
    )


def _ranked(program: StatementProgram, call: Ranked) -> Aggregate:
    parts = []
    for node in call.this.expressions:
        item = program.compile(node)
        if item.type not in STORED or item.type in (SqlType.BYTES, SqlType.NUMERIC):
            raise program.refused(node, f"topk cannot rank items of type {item.type.value}.", "Add a cast.")
        parts.append(program.strict(STORED[item.type][0], [item], item.type).code)
    weight = program.compile(call.args["weight"])
    if weight.type not in (SqlType.BIGINT, SqlType.DOUBLE):
        raise program.refused(
            call.args["weight"],
            f"topk needs a bigint or a double precision as weight, and this is of type {weight.type.value}.",
            "Add a cast.",
        )
    name = program.temporary()
    observation = f"(None if ({name} := {weight.code}) is None else json_text([{', '.join(parts)}, {name}]))"
    return Aggregate(
        RankedItems(TopKeys(int(call.args["most"].this))),
        Compiled(observation, SqlType.TEXT, nullable=True),
        "(None if {0} is None else ranked_text({0}))",
        SqlType.TEXT,
        nullable=True,
    )


def _first_rows(program: StatementProgram, call: FirstRows) -> Aggregate:
    """Compile the first rows. Each key is a pair, whose first number puts NULL first or last."""
    keys = []
    for ordered in call.expressions:
        key = program.comparable(ordered.this, program.compile(ordered.this))
        if key.type not in STORED or key.type is SqlType.NUMERIC:
            raise program.refused(ordered.this, f"ORDER BY is not defined for {key.type.value}.", "Add a cast.")
        of_null = int(bool(ordered.args.get("desc")) == bool(ordered.args.get("nulls_first")))
        stored = program.strict(STORED[key.type][0], [key], key.type).code
        name = program.temporary()
        keys.append(f"([{of_null}, 0] if ({name} := {stored}) is None else [{1 - of_null}, {name}])")
    descending = tuple(bool(ordered.args.get("desc")) for ordered in call.expressions)
    encode = program.constant(lambda row: _encode_row(row).decode())
    return Aggregate(
        FirstInOrder(int(call.args["most"].this), descending),
        Compiled(f"[[{', '.join(keys)}], {encode}(event)]", SqlType.TEXT),
        "rows_text({0})",
        SqlType.TEXT,
        nullable=False,
    )


def _python_aggregate(program: StatementProgram, call: PythonAggregate) -> Aggregate:
    definition: Definition = call.meta[DEFINITION]
    if len(call.expressions) != 1:
        raise program.refused(call, f"{definition.name} has one argument, and {len(call.expressions)} are given.")
    [observation], result = definition.parameters, definition.result
    observed = program.expect(call.expressions[0], observation.type)
    return Aggregate(
        OfValues(definition.function), observed, "{0}", result.type, nullable=result.nullable or observed.nullable
    )


def _expect_arguments(program: StatementProgram, call: exp.Expr, used: set[str]) -> None:
    for name, value in call.args.items():
        if value not in (None, False, []) and name not in used:
            written = (
                program.text.text[call.meta["start"] : call.meta["end"] + 1] if "end" in call.meta else _name(call)
            )
            what = "has one argument" if name == "expressions" else f"does not support {name.replace('_', ' ')!r}"
            raise program.refused(call, f"The aggregate {written.lower()} {what}.")


_HANDLERS: dict[type[exp.Expr], Callable[[StatementProgram, Any], Aggregate]] = {
    exp.Count: _count,
    exp.Sum: _sum,
    exp.Avg: _mean,
    **dict.fromkeys(_SELECTIONS, _selection),
    **dict.fromkeys(_SPREADS, _spread),
    exp.ApproxDistinct: _distinct,
    exp.ApproxQuantile: _quantile,
    Ranked: _ranked,
    FirstRows: _first_rows,
    PythonAggregate: _python_aggregate,
}
