"""Lookups: events are given rows that lie outside of every category, fetched by the batch.

    event --key_of--> key --cache, or the source--> row --join--> outputs

Here is what does not depend on where the rows are; the sources that read files and ask stores are in `state.lookups`.
"""

from .cache import Cached
from .lookup import LookedUp, OnUnreachable, Outside
from .lookup_join import LookupJoin, OnMiss
from .memory_table import MemoryTable
from .protocols import InvalidRow, LookupClient, LookupRefused, LookupSource, LookupUnreachable, PreloadedTable

__all__ = [
    "Cached",
    "InvalidRow",
    "LookedUp",
    "LookupClient",
    "LookupJoin",
    "LookupRefused",
    "LookupSource",
    "LookupUnreachable",
    "MemoryTable",
    "OnMiss",
    "OnUnreachable",
    "Outside",
    "PreloadedTable",
]
