"""Modules of apps: their files, their packages and their import.

    shop.app --found in the working folder or on the import path--> shop/app.py
    shop/app.py --imported as shop.app, because shop/ contains __init__.py--> module

A file outside of a package is imported under a name of its own, so that a changed file is imported again.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module, invalidate_caches
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from zlib import crc32

from ..errors import AppFileError, PenstockError
from ..validation import did_you_mean

if TYPE_CHECKING:
    from ..sql import SqlApp, SqlText

SQL_SUFFIX = ".sql"
APP_SUFFIXES = (".py", SQL_SUFFIX)
"""The suffixes of app files."""
APPLICATION_NAME = "__application__"
"""The attribute of a module with the name of its app; without it, that is the name of its file."""
LEGAL_CLONE = re.compile(r"[a-zA-Z0-9_-]+")
"""The names of clones."""
CLONE_MARK = "@"
"""Precedes the name of a clone, as in `shop/app.py@staging`."""
_PREFIX = "penstock_app_"
_INIT = "__init__.py"
_loading: list[Path] = []
"""The files that are being imported."""
_digests: dict[str, int] = {}
"""The checksums of imported modules in packages, by name."""


def split_clone(text: str) -> tuple[str, str | None]:
    """Split a file or module and the name of a clone, such as `shop/app.py@staging`; None without one."""
    app, mark, clone = text.rpartition(CLONE_MARK)
    is_clone = bool(app and mark) and LEGAL_CLONE.fullmatch(clone) is not None and not Path(text).is_file()
    return (app, clone) if is_clone else (text, None)


def file_of(text: str) -> Path:
    """Return the file that a user named by its path or as a module, such as `shop/app.py` or `shop.app`.

    Raises:
        AppFileError: no module has this name. A missing file is an error of `imported`.
    """
    path = Path(text)
    if path.suffix in APP_SUFFIXES or path.is_file() or not all(part.isidentifier() for part in text.split(".")):
        return path
    found = _find(text, [str(Path.cwd()), *sys.path])
    if found is None:
        raise AppFileError(
            f"There is no module {text} in {Path.cwd()} or on Python's import path.",
            f"Name a module, such as shop.app, or a file, such as shop/app.py.{_similar_module(text) or _processor_advice(text)}",
        )
    return found.relative_to(Path.cwd()) if found.is_relative_to(Path.cwd()) else found


def names_app(text: str) -> bool:
    """Return whether a text that may also name a category names an app: a `.py` file, or a dotted module below the working folder."""
    app, _ = split_clone(text.partition(":")[0])
    return app.endswith(APP_SUFFIXES) or ("." in app and _find(app, [str(Path.cwd())]) is not None)


def _find(name: str, folders: list[str]) -> Path | None:
    """Return the file of a module without importing its packages."""
    for part in name.split("."):
        spec = PathFinder.find_spec(part, folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations or ())
    origin = spec.origin if spec else None
    return Path(origin) if origin and origin.endswith(".py") else None


def _processor_advice(name: str) -> str:
    """Return a sentence for a name that a processor may have; empty for a dotted one."""
    return "" if "." in name else f" If {name} is a processor, name its app as well: shop/app.py:{name}."


def _similar_module(name: str) -> str:
    """Return a sentence with the most similar module below the working folder; empty without one."""
    folder = Path.cwd()
    files = [*folder.glob("*.py"), *(file for depth in ("*", "*/*") for file in folder.glob(f"{depth}/*.py"))]
    modules = [file.relative_to(folder).with_suffix("").parts for file in files if file.name != _INIT]
    return did_you_mean(name, [".".join(parts) for parts in modules if all(part.isidentifier() for part in parts)])


def import_root(path: Path) -> Path:
    """Return the folder from which a file is imported: its own, or the folder that contains its outermost package."""
    folder = path.absolute().parent
    while (folder / _INIT).is_file():
        folder = folder.parent
    return folder


def module_name(path: Path) -> str | None:
    """Return the dotted name of a file in a package; None outside of packages."""
    relative = path.absolute().relative_to(import_root(path)).with_suffix("")
    parts = relative.parts[:-1] if path.name == _INIT else relative.parts
    return ".".join(parts) if len(relative.parts) > 1 and all(part.isidentifier() for part in parts) else None


def is_app(module: ModuleType) -> bool:
    """Return whether a module is an imported app file outside of packages."""
    return module.__name__.startswith(_PREFIX)


def expect_not_loading(call: str) -> None:
    """Raise AppFileError if an app is being imported: a call that runs the app would import it again, without end."""
    if _loading:
        raise AppFileError(
            f"{_loading[-1]} calls {call} while it is imported.",
            f'Call it only in a script: write `if __name__ == "__main__": {call}`.',
        )


def imported(path: Path, what: str = "app file", example: str = "examples/flights/app.py") -> ModuleType:
    """Import a Python file, with its folder, or the folder of its package, on the path. A changed file is imported again.

    What the file prints meanwhile goes to standard error, because standard output is for the results of a command, such as JSON.

    Args:
        path: the file.
        what: what to call the file in errors.
        example: an example path for errors.

    Raises:
        AppFileError: the file is missing or does not import.
    """
    if not path.is_file():
        raise _missing(path, what, example)
    root = str(import_root(path).resolve())
    if sys.path[:1] != [root]:
        sys.path[:] = [root, *(folder for folder in sys.path if folder != root)]
    name = module_name(path)
    with _explained(path, what), redirect_stdout(sys.stderr):
        return _import_file(path) if name is None or path.suffix == SQL_SUFFIX else _import_from_package(path, name)


def _missing(path: Path, what: str, example: str) -> AppFileError:
    folder = path if path.is_dir() else path.parent
    similar = did_you_mean(
        str(path), [str(file) for suffix in APP_SUFFIXES for file in folder.glob(f"*{suffix}") if file.is_file()]
    )
    if path.is_dir():
        return AppFileError(
            f"{path} is a folder, not a file.", f"Name the {what} in it, such as {path / 'app.py'}.{similar}"
        )
    return AppFileError(
        f"The {what} {path} does not exist.",
        f"Give the path of a Python file, such as {example}, or a module.{similar}",
    )


def _import_file(path: Path) -> ModuleType:
    name = f"{_PREFIX}{path.stem}_{crc32(path.read_bytes(), crc32(str(path.resolve()).encode())):08x}"
    if name in sys.modules:
        return sys.modules[name]
    if path.suffix == SQL_SUFFIX:
        sys.modules[name] = _sql_module(path, name)
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppFileError(f"{path} is not a Python file.", "Give a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _sql_module(path: Path, name: str) -> ModuleType:
    """Return a module with the processors of an SQL file."""
    app = sql_app(path, name)
    module = ModuleType(name, f"The processors of {path}.")
    module.__file__ = str(path)
    vars(module)[APPLICATION_NAME] = app.name
    vars(module).update({processor.__name__: processor for processor in app.processors})
    return module


def sql_app(path: Path, module: str, further: SqlText | None = None) -> SqlApp:
    """Return the processors and tables of an SQL file.

    Args:
        path: the file.
        module: the name of the module that contains the processors.
        further: a text to compile instead, such as the file with a further statement.

    Raises:
        SqlRefused: a statement is invalid or unsupported.
        AppFileError: a file of functions is missing or does not import.
    """
    from ..sql import SqlText, compile_app  # noqa: PLC0415 - apps in Python start without the SQL parser

    def load(place: str) -> object:
        file, _, name = place.partition(":")
        functions = imported(path.parent / file, "file of functions", "udfs.py:domain")
        if not hasattr(functions, name):
            known = [each for each in vars(functions) if not each.startswith("_")]
            raise AppFileError(
                f"{path.parent / file} has no function {name!r}.",
                f"Write CREATE FUNCTION … USING 'file.py:function'.{did_you_mean(name, known)}",
            )
        return getattr(functions, name)

    return compile_app(further or SqlText.read(path), module, load)


def _import_from_package(path: Path, name: str) -> ModuleType:
    """Import a module under its own name, so that relative imports work and each module exists once."""
    digest = crc32(path.read_bytes())
    present = sys.modules.get(name)
    if present is not None and not (_is_from(present, path) and _digests.get(name, digest) == digest):
        _unload(name.partition(".")[0])
    elif present is None:
        _unload_foreign(path, name.partition(".")[0])
    invalidate_caches()
    module = import_module(name)
    _digests[name] = digest
    return module


def _is_from(module: ModuleType, path: Path) -> bool:
    return module.__file__ is not None and Path(module.__file__).resolve() == path.resolve()


def _unload_foreign(path: Path, package: str) -> None:
    """Unload a package of the same name from another folder, whose modules would be found instead."""
    present = sys.modules.get(package)
    if present is not None and not _is_from(present, import_root(path) / package / _INIT):
        _unload(package)


def _unload(package: str) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


@contextmanager
def _explained(path: Path, what: str) -> Iterator[None]:
    """Raise AppFileError for an error of the file's own code."""
    _loading.append(path)
    try:
        yield
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:
        raise AppFileError(
            f"The {what} {path} cannot be imported: {where_in(path, error)}{type(error).__name__}: {_sentence(error)}",
            _correction(path, error),
        ) from error
    finally:
        _loading.pop()


