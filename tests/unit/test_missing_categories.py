"""Categories that `penstock run --create` creates, and how its options are described."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from rich.text import Text
from typer.testing import CliRunner

from penstock.ops.kernel import create_missing, expect_categories
from penstock.ops.shell import Cluster
from penstock.ops.shell.command_line.main import app
from penstock.processors.apps import AppName
from penstock.processors.declare import plan_of
from penstock.transport import CategorySpec, MissingCategory
from penstock.transport.memory import MemoryBus

APP = """
import penstock as ps

class Click(ps.Record, frozen=True):
    user: str
    at: ps.EventTime

clicks = ps.Category("{name}", Click, key="user", event_time="at")

class Copies(ps.Stateless):
    reads, writes = clicks, ps.Category("copied_clicks", Click, key="user", event_time="at")

    def process(self, event):
        return [event]
"""


@pytest.mark.parametrize(("name", "similar"), [("shop.click", True), ("orders", False), ("shop.clicks", None)])
def test_an_empty_input_with_a_similar_name_is_reported(
    name: str, similar: bool | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is probably misspelled, and the processor would read nothing without an error. An existing input is not created."""
    (tmp_path / "clicks_app.py").write_text(APP.format(name=name))
    bus = MemoryBus()
    bus.create(CategorySpec("shop.clicks", 4))
    create_missing(bus, AppName.parse(str(tmp_path / "clicks_app.py")))
    printed = " ".join(capsys.readouterr().err.split())

    assert {name, "copied_clicks", "copies.dead_letters"} <= set(bus.names())
    assert (f"Created category {name} with" in printed) is (similar is not None)
    assert (f"{name} is empty: no processor of the app writes it. Did you mean `shop.clicks`?" in printed) is (
        similar is True
    )


def test_the_table_of_a_cluster_is_named_in_the_help() -> None:
    """Its brackets are not markup."""
    [option] = [each for each in get_args(Cluster) if hasattr(each, "help")]

    assert "the one of [clusters.NAME] in the configuration" in Text.from_markup(option.help).plain


def test_a_missing_category_is_created_with_the_command_that_the_error_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the file of the app, in Python or SQL, and the clone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks_app.py").write_text(APP.format(name="clicks"))
    (tmp_path / "seen.sql").write_text(
        "CREATE CATEGORY seen (at bigint, name text) WITH (key = 'name', time = 'at'); CREATE TABLE named AS SELECT at, name FROM seen;"
    )

    for target in ("clicks_app.py", "seen.sql", "clicks_app.py@staging"):
        [processor] = AppName.parse(target).load().processors
        with pytest.raises(MissingCategory, match=f"`penstock category create {target}`.*`penstock acls {target}`"):
            expect_categories(processor, plan_of(processor).inputs, MemoryBus())


@pytest.mark.parametrize(
    "command",
    [
        "status broken.py --kafka 127.0.0.1:1",
        "status broken.py --graph mermaid --kafka 127.0.0.1:1",
        "acls broken.py",
        "image broken.py",
        "query broken.py --store redis://127.0.0.1:1",
        "category create broken.py --kafka 127.0.0.1:1",
        "category send clicks --app broken.py --kafka 127.0.0.1:1",
        "category tail clicks --where x> --kafka 127.0.0.1:1",
        "snapshot take broken.py --kafka 127.0.0.1:1",
        "sql explain broken.sql",
        "sql test broken.sql --examples examples.sql",
        "sql shell broken.sql --kafka 127.0.0.1:1",
        "sql from-query #table=views --app broken.py",
    ],
)
def test_a_command_that_starts_nothing_does_not_say_that_nothing_was_started(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sounds as if something should have been."""
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("import nothing_of_this_name\n")
    Path("broken.sql").write_text("CREATE CATEGORY a (x bigint) WITH (kye = 'x');")
    Path("examples.sql").write_text("-- test: a\nINSERT INTO a VALUES (1);\n")
    done = CliRunner().invoke(app, command.split())

    assert re.search(r"broken\.py cannot be imported: line 1|(broken\.sql|--where), line 1", str(done.exception))
    assert "Nothing was started" not in str(done.exception)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "run broken.py",
            r"'nothing_of_this_name'\. Nothing was started\. Correct the file and run the command again\.$",
        ),
        ("deploy broken.py --kafka 127.0.0.1:1", r"'nothing_of_this_name'\. Nothing was started\. Correct"),
        ("serve results broken.py --kafka 127.0.0.1:1", r"'nothing_of_this_name'\. Nothing was started\. Correct"),
        (
            "backfill broken.py --from 2013-01-01 --to 2013-01-01",
            r"'nothing_of_this_name'\. Nothing was started\. Correct",
        ),
        (
            "serve scuba --app missing.py --kafka 127.0.0.1:1",
            r"missing\.py does not exist\. Nothing was started\. Give the path",
        ),
        ("run broken.sql", r"line 1, column \d+: .*\. Nothing was started\..*\n\n1 \| CREATE CATEGORY a .*\n  \| +\^$"),
    ],
)
def test_a_command_that_would_start_something_says_that_nothing_was_started(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence follows the fault of the app, and precedes the advice."""
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text("import nothing_of_this_name\n")
    Path("broken.sql").write_text("CREATE CATEGORY a (x bigint) WITH (kye = 'x');")
    done = CliRunner().invoke(app, command.split())

    assert re.search(message, str(done.exception)), done.output


def test_a_command_that_needs_no_store_names_what_can_have_one(tmp_path: Path) -> None:
    """Only aggregators choose where their state is, so others get no advice to declare it."""
    (tmp_path / "clicks_app.py").write_text(APP.format(name="clicks"))
    words = ["run", str(tmp_path / "clicks_app.py"), "--store", "redis://127.0.0.1:1"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})

    assert "keep their state locally. Leave --store out." in " ".join(done.output.split())
