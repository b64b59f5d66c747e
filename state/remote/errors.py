"""Errors of remote stores, by the caller's next step."""

from ..errors import StateError


class StoreFenced(StateError):
    """Another worker owns the shard, or the store lost a save: discard unsaved changes, and open the shard again."""


class StoreMoved(StateError):
    """The shard's position differs from the position of the computed values: compute them again."""


class StoreUnreachable(StateError):
    """The store does not answer within a call's time limit: close the shard, and open it again until it answers."""


class StoreRefused(StateError):
    """The store refuses the user or the request: fix the address or the permissions, then start again."""


class StoreLibraryMissing(StateError):
    """The client library of the store is not installed: install it."""


class StoreInterrupted(StateError):
    """One attempt failed with an unknown outcome, and may succeed if repeated. Internal to this package."""
