"""The Java of this machine: found, and its version known, before anything is started on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from ..errors import BackfillRefused

OLDEST = 17
ANSWER_LIMIT_S = 30.0
INSTALL = (
    f"Install a Java runtime of version {OLDEST} or newer (Debian and Ubuntu: `apt install openjdk-{OLDEST}-jre-headless`; "
    f"macOS: `brew install openjdk@{OLDEST}`), then let JAVA_HOME name its folder or put its `java` on PATH."
)


def candidates() -> list[Path]:
    """Return where a `java` may be: that of JAVA_HOME before that on PATH."""
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    paths = [Path(home, "bin", "java")] if home else []
    return [*paths, Path(on_path)] if on_path else paths


def version_of(path: Path) -> int | None:
    """Return the major version of a `java`, or None if it does not run."""
    try:
        # macOS has a `java` that only says where to get one: it prints no version.
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=ANSWER_LIMIT_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return major_version(done.stderr + done.stdout)


def major_version(told: str) -> int | None:
    """Return the major version in what `java -version` printed, or None if there is none.

    Versions before 9 are told as 1.x (`1.8.0_392` is 8); early access builds end in `-ea`.
    """
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(match[1]) if match else None


def expect_java() -> None:
    """Hold that Spark has a Java to run on.

    Raises:
        BackfillRefused: it has none, or one that is too old.
    """
    found = candidates()
    if not found:
        raise BackfillRefused(
            f"Spark runs on Java, and there is none by JAVA_HOME or on PATH. Nothing was started. {INSTALL}"
        )
    # Spark takes the first, whatever the other is.
    path = found[0]
    major = version_of(path)
    if major is None or major < OLDEST:
        what = "does not run" if major is None else f"is Java {major}"
        raise BackfillRefused(
            f"Spark needs Java {OLDEST} or newer, and {path}, which it would run on, {what}. Nothing was started. {INSTALL}"
        )
