"""Hints for command lines that cannot be parsed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from penstock.ops.cli.command_line import app
from penstock.ops.cli.times import parse_span, parse_start


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
        (["topics"], "Did you mean 'category list'?"),
        (["category", "deleet", "clicks"], "Did you mean 'delete'?"),
        (["run", "meters.py", "--until-edn"], "--until-end"),
    ],
)
def test_a_slip_is_answered_with_the_command_line_that_was_meant(
    line: list[str], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the words of other tools."""
    monkeypatch.chdir(tmp_path)
    Path("x.sql").touch()
    done = CliRunner().invoke(app, line, env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})

    assert done.exit_code == 2
    assert hint in " ".join(done.output.split())


@pytest.mark.parametrize("text", ["5m", "5 minutes", "5 min", "5 Minute"])
def test_a_duration_may_have_its_unit_in_words(text: str) -> None:
    """In quotes."""
    assert parse_span(text) == timedelta(minutes=5)


@pytest.mark.parametrize("text", ["36501d", "99999999999999999999s", "9999999w ago"])
def test_a_duration_beyond_all_times_is_refused(text: str) -> None:
    """Instead of an overflow."""
    with pytest.raises(typer.BadParameter, match="the longest duration"):
        parse_start(text if text.endswith("ago") else f"{text} ago", datetime.now(timezone.utc))


def test_the_beginning_is_an_offset() -> None:
    """In other tools it is a word."""
    with pytest.raises(typer.BadParameter, match="0 is the beginning"):
        parse_start("beginning", datetime.now(timezone.utc))
