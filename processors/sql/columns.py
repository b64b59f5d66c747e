"""The values of expressions as Arrow columns: those of their code for a row, for many rows at once.

    columns of a batch --kernels of Arrow, and code of single rows--> columns of results

A kernel computes an operation that has the same meaning in Arrow. All other code runs row by row, over the columns that it names. An error of a row
is an error of its batch, which is then processed event by event.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, reduce
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import USER_CODE_ERRORS
from .errors import SqlDataError
from .types import SqlType

if TYPE_CHECKING:
    import pyarrow as pa

_encode = msgspec.json.Encoder().encode

T = TypeVar("T")
Columns = Callable[["pa.RecordBatch"], Any]
"""Returns the value for each row of a batch: an Arrow array, or a scalar if all rows have the same."""
Kernel = Callable[..., Any]
"""Returns the result of an operation on arrays and scalars; NULL for NULL."""

ARROW_TYPES = {
    SqlType.BOOLEAN: "bool",
    SqlType.BIGINT: "int64",
    SqlType.DOUBLE: "double",
    SqlType.TEXT: "string",
}
"""The types of values that columns have without a change."""


@cache
def _arrow() -> Any:
    """Return the library of the columns. It is missing in penstock-core, which then has no columns."""
    import pyarrow.compute  # noqa: PLC0415 - the caller has its columns, so it is there

    return pyarrow


def named_column(name: str) -> Columns:
    """Return a column of the batch, by its name."""
    return lambda batch: batch.column(name)


def constant_column(value: Any, kind: SqlType) -> Columns | None:
    """Return a column of one value; None if columns do not have its type."""
    if kind not in ARROW_TYPES:
        return None

    def constant(_: pa.RecordBatch) -> Any:
        return _arrow().scalar(value, ARROW_TYPES[kind])

    return constant


def computed(kernel: Kernel, operands: Iterable[Columns | None]) -> Columns | None:
    """Return the result of a kernel on columns; None unless all operands are columns."""
    found = list(operands)
    columns = [operand for operand in found if operand is not None]
    return None if len(columns) < len(found) else lambda batch: kernel(*(column(batch) for column in columns))


def computed_once(columns: Columns | None) -> Columns | None:
    """Return the same values, computed once for a batch, however many operations need them."""
    if columns is None:
        return None
    kept: list[tuple[pa.RecordBatch | None, Any]] = [(None, None)]

    def once(batch: pa.RecordBatch) -> Any:
        known, result = kept[0]
        if known is not batch:
            result = columns(batch)
            kept[0] = batch, result
        return result

    return once


def row_by_row(
    named: Mapping[str, Columns], define: Callable[[], Callable[[Iterable[Any]], list[Any]]], kind: SqlType
) -> Columns:
    """Return the results of code for single rows.

    Args:
        named: the columns that the code reads, by the names of their fields.
        define: returns the function of rows that returns the result for each row; called when it is needed first.
        kind: the type of the results.
    """
    row: Any = namedtuple("row", named)  # type: ignore[misc]  # noqa: PYI024 - its fields are known at run time only
    evaluate = cache(define)

    def in_rows(batch: pa.RecordBatch) -> Any:
        columns = [_values(as_array(column(batch), batch.num_rows)) for column in named.values()]
        rows = map(row._make, zip(*columns, strict=True)) if columns else repeat((), batch.num_rows)
        return _arrow().array(evaluate()(rows), ARROW_TYPES[kind])

    return in_rows


def or_row_by_row(at_once: Columns, in_rows: Columns) -> Columns:
    """Return the first result; the second one where an operand has no value, in a row in which the code may not need it."""

    def either(batch: pa.RecordBatch) -> Any:
        result = unless_no_value(lambda: at_once(batch))
        return in_rows(batch) if result is None else result

    return either


def unless_no_value(compute: Callable[[], T]) -> T | None:
    """Return a result; None if a row has no value."""
    try:
        return compute()
    except USER_CODE_ERRORS:
        return None


def as_array(value: Any, count: int) -> pa.Array[Any]:
    """Return the array of a number of rows."""
    array: pa.Array[Any] = _arrow().repeat(value, count) if isinstance(value, _arrow().Scalar) else value
    return array


def filtered(events: pa.RecordBatch, condition: Columns | None) -> pa.RecordBatch:
    """Return the rows for which a condition holds; all of them without one."""
    return events if condition is None else events.filter(as_array(condition(events), events.num_rows))


def computed_table(events: pa.RecordBatch, columns: Mapping[str, Columns]) -> pa.RecordBatch:
    """Return the results for the rows of a batch, by name."""
    arrays = [as_array(column(events), events.num_rows) for column in columns.values()]
    table: pa.RecordBatch = _arrow().RecordBatch.from_arrays(arrays, names=list(columns))
    return table


def tuples_of(columns: Sequence[Columns]) -> Columns:
    """Return the tuples of the results of some columns."""
    names = [str(number) for number in range(len(columns))]

    def of_arrays(batch: pa.RecordBatch) -> pa.Array[Any]:
        tuples: pa.Array[Any] = _arrow().StructArray.from_arrays(
            [as_array(column(batch), batch.num_rows) for column in columns], names
        )
        return tuples

    return of_arrays


def pair_of(left: Any, right: Any) -> Any:
    """Return the pairs of two columns; NULL where the right one is."""
    count = max(len(each) for each in (left, right) if not isinstance(each, _arrow().Scalar))
    values = as_array(right, count)
    return _arrow().StructArray.from_arrays(
        [as_array(left, count), values], ["0", "1"], mask=_called("is_null", values)
    )


def observed(events: pa.RecordBatch, condition: Columns | None, observation: Columns) -> pa.Array[Any]:
    """Return the observation of each row, and null for the rows for which a condition does not hold."""
    rows, mask = events, None
    if condition is not None:
        mask = _called("coalesce", as_array(condition(events), events.num_rows), False)
        rows = events.filter(mask)
    observations = as_array(observation(rows), rows.num_rows)
    if mask is None or rows.num_rows == events.num_rows:
        return observations
    holds = mask.to_numpy(zero_copy_only=False)
    scattered: pa.Array[Any] = observations.take(_arrow().array(holds.cumsum() - 1, mask=~holds))
    return scattered


def key_column(keys: Sequence[Columns | None]) -> Columns | None:
    """Return the JSON of the array of some columns; None unless all are columns."""
    if not keys:
        return constant_column("[]", SqlType.TEXT)

    def of_arrays(batch: pa.RecordBatch) -> Any:
        texts = [_texts_of(as_array(key(batch), batch.num_rows)) for key in keys if key is not None]
        return _called("binary_join_element_wise", "[", _called("binary_join_element_wise", *texts, ","), "]", "")

    return None if None in keys else of_arrays


def _texts_of(column: pa.Array[Any]) -> Any:
    """Return the JSON of each value. A batch has fewer distinct values."""
    encoded = column.dictionary_encode()
    texts = [_encode(value).decode() for value in encoded.dictionary.to_pylist()]
    return _called("coalesce", _arrow().array(texts, "string").take(encoded.indices), "null")


def _values(column: pa.Array[Any]) -> list[Any]:
    """Return the values of a column in Python. Arrow's own conversion takes longer, but knows NULL in numbers."""
    if column.null_count and str(column.type) in {"int64", "double"}:
        return column.to_pylist()
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _called(name: str, *arguments: Any) -> Any:
    """Call a function of Arrow without options."""
    return _arrow().compute.call_function(name, list(arguments))


