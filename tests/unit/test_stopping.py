"""A stopped process ends within its time limit, even if a client call blocks."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from penstock.ops.shell import NOT_SAVED
from penstock.ops.shell.process.signals import SAME_SIGNAL_S

LIMIT_S = 60.0
PROGRAM = """
import signal, sys, threading
from penstock.ops.shell.process.signals import exit_within, stop_on_signals

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # with nohup, it would stay ignored
stopped = threading.Event()
with exit_within(float(sys.argv[1]), "Nothing is lost."), stop_on_signals(stopped.set):
    print("ready", flush=True)
    {body}
print("ended", flush=True)
"""
BLOCKING_CALL = "import ctypes; [ctypes.CDLL(None).sleep(1000) for _ in range(1000)]"
"""Calls in C that do not return. Python handles a signal only after them."""


def started(body: str, within_s: float) -> subprocess.Popen[str]:
    """Start the program with a body, and wait until it is ready."""
    code = PROGRAM.replace("{body}", body)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(within_s)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_process_in_a_blocking_call_exits() -> None:
    """It has its own exit code, and reports the effect on the data."""
    process = started(BLOCKING_CALL, 0.5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=LIMIT_S)

    assert process.returncode == NOT_SAVED
    assert "did not end within 0.5 s" in errors
    assert "Nothing is lost." in errors


def test_a_process_that_ends_in_time_is_not_interrupted() -> None:
    """It ends normally with exit code 0."""
    process = started("stopped.wait()", LIMIT_S)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0
    assert output == "ended\n"


def test_a_second_interrupt_exits_at_once_and_names_the_busy_line() -> None:
    """A processor that never returns cannot be stopped in order; the message says in which line it is."""
    told = "threading.Thread(target=lambda: (stopped.wait(), print('asked', flush=True)), daemon=True).start()"
    process = started(f"{told}; exec(compile('while True: pass', '/app/loop.py', 'exec'))", LIMIT_S)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    time.sleep(SAME_SIGNAL_S * 2)  # counted from the first signal on
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT_S)

    assert process.returncode == NOT_SAVED
    assert "because of a second Ctrl-C" in errors
    assert "still in <module> (loop.py, line 1)" in errors
    assert "Nothing is lost." in errors


def test_a_repeated_signal_within_a_moment_is_one_interrupt() -> None:
    """`timeout` sends SIGINT to a process and to its group."""
    # This process may be kept from its second signal for a while.
    longer = "from penstock.ops.shell.process import signals; signals.SAME_SIGNAL_S = 60.0"
    process = started(f"{longer}; stopped.wait(); threading.Event().wait(2)", LIMIT_S)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=LIMIT_S)

    assert (process.returncode, output) == (0, "ended\n")


def test_a_closed_terminal_stops_a_process_in_order() -> None:
    """SIGHUP ends it like SIGTERM."""
    process = started("stopped.wait()", LIMIT_S)
    process.send_signal(signal.SIGHUP)
    output, _ = process.communicate(timeout=LIMIT_S)

    assert (process.returncode, output) == (0, "ended\n")
