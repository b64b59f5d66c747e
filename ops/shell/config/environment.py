"""`[environment]`: environment variables for commands; variables that are already set take precedence.

    PENSTOCK_LOOKUPS = "postgresql://penstock:${LOOKUPS_PASSWORD}@db/airports"

Processors read them, for instance for the addresses of lookup stores. Options have their own keys.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import ConfigRefused
from .toml_file import TomlFile
from .variables import VariableMissing, resolve

TABLE = "environment"


def checked_variables(file: TomlFile, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables in the file.

    Args:
        file: the configuration.
        options: names of options by their variables.

    Raises:
        ConfigRefused: a value is not a string, or the variable belongs to an option.
    """
    table: Mapping[str, str] = file.values.get(TABLE, {})
    for name, value in table.items():
        place = file.place((TABLE, name))
        if name in options:
            raise ConfigRefused(
                f"{place}: {name} is the variable of an option. Nothing was done. Write {options[name]} = … at the top of the file."
            )
        if not isinstance(value, str):
            raise ConfigRefused(f"{place}: {name} must be a string. Nothing was done. Correct the file.")
    return table


def set_missing_variables(file: TomlFile) -> dict[str, str]:
    """Set the missing variables; return why others stay unset, by name: they depend on an unset variable, and perhaps nothing needs them."""
    reasons: dict[str, str] = {}
    for name, value in file.values.get(TABLE, {}).items():
        if name not in os.environ:
            try:
                os.environ[name] = resolve(value, file, (TABLE, name))
            except VariableMissing as missing:
                reasons[name] = missing.reason
    return reasons
