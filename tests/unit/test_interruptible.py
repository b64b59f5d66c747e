"""Commands that a signal interrupts end in a line, also if their cleanup fails."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

import pytest
import typer
from rich.console import Console

from penstock.ops.shell import interruptible
from penstock.ops.shell.terminal import output


class InterruptionAt:
    """An interruption before the n-th line that Python executes below the caller."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, arg: object) -> InterruptionAt | None:
        if event == "line" and frame.f_code.co_filename.endswith("console.py"):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cleanup_that_fails_after_a_signal_does_not_hide_it(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    """The signal has often ended the processes that the cleanup calls."""

    def interrupted() -> None:
        try:
            os.kill(os.getpid(), number)
        finally:
            raise ConnectionRefusedError("The other process is gone.")

    with pytest.raises(typer.Exit) as ended, interruptible("Nothing was written."):
        interrupted()

    assert ended.value.exit_code == 128 + number
    assert "Interrupted. Nothing was written." in capsys.readouterr().err


def test_an_error_without_a_signal_is_raised() -> None:
    """It is not an interruption."""
    with pytest.raises(ConnectionRefusedError), interruptible("Nothing was written."):
        raise ConnectionRefusedError


def test_an_interruption_in_the_middle_of_a_note_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal may arrive at any line of the console's code."""
    for line in range(1, 10_000):
        monkeypatch.setattr(output, "err", Console(stderr=True, highlight=False))
        tracer, before = InterruptionAt(line), sys.gettrace()
        try:
            with interruptible("Earlier rows remain."):
                sys.settrace(tracer)
                try:
                    output.note("Row 1 is written.")
                finally:
                    sys.settrace(before)
        except typer.Exit:
            assert "Interrupted. Earlier rows remain." in capsys.readouterr().err, f"line {line}"
        else:
            assert line > 100
            return
    raise AssertionError("The note has not ended.")
