"""Shipping of an app to Spark's executors, where `ShippedApp` loads it.

    Python files and packages beside the app --+
    files of its lookups ----------------------+--> an archive --> unpacked by each executor
    Penstock itself --> an archive on the import path, since Spark imports a step before it runs the step

Archives are named by a digest of their content and are reproducible, so that a context receives each of them once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pyspark import SparkContext, SparkFiles

from ...processors.apps import AppName, Contents, code_beside, files_of, path_in_bundle
from ...processors.declare import Processor
from ...processors.lookups import LookupJoin
from ...state.lookup_sources import FileTable, LaserTable, PostgresQuery, PostgresTable, RedisTable
from .prerequisites import is_local
from .shipped_app import ARCHIVE_PREFIX, HandedAddress, ShippedApp, ShippedTable

_PACKAGE = __name__.partition(".")[0]


def ship(context: SparkContext, name: AppName, processors: Iterable[type[Processor]]) -> ShippedApp:
    """Send an app to Spark's executors.

    Args:
        context: the Spark context.
        name: the app.
        processors: the processors to run, whose lookups are sent too.

    Raises:
        LookupRefused: the file of a lookup does not exist, or differs from its declaration.
    """
    path = name.path.resolve()
    code = code_beside(path)
    if is_local(context.getConf().get("spark.master", "")):
        return ShippedApp(replace(name, path=path), version=Contents(code).digest)
    joins = [processor for processor in processors if issubclass(processor, LookupJoin)]
    tables = list(_tables(joins))
    contents = Contents({**code, **{sent.file: table for sent, table in tables}})
    archive = f"{ARCHIVE_PREFIX}{contents.digest}"
    _send(Contents(_own_code()), f"{_PACKAGE}-", context.addPyFile)
    _send(contents, ARCHIVE_PREFIX, lambda sent: context.addArchive(f"{sent}#{archive}"))
    return ShippedApp(
        replace(name, path=path_in_bundle(path)),
        archive,
        contents.digest,
        (*(sent for sent, _ in tables), *_addresses(joins)),
    )


def _send(contents: Contents, prefix: str, add: Callable[[str], None]) -> None:
    """Serve an archive to every executor through Spark's file server."""
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
    """Yield the file tables. Each is loaded once, so that its errors are reported before the run starts."""
    for number, join in enumerate(joins):
        if isinstance(join.source, FileTable):
            join.source.open().close()
            path = Path(join.source.path)
            yield ShippedTable(join.name, f"tables-{number}/{path.name}"), path


def _addresses(joins: Iterable[type[LookupJoin]]) -> Iterator[HandedAddress]:
    """Yield the addresses of stores from the environment."""
    for join in joins:
        if (
            isinstance(join.source, (LaserTable, PostgresTable, PostgresQuery, RedisTable))
            and join.source.at in os.environ
        ):
            yield HandedAddress(join.name, join.source.at, os.environ[join.source.at])
