"""Hints for command lines that cannot be parsed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from penstock.ops.shell import parse_span, parse_start
from penstock.ops.shell.command_line.main import app

APP = """import penstock as ps

class Order(ps.Record, frozen=True):
    shop: str
    at: int

class Copy(ps.Stateless):
    reads = ps.Category("orders", Order, key="shop", event_time="at", buckets=2)
    writes = ps.Category("copies", Order, key="shop", event_time="at", buckets=2)

    def process(self, event):
        yield event
"""


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (["run", "meters.py", "Totals"], "Did you mean `meters.py:Totals`?"),
        (["scale", "totals", "2"], "Did you mean `--workers 2`?"),
        (["sql", "shell", "x.sql", "--last", "5", "minutes"], "Did you mean `--last 5m`?"),
        (["category", "tail", "clicks", "--from", "2h", "ago"], '`--from "2h ago"`'),
        (["category", "tail", "clicks", "--from", "2", "hours", "ago"], '`--from "2h ago"`'),
        (["state", "get", "app.py", "--key", "ann"], "The key is an argument: write it without `--key`."),
        (["category", "create", "app.py", "--buckets", "8"], "--buckets is for a category by its name."),
        (["snapshot", "create", "app.py"], "Did you mean 'take'?"),
        (["run", "app.py", "-until-end"], "Did you mean `--until-end`?"),
        (["dev", "up", "kafak"], "'services': 'kafak' is not one of 'kafka', 'hdfs'. Did you mean `kafka`?"),
        (["new", "shop", "--template", "count"], "Did you mean `counts`?"),
        (["topics"], "Did you mean 'category show'?"),
        (["category", "deleet", "clicks"], "Did you mean 'delete'?"),
        (["run", "meters.py", "--until-edn"], "--until-end"),
        (["deploy", "meters.py", "--workers", "99999999"], "less than or equal to 10000"),
        (["scale", "totals", "--workers", "99999999"], "less than or equal to 10000"),
        (["run", "app.py", "--until", "orders/9=3"], "orders has no bucket 9. Its buckets are 0 to 1."),
    ],
)
def test_a_slip_is_answered_with_the_command_line_that_was_meant(
    line: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words of other tools are slips, too."""
    monkeypatch.chdir(tmp_path)
    Path("x.sql").touch()
    Path("app.py").write_text(APP)
    done = CliRunner().invoke(app, line, env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})

    assert done.exit_code == 2
    assert hint in " ".join(done.output.split())


@pytest.mark.parametrize("text", ["5m", "5 minutes", "5 min", "5 Minute"])
def test_a_duration_may_have_its_unit_in_words(text: str) -> None:
    """The shell needs quotes around it."""
    assert parse_span(text) == timedelta(minutes=5)


@pytest.mark.parametrize("text", ["36501d", "99999999999999999999s", "9999999w ago"])
def test_a_duration_beyond_all_times_is_refused(text: str) -> None:
    """The refusal replaces an overflow."""
    with pytest.raises(typer.BadParameter, match="the longest duration"):
        parse_start(text if text.endswith("ago") else f"{text} ago", datetime.now(UTC))


def test_the_beginning_is_an_offset() -> None:
    """Other tools have a word for it."""
    with pytest.raises(typer.BadParameter, match="0 is the beginning"):
        parse_start("beginning", datetime.now(UTC))
