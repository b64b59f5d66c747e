"""Files that settings name, checked before a client library opens them: its error would name neither the setting nor the file."""

from __future__ import annotations

from pathlib import Path


def problem_of(name: str, *, or_folder: bool = False) -> str:
    """Return why a file cannot be read, as the end of a sentence about the setting; empty if it can be read.

    Args:
        name: its name, perhaps relative to the working directory.
        or_folder: whether the name of a folder is good, too.
    """
    path = Path(name).absolute()
    try:
        if or_folder and path.is_dir():
            return ""
        with path.open("rb"):
            return ""
    except FileNotFoundError:
        return f"names the file {path}, which does not exist"
    except IsADirectoryError:
        return f"names {path}, which is a folder instead of a file"
    except (OSError, ValueError) as error:  # a ValueError for a name with a NUL
        return f"names the file {path}, which cannot be read: {getattr(error, 'strerror', None) or error}"
