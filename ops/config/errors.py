"""What is wrong with a configuration, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ...processors.errors import PenstockError


class ConfigRefused(PenstockError):
    """A configuration file cannot be read, or says what nobody understands: nothing was done; mend the file."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence that says what a mistyped name was probably to be, or what there is."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"There are: {', '.join(names)}." if names else "None can stand here."
