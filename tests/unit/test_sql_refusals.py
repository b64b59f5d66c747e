"""What queries cannot compute is refused at its place, with what to write instead: nothing is ignored."""

from __future__ import annotations

from decimal import Decimal

import pytest
from support.sql_suite import compiled, text_of

from penstock.processors.sql import SqlText, compile_app
from penstock.processors.sql.errors import SqlDataError, SqlRefused
from penstock.processors.sql.values import regexp_replace, text_to_numeric

REFUSALS = [
    ("SELECT seen FROM views HAVING true", "seen FROM", "seen is neither in GROUP BY nor in an aggregate"),
    ("SELECT page, max(seen) AS seen FROM views GROUP BY page WITH ROLLUP", "page WITH", "one list of groups"),
    ("SELECT page, max(seen) AS seen FROM views GROUP BY ROLLUP (page)", "page)", "one list of groups"),
    ("SELECT page, max(seen) AS seen FROM views GROUP BY GROUPING SETS ((page), ())", "page)", "one list of groups"),
    ("SELECT page, max(seen) AS seen FROM views GROUP BY ALL", "page, max", "GROUP BY ALL is not supported"),
    ("SELECT page, max(seen) AS seen FROM views GROUP BY 1.5", "1.5", "the number of a column, from 1 to 2"),
    ("SELECT page, max(seen) AS seen FROM views GROUP BY 'page'", "'page'", "the number of a column"),
    ("SELECT page, max(seen) AS seen FROM views GROUP BY 0", "0", "The result has no column 0"),
    ("SELECT page, max(seen) AS seen FROM views GROUP BY 2", "2", "GROUP BY cannot contain aggregates"),
    ("SELECT page, max(seen) AS seen FROM views GROUP BY count(*)", "count(*)", "GROUP BY cannot contain aggregates"),
    ("SELECT count(*) AS n, max(seen) AS seen FROM views GROUP BY page", "page", "The result does not contain `page`"),
    (
        "SELECT upper(page) AS page, count(*) AS n FROM views GROUP BY page, tumble(seen, interval '1 minute')",
        "page, tumble",
        "or write each window once: EMIT ON WINDOW CLOSE",
    ),
    ("SELECT * EXCLUDE (page) FROM views", "page", "* without some columns is not supported"),
    ("SELECT * REPLACE (1 AS page) FROM views", "1 AS", "* with replaced columns is not supported"),
    ("SELECT seen, page FROM public.views", "public", "The name of a table has no schema"),
    ("SELECT seen, page FROM views AS v (a, b)", "a, b", "Names of columns after a table are not supported"),
    ("SELECT seen FROM views TABLESAMPLE BERNOULLI (10)", "10", "TABLESAMPLE is not supported"),
    ("SELECT seen FROM ONLY views", "views", "ONLY is not supported"),
    ("SELECT seen, id FROM views UNION ALL BY NAME SELECT id, seen FROM views", "seen, id", "by their places"),
    (
        "SELECT seen, NULL AS n FROM views UNION ALL SELECT seen, id FROM views",
        "seen, NULL",
        "Write cast(NULL AS bigint)",
    ),
    (
        "SELECT page, sum(id) AS n FROM views GROUP BY page, tumble(seen, interval '1 hour') ORDER BY count(*) LIMIT 3",
        "count(*)",
        "ORDER BY orders results, and `COUNT(*)` is none",
    ),
    (
        "SELECT page, sum(id) AS n FROM views GROUP BY page, tumble(seen, interval '1 hour') ORDER BY 1.5 LIMIT 3",
        "1.5",
        "The result has no column 1.5",
    ),
    ("SELECT max(seen) AS seen, count() AS n FROM views", "count()", "Write count(*)"),
    ("SELECT max(seen) AS seen, min(weight, 3) AS n FROM views", "min(", "The aggregate min has one argument"),
    ("SELECT max(seen) AS seen, every(active) AS n FROM views", "every", "Write bool_and"),
    ("SELECT max(seen) AS seen, median(weight) AS n FROM views", "median", "Write approx_quantile"),
    ("SELECT max(seen) AS seen, sum(count(*)) AS n FROM views", "count", "reads a query of its own"),
    ("SELECT max(seen) AS seen, first(page ORDER BY seen) AS n FROM views", "page ORDER", "order of event times"),
    ("SELECT max(seen) AS seen, min(DISTINCT page) AS n FROM views", "page)", "Only count has DISTINCT"),
    ("SELECT seen, tumble(seen, interval '1 minute') AS w FROM views", "tumble", "Windows are in GROUP BY"),
    ("SELECT seen, IIF(active, 1, 2) AS x FROM views", "IIF", "The function IIF is not supported here"),
    ("SELECT seen, weight = ANY (ARRAY[1, 2]) AS x FROM views", "1, 2", "Write IN (1, 2)"),
    ("SELECT seen, weight IN () AS x FROM views", "weight IN", "IN () has no values"),
    ('SELECT seen, page COLLATE "C" AS x FROM views', "page COLLATE", "texts compare by code point"),
    ("SELECT seen, payload.kind AS x FROM views", "payload.kind", "Write payload ->> 'kind'"),
    ("SELECT seen, payload || payload AS x FROM views", "payload ||", "|| does not merge JSON values"),
    ("SELECT seen, happened + interval 'nan hours' AS x FROM views", "'nan hours'", "is not supported"),
    ("SELECT seen, happened + interval '99999999999999 days' AS x FROM views", "happened", "is not supported"),
    ("SELECT seen, happened + 5 AS x FROM views", "happened +", "at + 5 * interval '1 second'"),
    ("SELECT seen, 5 + interval '1 day' AS x FROM views", "5 +", "added to a time and multiplied by a number"),
    ("SELECT seen, happened + interval '1 day' / 0 AS x FROM views", "0 AS", "has no value: division by zero"),
    (
        "SELECT page, count(*) AS n FROM views GROUP BY page, tumble(seen, id * interval '1 minute')",
        "id *",
        "tumble needs constant intervals",
    ),
    ("SELECT seen, date_trunc('day', seen) AS x FROM views", "seen)", "Write to_timestamp_ms"),
    ("SELECT seen, happened::bigint AS x FROM views", "happened", "Write epoch_ms"),
    ("SELECT seen, happened - happened AS x FROM views", "happened -", "Write its seconds: extract(epoch FROM"),
    ("SELECT seen, (happened::timestamp AT TIME ZONE 'CET')::text AS x FROM views", "happened", "Write timestamptz"),
    ("SELECT seen, localtimestamp AS x FROM views", "x FROM", "a replay, a restart and a backfill"),
    ("SELECT seen, page ~ '[[:alpha:]]+' AS x FROM views", "'[[", "which have no [[:alpha:]"),
    (r"SELECT seen, page ~ '\yab' AS x FROM views", "'", r"which have no \y"),
    ("SELECT seen, page ~ '(' AS x FROM views", "'('", "This regular expression is invalid"),
    ("SELECT seen, regexp_replace(page, 'a', 'b', 'x') AS x FROM views", "'x'", "has no option 'x'"),
    ("SELECT seen, page LIKE 'a%' ESCAPE 'ab' AS x FROM views", "'ab'", "The character of ESCAPE is a single one"),
    ("SELECT seen, substring(page from 'a.') AS x FROM views", "'a.'", "Write regexp_substr"),
    ("SELECT seen, born < '2026-02-30' AS x FROM views", "'2026", "'2026-02-30' is not a valid date"),
    ("SELECT seen, 1e400 AS x FROM views", "1e400", "too large for double precision"),
    ("SELECT seen, 1e-400 AS x FROM views", "1e-400", "too small for double precision"),
    ("SELECT seen, 9223372036854775808 AS x FROM views", "9223", "Write a number in quotes"),
    (
        "SELECT page, count(*) AS n FROM views GROUP BY page, tumble(seen, interval '1 minute') EMIT AFTER WATERMARK WITH DELAY interval '-1 minute'",
        "EMIT",
        "is not supported. Write EMIT CHANGES",
    ),
]


