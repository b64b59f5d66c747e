"""Errors of a configuration."""

from __future__ import annotations

from ....processors import PenstockError


class ConfigRefused(PenstockError):
    """A configuration file is unreadable or invalid. Nothing was done: correct the file."""
