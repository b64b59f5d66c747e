"""Dry runs in separate processes, each with a time limit."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Semaphore
from typing import Protocol

import msgspec

from ....processors.apps import AppName
from ....processors.declare import DeadLetter
from ....transport import Bus
from ....transport.codecs import BODY_AT, MARKER
from ....transport.tables import Schema, Schemas, UnknownSchema
from .dry_run import DryRun
from .dry_run_process import DryRunRequest

RUN_LIMIT_S = 10.0
"""How long a dry run may take."""
START_LIMIT_S = 20.0
"""How long its process may take to start, in addition."""
MAX_PROCESSES = 2
"""The number of dry runs at a time; further ones wait."""

_TIMEOUT_MARKER = b"Timeout ("
"""The start of the traceback that `faulthandler` writes after the time limit."""
_PACKAGE = Path(__file__).parents[3]
_FRAME = re.compile(r'  File "(?P<file>.*)", line \d+ in .*')


class DryRunner(Protocol):
    """Runs dry runs. Any thread; blocks until the result is there."""

    def run(self, request: DryRunRequest) -> bytes:
        """Return the result (`DryRun`) as JSON, also if the user's code exceeds the time limit or ends its process."""
        ...


class DryRunPool:
    """Runs each dry run in its own process."""

    def __init__(self) -> None:
        self._free = Semaphore(MAX_PROCESSES)

    def run(self, request: DryRunRequest) -> bytes:
        """Return the result as JSON."""
        with self._free:
            return _run_process(request)


def new_request(app: AppName, processor: str, letter: DeadLetter, bus: Bus, root: Path) -> DryRunRequest:
    """Return a request that contains all that its process needs from Kafka.

    Args:
        app: the app of the processor.
        processor: the name of the processor.
        letter: one of its dead letters.
        bus: the bus of the Avro schemas.
        root: the folder of states.
    """
    return DryRunRequest(str(app.whole), processor, letter, _schemas(letter.value, bus), str(root), RUN_LIMIT_S)


def _schemas(value: bytes | None, bus: Bus) -> dict[str, Schema]:
    """Return the Avro schema of a message, by fingerprint; none for another format. The dry run reports an unknown schema."""
    if value is None or not value.startswith(MARKER) or len(value) < BODY_AT:
        return {}
    fingerprint = value[len(MARKER) : BODY_AT]
    with suppress(UnknownSchema):
        return {fingerprint.hex(): Schemas(bus).find(fingerprint)}
    return {}


def _run_process(request: DryRunRequest) -> bytes:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.ops.serve.dashboard.dry_run_process"],
            input=msgspec.json.encode(request),
            capture_output=True,
            timeout=request.limit_s + START_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return msgspec.json.encode(_timed_out(request, ""))
    if done.returncode == 0 and done.stdout:
        return done.stdout
    stderr = done.stderr.decode(errors="replace")
    if _TIMEOUT_MARKER in done.stderr:
        return msgspec.json.encode(_timed_out(request, _user_frames(stderr)))
    exit_status = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    return msgspec.json.encode(
        DryRun(processed=False, message=f"It ended the process of the dry run with {exit_status}.", traceback=stderr)
    )


def _timed_out(request: DryRunRequest, frames: str) -> DryRun:
    return DryRun(
        processed=False,
        message=f"The dry run was stopped after {request.limit_s:g} s, before {request.processor} had processed the message. A worker would hang.",
        traceback=frames,
    )


def _user_frames(dump: str) -> str:
    """Return the frames of the main thread in the user's code and in code that it calls, the innermost call first."""
    frames = []
    for line in dump.rpartition("Thread 0x")[2].splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is None:
            continue
        if Path(frame["file"]).is_relative_to(_PACKAGE):
            break
        frames.append(line)
    return "\n".join(frames and ["Innermost call first:", *frames])
