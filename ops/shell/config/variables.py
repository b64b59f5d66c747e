"""`${VARIABLE}` in values: environment variables, which keep secrets out of files."""

from __future__ import annotations

import os
import re
from typing import Any

from .errors import ConfigRefused
from .toml_file import Keys, TomlFile

_VARIABLE = re.compile(r"\$(\$)?\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_]\w*")


class VariableMissing(ConfigRefused):
    """An environment variable in a value is not set: set it.

    Args:
        reason: a sentence with the place, the setting and the variable, for a command that needs the value later.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason} Nothing was done. Set it in every process with this configuration.")
        self.reason = reason


def resolve(value: Any, file: TomlFile, keys: Keys) -> Any:
    """Return a value with its variables replaced, also in tables and lists; `$${` stands for `${`.

    Args:
        value: the value, as written.
        file: the file that contains it, for messages.
        keys: its keys in the file.

    Raises:
        VariableMissing: a variable is not set.
    """
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _value_of(match, file, keys), value)
    if isinstance(value, dict):
        return {name: resolve(inner, file, (*keys, name)) for name, inner in value.items()}
    if isinstance(value, list):
        return [resolve(inner, file, keys) for inner in value]
    return value


def variables_in(value: Any) -> list[str]:
    """Return the variables in a value, also in tables and lists."""
    if isinstance(value, str):
        return [name for escaped, name in _VARIABLE.findall(value) if not escaped]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [name for item in inner for name in variables_in(item)]


def _value_of(match: re.Match[str], file: TomlFile, keys: Keys) -> str:
    escaped, name = match.groups()
    if escaped:
        return f"${{{name}}}"
    if not _NAME.fullmatch(name):
        raise ConfigRefused(
            f"{file.place(keys)}: ${{{name}}} is not a valid variable. Nothing was done. Write ${{NAME}}, or $${{ for a literal ${{."
        )
    try:
        return os.environ[name]
    except KeyError as error:
        *tables, setting = keys
        table = f" in [{'.'.join(tables)}]" if tables else ""
        raise VariableMissing(
            f"{file.place(keys)}: {setting}{table} needs the environment variable {name}, which is not set."
        ) from error
