"""Files of outputs that are named by mistake: no command replaces the source of an app."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.ops.look_back.replay.errors import ReplayRefused
from penstock.ops.look_back.replay.saved_test import expect_no_file
from penstock.ops.look_back.replay.sinks import LinesFile
from penstock.ops.shell.command_line.main import app
from penstock.ops.shell.terminal.output_files import OutputFileRefused

SOURCE = "import penstock as ps\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "meters.py"
    path.write_text(SOURCE)
    return path


def test_the_outputs_of_a_replay_do_not_replace_an_app(source: Path) -> None:
    """`--out` and the app may be confused."""
    with pytest.raises(OutputFileRefused, match=r"meters\.py is a source file"), LinesFile(source):
        pass

    assert source.read_text() == SOURCE


@pytest.mark.parametrize(
    "words",
    [["dead-letters", "show", "totals", "--to"], ["explore", "SELECT 1", "--parquet"]],
)
def test_exports_do_not_replace_an_app(source: Path, words: list[str]) -> None:
    """They refuse the file before they ask a server."""
    done = CliRunner().invoke(app, [*words, str(source)])

    assert isinstance(done.exception, OutputFileRefused)
    assert source.read_text() == SOURCE


def test_a_saved_test_replaces_no_file(source: Path) -> None:
    """An earlier test may have been edited since. The error comes before the replay."""
    with pytest.raises(ReplayRefused, match="replaces no file"):
        expect_no_file(source)

    expect_no_file(source.with_name("test_meters.py"))
