"""Texts of SQL files are values: no text becomes a part of the code that Penstock generates from a file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp
from support.sql_expressions import COLUMNS, Columns

from penstock.processors.apps import AppName
from penstock.processors.sql import SqlText
from penstock.processors.sql.cursor import parsed_sql, statements_of
from penstock.processors.sql.errors import SqlDataError, SqlRefused
from penstock.processors.sql.expression_compiler import ForeignCode
from penstock.processors.sql.expressions import StatementProgram
from penstock.processors.sql.python_calls import PythonFunction
from penstock.testing import Driver

FORMS = (
    "?",
    "s || ?",
    "concat(?, a, s, ?)",
    "concat_ws(?, ?, s, a)",
    "concat_ws(s, ?, ?)",
    "s LIKE ?",
    "s NOT ILIKE ?",
    "s LIKE ? ESCAPE ?",
    "s ILIKE ? ESCAPE ?",
    "s ~ ?",
    "s ~* ?",
    "regexp_replace(s, ?, ?)",
    "regexp_replace(s, ?, ?, 'gi')",
    "regexp_replace(s, 'a', 'b', ?)",
    "regexp_substr(s, ?)",
    "trim(both ? from s)",
    "trim(leading s from ?)",
    "lpad(s, 5, ?)",
    "rpad(?, 9)",
    "lower(?)",
    "upper(?)",
    "length(?)",
    "initcap(?)",
    "repeat(?, 2)",
    "ascii(?)",
    "translate(s, ?, ?)",
    "md5(?)",
    "reverse(?)",
    "replace(s, ?, ?)",
    "replace(?, s, t)",
    "substring(? from 2 for 3)",
    "split_part(s, ?, 1)",
    "strpos(s, ?)",
    "position(? in s)",
    "starts_with(s, ?)",
    "left(?, 2)",
    "right(?, 2)",
    "greatest(s, ?)",
    "least(?, t)",
    "coalesce(s, ?)",
    "nullif(s, ?)",
    "CASE WHEN s = ? THEN ? ELSE ? END",
    "CASE s WHEN ? THEN ? WHEN t THEN ? END",
    "s IN (?, ?)",
    "s IN (?, t)",
    "? IN (s, t)",
    "s IN (?, t, NULL)",
    "s BETWEEN ? AND ?",
    "s = ?",
    "s <> ?",
    "s < ?",
    "s <= ?",
    "s > ?",
    "s >= ?",
    "s IS DISTINCT FROM ?",
    "s IS NOT DISTINCT FROM ?",
    "? IS NULL",
    "NOT (s = ?)",
    "(s = ? OR t = ?)",
    "(s = ? AND t = ?)",
    "j -> ?",
    "j ->> ?",
    "j #> ?",
    "j #>> ?",
    "jsonb_typeof(cast(? AS jsonb))",
    "jsonb_array_length(cast(? AS jsonb))",
    "cast(? AS boolean)",
    "cast(? AS bigint)",
    "cast(? AS numeric)",
    "try_cast(? AS bigint)",
    "try_cast(s || ? AS numeric)",
    "cast(? AS double precision)",
    "cast(? AS date)",
    "cast(? AS uuid)",
    "cast(? AS timestamp with time zone)",
    "cast(s || ? AS bigint)",
    "to_char(ts, ?)",
    "to_char(a, ?)",
    "date_trunc(?, ts)",
    "date_trunc('day', ts, ?)",
    "date_bin(?, ts, ts)",
    "ts AT TIME ZONE ?",
    "ts + interval ?",
    "date_part(?, ts)",
    "to_timestamp(?)",
    "to_timestamp_ms(?)",
    "epoch_ms(?)",
    *(f"{name}(?)" for name in ("abs", "ceil", "floor", "round", "trunc", "sign", "sqrt", "cbrt", "exp", "ln", "log")),
    *(f"a {operator} ?" for operator in ("+", "-", "*", "/", "%", "^")),
    "-cast(? AS bigint)",
    "mod(a, ?)",
    "div(a, ?)",
    "power(x, ?)",
    "trunc(n, ?)",
    "f IS TRUE AND ? AND g IS NOT FALSE",
    "now() = ?",
)
"""Expressions in which every function and operator has a text, at each `?`."""
WITHOUT_TEXTS = {exp.Null, exp.Rand, exp.Uuid, exp.CurrentDate, exp.CurrentTime, exp.Localtime, exp.Localtimestamp}
"""Expressions without arguments."""
HOSTILE = st.lists(
    st.sampled_from(
        [
            "{",
            "}",
            "{0}",
            "{x!r}",
            "'",
            "''",
            '"',
            "\\",
            "\n",
            "\r",
            "\x00",
            "#",
            "%",
            "a",
            "))",
            "__import__",
            "é",
            "İ",
        ]
    ),
    max_size=5,
).map("".join)
TRAP = "' + str(__import__('os').system('exit 3')) + '"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def compiled_code(expression: str) -> tuple[str, Any]:
    """Return the code of an expression, and a function that runs it."""
    program = StatementProgram(SqlText("test.sql", expression), Columns())
    [cursor] = statements_of(program.text)
    compiled = program.compile(parsed_sql(program.text, cursor.tokens, 0))
    return compiled.code, program.function("evaluate", "event", [f"return {compiled.code}"])


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15, deadline=None)
@given(texts=st.lists(HOSTILE | st.just(TRAP), min_size=4, max_size=4))
def test_no_text_of_a_file_becomes_code(form: str, texts: list[str]) -> None:
    """The code has no quote, brace or backslash, and runs as the code of any other text."""
    expression = form
    for text in texts:
        expression = expression.replace("?", quoted(text), 1) if "?" in expression else expression
    row = SimpleNamespace(**{**dict.fromkeys(COLUMNS), "a": 1, "b": 2, "y": 1.5, "s": "{0}'a", "t": "{", "g": True})
    try:
        code, evaluate = compiled_code(expression)
        evaluate(row)
    except (SqlRefused, SqlDataError):
        return

    assert not set(code) & set("'\"\\{}\n\x00")
    assert "import" not in code


def test_all_functions_and_operators_are_among_the_forms() -> None:
    """A new one must be added to the forms above."""
    found = set()
    for form in FORMS:
        text = SqlText("test.sql", form.replace("interval ?", "interval '1 day'").replace("?", "'{}'"))
        [cursor] = statements_of(text)
        found |= {type(node) for node in parsed_sql(text, cursor.tokens, 0).walk()}
    missing = {
        kind.__name__ for kind in StatementProgram.handlers if kind not in found | WITHOUT_TEXTS | {PythonFunction}
    }

    assert missing == set()


def test_code_with_a_text_does_not_run() -> None:
    """Any template that a text of a file reaches is refused before it becomes code."""
    program = StatementProgram(SqlText("test.sql", ""), Columns())

    for body in ("return 'a'", "return f'{event}'", "return b'a'", "return event.__class__", "return __import__"):
        with pytest.raises(ForeignCode):
            program.function("evaluate", "event", [body])


HEAD = """CREATE CATEGORY v (t bigint, page text, who text NOT NULL) WITH (key = 'page', time = 't', buckets = 1);
CREATE TABLE o WITH (buckets = 1) AS """


def rows(tmp_path: Path, query: str) -> list[Any]:
    """Return what a query of an app writes for one event."""
    file = tmp_path / "x.sql"
    file.write_text(HEAD + query)
    app = AppName.parse(str(file)).load()
    categories = {category.name: category for category in app.categories()}
    driver = Driver(list(app.processors))
    driver.send(categories["v"], [b'{"t": 1, "page": "/a", "who": "ann"}'])
    return list(driver.read(categories["o"]))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("concat_ws('-', '{', page)", "{-/a"),
        ("concat_ws('-', '{0}', page)", "{0}-/a"),
        ("CASE WHEN page IN ('{x}', who) THEN 'y' ELSE 'n' END", "n"),
        ("CASE WHEN page IN ('/a', '{', who) THEN 'y' ELSE 'n' END", "y"),
        ("CASE WHEN '{%' LIKE '{{%' ESCAPE '{' THEN 'y' ELSE 'n' END", "y"),
        ("""'{"a":"' || page || '"}'""", '{"a":"/a"}'),
        (f"concat_ws({quoted(TRAP)}, '{{0}}', page)", f"{{0}}{TRAP}/a"),
    ],
)
def test_braces_and_code_in_texts_are_texts(tmp_path: Path, expression: str, value: str) -> None:
    """They are texts in the worker, too."""
    [row] = rows(tmp_path, f"SELECT t, page, {expression} AS r FROM v;")

    assert row.r == value


@pytest.mark.parametrize(
    "query",
    [
        'SELECT t, page, who AS "__class__" FROM v;',
        'SELECT t, page, who AS "{0}" FROM v;',
        'SELECT t, page, who AS "it\'s" FROM v;',
        'SELECT t, page, who AS "ﬁ" FROM v;',
        'SELECT t, page, who AS "a b", page AS column_2 FROM v;',
        'SELECT "x{0}".t, "x{0}".page, "x{0}".who AS "None" FROM v AS "x{0}";',
        'SELECT page, max(who) AS "{0}" FROM v GROUP BY page;',
    ],
)
def test_names_of_any_characters_are_columns(tmp_path: Path, query: str) -> None:
    """A name that Python does not have, or has in another form, gets an attribute of its own."""
    [row] = rows(tmp_path, query)

    assert "ann" in row.__struct_fields__ or "ann" in [getattr(row, name) for name in row.__struct_fields__]


@pytest.mark.parametrize("name", ['a""b', "a\\b", "a\nb", "a\x01b"])
@pytest.mark.parametrize(
    "query", ['SELECT t, page, who AS "{}" FROM v;', 'SELECT page, max(who) AS "{}" FROM v GROUP BY page;']
)
def test_a_name_that_no_field_can_have_is_refused_at_its_place(tmp_path: Path, query: str, name: str) -> None:
    """Fields of JSON as msgspec writes them have no quotes, backslashes and control characters."""
    with pytest.raises(SqlRefused, match="contains a double quote, a backslash or a control character"):
        rows(tmp_path, query.format(name))
