"""An app in Spark's workers: the local file with a local master, otherwise an archive sent to the executors.

    archive --unpacked by the executor--> app file, imported by each Python worker
    lookups --> a file in the archive, or the address of a store

A worker serves several runs. Before it imports an app, it unloads the modules of earlier runs, so that no outdated module is used.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark import SparkFiles

from ...processors import AppFileError, start
from ...processors.apps import App, AppName, belongs_to_app, import_root
from ...processors.declare import Processor
from ...processors.lookups import LookupEnvironment, LookupJoin
from ..errors import BackfillFailed

ARCHIVE_PREFIX = "penstock-app-"
"""The prefix of the folders into which executors unpack apps."""


@dataclass(frozen=True)
class ShippedTable:
    """The file of a lookup in the archive.

    Args:
        processor: the processor with the lookup.
        file: the path in the archive.
    """

    processor: str
    file: str


@dataclass(frozen=True)
class HandedAddress:
    """The address of a lookup's store from the environment of the driver.

    Args:
        processor: the processor with the lookup.
        variable: the environment variable.
        address: its value. It may be a secret, and travels only in Spark's own messages.
    """

    processor: str
    variable: str
    address: str = field(repr=False)


@dataclass(frozen=True)
class ShippedApp:
    """The location of an app in a worker, and the data of its lookups.

    Args:
        name: the app; with an archive, its file is a path in the archive.
        archive: the name of the archive; None if workers share the files of this process.
        version: a digest of the code; empty if the code does not change.
        lookups: the files and addresses of lookups.
    """

    name: AppName
    archive: str | None = None
    version: str = ""
    lookups: tuple[ShippedTable | HandedAddress, ...] = ()

    def load(self) -> App:
        """Import the app in this worker, and unload other apps.

        Raises:
            BackfillFailed: a module is missing on this machine.
            AppFileError, DeclarationError: see `AppName.load`.
        """
        if self.version:
            _unload_others(self._folder, self.version)
        try:
            return replace(self.name, path=self._root / self.name.path).load()
        except AppFileError as error:
            if self.archive is not None and isinstance(error.__cause__, ModuleNotFoundError):
                raise self._missing_module(error.__cause__) from error
            raise

    def opened(self, processor: str) -> Processor:
        """Return an opened processor of the app."""
        opened = self.load().processor(processor)()
        if isinstance(opened, LookupJoin):
            for sent in self.lookups:
                if sent.processor == opened.name:
                    opened.use_environment(LookupEnvironment(source=self._source(opened.source, sent)))
        start(opened)
        return opened

    def _source(self, declared: Any, sent: ShippedTable | HandedAddress) -> Any:
        """Return the source of rows in this worker, of the declared type."""
        match sent:
            case ShippedTable():
                return replace(declared, path=str(self._root / sent.file))
            case HandedAddress():
                # This machine's environment takes precedence.
                return declared if os.environ.get(sent.variable) else replace(declared, at=sent.address)

    @property
    def _root(self) -> Path:
        return Path() if self.archive is None else Path(SparkFiles.get(self.archive))

    @property
    def _folder(self) -> Path:
        return import_root(self._root / self.name.path)

    def _missing_module(self, error: ModuleNotFoundError) -> BackfillFailed:
        return BackfillFailed(
            f"{self.name.path.name} imports {error.name}, which the executor on {socket.gethostname()} does not have ({sys.executable}). "
            "None of the output was published. Penstock sends itself and the Python files and packages in the app's folder to executors. "
            f"If {error.name} is your own, move it to that folder; otherwise install it for that Python on every machine, or send an environment "
            "(`spark.archives`, and PYSPARK_PYTHON for its Python)."
        )


_imported: dict[Path, str] = {}
"""The folders of imported apps with the versions of their code."""


def _unload_others(folder: Path, version: str) -> None:
    """Unload the modules of other apps, and of another version of this one."""
    for other in [path for path, imported in _imported.items() if (path, imported) != (folder, version)]:
        sys.path[:] = [entry for entry in sys.path if Path(entry) != other]
        for name in [name for name, module in sys.modules.items() if belongs_to_app(module, other)]:
            del sys.modules[name]
        del _imported[other]
    _imported[folder] = version