@pytest.mark.parametrize(("query", "place", "message"), REFUSALS, ids=[query for query, _, _ in REFUSALS])
def test_a_query_is_refused_at_its_place(query: str, place: str, message: str) -> None:
    """The caret is below the part that is not supported."""
    with pytest.raises(SqlRefused) as refused:
        compiled(query)
    first, _, source, caret = str(refused.value).split("\n")

    assert message in first
    assert source[caret.index("^") :].startswith(place)


@pytest.mark.parametrize(
    ("text", "column"),
    [("SELECT 'it''s', 'open", 17), ('SELECT 1 -- "\n, "open', 3), ("SELECT 1 - 2 / 3 /* open", 18)],
)
def test_a_quote_without_an_end_is_shown_at_its_beginning(text: str, column: int) -> None:
    """The end of the file, which can be far away, is not shown."""
    with pytest.raises(SqlRefused, match=rf"column {column}: This quote or comment has no end\."):
        compile_app(SqlText("app.sql", text), __name__)


def test_a_negative_length_is_refused_at_its_setting() -> None:
    """The error is not about a bound in Python."""
    with pytest.raises(SqlRefused, match=r"The length '-5 seconds' is negative\."):
        compile_app(
            SqlText(
                "app.sql",
                "CREATE CATEGORY v (seen bigint) WITH (time = 'seen');"
                "CREATE TABLE t WITH (out_of_orderness = '-5 seconds') AS SELECT seen FROM v;",
            ),
            __name__,
        )


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("cast('1' AS numeric) / 3", "0.333333333333333333"),
        ("cast('-2' AS numeric) / 3", "-0.666666666666666667"),
        ("cast('12345678901234567890' AS numeric) / 7", "1763668414462081127.142857142857142857"),
        ("cast('10' AS numeric) / 4", "2.5"),
    ],
)
def test_quotients_of_decimals_have_the_digits_that_records_accept(expression: str, text: str) -> None:
    """A third, and the sum of prices by their number, would otherwise stop the worker."""
    assert text_of(expression) == text


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999999999"])
def test_a_decimal_is_finite(text: str) -> None:
    """A record contains only finite decimals, and digits without a limit would fill the memory."""
    with pytest.raises(SqlDataError, match="numeric out of range"):
        text_to_numeric(text)


def test_digits_after_the_point_are_limited() -> None:
    """The event gets the error, and not an exception of Python's decimals."""
    with pytest.raises(SqlDataError, match="out of range"):
        text_of("round(cast('1' AS numeric), 5000)")
    assert Decimal(text_of("round(cast('1' AS numeric), 40)")) == 1


def test_an_unknown_option_of_a_regular_expression_is_an_error_of_the_event() -> None:
    """A constant one is refused before."""
    with pytest.raises(SqlDataError, match="The options are g and i"):
        regexp_replace("a", "a", "b", "gx")
