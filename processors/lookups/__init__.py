"""Lookups: events are given rows that lie outside of every category, fetched by the batch.

    event --key_of--> key --cache, or the source--> row --join--> outputs

Here is what does not depend on where the rows are; the sources that read files and ask stores are in `state.lookups`.
"""

from .asking import LookedUp, OnUnreachable, Outside
from .caching import Cached
from .kind import LookupJoin, OnMiss
from .memory import MemoryTable
from .seam import HeldWhole, LookupRefused, LookupUnreachable, Rows, Source, UnfitRow

__all__ = [
    "Cached",
    "HeldWhole",
    "LookedUp",
    "LookupJoin",
    "LookupRefused",
    "LookupUnreachable",
    "MemoryTable",
    "OnMiss",
    "OnUnreachable",
    "Outside",
    "Rows",
    "Source",
    "UnfitRow",
]
