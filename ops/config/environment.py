"""`[environment]`: variables for what a command runs, where they are not set already.

    PENSTOCK_LOOKUPS = "postgresql://penstock:${LOOKUPS_PASSWORD}@db/airports"

They are what processors themselves ask for, such as addresses of the stores of lookup joins; options have keys of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from .errors import ConfigRefused
from .toml_file import TomlFile
from .variables import VariableMissing, resolved

TABLE = "environment"


def checked(file: TomlFile, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables as the file has them.

    Args:
        file: the configuration.
        options: names of options by the variables that give them.

    Raises:
        ConfigRefused: one is no text, or is that of an option.
    """
    table: Mapping[str, str] = file.values.get(TABLE, {})
    for name, value in table.items():
        place = file.place((TABLE, name))
        if name in options:
            raise ConfigRefused(
                f"{place}: {name} is the variable of an option; write {options[name]} = … at the top of the file. Nothing was done."
            )
        if not isinstance(value, str):
            raise ConfigRefused(
                f"{place}: {name} is to be a text, as all variables are. Nothing was done; mend it there."
            )
    return table


def fill(file: TomlFile) -> None:
    """Set what is not set; nothing for one that depends on a variable that is not: who asks for it says so."""
    for name, value in file.values.get(TABLE, {}).items():
        with suppress(VariableMissing):
            os.environ.setdefault(name, resolved(value, file.place((TABLE, name))))
