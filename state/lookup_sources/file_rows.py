"""A file that is held whole, and loaded again when it is another: written anew, or replaced by renaming.

asked --is it the file that was loaded?--> rows
             no --> loaded --> its rows, from now on
                --> does not load --> the older rows, told once and counted, until it is another again
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...processors.errors import PenstockError
from ...processors.lookups import LookupRefused, PreloadedTable

_LOG = logging.getLogger("penstock.lookups")

Load = Callable[[bytes], Mapping[str, Any]]
"""Makes rows by key of what is in a file; raises PenstockError where it cannot."""


class _Stamp(NamedTuple):
    """What tells a file from what was there before; zeros where there is none."""

    inode: int
    size: int
    modified_ns: int


class FileRows(PreloadedTable):
    """The rows of a file. One thread.

    Args:
        path: where it is.
        load: makes rows of it.
    """

    def __init__(self, path: Path, load: Load) -> None:
        self._path = path
        self._load = load
        self._stamp = _stamp_of(path)
        self._rows: Mapping[str, Any] = {}
        self._failed_loads = 0

    @property
    def failed_loads(self) -> int:
        """How often the file was another and did not load."""
        return self._failed_loads

    def load(self) -> None:
        """Load the file.

        Raises:
            LookupRefused: it is not there, cannot be read, or its rows cannot be understood.
        """
        # Looked at before it is read: what is written meanwhile shows at the next look.
        self._stamp = _stamp_of(self._path)
        try:
            self._rows = self._load(self._path.read_bytes())
        except OSError as error:
            raise LookupRefused(
                f"The table {self._path} cannot be read: {error.strerror or error}. Nothing was looked up; put the file there, with "
                "a path that holds on every machine that processes events."
            ) from error
        except PenstockError as error:
            raise LookupRefused(f"{str(error).rstrip('.')}.") from error

    def fetch(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return the row of each key that has one, of the file as it is now."""
        if _stamp_of(self._path) != self._stamp:
            self._load_again()
        rows = self._rows
        return {key: rows[key] for key in keys if key in rows}

    def _load_again(self) -> None:
        try:
            self.load()
        except LookupRefused as error:
            self._failed_loads += 1
            _LOG.warning("%s The %d rows that were loaded before stay in use.", error, len(self._rows))
        else:
            _LOG.info("%s is another file now, with %d rows.", self._path, len(self._rows))

    def close(self) -> None:
        """Do nothing: nothing stays open."""


def _stamp_of(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return _Stamp(0, 0, 0)
    return _Stamp(found.st_ino, found.st_size, found.st_mtime_ns)
