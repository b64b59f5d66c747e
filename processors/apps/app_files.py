"""Code bundles: the files of an app, for deployments and clusters."""

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

from .app_modules import APP_SUFFIXES, import_root, is_app

_PACKAGE = __name__.partition(".")[0]
_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""The names of folders with installed packages."""
_BLOCK_BYTES = 2**20
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of all archive entries: the earliest that the ZIP format allows."""


@dataclass(frozen=True)
class Contents:
    """A set of files.

    Args:
        files: the location of each file, by its path in the bundle.
    """

    files: dict[str, Path]

    @cached_property
    def digest(self) -> str:
        """A hash of names and contents: 16 hexadecimal digits."""
        digest = sha256()
        for name, path in sorted(self.files.items()):
            digest.update(f"{name}\0{path.stat().st_size}\0".encode())
            for block in _blocks(path):
                digest.update(block)
        return digest.hexdigest()[:16]

    def pack(self, archive: Path) -> None:
        """Write the files to a ZIP archive. Equal files produce an identical archive."""
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
    """Return the files that an app can import from its folder, including the app file, by relative path.

    These are Python files, packages with all their files, and other modules already imported from the folder. A folder without `__init__.py`
    counts only if one of its modules was imported. The folder of an app in a package is the one that contains the package. Of an installed
    app, only its package counts: deployments and executors install the others.
    """
    folder = import_root(app)
    if folder.name in _INSTALLED:
        package = folder / app.absolute().relative_to(folder).parts[0]
        found = [app.absolute()] if package.is_file() else list(files_of(package))
    else:
        found = _files_in(folder)
    return {path.relative_to(folder).as_posix(): path for path in found if path.is_file()}


def path_in_bundle(app: Path) -> Path:
    """Return the path of an app file in its code bundle."""
    return app.absolute().relative_to(import_root(app))


def _files_in(folder: Path) -> list[Path]:
    found = [
        path for path in folder.iterdir() if path.name.endswith((*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES, *APP_SUFFIXES))
    ]
    for package in folder.iterdir():
        if package.name != _PACKAGE and (package / "__init__.py").is_file():
            found += files_of(package)
    return found + [Path(str(one.__file__)) for one in list(sys.modules.values()) if belongs_to_app(one, folder)]


def files_of(package: Path) -> Iterator[Path]:
    """Yield the files of a package. Symbolic links are followed, each folder once."""
    known: set[str] = set()
    for folder, inner, files in os.walk(package, followlinks=True):
        known.add(os.path.realpath(folder))
        inner[:] = [
            name for name in inner if name != "__pycache__" and os.path.realpath(Path(folder, name)) not in known
        ]
        yield from (Path(folder, name) for name in files)


def belongs_to_app(module: ModuleType, folder: Path) -> bool:
    """Return whether a module was imported from the app's folder. Modules of a virtual environment inside the folder do not count."""
    top = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None)
    if not file or top == _PACKAGE or not Path(file).is_relative_to(folder):
        return False
    beside = Path(file).relative_to(folder).parts[0].partition(".")[0]
    return beside == top or is_app(module)
