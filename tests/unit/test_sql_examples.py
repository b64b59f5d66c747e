"""`penstock sql test` compares the rows that queries write with example rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.ops.shell.command_line.main import app
from penstock.processors.sql import SqlText, compile_app, parse_examples
from penstock.processors.sql.errors import SqlRefused

FILE = """
CREATE CATEGORY views (seen bigint, customer text, page text, share double precision, day date)
WITH (key = 'customer', time = 'seen', buckets = 2);
CREATE TABLE shares WITH (out_of_orderness = '0 seconds') AS
SELECT page, sum(share) AS share, max(day) AS day FROM views GROUP BY page, tumble(seen, interval '1 minute') EMIT ON WINDOW CLOSE;
CREATE TABLE home AS SELECT seen, customer FROM views WHERE page = '/';
"""
EXAMPLES = """
TEST 'updates';
INSERT INTO views (seen, customer, page) VALUES (0, 'ann', '/'), (1, 'it''s bob', '/'), (2, 'eve', '/cart');
EXPECT home VALUES (1, 'it''s bob'), (0, 'ann');
INSERT INTO views (seen, customer, page) VALUES (3, 'ann', '/'), (3, 'ann', '/');
EXPECT home (seen) VALUES (3), (3);
EXPECT NO ROWS IN home;

TEST 'window';
INSERT INTO views VALUES
    (0, 'ann', '/', 0.1, '2026-01-05'), (1000, 'bob', '/', 0.2, NULL), (200000, 'ann', '/', 1, NULL), (200000, 'bob', '/', 1, NULL);
ADVANCE interval '3 minutes';
EXPECT shares (page, share, day) VALUES ('/', 0.3, '2026-01-05');
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sql"
    path.write_text(FILE)
    return path


