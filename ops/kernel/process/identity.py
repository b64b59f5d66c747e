"""The identity of a worker: a place in the state folder, locked as long as the process lives.

    <state>/<processor>/workers/machine     a random name, created once for this folder, and the number of this file's inode
    <state>/<processor>/workers/0.lock      locked by the first worker of the folder, and so on; contains its process ID
    <state>/<processor>/workers/0.starts    JSON: whether that worker runs, and when it was started again

A worker takes the first free place. After a crash it is therefore the same member of its consumer group, and continues its own
transactions. A start without a recorded end before it follows a crash, and is counted. A copy of the folder has another inode and gets
another name: two workers with one identity would fence each other forever.

The workers of a supervisor are numbered, and each number has its own place (`numbered-0`). If a process with this number still runs, its
successor asks it to hand over, with a signal, and waits. So the successor may do all of its preparations before.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple
from uuid import uuid4

import msgspec

from ....processors import file_remedy
from ....state import StateUnwritable
from ....state.files import make_private_folder
from ...shell import SystemClock
from ..checkpoint import RevocationNotesOnDisk
from ..telemetry import DEPLOYMENT_VARIABLE

_LOG = logging.getLogger("penstock.worker")
HAND_OVER = signal.SIGUSR2
"""The signal that asks a numbered worker to save a last checkpoint and to end, with its buckets reserved for its successor."""
ASK_EVERY_S = 0.01
KILL_AFTER_S = 60.0
"""How long a process may take to hand over. Then it hangs, and is killed; what it has not saved is processed again."""


class Identity(NamedTuple):
    """The identity of a worker.

    Args:
        name: its name, the same after a restart.
        restarts_ms: when its version was restarted after a crash, in the last day (milliseconds since 1970, UTC).
        revocations: notes about revocations in progress.
    """

    name: str
    restarts_ms: tuple[int, ...]
    revocations: RevocationNotesOnDisk


@contextmanager
def worker_identity(state: Path, processor: str, number: int | None = None) -> Iterator[Identity]:
    """Reserve an identity during the block. No other live worker of the processor has it, and the next one to start reuses it.

    Args:
        state: the folder of all states.
        processor: the processor's name.
        number: the worker's number under its supervisor, whose present process is asked to hand over; None for the first free place.

    Raises:
        StateUnwritable: the folder cannot be written.
    """
    folder = state / processor / "workers"
    try:
        make_private_folder(folder)
        machine = _machine(folder)
        place, lock = _first_free(folder) if number is None else (f"numbered-{number}", _handed_over(folder, number))
    except OSError as error:
        raise StateUnwritable(
            f"The worker cannot reserve an identity in {folder}: {error}. Nothing was read. {file_remedy(error)} Then start it again."
        ) from error
    deployment = os.environ.get(DEPLOYMENT_VARIABLE, "")
    with lock, count_restart(folder / f"{place}.starts", deployment) as restarts_ms:
        yield Identity(f"{machine}-{place}", restarts_ms, RevocationNotesOnDisk(folder / f"{place}.revocation"))


def _first_free(folder: Path) -> tuple[str, IO[str]]:
    for place in map(str, count()):
        lock = (folder / f"{place}.lock").open("a+")
        if _locked(lock):
            return place, lock
        lock.close()
    raise AssertionError("there is always another place")


def _handed_over(folder: Path, number: int) -> IO[str]:
    """Return the lock of a numbered place, after its present process, if there is one, has handed over."""
    lock = (folder / f"numbered-{number}.lock").open("a+")
    asked, asked_s = None, 0.0
    while not _locked(lock):
        holder = _process_in(lock)
        if holder is not None and holder != asked:
            _LOG.info("Process %d is worker %d at present, and is asked to hand over.", holder, number)
            _signal(holder, HAND_OVER)
            asked, asked_s = holder, time.monotonic()
        elif holder is not None and time.monotonic() > asked_s + KILL_AFTER_S:
            _LOG.warning("Process %d has not handed over within %.0f s, and is killed.", holder, KILL_AFTER_S)
            _signal(holder, signal.SIGKILL)
        time.sleep(ASK_EVERY_S)
    return lock


def _signal(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _process_in(lock: IO[str]) -> int | None:
    """Return the process ID in a lock's file; None if its holder has not written it yet."""
    lock.seek(0)
    text = lock.read()
    return int(text) if text.endswith("\n") else None


def _machine(folder: Path) -> str:
    """Return the folder's name, which the first worker of the folder chooses, and the first worker of a copy anew."""
    file = folder / "machine"
    with (folder / "machine.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file.touch()
        inode = str(file.stat().st_ino)
        name, _, written_in = file.read_text().partition(" ")
        if written_in != inode:
            name = uuid4().hex[:12]
            file.write_text(f"{name} {inode}")
        return name


def _locked(lock: IO[str]) -> bool:
    """Lock a place's file and write the process ID to it, unless another process has locked it."""
    try:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return True


def restarts_of(state: Path, processor: str, number: int) -> tuple[int, ...]:
    """Return when a numbered worker was restarted after a crash, in the last day before its last start (milliseconds since 1970, UTC)."""
    return _read(state / processor / "workers" / f"numbered-{number}.starts").restarts_ms


REMEMBERED_MS = 24 * 3_600_000
"""How long a restart is remembered."""


class RestartCount(msgspec.Struct, frozen=True):
    """The restarts of one place's worker.

    Args:
        running: whether its worker runs, or has crashed.
        restarts_ms: when it was restarted after a crash, in the last day (milliseconds since 1970, UTC).
        deployment: the deployment that started it, as ``name@version``; empty if a user started it.
    """

    running: bool = False
    restarts_ms: tuple[int, ...] = ()
    deployment: str = ""

    def started(self, now_ms: int, deployment: str = "") -> RestartCount:
        """Return the restarts after a start. Another version starts without any: the crashes of the former one say nothing about it."""
        if deployment != self.deployment:
            return RestartCount(running=True, deployment=deployment)
        restarts = (*self.restarts_ms, now_ms) if self.running else self.restarts_ms
        return RestartCount(True, tuple(at for at in restarts if at > now_ms - REMEMBERED_MS), deployment)


@contextmanager
def count_restart(notes: Path, deployment: str = "") -> Iterator[tuple[int, ...]]:
    """Record a start, and its end if the block ends without an error; yield the times of restarts.

    Args:
        notes: the file with the record; used by one process at a time.
        deployment: the deployment that starts it; see `RestartCount`.
    """
    starts = _read(notes).started(SystemClock().now_ms(), deployment)
    _write(notes, starts)
    yield starts.restarts_ms
    _write(notes, RestartCount(False, starts.restarts_ms, deployment))


def _read(notes: Path) -> RestartCount:
    try:
        return msgspec.json.decode(notes.read_bytes(), type=RestartCount)
    except (FileNotFoundError, msgspec.DecodeError):
        return RestartCount()  # a damaged file only loses the count of restarts


def _write(notes: Path, starts: RestartCount) -> None:
    notes.write_bytes(msgspec.json.encode(starts))
