"""Penstock: stream processors on Kafka that also run, unchanged, as Spark batch jobs."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # without the import of `typing`, during which Ctrl-C would print a traceback
__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from .api import *  # noqa: F403 - all public names
    from .api import __all__ as __all__


def __getattr__(name: str) -> Any:
    """Import the public names at their first use: commands that need none of them start faster."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    api = import_module(".api", __name__)
    names = {"__all__": api.__all__, **{each: getattr(api, each) for each in api.__all__}}
    globals().update(names)
    if name in names:
        return names[name]
    suggestion = import_module(".processors.validation", __name__).did_you_mean(name, api.__all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{suggestion}")


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))