def _function(name: str) -> Kernel:
    return lambda *operands: _called(name, *operands)


def _in_range(name: str) -> Kernel:
    """Return the kernel of an operation on doubles: of finite ones, it must not overflow."""

    def compute(left: Any, right: Any) -> Any:
        result = _called(name, left, right)
        infinite = _called("or", _called("is_inf", left), _called("is_inf", right))
        _expect_no("overflow", _called("and_not", _called("is_inf", result), infinite))
        return result

    return compute


def _expect_no(problem: str, rows: Any) -> None:
    """Raise SqlDataError if the result of a row is out of range."""
    if _called("any", rows).as_py():
        raise SqlDataError(f"value out of range: {problem}")


def _product(left: Any, right: Any) -> Any:
    """Return the product of doubles. It is zero only if a factor is."""
    result = _in_range("multiply")(left, right)
    zero = _called("or", _called("equal", left, 0.0), _called("equal", right, 0.0))
    _expect_no("underflow", _called("and_not", _called("equal", result, 0.0), zero))
    return result


def _cast(kind: SqlType) -> Kernel:
    def compute(operand: Any) -> Any:

        return _arrow().compute.cast(operand, ARROW_TYPES[kind], safe=False)  # rounds whole numbers as Python does

    return compute


def _remainder(left: Any, right: Any) -> Any:
    whole = _called("multiply_checked", _called("divide_checked", left, right), right)
    return _called("subtract_checked", left, whole)


def _quotient(left: Any, right: Any) -> Any:
    """Return the quotient of doubles. NaN stays NaN, also divided by zero, which is an error for other values; infinities stay infinite.

    It is zero only if the dividend is, or the divisor is infinite.
    """
    is_nan_by_zero = _called("and", _called("is_nan", left), _called("equal", right, 0.0))
    divisor = _called("if_else", is_nan_by_zero, 1.0, right)
    result = _called("divide_checked", left, divisor)
    _expect_no("overflow", _called("and_not", _called("is_inf", result), _called("is_inf", left)))
    zero = _called("or", _called("equal", left, 0.0), _called("is_inf", right))
    _expect_no("underflow", _called("and_not", _called("equal", result, 0.0), zero))
    return result


def _with(name: str, value: Any) -> Kernel:
    """Return the kernel of an operation with a constant as its second operand."""
    return lambda operand: _called(name, operand, value)


def joined_texts(*texts: Any) -> Any:
    """Return texts one after the other; NULL if one of them is."""
    return _called("binary_join_element_wise", *texts, "")


