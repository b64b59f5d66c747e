"""Retries of dead letters whose process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from support.cli import LIMIT_S, Cli
from support.rejected_clicks import correct, counts, rejected_clicks, totals

KILLED_RETRY = """
import os, signal, sys
from pathlib import Path
from penstock.ops.dead_letters.handling import retry
from penstock.processors.apps.apps import load_app
from penstock.transport.kafka import KafkaBus, KafkaSettings

[processor] = load_app(Path("app.py")).processors
retry(KafkaBus(KafkaSettings(sys.argv[1])), processor, lambda _: True, before_commit=lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_retry_killed_before_its_commit_repeats_nothing(kafka: str, cli: Cli, app: Path, prefix: str) -> None:
    """Its messages are aborted; the next retry writes each of them once."""
    rejected_clicks(cli, app, prefix)
    correct(app)

    killed = subprocess.run(
        [sys.executable, "-c", KILLED_RETRY, kafka], cwd=cli.folder, timeout=LIMIT_S, check=False, capture_output=True
    )
    pending = counts(cli, f"{prefix}.sums")
    cli.ok("dead-letters", "retry", str(app), "--all", "--yes")
    cli.ok("run", str(app), "--until-end")

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert pending == (3, 0, 0)
    assert counts(cli, f"{prefix}.sums") == (0, 3, 0)
    assert totals(cli, prefix) == {"ann": [1, -2], "bob": [4, 2], "eve": [-5]}
