"""Errors of moves, by what the caller does next."""

from ...processors.errors import PenstockError


class MaintenanceRefused(PenstockError):
    """What was asked cannot be done, or not so: nothing was changed; choose otherwise."""
