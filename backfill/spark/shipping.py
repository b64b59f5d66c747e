"""How an app comes to Spark's executors: sent with the run, and found there as `PlacedApp` says.

    Python files and packages beside the app --+
    files of its lookups ----------------------+--> an archive --> unpacked by each executor
    Penstock itself --> an archive that is imported from, since Spark imports a step before it runs it

Archives are named by their content and the same to the byte where that is the same: a context takes each of them once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pyspark import SparkContext, SparkFiles

from ...processors.apps import AppName
from ...processors.kinds import Processor
from ...processors.lookups import LookupJoin
from ...state.lookups import PostgresQuery, PostgresTable, RedisTable
from ...state.lookups.file_table import FileTable
from .masters import is_local
from .placed import ARCHIVE_PREFIX, HandedAddress, PlacedApp, SentTable, belongs_to_app

_PACKAGE = __name__.partition(".")[0]
_BLOCK_BYTES = 2**20
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The least time that an archive can hold, which all its entries have."""


@dataclass(frozen=True)
class Contents:
    """Files that go into an archive.

    Args:
        files: where each is, by its path in the archive.
    """

    files: dict[str, Path]

    @cached_property
    def digest(self) -> str:
        """What tells them from others, in 16 hexadecimal digits."""
        told = sha256()
        for name, path in sorted(self.files.items()):
            told.update(f"{name}\0{path.stat().st_size}\0".encode())
            for block in _blocks(path):
                told.update(block)
        return told.hexdigest()[:16]

    def pack(self, archive: Path) -> None:
        """Write the archive."""
        with ZipFile(archive, "w", ZIP_DEFLATED) as packed:
            for name, path in sorted(self.files.items()):
                entry = ZipInfo(name, _EPOCH)
                entry.compress_type, entry.file_size = ZIP_DEFLATED, path.stat().st_size
                with packed.open(entry, "w") as target:
                    for block in _blocks(path):
                        target.write(block)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def place(context: SparkContext, name: AppName, processors: Iterable[type[Processor]]) -> PlacedApp:
    """Bring an app to where Spark runs it.

    Args:
        context: what runs it.
        name: the app.
        processors: those that are run, and need what they look up.

    Raises:
        LookupRefused: the file of a lookup is not there, or is not what is declared.
    """
    path = name.path.resolve()
    code = code_beside(path)
    if is_local(context.getConf().get("spark.master", "")):
        return PlacedApp(replace(name, path=path), state=Contents(code).digest)
    joins = [processor for processor in processors if issubclass(processor, LookupJoin)]
    tables = list(_tables(joins))
    contents = Contents({**code, **{sent.file: table for sent, table in tables}})
    archive = f"{ARCHIVE_PREFIX}{contents.digest}"
    _send(Contents(_own_code()), f"{_PACKAGE}-", context.addPyFile)
    _send(contents, ARCHIVE_PREFIX, lambda sent: context.addArchive(f"{sent}#{archive}"))
    return PlacedApp(
        replace(name, path=Path(path.name)),
        archive,
        contents.digest,
        (*(sent for sent, _ in tables), *_addresses(joins)),
    )


def _send(contents: Contents, prefix: str, add: Callable[[str], None]) -> None:
    """Let Spark's own file server give an archive to every executor."""
    folder = Path(SparkFiles.getRootDirectory(), "sent")
    folder.mkdir(exist_ok=True)
    archive = folder / f"{prefix}{contents.digest}.zip"
    if not archive.exists():
        contents.pack(archive)
        add(str(archive))


def code_beside(app: Path) -> dict[str, Path]:
    """Return what an app can import from its folder, by paths below that, the app file itself among it.

    Those are Python files, packages with all that is in them, and what else was imported from there: a folder without `__init__.py` may be
    part of the app, and may be anything.
    """
    folder = app.parent
    found = [path for path in folder.iterdir() if path.name.endswith((*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES))]
    for package in folder.iterdir():
        if package.name != _PACKAGE and (package / "__init__.py").is_file():
            found += _tree(package)
    found += [Path(str(one.__file__)) for one in list(sys.modules.values()) if belongs_to_app(one, folder)]
    return {path.relative_to(folder).as_posix(): path for path in found if path.is_file()}


def _own_code() -> dict[str, Path]:
    folder = Path(__file__).parents[2]
    return {f"{_PACKAGE}/{path.relative_to(folder).as_posix()}": path for path in _tree(folder)}


def _tree(package: Path) -> Iterator[Path]:
    """Give the files of a package, also those that links lead to, each folder once."""
    known: set[str] = set()
    for folder, inner, files in os.walk(package, followlinks=True):
        known.add(os.path.realpath(folder))
        inner[:] = [
            name for name in inner if name != "__pycache__" and os.path.realpath(Path(folder, name)) not in known
        ]
        yield from (Path(folder, name) for name in files)


def _tables(joins: Iterable[type[LookupJoin]]) -> Iterator[tuple[SentTable, Path]]:
    """Give the tables that lie in files; each is loaded once, so that what is wrong with it is said before anything runs."""
    for number, join in enumerate(joins):
        if isinstance(join.source, FileTable):
            join.source.open().close()
            path = Path(join.source.path)
            yield SentTable(join.name, f"tables-{number}/{path.name}"), path


def _addresses(joins: Iterable[type[LookupJoin]]) -> Iterator[HandedAddress]:
    """Give the addresses that the environment has for stores."""
    for join in joins:
        if isinstance(join.source, (PostgresTable, PostgresQuery, RedisTable)) and join.source.at in os.environ:
            yield HandedAddress(join.name, join.source.at, os.environ[join.source.at])
