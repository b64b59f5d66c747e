"""Files that commands write where the user says: they never replace a source file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ....processors import PenstockError
from ....processors.apps import APP_SUFFIXES
from ....state.files import replace_file


class OutputFileRefused(PenstockError):
    """The file of a command's output is a source file, such as an app that was named by mistake."""


def expect_no_source(path: Path) -> None:
    """Raise OutputFileRefused if a file of data would replace a source file."""
    if path.suffix in APP_SUFFIXES and path.is_file():
        raise OutputFileRefused(
            f"{path} is a source file, and the output would replace it. Nothing was read or written. Name another file for the output."
        )


def write_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write texts to files of a folder by name, and return their paths. Other files of the folder stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        replace_file(folder / name, text.encode(), mode=0o644)
    return [folder / name for name in files]