def _sentence(error: BaseException) -> str:
    """Return the message of an error with one mark at its end."""
    text = str(error).rstrip(".")
    return text if text.endswith("?") else f"{text}."


def _correction(path: Path, error: BaseException) -> str:
    """Return a sentence about what to do, after an error of a file."""
    if isinstance(error, PermissionError) and error.filename is not None and Path(error.filename) == path:
        return "Allow this user to read the file."
    return f"Correct the file and run the command again.{_import_advice(path, error)}"


def _import_advice(path: Path, error: BaseException) -> str:
    """Return a sentence about a misspelled name or a package, to append to an error; empty if neither is the reason."""
    folder = path.absolute().parent
    if (
        isinstance(error, AttributeError)
        and error.name
        and isinstance(error.obj, ModuleType)
        and "Did you mean" not in str(error)
    ):
        return did_you_mean(error.name, [name for name in dir(error.obj) if not name.startswith("_")])
    if not isinstance(error, ImportError):
        return ""
    if "relative import" in str(error) and not (folder / _INIT).exists():
        return f" Relative imports need a package: create an empty {path.parent / _INIT}."
    name = error.name or ""
    if name.partition(".")[0] == folder.name and not (folder / _INIT).exists():
        return f" {folder.name} is not a package: create an empty {path.parent / _INIT}."
    if (folder / _INIT).exists() and (folder / f"{name}.py").is_file():
        return f" {folder.name} is a package: write `from .{name} import …`."
    return ""


def where_in(path: Path, error: BaseException) -> str:
    """Return the last line of the file in the traceback of an error, as the prefix of a message."""
    line = None
    if isinstance(error, SyntaxError) and error.lineno and error.filename and Path(error.filename) == path.absolute():
        line = error.lineno
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path.absolute():
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}: " if line else ""
