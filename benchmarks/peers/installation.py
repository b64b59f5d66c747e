"""The peers' installations: each in an environment of its own, at pinned versions, in a cache folder outside the repository.

A folder whose name contains the versions is complete or absent, so an interrupted installation starts again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
LINES_OF_A_FAILURE = 5


class NotInstalledError(Exception):
    """A peer could not be installed; the message contains the command and its last lines."""


def cache_folder() -> Path:
    """Return the default cache folder: `$XDG_CACHE_HOME/penstock-peers`, or `~/.cache/penstock-peers`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-peers"


def python_with(cache: Path, name: str, *requirements: str) -> Path:
    """Return the Python of a virtual environment with these packages.

    Args:
        cache: the cache folder.
        name: the peer.
        requirements: the packages, with pinned versions.

    Raises:
        NotInstalledError: pip failed.
    """

    def install(folder: Path) -> None:
        _run(sys.executable, "-m", "venv", str(folder))
        pip = (str(folder / "bin" / "python"), "-m", "pip")
        _run(*pip, "install", "--quiet", "--disable-pip-version-check", *requirements)

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return _complete(cache, name, " ".join((version, *requirements)), install) / "bin" / "python"


def jars_of(cache: Path, name: str, project: Path) -> Path:
    """Return the folder with the jars of a Maven project's dependencies.

    Args:
        cache: the cache folder.
        name: the peer.
        project: the file of the project.

    Raises:
        NotInstalledError: Maven is missing, or it failed.
    """

    def install(folder: Path) -> None:
        _run(
            *("mvn", "--quiet", "--batch-mode", "--file", str(project), COPY_JARS),
            *(f"-DoutputDirectory={folder}", "-DincludeScope=runtime"),
        )

    return _complete(cache, name, project.read_text(encoding="utf-8"), install)


def classes_of(cache: Path, name: str, source: Path, jars: Path) -> Path:
    """Return the folder with the compiled classes of a Java source.

    Args:
        cache: the cache folder.
        name: the peer.
        source: the Java file.
        jars: the folder with its dependencies.

    Raises:
        NotInstalledError: the JDK's `javac` is missing, or it failed.
    """

    def install(folder: Path) -> None:
        _run("javac", "-cp", f"{jars}/*", "-d", str(folder), str(source))

    return _complete(cache, name, source.read_text(encoding="utf-8") + str(jars), install)


def _complete(cache: Path, name: str, content: str, install: Callable[[Path], None]) -> Path:
    """Return the folder of an installation, and install into it if it has no mark of a complete installation."""
    folder = cache / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    mark = folder / ".complete"
    if mark.exists():
        return folder
    # Virtual environments cannot be renamed, so the mark shows that all is there.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"Installing {name} into {folder} …", file=sys.stderr, flush=True)
    install(folder)
    mark.touch()
    return folder


def _run(*command: str) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    except FileNotFoundError as error:
        raise NotInstalledError(f"`{command[0]}` is not on the PATH.") from error
    if done.returncode:
        raise NotInstalledError(f"`{' '.join(command)}` failed:\n{last_lines(done.stdout.splitlines())}")


def last_lines(lines: Sequence[str]) -> str:
    """Return the end of an output without the frames of Java's stacks, as a part of an error."""
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    return "\n".join(f"  {line}" for line in kept[-LINES_OF_A_FAILURE:])
