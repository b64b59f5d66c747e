"""The jars of the services: fetched once by the Ivy that PySpark ships, into a folder that is whole or absent."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.sax.saxutils import quoteattr

from .errors import JarsUnavailableError
from .java import Java
from .lock import exclusive

Progress = Callable[[str], None]

_RESOLVED = re.compile(r"^\s*found [^#\s]+#(?P<name>[^;\s]+);(?P<version>\S+) in ")
_FETCHED = re.compile(r"\[SUCCESSFUL \] [^#]+#[^;]+;(?P<version>[^!]+)!(?P<artifact>.+)\.jar")
_MISSING = re.compile(r"^\s*:: (?P<module>[^#\s]+#[^;\s]+;[^!:\s]+)")
# Ivy itself waits for ever on a connection that went silent.
_TIMEOUTS = ("-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000")


@dataclass(frozen=True, slots=True)
class Module:
    """A published module; with `alone` its own jar only, without what it depends on."""

    organisation: str
    name: str
    version: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class JarSet:
    """Modules that are fetched into one folder, named by `name` (with the version in it)."""

    name: str
    modules: tuple[Module, ...]


def cache_folder() -> Path:
    """Return where Penstock keeps what can be fetched again: `$XDG_CACHE_HOME/penstock`, else `~/.cache/penstock`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def pyspark_jars() -> Path:
    """Return the folder of jars that the installed PySpark brings.

    Raises:
        JarsUnavailableError: PySpark is not installed, or is its small variant that has no jars.
    """
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        raise JarsUnavailableError(
            "The local services are fetched and partly run by the jars that PySpark brings, and none are installed. "
            "Install the full `pyspark` package (not `pyspark-client`) in the environment that runs Penstock."
        )
    return folder


def pyspark_jar(name: str) -> Path:
    """Return PySpark's jar of this name, whatever its version.

    Raises:
        JarsUnavailableError: this PySpark does not bring it.
    """
    folder = pyspark_jars()
    found = sorted(folder.glob(f"{name}-[0-9]*.jar"))
    if not found:
        raise JarsUnavailableError(
            f"The local services need the jar {name} that PySpark brings, and {folder} has none: this PySpark is too "
            "old, too new, or damaged. Install the version of `pyspark` that Penstock asks for again."
        )
    return found[-1]


def fetch(jars: JarSet, java: Java, progress: Progress) -> Path:
    """Return the folder with these jars, fetched now if they never were.

    Safe beside other processes that fetch: one does it, the others wait and find it done.

    Args:
        jars: what is wanted.
        java: runs Ivy.
        progress: gets a line per jar known to be needed, then one per jar fetched.

    Raises:
        JarsUnavailableError: something could not be fetched; nothing half fetched will ever be used.
    """
    parent = cache_folder() / "jars"
    folder = parent / jars.name
    if folder.is_dir():
        return folder
    with exclusive(
        parent / ".lock", partial(progress, f"{jars.name}: another process is fetching jars, waiting for it")
    ):
        if folder.is_dir():
            return folder
        for left_by_a_kill in parent.glob(".aside-*"):
            shutil.rmtree(left_by_a_kill)
        with tempfile.TemporaryDirectory(prefix=".aside-", dir=parent) as aside:
            progress(f"{jars.name}: asking which jars belong to it")
            _retrieve(jars, java, Path(aside), progress)
            Path(aside, "jars").rename(folder)
    return folder


def _retrieve(jars: JarSet, java: Java, aside: Path, progress: Progress) -> None:
    description = aside / "ivy.xml"
    description.write_text(_ivy_xml(jars), encoding="utf-8")
    cache = cache_folder() / "ivy"
    pattern = f"{aside}/jars/[artifact]-[revision](-[classifier]).[ext]"
    command = java.command(
        "org.apache.ivy.Main",
        ("-ivy", str(description), "-confs", "default", "-cache", str(cache), "-retrieve", pattern),
        classpath=[str(pyspark_jar("ivy"))],
        options=(*_TIMEOUTS, f"-Divy.default.ivy.user.dir={cache}"),
    )
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        try:
            missing = follow(ivy.stdout or (), progress)
        except BaseException:
            ivy.kill()
            raise
    present = {path.name for path in (aside / "jars").glob("*.jar")}
    # Ivy may also end content with less than was asked for.
    missing = missing or [
        module.name for module in jars.modules if f"{module.name}-{module.version}.jar" not in present
    ]
    if ivy.returncode or missing:
        names = ", ".join(dict.fromkeys(missing)) or f"some of the jars of {jars.name}"
        raise JarsUnavailableError(
            f"{jars.name} cannot be started here yet, because its jars could not be fetched from the Java package "
            f"registry: {names}. Nothing was kept half fetched, and what did arrive is not fetched again: check the "
            "network (and the proxy that Java is told of), then run the same command again."
        )


def follow(lines: Iterable[str], progress: Progress) -> list[str]:
    """Turn what Ivy prints into progress, and return the modules it could not get.

    Ivy's own lines are not passed on: they are of its inner life, and hold addresses.
    """
    resolved = fetched = 0
    missing = []
    for line in lines:
        if known := _RESOLVED.search(line):
            resolved += 1
            progress(f"{known['name']} {known['version']} belongs to it")
        elif found := _FETCHED.search(line):
            fetched += 1
            progress(f"{found['artifact']}-{found['version']}.jar {fetched} of {resolved}")
        elif failed := _MISSING.search(line):
            missing.append(failed["module"])
    return missing


def _ivy_xml(jars: JarSet) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(module.organisation)} name={quoteattr(module.name)} rev={quoteattr(module.version)}"
        f' conf="default-&gt;{"master" if module.alone else "default"}"/>'
        for module in jars.modules
    )
    return (
        '<ivy-module version="2.0"><info organisation="penstock" module="services"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
