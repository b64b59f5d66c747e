"""Shared parts of the example programs: a separate broker, and commands that are printed before they run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from penstock.ops.shell import progress_steps
from penstock.ops.start.dev_services.services import LocalServices
from penstock.processors import PenstockError

console = Console(highlight=False)


@contextlib.contextmanager
def local_kafka(folder: Path) -> Iterator[str]:
    """Start a broker whose data is in a folder, and stop it on the way out; its address."""
    services = LocalServices(folder)
    say("penstock", "dev", "up", "kafka")
    try:
        with progress_steps() as show_step:
            began_s = time.monotonic()
            started = services.up(["kafka"], progress=show_step)
        say_elapsed(began_s)
        yield started["kafka"].endpoints["bootstrap"]
    finally:
        services.down(["kafka"], progress=console.print)


def penstock(*arguments: str, check: bool = True) -> int:
    """Run a command as a user would, and show it; how it ended.

    Args:
        arguments: those of the command.
        check: whether it has to succeed.

    Raises:
        CalledProcessError: it had to, and did not.
    """
    say("penstock", *arguments)
    began_s = time.monotonic()
    command = start(*arguments)
    try:
        code = command.wait()
    except KeyboardInterrupt:
        end(command)
        raise
    say_elapsed(began_s)
    if check and code:
        raise subprocess.CalledProcessError(code, command.args)
    return code


def start(*arguments: str, notes: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a command in the background.

    Args:
        arguments: those of the command.
        notes: a file for its standard error; None for this program's.
    """
    command = [sys.executable, "-m", "penstock", *arguments]
    if notes is None:
        return subprocess.Popen(command)
    with notes.open("wb") as file:
        return subprocess.Popen(command, stderr=file)


def end(command: subprocess.Popen[bytes]) -> None:
    """Wait for a command to end. After Ctrl-C, which it may not have received, terminate it."""
    try:
        command.wait(10)
    except subprocess.TimeoutExpired:
        command.terminate()
        command.wait()


def play(main: Callable[[], int]) -> NoReturn:
    """Run a program to its end; print one line about an error or an interruption."""
    try:
        sys.exit(main())
    except PenstockError as error:
        sys.exit(f"Error: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit("Interrupted; everything that was started is stopped.")


def say(*words: str) -> None:
    """Print a command on one line, with paths from the working folder, so that it can be copied."""
    here = f"{Path.cwd()}/"
    console.print(f"\n[bold cyan]$ {' '.join(word.removeprefix(here) for word in words)}[/]", soft_wrap=True)


def say_elapsed(began_s: float) -> None:
    """Print the seconds since a time of the monotonic clock."""
    console.print(f"[dim]({time.monotonic() - began_s:.0f} s)[/]")
