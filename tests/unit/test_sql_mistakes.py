"""Files and queries that are no SQL of an app: the errors name the mistake, and not a later consequence of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.ops.shell.command_line.main import app
from penstock.ops.sql.trial import QueryTrial
from penstock.processors.sql import SqlText
from penstock.processors.sql.errors import SqlRefused
from penstock.transport.memory import MemoryBus

FILE = """CREATE CATEGORY views (seen bigint, page text) WITH (key = 'page', time = 'seen');
CREATE TABLE home AS SELECT seen, page FROM views WHERE page = '/';
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.sql"
    path.write_text(FILE)
    return path


def refusal(*words: object) -> str:
    """Return the error with which a command refuses an SQL file."""
    done = CliRunner().invoke(app, ["sql", *map(str, words)])

    assert isinstance(done.exception, SqlRefused)
    return str(done.exception)


@pytest.mark.parametrize("command", ["explain", "test"])
def test_a_file_in_another_encoding_is_refused_with_its_line(file: Path, command: str) -> None:
    """The refusal replaces a traceback."""
    file.write_bytes(FILE.encode() + "-- Größe".encode("latin-1"))

    assert refusal(command, file) == (f"{file}, line 3: This is not text in UTF-8. Save the file in UTF-8.")


def test_a_byte_order_mark_is_no_part_of_the_text(file: Path) -> None:
    """Some editors begin each file with one."""
    file.write_bytes(b"\xef\xbb\xbf" + FILE.encode())

    assert SqlText.read(file).text == FILE


def test_an_unreadable_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A folder cannot be read, also not by the user root."""
    with pytest.raises(SqlRefused, match=r"cannot be read: Is a directory\. Check the path"):
        SqlText.read(tmp_path)


@pytest.mark.parametrize("command", ["explain", "test"])
def test_a_python_file_is_not_parsed_as_sql(tmp_path: Path, command: str) -> None:
    """An error about its first word would send the user to the wrong line."""
    path = tmp_path / "meters.py"
    path.write_text("import penstock as ps\n")

    assert f"{path} is a Python file. Name an SQL file" in refusal(command, path)


def test_a_test_file_is_no_app(file: Path) -> None:
    """`sql test shop_test.sql` does not ask for shop_test_test.sql."""
    tests = file.with_name("shop_test.sql")
    tests.write_text("TEST 'a row'; INSERT INTO views VALUES (1, '/'); EXPECT home VALUES (1, '/');")

    assert "column 1: This is a statement of a test file" in refusal("test", tests)


def test_a_text_in_double_quotes_is_explained(file: Path) -> None:
    """The name of a column is likely only if the columns contain a similar one."""
    file.write_text(FILE.replace("'/'", '"it\'s"'))

    assert "a text has single quotes: 'it''s'." in refusal("explain", file)


@pytest.mark.parametrize("query", ["", ";", "CREATE TABLE x AS SELECT seen FROM views", "nonsense"])
def test_the_shell_tries_only_queries(file: Path, query: str) -> None:
    """The error shows the statement, and not the text that the shell puts before it."""
    with pytest.raises(SqlRefused) as refused:
        QueryTrial(file, MemoryBus(), timedelta(minutes=10)).run(query)

    assert "query, line 1, column 1: This is not a SELECT." in str(refused.value)
    assert f"\n\n1 | {query.rstrip(';')}\n  | ^" in str(refused.value)


@pytest.mark.parametrize("query", ["SELECT", "-- the home page\nSELECT 1"])
def test_an_incomplete_query_is_shown_itself(file: Path, query: str) -> None:
    """The error does not show the first line of the file."""
    with pytest.raises(SqlRefused) as refused:
        QueryTrial(file, MemoryBus(), timedelta(minutes=10)).run(query)

    assert "The query has no FROM." in str(refused.value)
    assert "CREATE" not in str(refused.value)
