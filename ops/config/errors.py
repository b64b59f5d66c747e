"""Errors of a configuration, and suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ...processors.errors import PenstockError


class ConfigRefused(PenstockError):
    """A configuration file is unreadable or invalid. Nothing was done: correct the file."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the closest known name, or lists all."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"Known names: {', '.join(names)}." if names else "No name is allowed here."
