"""The jars of the services: downloaded once by PySpark's Ivy, into a folder that is complete or absent."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ....processors import counted
from ...shell import ReportStep, exclusive
from .errors import JarsUnavailableError
from .java import Java

_RESOLVED = re.compile(r"^\s*found [^#\s]+#[^;\s]+;\S+ in ")
_FETCHED = re.compile(r"\[SUCCESSFUL \] [^#]+#[^;]+;(?P<version>[^!]+)!(?P<artifact>.+)\.jar")
_MISSING = re.compile(r"^\s*:: (?P<module>[^#\s]+#[^;\s]+;[^!:\s]+)")
# Without timeouts, Ivy waits forever for a connection that stops responding.
_TIMEOUTS = ("-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000")


@dataclass(frozen=True, slots=True)
class Module:
    """A published module. With `alone`, only its own jar is downloaded, without its dependencies."""

    organisation: str
    name: str
    version: str
    alone: bool = False


@dataclass(frozen=True, slots=True)
class JarSet:
    """Modules in one folder, whose name contains the version."""

    name: str
    modules: tuple[Module, ...]


def cache_folder() -> Path:
    """Return the cache folder: `$XDG_CACHE_HOME/penstock`, or `~/.cache/penstock`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "penstock"


def ivy_log() -> Path:
    """Return the file with Ivy's output of the last download."""
    return cache_folder() / "ivy.log"


def pyspark_jars() -> Path:
    """Return the folder of PySpark's jars.

    Raises:
        JarsUnavailableError: PySpark is not installed, or only `pyspark-client`, which has no jars.
    """
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        raise JarsUnavailableError(
            "The local services need PySpark's jars, which are not installed. No service was started. Install the full "
            "`pyspark` package (not `pyspark-client`) in Penstock's environment."
        )
    return folder


def pyspark_jar(name: str) -> Path:
    """Return PySpark's jar with a name, of any version.

    Raises:
        JarsUnavailableError: this PySpark does not contain it.
    """
    folder = pyspark_jars()
    found = sorted(folder.glob(f"{name}-[0-9]*.jar"))
    if not found:
        raise JarsUnavailableError(
            f"The local services need PySpark's jar {name}, which is missing in {folder}: this PySpark is too old, too new, or "
            "damaged. No service was started. Install the version of `pyspark` that Penstock requires."
        )
    return found[-1]


def fetch(jars: JarSet, java: Java, progress: ReportStep) -> Path:
    """Return the folder of a set of jars, and download them if it does not exist.

    Of several processes, one downloads, and the others wait for it.

    Args:
        jars: the modules.
        java: runs Ivy.
        progress: receives a line at the start, a line per downloaded jar, and a line at the end.

    Raises:
        JarsUnavailableError: a jar could not be downloaded. A partial download is never used.
    """
    parent = cache_folder() / "jars"
    folder = parent / jars.name
    if folder.is_dir():
        return folder
    with exclusive(
        parent / ".lock", partial(progress, f"{jars.name}: waiting for another process that downloads jars")
    ):
        if folder.is_dir():
            return folder
        for interrupted in parent.glob(".partial-*"):
            shutil.rmtree(interrupted)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=parent) as partial_folder:
            progress(f"{jars.name}: downloading its jars")
            began_s = time.monotonic()
            _retrieve(jars, java, Path(partial_folder), progress)
            Path(partial_folder, "jars").rename(folder)
            jar_count = sum(1 for _ in folder.glob("*.jar"))
            progress(f"{jars.name}: {counted(jar_count, 'jar')} in {time.monotonic() - began_s:.0f} s")
    return folder


def _retrieve(jars: JarSet, java: Java, target: Path, progress: ReportStep) -> None:
    description = target / "ivy.xml"
    description.write_text(_ivy_xml(jars), encoding="utf-8")
    cache = cache_folder() / "ivy"
    pattern = f"{target}/jars/[artifact]-[revision](-[classifier]).[ext]"
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
            missing = report_progress(_logged(ivy.stdout or (), ivy_log()), progress)
        except BaseException:
            ivy.kill()
            raise
    present = {path.name for path in (target / "jars").glob("*.jar")}
    # Ivy may succeed although jars are missing.
    missing = missing or [
        module.name for module in jars.modules if f"{module.name}-{module.version}.jar" not in present
    ]
    if ivy.returncode or missing:
        names = ", ".join(dict.fromkeys(missing)) or f"some of the jars of {jars.name}"
        raise JarsUnavailableError(
            f"{jars.name} cannot start, because jars could not be downloaded from the Java package registry: {names}. "
            f"Complete jars are kept. Check the network and Java's proxy settings, and repeat the command. {ivy_log()} contains the details."
        )


def _logged(lines: Iterable[str], log: Path) -> Iterator[str]:
    """Yield lines, and write them to a file."""
    with log.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(line)
            yield line


def report_progress(lines: Iterable[str], progress: ReportStep) -> list[str]:
    """Report progress from Ivy's output, and return the modules that Ivy could not download.

    Ivy's own lines are only in its log, because they contain internal details and addresses.
    """
    resolved = fetched = 0
    missing = []
    for line in lines:
        if _RESOLVED.search(line):
            resolved += 1
        elif done := _FETCHED.search(line):
            fetched += 1
            progress(f"{done['artifact']}-{done['version']}.jar {fetched} of {resolved}")
        elif failed := _MISSING.search(line):
            missing.append(failed["module"])
    return missing


def _ivy_xml(jars: JarSet) -> str:
    from xml.sax.saxutils import quoteattr  # noqa: PLC0415 - slow to import, and few commands fetch jars

    dependencies = "".join(
        f"<dependency org={quoteattr(module.organisation)} name={quoteattr(module.name)} rev={quoteattr(module.version)}"
        f' conf="default-&gt;{"master" if module.alone else "default"}"/>'
        for module in jars.modules
    )
    return (
        '<ivy-module version="2.0"><info organisation="penstock" module="services"/>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
