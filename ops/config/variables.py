"""`${VARIABLE}` in values: what the environment has, so that secrets need not stand in files."""

from __future__ import annotations

import os
import re
from typing import Any

from .errors import ConfigRefused

_VARIABLE = re.compile(r"\$(\$)?\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*")


class VariableMissing(ConfigRefused):
    """A variable of the environment that is to stand somewhere is not set: set it."""


def resolved(value: Any, place: str) -> Any:
    """Return a value with its variables replaced, in tables and lists as well; `$${` stands for `${`.

    Args:
        value: as the file has it.
        place: where it stands, for messages.

    Raises:
        VariableMissing: a variable is not set.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _of_environment(found, place), value)
    if isinstance(value, dict):
        return {name: resolved(inner, place) for name, inner in value.items()}
    if isinstance(value, list):
        return [resolved(inner, place) for inner in value]
    return value


def variables_in(value: Any) -> list[str]:
    """Return the variables that a value, or what is within it, depends on."""
    if isinstance(value, str):
        return [name for escaped, name in _VARIABLE.findall(value) if not escaped]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [name for one in inner for name in variables_in(one)]


def _of_environment(found: re.Match[str], place: str) -> str:
    escaped, name = found.groups()
    if escaped:
        return f"${{{name}}}"
    if not _NAME.fullmatch(name):
        raise ConfigRefused(
            f"{place}: ${{{name}}} names no variable of the environment; write ${{NAME}}, or $${{ for the characters themselves. "
            "Nothing was done."
        )
    try:
        return os.environ[name]
    except KeyError as error:
        raise VariableMissing(
            f"{place}: the variable {name} of the environment, which is to stand there, is not set. Nothing was done; set it, in every "
            "process that is started with this configuration."
        ) from error
