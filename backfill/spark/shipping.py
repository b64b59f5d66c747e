"""How an app comes to Spark's executors: sent with the run, and found there as `ShippedApp` says.

    Python files and packages beside the app --+
    files of its lookups ----------------------+--> an archive --> unpacked by each executor
    Penstock itself --> an archive that is imported from, since Spark imports a step before it runs it

Archives are named by their content and the same to the byte where that is the same: a context takes each of them once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pyspark import SparkContext, SparkFiles

from ...processors.declare.app_files import Contents, code_beside, files_of
from ...processors.declare.apps import AppName
from ...processors.declare.processor import Processor
from ...processors.lookups import LookupJoin
from ...state.lookup_sources import PostgresQuery, PostgresTable, RedisTable
from ...state.lookup_sources.file_tables import FileTable
from .masters import is_local
from .shipped_app import ARCHIVE_PREFIX, HandedAddress, ShippedApp, ShippedTable

_PACKAGE = __name__.partition(".")[0]


def place(context: SparkContext, name: AppName, processors: Iterable[type[Processor]]) -> ShippedApp:
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
        return ShippedApp(replace(name, path=path), state=Contents(code).digest)
    joins = [processor for processor in processors if issubclass(processor, LookupJoin)]
    tables = list(_tables(joins))
    contents = Contents({**code, **{sent.file: table for sent, table in tables}})
    archive = f"{ARCHIVE_PREFIX}{contents.digest}"
    _send(Contents(_own_code()), f"{_PACKAGE}-", context.addPyFile)
    _send(contents, ARCHIVE_PREFIX, lambda sent: context.addArchive(f"{sent}#{archive}"))
    return ShippedApp(
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


def _own_code() -> dict[str, Path]:
    folder = Path(__file__).parents[2]
    return {f"{_PACKAGE}/{path.relative_to(folder).as_posix()}": path for path in files_of(folder)}


def _tables(joins: Iterable[type[LookupJoin]]) -> Iterator[tuple[ShippedTable, Path]]:
    """Give the tables that lie in files; each is loaded once, so that what is wrong with it is said before anything runs."""
    for number, join in enumerate(joins):
        if isinstance(join.source, FileTable):
            join.source.open().close()
            path = Path(join.source.path)
            yield ShippedTable(join.name, f"tables-{number}/{path.name}"), path


def _addresses(joins: Iterable[type[LookupJoin]]) -> Iterator[HandedAddress]:
    """Give the addresses that the environment has for stores."""
    for join in joins:
        if isinstance(join.source, (PostgresTable, PostgresQuery, RedisTable)) and join.source.at in os.environ:
            yield HandedAddress(join.name, join.source.at, os.environ[join.source.at])
