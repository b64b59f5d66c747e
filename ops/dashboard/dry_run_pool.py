"""Tries messages aside: each in a process of its own, which has its time and no more."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Semaphore
from typing import Protocol

import msgspec

from ...processors.declare.apps import AppName
from ...processors.declare.dead_letters import DeadLetter
from ...transport.bus import Bus
from ...transport.codecs.avro import BODY_AT, MARKER
from ...transport.tables.schemas import Schema, Schemas, UnknownSchema
from .dry_run import DryRun
from .dry_run_process import Asked

LIMIT_S = 10.0
"""How long a trial may take."""
START_LIMIT_S = 20.0
"""How much longer its process may take to start."""
AT_ONCE = 2
"""How many are tried at a time; others wait."""

_BROKEN_OFF = b"Timeout ("
_OURS = Path(__file__).parents[2]
_FRAME = re.compile(r'  File "(?P<file>.*)", line \d+ in .*')


class DryRunRequest(Protocol):
    """Tries messages; several threads may ask. Waits for the answer."""

    def answer(self, asked: Asked) -> bytes:
        """Return a trial as JSON, also where the user's code takes too long or ends its process."""
        ...


class DryRunPool:
    """Tries each message in a process of its own."""

    def __init__(self) -> None:
        self._free = Semaphore(AT_ONCE)

    def answer(self, asked: Asked) -> bytes:
        """Return a trial as JSON."""
        with self._free:
            return _answered(asked)


def asking(app: AppName, processor: str, letter: DeadLetter, bus: Bus, root: Path) -> Asked:
    """Return what is to be tried, with all that is needed of the bus.

    Args:
        app: where the processor is.
        processor: its name.
        letter: a message that it has set aside.
        bus: where the schemas of Avro messages are.
        root: the folder of states.
    """
    return Asked(str(app.path), processor, letter, _schemas(letter.value, bus), str(root), LIMIT_S)


def _schemas(value: bytes | None, bus: Bus) -> dict[str, Schema]:
    """Return the schema that a message names; none where it names none, or one that nobody knows, which the trial will say."""
    if value is None or not value.startswith(MARKER) or len(value) < BODY_AT:
        return {}
    prints = value[len(MARKER) : BODY_AT]
    with suppress(UnknownSchema):
        return {prints.hex(): Schemas(bus).find(prints)}
    return {}


def _answered(asked: Asked) -> bytes:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "penstock.ops.dashboard.dry_run_process"],
            input=msgspec.json.encode(asked),
            capture_output=True,
            timeout=asked.limit_s + START_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return msgspec.json.encode(_broken_off(asked, ""))
    if done.returncode == 0 and done.stdout:
        return done.stdout
    says = done.stderr.decode(errors="replace")
    if _BROKEN_OFF in done.stderr:
        return msgspec.json.encode(_broken_off(asked, _where(says)))
    return msgspec.json.encode(
        DryRun(
            processed=False, says=f"It ended the process in which it was tried, {_how(done.returncode)}.", trace=says
        )
    )


def _broken_off(asked: Asked, where: str) -> DryRun:
    return DryRun(
        processed=False,
        says=f"It was broken off after {asked.limit_s:g} s, in which {asked.processor} did not come to an end: a worker would stand still there.",
        trace=where,
    )


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with {code}"


def _where(dump: str) -> str:
    """Return where the main thread was, in the user's own code and what that has called, the innermost call first."""
    frames = []
    for line in dump.rpartition("Thread 0x")[2].splitlines():
        frame = _FRAME.fullmatch(line)
        if frame is None:
            continue
        if Path(frame["file"]).is_relative_to(_OURS):
            break
        frames.append(line)
    return "\n".join(frames and ["Innermost call first:", *frames])
