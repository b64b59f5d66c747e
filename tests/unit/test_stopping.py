"""A process that is told to stop ends within its time, whatever its clients wait for."""

from __future__ import annotations

import signal
import subprocess
import sys

from penstock.ops.cli.signals import NOT_SAVED

LIMIT_S = 60.0
HANGS = """
import sys, threading
from penstock.ops.cli.signals import ending_within, stopping_on_signals

told = threading.Event()
with ending_within(float(sys.argv[1]), "Nothing is lost."), stopping_on_signals(told.set):
    print("ready", flush=True)
    {does}
print("ended", flush=True)
"""
IN_C = "import ctypes; [ctypes.CDLL(None).sleep(1000) for _ in range(1000)]"
"""A call that does not come back; one that a signal interrupts is made again before Python handles the signal."""


def started(does: str, within_s: float) -> subprocess.Popen[str]:
    code = HANGS.replace("{does}", does)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(within_s)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_one_that_hangs_in_a_call_is_ended() -> None:
    """With an exit code of its own, and what it means for the data."""
    process = started(IN_C, 0.5)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=LIMIT_S)

    assert process.returncode == NOT_SAVED
    assert "has not ended within 0.5 s" in said
    assert "Nothing is lost." in said


def test_one_that_ends_in_time_is_left_alone() -> None:
    """It ends as it would have."""
    process = started("told.wait()", LIMIT_S)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0
    assert out == "ended\n"
