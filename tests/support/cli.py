"""The command line as a user runs it: in another process and its own folder, on one broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIMIT_S = 300.0


class Cli:
    """Runs `penstock` in its own folder, on one broker; for None, on the broker of a configuration."""

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
        """Run a command that must succeed, and return its output."""
        done = self(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{done.stderr}{done.stdout}"
        return done.stdout

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command without waiting for its end."""
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
        """Stop all running commands, which then stop their own processes."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
            try:
                process.communicate(timeout=90)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
