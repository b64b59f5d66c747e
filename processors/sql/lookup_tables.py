"""Lookup tables of SQL files: rows outside of the bus, which lookup joins fetch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..declare import Record
from ..errors import PenstockError
from ..lookups import Cached, LookupSource
from .errors import SqlText
from .relations import attributes_of, column_types, duration, record_of, unknown_setting
from .statements import CreateLookup, Setting
from .types import ColumnType, SqlType

_SOURCES = {
    "csv": ("CsvTable", ("key",)),
    "parquet": ("ParquetTable", ("key",)),
    "postgres": ("PostgresTable", ("key", "at")),
    "redis": ("RedisTable", ("at",)),
    "laser": ("LaserTable", ()),
}
"""The sources by the setting that names a file, a table, a prefix or addresses: the name in penstock.lookups, and the settings that are its arguments."""
_KNOWN = (*_SOURCES, "key", "at", "cache")
_EXAMPLE = (
    "Write WITH (csv = 'airports.csv', key = 'code'); instead of csv, write parquet, postgres (a table), "
    "redis (the prefix of the keys) or laser (the addresses of its servers)."
)
_PUBLIC = __name__.partition(".processors.")[0]


@dataclass(frozen=True)
class LookupTable:
    """A lookup table.

    Args:
        name: its name in queries.
        columns: the types of its columns, by name.
        attributes: the Python names of the fields of its rows, by column.
        record: the type of its rows.
        key: the column with the key.
        source: the source of its rows.
        members: the attributes of a lookup join with this table.
    """

    name: str
    columns: Mapping[str, ColumnType]
    attributes: Mapping[str, str]
    record: type[Record]
    key: str
    source: LookupSource
    members: Mapping[str, Any]


def lookup_table(text: SqlText, statement: CreateLookup) -> LookupTable:
    """Return the table of a statement.

    Raises:
        SqlRefused: a setting is unknown or missing, or the declaration is invalid.
    """
    settings = statement.settings
    for name, setting in settings.items():
        if name not in _KNOWN:
            raise unknown_setting(text, name, setting, _KNOWN)
    kinds = [name for name in _SOURCES if name in settings]
    key = settings.get("key")
    if len(kinds) != 1 or key is None:
        raise text.refusal(statement.position, f"Lookup table {statement.name} needs one source and a key.", _EXAMPLE)
    columns = column_types(text, statement.columns, {str(key.value)})
    if key.value not in columns:
        raise text.refusal(
            key.position, f"The key of {statement.name}, {key.value}, is not one of its columns: {', '.join(columns)}."
        )
    for column in statement.columns:
        if column.type is SqlType.JSON:
            raise text.refusal(
                column.position,
                f"Column {column.name} of a lookup table cannot have the type jsonb.",
                f"Declare it as text, and convert it in queries: {column.name}::jsonb.",
            )
    attributes = attributes_of(columns)
    record = record_of(statement.name, columns, attributes)
    source = _source(text, statement, kinds[0], record)
    cache = Cached(ttl=duration(text, settings["cache"])) if "cache" in settings else None
    members = {"source": source, "cache": cache}
    return LookupTable(statement.name, columns, attributes, record, str(key.value), source, members)


def _source(text: SqlText, statement: CreateLookup, kind: str, row: type[Any]) -> LookupSource:
    name, arguments = _SOURCES[kind]
    settings: Mapping[str, Setting] = statement.settings
    given = {each: settings[each].value for each in arguments if each in settings}
    # An SQL file uses the sources under their public names, as an app in Python does: the core imports no store.
    declared: Callable[..., LookupSource] = getattr(import_module(f"{_PUBLIC}.lookups"), name)
    if "at" in settings and "at" not in arguments:
        what = "laser names its addresses itself" if kind == "laser" else f"A {kind} file has no address"
        raise text.refusal(settings["at"].position, f"{what}.", "Remove at.")
    try:
        return declared(settings[kind].value, row, **given)
    except PenstockError as error:
        raise text.refusal(statement.position, str(error)) from error
