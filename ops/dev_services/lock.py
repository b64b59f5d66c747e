"""One process at a time: a lock on a file, which the system gives back when its holder dies."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of this file, waiting without limit for another holder.

    Args:
        path: made if missing, with its folders; never removed, or two processes could hold two files of one name.
        on_wait: called once if another process holds it, before the wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
