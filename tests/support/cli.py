"""The command line as a user runs it: another process, in a folder of its own, on one broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIMIT_S = 120.0


class Cli:
    """Runs `penstock` in a folder of its own, against one broker, or where None is named against that of a configuration."""

    def __init__(self, bootstrap: str | None, folder: Path, limit_s: float = LIMIT_S) -> None:
        self.folder = folder
        self._limit_s = limit_s
        self.environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
        if bootstrap is not None:
            self.environment["PENSTOCK_KAFKA"] = bootstrap
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**self.environment, **environment},
            timeout=self._limit_s,
            check=False,
        )

    def ok(self, *arguments: str, stdin: str = "") -> str:
        """Run a command that has to succeed; what it printed."""
        done = self(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{done.stderr}{done.stdout}"
        return done.stdout

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**self.environment, **environment},
        )
        self._started.append(process)
        return process

    def end_all(self) -> None:
        """End what is still running; asked to, it ends the processes that it has started as well."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
