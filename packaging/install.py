"""Creates the environment of a clone: one line per stage, and the installers' own output in a log.

    requirements.lock --uv, or pip--> packages with checked hashes; then the clone itself, editable, with its C code compiled

    python packaging/install.py FOLDER [uv|pip]

Runs before anything is installed, so it uses only the standard library.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LOCK = Path("requirements.lock")
LOG = "install.log"
"""The name of the log in the folder of the environment."""
SHOWN_LINES = 15
"""The number of the log's last lines that an error shows."""
_PINNED = re.compile(r"^[A-Za-z0-9][\w.-]*==", re.MULTILINE)


class StageFailed(Exception):
    """A stage failed.

    Args:
        log: the file with the output of its command.
    """

    def __init__(self, log: Path) -> None:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        shown = "\n".join(f"  {line}" for line in lines[-SHOWN_LINES:])
        super().__init__(
            f"The last lines of {log}:\n{shown}\nThe environment is incomplete. Correct the cause, and repeat the command: it continues from here."
        )


class Installation:
    """Installs into an environment.

    Args:
        folder: the environment, which may not exist yet.
        installer: `uv` or `pip`.
    """

    def __init__(self, folder: Path, installer: str) -> None:
        self._python = folder / "bin" / "python"
        self._log = folder / LOG
        self._uses_uv = installer == "uv"

    def run(self) -> None:
        """Create the environment, and install the locked packages and the clone.

        Raises:
            StageFailed: a command failed.
        """
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.write_text("")
        if not self._python.exists():
            # Also for uv: the environment contains pip, which tests and `make lock` use.
            self._stage("creating it", [sys.executable, "-m", "venv", str(self._log.parent)])
        name = "uv" if self._uses_uv else "pip"
        packages = len(_PINNED.findall(LOCK.read_text(encoding="utf-8")))
        self._stage(
            f"installing up to {packages} locked packages with {name}",
            self._install("--require-hashes", "-r", str(LOCK)),
        )
        self._stage("building Penstock", self._install("--no-deps", "--editable", "."))

    def _install(self, *arguments: str) -> list[str]:
        if self._uses_uv:
            return ["uv", "pip", "install", "--python", str(self._python), *arguments]
        # Most modules of the packages are never imported; Python compiles the others when they are.
        options = ["--disable-pip-version-check", "--no-compile", "--progress-bar", "off"]
        return [str(self._python), "-m", "pip", "install", *options, *arguments]

    def _stage(self, stage: str, command: Sequence[str]) -> None:
        with timed(f"{self._log.parent}: {stage}"), self._log.open("ab") as log:
            log.write(f"$ {' '.join(command)}\n".encode())
            log.flush()
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                raise StageFailed(self._log)


@contextmanager
def timed(stage: str) -> Iterator[None]:
    """Print one line for a stage: its name when it begins, and its seconds when it ends."""
    print(f"{stage} …", end="", flush=True)
    began_s = time.monotonic()
    outcome = "failed after "
    try:
        yield
        outcome = ""
    finally:
        print(f" {outcome}{time.monotonic() - began_s:.0f} s", flush=True)


def main() -> None:
    """Install into the folder of the command line."""
    folder, *named = sys.argv[1:]
    chosen = named or (["uv", "pip"] if shutil.which("uv") else ["pip"])
    try:
        _install_with(Path(folder), chosen)
    except StageFailed as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Interrupted. The same command continues from here.")


def _install_with(folder: Path, installers: Sequence[str]) -> None:
    """Install with the first installer that succeeds: uv reads no configuration of pip, such as that of a mirror.

    Raises:
        StageFailed: the last one failed.
    """
    first, *others = installers
    try:
        Installation(folder, first).run()
    except StageFailed as error:
        if not others:
            raise
        print(f"{error}\nGoing on with {others[0]}.", flush=True)
        _install_with(folder, others)


if __name__ == "__main__":
    main()
