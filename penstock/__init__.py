"""Penstock: stream processors on Kafka that also run, unchanged, as Spark batch jobs."""

from __future__ import annotations

import os
from importlib import import_module

TYPE_CHECKING = False  # without the import of `typing`, during which Ctrl-C would print a traceback
__version__ = "0.1.0"

if not os.path.isdir(os.path.join(__path__[0], "ops")):  # noqa: PTH112, PTH118 - as above
    # In a checkout without symbolic links (on Windows, or from some archives), the folders of the package are beside this one.
    __path__.append(os.path.dirname(__path__[0]))  # noqa: PTH120

if TYPE_CHECKING:
    from typing import Any

    from .api import *  # noqa: F403 - all public names
    from .api import __all__ as __all__


_LARGE = {"codecs": "codecs", "lookups": "lookups", "LaserTable": "lookups", "sinks": "sinks"}
"""Names that most apps do not use, with their modules, whose imports take a tenth of the start of a worker."""

_MODULES = ("monoids", "windows", "watermarks", "lookups", "sinks", "codecs", "metadata")
"""The public modules in which a newcomer may miss a name."""


def __getattr__(name: str) -> Any:
    """Import the public names at their first use: commands and apps that need none of them start faster."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _LARGE:
        module = import_module(f".{_LARGE[name]}", __name__)
        return module if name == _LARGE[name] else getattr(module, name)
    api = import_module(".api", __name__)
    names = {"__all__": api.__all__, **{each: getattr(api, each) for each in api.__all__ if each not in _LARGE}}
    globals().update(names)
    if name in names:
        return names[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{_suggestion(name, api.__all__)}")


def _suggestion(name: str, public: list[str]) -> str:
    """Return the place of a name that one of the public modules has, or a similar public name."""
    for module in _MODULES:
        if name in import_module(f".{module}", __name__).__all__:
            return f" It is `{__name__}.{module}.{name}`."
    similar: str = import_module(".processors.validation", __name__).did_you_mean(name, public)
    return similar


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))
