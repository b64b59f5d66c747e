"""Errors of a replay, by what the reader does next."""

from ...processors.errors import PenstockError


class ReplayRefused(PenstockError):
    """A replay that cannot be what was asked for: ask for another one; nothing was read."""


class ReplayStopped(PenstockError):
    """A replay that ended at an event: mend the program, or look at the event."""
