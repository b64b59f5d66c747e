"""Errors of a replay, by the reader's next step."""

from ....processors import PenstockError


class ReplayRefused(PenstockError):
    """The replay is not possible with these options. Nothing was read: choose others."""


class ReplayStopped(PenstockError):
    """The replay stopped at an event: correct the program, or inspect the event."""
