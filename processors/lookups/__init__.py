"""Lookup joins: enrich events with rows from outside the bus, one request per batch.

    event --key_of--> key --cache or source--> row --join--> outputs

The sources that read files and stores are in `state.lookup_sources`.
"""

from .cache import Cached
from .category_table import CategoryTable
from .lookup import LookupEnvironment, LookupMetrics, OnUnreachable
from .lookup_join import LookupJoin, OnMiss
from .memory_table import MemoryTable
from .protocols import (
    InvalidRow,
    LookupClient,
    LookupRefused,
    LookupSource,
    LookupUnreachable,
    PreloadedTable,
    TableSize,
)

__all__ = [
    "Cached",
    "CategoryTable",
    "InvalidRow",
    "LookupClient",
    "LookupEnvironment",
    "LookupJoin",
    "LookupMetrics",
    "LookupRefused",
    "LookupSource",
    "LookupUnreachable",
    "MemoryTable",
    "OnMiss",
    "OnUnreachable",
    "PreloadedTable",
    "TableSize",
]
