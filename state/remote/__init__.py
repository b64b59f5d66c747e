"""State of aggregators in a store that others can read: PostgreSQL or Redis."""

from ..errors import BadStoreAddress
from .compaction import Compactor, compactor_of
from .errors import StoreFenced, StoreLibraryMissing, StoreRefused, StoreUnreachable
from .folder import RemoteStates, remote_states
from .reading import RemoteResults, read_results

__all__ = [
    "BadStoreAddress",
    "Compactor",
    "RemoteResults",
    "RemoteStates",
    "StoreFenced",
    "StoreLibraryMissing",
    "StoreRefused",
    "StoreUnreachable",
    "compactor_of",
    "read_results",
    "remote_states",
]
