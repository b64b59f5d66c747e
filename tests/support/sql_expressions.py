"""Random SQL expressions over the columns of random rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache

from hypothesis import strategies as st

from penstock.processors.sql import SqlType
from penstock.processors.sql.columns import ARROW_TYPES, named_column
from penstock.processors.sql.expression_compiler import Compiled
from penstock.processors.sql.formats import UnknownPattern, time_text

COLUMNS = {
    "a": (SqlType.BIGINT, True),
    "b": (SqlType.BIGINT, False),
    "x": (SqlType.DOUBLE, True),
    "y": (SqlType.DOUBLE, False),
    "n": (SqlType.NUMERIC, True),
    "s": (SqlType.TEXT, True),
    "t": (SqlType.TEXT, False),
    "f": (SqlType.BOOLEAN, True),
    "g": (SqlType.BOOLEAN, False),
    "ts": (SqlType.TIMESTAMP, True),
    "d": (SqlType.DATE, True),
    "j": (SqlType.JSON, True),
}
INTEGERS = st.integers(-20, 20) | st.sampled_from([2**63 - 1, -(2**63), 10**12])
DOUBLES = st.integers(-40, 40).map(lambda each: each / 4) | st.sampled_from(
    [1e300, -1e-300, 1e15, 123456.789, 0.1 + 0.2, 100 / 3]
)
TEXTS = st.text("abAB %_,\\.1{0}'\"\n", max_size=6)
TIMES = st.integers(0, 4 * 10**15).map(lambda each: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=each))
SCALARS = st.integers(-9, 9) | st.integers(-9, 9).map(lambda each: each / 4) | st.booleans() | TEXTS
# Without JSON's null, which PostgreSQL distinguishes from NULL.
DOCUMENTS = st.fixed_dictionaries(
    {"a": SCALARS, "b": st.fixed_dictionaries({"c": SCALARS}), "l": st.lists(SCALARS, max_size=3)}
)
ROWS = st.fixed_dictionaries(
    {
        "a": st.none() | INTEGERS,
        "b": INTEGERS,
        "x": st.none() | DOUBLES,
        "y": DOUBLES,
        "n": st.none() | st.decimals(-1000, 1000, places=3),
        "s": st.none() | TEXTS,
        "t": TEXTS,
        "f": st.none() | st.booleans(),
        "g": st.booleans(),
        "ts": st.none() | TIMES,
        "d": st.none() | st.dates(date(1970, 1, 1), date(2100, 1, 1)),
        "j": st.none() | DOCUMENTS,
    }
)

EXTREMES = {
    "exp(y - 1000)": "value out of range: underflow",
    "exp(y + 1000)": "value out of range: overflow",
    "exp(y - 740)": 4.199558e-322,
    "exp('-inf'::double precision)": 0.0,
    "power(10, y - 400)": "value out of range: underflow",
    "power(10, y + 400)": "value out of range: overflow",
    "power(y, -1)": "zero raised to a negative power is undefined",
    "power(y, '-inf'::double precision)": "zero raised to a negative power is undefined",
    "power(y - 8, 0.5)": "a negative number raised to a non-integer power yields a complex result",
    "power('-inf'::double precision, y + 0.5)": "a negative number raised to a non-integer power yields a complex result",
    "power('-inf'::double precision, y - 2)": 0.0,
    "power(2, '-inf'::double precision)": 0.0,
    "power(y, 2)": 0.0,
    "(y + 1e-200) * 1e-200": "value out of range: underflow",
    "(y + 1e-200) * 0": 0.0,
    "(y + 1e-200) / 1e200": "value out of range: underflow",
    "(y + 1e200) / 1e-200": "value out of range: overflow",
    "(y + 1) / 'inf'::double precision": 0.0,
    "y / 5": 0.0,
    "(t || '1e-400')::double precision": "'1e-400' is out of range for type double precision",
    "(t || '-0.0e5')::double precision": 0.0,
    "((t || '1e-400')::numeric)::double precision": "out of range for type double precision",
    "((t || '1e400')::numeric)::double precision": "out of range for type double precision",
    "round(y + 'inf'::double precision)": float("inf"),
    "floor(y + '-inf'::double precision)": float("-inf"),
    "ceil(y + 'inf'::double precision)": float("inf"),
    "trunc(y + '-inf'::double precision)": float("-inf"),
}
"""Operations at the ends of the range of doubles, with their values or errors in PostgreSQL. `y` is 0, and `t` is empty."""


class Columns:
    """The columns of the rows."""

    def column(self, table: str | None, name: str) -> Compiled | None:
        kind = COLUMNS.get(name)
        columns = named_column(name) if kind and kind[0] in ARROW_TYPES else None
        return kind and Compiled(f"event.{name}", kind[0], kind[1], columns=columns)

    def names(self) -> Sequence[str]:
        return list(COLUMNS)


def _binary(operators: Sequence[str], operand: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds("({} {} {})".format, operand, st.sampled_from(operators), operand)


def _called(form: str, *operands: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(form.format, *operands)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_SEPARATORS = (" ", "-", ":", '"T"', '"no pattern: YYYY"', "/", ".")


def _are_supported(parts: list[str]) -> bool:
    """Return whether patterns stay supported when they are joined. Neighbours can form other patterns: YYY and YY read as YYYY and Y."""
    if all(part.endswith(_SEPARATORS) for part in parts[:-1]):
        return True
    try:
        time_text("".join(parts))
    except UnknownPattern:
        return False
    return True


TIME_FORMATS = (
    st.lists(
        st.builds(
            "{}{}{}".format,
            st.sampled_from(["", "", "FM"]),
            st.sampled_from(
                [
                    "YYYY",
                    "YYY",
                    "YY",
                    "IYYY",
                    "MM",
                    "DDD",
                    "DD",
                    "D",
                    "ID",
                    "IW",
                    "WW",
                    "Q",
                    "HH24",
                    "HH12",
                    "HH",
                    "MI",
                    "SS",
                    "MS",
                    "US",
                    "Month",
                    "MONTH",
                    "month",
                    "Mon",
                    "MON",
                    "mon",
                    "Day",
                    "DAY",
                    "day",
                    "Dy",
                    "DY",
                    "dy",
                    "AM",
                    "pm",
                    "yyyy",
                    "hh24",
                    "mi",
                ]
            ),
            st.sampled_from(["", *_SEPARATORS]),
        ),
        min_size=1,
        max_size=5,
    )
    .filter(_are_supported)
    .map(lambda parts: _quoted("".join(parts)))
)
NUMBER_FORMATS = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "FM"]),
    st.sampled_from(["", '"FM9: "']),
    st.text("990,G", min_size=1, max_size=7),
    st.sampled_from(["", ".", "D"]),
    st.text("90", max_size=4),
).map(_quoted)
PARTS_OF_JSON = st.sampled_from(
    ["j", "(j -> 'a')", "(j -> 'l')", "(j -> 'l' -> 0)", "(j #> '{b,c}')", "(j #> '{l,-1}')"]
)


@cache
def integers(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["a", "b", "cast(null as bigint)"]) | st.integers(0, 9).map(str)
    if not depth:
        return leaf
    inner, condition = integers(depth - 1), booleans(depth - 1)
    return st.one_of(
        leaf,
        _binary(["+", "-", "*", "/", "%"], inner),
        _called("(-{})", inner),
        _called("abs({})", inner),
        _called("coalesce({}, {})", inner, inner),
        _called("nullif({}, {})", inner, inner),
        _called("greatest({}, {})", inner, inner),
        _called("least({}, {})", inner, inner),
        _called("case when {} then {} else {} end", condition, inner, inner),
        _called("case {} when {} then {} end", inner, inner, inner),
        _called("cast(length({}) as bigint)", texts(depth - 1)),
        _called("cast(ascii({}) as bigint)", texts(depth - 1)),
        _called("cast(strpos({}, {}) as bigint)", texts(depth - 1), texts(0)),
        _called("cast({} as bigint)", doubles(depth - 1)),
        _called("cast({} as bigint)", numerics(depth - 1)),
        _called("cast(jsonb_array_length({}) as bigint)", PARTS_OF_JSON),
        _called("cast({} as bigint)", PARTS_OF_JSON),
        _called("cast(cast({} as integer) as bigint)", condition),
    )


@cache
def doubles(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["x", "y", "cast(null as double precision)"])
    if not depth:
        return leaf
    inner = doubles(depth - 1)
    return st.one_of(
        leaf,
        _binary(["+", "-", "*", "/"], inner),
        _called("({} + {})", inner, integers(depth - 1)),
        _called("cast({} as double precision)", PARTS_OF_JSON),
        _called("(-{})", inner),
        _called("abs({})", inner),
        _called("round({})", inner),
        _called("floor({})", inner),
        _called("ceil({})", inner),
        _called("sign({})", inner),
        _called("cbrt({})", inner),
        _called("coalesce({}, {})", inner, inner),
        _called("cast({} as double precision)", integers(depth - 1)),
        _called("cast(extract({} from {}) as double precision)", st.sampled_from(PARTS), times(depth - 1)),
        _called(
            "cast(extract({} from {} at time zone 'Europe/Berlin') as double precision)",
            st.sampled_from(PARTS),
            times(0),
        ),
        _called("trunc({})", inner),
    )


PARTS = ["hour", "minute", "day", "month", "year", "dow", "isodow", "doy", "week", "quarter", "epoch", "second"]


@cache
def numerics(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["n", "cast('1.5' as numeric)", "cast(null as numeric)"])
    if not depth:
        return leaf
    inner = numerics(depth - 1)
    return st.one_of(
        leaf,
        _binary(["+", "-", "*", "%"], inner),
        _called("round({}, 1)", inner),
        _called("trunc({})", inner),
        _called("trunc({}, 1)", inner),
        _called("round({})", inner),
        _called("floor({})", inner),
        _called("cast({} as numeric(9, 2))", inner),
        _called("coalesce({}, {})", inner, integers(0).map(lambda each: f"cast({each} as numeric)")),
    )


@cache
def texts(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["s", "t", "cast(null as text)"]) | TEXTS.map(_quoted)
    if not depth:
        return leaf
    inner, number = texts(depth - 1), st.integers(-3, 5).map(str)
    return st.one_of(
        leaf,
        _called("({} || {})", inner, inner),
        _called("concat({}, {}, {})", inner, integers(0), inner),
        _called("concat_ws('-', {}, {})", inner, inner),
        _called("lower({})", inner),
        _called("upper({})", inner),
        _called("reverse({})", inner),
        _called("initcap({})", inner),
        _called("repeat({}, {})", inner, number),
        _called("translate({}, 'abA', {})", inner, st.sampled_from(["''", "'x'", "'xyzw'"])),
        _called("md5({})", inner),
        _called("cast(({} at time zone 'Europe/Berlin') as text)", st.just("date_trunc('second', ts)")),
        _called("cast(cast({} at time zone 'America/New_York' as date) as text)", st.just("ts")),
        _called("left({}, {})", inner, number),
        _called("right({}, {})", inner, number),
        _called("substring({} from {} for {})", inner, number, st.sampled_from("01234")),
        _called("substring({} from {})", inner, number),
        _called("replace({}, {}, {})", inner, st.just("'a'"), st.just("'bb'")),
        _called("trim(both ' a' from {})", inner),
        _called("ltrim({})", inner),
        _called("lpad({}, 5, 'xy')", inner),
        _called("rpad({}, 5)", inner),
        _called("split_part({}, ',', {})", inner, st.sampled_from("123")),
        _called("regexp_replace({}, 'a+', '<\\&>', 'g')", inner),
        _called("cast({} as text)", integers(depth - 1)),
        _called("cast({} as text)", booleans(depth - 1)),
        _called("cast({} as text)", numerics(depth - 1)),
        _called("cast({} as text)", st.sampled_from(["d", "ts", "(ts at time zone 'Asia/Kolkata')"])),
        _called("regexp_substr({}, {})", inner, st.sampled_from(["'a.'", "'[ab]+'"])),
        _called("case when {} then {} else {} end", booleans(depth - 1), inner, inner),
        st.sampled_from(
            ["(j ->> 'a')", "(j -> 'b' ->> 'c')", "(j #>> '{l,1}')", "(j -> 'l' ->> -1)", "(j ->> 'none')"]
        ),
        _called("jsonb_typeof({})", PARTS_OF_JSON),
        _called("to_char({}, {})", times(0), TIME_FORMATS),
        _called("to_char({}, {})", st.sampled_from(["a", "b % 1000", "n", "n * 7", "x", "y / 3"]), NUMBER_FORMATS),
        _called("cast(cast({} as jsonb) as text)", integers(0).map(lambda each: f"cast({each} as text)")),
    )


@cache
def times(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["ts", "cast(d as timestamp with time zone)", "timestamptz '2013-01-31 10:00:00+01'"])
    if not depth:
        return leaf
    inner = times(depth - 1)
    units = ["second", "minute", "hour", "day", "week", "month", "quarter", "year"]
    return st.one_of(
        leaf,
        _called("({} + interval '90 minutes')", inner),
        _called("({} - interval '1 day')", inner),
        _called("date_trunc('{}', {})", st.sampled_from(units), inner),
        _called("date_trunc('{}', {}, 'Europe/Berlin')", st.sampled_from(units), inner),
        _called(
            "(date_trunc('{}', {} at time zone 'Asia/Kolkata') at time zone 'America/New_York')",
            st.sampled_from(units),
            inner,
        ),
        # The origin is before all times: before it, PostgreSQL 16.2 moves the beginning of a bin to the previous bin.
        _called(
            "date_bin('{}', {}, timestamptz '0001-01-01 10:00:00+00')", st.sampled_from(["7 minutes", "3 days"]), inner
        ),
        _called("coalesce({}, {})", inner, inner),
    )


@cache
def booleans(depth: int) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["f", "g", "true", "false", "cast(null as boolean)"])
    if not depth:
        return leaf
    inner = booleans(depth - 1)
    comparisons = ["=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"]
    return st.one_of(
        leaf,
        *(_binary(comparisons, kind(depth - 1)) for kind in (integers, doubles, numerics, texts, times)),
        _called("({} > {})", integers(depth - 1), doubles(depth - 1)),
        _binary(["and", "or"], inner),
        _called("(not {})", inner),
        _called("({} is null)", texts(depth - 1)),
        _called("({} is null)", PARTS_OF_JSON),
        _called("cast({} as boolean)", PARTS_OF_JSON),
        _called("({} is not null)", integers(depth - 1)),
        _called("({} is true)", inner),
        _called("({} is not false)", inner),
        _called("({} in (1, 2, 3))", integers(depth - 1)),
        _called("({} not in ('a', 'b'))", texts(depth - 1)),
        _called("({} in (b, {}))", integers(depth - 1), st.just("7")),
        _called("({} in (a, 3, {}))", integers(depth - 1), st.sampled_from(["null", "b"])),
        _called("({} not in ('a', null))", texts(depth - 1)),
        _called("({} between {} and {})", *[integers(depth - 1)] * 3),
        _called("({} like {})", texts(depth - 1), st.sampled_from(["'a%'", "'_b%'", "'%\\%%'", "'%'"])),
        _called("({} ilike 'A%')", texts(depth - 1)),
        _called("({} not like {})", texts(depth - 1), texts(0)),
        _called("({} not like {} escape '!')", texts(depth - 1), st.sampled_from(["'a!%%'", "'!_'"])),
        _called("({} not between {} and {})", *[integers(depth - 1)] * 3),
        _called("({} ~ '^a.b?')", texts(depth - 1)),
        _called("({} !~* 'B')", texts(depth - 1)),
        _called("starts_with({}, {})", texts(depth - 1), texts(0)),
    )


EXPRESSIONS = st.one_of(integers(3), doubles(3), numerics(2), texts(3), times(2), booleans(3), PARTS_OF_JSON)


FORMATTED = st.one_of(
    _called("to_char({}, {})", times(1), TIME_FORMATS),
    _called(
        "to_char({}, {})",
        st.sampled_from(["a", "b", "b % 1000", "n", "n * 7", "n / 100", "x", "y", "y / 3", "y / 1000", "0", "-1"]),
        NUMBER_FORMATS,
    ),
)
