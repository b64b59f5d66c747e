"""A function of the user's, named as FILE:FUNCTION, that says what a state becomes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...processors.declare.apps import imported, where_in
from ...processors.errors import AppFileError

EXAMPLE = "def upgraded(key, state): return {...}"


@dataclass(frozen=True)
class StateFunction:
    """A function that is given a key and its state, and returns what that becomes; None for nothing.

    Args:
        path: the file that it is in.
        name: what it is called there.
        call: itself.
    """

    path: Path
    name: str
    call: Callable[[str, Any], Any]

    def __str__(self) -> str:
        return f"{self.path}:{self.name}"

    def where(self, error: Exception) -> str:
        """Return in which line of its file an error was raised, as the beginning of what is said of it."""
        return where_in(self.path, error)


def function_named(text: str) -> StateFunction:
    """Return the function that a user named.

    Args:
        text: `upgrade.py:to_seen`.

    Raises:
        AppFileError: there is none, or it does not take a key and a state.
    """
    file, _, name = text.rpartition(":")
    if not file or not name:
        raise AppFileError(
            f"--by {text}: name a function as FILE:FUNCTION, such as upgrade.py:upgraded, with `{EXAMPLE}` in that file."
        )
    path = Path(file)
    call = getattr(imported(path, "file", "upgrade.py"), name, None)
    if not callable(call):
        raise AppFileError(f"There is no function {name!r} in {path}. Write one: `{EXAMPLE}`.")
    if not _takes_two(call):
        raise AppFileError(
            f"{path}:{name} does not take a key and a state, which is what it is given. Write it as `{EXAMPLE}`."
        )
    return StateFunction(path, name, call)


def _takes_two(call: Callable[..., Any]) -> bool:
    try:
        inspect.signature(call).bind("key", None)
    except TypeError:
        return False
    except ValueError:
        return True  # it does not say what it takes
    return True
