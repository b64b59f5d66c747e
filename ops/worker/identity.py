"""The identity of a worker: a place in the state folder, locked as long as the process lives.

    <state>/<processor>/workers/machine     a random name, created once for this folder, and the number of this file's inode
    <state>/<processor>/workers/0.lock      locked by the first worker of the folder, and so on
    <state>/<processor>/workers/0.starts    JSON: whether that worker runs, and when it was started again

A worker takes the first free place. After a crash it is therefore the same member of its consumer group, and continues its own
transactions. A start without a recorded end before it follows a crash, and is counted. A copy of the folder has another inode and gets
another name: two workers with one identity would fence each other forever.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple
from uuid import uuid4

import msgspec

from ...state.errors import StateUnwritable
from ...state.files.durable import make_private_folder
from ..clock import SystemClock
from .revocation_note import RevocationNotesOnDisk


class Identity(NamedTuple):
    """The identity of a worker.

    Args:
        name: its name, the same after a restart.
        restarts_ms: when it was restarted after a crash, in the last day (milliseconds since 1970, UTC).
        revocations: notes about revocations in progress.
    """

    name: str
    restarts_ms: tuple[int, ...]
    revocations: RevocationNotesOnDisk


@contextmanager
def worker_identity(state: Path, processor: str) -> Iterator[Identity]:
    """Reserve an identity during the block. No other live worker of the processor has it, and the next one to start reuses it.

    Raises:
        StateUnwritable: the folder cannot be written.
    """
    folder = state / processor / "workers"
    try:
        make_private_folder(folder)
        machine = _machine(folder)
        place, lock = _first_free(folder)
    except OSError as error:
        raise StateUnwritable(
            f"The worker cannot reserve an identity in {folder}: {error}. Nothing was read. Free disk space or allow writing, then start it again."
        ) from error
    with lock, count_restart(folder / f"{place}.starts") as restarts_ms:
        yield Identity(f"{machine}-{place}", restarts_ms, RevocationNotesOnDisk(folder / f"{place}.revocation"))


def _first_free(folder: Path) -> tuple[int, IO[str]]:
    for place in count():
        lock = (folder / f"{place}.lock").open("a")
        if _locked(lock.fileno()):
            return place, lock
        lock.close()
    raise AssertionError("there is always another place")


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


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


REMEMBERED_MS = 24 * 3_600_000
"""How long a restart is remembered."""


class RestartCount(msgspec.Struct, frozen=True):
    """The restarts of one place's worker.

    Args:
        running: whether its worker runs, or has crashed.
        restarts_ms: when it was restarted after a crash, in the last day (milliseconds since 1970, UTC).
    """

    running: bool = False
    restarts_ms: tuple[int, ...] = ()

    def started(self, now_ms: int) -> RestartCount:
        """Return the restarts after a start."""
        restarts = (*self.restarts_ms, now_ms) if self.running else self.restarts_ms
        return RestartCount(running=True, restarts_ms=tuple(at for at in restarts if at > now_ms - REMEMBERED_MS))


@contextmanager
def count_restart(notes: Path) -> Iterator[tuple[int, ...]]:
    """Record a start, and its end if the block ends without an error; yield the times of restarts.

    Args:
        notes: the file with the record; used by one process at a time.
    """
    starts = _read(notes).started(SystemClock().now_ms())
    _write(notes, starts)
    yield starts.restarts_ms
    _write(notes, RestartCount(running=False, restarts_ms=starts.restarts_ms))


def _read(notes: Path) -> RestartCount:
    try:
        return msgspec.json.decode(notes.read_bytes(), type=RestartCount)
    except (FileNotFoundError, msgspec.DecodeError):
        return RestartCount()  # a damaged file only loses the count of restarts


def _write(notes: Path, starts: RestartCount) -> None:
    notes.write_bytes(msgspec.json.encode(starts))
