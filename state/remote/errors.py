"""Errors of remote stores, by what the caller does next."""

from ..errors import StateError


class StoreFenced(StateError):
    """Somebody else owns the shard now, or the store lost what we saved: drop what is not saved, and open the shard again."""


class StoreMoved(StateError):
    """The shard has counted other events than those that were computed: compute anew."""


class StoreUnreachable(StateError):
    """The store gave no answer for as long as one call waits: close the shard, and open it again, until it answers."""


class StoreRefused(StateError):
    """The store answers, but does not let us in or do our work: mend the address or the rights, then start again."""


class StoreLibraryMissing(StateError):
    """The client library of this kind of store is not installed: install it."""


class StoreInterrupted(StateError):
    """One attempt failed and may succeed when it is repeated; what it wrote is unknown. Does not leave this package."""
