"""By what name a worker is known when it comes back: a place in the state folder, held by a lock that ends with the process.

    <state>/<processor>/workers/machine     a random name, made once for this folder
    <state>/<processor>/workers/0.lock      held by the worker that is the first here, and so on

A worker takes the first free place, so one that was killed and is started again is the same member of its consumer group,
and its transactions are known as its own.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple
from uuid import uuid4

from ...state.errors import StateUnwritable
from .restart_count import count_restart
from .revocation_note import RevocationNotesOnDisk


class Identity(NamedTuple):
    """By what a worker is known.

    Args:
        name: the same each time that it is started.
        restarts_ms: when it was started again after an end that nobody had asked for, in the last day (milliseconds since 1970, UTC).
        letting_go: where it notes that it lets go of buckets.
    """

    name: str
    restarts_ms: tuple[int, ...]
    letting_go: RevocationNotesOnDisk


@contextmanager
def worker_identity(state: Path, processor: str) -> Iterator[Identity]:
    """Give a name that no other live worker of the processor has, and that the next one to start gets when this one ends.

    Raises:
        StateUnwritable: the folder refuses.
    """
    folder = state / processor / "workers"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        machine = _machine(folder)
        place, lock = _first_free(folder)
    except OSError as error:
        raise StateUnwritable(
            f"A worker's place in {folder} cannot be taken: {error}. Make room or give access, then start again."
        ) from error
    with lock, count_restart(folder / f"{place}.starts") as restarts_ms:
        yield Identity(f"{machine}-{place}", restarts_ms, RevocationNotesOnDisk(folder / f"{place}.letting-go"))


def _first_free(folder: Path) -> tuple[int, IO[str]]:
    for place in count():
        lock = (folder / f"{place}.lock").open("a")
        if _locked(lock.fileno()):
            return place, lock
        lock.close()
    raise AssertionError("there is always another place")


def _machine(folder: Path) -> str:
    """Return the folder's name, which the first worker gives it."""
    named = folder / "machine"
    with (folder / "machine.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not named.exists():
            named.write_text(uuid4().hex[:12])
        return named.read_text()


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
