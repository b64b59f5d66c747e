"""Errors of the state store, by what the caller does next."""

from ..processors.errors import PenstockError


class StateError(PenstockError):
    """State cannot be opened, read or written; what was saved before is untouched."""


class StateInUse(StateError):
    """Another process has a shard's state open: wait for it, or stop it."""


class ForeignState(StateError):
    """The folder holds state of another processor, bucket, shape or format: nothing in it was changed."""


class StateUnwritable(StateError):
    """The disk or the folder refuses: make room or give access, then start again."""


class StateDamaged(StateError):
    """Checksums do not fit: put the folder away, a backup or the bus gives the state back."""
