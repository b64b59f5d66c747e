"""Processors in commands that know them by their names: also as apps."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.ops.shell.command_line.main import app

APP = """
import penstock as ps

class Click(ps.Record, frozen=True):
    user: str
    at: ps.EventTime

clicks = ps.Category("clicks", Click, key="user", event_time="at")

class ClickCounts(ps.Stateful):
    reads, state = clicks, int

    def process(self, event, state, context):
        return (state or 0) + 1, []
"""


@pytest.mark.parametrize("target", ["clicks_app.py", "clicks_app.py:ClickCounts", "click_counts"])
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["undeploy"], " is not deployed"),
        (["scale", "--workers", "2"], "click_counts is not deployed"),
        (["rollback"], "click_counts is not deployed"),
        (["logs"], "click_counts"),
        (["deployments"], "click_counts is not deployed"),
        (["state", "show"], "no state of processor 'click_counts'"),
        (["state", "verify", "--backup", "backups"], "no state of processor 'click_counts'"),
        (["state", "restore", "--backup", "backups"], "no state of processor 'click_counts'"),
    ],
)
def test_a_processor_may_be_named_by_its_app(
    words: list[str], answer: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands `run` and `deploy` accept the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks_app.py").write_text(APP)
    (tmp_path / "backups").mkdir()
    done = CliRunner().invoke(app, [*words, target], env={"PENSTOCK_KAFKA": "127.0.0.1:1"})

    assert answer in str(done.exception)


def test_of_an_app_with_several_processors_one_must_be_named(tmp_path: Path) -> None:
    """The error lists them."""
    file = tmp_path / "clicks_app.py"
    file.write_text(APP + APP.partition("event_time")[2].partition("\n")[2].replace("ClickCounts", "Others"))
    done = CliRunner().invoke(
        app, ["scale", "--workers", "2", str(file)], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"}
    )

    assert "has several processors: ClickCounts, Others." in " ".join(done.output.split())
