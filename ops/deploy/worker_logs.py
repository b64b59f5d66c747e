"""Logs of deployed workers: their last lines in the order of time, and new lines as they come.

<dir>/logs/NAME/0-1.log      the log of a worker's second process under supervisord; 0-1.log.1 is the one before, and so on

During an update, a worker and its successor log at the same time, each to the log of its slot. So the lines of a run are never those of another one.
"""

from __future__ import annotations

import heapq
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

_TIME = re.compile(r'(?:\{"time":")?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?)')
"""The time at the beginning of a line, as text or as JSON."""

BLOCK_BYTES = 1 << 16
"""The size of the first block that is read from the end of a log; the next ones are as large as all before."""


SLOTS = range(2)
"""The processes of a worker under supervisord, of which one is the current one."""


class LogLine(NamedTuple):
    """A line of a worker's log.

    Args:
        time: the time of the line, or of the line that it continues, as logged; empty if unknown. Sorts by time.
        worker: the worker's number.
        text: the line, without its end.
    """

    time: str
    worker: int
    text: str


def logs_folder(folder: Path, name: str) -> Path:
    """Return the folder of a deployment's logs in a folder (`--dir`)."""
    return folder / "logs" / name


def log_of(folder: Path, name: str, worker: int, slot: int | str) -> Path:
    """Return the log of a process of a worker in a folder (`--dir`)."""
    return logs_folder(folder, name) / f"{worker}-{slot}.log"


def logged_workers(logs: Path) -> list[int]:
    """Return the numbers of the workers that have a log, also of removed workers."""
    return sorted({int(path.stem.partition("-")[0]) for path in logs.glob("[0-9]*-[0-9].log")})


def last_lines(logs: Path, workers: Iterable[int], count: int) -> list[LogLine]:
    """Return the last lines of workers' logs, in the order of time. A stack trace stays with its first line."""
    merged = heapq.merge(
        *(_timed(worker, _tail(logs, f"{worker}-{slot}.log", count)) for worker in workers for slot in SLOTS),
        key=lambda line: line.time,
    )
    return list(deque(merged, count)) if count else []


def _timed(worker: int, lines: Iterable[str]) -> Iterator[LogLine]:
    """Yield lines with their times."""
    time = ""
    for line in lines:
        found = _TIME.match(line)
        time = time if found is None else found[1]
        yield LogLine(time, worker, line)


def _tail(logs: Path, name: str, count: int) -> list[str]:
    """Return the last lines of a log, from as many of its rotated files as needed."""
    lines: list[str] = []
    for path in (logs / name, *_rotated(logs, name)):
        if len(lines) >= count:
            break
        with suppress(FileNotFoundError):  # rotated meanwhile
            lines = [*_end_of(path, count - len(lines)), *lines]
    return lines


def _end_of(path: Path, count: int) -> list[str]:
    """Return the last lines of a file. Reads only its end, because a log may have many megabytes."""
    content = b""
    with path.open("rb") as file:
        start = file.seek(0, os.SEEK_END)
        while start and content.count(b"\n") <= count:
            size = min(start, max(BLOCK_BYTES, len(content)))
            start = file.seek(start - size)
            content = file.read(size) + content
    return _text(content)[-count:]


def _rotated(logs: Path, name: str) -> list[Path]:
    """Return the earlier files of a log, the newest first."""
    return sorted(logs.glob(f"{name}.[0-9]*"), key=lambda path: int(path.suffix[1:]))


def _text(log: bytes) -> list[str]:
    return log.decode(errors="replace").splitlines()


class LogFollower:
    """Reads the new lines of a log of a worker, also across its rotation. Opened at the end of the log; close it.

    Args:
        logs: the folder of the logs.
        worker: the worker's number.
        slot: the process of the worker.
    """

    def __init__(self, logs: Path, worker: int, slot: int) -> None:
        self._path = logs / f"{worker}-{slot}.log"
        self._worker = worker
        self._file: IO[bytes] | None = None
        self._partial = b""
        self._open(at_end=True)

    def read(self) -> list[LogLine]:
        """Return the complete lines since the last call."""
        lines = self._new_lines()
        if self._is_rotated():
            lines += self._new_lines()  # what was written before the rotation
            self.close()
            self._open(at_end=False)
            lines += self._new_lines()
        return [LogLine("", self._worker, line) for line in lines]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, *, at_end: bool) -> None:
        with suppress(FileNotFoundError):  # the worker has logged nothing yet
            self._file = self._path.open("rb")
            self._file.seek(0, 2 if at_end else 0)

    def _new_lines(self) -> list[str]:
        if self._file is None:
            self._open(at_end=False)
        if self._file is None:
            return []
        *lines, self._partial = (self._partial + self._file.read()).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def _is_rotated(self) -> bool:
        """Return whether another file has the name of the log, or the log was emptied."""
        if self._file is None:
            return False
        try:
            present = self._path.stat()
        except FileNotFoundError:
            return False
        return present.st_ino != os.fstat(self._file.fileno()).st_ino or present.st_size < self._file.tell()
