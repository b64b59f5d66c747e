"""Output folder of a batch run: written to a temporary folder, then published by a rename.

<output>/_aside-<run>/_writer.json      the process that writes; created first and removed with the folder
<output>/_aside-<run>/category=…/ds=…   written so far
<output>/_aside-<run>/old-category=…    a published category that is being replaced
<output>/category=…/ds=…                published after the last processor that writes the category

The next run into the same output removes the folder of a run that crashed on this machine. It cannot check runs on other machines, and
logs them instead.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from uuid import uuid4

import msgspec
import psutil
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from ...processors.declare import Processor
from ...state.files import FileStore
from ..errors import BackfillRefused
from ..spark import Folders
from ..warehouse import DAY_COLUMN, SUCCESS, Days, folder_of
from .output_blocks import OutputBlocks

_LOG = logging.getLogger("penstock.backfill")


class OutputFolder:
    """The output of one batch run.

    Args:
        folders: the category folders of the output.
        files: the store of the output, for tasks.
        overwrite: replace existing categories.
        writer: the writing process; None for this one.
    """

    def __init__(self, folders: Folders, files: FileStore, *, overwrite: bool, writer: RunOwner | None = None) -> None:
        self._folders = folders
        self._files = files
        self._overwrite = overwrite
        self._writer = writer or RunOwner.this()
        self._name = f"{TEMPORARY}{uuid4().hex}"
        self._aside = f"{folders.root}/{self._name}"
        self.published: set[str] = set()

    def begin(self, categories: Iterable[str]) -> None:
        """Remove the folders of crashed runs, refuse to overwrite, and write the owner of the temporary folder.

        Raises:
            BackfillRefused: a category would be overwritten; nothing was started.
        """
        for message in remove_stale_runs(self._folders):
            _LOG.warning("%s", message)
        self._refuse_existing(categories)
        write_owner(self._folders, self._aside, self._writer)

    def _refuse_existing(self, categories: Iterable[str]) -> None:
        existing = [] if self._overwrite else [name for name in categories if self._folders.has(name)]
        if existing:
            raise BackfillRefused(
                f"{self._folders.root} already has {', '.join(sorted(set(existing)))}. Nothing was started or "
                "changed. Choose another output folder, or pass `--overwrite`."
            )

    def add(self, processor: type[Processor], blocks: DataFrame) -> None:
        """Compute the outputs of a processor, and append them to the temporary folders of its categories and sinks, by day."""
        outputs = OutputBlocks.of(processor)
        for name in outputs.names:  # a category without outputs has a folder, too
            self._folders.write(f"{self.aside(name)}/{SUCCESS}", b"")
        outputs.write(blocks, self._files, self._name)

    def aside(self, category: str) -> str:
        """Return the temporary folder of a category."""
        return f"{self._aside}/{folder_of(category)}"

    def keep(self, category: str, days: Days) -> None:
        """Remove all but some days of a category before it is published."""
        for name in self._folders.within(self.aside(category)):
            day = name.removeprefix(f"{DAY_COLUMN}=")
            if day != name and not str(days.first) <= day <= str(days.last):
                self._folders.remove(f"{self.aside(category)}/{name}")

    def publish(self, category: str) -> None:
        """Publish a category."""
        place = self._folders.of(category)
        if self._folders.has(category):
            self._folders.move(place, replaced_folder(self._aside, category))
        self._folders.move(self.aside(category), place)
        self.published.add(category)

    def discard(self) -> None:
        """Remove unpublished and replaced categories."""
        try:
            self._folders.remove(self._aside)
        except Py4JError:  # logged, so that the error of the run is raised
            _LOG.warning("%s could not be removed; readers ignore it, and it can be removed manually", self._aside)


TEMPORARY = "_aside-"


_OLD = "old-"


_WRITER = "_writer.json"


class RunOwner(msgspec.Struct, frozen=True):
    """The process that writes to a temporary folder.

    Args:
        host: the name of its machine.
        pid: its process id.
        begun: when it started (seconds since 1970), since process ids are reused.
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
        """Whether the process belongs to this machine."""
        return self.host == socket.gethostname()

    @property
    def lives(self) -> bool:
        """Whether the process is running on this machine."""
        try:
            return psutil.Process(self.pid).create_time() == self.begun
        except psutil.NoSuchProcess:
            return False


def write_owner(folders: Folders, aside: str, writer: RunOwner) -> None:
    """Write the owner of a temporary folder."""
    folders.write(f"{aside}/{_WRITER}", msgspec.json.encode(writer))


def replaced_folder(aside: str, category: str) -> str:
    """Return the temporary location of a category while it is replaced."""
    return f"{aside}/{_OLD}{folder_of(category)}"


def remove_stale_runs(folders: Folders) -> Iterator[str]:
    """Remove the folders of crashed runs and restore categories that they were replacing; yield a message for each folder."""
    for name in folders.within(folders.root):
        if name.startswith(TEMPORARY):
            yield from _clear(folders, f"{folders.root}/{name}")


def _clear(folders: Folders, aside: str) -> Iterator[str]:
    writer = _writer_of(folders, aside)
    if writer is None or not writer.is_here:
        run = "an unknown run" if writer is None else f"a run on {writer.host} (process {writer.pid})"
        yield (
            f"{aside} is the temporary folder of {run}. Readers ignore it. If no backfill writes to this output, remove it manually. A folder "
            f"{_OLD}category=… in it was in the output before and can be moved back."
        )
    elif not writer.lives:
        categories = list(_restore(folders, aside))
        folders.remove(aside)
        restored = f" {', '.join(categories)} was restored: the run was replacing it." if categories else ""
        yield f"{aside} belonged to a crashed run (process {writer.pid}) and was removed.{restored}"


def _writer_of(folders: Folders, aside: str) -> RunOwner | None:
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(folders.content(f"{aside}/{_WRITER}") or b"", type=RunOwner)
    return None


def _restore(folders: Folders, aside: str) -> Iterator[str]:
    """Move back replaced categories without a successor; yield their names."""
    for name in folders.within(aside):
        category = name.removeprefix(_OLD).removeprefix(folder_of(""))
        if name == _OLD + folder_of(category) and not folders.has(category):
            folders.move(f"{aside}/{name}", folders.of(category))
            yield category
