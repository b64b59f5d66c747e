"""Sources of rows for lookup joins: files, PostgreSQL, Redis, or your own."""

from .processors.lookups import (
    Cached,
    CategoryTable,
    InvalidRow,
    LookupClient,
    LookupRefused,
    LookupSource,
    LookupUnreachable,
    MemoryTable,
    OnMiss,
    OnUnreachable,
)
from .state.lookup_sources import (
    CsvTable,
    LaserTable,
    ParquetTable,
    PostgresQuery,
    PostgresTable,
    RedisForm,
    RedisTable,
)

__all__ = [
    "Cached",
    "CategoryTable",
    "CsvTable",
    "InvalidRow",
    "LaserTable",
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
