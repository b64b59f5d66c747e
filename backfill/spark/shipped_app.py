"""An app as Spark's workers find it: the file itself where they share it with this process, else what was sent to them.

    archive --unpacked by the executor--> app file, imported by each Python worker
    lookups --> the rows that were sent along, or the address that was handed on

A worker serves one run after the other. What it imported for another one is forgotten before an app is imported, so that no module of
an older state of the code is met under its name.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark import SparkFiles

from ...processors.declare.app_files import belongs_to_app
from ...processors.declare.apps import App, AppName
from ...processors.declare.processor import Processor
from ...processors.errors import AppFileError
from ...processors.lookups import LookupJoin, Outside
from ..errors import BackfillFailed

ARCHIVE_PREFIX = "penstock-app-"
"""How the folders are called in which executors unpack apps."""


@dataclass(frozen=True)
class ShippedTable:
    """A lookup's file that lies in the archive.

    Args:
        processor: whose lookup.
        file: its path there.
    """

    processor: str
    file: str


@dataclass(frozen=True)
class HandedAddress:
    """A store's address, as the environment has it where the run was started.

    Args:
        processor: whose lookup asks there.
        variable: the variable that holds it.
        address: what it holds; it may be a secret, and travels in no other way than Spark's own messages.
    """

    processor: str
    variable: str
    address: str = field(repr=False)


@dataclass(frozen=True)
class ShippedApp:
    """Where a worker finds an app, and what its lookups need there.

    Args:
        name: the app; its file is a path within the archive, where there is one.
        archive: the name of the archive; None where workers see the files of this process.
        state: tells one state of the code from another; empty where it does not change.
        lookups: what was sent along for them.
    """

    name: AppName
    archive: str | None = None
    state: str = ""
    lookups: tuple[ShippedTable | HandedAddress, ...] = ()

    def load(self) -> App:
        """Import the app here, and forget what was imported of others.

        Raises:
            BackfillFailed: it needs what this machine does not have.
            AppFileError, DeclarationError: see `AppName.load`.
        """
        if self.state:
            _forget_all_but(self._folder, self.state)
        try:
            return replace(self.name, path=self._root / self.name.path).load()
        except AppFileError as error:
            if self.archive is not None and isinstance(error.__cause__, ModuleNotFoundError):
                raise self._lacking(error.__cause__) from error
            raise

    def opened(self, processor: str) -> Processor:
        """Return a processor of the app that is ready here."""
        opened = self.load().processor(processor)()
        if isinstance(opened, LookupJoin):
            for sent in self.lookups:
                if sent.processor == opened.name:
                    opened.surround(Outside(source=self._source(opened.source, sent)))
        opened.open()
        return opened

    def _source(self, declared: Any, sent: ShippedTable | HandedAddress) -> Any:
        """Return where rows are here, which is said in the way in which it is declared."""
        match sent:
            case ShippedTable():
                return replace(declared, path=str(self._root / sent.file))
            case HandedAddress():
                # What was set for this machine goes first.
                return declared if os.environ.get(sent.variable) else replace(declared, at=sent.address)

    @property
    def _root(self) -> Path:
        return Path() if self.archive is None else Path(SparkFiles.get(self.archive))

    @property
    def _folder(self) -> Path:
        return (self._root / self.name.path).parent

    def _lacking(self, error: ModuleNotFoundError) -> BackfillFailed:
        return BackfillFailed(
            f"{self.name.path.name} imports {error.name}, which the executor on {socket.gethostname()} does not have ({sys.executable}). "
            "Nothing of the output was published. Only Penstock and the Python files and packages beside the app are sent to executors. "
            f"If {error.name} is your own, put it there; else install it for that Python on every machine, or send a whole environment "
            "(`spark.archives`, and PYSPARK_PYTHON for the Python in it)."
        )


_imported: dict[Path, str] = {}
"""From which folders this worker has imported apps, and their states."""


def _forget_all_but(folder: Path, state: str) -> None:
    """Forget what was imported from other apps' folders, and from another state of this one."""
    for known in [one for one, imported in _imported.items() if (one, imported) != (folder, state)]:
        sys.path[:] = [entry for entry in sys.path if Path(entry) != known]
        for name in [name for name, module in sys.modules.items() if belongs_to_app(module, known)]:
            del sys.modules[name]
        del _imported[known]
    _imported[folder] = state
