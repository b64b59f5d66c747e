"""Operations of the dashboard: each is a command of `penstock` in its own process, as an operator would type it.

The command writes the audit log, waits for other commands that change deployments, and prints what it did or why not.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ....processors import PenstockError, user_name
from ...shell import BEHALF_VARIABLE

RUN_LIMIT_S = 900.0
"""How long an operation may take: a rollout of several workers waits up to two minutes for each."""
OUTPUT_LIMIT = 20_000
"""The number of characters of its output that the page shows."""


class OperationRefused(PenstockError):
    """The dashboard does not run an operation. Nothing was changed."""


@dataclass(frozen=True)
class OperationResult:
    """The result of an operation.

    Args:
        done: whether it succeeded.
        output: the output of the command.
    """

    done: bool
    output: str


class OperationRunner(Protocol):
    """Runs operations. Any thread; blocks until the end."""

    def run(self, words: Sequence[str], user: str) -> OperationResult:
        """Run a command of `penstock` for a user.

        Args:
            words: the command and its arguments.
            user: the user, for the audit log.
        """
        ...


@dataclass(frozen=True)
class CommandOperator:
    """Runs operations as commands.

    Args:
        kafka: the address of the Kafka cluster.
        folder: the value of `--dir`.
        config: the configuration file; None for the default.
    """

    kafka: str
    folder: Path
    config: Path | None

    def run(self, words: Sequence[str], user: str) -> OperationResult:
        """Run a command in its own process, with the settings of the dashboard."""
        command, arguments = _split(words)
        options = ["--kafka", self.kafka, "--dir", str(self.folder)]
        options += [] if self.config is None else ["--config", str(self.config)]
        environment = {
            **os.environ,
            "COLUMNS": "120",
            "NO_COLOR": "1",
            BEHALF_VARIABLE: f"{user}, by the dashboard of {user_name()}",
        }
        try:
            done = subprocess.run(
                [sys.executable, "-m", "penstock", *command, *options, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=environment,
                timeout=RUN_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return OperationResult(
                done=False,
                output=f"The command did not end within {RUN_LIMIT_S / 60:.0f} minutes and was stopped. Repeat it to finish: penstock {' '.join(words)}",
            )
        return OperationResult(done.returncode == 0, done.stdout[-OUTPUT_LIMIT:].strip())


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command, and its arguments."""
    count = 2 if words[0] == "alerts" else 1
    return list(words[:count]), list(words[count:])


def rollback(name: str) -> list[str]:
    """Return the command that returns a deployment to its last good version."""
    return ["rollback", "--", name]


def scale(name: str, workers: int) -> list[str]:
    """Return the command that changes a deployment's number of workers."""
    return ["scale", "--workers", str(workers), "--", name]


def silence(processor: str, rule: str, span: str, reason: str) -> list[str]:
    """Return the command that silences an alert of a processor."""
    return ["alerts", "silence", "--processor", processor, "--for", span, "--why", reason, "--", rule]
