"""The recipe of a container image for an app: a Containerfile, what its build may read, and locked requirements.

app --imports--> distributions --pip resolves--> requirements.lock     each with its version here, and the hash of its file
image/*.tmpl --placeholders replaced--> Containerfile, .dockerignore

The image has `penstock-core`, because workers need no Spark. The app's own code is copied, not installed, so the build needs no build tools.
"""

from __future__ import annotations

import ast
import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .... import __version__
from ....processors import PenstockError
from ....processors.apps import code_beside, import_root, module_name, path_in_bundle
from ...shell import TomlFile
from .filling import filled

_FOLDER = Path(__file__).parent / "image"
_LOCK = "requirements.lock"
_PENSTOCK = re.compile(r"penstock(?:-core)?(?![\w-])")
USER = 1000
"""The user and the group of the image, which are those of the pods on Kubernetes."""
RESOLVE_LIMIT_S = 600.0


class ImageRefused(PenstockError):
    """The recipe of an image cannot be written. No file was changed."""


@dataclass(frozen=True)
class ImageRecipe:
    """The files of a recipe, by their names in the folder of the build.

    Args:
        folder: the folder of the build: the one from which the app is imported.
        files: the contents.
    """

    folder: Path
    files: Mapping[str, str]

    def changed(self) -> list[str]:
        """Return the names of existing files with another content."""
        return [
            name
            for name, text in self.files.items()
            if (path := self.folder / name).exists() and path.read_text(encoding="utf-8") != text
        ]

    def write(self) -> list[Path]:
        """Write the files, and the folder of wheels, and return their paths."""
        written = []
        for name, text in self.files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
        (self.folder / "wheels").mkdir(exist_ok=True)
        return written


def image_recipe(app: Path, lock: str | None, base: str | None = None) -> ImageRecipe:
    """Return the recipe for an app.

    Args:
        app: the app file.
        lock: the locked requirements, as in requirements.lock; None if they are not known yet.
        base: the base image; None for the slim image of this Python.
    """
    folder = import_root(app)
    names = sorted({Path(name).parts[0] for name in code_beside(app)})
    values = {
        "app": module_name(app) or path_in_bundle(app).as_posix(),
        "base": base or f"python:{sys.version_info.major}.{sys.version_info.minor}-slim",
        "user": str(USER),
        "copies": "\n".join(f"COPY {name} ./{name}" for name in names),
        "kept": "\n".join(f"!{name}" for name in names),
    }
    files = {
        name: filled((_FOLDER / f"{source}.tmpl").read_text(encoding="utf-8"), values)
        for name, source in _SOURCES.items()
    }
    return ImageRecipe(folder, files if lock is None else {**files, _LOCK: lock})


_SOURCES = {"Containerfile": "Containerfile", ".dockerignore": "dot_dockerignore"}


def existing_lock(app: Path) -> str | None:
    """Return the content of the app's requirements.lock; None without one."""
    path = import_root(app) / _LOCK
    return path.read_text(encoding="utf-8") if path.exists() else None


def requirements_of(app: Path, extras: Iterable[str]) -> list[str]:
    """Return what an image of an app must contain: Penstock with extras, and the app's own dependencies.

    They are the dependencies in its pyproject.toml; without one, the distributions that its files import, in the versions that are installed.

    Raises:
        ImageRefused: a file imports a module that no installed distribution has.
    """
    project = import_root(app) / "pyproject.toml"
    declared = list(_declared(project)) if project.exists() else list(_imported(app))
    chosen = {*extras, *(extra for each in declared if _PENSTOCK.match(each) for extra in _extras(each))}
    penstock = f"penstock-core[{','.join(sorted(chosen))}]" if chosen else "penstock-core"
    return [f"{penstock}=={__version__}", *(each for each in declared if not _PENSTOCK.match(each))]


def _declared(project: Path) -> Iterator[str]:
    found = TomlFile.read(project).values.get("project", {}).get("dependencies", [])
    yield from (str(requirement) for requirement in found)


def _extras(requirement: str) -> list[str]:
    found = re.match(r"[\w.-]+\s*\[([^\]]*)\]", requirement)
    return [] if found is None else [extra.strip() for extra in found[1].split(",") if extra.strip()]


def _imported(app: Path) -> Iterator[str]:
    """Yield the distributions that the files of an app import, without the app's own modules."""
    files = code_beside(app)
    own = {Path(name).parts[0].partition(".")[0] for name in files}
    modules = {
        module: name
        for name, path in files.items()
        if path.suffix == ".py"
        for module in _modules_in(path)
        if module not in own and module not in sys.stdlib_module_names and module != "penstock"
    }
    installed = metadata.packages_distributions()
    missing = sorted(module for module in modules if module not in installed)
    if missing:
        raise ImageRefused(
            f"{modules[missing[0]]} imports {missing[0]}, and no installed package has it. No file was written. Install it here, so that its version "
            "is known, or declare the app's dependencies in a pyproject.toml beside it."
        )
    for distribution in sorted({installed[module][0] for module in modules}):
        yield f"{distribution}=={metadata.version(distribution)}"


def _modules_in(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports; none of a file that is no valid Python, which no app can import."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def locked(requirements: Iterable[str], wheels: Path) -> str:
    """Return requirements with all that they need, each with one version, and on Linux with the hash of its file.

    Each version is the installed one, if it fits.

    Args:
        requirements: the requirements.
        wheels: a folder with wheels that no index has; it may be missing.

    Raises:
        ImageRefused: pip is missing, or finds no versions.
    """
    installed = {_normal(each.name): each.version for each in metadata.distributions() if each.name}
    constraints = "\n".join(
        f"{name}=={version}" for name, version in sorted(installed.items()) if not _PENSTOCK.match(name)
    )
    links = ["--find-links", str(wheels)] if wheels.is_dir() else []
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--quiet",
        "--disable-pip-version-check",
    ]
    command += ["--report", "-", "--constraint", "/dev/stdin", *links, *requirements]
    try:
        done = subprocess.run(
            command, input=constraints, capture_output=True, text=True, timeout=RESOLVE_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ImageRefused(
            f"pip found no versions within {error.timeout:.0f} s. No file was written. Check the package index, and repeat the command."
        ) from error
    if done.returncode:
        reason = done.stderr.strip().rpartition("ERROR: ")[2] or f"exit code {done.returncode}"
        raise ImageRefused(
            f"pip cannot resolve {' '.join(requirements)}: {reason}. No file was written. If no index has Penstock, build its wheel first: "
            f"`pip wheel --no-deps -w {wheels} PATH_OF_PENSTOCK`. A requirements.lock of your own is used as it is."
        )
    found = [_line(item) for item in json.loads(done.stdout)["install"]]
    return (
        f"# Written by `penstock image`, for Python {platform.python_version()} on {platform.machine()}. Delete it to lock again.\n"
        + "".join(f"{line}\n" for line in sorted(found))
    )


def _line(item: Mapping[str, dict[str, dict[str, dict[str, str]]]]) -> str:
    about = item["metadata"]
    digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    # Wheels of another system have other hashes.
    return f"{_normal(str(about['name']))}=={about['version']}" + (
        f" --hash=sha256:{digest}" if digest and sys.platform == "linux" else ""
    )


def _normal(name: str) -> str:
    """Return the name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
