"""Errors of Scuba that are not those of a query."""

from __future__ import annotations

from ....processors import PenstockError


class ScubaRefused(PenstockError):
    """Scuba cannot be served as asked: correct the options, the declaration or the file."""
