"""Statements of SQL files: the processors that they become, and the errors of invalid ones."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from pathlib import Path

import pytest

import penstock as ps
from penstock.processors.declare import plan_of
from penstock.processors.sql import SqlApp, SqlText, compile_app
from penstock.processors.sql.aggregates import FirstInOrder
from penstock.processors.sql.decimals import ChosenDecimal, DecimalByTime, DecimalMean, DecimalSum
from penstock.processors.sql.errors import SqlRefused
from penstock.testing import Crash, Driver, Step, check_laws, load_app

EVENTS = "CREATE CATEGORY events (seen bigint, name text, number bigint, share double precision) WITH (key = 'name', time = 'seen');"


def compiled(text: str) -> SqlApp:
    return compile_app(SqlText("app.sql", text), __name__)


def test_a_file_is_an_app_with_the_name_of_its_application(tmp_path: Path) -> None:
    """Its processors are named after their tables; unquoted names are in lower case."""
    file = tmp_path / "top.sql"
    file.write_text(
        f"CREATE APPLICATION top_events;{EVENTS}CREATE TABLE Large AS SELECT * FROM events WHERE number > 5;"
    )
    app = load_app(file)

    assert app.name == "top_events"
    assert [(processor.__name__, processor.name) for processor in app.processors] == [("large", "large")]


def test_a_missing_semicolon_is_reported_where_it_belongs() -> None:
    """A correct word of the next statement is not blamed. A column may be named like the keyword."""
    columns = "CREATE CATEGORY e (a bigint, create text) WITH (key = 'create', time = 'a')"
    query = "CREATE TABLE t AS SELECT * FROM e WHERE a > 5"

    for text in (f"{columns}\n{query};", f"{columns};\n{query}\nCREATE TABLE u AS SELECT * FROM t;"):
        with pytest.raises(SqlRefused, match=r"A semicolon is missing here, before CREATE TABLE\.") as refused:
            compiled(text)
        line = text.splitlines()[text.count("\n") - 1]
        assert f"line {text.count(chr(10))}, column {len(line) + 1}:" in str(refused.value)


def test_puma_tables_and_windows_in_brackets_are_accepted() -> None:
    """The input has the category of SCRIBE, and the query has the window."""
    app = compiled(
        'CREATE INPUT TABLE scores (at bigint, event text, score double precision) FROM SCRIBE("events_stream") TIME at;'
        "CREATE TABLE best AS SELECT event, max(score) AS score FROM scores [5 minutes] GROUP BY event;"
    )
    before, aggregator = app.processors

    assert app.relations["scores"].category.name == "events_stream"
    assert issubclass(aggregator, ps.Aggregator)
    assert aggregator.window == ps.windows.Tumbling(timedelta(minutes=5))
    assert (before.reads, before.writes) == (app.relations["scores"].category, aggregator.reads)


def test_a_group_by_the_key_needs_no_processor_before_it() -> None:
    """The aggregator reads the category itself."""
    [aggregator] = compiled(
        f"{EVENTS}CREATE TABLE n AS SELECT name, count(*) AS n FROM events GROUP BY name;"
    ).processors

    assert aggregator.reads == compiled_events(aggregator)


def compiled_events(processor: type[ps.Processor]) -> object:
    [category] = plan_of(processor).inputs
    return category if category.name == "events" else None


def test_settings_of_a_table_become_those_of_its_category_and_processor() -> None:
    """Buckets, retention, name and semantics are declared in WITH."""
    app = compiled(
        f"{EVENTS}CREATE TABLE n WITH (category = 'counts', buckets = 3, retention = 'forever', semantics = 'exactly once', late = 'drop') "
        "AS SELECT name, count(*) AS n FROM events GROUP BY name, tumble(seen, interval '1 hour');"
    )
    [aggregator] = app.processors
    category = app.relations["n"].category

    assert (category.name, category.buckets, category.retention, category.key) == ("counts", 3, None, "name")
    assert aggregator.output_semantics is ps.Semantics.EXACTLY_ONCE
    assert issubclass(aggregator, ps.Aggregator)
    assert aggregator.late is ps.OnLate.DROP


def test_first_rows_obey_the_laws_of_monoids() -> None:
    """Rows may have equal keys and NULL, and may exceed the number that is kept."""
    rows = [[[[0, number % 3], [number % 2, 0]], f"{number}"] for number in range(7)]
    first = FirstInOrder(4, (True, False))
    check_laws(first, rows)

    assert first.value(reduce(first.combine, map(first.lift, rows))) == ["2", "5", "4", "1"]


def test_rows_of_which_the_first_are_chosen_are_exactly_once() -> None:
    """A row that was repeated after a crash would otherwise be among the first ones twice."""
    app = compiled(
        f"{EVENTS}CREATE TABLE t AS SELECT number, count(*) AS n FROM events [1 hour] GROUP BY number ORDER BY n LIMIT 3;"
    )
    *before, last = app.processors

    assert {processor.output_semantics for processor in before if "rows" in processor.name} == {
        ps.Semantics.EXACTLY_ONCE
    }
    assert last.output_semantics is ps.Semantics.AT_LEAST_ONCE


def test_a_table_can_be_read_by_a_later_query() -> None:
    """The second processor counts the results of the first."""
    app = compiled(
        f"{EVENTS}CREATE TABLE large AS SELECT seen, name, number FROM events WHERE number > 5;"
        "CREATE TABLE n AS SELECT name, count(*) AS n FROM large GROUP BY name;"
    )
    driver = Driver(app.processors)
    events = app.relations["events"].category
    driver.send(events, [events.record(seen=at, name="a", number=at) for at in range(10)])

    [*_, last] = driver.read(app.relations["n"].category)
    assert (last.name, last.n) == ("a", 4)


def test_sessions_are_written_at_their_end() -> None:
    """Each contains the events of a group that are less than the gap apart. The watermark passes through the internal category."""
    app = compiled(
        f"{EVENTS}CREATE TABLE s WITH (buckets = 2, out_of_orderness = '1 second') AS "
        "SELECT number, count(*) AS n FROM events GROUP BY number, session(seen, interval '1 second');"
    )
    driver = Driver(app.processors, start_ms=100_000)
    events = app.relations["events"].category
    driver.send(events, [events.record(seen=at, name="a", number=7) for at in (0, 900, 1_700, 5_000, 90_000)])
    driver.advance(120)

    found = [(each.number, each.n, each.window_end) for each in driver.read(app.relations["s"].category)]
    assert found == [(7, 3, 2_700), (7, 1, 6_000)]


def test_a_division_by_zero_is_an_error_of_the_event() -> None:
    """The message says so."""
    app = compiled(f"{EVENTS}CREATE TABLE t AS SELECT seen, name, 10 / number AS tenth FROM events;")
    events = app.relations["events"].category
    [processor] = app.processors
    process = processor().process  # type: ignore[attr-defined]  # a stateless processor

    assert [each.tenth for number in (3, None) for each in process(events.record(seen=0, name="a", number=number))] == [
        3,
        None,
    ]
    with pytest.raises(ValueError, match="division by zero"):
        process(events.record(seen=0, name="a", number=0))


def test_unquoted_names_are_in_lower_case_except_declared_columns() -> None:
    """A declared column is a field of messages, which may have capitals."""
    app = compiled(
        "CREATE CATEGORY c (At bigint, userId text) WITH (time = 'At');"
        'CREATE TABLE t AS SELECT C.At, userId, upper(userId) AS Capitals, userId AS "Same" FROM C WHERE C.userId IS NOT NULL;'
    )
    output = app.relations["t"]

    assert (list(output.columns), output.time) == (["At", "userId", "capitals", "Same"], "At")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SELECT 1;", "line 1, column 1", "must begin with CREATE"),
        ("CREATE TABEL t AS SELECT 1;", "line 1, column 8", "Did you mean `TABLE`?"),
        ("CREATE CATEGORY c (a bigint, a text) WITH (time = 'a');", "line 1, column 20", "declared twice"),
        ("CREATE CATEGORY c (a money) WITH (time = 'a');", "line 1, column 20", "which is not supported"),
        ("CREATE CATEGORY c (a bigint);", "line 1, column 17", "has no event time"),
        ("CREATE CATEGORY c (a) WITH (time = 'a');", "line 1, column 20", "Column a has no type"),
        (
            "CREATE CATEGORY c (a bigint) WITH (time = 'b');",
            "line 1, column 17",
            "The time of c, b, is not one of its columns",
        ),
        ("CREATE CATEGORY c (a bigint) WITH (time = 'a', bukets = 3);", "line 1, column 48", "Did you mean `buckets`?"),
        (
            "CREATE CATEGORY c (a bigint) WITH (time = 'a', buckets = 'x');",
            "line 1, column 17",
            "buckets='x' has the wrong type",
        ),
        (f"{EVENTS}\nCREATE TABLE t AS SELECT seen, nam FROM events;", "line 2, column 32", "Did you mean `name`?"),
        (f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM event;", "line 2, column 36", "Did you mean `events`?"),
        (f"{EVENTS}\nCREATE TABLE t AS SELECT name FROM events;", "line 2, column 26", "The result has no event time"),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, number + name AS x FROM events;",
            "line 2, column 32",
            "Add a cast",
        ),
        (f"{EVENTS}\nCREATE TABLE t AS SELECT seen, number + 1 FROM events;", "line 2, column 32", "has no name"),
        (f"{EVENTS}\nCREATE TABLE t AS SELECT seen, seen FROM events;", "line 2, column 26", "Two columns"),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, lowr(name) AS x FROM events;",
            "line 2, column 32",
            "Did you mean `lower`?",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events ORDER BY seen;",
            "line 2, column 52",
            "ORDER BY and LIMIT belong together",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT DISTINCT ON (name) seen, name FROM events;",
            "line 2",
            "DISTINCT ON is not supported. Write first(…)",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT DISTINCT name, count(*) AS n FROM events GROUP BY name;",
            "line 2",
            "A query with aggregates has no DISTINCT",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events UNION ALL SELECT DISTINCT seen FROM events;",
            "line 2",
            "A branch of UNION ALL has DISTINCT",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT DISTINCT name FROM events EMIT ON WINDOW CLOSE;",
            "line 2",
            "without a window writes each row when it occurs first. Remove EMIT",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT DISTINCT name, number AS seen FROM events;",
            "line 2",
            "needs column seen for its event time",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT DISTINCT name, interval '1 day' AS n FROM events;",
            "line 2",
            "SELECT DISTINCT is not defined for interval. Add a cast.",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT DISTINCT name, topk(number) AS n FROM events [1 hour];",
            "line 2",
            "A query with topk has no DISTINCT",
        ),
        *(
            (f"{EVENTS}\nCREATE TABLE t WITH (two_phase = {value}) AS {query};", "line 2", reason)
            for value, query, reason in (
                ("true", "SELECT seen FROM events", "this query has no groups"),
                ("true", "SELECT DISTINCT number FROM events", "this query has no groups"),
                ("'yes'", "SELECT number, count(*) FROM events GROUP BY number", "Write true or false"),
                ("true", "SELECT name, number, count(*) FROM events GROUP BY name, number", "its key is name: two"),
                (
                    "true",
                    "SELECT number, count(*) FROM events GROUP BY number, session(seen, interval '1 hour')",
                    "cannot combine sessions",
                ),
                (
                    "true",
                    "SELECT count(*) FROM events [1 hour] EMIT AFTER WATERMARK WITH DELAY interval '1 hour'",
                    "Write EMIT ON WINDOW CLOSE",
                ),
                (
                    "true",
                    "SELECT count(*) FROM events a JOIN events b ON a.name = b.name AND a.seen = b.seen",
                    "Name the join first",
                ),
            )
        ),
        *(
            (
                f"{EVENTS}\nCREATE LOOKUP TABLE n (k text, v text) WITH (csv = 'n.csv', key = 'k');\nCREATE TABLE t AS {query};",
                "line 3",
                reason,
            )
            for query, reason in (
                (
                    "SELECT name, number, count(*) AS n FROM events GROUP BY name",
                    "number is neither in GROUP BY nor in an aggregate",
                ),
                (
                    "SELECT name, count(*) AS n FROM events GROUP BY name HAVING number > 1",
                    "number is neither in GROUP BY nor in an aggregate",
                ),
                ("SELECT seen FROM events LIMIT 5", "ORDER BY and LIMIT belong together"),
                ("SELECT seen FROM events ORDER BY seen LIMIT 5", "needs groups in tumbling or hopping windows"),
                ("SELECT name, count(*) AS n FROM events GROUP BY name ORDER BY n LIMIT 5", "needs groups in tumbling"),
                (
                    "SELECT count(*) AS n FROM events [1 hour] ORDER BY n LIMIT 5 EMIT CHANGES",
                    "and results at their end",
                ),
                (
                    "SELECT seen FROM events UNION ALL SELECT seen FROM events ORDER BY seen LIMIT 5",
                    "not supported after UNION ALL",
                ),
                ("SELECT count(*) AS n FROM events [1 hour] ORDER BY 2 LIMIT 5", "The result has no column 2"),
                ("SELECT count(*) AS n FROM events [1 hour] ORDER BY m LIMIT 5", "There is no column 'm'"),
                ("SELECT seen, row_number() OVER (ORDER BY seen) AS n FROM events", "write first(…)"),
                ("SELECT seen, lag(seen) OVER (ORDER BY seen) AS n FROM events", "penstock.Stateful"),
                ("SELECT seen, sum(number) OVER (PARTITION BY name) AS n FROM events", "Group by windows"),
                ("SELECT seen, (SELECT max(v) FROM n) AS m FROM events", "A query in an expression is not supported"),
                ("SELECT seen FROM events WHERE number > 1 OR name IN (SELECT k FROM n)", "joined by AND"),
                ("SELECT seen FROM events WHERE name IN (SELECT v FROM n)", "Write SELECT k in the parentheses"),
                ("SELECT seen FROM events WHERE name IN (SELECT name FROM events)", "events is a stream"),
                ("SELECT seen FROM events WHERE EXISTS (SELECT 1 FROM n)", "compares no row of n with the event"),
                ("SELECT seen FROM events WHERE EXISTS (SELECT 1 FROM n WHERE v = name)", "not compare the key of"),
                ("SELECT seen FROM events WHERE name IN (SELECT k FROM n LIMIT 1)", "only SELECT, FROM and WHERE"),
                ("SELECT seen FROM events WHERE number IN (SELECT k FROM n)", "Add a cast"),
            )
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT a.seen FROM events a JOIN events b ON true;",
            "line 2",
            "The join has no equal keys",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events UNION SELECT seen FROM events;",
            "line 2",
            "UNION is not supported: it would compare all events",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, name FROM events UNION ALL SELECT seen, number FROM events;",
            "line 2, column 72",
            "Column name is bigint here, and text in the first branch",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, name FROM events UNION ALL SELECT seen FROM events;",
            "line 2",
            "another number of columns (1) than the first one (2)",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, name FROM events UNION ALL SELECT max(seen), name FROM events GROUP BY name;",
            "line 2",
            "A branch of UNION ALL has aggregates",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS WITH a AS (SELECT name, count(*) AS n FROM events GROUP BY name) SELECT * FROM a;",
            "line 2",
            "a query inside another one, needs a window",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS WITH events AS (SELECT * FROM events) SELECT * FROM events;",
            "line 2",
            "There is already a table events",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS WITH RECURSIVE a AS (SELECT * FROM events) SELECT * FROM a;",
            "line 2",
            "WITH RECURSIVE is not supported",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM (SELECT * FROM events);",
            "line 2",
            "A query in FROM needs a name",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events WHERE count(*) > 3;",
            "line 2",
            "WHERE cannot contain aggregates",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events WHERE number;",
            "line 2, column 49",
            "boolean is required",
        ),
        (f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events EMIT CHANGES;", "line 2", "has no windows"),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, now() AS at FROM events;",
            "line 2, column 32",
            "a replay, a restart and a backfill would compute other values",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, to_timestamp(seen) AT TIME ZONE 'Europe/Berlinn' AS at FROM events;",
            "line 2",
            "There is no time zone 'Europe/Berlinn'. Did you mean `Europe/Berlin`?",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT name, count(*) FROM tumble(events, seen, interval '1 hour') GROUP BY name;",
            "line 2",
            "Windows are in GROUP BY",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT to_timestamp(1) - to_timestamp(2) AS d, count(*) FROM events GROUP BY 1;",
            "line 2",
            "GROUP BY is not defined for interval",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT name, count(*) AS n, number FROM events GROUP BY name;",
            "line 2, column 47",
            "number is neither in GROUP BY nor in an aggregate",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT count(DISTINCT name) AS n FROM events;",
            "line 2",
            "approx_count_distinct",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT sum(name) AS n FROM events;",
            "line 2, column 30",
            "sum needs a number",
        ),
        (f"{EVENTS}\nCREATE TABLE t AS SELECT string_agg(name, ',') AS n FROM events;", "line 2", "is not supported"),
        (f"{EVENTS}\nCREATE TABLE t AS SELECT sum(number) OVER () AS n FROM events;", "line 2", "is not supported"),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT count(*) AS n FROM events GROUP BY tumble(number, interval '1 hour');",
            "line 2",
            "Windows are over the event time, seen",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT count(*) AS n FROM events GROUP BY tumble(seen, interval '1 month');",
            "line 2",
            "The interval INTERVAL '1 MONTH' is not supported",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT count(*) AS n FROM events EMIT ON WINDOW CLOSE;",
            "line 2",
            "needs a window",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t WITH (semantics = 'exactly onec') AS SELECT seen FROM events;",
            "line 2, column 22",
            "Did you mean `exactly once`?",
        ),
        (
            "CREATE CATEGORY c (at bigint) WITH (time = 'at', watermark = 'upstraem');\nCREATE TABLE t AS SELECT at FROM c;",
            "line 1",
            "Write 'upstream'",
        ),
        (
            f"{EVENTS}\nCREATE TABLE events AS SELECT seen FROM events;",
            "line 2, column 14",
            "There is already a table events",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events WHERE number = = 3;",
            "line 2, column 58",
            "An expression, such as a column, is missing before `=`.",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events WHERE number =;",
            "line 2, column 57",
            "An expression, such as a column, is missing after `=`.",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, count(* FROM events;",
            "line 2, column 40",
            "`)` is missing before `FROM`.",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM;",
            "line 2, column 35",
            "A table is missing after `FROM`.",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT cast(number bigint) AS n FROM events;",
            "line 2, column 38",
            "`AS` of CAST is missing at `bigint`.",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events GROUP name;",
            "line 2, column 48",
            "`BY` is missing after `GROUP`.",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen FROM events WERE number > 3;",
            "line 2, column 48",
            "`number` does not fit here, after `WERE`. Did you mean `WHERE`? A comma, an operator or a keyword may be missing",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen count(*) FROM events;",
            "line 2, column 36",
            "`(` does not fit here, after `count`. A comma",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, sum(number, 3) AS n FROM events;",
            "line 2, column 45",
            "The function has 2 arguments here, and takes 1 at most.",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT name, topk(number) AS n FROM events [1 hour] GROUP BY name;",
            "line 2",
            "topk needs a column of items",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT name, topk(number, 0) AS n FROM events [1 hour];",
            "line 2, column 32",
            "at least 1",
        ),
        (f"{EVENTS}\nCREATE TABLE t AS SELECT name, topk(name) AS n FROM events [1 hour];", "line 2", "as weight"),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT name, topk(number) AS n, count(*) AS c FROM events [1 hour];",
            "line 2",
            "A query with topk has no other aggregates",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT name, topk(number) AS n FROM events;",
            "line 2",
            "needs a window",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT name, topk(number) AS n FROM events [1 hour] EMIT CHANGES;",
            "line 2",
            "written once, at the end of their window",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, to_char(to_timestamp(seen), 'YYYY-MM-DDTHH24') AS day FROM events;",
            "line 2, column 71",
            "to_char does not know the pattern 'THH24' here. It knows YYYY,",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, to_char(to_timestamp(seen), 'SSSS') AS day FROM events;",
            "line 2, column 61",
            "to_char does not know the pattern 'SSSS' here",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, to_char(share, '9D9V9') AS shown FROM events;",
            "line 2, column 51",
            "to_char does not know the pattern 'V' here. It knows 9, 0,",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, to_char(share, '9.99EEEE') AS shown FROM events;",
            "line 2, column 52",
            "to_char does not know the pattern 'EEEE' here. It knows 9, 0,",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, to_char(share, '9.9,9') AS shown FROM events;",
            "line 2, column 51",
            "to_char does not know the pattern ',' here",
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT seen, to_char(share, name) AS shown FROM events;",
            "line 2, column 32",
            "has no value and quoted format. Write to_char(at,",
        ),
        *(
            (
                f"{EVENTS}\nCREATE TABLE t AS SELECT name, count(*) AS n FROM events GROUP BY name, {window};",
                "line 2, column 73",
                message,
            )
            for window, message in (
                ("tumble(seen, interval '0 minutes')", "at least 1."),
                ("session(seen, interval '-1 minute')", "at least 1"),
                ("hop(seen, interval '0 s', interval '1 minute')", "interval"),
                ("hop(seen, interval '2 minutes', interval '1 minute')", "longer than the window"),
            )
        ),
        (
            f"{EVENTS}\nCREATE TABLE t AS SELECT name, count(*) AS n FROM events [0 minutes];",
            "line 2, column",
            "at least 1",
        ),
        ("CREATE APPLICATION a; CREATE APPLICATION b;", "line 1, column 42", "already has a name"),
    ],
)
def test_invalid_statements_are_refused_with_their_place(text: str, place: str, message: str) -> None:
    """The error names line and column, shows the line, and puts a caret below the place."""
    with pytest.raises(SqlRefused) as refused:
        compiled(text)
    lines = str(refused.value).split("\n")

    assert lines[0].startswith(f"app.sql, {place}")
    assert message in lines[0]
    number, source = lines[2].split(" | ", 1)
    assert source == text.split("\n")[int(number) - 1]
    column = int(lines[0].split("column ")[1].partition(":")[0])
    assert lines[3].index("^") - lines[2].index(" | ") - 3 == column - 1


def test_an_inner_aggregate_is_written_once_when_its_window_is_complete() -> None:
    """The outer query counts each group once, although events arrive in several batches."""
    app = compiled(
        f"{EVENTS}CREATE TABLE sizes WITH (semantics = 'exactly once', out_of_orderness = '0 seconds') AS "
        "WITH per_name AS (SELECT name, window_start, count(*) AS n FROM events GROUP BY name, tumble(seen, interval '1 second')) "
        "SELECT n, count(*) AS names FROM per_name GROUP BY n;"
    )
    driver = Driver(app.processors)
    events = app.relations["events"].category
    for batch in ([(1, "a"), (2, "b")], [(3, "a"), (4, "c")], [(5_000, "a"), (5_001, "b"), (5_002, "c"), (5_003, "d")]):
        driver.send(events, [events.record(seen=seen, name=name, number=None, share=None) for seen, name in batch])
    found = {each.n: each.names for each in driver.read(app.relations["sizes"].category)}
    names = [category.name for processor in app.processors for category in plan_of(processor).outputs]

    assert found == {2: 1, 1: 2}
    assert names == ["sizes.per_name", "sizes.grouped", "sizes"]
    assert {processor.output_semantics for processor in app.processors} == {ps.Semantics.EXACTLY_ONCE}


def test_a_crash_counts_no_event_twice() -> None:
    """Results may repeat by default, but rows of internal categories do not: the crash is between the sending of rows and their commit."""
    app = compiled(
        f"{EVENTS}CREATE TABLE sizes AS WITH named AS (SELECT seen, name, number FROM events WHERE name IS NOT NULL) "
        "SELECT number, count(*) AS events FROM named GROUP BY number;"
    )
    driver = Driver(app.processors)
    events = app.relations["events"].category
    rows = [events.record(seen=seen, name="a", number=seen % 2, share=None) for seen in range(10)]
    driver.send(events, [*rows[:5], Crash(before=Step.COMMIT_OFFSETS), *rows[5:]])
    newest = {each.number: each.events for each in driver.read(app.relations["sizes"].category)}

    assert newest == {0: 5, 1: 5}
    assert app.processors[-1].output_semantics is ps.Semantics.AT_LEAST_ONCE


def test_minima_of_moments_pass_through_an_internal_category() -> None:
    """Times and dates are numbers in the partials, and moments again in the results; so is the event time of a group without a window."""
    app = compiled(
        "CREATE CATEGORY c (at timestamp, name text, day date) WITH (key = 'name', time = 'at');"
        "CREATE TABLE t AS SELECT day, min(at) AS first, max(day) AS last FROM c GROUP BY day;"
    )
    driver = Driver(app.processors)
    category = app.relations["c"].category
    moments = [datetime(2026, 5, 3, hour, 30, 0, 250, tzinfo=UTC) for hour in (7, 5, 9)]
    driver.send(category, [category.record(at=moment, name="a", day=moment.date()) for moment in moments])
    [*_, last] = driver.read(app.relations["t"].category)

    assert (last.day, last.first, last.last, last.at) == (moments[0].date(), moments[1], moments[0].date(), moments[2])


def test_aggregates_of_numeric_are_exact() -> None:
    """Numbers have more digits than doubles, and pass through the saved state of a worker that crashes."""
    app = compiled(
        "CREATE CATEGORY c (at bigint, name text, price numeric) WITH (key = 'name', time = 'at', buckets = 1);"
        "CREATE TABLE t AS SELECT name, sum(price) AS total, avg(price) AS mean, min(price) AS least, max(price) AS most, "
        "first(price) AS first, sum(price) FILTER (WHERE at < 0) AS none FROM c GROUP BY name;"
    )
    driver = Driver(app.processors)
    category = app.relations["c"].category
    prices = [Decimal("10000000000000000000.01"), None, Decimal(9), Decimal("0.0000000001"), Decimal("10.5")]
    records = [category.record(at=at, name="a", price=price) for at, price in enumerate(prices)]
    driver.send(category, [*records[:3], Crash(), *records[3:]])
    [*_, last] = driver.read(app.relations["t"].category)

    assert (last.total, last.least, last.most) == (Decimal("10000000000000000019.5100000001"), prices[3], prices[0])
    assert last.mean == round(Fraction(last.total) / 4, 18)
    assert (last.first, last.none) == (prices[0], None)


@pytest.mark.parametrize(
    "monoid", [DecimalSum(), DecimalMean(), ChosenDecimal(ps.monoids.Max()), ChosenDecimal(ps.monoids.Min())]
)
def test_monoids_of_decimals_keep_the_laws(monoid: ps.monoids.Monoid[object]) -> None:
    """Numbers have many digits, which doubles would round."""
    check_laws(monoid, DECIMALS)


def test_monoids_of_decimals_by_time_keep_the_laws() -> None:
    """Numbers have many digits, and times may be equal."""
    check_laws(DecimalByTime(ps.monoids.Latest()), [(at // 2, number) for at, number in enumerate(DECIMALS)])


DECIMALS = [Decimal("0.1"), Decimal("1e25"), Decimal("-3.000"), Decimal("7e-20")]


@pytest.mark.parametrize(
    ("group", "window", "options"),
    [
        ("name", "", "late = 'into window'"),
        ("upper(name)", "", "late = 'into window', two_phase = true"),
        ("upper(name)", ", tumble(seen, interval '3 milliseconds')", "late = 'into window'"),
        ("name", ", session(seen, interval '2 seconds')", "out_of_orderness = '1 minute'"),
    ],
)
def test_first_and_last_follow_event_times(group: str, window: str, options: str) -> None:
    """The order of arrival, the buckets and crashes do not matter. Of equal times, the least and the greatest value count."""
    app = compiled(
        "CREATE CATEGORY events (seen bigint, name text, number bigint) WITH (key = 'name', time = 'seen', buckets = 2);"
        f"CREATE TABLE t WITH (buckets = 2, {options}) AS SELECT {group} AS name, first(number) AS first, last(number) AS last, "
        f"max(seen) AS latest FROM events GROUP BY {group}{window};"
    )
    category, dice = app.relations["events"].category, random.Random(7)
    rows = [(dice.randrange(5), dice.choice("aAbc"), dice.choice([None, 1, 2, 3])) for _ in range(40)]
    size = 3 if "tumble" in window else 10
    grouped: dict[tuple[str, int], list[tuple[int, int | None]]] = {}
    for seen, name, number in rows:
        grouped.setdefault((name if group == "name" else name.upper(), seen // size), []).append((seen, number))
    expected = {}
    for key, members in grouped.items():
        observed = sorted((seen, number) for seen, number in members if number is not None)
        expected[key] = (observed[0][1], observed[-1][1], max(seen for seen, _ in members))
    for _ in range(3):
        driver = Driver(app.processors, start_ms=60_000)
        dice.shuffle(rows)
        records = [category.record(seen=seen, name=name, number=number) for seen, name, number in rows]
        driver.send(category, [*records[:15], Crash(), *records[15:30]])
        driver.send(category, records[30:])
        driver.send(category, [category.record(seen=600_000, name=name, number=0) for name in "aAbc"])
        driver.advance(3600)
        written = [row for row in driver.read(app.relations["t"].category) if row.latest < 600_000]
        found = {(row.name, row.latest // size): (row.first, row.last, row.latest) for row in written}

        assert found == expected


def test_the_columns_of_a_group_are_the_key_of_its_results() -> None:
    """Updates of one result are in one bucket, in order, and results of different groups are not."""
    app = compiled(f"{EVENTS}CREATE TABLE t AS SELECT number, count(*) AS n, name FROM events GROUP BY name, number;")
    category = app.relations["t"].category
    records = [
        category.record(number=number, n=5, name=name, seen=1) for number, name in ((1, "a"), (None, "a"), (1, "b"))
    ]

    assert category.keys_of(records) == ['[1,"a"]', '[null,"a"]', '[1,"b"]']
    assert category.partitioner is not None
