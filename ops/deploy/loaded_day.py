"""The day of a warehouse table that a server has loaded, in the files of its deployment."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

LOADED = "loaded.json"
"""The file with the served day, in the folder of a table's databases."""


class LoadedDay(msgspec.Struct, frozen=True):
    """The day in a database, the folder of the database, and the columns of its pairs."""

    day: str
    folder: str
    listing: dict[str, str]
    key: tuple[str, ...]
    value: tuple[str, ...]
    is_text: bool


def databases_folder(state: Path, deployment: str) -> Path:
    """Return the folder with the databases of a table.

    Args:
        state: the folder of states.
        deployment: the name of the server, such as laser.tops.1.
    """
    return state / deployment / "days"


def loaded_day(databases: Path) -> LoadedDay | None:
    """Return the loaded day of a table; None before the first.

    Args:
        databases: the folder of its databases.
    """
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((databases / LOADED).read_bytes(), type=LoadedDay)
    return None
