"""The files that make up an app: what is sent or kept together, so that its code runs elsewhere or later as it runs here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from types import ModuleType
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from .apps import is_app

_PACKAGE = __name__.partition(".")[0]
_BLOCK_BYTES = 2**20
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The least time that an archive can hold, which all its entries have."""


@dataclass(frozen=True)
class Contents:
    """Files that go together.

    Args:
        files: where each is, by its path among them.
    """

    files: dict[str, Path]

    @cached_property
    def digest(self) -> str:
        """What tells them from others, in 16 hexadecimal digits."""
        told = sha256()
        for name, path in sorted(self.files.items()):
            told.update(f"{name}\0{path.stat().st_size}\0".encode())
            for block in _blocks(path):
                told.update(block)
        return told.hexdigest()[:16]

    def pack(self, archive: Path) -> None:
        """Write an archive of them; the same to the byte where they are the same."""
        with ZipFile(archive, "w", ZIP_DEFLATED) as packed:
            for name, path in sorted(self.files.items()):
                entry = ZipInfo(name, _EPOCH)
                entry.compress_type, entry.file_size = ZIP_DEFLATED, path.stat().st_size
                with packed.open(entry, "w") as target:
                    for block in _blocks(path):
                        target.write(block)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def code_beside(app: Path) -> dict[str, Path]:
    """Return what an app can import from its folder, by paths below that, the app file itself among it.

    Those are Python files, packages with all that is in them, and what else was imported from there: a folder without `__init__.py` may be
    part of the app, and may be anything.
    """
    folder = app.parent
    found = [path for path in folder.iterdir() if path.name.endswith((*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES))]
    for package in folder.iterdir():
        if package.name != _PACKAGE and (package / "__init__.py").is_file():
            found += files_of(package)
    found += [Path(str(one.__file__)) for one in list(sys.modules.values()) if belongs_to_app(one, folder)]
    return {path.relative_to(folder).as_posix(): path for path in found if path.is_file()}


def files_of(package: Path) -> Iterator[Path]:
    """Give the files of a package, also those that links lead to, each folder once."""
    known: set[str] = set()
    for folder, inner, files in os.walk(package, followlinks=True):
        known.add(os.path.realpath(folder))
        inner[:] = [
            name for name in inner if name != "__pycache__" and os.path.realpath(Path(folder, name)) not in known
        ]
        yield from (Path(folder, name) for name in files)


def belongs_to_app(module: ModuleType, folder: Path) -> bool:
    """Tell whether a module is an app's in a folder, or was imported from beside it; an environment that lies there is neither."""
    top = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None)
    if not file or top == _PACKAGE or not Path(file).is_relative_to(folder):
        return False
    beside = Path(file).relative_to(folder).parts[0].partition(".")[0]
    return beside == top or is_app(module)
