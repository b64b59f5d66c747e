"""C code of Penstock, which is compiled at the installation if there is a C compiler."""

from __future__ import annotations

import ctypes
from pathlib import Path


def library_obstacle(library: Path) -> str | None:
    """Return why a compiled library is not available; None if it is.

    Args:
        library: the library, beside its source.
    """
    if not library.is_file():
        return "not compiled, because the installation found no working C compiler"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return f"{library} cannot be loaded ({error})"
    return None
