"""Sources of rows for lookup joins: files, PostgreSQL, Redis, or your own."""

from .processors.lookups import (
    Cached,
    InvalidRow,
    LookupClient,
    LookupRefused,
    LookupSource,
    LookupUnreachable,
    MemoryTable,
    OnMiss,
    OnUnreachable,
)
from .state.lookup_sources import CsvTable, ParquetTable, PostgresQuery, PostgresTable, RedisForm, RedisTable

__all__ = [
    "Cached",
    "CsvTable",
    "InvalidRow",
    "LookupClient",
    "LookupRefused",
    "LookupSource",
    "LookupUnreachable",
    "MemoryTable",
    "OnMiss",
    "OnUnreachable",
    "ParquetTable",
    "PostgresQuery",
    "PostgresTable",
    "RedisForm",
    "RedisTable",
]
