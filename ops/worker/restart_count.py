"""How often a worker was started again after an end that nobody had asked for.

    <state>/<processor>/workers/0.starts    JSON: whether the worker of this place runs, and when it was started again

Whoever starts and finds that the last one has never said its end comes after a crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..clock import SystemClock

REMEMBERED_MS = 24 * 3_600_000
"""How long a restart is remembered."""


class RestartCount(msgspec.Struct, frozen=True):
    """What is noted of the starts of one place.

    Args:
        running: whether its worker runs, or has ended without saying so.
        restarts_ms: when it was started again after such an end, in the last day (milliseconds since 1970, UTC).
    """

    running: bool = False
    restarts_ms: tuple[int, ...] = ()

    def started(self, now_ms: int) -> RestartCount:
        """Return what is to be noted at a start."""
        restarts = (*self.restarts_ms, now_ms) if self.running else self.restarts_ms
        return RestartCount(running=True, restarts_ms=tuple(at for at in restarts if at > now_ms - REMEMBERED_MS))


@contextmanager
def count_restart(notes: Path) -> Iterator[tuple[int, ...]]:
    """Note a start, and its end where the block ends as it should; give when there were restarts.

    Args:
        notes: where it is noted; used by one process at a time.
    """
    starts = _noted(notes).started(SystemClock().now_ms())
    _note(notes, starts)
    yield starts.restarts_ms
    _note(notes, RestartCount(running=False, restarts_ms=starts.restarts_ms))


def _noted(notes: Path) -> RestartCount:
    try:
        return msgspec.json.decode(notes.read_bytes(), type=RestartCount)
    except (FileNotFoundError, msgspec.DecodeError):
        return RestartCount()  # nothing that a run depends on: a torn note costs the count of restarts


def _note(notes: Path, starts: RestartCount) -> None:
    notes.write_bytes(msgspec.json.encode(starts))
