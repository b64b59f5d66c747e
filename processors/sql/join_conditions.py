"""The columns and the conditions of joins.

ON a.k = b.k                                     --> pairs of keys
AND b.at BETWEEN a.at - interval … AND a.at + …  --> bounds of the time between the two events
AND a.size < b.size                              --> further conditions, evaluated for each pair
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from sqlglot import exp

from ..time import MILLISECOND
from .errors import SqlText
from .expression_compiler import Compiled, position_of
from .expressions import StatementProgram
from .time_functions import constant_interval
from .types import ColumnType, SqlType


class Side(NamedTuple):
    """A table of a join.

    Args:
        name: its name in the query.
        columns: the types of its columns, by name.
        attributes: the names of the fields of its rows, by column.
    """

    name: str
    columns: Mapping[str, ColumnType]
    attributes: Mapping[str, str]


@dataclass(frozen=True)
class JoinedScope:
    """The columns of joined rows, as code."""

    codes: Mapping[str, Compiled]

    def column(self, table: str | None, name: str) -> Compiled | None:
        """Return the code of a column by its unique name."""
        return None if table is not None else self.codes.get(name)

    def names(self) -> Sequence[str]:
        """Return the unique names of the columns."""
        return list(self.codes)


@dataclass(frozen=True)
class JoinedColumns:
    """The columns of two tables under unique names.

    A column of the left table keeps its name. So does one of the right table, unless the left table has a column of this name: then it has its
    table's name before it, such as `payments.at`.
    """

    text: SqlText
    left: Side
    right: Side

    def unique_name(self, node: exp.Column) -> str | None:
        """Return the unique name of a column; None for a name without a table that neither table has, such as `window_start`.

        Raises:
            SqlRefused: both tables have the column, or the named table lacks it.
        """
        table, name = node.table, node.name
        owners = [side for side in (self.left, self.right) if table in ("", side.name) and name in side.columns]
        if not table and len(owners) == 2:
            raise self.text.refusal(
                position_of(node),
                f"Column {name} is in {self.left.name} and in {self.right.name}.",
                f"Write {self.left.name}.{name} or {self.right.name}.{name}.",
            )
        if table and not owners:
            known = next((side for side in (self.left, self.right) if side.name == table), None)
            listed = f"The tables of the query are {self.left.name} and {self.right.name}."
            if known is not None:
                listed = f"Its columns are: {', '.join(known.columns)}."
            raise self.text.refusal(position_of(node), f"There is no column {table}.{name}.", listed)
        return self._unique(owners[0], name) if owners else None

    def _unique(self, side: Side, name: str) -> str:
        return f"{side.name}.{name}" if side is self.right and name in self.left.columns else name

    def rewrite(self, node: exp.Expr) -> None:
        """Replace the columns in an expression by their unique names."""
        for column in list(node.find_all(exp.Column)):
            unique = None if isinstance(column.this, exp.Star) else self.unique_name(column)
            if unique is not None:
                column.replace(_column(unique, column))

    def expand(self, select: exp.Select) -> None:
        """Replace `*` and `table.*` in the results by columns, and name each column as in its table."""
        results: list[exp.Expr] = []
        for node in select.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                results += self._all(node)
            elif isinstance(node, exp.Column):
                results.append(_aliased(exp.column(node.name, node.table or None), node.name, node))
            else:
                results.append(node)
        select.set("expressions", results)

    def _all(self, node: exp.Expr) -> Iterator[exp.Expr]:
        table = node.table if isinstance(node, exp.Column) else ""
        for side in (self.left, self.right):
            if table in ("", side.name):
                yield from (
                    _aliased(exp.column(_quoted(name), _quoted(side.name)), name, node) for name in side.columns
                )

    def is_left(self, unique: str) -> bool:
        """Return whether a unique name is of the left table."""
        return unique in self.left.columns

    def is_right(self, unique: str) -> bool:
        """Return whether a unique name is of the right table."""
        return any(self._unique(self.right, name) == unique for name in self.right.columns)

    def of_right(self, name: str) -> str:
        """Return the unique name of a column of the right table."""
        return self._unique(self.right, name)

    def types(self, *, optional: bool) -> dict[str, ColumnType]:
        """Return the types of all columns; with `optional`, a column of the right table may be NULL."""
        right = {self.of_right(name): kind for name, kind in self.right.columns.items()}
        if optional:
            right = {name: replace(kind, nullable=True) for name, kind in right.items()}
        return {**self.left.columns, **right}

    def scope(self, left: str | None, right: str | None, *, optional: bool = False) -> JoinedScope:
        """Return the code of the columns.

        Args:
            left: the variable with the left row; None without one.
            right: the variable with the right row; None without one.
            optional: whether the right row can be None.
        """
        codes: dict[str, Compiled] = {}
        if left is not None:
            for name, kind in self.left.columns.items():
                codes[name] = Compiled(f"{left}.{self.left.attributes[name]}", kind.type, nullable=kind.nullable)
        if right is not None:
            for name, kind in self.right.columns.items():
                code = f"{right}.{self.right.attributes[name]}"
                code = f"(None if {right} is None else {code})" if optional else code
                codes[self.of_right(name)] = Compiled(code, kind.type, nullable=kind.nullable or optional)
        return JoinedScope(codes)


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _column(name: str, node: exp.Expr) -> exp.Column:
    column = exp.column(_quoted(name))
    column.meta["start"] = position_of(node)
    return column


def _aliased(column: exp.Column, name: str, node: exp.Expr) -> exp.Alias:
    column.meta["start"] = position_of(node)
    return exp.Alias(this=column, alias=_quoted(name))


@dataclass(frozen=True)
class JoinCondition:
    """The condition of a join.

    Args:
        keys: pairs of equal expressions: of the left table, and of the right one.
        earliest: the least time from the left to the right event; None without a bound.
        latest: the greatest one.
        rest: the other conditions.
    """

    keys: tuple[tuple[exp.Expr, exp.Expr], ...]
    earliest: timedelta | None
    latest: timedelta | None
    rest: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class ConditionReader:
    """Reads the condition of a join.

    Args:
        columns: the columns of both tables; the condition names them by their unique names.
        left_time: the column with the event time of the left table.
        right_time: the one of the right table; None for a lookup table.
    """

    columns: JoinedColumns
    left_time: str
    right_time: str | None

    def read(self, condition: exp.Expr) -> JoinCondition:
        """Return the parts of a condition."""
        keys: list[tuple[exp.Expr, exp.Expr]] = []
        rest: list[exp.Expr] = []
        earliest: list[timedelta] = []
        latest: list[timedelta] = []
        for node in conjuncts(condition):
            bounds = self._bounds(node)
            pair = self._pair(node) if bounds is None else None
            if bounds is not None:
                earliest += bounds.earliest
                latest += bounds.latest
            if pair is not None:
                keys.append(pair)
            elif bounds is None or not self._is_exact:
                rest.append(node)
        return JoinCondition(tuple(keys), max(earliest, default=None), min(latest, default=None), tuple(rest))

    @property
    def _is_exact(self) -> bool:
        """Whether event times, in milliseconds, decide comparisons of the columns. Timestamps have microseconds."""
        return any(self._kind(is_left=is_left) is SqlType.BIGINT for is_left in (True, False))

    def _kind(self, *, is_left: bool) -> SqlType | None:
        if is_left:
            return self.columns.left.columns[self.left_time].type
        return None if self.right_time is None else self.columns.right.columns[self.right_time].type

    def _pair(self, node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
        """Return the sides of an equality, the left table's first; None for another condition."""
        if not isinstance(node, exp.EQ):
            return None
        for left, right in ((node.this, node.expression), (node.expression, node.this)):
            of_left = [self.columns.is_left(column.name) for column in left.find_all(exp.Column)]
            of_right = [self.columns.is_right(column.name) for column in right.find_all(exp.Column)]
            if of_left and of_right and all(of_left) and all(of_right):
                return left, right
        return None

    def _bounds(self, node: exp.Expr) -> _Bounds | None:
        """Return the bounds that a comparison of both event times states; None for another condition."""
        if self.right_time is None:
            return None
        if isinstance(node, exp.Between):
            low = self._bounds(exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()))
            high = self._bounds(exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()))
            return (
                None if low is None or high is None else _Bounds(low.earliest + high.earliest, low.latest + high.latest)
            )
        if not isinstance(node, (exp.GTE, exp.LTE, exp.GT, exp.LT, exp.EQ)):
            return None
        first, second = self._moment(node.this), self._moment(node.expression)
        if first is None or second is None or first.is_left == second.is_left:
            return None
        if first.is_left:  # left + a >= right + b: the right event is at most a - b later
            return self._bound(node, first.offset - second.offset, is_upper=isinstance(node, (exp.GTE, exp.GT)))
        return self._bound(node, second.offset - first.offset, is_upper=isinstance(node, (exp.LTE, exp.LT)))

    def _bound(self, node: exp.Expr, difference: timedelta, *, is_upper: bool) -> _Bounds:
        slack = timedelta() if self._is_exact else MILLISECOND
        strict = MILLISECOND if isinstance(node, (exp.GT, exp.LT)) and self._is_exact else timedelta()
        upper = (difference // MILLISECOND) * MILLISECOND + slack - strict
        lower = -(-difference // MILLISECOND) * MILLISECOND - slack + strict
        if isinstance(node, exp.EQ):
            return _Bounds((lower,), (upper,))
        return _Bounds((), (upper,)) if is_upper else _Bounds((lower,), ())

    def _moment(self, node: exp.Expr) -> _Moment | None:
        """Return an event time, plus or minus a constant; None for another expression."""
        node = node.unnest()
        if isinstance(node, exp.Column):
            if node.name == self.left_time:
                return _Moment(timedelta(), is_left=True)
            is_right = self.right_time is not None and node.name == self.columns.of_right(self.right_time)
            return _Moment(timedelta(), is_left=False) if is_right else None
        if not isinstance(node, (exp.Add, exp.Sub)):
            return None
        moment = self._moment(node.this)
        if moment is None:
            return None
        length = self._length(node.expression.unnest(), is_left=moment.is_left)
        if length is None:
            return None
        return moment._replace(offset=moment.offset + (length if isinstance(node, exp.Add) else -length))

    def _length(self, node: exp.Expr, *, is_left: bool) -> timedelta | None:
        """Return an interval, or a number of milliseconds for an event time that is a number."""
        length = constant_interval(StatementProgram(self.columns.text, self.columns.scope("left", "right")), node)
        if length is not None:
            return length
        is_number = isinstance(node, exp.Literal) and node.is_int
        return int(node.this) * MILLISECOND if is_number and self._kind(is_left=is_left) is SqlType.BIGINT else None


class _Moment(NamedTuple):
    """The event time of one table plus a constant."""

    offset: timedelta
    is_left: bool


class _Bounds(NamedTuple):
    """Bounds of the time from the left to the right event."""

    earliest: tuple[timedelta, ...]
    latest: tuple[timedelta, ...]


def conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that AND joins."""
    waiting = [condition]
    while waiting:
        node = waiting.pop().unnest()
        if isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        else:
            yield node