def run(file: Path, examples: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    file.with_name("shop_test.sql").write_text(examples)
    done = CliRunner().invoke(app, ["sql", "test", str(file), "--json", *options])
    return done.exit_code, [json.loads(line) for line in done.output.splitlines()]


def test_examples_pass_in_any_order_of_rows(file: Path) -> None:
    """Each test begins with empty tables; sums are equal in twelve digits; each EXPECT sees the rows since the one before."""
    code, results = run(file, EXAMPLES)

    assert code == 0
    assert results == [{"passed": True, "name": name, "differences": []} for name in ("updates", "window")]


@pytest.mark.parametrize(
    ("expectation", "missing", "unexpected"),
    [
        ("EXPECT home VALUES (1, 'it''s bob'), (0, 'anne');", [[0, "anne"]], [[0, "ann"]]),
        ("EXPECT home VALUES (1, 'it''s bob'), (0, 'ann'), (0, 'ann');", [[0, "ann"]], []),
        ("EXPECT home VALUES (1, 'it''s bob');", [], [[0, "ann"]]),
        ("EXPECT NO ROWS IN home;", [], [[0, "ann"], [1, "it's bob"]]),
    ],
)
def test_each_differing_row_is_reported(
    file: Path, expectation: str, missing: list[Any], unexpected: list[Any]
) -> None:
    """The exit code is 1, and the line is the one of the EXPECT."""
    code, [first, second] = run(file, EXAMPLES.replace("EXPECT home VALUES (1, 'it''s bob'), (0, 'ann');", expectation))
    [difference] = first["differences"]

    assert code == 1
    assert second["passed"]
    assert (difference["table"], difference["line"]) == ("home", 4)
    assert sorted(difference["missing"]) == missing
    assert sorted(difference["unexpected"]) == unexpected


def test_people_see_missing_and_unexpected_rows(file: Path) -> None:
    """Values are shown as SQL writes them."""
    file.with_name("other.sql").write_text(
        "INSERT INTO views (seen, customer, page) VALUES (0, 'ann', '/'); EXPECT home VALUES (5, 'ann');"
    )
    done = CliRunner().invoke(app, ["sql", "test", str(file), "--examples", str(file.with_name("other.sql"))])

    assert done.exit_code == 1
    lines = [line.split() for line in done.output.splitlines()]
    assert lines[0] == ["failed", str(file.with_name("other.sql"))]
    assert (
        "line 1: in home, 1 expected row missing (-), 1 unexpected row written (+), 0 rows as expected." in done.output
    )
    assert ["-", "5", "'ann'"] in lines
    assert ["+", "0", "'ann'"] in lines


def test_a_window_that_is_not_complete_is_explained(file: Path) -> None:
    """The first test of a window lacks the later event, or the time in which silent buckets become idle. The advice works."""
    file.with_name("shop_test.sql").write_text(
        "INSERT INTO views VALUES (0, 'ann', '/', 1, NULL); EXPECT shares (share) VALUES (1); EXPECT home (seen) VALUES (0), (1);"
    )
    done = CliRunner().invoke(app, ["sql", "test", str(file)])
    of_shares, of_home = done.output.split("in home")

    assert "A window is complete when an event after its end has arrived" in of_shares
    assert "A window is complete" not in of_home

    assert "insert one, and let buckets become idle by ADVANCE interval '2 minutes'; after it." in of_shares
    first, later = (
        "INSERT INTO views VALUES (0, 'ann', '/', 1, NULL)",
        "INSERT INTO views VALUES (200000, 'bob', '/', 1, NULL)",
    )
    code, _ = run(file, f"{first}; {later}; ADVANCE interval '2 minutes'; EXPECT shares (share) VALUES (1);")
    assert code == 0


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("INSERT INTO view VALUES (1);", "line 1, column 13", "Did you mean `views`?"),
        ("INSERT INTO views (sen) VALUES (1);", "line 1, column 20", "Did you mean `seen`?"),
        ("INSERT INTO views (seen) VALUES (1);", "line 1, column 13", "Column customer of views needs a value"),
        ("INSERT INTO home VALUES (1, 'a');", "line 1, column 13", "A query writes home"),
        ("EXPECT home VALUES (1, 'a', 2);", "line 1, column 20", "3 values for 2 columns"),
        ("EXPECT home VALUES (1, a);", "line 1, column 24", "Write texts in single quotes"),
        ("EXPECT home VALUES\n('x', 'a');", "line 2, column 2", "'x' is not a valid bigint"),
        ("EXPECT home VALUES (1 / 0, 'a');", "line 1, column 21", "This expression has no value: division by zero"),
        ("EXPECT home VALUES (NULL, 'a');", "line 1, column 20", "Column seen cannot be NULL"),
        ("EXPECT NO ROWS home;", "line 1, column 16", "IN is expected here"),
        ("ADVANCE interval '-1 minute';", "line 1, column 9", "Time passes only forward"),
        ("ADVANCE 5;", "line 1, column 9", "An interval is expected"),
        ("DELETE FROM home;", "line 1, column 1", "There is no statement DELETE"),
        ("TEST late;", "line 1, column 6", "A text in quotes is expected"),
    ],
)
def test_invalid_examples_are_refused_with_their_place(text: str, place: str, message: str) -> None:
    """The place is line and column, and the error contains the correct form."""
    with pytest.raises(SqlRefused) as refused:
        parse_examples(SqlText("shop_test.sql", text), compile_app(SqlText("shop.sql", FILE), __name__))

    assert str(refused.value).startswith(f"shop_test.sql, {place}: ")
    assert message in str(refused.value)


def test_a_missing_test_file_is_an_error(file: Path) -> None:
    """The message names the expected file."""
    done = CliRunner().invoke(app, ["sql", "test", str(file)])

    assert done.exit_code == 1
    assert "shop_test.sql does not exist" in str(done.exception)


def test_rows_of_a_lookup_table_replace_its_source(file: Path) -> None:
    """The file of the table does not exist; a later row replaces the one of its key."""
    file.write_text(
        "CREATE LOOKUP TABLE places (code bigint, city text) WITH (csv = 'missing.csv', key = 'code');"
        "CREATE CATEGORY visits (seen bigint, code bigint) WITH (key = 'code', time = 'seen');"
        "CREATE TABLE cities AS SELECT v.seen, p.city FROM visits v LEFT JOIN places p ON v.code = p.code;"
    )
    code, [result] = run(
        file,
        "INSERT INTO places VALUES (1, 'Bern'), (2, 'Rome'), (2, 'Roma'); INSERT INTO visits VALUES (0, 1), (1, 2), (2, 3);"
        "EXPECT cities VALUES (0, 'Bern'), (1, 'Roma'), (2, NULL);",
    )

    assert (code, result["differences"]) == (0, [])
