"""`${VARIABLE}` in values: environment variables, which keep secrets out of files."""

from __future__ import annotations

import os
import re
from typing import Any

from .errors import ConfigRefused

_VARIABLE = re.compile(r"\$(\$)?\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*")


class VariableMissing(ConfigRefused):
    """An environment variable in a value is not set: set it."""


def resolve(value: Any, place: str) -> Any:
    """Return a value with its variables replaced, also in tables and lists; `$${` stands for `${`.

    Args:
        value: the value in the file.
        place: its place in the file, for messages.

    Raises:
        VariableMissing: a variable is not set.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _value_of(match, place), value)
    if isinstance(value, dict):
        return {name: resolve(inner, place) for name, inner in value.items()}
    if isinstance(value, list):
        return [resolve(inner, place) for inner in value]
    return value


def variables_in(value: Any) -> list[str]:
    """Return the variables in a value, also in tables and lists."""
    if isinstance(value, str):
        return [name for escaped, name in _VARIABLE.findall(value) if not escaped]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [name for item in inner for name in variables_in(item)]


def _value_of(match: re.Match[str], place: str) -> str:
    escaped, name = match.groups()
    if escaped:
        return f"${{{name}}}"
    if not _NAME.fullmatch(name):
        raise ConfigRefused(
            f"{place}: ${{{name}}} is not a valid variable. Nothing was done. Write ${{NAME}}, or $${{ for a literal ${{."
        )
    try:
        return os.environ[name]
    except KeyError as error:
        raise VariableMissing(
            f"{place}: the environment variable {name} is not set. Nothing was done. Set it in every process with this "
            "configuration."
        ) from error