def chosen(*operands: Any) -> Any:
    """Return the first result whose condition holds, and the last operand where none does: one is false or NULL.

    Args:
        operands: a condition, its result, the next condition, and so on; then the other result.
    """
    *pairs, result = operands
    for at in range(len(pairs) - 2, -1, -2):
        result = _called("if_else", _called("coalesce", pairs[at], False), pairs[at + 1], result)
    return result


def is_value(wanted: bool, *, negated: bool) -> Kernel:
    """Return the kernel of IS TRUE and IS FALSE."""

    def compute(operand: Any) -> Any:
        same = _called("coalesce", operand if wanted else _called("invert", operand), False)
        return _called("invert", same) if negated else same

    return compute


def is_null(*, negated: bool) -> Kernel:
    """Return the kernel of IS NULL."""
    return _function("is_valid" if negated else "is_null")


def is_member(members: Collection[Any], kind: SqlType) -> Kernel:
    """Return the kernel of IN: NULL for NULL."""

    def compute(operand: Any) -> Any:

        found = _arrow().compute.is_in(operand, _arrow().array(members, ARROW_TYPES[kind]))
        return _called("if_else", _called("is_valid", operand), found, _arrow().scalar(None, "bool"))

    def compare(operand: Any) -> Any:
        first, *rest = [_called("equal", operand, member) for member in members]
        for each in rest:
            first = _called("or", first, each)
        return first

    return (
        compare if kind is SqlType.DOUBLE else compute
    )  # of doubles, Arrow distinguishes 0.0 from -0.0, and finds NaN


def is_counted(operand: Any) -> Any:
    """Return TRUE where there is a value, and NULL elsewhere."""
    return only_where(True, _called("is_valid", operand))


def only_where(value: Any, condition: Any) -> Any:
    """Return a value where a condition holds, and NULL elsewhere."""
    result = _arrow().scalar(value) if isinstance(value, bool) else value
    return chosen(condition, result, _arrow().scalar(None, result.type))


def null_if(left: Any, right: Any) -> Any:
    """Return NULL where both are equal, and the left one elsewhere."""
    return chosen(_called("equal", left, right), _arrow().scalar(None, left.type), left)


def is_like(pattern: object, *, negated: bool) -> Kernel | None:
    """Return the kernel of LIKE; None unless the pattern is a constant text, perhaps between two `%`.

    Args:
        pattern: the constant; None if the pattern is not constant.
        negated: whether it is NOT LIKE.
    """
    parts = re.fullmatch(r"(%?)([^%_\\]*)(%?)", pattern) if isinstance(pattern, str) else None
    if parts is None:
        return None
    begin, text, end = parts.groups()
    function = _LIKE[bool(begin), bool(end)]

    def compute(operand: Any, _: Any) -> Any:
        found = getattr(_arrow().compute, function)(operand, text)
        return _called("invert", found) if negated else found

    return compute


_LIKE = {
    (False, False): "equal",
    (False, True): "starts_with",
    (True, False): "ends_with",
    (True, True): "match_substring",
}
CONNECTIVES = {
    word: lambda *operands, name=f"{word}_kleene": reduce(lambda left, right: _called(name, left, right), operands)
    for word in ("and", "or")
}
FIRST_VALUE = _function("coalesce")
KERNELS: Mapping[str, Kernel] = {
    "{0}": lambda operand: operand,
    "bigint({0} + {1})": _function("add_checked"),
    "bigint({0} - {1})": _function("subtract_checked"),
    "bigint({0} * {1})": _function("multiply_checked"),
    "divide_bigint({0}, {1})": _function("divide_checked"),
    "remainder_bigint({0}, {1})": _remainder,
    "bigint(-{0})": _function("negate_checked"),
    "bigint(abs({0}))": _function("abs_checked"),
    "add_double({0}, {1})": _in_range("add"),
    "subtract_double({0}, {1})": _in_range("subtract"),
    "multiply_double({0}, {1})": _product,
    "divide_double({0}, {1})": _quotient,
    "(-{0})": _function("negate"),
    "abs({0})": _function("abs"),
    "({0} + 0.0)": _with("add", 0.0),
    "square_root({0})": _function("sqrt_checked"),
    **{
        f"({{0}} {operator} {{1}})": _function(name)
        for operator, name in (
            ("==", "equal"),
            ("!=", "not_equal"),
            ("<", "less"),
            ("<=", "less_equal"),
            (">", "greater"),
            (">=", "greater_equal"),
        )
    },
    "(not {0})": _function("invert"),
    "({0} != 0)": _with("not_equal", 0),
    "float({0})": _cast(SqlType.DOUBLE),
    "int({0})": _cast(SqlType.BIGINT),
    "str({0})": _cast(SqlType.TEXT),
    "({0} + {1})": joined_texts,
    "len({0})": _function("utf8_length"),
}
"""The kernels of operations, by their code. NaN and the signs of zeros are as in Python."""
