"""The same replay of another version, in a process of its own: two versions of one module do not fit into one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ...processors.declare.apps import AppName
from ..worker.app_processes import penstock_command
from .errors import ReplayStopped
from .outputs import OutputRecord

_lines = msgspec.json.Decoder(OutputRecord).decode_lines


def replay_in_subprocess(app: AppName, options: Sequence[str]) -> list[OutputRecord]:
    """Return what another version gives.

    Args:
        app: its file and processor.
        options: of `penstock replay`, but for where outputs go.

    Raises:
        ReplayStopped: it failed, or was refused.
    """
    with TemporaryDirectory(prefix="penstock-replay-") as folder:
        lines = Path(folder) / "outputs.jsonl"
        command = penstock_command("replay", str(app), *options, "--output", str(lines))
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().removeprefix("Error: ")
            raise ReplayStopped(f"The replay of {app} failed, so there is nothing to compare with. It said: {said}")
        return _lines(lines.read_bytes())
