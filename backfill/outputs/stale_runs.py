"""What runs that were killed have left in an output, and who writes there now.

<output>/_aside-<run>/_writer.json      who writes here: made first, and gone with the rest when the run ends
<output>/_aside-<run>/category=…        what it has written so far
<output>/_aside-<run>/old-category=…    what a new category is taking the place of

The next run into the output clears up after one that died on this machine; of others it cannot know, and says so.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import psutil

from ..spark.hadoop import Folders
from ..warehouse.layout import folder_of

ASIDE = "_aside-"
_OLD = "old-"
_WRITER = "_writer.json"


class RunOwner(msgspec.Struct, frozen=True):
    """A process that writes.

    Args:
        host: its machine's name.
        pid: its number there.
        begun: when it began (seconds since 1970), since numbers come again.
    """

    host: str
    pid: int
    begun: float

    @staticmethod
    def this() -> RunOwner:
        """Return this process."""
        return RunOwner(socket.gethostname(), os.getpid(), psutil.Process().create_time())

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, on this machine."""
        return self.host == socket.gethostname()

    @property
    def lives(self) -> bool:
        """Whether it is running on this machine."""
        try:
            return psutil.Process(self.pid).create_time() == self.begun
        except psutil.NoSuchProcess:
            return False


def sign(folders: Folders, aside: str, writer: RunOwner) -> None:
    """Note who is about to write in a folder."""
    folders.write(f"{aside}/{_WRITER}", msgspec.json.encode(writer))


def old_of(aside: str, category: str) -> str:
    """Return where a category is put whose place a new one takes."""
    return f"{aside}/{_OLD}{folder_of(category)}"


def clear_up(folders: Folders) -> Iterator[str]:
    """Remove what runs have left that died, and put back what they were about to replace; give what is to be said of it."""
    for name in folders.within(folders.root):
        if name.startswith(ASIDE):
            yield from _clear(folders, f"{folders.root}/{name}")


def _clear(folders: Folders, aside: str) -> Iterator[str]:
    writer = _writer_of(folders, aside)
    if writer is None or not writer.is_here:
        who = "nobody knows which run" if writer is None else f"a run on {writer.host} (process {writer.pid})"
        yield (
            f"{aside} is what {who} has written so far. Readers pass over it. If no backfill writes to this output any more, remove the folder "
            f"by hand; what it holds as {_OLD}category=… was in the output before, and may be moved back."
        )
    elif not writer.lives:
        back = list(_put_back(folders, aside))
        folders.remove(aside)
        kept = f" {', '.join(back)} was put back: the run was about to replace it." if back else ""
        yield f"{aside} was left by a run that died (process {writer.pid}), and is removed.{kept}"


def _writer_of(folders: Folders, aside: str) -> RunOwner | None:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(folders.content(f"{aside}/{_WRITER}") or b"", type=RunOwner)
    return None


def _put_back(folders: Folders, aside: str) -> Iterator[str]:
    """Give the categories that stand aside although nothing has their place."""
    for name in folders.within(aside):
        category = name.removeprefix(_OLD).removeprefix(folder_of(""))
        if name == _OLD + folder_of(category) and not folders.has(category):
            folders.move(f"{aside}/{name}", folders.of(category))
            yield category
