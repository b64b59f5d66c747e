"""Errors that end a command at once, where a repetition or a wait could not help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.ops.change.snapshots import taking
from penstock.ops.change.snapshots.snapshot import SnapshotError
from penstock.ops.shell.command_line.main import app
from penstock.processors import CallRetry
from penstock.state import FileStoreRefuses
from penstock.state.files import LocalFileStore, RetryingFileStore
from penstock.testing import Driver


class Reading(ps.Record, frozen=True):
    """A reading."""

    meter: str
    at: ps.EventTime


class Totals(ps.Stateful[Reading, int, Reading]):
    """Counts readings."""

    reads, state = ps.Category("readings", Reading, key="meter", event_time="at", buckets=2), int

    def process(self, event: Reading, state: int | None, context: ps.Context) -> tuple[int, list[Reading]]:
        """Count a reading."""
        return (state or 0) + 1, []


def test_a_refused_path_is_not_retried(tmp_path: Path) -> None:
    """A folder without the right to write is not an outage."""
    (tmp_path / "file").touch()

    def wait(_: float) -> None:
        raise AssertionError("it waits")

    store = RetryingFileStore(
        LocalFileStore(tmp_path / "file" / "warehouse"), CallRetry(240, pause=wait), "Nothing is lost."
    )
    with pytest.raises(FileStoreRefuses, match=r"was not written: File exists\..*Nothing is lost\."):
        store.write("a", [b"x"])


def test_a_snapshot_of_an_app_that_does_not_run_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not repeated for as long as a worker may need to recover."""
    monkeypatch.setattr(taking, "READY_LIMIT_S", 0.2)
    notes: list[str] = []
    with pytest.raises(SnapshotError, match=r"No worker of totals has answered .* No snapshot was taken"):
        taking.take_snapshot("meters", [Totals], Driver(Totals).bus, LocalFileStore(tmp_path), notes.append)

    assert notes == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["explore", "readings"], "Did you mean `--table readings`?"),
        (["serve", "laser", "meters.py"], "Write `NAME --app meters.py --key COLUMN --value COLUMN`"),
    ],
)
def test_an_argument_of_another_kind_is_recognised(words: list[str], hint: str) -> None:
    """The hint shows the option that was meant."""
    done = CliRunner().invoke(app, words, env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})

    assert done.exit_code == 2
    assert hint in " ".join(done.output.split())


def test_ctrl_c_is_caught_before_anything_is_imported() -> None:
    """Modules that take long would otherwise end in a traceback."""
    code = "import sys; before = set(sys.modules); import penstock.command; print(*sorted(set(sys.modules) - before))"
    root = str(Path(ps.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {root!r}); {code}"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )

    imported = set(done.stdout.split())
    assert "penstock.command" in imported
    assert not imported & {"typing", "enum", "re", "signal", "contextlib", "typer", "penstock.ops.shell.process.start"}


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("alerts silence lag", "Name both, or a silence to end with --end."),
        ("alerts silence lag --end 3f2a9c01", "Leave the alert and --for out."),
        ("watermark set flights", "Write CATEGORY TIME."),
        ("watermark set flights --forget", "Leave the category out."),
        ("dead-letters show totals 3 --limit 1", "Leave all but one of them out."),
        ("dead-letters show totals --all", "--all needs --to"),
        ("dead-letters show --limit 1 --kafka 127.0.0.1:1", "name the processor of the letters"),
        ("clone app.py", "Write APP ID --as NAME."),
        ("clone app.py@staging 20261124T020304-1a2b --remove", "Leave the snapshot and --as out."),
        ("state show totals --key ann", "Name the processor as APP:PROCESSOR."),
    ],
)
def test_a_command_with_two_uses_says_which_words_each_needs(words: str, advice: str) -> None:
    """Nothing is changed or read before."""
    done = CliRunner().invoke(app, words.split(), env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"})

    assert done.exit_code == 2
    assert advice in " ".join(done.output.split())
