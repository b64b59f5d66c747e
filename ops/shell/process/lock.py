"""An exclusive lock on a file. The operating system releases it when its owner ends."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ....state.files import make_private_folder


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of a file within the context; wait for another owner without a limit.

    Args:
        path: created if missing, with its folders. It is never removed, because two processes could then lock two files of the same name.
        on_wait: called once before a wait.
    """
    make_private_folder(path.parent)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
