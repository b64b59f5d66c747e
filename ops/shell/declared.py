"""Commands, configuration tables and defaults of all packages of operations, by name: one that is not used is not imported."""

from __future__ import annotations

from importlib import import_module
from typing import Any

OPERATIONS = __package__.rpartition(".")[0]


def declared(path: str) -> Any:
    """Return a thing by the names of its module and its own, such as `deploy.command:deploy`."""
    module, _, attribute = path.partition(":")
    return getattr(import_module(f".{module}", OPERATIONS), attribute)
