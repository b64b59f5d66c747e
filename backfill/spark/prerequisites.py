"""Checks before Spark starts: a suitable Java on this machine, and a Spark master that accepts connections."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ..errors import BackfillRefused

OLDEST = 17
JAVA_LIMIT_S = 30.0
INSTALL = (
    f"Install a Java runtime of version {OLDEST} or newer (Debian and Ubuntu: `apt install openjdk-{OLDEST}-jre-headless`; "
    f"macOS: `brew install openjdk@{OLDEST}`), then set JAVA_HOME to its folder or add its `java` to PATH."
)


def java_candidates() -> list[Path]:
    """Return the paths of `java`: first from JAVA_HOME, then from PATH."""
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    paths = [Path(home, "bin", "java")] if home else []
    return [*paths, Path(on_path)] if on_path else paths


def java_version(path: Path) -> int | None:
    """Return the major version of a `java`; None if it does not run."""
    try:
        # The placeholder `java` of macOS prints where to download Java, and no version.
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=JAVA_LIMIT_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return major_version(done.stderr + done.stdout)


def major_version(printed: str) -> int | None:
    """Return the major version in the output of `java -version`; None without one.

    Versions before 9 are printed as 1.x (`1.8.0_392` is 8); early access builds end in `-ea`.
    """
    match = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(match[1]) if match else None


def expect_java() -> None:
    """Check that Spark finds a Java of a supported version.

    Raises:
        BackfillRefused: there is no Java, or it is too old.
    """
    found = java_candidates()
    if not found:
        raise BackfillRefused(
            f"Spark needs Java, and neither JAVA_HOME nor PATH has one. Nothing was started. {INSTALL}"
        )
    # Spark uses the first one.
    path = found[0]
    major = java_version(path)
    if major is None or major < OLDEST:
        problem = "does not run" if major is None else f"is Java {major}"
        raise BackfillRefused(
            f"Spark needs Java {OLDEST} or newer, and would use {path}, which {problem}. Nothing was started. {INSTALL}"
        )


CONNECT_LIMIT_S = 10.0


_STANDALONE = "spark://"


def is_local(master: str) -> bool:
    """Return whether Spark runs in this process's environment on this machine."""
    return master == "local" or master.startswith("local[")


def expect_reachable(master: str) -> None:
    """Check that a master of a standalone cluster accepts connections: Spark would try for a minute and then give no reason.

    Other clusters are not checked: YARN and Kubernetes have their addresses in files and services of their own.

    Raises:
        BackfillRefused: no master accepts a connection.
    """
    if not master.startswith(_STANDALONE):
        return
    refusals = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host, port), timeout=CONNECT_LIMIT_S).close()
        except OSError as error:
            refusals.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise BackfillRefused(
        f"No Spark master answers at {master} ({'; '.join(refusals)}). Nothing was started. Check that it runs and that this machine "
        "can reach it. Its web page shows the address that begins with spark://."
    )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise BackfillRefused(
                f"{master} is not a Spark master: write spark://HOST:PORT, or spark://HOST:PORT,HOST:PORT for several. Nothing was started."
            )
        yield host, int(port)
